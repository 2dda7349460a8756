//! Several VMs of one command.
//!
//! Goal: each is done, whatever becomes of the others; the output says which, and the exit status is that of
//! the worst. Method: every command that takes several names, with three of them, of which the conductor
//! refuses the second.

use berth_domain::refusal::{Code, Refusal};
use berth_proto::status::to_status;
use clap::CommandFactory as _;
use serde_json::Value;
use tonic::Status;

use super::Site;

/// Returns the verbs of VMs that take several names and begin operations: all but `set`, which a scheduler
/// carries out itself.
fn verbs() -> Vec<String> {
    let command = berth_cli::arguments::Arguments::command();
    let vm = command.find_subcommand("vm").expect("a command");
    let takes_several = |verb: &&clap::Command| {
        let begins = verb.get_arguments().any(|arg| arg.get_id() == "no_wait");
        begins && verb.get_positionals().any(|arg| arg.get_id() == "vms")
    };
    let verbs = vm.get_subcommands().filter(takes_several);
    verbs.map(|verb| verb.get_name().to_owned()).collect()
}

fn refuse_second(site: &Site, status: Status) {
    let mut state = site.state.lock().unwrap();
    (state.begun, state.refused_begin) = (0, Some((1, status)));
}

fn missing() -> Status {
    to_status(&Refusal::new(Code::NotFound, "VM_NOT_FOUND", "no such VM").with("vm", "b"))
}

#[test]
fn a_failure_of_one_does_not_stop_the_others() {
    let site = Site::start();
    let verbs = verbs();
    assert!(verbs.len() >= 9, "{verbs:?}");
    for verb in &verbs {
        let words = ["vm", verb, "a", "vms/b", "c", "--no-wait"];
        let json = || site.berth(&[&words[..], &["-o", "json"]].concat());
        refuse_second(&site, missing());
        let output = json();
        assert_eq!(output.status, Some(1), "{verb}: {output:#?}");
        let list: Value = serde_json::from_str(&output.stdout).expect("JSON");
        let vms: Vec<&Value> = list
            .as_array()
            .expect("a list")
            .iter()
            .map(|value| &value["vm"])
            .collect();
        assert_eq!(vms, ["a", "c"], "{verb}: {output:#?}");
        let errors: Vec<Value> = output
            .stderr
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!(errors.len(), 1, "{verb}: {output:#?}");
        assert_eq!(
            errors[0]["error"]["metadata"]["vm"], "b",
            "{verb}: {output:#?}"
        );

        refuse_second(&site, missing());
        let table = site.berth(&words);
        assert_eq!(table.status, Some(1), "{verb}: {table:#?}");
        assert_eq!(table.stdout.lines().count(), 2, "{verb}: {table:#?}");
        let order: Vec<&str> = table.stderr.lines().collect();
        let expected = ["vm a:", "vm b:", "error: no such VM (VM_NOT_FOUND)"];
        assert!(
            order.starts_with(&expected) && order.last() == Some(&"vm c:"),
            "{verb}: {table:#?}"
        );

        // A conductor that is lost is worse than one that refuses.
        refuse_second(&site, Status::unavailable("lost"));
        let output = json();
        assert_eq!(output.status, Some(3), "{verb}: {output:#?}");
        let list: Value = serde_json::from_str(&output.stdout).expect("JSON");
        assert_eq!(
            list.as_array().map(Vec::len),
            Some(2),
            "{verb}: {output:#?}"
        );
    }
}

#[test]
fn one_is_an_object_and_several_are_a_list() {
    let site = Site::start();
    for verb in verbs() {
        for (names, is_list) in [(&["a"][..], false), (&["a", "b"], true)] {
            let words = [&["vm", &verb], names, &["-o", "json"]].concat();
            let output = site.berth(&words);
            let value: Value = serde_json::from_str(&output.stdout).expect("JSON");
            assert_eq!(
                (output.status, value.is_array()),
                (Some(0), is_list),
                "{words:?}: {output:#?}"
            );
        }
        let words = [
            "vm",
            &verb,
            "a",
            "b",
            "--request-id",
            "6f1c6f0e-3a0e-4c39-8a51-4a8c3b6b1f10",
        ];
        let misused = site.berth(&words);
        assert_eq!(misused.status, Some(2), "{words:?}: {misused:#?}");
    }
}
