//! Holds our dependencies to `deny.toml`: licences, bans, sources, and versions beside each other.
//!
//! Goal: a change of `Cargo.lock` that brings another licence, a crate that we refuse, a source that is
//! not the registry, or one more version of a crate is a decision, not an accident. Method: what
//! `cargo metadata` resolves for Linux, compared with the file that `cargo deny` reads too. Entries
//! that nothing needs any more fail as well.
//!
//! Not here: advisories, which need the RustSec database (`cargo deny check advisories`); only that
//! each ignored one is explained.
//!
//! A program of its own beside `all`, like `layering`: a change of a manifest runs it alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::semver::{Version, VersionReq};
use cargo_metadata::{MetadataCommand, Package};
use serde::Deserialize;
use spdx::{Expression, Licensee, ParseMode};

/// The part of `deny.toml` that is checked here.
#[derive(Deserialize)]
struct Rules {
    licenses: Licenses,
    bans: Bans,
    advisories: Advisories,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
    exceptions: Vec<Exception>,
}

#[derive(Deserialize)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<CrateSpec>,
    skip: Vec<CrateSpec>,
}

/// `name`, `name@requirement`, or a name with its requirement beside it; and why.
#[derive(Deserialize)]
struct CrateSpec {
    #[serde(rename = "crate")]
    spec: String,
    version: Option<String>,
    reason: String,
}

impl CrateSpec {
    fn matches(&self, name: &str, version: &Version) -> bool {
        let (own, beside) = match self.spec.split_once('@') {
            Some((own, requirement)) => (own, Some(requirement)),
            None => (self.spec.as_str(), self.version.as_deref()),
        };
        let requirement = beside.map(|text| VersionReq::parse(text).expect("a requirement"));
        own == name && requirement.is_none_or(|r| r.matches(version))
    }
}

#[derive(Deserialize)]
struct Advisories {
    ignore: Vec<Advisory>,
}

#[derive(Deserialize)]
struct Advisory {
    id: String,
    reason: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn rules() -> Rules {
    let text = fs::read_to_string(root().join("deny.toml")).expect("deny.toml is readable");
    toml::from_str(&text).expect("deny.toml is as cargo deny reads it")
}

/// Returns the foreign packages that are compiled for Linux, tests included.
fn packages() -> Vec<Package> {
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .other_options(
            ["--filter-platform", "x86_64-unknown-linux-gnu", "--locked"].map(Into::into),
        )
        .exec()
        .expect("cargo metadata runs");
    let resolved = metadata.resolve.expect("dependencies are resolved").nodes;
    let resolved: BTreeSet<_> = resolved.into_iter().map(|node| node.id).collect();
    let mut packages = metadata.packages;
    packages.retain(|p| p.source.is_some() && resolved.contains(&p.id));
    assert!(packages.len() > 200, "{} packages", packages.len());
    packages
}

fn licensee(text: &str) -> Licensee {
    Licensee::parse(text).unwrap_or_else(|_| panic!("{text:?} is no licence of SPDX"))
}

#[test]
fn every_licence_is_allowed() {
    let rules = rules().licenses;
    let mut unused: BTreeSet<&str> = rules.allow.iter().map(String::as_str).collect();
    let mut exceptions: BTreeSet<&str> = rules.exceptions.iter().map(|e| e.name.as_str()).collect();
    for package in packages() {
        let name = package.name.as_str();
        let text = package.license.as_deref();
        let text = text.unwrap_or_else(|| panic!("{name} states no licence"));
        let expression = Expression::parse_mode(text, ParseMode::LAX)
            .unwrap_or_else(|_| panic!("{name}: {text:?} cannot be read"));
        let exception = rules.exceptions.iter().find(|e| e.name == name);
        exceptions.remove(name);
        let own = exception.map_or(&[][..], |e| &e.allow);
        let allowed: Vec<&String> = rules.allow.iter().chain(own).collect();
        let is_allowed = expression.evaluate(|required| {
            let by: Vec<_> = allowed
                .iter()
                .filter(|a| licensee(a).satisfies(required))
                .collect();
            for text in &by {
                unused.remove(text.as_str());
            }
            !by.is_empty()
        });
        assert!(
            is_allowed,
            "{name} has the licence {text:?}, which deny.toml does not allow"
        );
    }
    assert!(
        unused.is_empty(),
        "allowed in deny.toml and not used: {unused:?}"
    );
    assert!(
        exceptions.is_empty(),
        "exceptions in deny.toml for nothing: {exceptions:?}"
    );
}

#[test]
fn nothing_is_banned_and_all_is_from_the_registry() {
    let bans = rules().bans.deny;
    for package in packages() {
        let name = package.name.as_str();
        let source = package.source.as_ref().expect("a foreign package");
        assert!(source.is_crates_io(), "{name} is from {source}");
        if let Some(ban) = bans.iter().find(|b| b.matches(name, &package.version)) {
            panic!("{name} {}: {}", package.version, ban.reason);
        }
    }
}

#[test]
fn only_listed_crates_are_there_in_more_than_one_version() {
    let skip = rules().bans.skip;
    let mut versions: BTreeMap<String, Vec<Version>> = BTreeMap::new();
    for package in packages() {
        let of = versions.entry(package.name.to_string()).or_default();
        of.push(package.version);
    }
    let mut unused: BTreeSet<&str> = skip.iter().map(|s| s.spec.as_str()).collect();
    for (name, versions) in &versions {
        let (skipped, stays): (Vec<_>, Vec<_>) = versions
            .iter()
            .partition(|version| skip.iter().any(|s| s.matches(name, version)));
        assert!(
            stays.len() == 1,
            "{name} has the versions {stays:?} beside {skipped:?}"
        );
        for spec in &skip {
            if skipped.iter().any(|version| spec.matches(name, version)) {
                unused.remove(spec.spec.as_str());
            }
        }
    }
    assert!(
        unused.is_empty(),
        "in the list of deny.toml for nothing: {unused:?}"
    );
}

#[test]
fn every_ignored_advisory_is_explained() {
    let folder = fs::read_dir(root().join("docs/decisions")).expect("there are decisions");
    let decisions: String = folder
        .map(|entry| fs::read_to_string(entry.expect("a decision").path()).expect("readable"))
        .collect();
    for advisory in rules().advisories.ignore {
        assert!(!advisory.reason.is_empty(), "{} has no reason", advisory.id);
        assert!(
            decisions.contains(&advisory.id),
            "no decision names {}",
            advisory.id
        );
    }
}
