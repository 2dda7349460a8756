//! Goal: nothing that a client or a host named becomes markup, whatever it is and wherever it stands.
//!
//! Method: every string field of every message that is shown, keys of maps too, is filled by the descriptors,
//! once with plain letters and once with each hostile text. The tags and the names of their attributes are
//! the same for both, and what links point to stays within the page.

use crate::markup::{Tag, tags};
use crate::sample::Filling;

/// How many different choices of alternatives are shown: more than any of them has.
const CHOICES: usize = 16;

fn hostile() -> Vec<String> {
    let mut texts: Vec<String> = [
        "<script>alert(1)</script>",
        "</title><script src=//evil.example></script>",
        "\"><img src=x onerror=alert(1)>",
        "' onmouseover='alert(1)",
        "\" autofocus onfocus=\"alert(1)",
        "javascript:alert(1)",
        "//evil.example/x",
        "../../x?y=z#w&q=\"",
        "--><svg/onload=alert(1)><!--",
        "]]><style>*{background:url(//evil.example)}</style>",
        "&lt;b&gt;&#x3c;&amp",
        "{{7*7}}${7*7}<%= 7 %>",
        "a\0b\u{1}\u{1b}[2J\u{7f}\u{9b}31m",
        "a\r\nSet-Cookie: x=1\r\n\r\n<b>",
        "\u{202e}txt.exe\u{2066}\u{200b}\u{feff}\u{2028}",
        "\u{fffd}\u{10ffff}\u{e000}😀",
        "％3Cscript％3E＜script＞",
    ]
    .map(str::to_owned)
    .to_vec();
    texts.push("<b>".repeat(1_000));
    texts.push("\u{1b}".repeat(3_000));
    texts
}

fn shapes(tags: &[Tag]) -> Vec<String> {
    tags.iter().map(Tag::shape).collect()
}

#[test]
fn what_others_named_stays_text() {
    let hostile = hostile();
    for choice in 0..CHOICES {
        let plain = Filling {
            text: "plain",
            choice,
        };
        let expected: Vec<_> = plain
            .views()
            .into_iter()
            .map(|(name, html)| (name, shapes(&tags(&html))))
            .collect();
        for text in &hostile {
            let filling = Filling { text, choice };
            for ((name, html), (_, expected)) in filling.views().iter().zip(&expected) {
                check(name, html, expected, text);
            }
        }
    }
}

#[track_caller]
fn check(view: &str, html: &str, expected: &[String], text: &str) {
    let found = tags(html);
    assert_eq!(&shapes(&found), expected, "{view}: {text:?}");
    for tag in &found {
        for name in ["href", "src", "action"] {
            if let Some(target) = tag.attributes.get(name) {
                let is_ours = target == "#main"
                    || target.starts_with("hosts/")
                    || (target.starts_with('/') && !target.starts_with("//"));
                assert!(is_ours, "{view}: {name}={target} for {text:?}");
            }
        }
    }
    let hidden = html.chars().find(|c| {
        (c.is_control() && *c != '\n') || "\u{202e}\u{2066}\u{200b}\u{feff}\u{2028}".contains(*c)
    });
    assert_eq!(hidden, None, "{view}: {text:?}");
}

/// Goal: names of 10 kB make no view that is as many times as large.
#[test]
fn long_names_are_cut() {
    let long = "x".repeat(10_000);
    for choice in 0..CHOICES {
        let views = Filling {
            text: &long,
            choice,
        }
        .views();
        for (name, html) in views {
            // Links hold a name as a whole, or they would lead elsewhere.
            let texts: usize = html
                .split('<')
                .map(|part| part.split_once('>').map_or(0, |(_, text)| text.len()))
                .max()
                .unwrap_or(0);
            assert!(texts < 5_000, "{name}: {texts}");
        }
    }
}

/// Goal: the comparison above is of something: a text that is not escaped is noticed.
#[test]
fn markup_that_is_added_is_noticed() {
    let filling = Filling {
        text: "plain",
        choice: 0,
    };
    let (_, html) = filling.views().remove(0);
    let broken = html.replacen("of cluster plain", "of <script>alert(1)</script>", 1);
    assert_ne!(broken, html);
    assert_ne!(shapes(&tags(&broken)), shapes(&tags(&html)));
}
