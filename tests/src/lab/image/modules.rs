//! Modules of a kernel package, in the order in which they can be loaded.
//!
//! What it is not: modprobe. A package that is only unpacked has no index of its modules,
//! so that each module's own list of what it depends on is read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// A module, uncompressed.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) name: String,
    pub(super) content: Vec<u8>,
}

/// Those that have been collected; each stands after all that it depends on.
#[derive(Debug, Default)]
pub(super) struct Modules {
    ordered: Vec<Module>,
}

impl Modules {
    /// Collects the named modules and what they depend on from a tree of modules.
    pub(super) fn collect(tree: &Path, names: &[&str]) -> Result<Vec<Module>> {
        let mut files = Vec::new();
        list(tree, &mut files)?;
        let mut modules = Self::default();
        for name in names {
            modules.add(&files, name)?;
        }
        Ok(modules.ordered)
    }

    fn add(&mut self, files: &[PathBuf], name: &str) -> Result<()> {
        if self.ordered.iter().any(|module| module.name == name) {
            return Ok(());
        }
        // Without a file it is built into the kernel, and so is what it depends on.
        let Some(file) = files
            .iter()
            .find(|file| module_name(file).as_deref() == Some(name))
        else {
            return Ok(());
        };
        let content = read(file)?;
        for dependency in dependencies(&content) {
            self.add(files, &dependency)?;
        }
        self.ordered.push(Module {
            name: name.to_owned(),
            content,
        });
        Ok(())
    }
}

fn list(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            list(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// The name of the module in that file: `virtio_net` for `virtio-net.ko.xz`.
fn module_name(file: &Path) -> Option<String> {
    let (name, ending) = file.file_name()?.to_str()?.split_once('.')?;
    ["ko", "ko.xz", "ko.zst"]
        .contains(&ending)
        .then(|| name.replace('-', "_"))
}

/// What the module says it depends on: the entry `depends` of its section `.modinfo`,
/// which is a list of strings with a zero byte after each.
fn dependencies(content: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"depends=";
    content
        .split(|byte| *byte == 0)
        .find_map(|string| string.strip_prefix(KEY))
        .map(|list| String::from_utf8_lossy(list).into_owned())
        .unwrap_or_default()
        .split(',')
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let program = match path.extension().and_then(|ending| ending.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => return Ok(fs::read(path)?),
    };
    let output = Command::new(program)
        .arg("-dc")
        .arg(path)
        .output()
        .with_context(|| format!("{program} does not run"))?;
    ensure!(
        output.status.success(),
        "{program} cannot read {}",
        path.display()
    );
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_loaded_first_and_once() {
        let tree = tempfile::tempdir().unwrap();
        let write = |name: &str, depends: &str| {
            let content = format!("\x7fELF\0license=GPL\0depends={depends}\0name={name}\0");
            fs::write(tree.path().join(format!("{name}.ko")), content).unwrap();
        };
        write("net", "ring,fail-over");
        write("block", "ring,built_in");
        write("ring", "");
        write("fail_over", "");
        let modules = Modules::collect(tree.path(), &["block", "net"]).unwrap();
        let names: Vec<_> = modules.iter().map(|module| module.name.as_str()).collect();
        assert_eq!(names, ["ring", "block", "fail_over", "net"]);
    }

    #[test]
    fn module_names_are_taken_from_files_of_any_compression() {
        let check = |file: &str, expected: Option<&str>| {
            assert_eq!(module_name(Path::new(file)).as_deref(), expected);
        };
        check("/x/virtio-rng.ko", Some("virtio_rng"));
        check("/x/virtio_net.ko.xz", Some("virtio_net"));
        check("/x/modules.order", None);
    }
}
