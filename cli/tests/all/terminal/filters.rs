//! Filters as they are typed: every example of the document and of the help is valid, and a fault is wrong
//! usage with its position.

use std::path::Path;

use super::Site;

/// Returns the words of a command in which single quotes hold spaces.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('\'').enumerate();
    let mut words = Vec::new();
    for (number, part) in parts {
        match number % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

fn run(site: &Site, words: &[String]) -> super::Output {
    site.berth(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn examples_are_valid() {
    let site = Site::start();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut examples = Vec::new();
    for document in ["docs/filters.md", "docs/command-line.md", "CHANGELOG.md"] {
        let text = std::fs::read_to_string(root.join(document)).expect("a document");
        examples.extend(text.lines().map(str::to_owned));
    }
    for list in [
        "vm",
        "host",
        "operation",
        "migration",
        "flavor",
        "server-group",
        "aggregate",
        "volume",
    ] {
        let help = site.berth(&[list, "list", "--help"]);
        assert_eq!(help.status, Some(0), "{help:?}");
        examples.extend(help.stdout.lines().map(str::to_owned));
    }
    let of_filters = |line: &&String| {
        let line = line.trim_start();
        line.starts_with("berth ") && line.contains("--filter '")
    };
    let examples: Vec<&String> = examples.iter().filter(of_filters).collect();
    assert!(examples.len() >= 19, "{examples:#?}");
    for example in examples {
        let words = words(example);
        let output = run(&site, &words[1..]);
        // What is made up of descriptors need not be what the command can show.
        assert_ne!(output.status, Some(2), "{example}: {output:#?}");
        assert!(!output.stderr.contains("at byte"), "{example}: {output:#?}");
    }
}

#[test]
fn faults_are_wrong_usage_with_their_position() {
    let site = Site::start();
    for (command, parts) in [
        (
            "vm list --filter 'state = GONE'",
            &["at byte 9: state is one of BUILDING, ACTIVE"][..],
        ),
        (
            "vm list --filter 'nothing = 1'",
            &["at byte 1: Vm has no field \"nothing\"; it has name, uid"],
        ),
        (
            "vm list --filter 'state ='",
            &["at byte 8: a value must stand here"],
        ),
        (
            "host list --filter 'name = h1'",
            &["HostSummary has no field \"name\"; it has host, used"],
        ),
        (
            "operation list --filter 'done = maybe'",
            &["done is true or false"],
        ),
        (
            "host list --memory --filter 'host.name = h1'",
            &["cannot be used with"],
        ),
        ("vm list --limit 0", &["--limit"]),
    ] {
        let output = run(&site, &words(command));
        assert_eq!(output.status, Some(2), "{command}: {output:#?}");
        for part in parts {
            assert!(output.stderr.contains(part), "{command}: {output:#?}");
        }
    }
}

/// Goal: what a scheduler returns that does not know filters is selected here.
#[test]
fn a_scheduler_that_ignores_filters_changes_nothing() {
    let site = Site::start();
    let count = |words: &[&str]| {
        let output = site.berth(words);
        assert_eq!(output.status, Some(0), "{output:#?}");
        output.stdout.lines().count()
    };
    let all = count(&["flavor", "list", "-o", "name"]);
    assert!(all > 0);
    for (filter, shown) in [
        ("name:*", all),
        ("vcpus = 4294967295", 0),
        ("NOT name:*", 0),
    ] {
        let words = ["flavor", "list", "-o", "name", "--filter", filter];
        assert_eq!(count(&words), shown, "{filter}");
    }
}
