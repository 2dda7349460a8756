//! Compiles every `.proto` file below `berth/` and `csi/` without a system `protoc`.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use prost::Message as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut files = Vec::new();
    for folder in ["berth", "csi"] {
        println!("cargo:rerun-if-changed={folder}");
        collect(Path::new(folder), &mut files)?;
    }
    files.sort();

    let descriptors = protox::compile(&files, ["."])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Served by gRPC reflection, so that clients such as grpcurl need no files of ours.
    fs::write(out.join("descriptor.bin"), descriptors.encode_to_vec())?;
    let mut config = tonic_prost_build::Config::new();
    // Statuses carry messages of ours by the URL of their type.
    config.enable_type_names();
    config.type_name_domain(["."], "type.googleapis.com");
    tonic_prost_build::configure()
        .bytes(".")
        // Deterministic order: encoded commands and rows are hashed and compared between members.
        .btree_map(".")
        .compile_fds_with_config(descriptors, config)?;
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "proto") {
            files.push(path);
        }
    }
    Ok(())
}
