//! Bills of materials in JSON, as CycloneDX 1.6 defines it.
//!
//! Crates that are linked into the programs of a package are `required`; those that run only while they are
//! compiled, as macros, are `excluded`, as the format calls it.
//!
//! Not here: which crates these are.
//!
//! Invariant: each reference is unique and refers to a component; crates of this workspace have no package
//! URL, since none of them is in a registry.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use serde::Serialize;
use serde_json::Value;

use crate::crates::{Crate, Crates, Id};

/// The package that a bill is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Its package URL, as `pkg:deb/berth/berth-scheduler@0.1.0?arch=amd64`.
    pub purl: String,
    /// SHA-256 of its file, in hexadecimal.
    pub sha256: String,
    /// The programs in it.
    pub programs: BTreeSet<String>,
    /// Package URLs of the shared libraries in it.
    pub libraries: BTreeSet<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Bom {
    bom_format: &'static str,
    spec_version: &'static str,
    version: u32,
    metadata: BomMetadata,
    components: Vec<Component>,
    dependencies: Vec<Dependency>,
}

#[derive(Serialize)]
struct BomMetadata {
    timestamp: String,
    component: Component,
}

#[derive(Serialize)]
struct Component {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(rename = "bom-ref")]
    reference: String,
    name: String,
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hashes: Vec<Hash>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    licenses: Vec<Licence>,
    #[serde(skip_serializing_if = "Option::is_none")]
    purl: Option<String>,
}

#[derive(Serialize)]
struct Hash {
    alg: &'static str,
    content: String,
}

#[derive(Serialize)]
struct Licence {
    expression: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Dependency {
    #[serde(rename = "ref")]
    reference: String,
    depends_on: Vec<String>,
}

/// Returns the bill of a package, made at a time as 2026-11-27T18:42:31Z.
///
/// # Errors
///
/// The package URL names no version, or a program has no crate.
pub fn bill(subject: &Subject, crates: &Crates, time: &str) -> anyhow::Result<Value> {
    let of_it = crates.of(&subject.programs);
    let roots = subject.programs.iter().map(|program| {
        let root = crates.program(program);
        root.map(reference)
            .with_context(|| format!("no crate has the program {program}"))
    });
    let mut depends_on = roots.collect::<anyhow::Result<Vec<_>>>()?;
    depends_on.sort();
    depends_on.dedup();
    depends_on.extend(subject.libraries.iter().cloned());
    let mut component = foreign("application", &subject.purl)?;
    component.hashes = vec![sha256(&subject.sha256)];
    component.licenses = vec![Licence {
        expression: "Apache-2.0".to_owned(),
    }];
    let mut dependencies = vec![Dependency {
        reference: subject.purl.clone(),
        depends_on,
    }];
    let (mut components, of_crates) = parts(&of_it);
    dependencies.extend(of_crates);
    for library in &subject.libraries {
        components.push(foreign("library", library)?);
        dependencies.push(Dependency {
            reference: library.clone(),
            depends_on: Vec::new(),
        });
    }
    let bom = Bom {
        bom_format: "CycloneDX",
        spec_version: "1.6",
        version: 1,
        metadata: BomMetadata {
            timestamp: time.to_owned(),
            component,
        },
        components,
        dependencies,
    };
    serde_json::to_value(bom).context("the bill is no JSON")
}

/// Returns the crates as components, and what each depends on.
fn parts(crates: &BTreeMap<&Id, (&Crate, bool)>) -> (Vec<Component>, Vec<Dependency>) {
    let parts = crates.iter().map(|(id, (found, is_linked))| {
        let is_foreign = found.sha256.is_some();
        let licence = found.licence.clone();
        let component = Component {
            kind: "library",
            reference: reference(id),
            name: id.name.clone(),
            version: id.version.clone(),
            scope: Some(if *is_linked { "required" } else { "excluded" }),
            hashes: found.sha256.iter().map(|sum| sha256(sum)).collect(),
            licenses: licence
                .map(|expression| Licence { expression })
                .into_iter()
                .collect(),
            purl: is_foreign.then(|| format!("pkg:cargo/{}", reference(id))),
        };
        let dependency = Dependency {
            reference: reference(id),
            depends_on: found.dependencies.iter().map(reference).collect(),
        };
        (component, dependency)
    });
    parts.unzip()
}

fn reference(id: &Id) -> String {
    format!("{}@{}", id.name, id.version)
}

fn sha256(content: &str) -> Hash {
    Hash {
        alg: "SHA-256",
        content: content.to_owned(),
    }
}

/// Returns a component that a package URL names.
fn foreign(kind: &'static str, purl: &str) -> anyhow::Result<Component> {
    let path = purl.split(['?', '#']).next().unwrap_or_default();
    let (path, version) = path
        .rsplit_once('@')
        .with_context(|| format!("{purl:?} names no version"))?;
    let name = path.rsplit('/').next().unwrap_or_default();
    Ok(Component {
        kind,
        reference: purl.to_owned(),
        name: name.to_owned(),
        version: version.replace("%3A", ":").replace("%2B", "+"),
        scope: None,
        hashes: Vec::new(),
        licenses: Vec::new(),
        purl: Some(purl.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::LazyLock;

    use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};

    use super::*;
    use crate::programs;

    const TOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    const LIBRARY: &str = "pkg:deb/debian/libc6@2.36-9%2Bdeb12u1?arch=amd64";

    static CRATES: LazyLock<Crates> = LazyLock::new(|| {
        let programs = programs::ALL.iter().map(|program| program.name.to_owned());
        Crates::read(Path::new(TOP), &programs.collect()).expect("the crates")
    });

    static METADATA: LazyLock<Metadata> = LazyLock::new(|| {
        let mut command = MetadataCommand::new();
        command.manifest_path(Path::new(TOP).join("Cargo.toml"));
        let options = ["--locked", "--filter-platform", "x86_64-unknown-linux-gnu"];
        let command = command.other_options(options.map(str::to_owned));
        command.exec().expect("cargo metadata")
    });

    fn bill_of(program: &str) -> Value {
        let subject = Subject {
            purl: format!("pkg:deb/berth/{program}@0.1.0?arch=amd64"),
            sha256: "0".repeat(64),
            programs: [program.to_owned()].into(),
            libraries: [LIBRARY.to_owned()].into(),
        };
        bill(&subject, &CRATES, "2026-11-27T18:42:31Z").expect("a bill")
    }

    fn list<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
        value[key].as_array().unwrap_or_else(|| panic!("{key}"))
    }

    fn text<'a>(value: &'a Value, key: &str) -> &'a str {
        value[key]
            .as_str()
            .unwrap_or_else(|| panic!("{key} of {value}"))
    }

    /// Goal: a bill is as the schema of CycloneDX 1.6 has it, as far as it goes.
    #[test]
    fn every_bill_is_sound() {
        for program in programs::ALL {
            let bill = bill_of(program.name);
            assert_eq!(bill["bomFormat"], "CycloneDX");
            assert_eq!(bill["specVersion"], "1.6");
            assert_eq!(bill["version"], 1);
            assert_eq!(bill["metadata"]["timestamp"], "2026-11-27T18:42:31Z");
            let subject = &bill["metadata"]["component"];
            let components = list(&bill, "components");
            let mut references = BTreeSet::new();
            for component in components.iter().chain([subject]) {
                check_component(component);
                let reference = text(component, "bom-ref");
                assert!(references.insert(reference), "{reference} twice");
            }
            let mut of = BTreeSet::new();
            for dependency in list(&bill, "dependencies") {
                let reference = text(dependency, "ref");
                assert!(references.contains(reference), "{reference}");
                assert!(of.insert(reference), "{reference} twice");
                let on = list(dependency, "dependsOn");
                let on: Vec<&str> = on.iter().map(|v| v.as_str().expect("a text")).collect();
                let distinct: BTreeSet<&str> = on.iter().copied().collect();
                assert_eq!(distinct.len(), on.len(), "{reference}: {on:?}");
                assert!(distinct.is_subset(&references), "{reference}: {on:?}");
            }
            assert_eq!(of, references);
        }
    }

    fn check_component(component: &Value) {
        assert!(["application", "library"].contains(&text(component, "type")));
        assert!(!text(component, "name").is_empty() && !text(component, "version").is_empty());
        let is_ours = component["purl"].is_null();
        assert_eq!(
            is_ours,
            text(component, "bom-ref").starts_with("berth-"),
            "{component}"
        );
        if text(component, "bom-ref") == LIBRARY {
            assert_eq!(component["name"], "libc6");
            assert_eq!(component["version"], "2.36-9+deb12u1");
            return;
        }
        let [licence] = list(component, "licenses").as_slice() else {
            panic!("one licence expression: {component}");
        };
        let expression = text(licence, "expression");
        assert!(spdx::Expression::parse(expression).is_ok(), "{component}");
        if is_ours {
            return;
        }
        let [hash] = list(component, "hashes").as_slice() else {
            panic!("one checksum: {component}");
        };
        assert_eq!(hash["alg"], "SHA-256");
        let content = text(hash, "content");
        let is_hexadecimal = content.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(is_hexadecimal && content.len() == 64, "{component}");
    }

    /// Returns the crates of a bill with one of these scopes.
    fn names(bill: &Value, scopes: &[&str]) -> BTreeSet<String> {
        let components = list(bill, "components").iter();
        let of_scope =
            components.filter(|c| c["scope"].as_str().is_some_and(|s| scopes.contains(&s)));
        of_scope.map(|c| text(c, "bom-ref").to_owned()).collect()
    }

    /// Goal: everything that is linked is in the bill, and nothing that only tests need. Method: what
    /// `cargo metadata` knows: below is what is needed with every feature, above what is needed without any.
    #[test]
    fn what_is_linked_is_in_it_and_what_tests_need_is_not() {
        for program in programs::ALL {
            let bill = bill_of(program.name);
            let listed = names(&bill, &["required", "excluded"]);
            let linked = names(&bill, &["required"]);
            let root = root_of(program.name);
            let most = reach(&root, |edge| edge.is_needed);
            let least = reach(&root, |edge| edge.is_needed && edge.is_certain);
            let least_linked = reach(&root, |edge| edge.is_linked && edge.is_certain);
            let most_linked = reach(&root, |edge| edge.is_linked);
            assert!(
                listed.is_subset(&most),
                "{}: {:?}",
                program.name,
                &listed - &most
            );
            assert!(
                least.is_subset(&listed),
                "{}: {:?}",
                program.name,
                &least - &listed
            );
            assert!(
                linked.is_subset(&most_linked),
                "{}: {:?}",
                program.name,
                &linked - &most_linked
            );
            assert!(
                least_linked.is_subset(&linked),
                "{}: {:?}",
                program.name,
                &least_linked - &linked
            );
            assert!(linked.len() > 100, "{}: {}", program.name, linked.len());
            let has = |name: &str, of: &BTreeSet<String>| {
                of.iter().any(|id| id.split('@').next() == Some(name))
            };
            for dev in ["proptest", "libtest-mimic", "berth-testkit", "berth-tests"] {
                assert!(!has(dev, &listed), "{}: {dev}", program.name);
            }
            assert!(has("tokio", &linked));
            assert!(has("serde_derive", &listed) && !has("serde_derive", &linked));
        }
    }

    /// An edge between crates, as `cargo metadata` has it.
    struct Edge {
        /// Not only for tests.
        is_needed: bool,
        /// The library is part of the program.
        is_linked: bool,
        /// Whatever the features are.
        is_certain: bool,
    }

    fn root_of(program: &str) -> PackageId {
        let id = CRATES.program(program).expect("a crate");
        let packages = METADATA.workspace_packages();
        let package = packages.iter().find(|p| *p.name == id.name);
        package.expect("a package").id.clone()
    }

    fn reach(root: &PackageId, follows: impl Fn(&Edge) -> bool) -> BTreeSet<String> {
        let nodes = &METADATA.resolve.as_ref().expect("resolved").nodes;
        let nodes: BTreeMap<_, _> = nodes.iter().map(|node| (&node.id, node)).collect();
        let mut reached = BTreeSet::new();
        let mut open = vec![root];
        while let Some(id) = open.pop() {
            if !reached.insert(id) {
                continue;
            }
            for next in &nodes[id].deps {
                if follows(&edge(id, next)) {
                    open.push(&next.pkg);
                }
            }
        }
        let names = reached.into_iter().map(|id| {
            let package = &METADATA[id];
            format!("{}@{}", package.name, package.version)
        });
        names.collect()
    }

    fn edge(from: &PackageId, to: &cargo_metadata::NodeDep) -> Edge {
        let of = |kind: DependencyKind| to.dep_kinds.iter().any(|k| k.kind == kind);
        let on = &METADATA[&to.pkg];
        let is_macro = on.targets.iter().any(cargo_metadata::Target::is_proc_macro);
        let declared = METADATA[from].dependencies.iter();
        let is_certain = declared
            .filter(|d| d.name == *on.name && d.kind == DependencyKind::Normal)
            .any(|d| !d.optional && d.target.is_none());
        Edge {
            is_needed: of(DependencyKind::Normal) || of(DependencyKind::Build),
            is_linked: of(DependencyKind::Normal) && !is_macro,
            is_certain,
        }
    }
}
