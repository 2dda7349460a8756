//! Goal: every view is a document that assistive technology can read, and that a strict content security
//! policy does not break.

use std::collections::{BTreeMap, BTreeSet};

use berth_page::vm::VmView;

use crate::markup::{Tag, tags};
use crate::sample::{Filling, TOKEN};

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

/// Goal: a form either asks for another view, or carries the proof that it is of this member.
#[test]
fn forms_that_change_something_are_sealed() {
    for (view, tags) in views() {
        let mut is_changing = false;
        let mut tokens = 0;
        for tag in tags {
            match tag.name.as_str() {
                "form" => {
                    let method = attribute(&tag, "method");
                    assert!(matches!(method, Some("get" | "post")), "{view}");
                    is_changing = method == Some("post");
                    tokens = 0;
                }
                "input" if attribute(&tag, "name") == Some("token") => {
                    assert_eq!(attribute(&tag, "value"), Some(TOKEN), "{view}");
                    assert!(is_changing, "{view}: a token in an address");
                    tokens += 1;
                }
                "/form" => {
                    assert_eq!(tokens, usize::from(is_changing), "{view}");
                    is_changing = false;
                }
                _ => {}
            }
        }
    }
}

/// Goal: who may change nothing sees no action.
#[test]
fn readers_see_no_action() {
    for choice in 0..16 {
        let filling = Filling {
            text: "plain",
            choice,
        };
        let (mut reader, mut operator) = (filling.frame(), filling.frame());
        (reader.may_change, operator.may_change) = (false, true);
        let actions = |html: &str| {
            let links = tags(html);
            let links = links.iter().filter_map(|tag| attribute(tag, "href"));
            let verbs = ["cordon", "uncordon", "drain", "migrate", "cancel", "abort"];
            links
                .filter(|link| verbs.iter().any(|verb| link.ends_with(&format!("/{verb}"))))
                .count()
        };
        for (name, html) in filling.acted_on(&reader) {
            assert_eq!(actions(&html), 0, "{name}");
        }
        let seen = filling.acted_on(&operator).map(|(_, html)| actions(&html));
        assert!(seen[0] >= 2, "a host has its actions: {seen:?}");
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
            let is_hidden = attribute(tag, "type") == Some("hidden");
            if matches!(tag.name.as_str(), "input" | "select") && !is_hidden {
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

/// Goal: every label of a VM is on its view, however many and long they are.
#[test]
fn every_label_of_a_vm_is_shown_whole() {
    let label = |number: usize| {
        let key = format!("{}/{number:n>63}", "p".repeat(253));
        (key, "v".repeat(63))
    };
    let filling = Filling {
        text: "plain",
        choice: 0,
    };
    let mut vm: berth_proto::scheduler::v1::GetVmResponse = filling.message();
    let labels: BTreeMap<String, String> = (0..64).map(label).collect();
    vm.vm.as_mut().expect("it is filled").labels = labels.clone();
    let view = VmView {
        vm,
        ..VmView::default()
    };
    let html = berth_page::vm::render(&filling.frame(), &view);
    for (key, value) in labels {
        assert!(html.contains(&format!("<li>{key}={value}</li>")), "{key}");
    }
}
