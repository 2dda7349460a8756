//! Holds that no error is printed twice: the message of an error does not contain that of its source.
//!
//! Goal: a chain of causes names each cause once. A caller that reports an error prints it with all its
//! sources, so a message that repeats its source shows it twice. Method: every `#[error("…")]` of
//! the sources, whose text and arguments must not name the field that is the source.

use std::fmt::Write as _;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::{is_cfg_test, is_end_of_item, rust_sources};

#[test]
fn no_message_repeats_its_source() {
    let (mut found, mut count) = (String::new(), 0);
    for (file, stream) in rust_sources() {
        let mut repeated = Vec::new();
        count += check(stream, &mut repeated);
        for (line, name) in repeated {
            let _ = writeln!(found, "    {}:{line}: {name}", file.display());
        }
    }
    assert!(
        found.is_empty(),
        "messages that repeat their source:\n{found}"
    );
    assert!(
        count > 300,
        "{count} messages: the errors are where this test looks for them"
    );
}

#[test]
fn every_way_to_repeat_a_source_is_found() {
    let rust = r#"
        #[derive(Debug, thiserror::Error)]
        enum Error {
            #[error("a: {0}")] First(#[from] io::Error),
            #[error("b: {source}")] Second { source: io::Error },
            #[error("c: {why}")] Third { #[source] why: io::Error, path: PathBuf },
            #[error("d {}", .0.kind())] Fourth(#[source] io::Error),
            #[error("e {1}")] Fifth(BTreeMap<u8, u8>, #[source] io::Error),
            #[error("fine {0}")] Sixth(BTreeMap<u8, u8>, #[source] io::Error),
            #[error("fine {path:?}")] Seventh { path: PathBuf, #[source] why: io::Error },
            #[error(transparent)] Eighth(#[from] io::Error),
            #[error("fine: {0}")] Ninth(String),
        }
        #[derive(Debug, thiserror::Error)]
        #[error("g: {source:?}")]
        pub struct Tenth { pub(crate) source: io::Error }
    "#;
    let mut repeated = Vec::new();
    let count = check(rust.parse().expect("it is Rust"), &mut repeated);
    let names: Vec<&str> = repeated.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(
        names,
        ["First", "Second", "Third", "Fourth", "Fifth", "Tenth"]
    );
    assert_eq!(count, 9, "all but the transparent one");
}

/// Collects what repeats its source, with its line; returns how many messages there are.
fn check(stream: TokenStream, repeated: &mut Vec<(usize, String)>) -> usize {
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
        } else if let Some(message) = message(group) {
            if !message
                .iter()
                .any(|token| matches!(token, TokenTree::Literal(_)))
            {
                continue;
            }
            count += 1;
            let Some((name, fields)) = item(&tokens[at + 1..]) else {
                continue;
            };
            if source(&fields).is_some_and(|source| names(&message, &source)) {
                repeated.push((group.span_open().start().line, name));
            }
        } else {
            count += check(group.stream(), repeated);
        }
    }
    count
}

/// Returns the contents of `[error(…)]`.
fn message(attribute: &Group) -> Option<Vec<TokenTree>> {
    let tokens: Vec<TokenTree> = attribute.stream().into_iter().collect();
    match (attribute.delimiter(), &tokens[..]) {
        (Delimiter::Bracket, [TokenTree::Ident(name), TokenTree::Group(inner)])
            if name == "error" =>
        {
            Some(inner.stream().into_iter().collect())
        }
        _ => None,
    }
}

/// Returns the name and the fields of the variant or struct that comes next.
fn item(tokens: &[TokenTree]) -> Option<(String, Group)> {
    let mut name = None;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => name = Some(ident.to_string()),
            TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {}
            // The scope of `pub(crate)`.
            TokenTree::Group(_) if name.as_deref() == Some("pub") => {}
            TokenTree::Group(group) => return Some((name?, group.clone())),
            TokenTree::Punct(punct) if matches!(punct.as_char(), ',' | ';') => return None,
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    None
}

/// Returns the name or number of the field that is the source.
fn source(fields: &Group) -> Option<String> {
    let (mut number, mut depth, mut is_source) = (0, 0, false);
    let mut name: Option<String> = None;
    let tokens: Vec<TokenTree> = fields.stream().into_iter().collect();
    let is_tuple = fields.delimiter() == Delimiter::Parenthesis;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
                let text = group.stream().to_string();
                is_source |= text == "from" || text == "source";
            }
            TokenTree::Ident(ident) if !is_tuple && super::is_colon(tokens.get(at + 1)) => {
                let is_path = super::is_colon(tokens.get(at + 2));
                if depth == 0 && !is_path && name.is_none() {
                    is_source |= ident == "source";
                    name = Some(ident.to_string());
                }
            }
            TokenTree::Punct(punct) => match punct.as_char() {
                '<' => depth += 1,
                '>' => depth -= 1,
                ',' if depth == 0 => {
                    if is_source {
                        break;
                    }
                    number += 1;
                    name = None;
                }
                _ => {}
            },
            TokenTree::Group(_) | TokenTree::Ident(_) | TokenTree::Literal(_) => {}
        }
    }
    is_source.then(|| name.unwrap_or_else(|| number.to_string()))
}

/// Whether a message or its arguments name a field.
fn names(message: &[TokenTree], field: &str) -> bool {
    let text = message.first().map(ToString::to_string).unwrap_or_default();
    let in_text = [format!("{{{field}}}"), format!("{{{field}:")];
    let arguments: TokenStream = message.iter().skip(1).cloned().collect();
    let arguments = arguments.to_string().replace(' ', "");
    in_text.iter().any(|part| text.contains(part))
        || arguments
            .split(|c: char| !c.is_alphanumeric() && c != '_' && c != '.')
            .any(|word| {
                let word = word.strip_prefix('.').unwrap_or_default();
                word.split('.').next() == Some(field)
            })
}
