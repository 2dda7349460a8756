//! Compiles the little of etcd's API that the benchmark speaks, without a system `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["proto/etcd.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_server(false)
        .bytes(".")
        .compile_fds(descriptors)?;
    Ok(())
}
