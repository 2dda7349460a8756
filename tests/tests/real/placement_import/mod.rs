//! `berth placement import` from a real Placement.
//!
//! Goal: afterwards Berth answers as the other Placement does, generations included, whatever the
//! world is made of and however often the import is stopped and repeated; and nothing is
//! overwritten that is not the import's. Method: OpenStack Placement on sqlite, filled from a seed
//! with nested trees, sharing providers, custom names, aggregates, consumers of several types and
//! overfull providers (`placement/serve.py`), beside a Berth process. What the command itself says
//! of both sides is not believed: the script asks both REST APIs everything.

mod both;

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use both::{Berth, Source};
use serde_json::{Value, json};

/// The exit status when both sides differ.
const DIFFERENT: i32 = 4;

/// Returns what was said of one kind in the comparison.
fn kind<'a>(said: &'a Value, kind: &str) -> &'a Value {
    let kinds = said["comparison"]["kinds"].as_array().into_iter().flatten();
    let mut found = kinds.filter(|one| one["kind"] == kind);
    found
        .next()
        .unwrap_or_else(|| panic!("no {kind}: {said:#}"))
}

fn written(said: &Value) -> u64 {
    let parts = said["plan"].as_object().expect("a plan").values();
    let counts = parts.flat_map(|part| {
        ["make", "change", "take_away"].map(|what| part[what].as_u64().unwrap_or(0))
    });
    counts.sum()
}

pub(crate) fn a_world_is_taken_over_and_followed() {
    let mut source = Source::start("1", 8, 40);
    let berth = Berth::start();

    let dry = berth.import(&source, &["--dry-run"]).json().unwrap();
    assert!(written(&dry) > 80, "{dry:#}");
    assert_eq!(berth.berth(&["provider", "list"]).json(), Ok(json!([])));
    let apart = ["placement", "compare", "--from", &source.url];
    let apart = berth.berth(&apart).with_status(DIFFERENT);
    assert!(apart.stderr.contains("SIDES_DIFFER"), "{apart:#?}");

    let said = berth.import(&source, &[]).json().unwrap();
    assert_eq!(said["comparison"]["count"], 0, "{said:#}");
    assert_eq!(
        (&said["conflicts"], &said["refused"]),
        (&json!([]), &json!([]))
    );
    for one in said["comparison"]["kinds"].as_array().unwrap() {
        let all = one["source"].as_u64();
        assert!(all > Some(0) && one["same"].as_u64() == all, "{one:#}");
    }
    source.is_like(&berth);

    let again = berth.import(&source, &[]).json().unwrap();
    assert_eq!(written(&again), 0, "{again:#}");

    // Life goes on at the source; what is gone there stays until it is asked for.
    for _ in 0..2 {
        source.obey("change");
        let said = berth.import(&source, &[]).with_status(DIFFERENT);
        let said: Value = serde_json::from_str(&said.stdout).unwrap();
        let left = kind(&said, "consumers")["left_over"].as_u64();
        assert!(left > Some(0), "{said:#}");
        let said = berth.import(&source, &["--delete"]).json();
        let said = said.unwrap_or_else(|told| panic!("{told}"));
        assert_eq!(said["refused"], json!([]), "{said:#}");
        source.is_like(&berth);
    }
}

/// Goal: whoever is stopped begins again, and it comes out the same. Method: kill the command as
/// soon as it has told of each of its parts, then let it run.
pub(crate) fn an_import_that_was_killed_is_run_again() {
    let mut source = Source::start("2", 24, 150);
    let berth = Berth::start();
    let parts = [
        "microversion",
        "providers ",
        "consumers ",
        "custom names",
        "providers written",
    ];
    for part in parts {
        let import = ["placement", "import", "--from", &source.url];
        let mut command = berth.command(&import);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("berth starts");
        let told = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut lines = told.lines().map_while(Result::ok);
        let reached = lines.any(|line| line.contains(part));
        child.kill().expect("it runs or has ended");
        child.wait().expect("it ends");
        assert!(reached, "{part:?} was not told");
    }
    let said = berth.import(&source, &[]).json().unwrap();
    assert_eq!(said["comparison"]["count"], 0, "{said:#}");
    source.is_like(&berth);
}

/// Goal: a source that is written to without pause is read all the same, and once it is quiet a
/// last run brings the rest.
pub(crate) fn a_source_in_use_is_followed_until_it_is_quiet() {
    let mut source = Source::start("3", 8, 30);
    let berth = Berth::start();
    source.obey("busy");
    let busy = berth.import(&source, &["--delete"]);
    assert!(matches!(busy.status, Some(0 | DIFFERENT)), "{busy:#?}");
    let said: Value = serde_json::from_str(&busy.stdout).unwrap();
    let providers = kind(&said, "providers");
    assert_eq!(providers["same"], providers["source"], "{said:#}");
    source.obey("calm");
    let _ = berth.import(&source, &["--delete"]).json().unwrap();
    source.is_like(&berth);
}

/// Goal: what somebody made or changed here is named and left alone, the rest goes on, and one
/// option takes it over. Method: a provider made here under a name of the source, one changed
/// here after an import, one with the same UUID made by hand.
pub(crate) fn what_is_not_the_imports_is_left_alone() {
    let mut source = Source::start("4", 6, 20);
    let berth = Berth::start();
    let made = berth
        .berth(&["provider", "create", "pool-0"])
        .json()
        .unwrap();
    let made = made["provider"]["id"].as_str().unwrap().to_owned();

    let strict = berth.import(&source, &["--strict"]).refused(1);
    assert!(strict.stderr.contains("IMPORT_CONFLICTS"), "{strict:#?}");
    assert_eq!(
        berth
            .berth(&["provider", "list"])
            .json()
            .unwrap()
            .as_array()
            .unwrap()
            .len(),
        1
    );

    let reasons = |said: &Value| {
        let all = said["conflicts"].as_array().into_iter().flatten();
        let mut all: Vec<_> = all
            .map(|c| c["reason"].as_str().unwrap().to_owned())
            .collect();
        all.sort();
        all.dedup();
        all
    };
    let said = berth.import(&source, &[]).with_status(DIFFERENT);
    let said: Value = serde_json::from_str(&said.stdout).unwrap();
    assert!(
        reasons(&said).contains(&"NAME_TAKEN".to_owned()),
        "{said:#}"
    );
    assert_eq!(kind(&said, "providers")["missing"], 1, "{said:#}");
    let _ = berth.berth(&["provider", "delete", &made]).with_status(0);
    let _ = berth.import(&source, &[]).json().unwrap();
    source.is_like(&berth);

    // Changed here since: it is the newer one, whatever the source says now.
    let all = berth.berth(&["provider", "list"]).json().unwrap();
    let host = all
        .as_array()
        .unwrap()
        .iter()
        .find(|p| p["parent"].is_null())
        .unwrap();
    let id = host["id"].as_str().unwrap();
    let set = ["provider", "set-traits", id, "--trait", "HW_CPU_X86_SSE"];
    let _ = berth.berth(&set).with_status(0);
    let said = berth.import(&source, &["--delete"]).with_status(DIFFERENT);
    let said: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(reasons(&said), ["CHANGED_HERE"], "{said:#}");
    let elsewhere = berth
        .import(&source, &["--source", "another"])
        .with_status(DIFFERENT);
    let elsewhere: Value = serde_json::from_str(&elsewhere.stdout).unwrap();
    assert_eq!(reasons(&elsewhere), ["OTHER_SOURCE"], "{elsewhere:#}");
    let _ = berth.import(&source, &["--overwrite"]).json().unwrap();
    source.is_like(&berth);
}
