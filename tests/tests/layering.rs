//! Holds the table of who may import whom, the purity of the crates that decide, and that modules
//! form no circles where they formed none.
//!
//! Goal: a crate that decides must not be able to do I/O, read a clock or draw a random number,
//! and no layer may reach around another. Method: `cargo metadata` for the edges between our
//! crates and for foreign dependencies of the pure ones; their sources for the parts of `std`
//! that no manifest shows.
//!
//! A program of its own beside `all`: it uses none of our crates, so it is linked at once, and it is
//! the test that a change of a manifest runs alone.

#[path = "layering/modules.rs"]
mod modules;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

/// Our crates and which of ours they may import, in the order of the architecture.
const ALLOWED: &[(&str, &[&str])] = &[
    ("berth-domain", &[]),
    ("berth-selection", &["berth-domain"]),
    ("berth-ganeti", &[]),
    ("berth-state", &["berth-domain"]),
    (
        "berth-decide",
        &["berth-domain", "berth-selection", "berth-state"],
    ),
    (
        "berth-replay",
        &[
            "berth-domain",
            "berth-selection",
            "berth-state",
            "berth-decide",
        ],
    ),
    ("berth-saga", &["berth-domain"]),
    ("berth-files", &[]),
    ("berth-migrations", &["berth-files"]),
    ("berth-store", &["berth-files", "berth-migrations"]),
    ("berth-tls", &["berth-files"]),
    ("berth-traces", &["berth-tls"]),
    (
        "berth-proto",
        &["berth-domain", "berth-files", "berth-tls", "berth-traces"],
    ),
    ("berth-process", &["berth-tls", "berth-traces"]),
    (
        "berth-log-service",
        &["berth-domain", "berth-process", "berth-proto"],
    ),
    ("berth-host", &["berth-domain"]),
    ("berth-driver-api", &["berth-domain"]),
    ("berth-driver", &["berth-domain", "berth-driver-api"]),
    ("berth-agent-core", &["berth-domain", "berth-driver-api"]),
    ("berth-pmem", &["berth-domain", "berth-files"]),
    ("berth-csi", &["berth-domain", "berth-proto"]),
    (
        "berth-codec",
        &["berth-domain", "berth-state", "berth-store", "berth-proto"],
    ),
    (
        "berth-replication",
        &["berth-store", "berth-proto", "berth-tls"],
    ),
    ("berth-backup", &["berth-store", "berth-replication"]),
    (
        "berth-page",
        &["berth-domain", "berth-proto", "berth-process"],
    ),
    (
        "berth-placement-api",
        &[
            "berth-domain",
            "berth-selection",
            "berth-state",
            "berth-proto",
            "berth-process",
            "berth-tls",
        ],
    ),
    (
        "berth-scheduler",
        &[
            "berth-backup",
            "berth-codec",
            "berth-decide",
            "berth-files",
            "berth-page",
            "berth-placement-api",
            "berth-domain",
            "berth-selection",
            "berth-state",
            "berth-store",
            "berth-replication",
            "berth-log-service",
            "berth-proto",
            "berth-process",
            "berth-tls",
            "berth-traces",
        ],
    ),
    (
        "berth-compute-agent",
        &[
            "berth-agent-core",
            "berth-domain",
            "berth-host",
            "berth-driver",
            "berth-pmem",
            "berth-csi",
            "berth-files",
            "berth-log-service",
            "berth-proto",
            "berth-process",
            "berth-tls",
            "berth-traces",
        ],
    ),
    (
        "berth-csi-controller",
        &[
            "berth-domain",
            "berth-files",
            "berth-log-service",
            "berth-proto",
            "berth-process",
            "berth-tls",
        ],
    ),
    (
        "berth-csi-operator",
        &["berth-process", "berth-proto", "berth-tls"],
    ),
    (
        "berth-conductor",
        &[
            "berth-domain",
            "berth-saga",
            "berth-log-service",
            "berth-proto",
            "berth-process",
            "berth-tls",
            "berth-traces",
        ],
    ),
    (
        TESTKIT,
        &[
            "berth-domain",
            "berth-proto",
            "berth-selection",
            "berth-ganeti",
            "berth-state",
            "berth-store",
            "berth-replication",
        ],
    ),
];

/// Crates that may import anything: the command embeds the whole system, packages describe it, the tests
/// look at it.
const ABOVE_ALL: &[&str] = &[
    "berth-cli",
    "berth-dist",
    "berth-price",
    "berth-simulation",
    "berth-tests",
];

/// Helpers of tests and benchmarks. Only `berth-tests` and dev-dependencies may import it.
const TESTKIT: &str = "berth-testkit";

/// Crates that decide, and so must be functions of their arguments.
const PURE: &[&str] = &[
    "berth-domain",
    "berth-selection",
    "berth-ganeti",
    "berth-state",
    "berth-decide",
    "berth-replay",
    "berth-saga",
    "berth-driver-api",
    "berth-agent-core",
];

/// The only foreign crates that a pure crate may depend on.
const PURE_DEPENDENCIES: &[&str] = &[
    "imbl",
    "serde",
    "smallvec",
    "thiserror",
    "uuid",
    "xxhash-rust",
];

/// What must not stand in the sources of a pure crate.
const IMPURE: &[&str] = &[
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "std::io",
    "Instant",
    "SystemTime",
    "HashMap",
    "HashSet",
    "RandomState",
    "new_v4",
    "now_v7",
    "println!",
    "f32",
    "f64",
];

/// The one place where ratios are multiplied, as OpenStack Placement multiplies them.
const CALCULATES_WITH_FLOATS: &str = "domain/src/overcommit.rs";

/// Plans over Ganeti's model, whose score is made of standard deviations. Nothing of it is
/// replicated state, so two machines need not agree on its last bit.
const PLANS_WITH_FLOATS: &str = "berth-ganeti";

/// Plans over Berth's own model, with a score of the same kind. A plan is advice: what comes of it
/// is claimed and judged without any float.
const BALANCES_WITH_FLOATS: &str = "selection/src/balance";

/// Requests such plans, with the thresholds and weights of the client.
const REQUESTS_PLANS_WITH_FLOATS: &str = "decide/src/balance.rs";

fn metadata() -> Metadata {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    MetadataCommand::new()
        .manifest_path(manifest)
        .no_deps()
        .exec()
        .expect("cargo metadata runs")
}

/// Returns the names of what a package depends on outside of tests.
fn dependencies(package: &Package) -> BTreeSet<&str> {
    package
        .dependencies
        .iter()
        .filter(|d| d.kind != DependencyKind::Development)
        .map(|d| d.name.as_str())
        .collect()
}

#[test]
fn every_crate_is_in_the_table_and_imports_only_what_it_may() {
    let metadata = metadata();
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    let mut seen = BTreeSet::new();
    for package in &metadata.packages {
        let name = package.name.as_str();
        seen.insert(name);
        assert!(
            name == "berth-tests" || !dependencies(package).contains(TESTKIT),
            "{name} must not import {TESTKIT} outside of its tests"
        );
        if ABOVE_ALL.contains(&name) {
            continue;
        }
        let may = allowed
            .get(name)
            .unwrap_or_else(|| panic!("{name} is not in the table"));
        for dependency in dependencies(package)
            .into_iter()
            .filter(|d| d.starts_with("berth-"))
        {
            assert!(
                may.contains(&dependency),
                "{name} must not import {dependency}"
            );
        }
    }
    for (name, _) in ALLOWED {
        assert!(
            seen.contains(name),
            "{name} is in the table but not in the workspace"
        );
    }
}

#[test]
fn pure_crates_depend_on_pure_crates_only() {
    let metadata = metadata();
    let pure = metadata
        .packages
        .iter()
        .filter(|p| PURE.contains(&p.name.as_str()));
    for package in pure {
        for dependency in dependencies(package) {
            assert!(
                PURE.contains(&dependency) || PURE_DEPENDENCIES.contains(&dependency),
                "{} is pure and must not depend on {dependency}",
                package.name
            );
        }
    }
}

#[test]
fn pure_sources_do_no_io_and_know_no_clock_or_chance() {
    let metadata = metadata();
    let mut read = 0;
    for package in metadata
        .packages
        .iter()
        .filter(|p| PURE.contains(&p.name.as_str()))
    {
        let folder = package
            .manifest_path
            .parent()
            .expect("a manifest has a folder")
            .join("src");
        for file in rust_files(folder.as_std_path()) {
            let text = fs::read_to_string(&file).expect("a source is readable");
            read += 1;
            for (index, line) in production_lines(&text) {
                for word in IMPURE {
                    let floats = file.ends_with(CALCULATES_WITH_FLOATS)
                        || file.ends_with(REQUESTS_PLANS_WITH_FLOATS)
                        || package.name.as_str() == PLANS_WITH_FLOATS
                        || file
                            .parent()
                            .is_some_and(|p| p.ends_with(BALANCES_WITH_FLOATS));
                    if *word == "f64" && floats {
                        continue;
                    }
                    assert!(
                        !has_word(line, word),
                        "{}:{}: {word} in a pure crate: {line}",
                        file.display(),
                        index + 1
                    );
                }
            }
        }
    }
    assert!(read > PURE.len(), "no sources were read");
}

/// Returns the lines before the tests, without comments.
fn production_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .take_while(|(_, line)| !line.starts_with("#[cfg(test)]"))
        .map(|(index, line)| (index, line.split("//").next().unwrap_or("")))
}

fn has_word(line: &str, word: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
    line.match_indices(word).any(|(start, _)| {
        edge(line[..start].chars().next_back()) && edge(line[start + word.len()..].chars().next())
    })
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a crate has sources") {
        let path = entry.expect("a folder is readable").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files
}
