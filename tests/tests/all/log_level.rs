//! `berth log-level` on processes: debug lines of each program appear and stop.
//!
//! Method: `h2=debug`, whose lines each connection to a program makes; `berth log-level show` is such a
//! connection. How changes end is tested with a clock that stands still, in `berth-process`.

use berth_tests::processes::{Answer, Cluster, Host, Part, certs, eventually};
use berth_tls::Role;
use serde_json::{Value, json};

use crate::PROGRAMS;

/// Lines of the library below every connection.
const DEBUG_LINE: &str = " h2::";

/// Returns each program of a cluster, by the options that name it.
fn programs(cluster: &Cluster) -> Vec<(Vec<String>, &Part)> {
    let named = |option: &str, name: &str| vec![option.to_owned(), name.to_owned()];
    let members = &cluster.json(&["cluster", "status"])["members"];
    let members = members.as_array().expect("members");
    let member = |part: &Part| {
        let mut ids = members.iter().filter(|m| m["address"] == *part.address);
        ids.next().expect("a member")["id"].to_string()
    };
    let schedulers = cluster.schedulers.iter();
    let schedulers = schedulers.map(|part| (named("--member", &member(part)), part));
    let conductors = cluster.conductors.iter();
    let conductors = conductors.map(|part| (named("--conductor", &part.name), part));
    let agents = cluster.agents.iter();
    let agents = agents.map(|part| (named("--host", &part.name), part));
    let controllers = cluster.csi_controllers.iter().map(|part| {
        let address = format!("unix://{}", part.address);
        (named("--address", &address), part)
    });
    let all = schedulers.chain(conductors).chain(agents);
    all.chain(controllers).collect()
}

fn words<'a>(verb: &[&'a str], options: &'a [String]) -> Vec<&'a str> {
    let options = options.iter().map(String::as_str);
    [&["log-level"], verb]
        .concat()
        .into_iter()
        .chain(options)
        .collect()
}

/// Returns what the one program answers.
#[track_caller]
fn one(cluster: &Cluster, verb: &[&str], options: &[String]) -> Value {
    let mut answers = cluster.json(&words(verb, options));
    assert_eq!(answers.as_array().map(Vec::len), Some(1), "{answers:#}");
    answers[0].take()
}

/// Returns what a program logs while it is called.
fn logged(cluster: &Cluster, options: &[String], part: &Part) -> String {
    let before = part.log().len();
    let _ = one(cluster, &["show"], options);
    part.log().split_off(before)
}

#[test]
fn debug_lines_appear_and_stop() {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(1)
        .host(Host::new("h1"))
        .start();
    drop(cluster.add_csi_controller());
    let programs = programs(&cluster);
    assert_eq!(programs.len(), 4);
    for (options, part) in programs {
        let name = &part.name;
        assert!(
            !logged(&cluster, &options, part).contains(DEBUG_LINE),
            "{name}"
        );
        let set = one(&cluster, &["set", "h2=debug"], &options);
        assert_eq!(set["configured_filter"], "info", "{name}: {set:#}");
        assert_eq!(set["change"]["filter"], "h2=debug", "{name}: {set:#}");
        assert_eq!(set["change"]["principal"], "unverified", "{name}: {set:#}");
        eventually("debug lines", || {
            let said = logged(&cluster, &options, part);
            said.contains(DEBUG_LINE).then_some(()).ok_or(said)
        });
        assert!(part.log().contains("log level changed"), "{name}");

        // What is refused changes nothing.
        let wrong = cluster.berth(&words(&["set", "h2=loud"], &options));
        wrong.refused(1).saying(&["INVALID_FIELD", "h2=loud"]);
        let shown = one(&cluster, &["show"], &options);
        assert_eq!(shown["change"]["filter"], "h2=debug", "{name}: {shown:#}");

        let reset = one(&cluster, &["reset"], &options);
        assert_eq!(reset["change"], Value::Null, "{name}: {reset:#}");
        // The calls until here, of which one may have been logged after the reset, have ended.
        eventually("no debug lines", || {
            let said = logged(&cluster, &options, part);
            (!said.contains(DEBUG_LINE)).then_some(()).ok_or(said)
        });
        assert!(part.log().contains("log level reset"), "{name}");

        let _ = one(&cluster, &["set", "h2=debug", "--for", "1s"], &options);
        eventually("the end of the change", || {
            let shown = one(&cluster, &["show"], &options);
            let has_ended = part.log().contains("log level expired") && shown["change"].is_null();
            has_ended.then_some(()).ok_or(shown)
        });
        eventually("no debug lines", || {
            let said = logged(&cluster, &options, part);
            (!said.contains(DEBUG_LINE)).then_some(()).ok_or(said)
        });
    }
}

/// Goal: a program that is lost, and a cluster without a leader, hinder no call to the others.
#[test]
fn all_that_answer_are_changed() {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(3)
        .conductors(1)
        .host(Host::new("h1"))
        .start();
    let all = [
        "log-level",
        "set",
        "h2=info",
        "--all-members",
        "--all-conductors",
    ];
    let changed = |answers: &Value| {
        let answers = answers.as_array().expect("a list").iter();
        answers
            .filter(|answer| answer["change"]["filter"] == "h2=info")
            .count()
    };
    assert_eq!(changed(&cluster.json(&all)), 4);
    let reset = cluster.json(&["log-level", "reset"]);
    assert_eq!(
        (changed(&reset), reset.as_array().map(Vec::len)),
        (0, Some(4))
    );
    for lost in [1, 2] {
        cluster.schedulers[lost].kill();
        // Without a leader it also says that it reads from one scheduler.
        let answer = cluster.berth(&all).with_status(1);
        let answer = answer.saying(&["PROGRAM_UNREACHABLE"]);
        let answers = answer.json_with(1).expect("a list");
        assert_eq!(changed(&answers), 4 - lost, "{answers:#}");
    }
    // Without any scheduler that answers.
    let gone = cluster.free_address();
    let address = cluster.agents[0].address.clone();
    let direct = ["log-level", "show", "--address", &address];
    let shown = cluster.berth_at(&gone, &direct).json().expect("an answer");
    assert_eq!(shown[0]["configured_filter"], "info", "{shown:#}");
    let nothing = cluster.berth(&["log-level", "show", "--address", &gone]);
    nothing.refused(3).saying(&["PROGRAM_UNREACHABLE", &gone]);
}

#[test]
fn what_does_not_exist_and_what_means_nothing_is_refused() {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(1)
        .host(Host::new("h1"))
        .start();
    for (options, status, reason) in [
        (&["--member", "99"][..], 1, "MEMBER_NOT_FOUND"),
        (&["--conductor", "x"], 1, "CONDUCTOR_NOT_FOUND"),
        (&["--host", "x"], 1, "HOST_NOT_FOUND"),
        (&[], 2, "USAGE"),
        (&["--address", "*"], 2, "USAGE"),
        (&["--address", "a;b"], 2, "USAGE"),
        (&["--address", "unix:relative"], 2, "USAGE"),
        (&["--address", "127.0.0.1:0"], 2, "USAGE"),
        (&["--all-members", "--for", "25h"], 2, "USAGE"),
        (&["--all-members", "--stale"], 1, "STALE_NOT_A_READ"),
    ] {
        let words = [&["log-level", "set", "h2=debug"], options].concat();
        let answer = cluster.berth(&words).refused(status);
        answer.saying(&[reason]);
    }
    let shown = cluster.json(&["log-level", "show"]);
    for program in shown.as_array().expect("a list") {
        assert_eq!(program["change"], Value::Null, "{program:#}");
    }
}

/// Goal: an operator changes the level of each program, a reader looks, and no other role does either.
#[test]
fn operators_change_and_readers_look() {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(1)
        .host(Host::new("h1"))
        .certified()
        .start();
    let berth = |role, name: &str, words: &[&str]| {
        let mut command = cluster.programs.command("berth");
        command.args(["--output", "json", "--scheduler", &cluster.addresses()]);
        for (flag, file) in certs::flags(&cluster.certificates().files(role, name)) {
            command.args([flag, &file]);
        }
        command.args(words);
        Answer::of(command)
    };
    let programs = programs(&cluster);
    assert_eq!(programs.len(), 3);
    for (options, part) in programs {
        let name = &part.name;
        let set = one(&cluster, &["set", "h2=info"], &options);
        assert_eq!(
            set["change"]["principal"], "operator:ann",
            "{name}: {set:#}"
        );
        let line = part.log();
        let mut lines = line
            .lines()
            .filter(|line| line.contains("log level changed"));
        assert!(lines.any(|line| line.contains("operator:ann")), "{name}");
        let shown = berth(Role::Reader, "bob", &words(&["show"], &options)).json();
        assert_eq!(
            shown.expect("an answer")[0]["change"]["filter"],
            json!("h2=info"),
            "{name}"
        );
        for verb in [&["set", "debug"][..], &["reset"]] {
            let refused = berth(Role::Reader, "bob", &words(verb, &options)).refused(1);
            refused.saying(&["ROLE_NOT_ALLOWED"]);
        }
    }
}
