//! What programs read: JSON of every command, and of wrong usage.
//!
//! Goal: with `--output json`, standard output is JSON and nothing else, of every command that
//! succeeds; one that does not ends standard error with its refusal. Wrong usage has an exit status
//! of its own, whether clap or the command notices it.

use serde_json::Value;

use super::commands::COMMANDS;
use super::{Output, ROUNDS, Site};

/// Returns what is wrong with an output for programs.
fn fault(output: &Output) -> Option<String> {
    let values = serde_json::Deserializer::from_str(&output.stdout).into_iter::<Value>();
    let values: Result<Vec<Value>, _> = values.collect();
    let values = match values {
        Ok(values) => values,
        Err(error) => return Some(format!("standard output is no JSON: {error}")),
    };
    let last = output.stderr.lines().last().unwrap_or_default();
    let refusal = serde_json::from_str(last).map(|value: Value| value["error"].is_object());
    match output.status {
        Some(0) if values.is_empty() => Some("it prints nothing".to_owned()),
        Some(0) => None,
        // Its output explains a negative result, as of checks that failed.
        Some(1 | 4) if !values.is_empty() => None,
        _ if refusal.is_ok_and(|is_refusal| is_refusal) => None,
        _ => Some("it fails without a refusal".to_owned()),
    }
}

#[test]
fn every_command_prints_json_for_programs() {
    let site = Site::start();
    let mut wrong = Vec::new();
    let mut succeeded = 0;
    for command in COMMANDS {
        let mut words: Vec<&str> = command.split(' ').collect();
        words.extend(["--output", "json"]);
        for round in 0..ROUNDS {
            site.state.lock().unwrap().shape.round = round;
            let output = site.berth(&words);
            succeeded += usize::from(output.status == Some(0));
            if let Some(fault) = fault(&output) {
                wrong.push(format!("{command}: {fault}: {output:#?}"));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let all = COMMANDS.len() * ROUNDS;
    assert!(succeeded * 2 > all, "only {succeeded} of {all} succeed");
}

#[test]
fn wrong_usage_has_a_status_and_a_reason() {
    let site = Site::start();
    for line in [
        "nothing",
        "vm show",
        "vm list --nothing",
        "vm list --tls-ca /ca.pem",
        "vm list --scheduler ",
        "vm list --scheduler http://",
        "vm list --scheduler m1:99999",
        "vm list --scheduler m1:0",
        "vm list --scheduler m1:x",
        "vm list --scheduler m1,http://m2:7100,ftp://m3:7100",
        "vm list --scheduler m1,,m2",
        "cluster status --scheduler [::1",
        "vm list --scheduler a\u{a0}b",
        "vm create v --flavor f",
        "vm migrate v --cold --bandwidth-mib-s 7",
        "audit list --since 1x",
        "flavor create f --vcpus 1 --memory 1X",
        "completion nothing",
        "vm list --sort nothing",
        "vm list --filter state=GONE",
        "vm list --filter ((",
        "host list --filter nothing=1",
        "migration list --limit 0",
        "vm show v --sort name",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let output = site.berth(&words);
        assert_eq!(output.status, Some(2), "{line}: {output:#?}");
        assert!(output.stderr.starts_with("error: "), "{line}: {output:#?}");
        let output = site.berth(&[&["-o", "json"], &*words].concat());
        assert_eq!(output.status, Some(2), "{line}: {output:#?}");
        let refusal: Value = serde_json::from_str(output.stderr.trim()).expect(line);
        assert_eq!(refusal["error"]["reason"], "USAGE", "{line}: {refusal}");
        let output = site.berth(&[&["-o", "yaml"], &*words].concat());
        assert_eq!(output.status, Some(2), "{line}: {output:#?}");
        let start = "---\nerror:\n  code: INVALID_ARGUMENT\n";
        assert!(output.stderr.starts_with(start), "{line}: {output:#?}");
        assert!(
            output.stderr.contains("\n  reason: USAGE\n"),
            "{line}: {output:#?}"
        );
    }
}

/// Goal: a script of each shell, in which every command is, and which bash can read.
#[test]
fn shells_complete_every_command() {
    let site = Site::start();
    for shell in ["bash", "zsh", "fish"] {
        let script = site.berth(&["completion", shell]);
        assert_eq!(script.status, Some(0), "{script:?}");
        for word in [
            "server-group",
            "force-complete",
            "memory-mib",
            "validate-only",
        ] {
            assert!(script.stdout.contains(word), "{shell}: {word}");
        }
    }
    // A reader that has enough is no failure.
    let first = format!(
        "{} completion bash | head -1; echo ${{PIPESTATUS[0]}}",
        env!("CARGO_BIN_EXE_berth")
    );
    let first = std::process::Command::new("bash")
        .args(["-c", &first])
        .output();
    let first = String::from_utf8(first.expect("bash runs").stdout).expect("text");
    assert_eq!(first.lines().last(), Some("0"), "{first}");
    // The script is longer than an argument may be.
    let script = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(script.path(), site.berth(&["completion", "bash"]).stdout).expect("written");
    let complete = r#"
        source "$0"
        COMP_WORDS=(berth vm mig) COMP_CWORD=2
        _berth berth mig vm
        echo "${COMPREPLY[@]}""#;
    let bash = std::process::Command::new("bash")
        .args(["--norc", "-c", complete])
        .arg(script.path())
        .output()
        .expect("bash runs");
    let completed = String::from_utf8_lossy(&bash.stdout);
    assert_eq!(completed.trim(), "migrate", "{bash:?}");
}
