//! Holds that modules beside each other do not import each other in a circle, where that is so.
//!
//! Goal: a module can be read, and moved, with what is below it alone. Method: the paths in the
//! sources of a crate, followed through `pub use` to where a name is defined. What counts are the
//! modules side by side in one place; that a module and its own submodules name each other is how
//! Rust splits a file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::{production_lines, rust_files};

/// The folder of a crate and a module of it, whose modules form no circle.
const PLACES: &[(&str, &str)] = &[
    ("cli/src", ""),
    ("compute-agent/driver/src", "libvirt"),
    ("compute-agent/server/src", ""),
    ("compute-agent/server/src", "volumes"),
    ("domain/src", ""),
    ("ganeti/src", ""),
];

/// Pairs that import each other all the same: a host records that it was fenced, and whether it was
/// depends on the host.
const PAIRS: &[(&str, &str, &str)] = &[("domain/src", "fence", "host")];

/// A module, from the root of its crate.
type Module = Vec<String>;

/// Which modules import which, with a name that is imported.
type Edges = BTreeMap<String, BTreeMap<String, String>>;

#[test]
fn modules_side_by_side_form_no_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut circles = Vec::new();
    for (folder, place) in PLACES {
        let sources = Sources::read(&root.join(folder));
        let place: Module = place
            .split("::")
            .filter(|p| !p.is_empty())
            .map(String::from)
            .collect();
        let mut edges = sources.edges(&place);
        assert!(edges.len() > 5, "{folder}: no sources were read");
        for (_, one, other) in PAIRS.iter().filter(|(of, _, _)| of == folder) {
            for (from, to) in [(one, other), (other, one)] {
                let removed = edges.get_mut(*from).and_then(|to_all| to_all.remove(*to));
                assert!(
                    removed.is_some(),
                    "{folder}: {from} does not import {to} any more"
                );
            }
        }
        prune(&mut edges);
        for (from, to_all) in edges {
            let to_all = to_all.into_iter();
            circles.extend(to_all.map(|(to, name)| format!("{folder}: {from} -> {to} ({name})")));
        }
    }
    assert!(
        circles.is_empty(),
        "modules import each other:\n{}",
        circles.join("\n")
    );
}

/// Goal: the test above sees a circle, also through a re-export. Method: three modules.
#[test]
fn a_circle_is_found() {
    let modules = [
        ("", "mod a; mod b; mod c; pub use a::A;"),
        ("a", "use crate::b::{self, B as Other};"),
        ("b", "fn f() -> super::c::C {}"),
        ("c", "// use crate::a\nuse crate::A;"),
    ];
    let files = modules.map(|(name, text)| {
        let module: Module = name
            .split("::")
            .filter(|p| !p.is_empty())
            .map(String::from)
            .collect();
        (module, paths(text))
    });
    let mut edges = Sources {
        files: files.into(),
    }
    .edges(&Vec::new());
    prune(&mut edges);
    let left: Vec<_> = edges.keys().map(String::as_str).collect();
    assert_eq!(left, ["a", "b", "c"]);
}

/// Removes what is part of no circle and on no way between two.
fn prune(edges: &mut Edges) {
    loop {
        let sources: BTreeSet<String> = edges.keys().cloned().collect();
        let targets: BTreeSet<String> = edges.values().flat_map(|to| to.keys().cloned()).collect();
        let size = |edges: &Edges| edges.values().map(BTreeMap::len).sum::<usize>();
        let before = size(edges);
        for to in edges.values_mut() {
            to.retain(|name, _| sources.contains(name));
        }
        edges.retain(|from, to| !to.is_empty() && targets.contains(from));
        if size(edges) == before {
            return;
        }
    }
}

/// A path that a module names.
struct Named {
    path: Vec<String>,
    /// The name under which the module passes it on.
    exported_as: Option<String>,
}

/// The modules of a crate, with the paths in them.
struct Sources {
    files: BTreeMap<Module, Vec<Named>>,
}

impl Sources {
    fn read(folder: &Path) -> Self {
        let files = rust_files(folder).into_iter().map(|file| {
            let text = fs::read_to_string(&file).expect("a source is readable");
            let relative = file.strip_prefix(folder).expect("a file of the folder");
            let relative = relative.with_extension("");
            let parts = relative
                .iter()
                .map(|part| part.to_string_lossy().into_owned());
            let module = parts.filter(|part| !["mod", "lib", "main"].contains(&part.as_str()));
            (module.collect(), paths(&text))
        });
        Self {
            files: files.collect(),
        }
    }

    /// Returns which modules right below `place` import which of the others.
    fn edges(&self, place: &Module) -> Edges {
        let mut edges = Edges::new();
        for (module, named) in &self.files {
            for Named { path, .. } in named {
                let Some(target) = self.definer(module, path, 0) else {
                    continue;
                };
                if !module.starts_with(place) || !target.starts_with(place) {
                    continue;
                }
                let (Some(from), Some(to)) = (module.get(place.len()), target.get(place.len()))
                else {
                    continue;
                };
                if from != to {
                    let to_all = edges.entry(from.clone()).or_default();
                    to_all.entry(to.clone()).or_insert_with(|| path.join("::"));
                }
            }
        }
        edges
    }

    /// Returns the module that defines what `path` names in `module`; nothing for foreign names.
    fn definer(&self, module: &Module, path: &[String], depth: usize) -> Option<Module> {
        let (mut at, mut rest) = (module.clone(), path);
        let (first, after) = rest.split_first()?;
        match first.as_str() {
            "crate" => (at, rest) = (Module::new(), after),
            "self" | "super" => {
                while let Some((step @ ("self" | "super"), after)) = rest
                    .split_first()
                    .map(|(first, after)| (first.as_str(), after))
                {
                    if step == "super" {
                        at.pop();
                    }
                    rest = after;
                }
            }
            _ => {}
        }
        let begin = at.len();
        while let Some((step, after)) = rest.split_first() {
            at.push(step.clone());
            if !self.files.contains_key(&at) {
                at.pop();
                break;
            }
            rest = after;
        }
        let is_relative = !["crate", "self", "super"].contains(&first.as_str());
        if is_relative && at.len() == begin {
            return None;
        }
        let passed_on = rest.first().filter(|_| depth < 8).and_then(|name| {
            let named = self.files.get(&at)?.iter();
            let mut named = named.filter(|named| named.exported_as.as_ref() == Some(name));
            self.definer(&at, &named.next()?.path, depth + 1)
        });
        Some(passed_on.unwrap_or(at))
    }
}

/// Returns the paths within the crate that stand in a source, outside of its tests.
fn paths(text: &str) -> Vec<Named> {
    let lines: Vec<_> = production_lines(text).map(|(_, line)| line).collect();
    let tokens = tokens(&lines.join("\n"));
    let mut named = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let is_use = tokens[at] == "use";
        let begins = ["crate", "self", "super"].contains(&tokens[at].as_str())
            && tokens.get(at + 1).is_some_and(|next| next == "::");
        if is_use {
            let is_public = at > 0 && (tokens[at - 1] == "pub" || tokens[at - 1] == ")");
            at = tree(&tokens, at + 1, &[], is_public, &mut named);
        } else if begins {
            at = tree(&tokens, at, &[], false, &mut named);
        } else {
            at += 1;
        }
    }
    named
}

/// Reads a path that may branch, as in `a::{b, c::d as e}`, and returns where it ends.
fn tree(
    tokens: &[String],
    mut at: usize,
    prefix: &[String],
    is_public: bool,
    named: &mut Vec<Named>,
) -> usize {
    let mut path = prefix.to_vec();
    loop {
        match tokens.get(at).map(String::as_str) {
            Some("{") => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    at = tree(tokens, at, &path, is_public, named);
                    at += usize::from(tokens.get(at).is_some_and(|token| token == ","));
                }
                return at + 1;
            }
            // A module itself, as in `a::{self, b}`.
            Some("self") if !prefix.is_empty() && path.len() == prefix.len() => {}
            Some(token) => path.push(token.to_owned()),
            None => return at,
        }
        at += 1;
        if tokens.get(at).is_none_or(|token| token != "::") {
            break;
        }
        at += 1;
        // A generic argument, as in `crate::a::f::<T>()`.
        if tokens.get(at).is_some_and(|token| token == "<") {
            break;
        }
    }
    let mut name = path.last().cloned();
    if tokens.get(at).is_some_and(|token| token == "as") {
        name = tokens.get(at + 1).cloned();
        at += 2;
    }
    named.push(Named {
        path,
        exported_as: name.filter(|_| is_public),
    });
    at.max(1)
}

/// Splits a source into names, `::` and single characters.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let length = if is_part(first) {
            rest.find(|c| !is_part(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        if !first.is_whitespace() {
            tokens.push(rest[..length].to_owned());
        }
        rest = &rest[length..];
    }
    tokens
}
