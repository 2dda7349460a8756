//! A strict reader of the tags of a document.
//!
//! Not a parser of HTML as browsers have one: what is not as `maud` writes it is an error.

use std::collections::BTreeMap;

/// A start tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    /// Its name; that of an end tag begins with a slash.
    pub(crate) name: String,
    /// Its attributes, as they are written.
    pub(crate) attributes: BTreeMap<String, String>,
}

impl Tag {
    /// Returns its name with the names of its attributes.
    pub(crate) fn shape(&self) -> String {
        let names: Vec<&str> = self.attributes.keys().map(String::as_str).collect();
        format!("{} {}", self.name, names.join(" "))
    }
}

/// Returns the tags of a document in their order.
#[track_caller]
pub(crate) fn tags(html: &str) -> Vec<Tag> {
    let mut tags = Vec::new();
    let mut rest = html.strip_prefix("<!DOCTYPE html>").expect("a document");
    while let Some(at) = rest.find('<') {
        let (text, tag) = rest.split_at(at);
        assert!(!text.contains('>'), "{text}");
        let (tag, after) = read(&tag[1..]);
        tags.push(tag);
        rest = after;
    }
    assert!(!rest.contains('>'), "{rest}");
    tags
}

#[track_caller]
fn read(text: &str) -> (Tag, &str) {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-/".contains(c);
    let end = text.find(|c| !is_name(c)).expect("the end of a name");
    let mut tag = Tag {
        name: text[..end].to_owned(),
        attributes: BTreeMap::new(),
    };
    let mut rest = &text[end..];
    loop {
        if let Some(after) = rest.strip_prefix('>') {
            return (tag, after);
        }
        rest = rest.strip_prefix(' ').expect("a blank before an attribute");
        let end = rest.find(|c| !is_name(c)).expect("the end of a name");
        let name = rest[..end].to_owned();
        rest = &rest[end..];
        let value = match rest.strip_prefix("=\"") {
            None => String::new(),
            Some(quoted) => {
                let (value, after) = quoted.split_once('"').expect("the end of a value");
                assert!(!value.contains(['<', '>']), "{value}");
                rest = after;
                value.to_owned()
            }
        };
        let earlier = tag.attributes.insert(name, value);
        assert_eq!(earlier, None, "an attribute is there twice: {tag:?}");
    }
}
