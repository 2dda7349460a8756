//! Holds the words of the project: names, texts and comments are in the field's terms.
//!
//! Goal: an engineer who knows OpenStack, libvirt, Raft or Kubernetes reads Berth without a
//! dictionary. Method: the production sources (`src` of every crate but the tests') and the
//! `.proto` files are split into names, texts (string literals: errors, log lines, help) and
//! comments.
//!
//! How it counts: a name counts once for each of its words, where `snake_case` and `CamelCase` are
//! split; a text or a comment counts each time that a word stands in it alone. `NEVER` must not
//! occur in any name or text. `NOT_A_NAME` must not occur in what is defined: types, functions,
//! modules, constants, fields, variants, messages. No comment holds a word of `NEVER`, and no
//! document or sample file either, except between backticks, where other names are quoted.
//!
//! What it is not: a judge of style. A text that a foreign specification fixes is in `FOREIGN`,
//! with the reason.

#[path = "tidy/commands.rs"]
mod commands;
#[path = "tidy/errors.rs"]
mod errors;
#[path = "tidy/states.rs"]
mod states;
#[path = "tidy/terminal.rs"]
mod terminal;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// Words that are in no name and in no text.
const NEVER: &[&str] = &[
    "told", "asked", "wanted", "liking", "errand", "nobody", "somebody", "whoever",
];

/// Words that name nothing that is defined; a local variable may be called `found`.
const NOT_A_NAME: &[&str] = &["found", "room", "rooms", "face"];

/// What is fixed elsewhere: a file below the root, the word, and why it stays.
const FOREIGN: &[(&str, &str, &str)] = &[
    (
        "proto/berth/volume/v1/volume_service.proto",
        "room",
        GRPC_PATH,
    ),
    ("scheduler/server/src/service/volume.rs", "room", GRPC_PATH),
    ("csi/controller/src/controller/race.rs", "room", GRPC_PATH),
    (
        "domain/src/audit.rs",
        "asked",
        "the stored audit record has this key",
    ),
    ("scheduler/state/src/apply/version.rs", "wanted", ERROR_INFO),
    ("scheduler/state/src/refusals.rs", "wanted", ERROR_INFO),
];

/// A method's path and messages stay reachable under their name.
const GRPC_PATH: &str = "the name of a gRPC method";
/// Programs read the metadata of a refusal by its key.
const ERROR_INFO: &str = "a key of ErrorInfo's metadata";

/// One use of a word that must not be used.
struct Finding {
    file: PathBuf,
    line: usize,
    word: String,
    what: String,
}

#[test]
fn names_and_texts_are_in_the_fields_terms() {
    let mut findings = Vec::new();
    let mut unused: BTreeSet<(&str, &str)> =
        FOREIGN.iter().map(|(of, word, _)| (*of, *word)).collect();
    for file in sources() {
        let text = fs::read_to_string(root().join(&file)).expect("a source file is readable");
        let uses = if file.extension().is_some_and(|e| e == "proto") {
            check_proto(&text)
        } else {
            check_rust(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
        };
        for (line, word, what) in uses {
            let exception = FOREIGN
                .iter()
                .find(|(of, foreign, _)| Path::new(of) == file && *foreign == word);
            if let Some((of, foreign, _)) = exception {
                unused.remove(&(*of, *foreign));
            } else {
                let file = file.clone();
                findings.push(Finding {
                    file,
                    line,
                    word,
                    what,
                });
            }
        }
    }
    assert!(findings.is_empty(), "{}", report(&findings));
    assert!(unused.is_empty(), "exceptions without a use: {unused:?}");
}

#[test]
fn comments_are_in_the_fields_terms() {
    let mut report = String::new();
    for file in sources() {
        let text = fs::read_to_string(root().join(&file)).expect("a source file is readable");
        let count = banned_in_comments(&text);
        if count > 0 {
            let _ = writeln!(report, "    {}: {count}", file.display());
        }
    }
    assert!(
        report.is_empty(),
        "comments with words of {NEVER:?}:\n{report}"
    );
}

/// Goal: no document is there that a reader does not find. Method: the index links each of them.
#[test]
fn the_index_of_documents_has_all() {
    let docs = root().join("docs");
    let index = fs::read_to_string(docs.join("README.md")).expect("there is an index");
    for entry in fs::read_dir(docs).expect("there are documents") {
        let name = entry.expect("a document").file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".md") && name != "README.md" {
            assert!(
                index.contains(&format!("({name})")),
                "docs/README.md lacks {name}"
            );
        }
    }
}

#[test]
fn documents_are_in_the_fields_terms() {
    let mut findings = Vec::new();
    for file in documents() {
        let text = fs::read_to_string(root().join(&file)).expect("a document is readable");
        for (line, text) in (1..).zip(text.lines()) {
            let unquoted: Vec<&str> = text.split('`').step_by(2).collect();
            let words = words_of_text(&unquoted.join(" "));
            let banned = words.into_iter().filter(|word| NEVER.contains(&&**word));
            findings.extend(banned.map(|word| Finding {
                file: file.clone(),
                line,
                word,
                what: "a document".to_owned(),
            }));
        }
    }
    assert!(findings.is_empty(), "{}", report(&findings));
}

#[test]
fn a_banned_word_is_found_wherever_it_stands() {
    let rust = r##"
        /// Is told in a comment, which counts elsewhere.
        pub struct WantedThing { pub pages_asked: u32 }
        pub enum State { Found, NotFound }
        fn told() { let found = 1; log("nobody answers"); log(r#"see nobodys"#); }
        mod face { const ROOM_MAX: u8 = 1; }
        #[cfg(test)] mod tests { fn told() {} }
    "##;
    let words: Vec<String> = check_rust(rust)
        .expect("it is Rust")
        .into_iter()
        .map(|f| f.1)
        .collect();
    assert_eq!(
        words,
        ["wanted", "asked", "found", "told", "nobody", "face", "room"]
    );
    let proto = "// Who asked.\nmessage Room {\n  string asked_by = 1;  // told\n}\n";
    let words: Vec<String> = check_proto(proto).into_iter().map(|f| f.1).collect();
    assert_eq!(words, ["room", "asked"]);
    assert_eq!(
        banned_in_comments("// nobody told us\nlet told = 1; // asked\n"),
        3
    );
}

/// Returns line, word and what it stands in, for each use in a Rust source.
fn check_rust(text: &str) -> Result<Vec<(usize, String, String)>, String> {
    let stream: TokenStream = text.parse().map_err(|error| format!("{error}"))?;
    let mut findings = Vec::new();
    walk(stream, Within::Code, &mut findings);
    Ok(findings)
}

/// What a group of tokens belongs to.
#[derive(Clone, Copy, PartialEq)]
enum Within {
    Code,
    Fields,
    Variants,
}

/// What the next names are.
#[derive(Clone, Copy, PartialEq)]
enum Next {
    Other,
    Defined,
    Struct,
    Enum,
}

fn walk(stream: TokenStream, within: Within, findings: &mut Vec<(usize, String, String)>) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let (mut next, mut body) = (Next::Other, Within::Code);
    let mut at_start = true;
    let mut is_test = false;
    for (at, token) in tokens.iter().enumerate() {
        if is_test {
            // The item ends with its body, or without one.
            is_test = !is_end_of_item(token);
            continue;
        }
        match token {
            TokenTree::Ident(ident) => {
                let name = ident.to_string();
                let is_defined = next != Next::Other
                    || (within == Within::Fields
                        && is_colon(tokens.get(at + 1))
                        && !is_colon_pair(&tokens, at))
                    || (within == Within::Variants && at_start);
                check_name(&name, is_defined, ident.span().start().line, findings);
                body = match next {
                    Next::Struct => Within::Fields,
                    Next::Enum => Within::Variants,
                    Next::Other | Next::Defined => body,
                };
                next = match name.as_str() {
                    "fn" | "trait" | "type" | "mod" | "const" | "static" => Next::Defined,
                    "struct" | "union" => Next::Struct,
                    "enum" => Next::Enum,
                    _ => Next::Other,
                };
                at_start = false;
            }
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                if text.contains('"') && !is_doc(&tokens, at) {
                    check_text(&text, literal.span().start().line, findings);
                }
            }
            TokenTree::Punct(punct) => {
                match punct.as_char() {
                    ';' => body = Within::Code,
                    ',' => at_start = true,
                    _ => {}
                }
                next = Next::Other;
            }
            TokenTree::Group(group) if is_cfg_test(group) => is_test = true,
            TokenTree::Group(group) => {
                let is_body = group.delimiter() == Delimiter::Brace;
                // The braces of a variant hold fields.
                let inner = match (is_body, within) {
                    (true, Within::Variants) => Within::Fields,
                    (true, Within::Code | Within::Fields) => {
                        std::mem::replace(&mut body, Within::Code)
                    }
                    (false, _) => Within::Code,
                };
                walk(group.stream(), inner, findings);
                next = Next::Other;
            }
        }
    }
}

/// Whether this is the `[cfg(test)]` of an attribute: what follows is not in any program.
fn is_cfg_test(group: &Group) -> bool {
    group.delimiter() == Delimiter::Bracket
        && group.stream().to_string().replace(' ', "") == "cfg(test)"
}

fn is_end_of_item(token: &TokenTree) -> bool {
    match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(punct) => punct.as_char() == ';',
        TokenTree::Ident(_) | TokenTree::Literal(_) => false,
    }
}

/// Whether a literal is a doc comment, which is counted with the comments.
fn is_doc(tokens: &[TokenTree], at: usize) -> bool {
    at >= 2
        && matches!(&tokens[at - 1], TokenTree::Punct(p) if p.as_char() == '=')
        && matches!(&tokens[at - 2], TokenTree::Ident(i) if i == "doc")
}

fn is_colon(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == ':')
}

/// Whether `::` follows, as in a path.
fn is_colon_pair(tokens: &[TokenTree], at: usize) -> bool {
    is_colon(tokens.get(at + 1)) && is_colon(tokens.get(at + 2))
}

fn check_name(
    name: &str,
    is_defined: bool,
    line: usize,
    findings: &mut Vec<(usize, String, String)>,
) {
    let words = words_of_name(name);
    for (at, word) in words.iter().enumerate() {
        let is_not_found = word == "found" && at > 0 && words[at - 1] == "not";
        let is_banned = NEVER.contains(&word.as_str())
            || (is_defined && !is_not_found && NOT_A_NAME.contains(&word.as_str()));
        if is_banned {
            findings.push((line, word.clone(), format!("the name {name}")));
        }
    }
}

fn check_text(text: &str, line: usize, findings: &mut Vec<(usize, String, String)>) {
    for word in words_of_text(text) {
        if NEVER.contains(&word.as_str()) {
            let start: String = text.chars().take(60).collect();
            findings.push((line, word, format!("the text {start}")));
        }
    }
}

/// Returns line, word and name for each use in the names of a `.proto` file.
fn check_proto(text: &str) -> Vec<(usize, String, String)> {
    let mut findings = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        let names = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in names.filter(|name| !name.is_empty()) {
            check_name(name, true, at + 1, &mut findings);
        }
    }
    findings
}

/// Counts words that are in no name and no text, in the comments of a source.
fn banned_in_comments(text: &str) -> usize {
    let comments = text.lines().filter_map(|line| {
        let line = line.trim_start();
        match line.starts_with("//") {
            true => Some(line),
            false => line.find(" // ").map(|at| &line[at..]),
        }
    });
    let words = comments.flat_map(words_of_text);
    words.filter(|word| NEVER.contains(&word.as_str())).count()
}

/// Splits `snake_case` and `CamelCase` into lower-case words.
fn words_of_name(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut before = '_';
    for letter in name.chars() {
        let is_start = letter.is_ascii_alphabetic()
            && (!before.is_ascii_alphabetic()
                || (letter.is_ascii_uppercase() && before.is_ascii_lowercase()));
        if is_start {
            words.push(String::new());
        }
        if let (true, Some(word)) = (letter.is_ascii_alphabetic(), words.last_mut()) {
            word.push(letter.to_ascii_lowercase());
        }
        before = letter;
    }
    words
}

fn words_of_text(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_ascii_alphabetic());
    words
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect()
}

fn report(findings: &[Finding]) -> String {
    let mut text = format!(
        "{} uses of words that are not the field's; name what the thing is:\n",
        findings.len()
    );
    for Finding {
        file,
        line,
        word,
        what,
    } in findings
    {
        let _ = writeln!(text, "    {}:{line}: `{word}` in {what}", file.display());
    }
    text
}

/// Returns the production sources in Rust, each with its tokens.
fn rust_sources() -> impl Iterator<Item = (PathBuf, TokenStream)> {
    let is_rust = |file: &PathBuf| file.extension().is_some_and(|e| e == "rs");
    sources().into_iter().filter(is_rust).map(|file| {
        let text = fs::read_to_string(root().join(&file)).expect("a source file is readable");
        (file, text.parse().expect("it is Rust"))
    })
}

/// Returns the production sources and the `.proto` files, relative to the root.
fn sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in [
        "cli",
        "compute-agent",
        "conductor",
        "csi",
        "domain",
        "ganeti",
        "migrations",
        "process",
        "proto",
        "scheduler",
    ] {
        collect(Path::new(folder), &mut files);
    }
    assert!(
        files.len() > 500,
        "the sources are where this test looks for them"
    );
    files.sort();
    files
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(root().join(folder)) else {
        return;
    };
    for entry in entries.flatten() {
        let (name, path) = (entry.file_name(), folder.join(entry.file_name()));
        let name = name.to_string_lossy();
        if path_is_dir(&path) {
            if !["tests", "benches", "examples", "testdata", "target"].contains(&&*name) {
                collect(&path, files);
            }
        } else if is_source(&path) {
            files.push(path);
        }
    }
}

/// Whether a file is ours and part of a program: a copy of a foreign specification is not.
fn is_source(path: &Path) -> bool {
    let is_proto = path.extension().is_some_and(|e| e == "proto") && !path.starts_with("proto/csi");
    let is_rust = path.extension().is_some_and(|e| e == "rs");
    is_proto || (is_rust && path.file_name().is_some_and(|name| name != "tests.rs"))
}

/// Returns the documents for people, and the samples that they copy.
fn documents() -> Vec<PathBuf> {
    let names = [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
    ];
    let mut files: Vec<PathBuf> = names.map(PathBuf::from).into();
    for folder in fs::read_dir(root())
        .expect("the root is readable")
        .flatten()
    {
        let name = PathBuf::from(folder.file_name());
        let is_hidden = folder.file_name().to_string_lossy().starts_with('.');
        if path_is_dir(&name) && !is_hidden && name != Path::new("target") {
            collect_documents(&name, &mut files);
        }
    }
    assert!(
        files.len() > 40,
        "the documents are where this test looks for them"
    );
    files
}

fn collect_documents(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(root().join(folder))
        .expect("a folder is readable")
        .flatten()
    {
        let path = folder.join(entry.file_name());
        if path_is_dir(&path) {
            if !["node_modules", "target", "testdata"]
                .contains(&&*entry.file_name().to_string_lossy())
            {
                collect_documents(&path, files);
            }
        } else if folder.starts_with("deploy") || path.extension().is_some_and(|e| e == "md") {
            files.push(path);
        }
    }
}

fn path_is_dir(path: &Path) -> bool {
    root().join(path).is_dir()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace has a root")
        .to_owned()
}
