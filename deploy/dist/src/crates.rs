//! Which crates a program is made of, as cargo resolves them for a build of all programs together.
//!
//! `cargo tree` applies the features as the build does, which `cargo metadata` does not: there, what a test
//! needs of a crate counts for all. Licences are in the metadata, checksums in `Cargo.lock`.
//!
//! Invariant: no dev-dependency; a crate that runs only while programs are compiled is not linked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use cargo_metadata::{Metadata, MetadataCommand};
use serde::Deserialize;

/// The name and version of a crate: there is one of each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// The name.
    pub name: String,
    /// The version.
    pub version: String,
}

/// What is known of a crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crate {
    /// Its licences, as an expression of SPDX.
    pub licence: Option<String>,
    /// SHA-256 of its archive in the registry, in hexadecimal; none for a crate of this workspace.
    pub sha256: Option<String>,
    /// What it directly depends on, compile time included.
    pub dependencies: BTreeSet<Id>,
    /// What of it is linked with it.
    linked: BTreeSet<Id>,
}

/// The crates of all programs.
#[derive(Clone, Debug)]
pub struct Crates {
    crates: BTreeMap<Id, Crate>,
    /// The crate of each program, by its name.
    programs: BTreeMap<String, Id>,
}

/// The part of `Cargo.lock` that is read.
#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

impl Crates {
    /// Reads those of some programs, which are built together, of the workspace in a directory.
    ///
    /// # Errors
    ///
    /// Cargo does not run, or there is no such program.
    pub fn read(workspace: &Path, programs: &BTreeSet<String>) -> anyhow::Result<Self> {
        let manifest = workspace.join("Cargo.toml");
        let metadata = MetadataCommand::new()
            .manifest_path(&manifest)
            .other_options(vec!["--locked".to_owned()])
            .exec()
            .context("cargo metadata")?;
        let programs = crates_of(&metadata, programs)?;
        let roots: BTreeSet<&str> = programs.values().map(|id| id.name.as_str()).collect();
        let all = edges(&tree(&manifest, &roots, "normal,build")?)?;
        let linked = edges(&tree(&manifest, &roots, "normal,no-proc-macro")?)?;
        let checksums = checksums(workspace)?;
        let mut crates = BTreeMap::new();
        for (id, dependencies) in all {
            let same = |p: &&cargo_metadata::Package| {
                *p.name == id.name && p.version.to_string() == id.version
            };
            let package = metadata.packages.iter().find(same);
            let package = package.with_context(|| format!("{} has no metadata", id.name))?;
            let sha256 = checksums.get(&id).cloned();
            ensure!(
                sha256.is_some() || package.source.is_none(),
                "{} {} has no checksum in Cargo.lock",
                id.name,
                id.version
            );
            // The older way to write it.
            let licence = package.license.as_ref().map(|l| l.replace('/', " OR "));
            let linked = linked.get(&id).cloned().unwrap_or_default();
            let found = Crate {
                licence,
                sha256,
                dependencies,
                linked,
            };
            crates.insert(id, found);
        }
        Ok(Self { crates, programs })
    }

    /// Returns the crate of a program.
    #[must_use]
    pub fn program(&self, name: &str) -> Option<&Id> {
        self.programs.get(name)
    }

    /// Returns all crates that some programs are made of, and whether each is linked.
    #[must_use]
    pub fn of(&self, programs: &BTreeSet<String>) -> BTreeMap<&Id, (&Crate, bool)> {
        let roots = programs.iter().filter_map(|name| self.programs.get(name));
        let roots: Vec<&Id> = roots.collect();
        let linked = self.reach(&roots, |found| &found.linked);
        let all = self.reach(&roots, |found| &found.dependencies);
        let crates = all.into_iter().filter_map(|id| {
            let is_linked = linked.contains(id);
            Some((id, (self.crates.get(id)?, is_linked)))
        });
        crates.collect()
    }

    fn reach<'a>(
        &'a self,
        roots: &[&'a Id],
        next: impl Fn(&'a Crate) -> &'a BTreeSet<Id>,
    ) -> BTreeSet<&'a Id> {
        let mut reached = BTreeSet::new();
        let mut open = roots.to_vec();
        while let Some(id) = open.pop() {
            if reached.insert(id) {
                open.extend(self.crates.get(id).into_iter().flat_map(&next));
            }
        }
        reached
    }
}

fn crates_of(
    metadata: &Metadata,
    programs: &BTreeSet<String>,
) -> anyhow::Result<BTreeMap<String, Id>> {
    let packages = metadata.workspace_packages();
    let crates = programs.iter().map(|program| {
        let is_program = |target: &cargo_metadata::Target| {
            target.name == *program && target.kind.contains(&cargo_metadata::TargetKind::Bin)
        };
        let package = packages.iter().find(|p| p.targets.iter().any(is_program));
        let package = package.with_context(|| format!("no crate has the program {program}"))?;
        let id = Id {
            name: package.name.to_string(),
            version: package.version.to_string(),
        };
        Ok((program.clone(), id))
    });
    crates.collect()
}

/// Runs `cargo tree`, which prints the depth of each crate before it.
fn tree(manifest: &Path, packages: &BTreeSet<&str>, edges: &str) -> anyhow::Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["tree", "--locked", "--prefix", "depth", "--format", " {p}"]);
    command.args(["--edges", edges, "--color", "never"]);
    command.arg("--manifest-path").arg(manifest);
    for package in packages {
        command.args(["--package", package]);
    }
    let output = command.output().context("cargo tree")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo tree: {error}");
    String::from_utf8(output.stdout).context("cargo tree")
}

/// Returns the edges of a tree in which each crate's own are printed at least once.
fn edges(tree: &str) -> anyhow::Result<BTreeMap<Id, BTreeSet<Id>>> {
    let mut edges: BTreeMap<Id, BTreeSet<Id>> = BTreeMap::new();
    let mut above: Vec<Id> = Vec::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let mut words = line.split_whitespace();
        let (depth, name, version) = (words.next(), words.next(), words.next());
        let depth = depth.and_then(|depth| depth.parse::<usize>().ok());
        let version = version.and_then(|version| version.strip_prefix('v'));
        let (Some(depth), Some(name), Some(version)) = (depth, name, version) else {
            bail!("cargo tree printed {line:?}");
        };
        let id = Id {
            name: name.to_owned(),
            version: version.to_owned(),
        };
        above.truncate(depth);
        ensure!(above.len() == depth, "cargo tree printed {line:?} too deep");
        if let Some(parent) = above.last() {
            edges.entry(parent.clone()).or_default().insert(id.clone());
        }
        edges.entry(id.clone()).or_default();
        above.push(id);
    }
    Ok(edges)
}

fn checksums(workspace: &Path) -> anyhow::Result<BTreeMap<Id, String>> {
    let text = fs::read_to_string(workspace.join("Cargo.lock")).context("Cargo.lock")?;
    let lock: Lock = toml::from_str(&text).context("Cargo.lock")?;
    let checksums = lock.package.into_iter().filter_map(|locked| {
        let id = Id {
            name: locked.name,
            version: locked.version,
        };
        Some((id, locked.checksum?))
    });
    Ok(checksums.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> Id {
        Id {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
        }
    }

    #[test]
    fn edges_are_those_of_the_tree() {
        let tree = "0 a v1.0.0 (/a)\n1 b v1.0.0 (proc-macro)\n2 c v1.0.0\n1 d v1.0.0\n2 c v1.0.0 (*)\n\n0 d v1.0.0 (*)\n";
        let edges = edges(tree).expect("a tree");
        let expected = [
            (id("a"), [id("b"), id("d")].into()),
            (id("b"), [id("c")].into()),
            (id("c"), BTreeSet::new()),
            (id("d"), [id("c")].into()),
        ];
        assert_eq!(edges, expected.into());
        for bad in ["a v1.0.0", "1 a v1.0.0", "0 a 1.0.0", "0 a"] {
            assert!(super::edges(bad).is_err(), "{bad}");
        }
    }
}
