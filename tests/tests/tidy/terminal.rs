//! Holds the edge of the output: programs write to the terminal in few places, which escape what
//! others wrote.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};

use super::{is_cfg_test, is_colon, is_end_of_item, rust_sources};

/// The only files that write to standard output or standard error, and why.
const WRITERS: &[(&str, &str)] = &[
    (
        "cli/src/output.rs",
        "the edge of the command's output: escapes",
    ),
    ("process/src/log.rs", "log lines: escapes their fields"),
    (
        "process/src/run.rs",
        "the last lines of a server: escapes them",
    ),
    ("proto/build.rs", "a build script: cargo reads it"),
];

/// What writes to standard output or standard error, or returns it.
const WRITES: &[&str] = &[
    "print", "println", "eprint", "eprintln", "dbg", "stdout", "stderr",
];

/// Goal: what others write reaches no terminal but through the edge that escapes it.
#[test]
fn programs_write_to_the_terminal_in_one_place() {
    let mut found = String::new();
    let mut unused: BTreeSet<&str> = WRITERS.iter().map(|(of, _)| *of).collect();
    for (file, stream) in rust_sources() {
        let mut uses = Vec::new();
        find_writes(stream, &mut uses);
        match WRITERS.iter().find(|(of, _)| Path::new(of) == file) {
            Some((of, _)) if !uses.is_empty() => {
                unused.remove(of);
            }
            Some(_) | None => {
                for (line, name) in uses {
                    let _ = writeln!(found, "    {}:{line}: `{name}`", file.display());
                }
            }
        }
    }
    assert!(
        found.is_empty(),
        "written to the terminal without the edge; use cli/src/output.rs or tracing:\n{found}"
    );
    assert!(unused.is_empty(), "exceptions without a use: {unused:?}");
}

#[test]
fn every_way_to_write_to_the_terminal_is_found() {
    let rust = r#"
        fn a() { println!("{}", 1); std::io::stdout().lock(); output::print("fine"); }
        fn b() { let e = io::stderr(); dbg!(e); self.print(1); command.stdout(Stdio::piped()); }
        fn c() { let seen = output.stdout.len(); tokio::io::stderr(); eprint!("x"); }
        use std::io::{self, stdout};
        #[cfg(test)] mod tests { fn log() { println!("in a test"); } }
    "#;
    let mut uses = Vec::new();
    find_writes(rust.parse().expect("it is Rust"), &mut uses);
    let names: Vec<&str> = uses.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "println", "stdout", "stderr", "dbg", "stderr", "eprint", "stdout"
        ]
    );
}

/// Finds macros that write to the terminal, and what returns it: not the methods and fields of a
/// command that is started.
fn find_writes(stream: TokenStream, uses: &mut Vec<(usize, String)>) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let mut is_test = false;
    for (at, token) in tokens.iter().enumerate() {
        if is_test {
            is_test = !is_end_of_item(token);
            continue;
        }
        match token {
            TokenTree::Ident(ident) => {
                let name = ident.to_string();
                let back = |by: usize| at.checked_sub(by).and_then(|at| tokens.get(at));
                let is_macro =
                    matches!(tokens.get(at + 1), Some(TokenTree::Punct(p)) if p.as_char() == '!');
                let is_of_io = is_colon(back(1))
                    && matches!(back(3), Some(TokenTree::Ident(module)) if module == "io");
                if WRITES.contains(&&*name) && (is_macro || is_of_io) {
                    uses.push((ident.span().start().line, name));
                }
            }
            TokenTree::Group(group) if is_cfg_test(group) => is_test = true,
            TokenTree::Group(group) => {
                let back = |by: usize| at.checked_sub(by).and_then(|at| tokens.get(at));
                let is_of_io = is_colon(back(1))
                    && matches!(back(3), Some(TokenTree::Ident(module)) if module == "io");
                if is_of_io {
                    // What is imported is used by its bare name.
                    imported(group.stream(), uses);
                }
                find_writes(group.stream(), uses);
            }
            TokenTree::Literal(_) | TokenTree::Punct(_) => {}
        }
    }
}

/// Finds functions that return the terminal among the names of an import. Their types are harmless.
fn imported(stream: TokenStream, uses: &mut Vec<(usize, String)>) {
    for token in stream {
        if let TokenTree::Ident(ident) = token
            && (ident == "stdout" || ident == "stderr")
        {
            uses.push((ident.span().start().line, ident.to_string()));
        }
    }
}
