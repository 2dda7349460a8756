//! Holds that states have one word each: no text for people has the `Debug` name of a state, step or event.
//!
//! Goal: "vm a is ACTIVE" in every table and message, never "vm a is Active". Method: every format string
//! of the sources (`format!`, `write!`, `#[error("…")]` and the like) whose placeholder is `:?` and
//! whose argument ends with a name of [`ENUMS`]. Panics, assertions and log lines are for developers.
//!
//! What it is not: a check of types. A state in a variable of another name is not seen.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::{is_cfg_test, is_end_of_item, rust_sources};

/// Fields and variables that hold an enum of the domain.
const ENUMS: &[&str] = &[
    "absence",
    "action",
    "completes",
    "doubt",
    "effect",
    "event",
    "liveness",
    "mark",
    "method",
    "phase",
    "power",
    "role",
    "setting",
    "state",
    "step",
    "verdict",
];

/// Macros whose text reaches people; `error` is the attribute of an error's message.
const TEXTS: &[&str] = &[
    "anyhow",
    "bail",
    "ensure",
    "error",
    "format",
    "format_args",
    "write",
    "writeln",
];

/// What keeps the name: a file below the root, the argument, and why.
const NAMES: &[(&str, &str, &str)] = &[
    ("conductor/saga/src/reconcile.rs", "doubt", METADATA),
    ("domain/src/migration.rs", "event", OUTCOME),
    ("domain/src/migration.rs", "state", OUTCOME),
    ("domain/src/vm.rs", "event", OUTCOME),
    ("domain/src/vm.rs", "state", OUTCOME),
    (
        "scheduler/decide/src/decide.rs",
        "state",
        "it is what is replaced by the word",
    ),
    ("scheduler/state/src/apply/cold_move.rs", "state", OUTCOME),
    ("scheduler/state/src/apply/migration.rs", "state", METADATA),
    ("scheduler/state/src/apply/operation.rs", "state", OUTCOME),
    ("scheduler/state/src/apply/order.rs", "step", OUTCOME),
    ("scheduler/state/src/apply/power.rs", "state", METADATA),
    ("scheduler/state/src/apply/settle.rs", "event", OUTCOME),
    ("scheduler/state/src/check/claims.rs", "state", CHECK),
    ("scheduler/state/src/check/migrations.rs", "state", CHECK),
    ("scheduler/state/src/check/vms.rs", "state", CHECK),
];

/// Programs compare the metadata of a refusal.
const METADATA: &str = "metadata of a refusal, for programs";
/// `decide` shows it with the word; what is refused once it was replicated must not differ between builds.
const OUTCOME: &str = "part of the replicated outcome";
/// What a broken invariant of the state prints before the process stops.
const CHECK: &str = "a broken invariant, for developers";

#[test]
fn no_text_has_the_debug_name_of_a_state() {
    let mut found = String::new();
    let mut unused: BTreeSet<(&str, &str)> =
        NAMES.iter().map(|(of, name, _)| (*of, *name)).collect();
    let mut count = 0;
    for (file, stream) in rust_sources() {
        let mut uses = Vec::new();
        count += check(stream, &mut uses);
        for (line, name) in uses {
            let is_it =
                |(of, known, _): &&(&str, &str, &str)| Path::new(of) == file && *known == name;
            match NAMES.iter().find(is_it) {
                Some((of, known, _)) => drop(unused.remove(&(*of, *known))),
                None => drop(writeln!(found, "    {}:{line}: `{name}`", file.display())),
            }
        }
    }
    assert!(
        found.is_empty(),
        "`Debug` names in texts; use `as_str()` or `title()`:\n{found}"
    );
    assert!(unused.is_empty(), "exceptions without a use: {unused:?}");
    assert!(
        count > 2_000,
        "{count} texts: they are where this test looks for them"
    );
}

#[test]
fn every_way_to_show_a_debug_name_is_found() {
    let rust = r#"
        fn a() {
            format!("{state:?}"); format!("{:?}", vm.state); format!("{} {:?}", a(b, c), self.step);
            output::print(format!("{how:?} {1:#?}", x, entry.mark)); bail!("{event:?}");
            write!(f, "{state:?}"); writeln!(f, "{:>3?}", claim.state);
            format!("fine {path:?}"); format!("fine {{state:?}} {state}"); assert!(x, "fine {state:?}");
            panic!("fine {state:?}"); tracing::info!(?state, "fine"); format!("fine {0}", state);
        }
        #[error("cannot while {state:?}")] struct Error { state: State }
        #[error("cannot {0} while {state:?}", .state)] struct Other { state: State }
        #[cfg(test)] mod tests { fn b() { format!("fine {state:?}"); } }
    "#;
    let mut uses = Vec::new();
    check(rust.parse().expect("it is Rust"), &mut uses);
    let names: Vec<&str> = uses.iter().map(|(_, name)| name.as_str()).collect();
    let expected = [
        "state", "state", "step", "mark", "event", "state", "state", "state", "state",
    ];
    assert_eq!(names, expected);
}

/// Collects the arguments that are shown by `Debug`, with their lines; returns how many texts there are.
fn check(stream: TokenStream, uses: &mut Vec<(usize, String)>) -> usize {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let (mut count, mut is_test) = (0, false);
    for (at, token) in tokens.iter().enumerate() {
        if is_test {
            is_test = !is_end_of_item(token);
            continue;
        }
        let TokenTree::Group(group) = token else {
            continue;
        };
        if is_cfg_test(group) {
            is_test = true;
            continue;
        }
        if is_text(&tokens[..at]) {
            count += 1;
            let line = group.span_open().start().line;
            uses.extend(shown(group).into_iter().map(|name| (line, name)));
        }
        count += check(group.stream(), uses);
    }
    count
}

/// Whether a macro of [`TEXTS`], or `error` as an attribute, stands before its arguments.
fn is_text(before: &[TokenTree]) -> bool {
    let is_name = |token: &TokenTree| match token {
        TokenTree::Ident(ident) => TEXTS.contains(&ident.to_string().as_str()),
        TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    };
    match before {
        [.., name, TokenTree::Punct(punct)] if punct.as_char() == '!' => is_name(name),
        // The contents of `#[error(…)]`.
        [TokenTree::Ident(name)] => name == "error",
        _ => false,
    }
}

/// Returns the names of [`ENUMS`] that a format string shows by `Debug`.
fn shown(arguments: &Group) -> Vec<String> {
    if arguments.delimiter() == Delimiter::Bracket {
        return Vec::new();
    }
    let parts = split(arguments);
    let is_literal = |part: &Vec<TokenTree>| matches!(part[..], [TokenTree::Literal(_)]);
    let Some(at) = parts.iter().position(is_literal) else {
        return Vec::new();
    };
    let text = parts[at][0].to_string();
    let mut next = 0;
    let mut names = Vec::new();
    for placeholder in placeholders(&text) {
        let (argument, how) = placeholder.split_once(':').unwrap_or((placeholder, ""));
        let position = match argument {
            "" => {
                next += 1;
                Some(next - 1)
            }
            argument => argument.parse().ok(),
        };
        let name = match position {
            Some(position) => parts
                .get(at + 1 + position)
                .and_then(|part| last_name(part)),
            None => Some(argument.to_owned()),
        };
        let is_enum = |name: &String| ENUMS.contains(&name.as_str());
        names.extend(name.filter(|name| how.ends_with('?') && is_enum(name)));
    }
    names
}

/// Splits the arguments of a macro at its commas.
fn split(arguments: &Group) -> Vec<Vec<TokenTree>> {
    let mut parts = vec![Vec::new()];
    for token in arguments.stream() {
        match (&token, parts.last_mut()) {
            (TokenTree::Punct(punct), _) if punct.as_char() == ',' => parts.push(Vec::new()),
            (_, Some(part)) => part.push(token),
            (_, None) => {}
        }
    }
    parts
}

/// Returns what stands between the braces of a format string.
fn placeholders(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(begin) = rest.find('{') {
        rest = &rest[begin + 1..];
        if let Some(escaped) = rest.strip_prefix('{') {
            rest = escaped;
            continue;
        }
        let Some(end) = rest.find('}') else {
            break;
        };
        found.push(&rest[..end]);
        rest = &rest[end + 1..];
    }
    found
}

/// Returns the last name of an argument, as `state` of `self.vm.state`; nothing of a call.
fn last_name(argument: &[TokenTree]) -> Option<String> {
    match argument.last()? {
        TokenTree::Ident(ident) => Some(ident.to_string()),
        TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => None,
    }
}
