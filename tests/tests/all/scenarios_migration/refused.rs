//! Scenarios 2, 6, 7 and 8: moves that are refused before anything is moved, and N3.

use berth_domain::name::HostName;
use berth_tests::processes::{Answer, eventually};
use serde_json::Value;

use super::stage::{A, B, Stage, cpus, host};

/// Returns the refusal of a move after which everything is as before and nothing was begun.
#[track_caller]
fn stays(stage: &Stage, vm: &str, to: &str) -> Value {
    let before = stage.cluster.json(&["vm", "show", vm]);
    assert_eq!(before["vm"]["state"], "Active", "{before:#}");
    let begun = stage.cluster.json(&["migration", "list", "--vm", vm]);
    let taken = [A, B].map(|host| (stage.taken(host), stage.counted(host), stage.guests(host)));
    let refused = stage.cluster.berth(&["vm", "migrate", vm, "--host", to]);
    let told: Value = serde_json::from_str(&refused.refused(1).stderr).expect("JSON");
    assert_eq!(stage.cluster.json(&["vm", "show", vm]), before);
    assert_eq!(
        stage.cluster.json(&["migration", "list", "--vm", vm]),
        begun
    );
    let now = [A, B].map(|host| (stage.taken(host), stage.counted(host), stage.guests(host)));
    assert_eq!(now, taken);
    stage.holds();
    told["error"].clone()
}

/// Scenarios 2 and 6, inverted: where Nova moves a guest without claiming its new CPUs, since one of
/// the parts is old, the gate refuses: an old destination, an old source, an old conductor.
#[test]
fn no_guest_with_a_topology_moves_without_a_claim_because_a_part_is_old() {
    let old = ["--service-version", "1"];
    let mut stage = Stage::start();
    for (agent, words) in [
        (1, "host-b: its agent is at service version 1,"),
        (0, "the agent of source host-a is at service version 1,"),
    ] {
        stage.restart(agent, &[], &old);
        let told = stays(&stage, "a", B);
        let message = told["message"].as_str().unwrap();
        assert!(message.contains(words), "{told:#}");
        assert!(
            told.to_string().contains("SERVICE_VERSION_TOO_OLD"),
            "{told:#}"
        );
        assert!(
            told["hint"].as_str().unwrap().contains("upgrade"),
            "{told:#}"
        );
        stage.restart(agent, &[], &[]);
    }
    // Nobody is old any more.
    stage.cluster.run(&["vm", "migrate", "a", "--host", B]);
    assert_eq!(stage.cluster.pins_on("a", B), [2, 3]);
    stage.holds();
}

/// Scenario 6, on: where both hosts are full, a forced host must still fit.
#[test]
fn a_forced_host_that_is_full_is_refused() {
    let stage = Stage::full();
    let told = stays(&stage, "a", B);
    assert_eq!(told["reason"], "NO_VALID_HOST", "{told:#}");
    assert_eq!(told["hosts"][0]["cause"], "DEDICATED_CPUS", "{told:#}");
    // Row N8: of a host outside the cluster it is said that it is one.
    let told = stays(&stage, "a", "elsewhere");
    assert_eq!(told["reason"], "HOST_NOT_FOUND", "{told:#}");
    let message = told["message"].as_str().unwrap();
    assert!(
        message.contains("host elsewhere is not part of this cluster"),
        "{told:#}"
    );
}

/// Scenario 7: a guest cell of three dedicated CPUs does not go where each cell has two.
#[test]
fn a_guest_that_no_cell_holds_is_refused() {
    let stage = Stage::with(vec![host(A, 1, 4, "", "0-3"), host(B, 2, 2, "", "0-3")]);
    stage.cluster.pinned_flavor("three", 3);
    let _ = stage.cluster.boot("g", "three", A);
    let told = stays(&stage, "g", B);
    assert_eq!(told["reason"], "NO_VALID_HOST", "{told:#}");
    let words = "2 free dedicated CPUs, guest NUMA node 0 needs 3";
    assert!(
        told["message"].as_str().unwrap().contains(words),
        "{told:#}"
    );
    assert_eq!(stage.taken(A).len(), 3);
}

/// Scenario 8: pages are those of the guest's size, or none; `large` is not another size elsewhere.
#[test]
fn a_guest_keeps_the_size_of_its_pages() {
    let gigantic = "{ size_kib = 1048576, total = 4 }";
    let large = "{ size_kib = 2048, total = 2048 }";
    let both = format!("{large}, {gigantic}");
    let hosts = vec![
        host(A, 1, 4, gigantic, "0-3"),
        host(B, 1, 4, large, "0-3"),
        host("host-c", 1, 4, &both, "0-3"),
    ];
    let stage = Stage::with(hosts);
    let words = ["--vcpus", "2", "--memory-mib", "2048"];
    let specs = ["hw:mem_page_size=large", "hw:cpu_policy=dedicated"];
    let specs = specs.map(|spec| ["--spec", spec]).concat();
    stage
        .cluster
        .run(&[&["flavor", "create", "large"][..], &words, &specs].concat());
    let _ = stage.cluster.boot("g", "large", A);
    let told = stays(&stage, "g", B);
    assert_eq!(told["reason"], "NO_VALID_HOST", "{told:#}");
    assert_eq!(told["hosts"][0]["cause"], "PAGE_SIZE", "{told:#}");
    let message = told["message"].as_str().unwrap();
    assert!(message.contains("1 GiB pages"), "{told:#}");
    // Where there are both, it gets those that it has, though there are more of the others.
    stage.cluster.run(&["vm", "migrate", "g"]);
    let shown = stage.cluster.json(&["vm", "show", "g"]);
    assert_eq!(shown["vm"]["host"], "host-c", "{shown:#}");
    let cell = &shown["claims"][0]["assignment"]["cells"][0];
    assert_eq!(cell["page_size_kib"], 1_048_576, "{shown:#}");
    let seen = &stage.guests("host-c")["g"];
    assert_eq!(seen.spec.assignment.cells[0].page_size_kib, Some(1_048_576));
    stage.holds();
}

/// Row N3: the destination, asked, finds that it has no room, since somebody else has its pages. It
/// fails before anything was moved, and the claim is gone. A forced host has no alternative; where
/// the scheduler chooses, the next ones are tried, as many as were asked for, and each refusal is
/// kept and shown.
#[test]
fn hosts_that_refuse_are_followed_by_others_up_to_a_limit() {
    let pages = "{ size_kib = 2048, total = 64 }";
    let names = [A, B, "host-c", "host-d", "host-e"];
    let hosts = names.map(|name| host(name, 1, 4, pages, "0-3"));
    let stage = Stage::with(hosts.into());
    let words = ["--vcpus", "2", "--memory-mib", "64"];
    let specs = ["hw:mem_page_size=2MiB", "hw:cpu_policy=dedicated"];
    let specs = specs.map(|spec| ["--spec", spec]).concat();
    stage
        .cluster
        .run(&[&["flavor", "create", "paged"][..], &words, &specs].concat());
    let _ = stage.cluster.boot("g", "paged", A);
    for name in &names[1..] {
        stage.cluster.happens(name, "take 0 2048 40");
    }
    let operation = stage.cluster.begin(&["vm", "migrate", "g", "--host", B]);
    refused_by(&stage, &operation, 1);
    let operation = stage.cluster.begin(&["vm", "migrate", "g"]);
    refused_by(&stage, &operation, 3);
    stage
        .cluster
        .run(&["policy", "set", "migration.hosts_tried=4"]);
    let operation = stage.cluster.begin(&["vm", "migrate", "g"]);
    refused_by(&stage, &operation, 4);
    // The last of four gives its pages back.
    stage.cluster.happens("host-e", "take 0 2048 0");
    let answer = people(&stage, &["vm", "migrate", "g"]);
    let migration = stage.last_migration("g").unwrap();
    assert_eq!(migration.destination.unwrap().as_str(), "host-e");
    for tried in &migration.tried {
        let line = format!("tried {}: the guest does not fit", tried.host);
        assert!(answer.stderr.contains(&line), "{answer:#?}");
    }
    assert_eq!(stage.taken(A), cpus(""));
    stage.holds();
}

/// A guest that runs and is moved while it is off is started on its host again after each destination
/// that refuses it, and stopped there for the next one; where all refuse, it runs on.
#[test]
fn a_guest_that_is_stopped_for_its_move_is_stopped_for_each_host() {
    let pages = "{ size_kib = 2048, total = 64 }";
    let others = [B, "host-c", "host-d"];
    let hosts = [A, B, "host-c", "host-d"].map(|name| host(name, 1, 4, pages, "0-3"));
    let stage = Stage::with(hosts.into());
    let words = ["--vcpus", "2", "--memory-mib", "64"];
    let pinned = ["--spec", "hw:cpu_policy=dedicated"];
    stage
        .cluster
        .run(&[&["flavor", "create", "pinned"][..], &words, &pinned].concat());
    let _ = stage.cluster.boot("g", "pinned", A);
    for name in others {
        stage.cluster.happens(name, "refuse start 1");
    }
    let operation = stage.cluster.begin(&["vm", "migrate", "g", "--cold"]);
    let refusal = stage.fails(&operation);
    assert_eq!(refusal["reason"], "HYPERVISOR_REFUSED", "{refusal:#}");
    let migration = stage.last_migration("g").unwrap();
    let tried = migration.tried.iter().map(|tried| tried.host.to_string());
    let tried: Vec<String> = tried.collect();
    let hosts: std::collections::BTreeSet<&str> = tried.iter().map(String::as_str).collect();
    assert_eq!(hosts, others.into());
    assert_eq!(stage.cluster.pins_on("g", A).len(), 2);
    stage.holds();

    let [first, second, last] = tried.try_into().expect("three hosts");
    stage.cluster.happens(&first, "refuse start 1");
    stage.cluster.happens(&second, "refuse start 1");
    stage.cluster.run(&["vm", "migrate", "g", "--cold"]);
    let migration = stage.last_migration("g").unwrap();
    assert_eq!(migration.destination.unwrap().as_str(), last);
    assert_eq!((stage.taken(A), stage.guests(A).len()), (cpus(""), 0));
    assert_eq!(stage.cluster.pins_on("g", &last).len(), 2);
    stage.holds();
}

/// Returns what a person is told.
#[track_caller]
fn people(stage: &Stage, words: &[&str]) -> Answer {
    let mut command = stage.cluster.programs.command("berth");
    command.args(["--scheduler", &stage.cluster.addresses()]);
    command.args(words);
    Answer::of(command).with_status(0)
}

/// Asserts that a move was refused by so many hosts, and that nothing is left of it.
#[track_caller]
fn refused_by(stage: &Stage, operation: &str, count: usize) {
    let refusal = stage.fails(operation);
    assert_eq!(refusal["reason"], "DOES_NOT_FIT", "{refusal:#}");
    let migration = stage.last_migration("g").unwrap();
    let hosts: std::collections::BTreeSet<&HostName> =
        migration.tried.iter().map(|tried| &tried.host).collect();
    assert_eq!(hosts.len(), count, "{migration:#?}");
    for tried in &migration.tried {
        assert_eq!(tried.refusal.reason, "DOES_NOT_FIT", "{tried:?}");
        let words = "24 free 2 MiB pages, guest NUMA node 0 needs 32";
        assert!(tried.refusal.message.contains(words), "{tried:?}");
        let host = tried.host.as_str();
        assert_eq!((stage.taken(host), stage.guests(host).len()), (cpus(""), 0));
    }
    assert_eq!(stage.cluster.pins_on("g", A), [0, 1]);
    let id = migration.id.to_string();
    let shown = people(stage, &["migration", "show", &id]);
    for host in hosts {
        let line = format!("tried {host}: the guest does not fit on host {host}");
        assert!(shown.stderr.contains(&line), "{shown:#?}");
    }
    stage.holds();
}

/// Scenario 6, on: an old conductor is given no move of such a guest.
#[test]
fn an_old_conductor_moves_no_guest_with_a_topology() {
    let mut stage = Stage::start();
    let old = ["--service-version", "1"];
    stage.cluster.conductors[0].kill();
    stage.cluster.conductors[0].start_with(&stage.cluster.programs, &old);
    let told = eventually("a word of the old conductor", || {
        let answer = stage.cluster.berth(&["vm", "migrate", "a", "--host", B]);
        let told: Value = serde_json::from_str(answer.stderr.lines().last().unwrap_or_default())
            .map_err(|_| format!("{answer:?}"))?;
        let error = told["error"].clone();
        let is_word = error["reason"]
            .as_str()
            .is_some_and(|r| r != "UNKNOWN" && !r.is_empty());
        (is_word && error["code"] != "UNAVAILABLE")
            .then_some(error)
            .ok_or(format!("{told:#}"))
    });
    assert_eq!(told["reason"], "SERVICE_VERSION_TOO_OLD", "{told:#}");
    assert_eq!(stage.cluster.pins_on("a", A), [0, 1]);
    stage.cluster.conductors[0].kill();
    stage.cluster.conductors[0].start(&stage.cluster.programs);
    eventually("a new conductor", || {
        let answer = stage.cluster.berth(&["vm", "migrate", "a", "--host", B]);
        (answer.status == Some(0))
            .then_some(())
            .ok_or(format!("{answer:?}"))
    });
    assert_eq!(stage.cluster.pins_on("a", B), [2, 3]);
    stage.holds();
}
