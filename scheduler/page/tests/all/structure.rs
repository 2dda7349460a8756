//! Goal: every view is a document that assistive technology can read, and that a strict content security
//! policy does not break.

use std::collections::BTreeSet;

use crate::markup::{Tag, tags};
use crate::sample::Filling;

fn views() -> Vec<(&'static str, Vec<Tag>)> {
    let all = (0..16).flat_map(|choice| {
        Filling {
            text: "plain",
            choice,
        }
        .views()
    });
    all.map(|(name, html)| (name, tags(&html))).collect()
}

fn attribute<'t>(tag: &'t Tag, name: &str) -> Option<&'t str> {
    tag.attributes.get(name).map(String::as_str)
}

#[test]
fn elements_are_closed_in_their_order() {
    const VOID: [&str; 4] = ["meta", "link", "input", "br"];
    for (view, tags) in views() {
        let mut open: Vec<String> = Vec::new();
        for tag in tags {
            match tag.name.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop().as_deref(), Some(name), "{view}"),
                None if VOID.contains(&tag.name.as_str()) => {}
                None => open.push(tag.name),
            }
        }
        assert!(open.is_empty(), "{view}: {open:?}");
    }
}

/// Goal: the policy forbids inline scripts and styles, so there are none; there is one script.
#[test]
fn nothing_is_inline() {
    for (view, tags) in views() {
        for tag in &tags {
            let inline = tag
                .attributes
                .keys()
                .find(|name| name.starts_with("on") || *name == "style");
            assert_eq!(inline, None, "{view}: {tag:?}");
            assert!(
                !matches!(tag.name.as_str(), "style" | "base" | "iframe" | "object"),
                "{view}"
            );
        }
        let scripts: Vec<_> = tags.iter().filter(|tag| tag.name == "script").collect();
        assert_eq!(scripts.len(), 1, "{view}");
        assert_eq!(attribute(scripts[0], "src"), Some("/page.js"), "{view}");
    }
}

/// Goal: no view has an action: forms only ask for another view.
#[test]
fn forms_only_read() {
    for (view, tags) in views() {
        for tag in tags.iter().filter(|tag| tag.name == "form") {
            assert_eq!(attribute(tag, "method"), Some("get"), "{view}");
        }
    }
}

#[test]
fn landmarks_headings_and_labels_are_there() {
    for (view, tags) in views() {
        let count = |name: &str| tags.iter().filter(|tag| tag.name == name).count();
        for one in ["main", "h1", "title", "header"] {
            assert_eq!(count(one), 1, "{view}: {one}");
        }
        let html = tags.iter().find(|tag| tag.name == "html").expect("a root");
        assert_eq!(attribute(html, "lang"), Some("en"), "{view}");
        assert_eq!(count("table"), count("caption"), "{view}");
        let heads = tags.iter().filter(|tag| tag.name == "th");
        for head in heads {
            assert!(
                matches!(attribute(head, "scope"), Some("col" | "row")),
                "{view}: {head:?}"
            );
        }
        let labelled: BTreeSet<_> = tags
            .iter()
            .filter(|tag| tag.name == "label")
            .filter_map(|tag| attribute(tag, "for"))
            .collect();
        let ids: Vec<_> = tags.iter().filter_map(|tag| attribute(tag, "id")).collect();
        let unique: BTreeSet<_> = ids.iter().copied().collect();
        assert_eq!(ids.len(), unique.len(), "{view}: an id is there twice");
        for tag in tags.iter() {
            if matches!(tag.name.as_str(), "input" | "select") {
                let id = attribute(tag, "id").unwrap_or_default();
                assert!(labelled.contains(id), "{view}: {tag:?} has no label");
            }
            if matches!(tag.name.as_str(), "meter" | "progress" | "nav") {
                assert!(
                    attribute(tag, "aria-label").is_some(),
                    "{view}: {tag:?} has no name"
                );
            }
            if let Some(id) = attribute(tag, "aria-labelledby") {
                assert!(unique.contains(id), "{view}: {id} names nothing");
            }
        }
    }
}

/// Goal: the levels of headings leave none out.
#[test]
fn headings_have_an_order() {
    for (view, tags) in views() {
        let mut last = 0;
        for tag in tags {
            let level = tag
                .name
                .strip_prefix('h')
                .and_then(|level| level.parse::<u32>().ok());
            if let Some(level) = level {
                assert!(level <= last + 1, "{view}: h{level} after h{last}");
                last = level;
            }
        }
    }
}
