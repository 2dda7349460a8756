//! The transfer itself: what is done when it takes too long, where the hypervisor's own threads run,
//! how far it is, and what becomes of a post-copy whose link is cut.

use berth_domain::cpu_set::CpuSet;
use berth_domain::migration::State;
use berth_tests::processes::{Answer, Cluster, Process, eventually};
use serde_json::Value;

use super::stage::{A, B, Stage, all_cpus, cpus, host};

/// Goal: a transfer that takes too long is stopped, or made to end, as its migration says.
#[test]
fn what_takes_too_long_meets_the_action_that_was_chosen() {
    let stage = Stage::start();
    stage.cluster.happens(A, "hold transfer");
    stage.cluster.happens(B, "hold transfer");
    let after = ["--timeout-ms", "1000", "--timeout-action"];
    let begin = |to: &str, action: &[&str]| {
        stage.begin("a", &[&["--host", to][..], &after, action].concat())
    };
    let (operation, _) = begin(B, &["abort"]);
    let refusal = stage.fails(&operation);
    assert_eq!(stage.cluster.pins_on("a", A), [0, 1]);
    let said = refusal["message"].as_str().unwrap();
    assert!(
        said.contains("took longer than 1000 ms and was stopped"),
        "{refusal:#}"
    );
    let refused = stage.cluster.berth(
        &[
            &["vm", "migrate", "a", "--host", B][..],
            &after,
            &["post-copy"],
        ]
        .concat(),
    );
    let _ = refused.refused(1).saying(&["timeout_action"]);

    let (operation, _) = begin(B, &["force-complete"]);
    stage.cluster.succeeds(&operation);
    assert_eq!(stage.cluster.pins_on("a", B), [2, 3]);
    let (operation, _) = begin(A, &["post-copy", "--post-copy"]);
    stage.cluster.succeeds(&operation);
    assert_eq!(stage.cluster.pins_on("a", A).len(), 2);
    stage.holds();
}

/// Goal: a guest whose halves have lost each other is on neither host and on both: the migration
/// says so and what to do, both claims stay whatever is started anew, and nobody gets its CPUs;
/// once a person has stopped both halves, it counts as lost and can be deleted.
#[test]
fn a_post_copy_whose_link_is_cut_is_unsettled_until_somebody_ends_it() {
    let mut stage = Stage::start();
    stage.cluster.happens(A, "hold transfer");
    stage.cluster.happens(A, "hold post-copy");
    let (operation, migration) = stage.begin("a", &["--host", B, "--post-copy"]);
    stage.is_seen(A, "a", "Sending");
    stage
        .cluster
        .run(&["migration", "force-complete", &migration]);
    stage.is_seen(B, "a", "PullingIn");
    // It runs on the other side: it is not stopped any more.
    let progress = stage.cluster.json(&["migration", "show", &migration]);
    assert_eq!(progress["state"], "Running", "{progress:#}");
    stage.cluster.happens(A, "break a");
    stage.is_seen(A, "a", "Torn");
    stage.is_seen(B, "a", "Torn");
    let said = is_unsettled(&stage, &operation, &migration);
    assert_eq!(said["metadata"]["doubt"], "PostCopyBroken", "{said:#}");
    assert_eq!(said["metadata"]["waits_for"], "host-a,host-b", "{said:#}");
    let hint = said["hint"].as_str().unwrap();
    assert!(
        hint.contains("stop it on both host-a and host-b"),
        "{said:#}"
    );
    both_claims_stay(&stage);

    stage.restart(0, &[], &[]);
    stage.restart(1, &[], &[]);
    for host in [A, B] {
        stage.is_compared(host);
        assert_eq!(stage.guests(host)["a"].phase, "Torn");
    }
    both_claims_stay(&stage);
    assert_eq!(stage.last_migration("a").unwrap().state, State::Unsettled);
    for words in [&["vm", "delete", "a"][..], &["vm", "migrate", "a"]] {
        let _ = stage.cluster.berth(words).refused(1).saying(&["VM_BUSY"]);
    }

    for host in [A, B] {
        stage.cluster.happens(host, "lose a");
    }
    let refusal = stage.fails(&operation);
    assert_eq!(refusal["reason"], "GUEST_ENDED", "{refusal:#}");
    assert_eq!(stage.last_migration("a").unwrap().state, State::Failed);
    // Both hosts share its disks: the hint holds.
    let hint = refusal["hint"].as_str().unwrap();
    assert!(hint.ends_with("berth vm start a"), "{refusal:#}");
    stage.cluster.run(&["vm", "start", "a"]);
    let shown = stage.cluster.json(&["vm", "show", "a"]);
    assert_eq!(shown["vm"]["state"], "Active", "{shown:#}");
    stage.is_seen(A, "a", "Running");
    stage.cluster.run(&["vm", "delete", "a"]);
    assert_eq!((stage.taken(A), stage.taken(B)), (cpus(""), cpus("0-1")));
    stage.holds();
}

/// Waits until a migration is unsettled, and returns what it says.
#[track_caller]
fn is_unsettled(stage: &Stage, operation: &str, migration: &str) -> Value {
    eventually("an unsettled migration", || {
        let shown = stage.cluster.ask(&["migration", "show", migration])?;
        let is = shown["state"] == "Unsettled";
        is.then_some(()).ok_or_else(|| format!("{shown:#}"))
    });
    let shown = stage.cluster.json(&["migration", "show", migration]);
    let said = shown["error"].clone();
    assert_eq!(said["reason"], "MIGRATION_UNSETTLED", "{shown:#}");
    let shown = stage
        .cluster
        .json(&["operation", "show", operation])
        .to_string();
    for words in ["MIGRATION_UNSETTLED", "have lost each other"] {
        assert!(shown.contains(words), "{shown}");
    }
    said
}

/// Asserts that a guest of which nobody knows where it is keeps its CPUs on both hosts.
#[track_caller]
fn both_claims_stay(stage: &Stage) {
    assert_eq!((stage.taken(A), stage.taken(B)), (cpus("0-1"), cpus("0-3")));
    let create = [&Cluster::create("c", "pair")[..], &["--host", B]].concat();
    let _ = stage
        .cluster
        .berth(&create)
        .refused(1)
        .saying(&["DEDICATED_CPUS"]);
}

/// Goal: on both hosts the hypervisor's own threads run on CPUs that no other pinned guest has, for
/// each policy; with one of its own they run there alone.
#[test]
fn the_hypervisors_threads_run_on_nobody_elses_cpus() {
    let shared = |name| {
        let mut host = host(name, 1, 12, "", "2-11");
        let described = host.described.as_mut().expect("it is described");
        described
            .cpu_sets
            .push(("--cpu-shared-set", "0-1".to_owned()));
        host
    };
    let stage = Stage::with(vec![shared(A), shared(B)]);
    stage.cluster.pinned_flavor("pair", 2);
    for name in [A, B] {
        let _ = stage.cluster.boot(&format!("beside-{name}"), "pair", name);
    }
    for policy in ["", "isolate", "share"] {
        let name = format!("threads-{policy}");
        let spec = format!("hw:emulator_threads_policy={policy}");
        let mut words = vec![
            "flavor",
            "create",
            &name,
            "--vcpus",
            "2",
            "--memory-mib",
            "64",
        ];
        words.extend(["--spec", "hw:cpu_policy=dedicated"]);
        if !policy.is_empty() {
            words.extend(["--spec", &spec]);
        }
        stage.cluster.run(&words);
        let _ = stage.cluster.boot("g", &name, A);
        stage.cluster.happens(A, "hold transfer");
        let (operation, _) = stage.begin("g", &["--host", B]);
        stage.is_seen(A, "g", "Sending");
        stage.is_seen(B, "g", "Receiving");
        for name in [A, B] {
            let guest = &stage.guests(name)["g"];
            let threads = guest.spec.emulator_cpus();
            let others: Vec<_> = stage.claims(name);
            let others: Vec<_> = others
                .into_iter()
                .filter(|c| c.vm.as_str() != "g")
                .collect();
            let others = all_cpus(&others);
            assert!(!threads.is_empty() && !others.is_empty());
            assert!(
                threads.intersection(&others).is_empty(),
                "{policy} on {name}: {threads}"
            );
            let vcpus = guest.spec.vcpu_cpus();
            let vcpus = vcpus
                .values()
                .fold(CpuSet::default(), |all, c| all.union(c));
            let expected = match policy {
                "" => vcpus,
                "share" => cpus("0-1"),
                _ => guest.cpus.difference(&vcpus),
            };
            assert_eq!(threads, expected, "{policy} on {name}");
        }
        stage.cluster.happens(A, "let transfer");
        stage.cluster.succeeds(&operation);
        stage.holds();
        stage.cluster.run(&["vm", "delete", "g"]);
    }
}

/// Goal: who follows a migration is told how much is left and when it will end, and then that it
/// has.
#[test]
fn a_migration_says_when_it_will_end() {
    let stage = Stage::start();
    // 64 MiB at 16 MiB/s.
    let (operation, migration) = stage.begin("a", &["--host", B, "--bandwidth-mib-s", "16"]);
    let watched = stage
        .cluster
        .berth(&["migration", "watch", &migration])
        .with_status(0);
    let lines = watched
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let lines: Vec<Value> = lines.collect();
    assert_eq!(lines.last().expect("the end")["state"], "Completed");
    let figures = lines.iter().filter(|line| line["remaining_ms"].is_u64());
    let figures: Vec<(u64, u64, u64)> = figures
        .map(|line| {
            let memory = &line["progress"]["memory"];
            let number = |value: &Value| value.as_u64().expect("a number");
            let sent = number(&memory["processed"]);
            assert_eq!(
                number(&memory["total"]),
                sent + number(&memory["remaining"])
            );
            (
                number(&line["remaining_ms"]),
                sent,
                number(&line["progress"]["elapsed_ms"]),
            )
        })
        .collect();
    assert!(figures.len() >= 2, "{lines:#?}");
    for pair in figures.windows(2) {
        assert!(
            pair[1].0 <= pair[0].0 && pair[1].1 >= pair[0].1,
            "{figures:?}"
        );
    }
    // It says from the begin when that will be: 4 s in all.
    for (left, _, elapsed) in &figures {
        assert!((3_500..=4_500).contains(&(left + elapsed)), "{figures:?}");
    }
    stage.cluster.succeeds(&operation);
    // Whoever waits for a move sees a bar.
    let mut command = stage.cluster.programs.command("berth");
    command.args(["--scheduler", &stage.cluster.addresses()]);
    command.args(["vm", "migrate", "a", "--host", A, "--bandwidth-mib-s", "16"]);
    let answer = Answer::of(command).with_status(0);
    let lines: Vec<&str> = answer.stderr.lines().collect();
    // Nothing is done before the transfer is.
    let position = |of: &str| lines.iter().rposition(|line| line.contains(of));
    let [begun, last_bar, settled] = ["under way on host-b", "MiB to go", "settle  "].map(position);
    assert!(
        begun.is_some() && begun < last_bar && last_bar < settled,
        "{answer:#?}"
    );
    assert!(
        !answer.stderr.contains("live migration       done"),
        "{answer:#?}"
    );
    let bars = lines.iter().filter(|line| line.contains("MiB to go"));
    let bars: Vec<&&str> = bars.collect();
    assert!(
        !bars.is_empty() && bars.iter().all(|bar| bar.contains(" left")),
        "{answer:#?}"
    );
}

/// Asserts that a move failed with this reason, and that nothing is left of it.
#[track_caller]
fn is_given_up(stage: &Stage, operation: &str, reason: &str) {
    let refusal = stage.fails(operation);
    assert_eq!(refusal["reason"], reason, "{refusal:#}");
    assert_eq!(stage.cluster.pins_on("a", A), [0, 1]);
    assert_eq!((stage.taken(A), stage.taken(B)), (cpus("0-1"), cpus("0-1")));
    assert!(!stage.guests(B).contains_key("a"));
    assert_eq!(stage.last_migration("a").unwrap().state, State::Failed);
    stage.holds();
}

/// Goal: a move is given up before the transfer and during it, made to end, and not given up any
/// more once the guest runs on the other side.
#[test]
fn a_move_is_given_up_or_made_to_end_at_every_stage() {
    let stage = Stage::start();
    stage.cluster.happens(B, "hold prepare");
    let (operation, migration) = stage.begin("a", &["--host", B]);
    stage
        .cluster
        .reaches(&operation, "PreLiveMigration", "Started");
    stage.cluster.run(&["migration", "abort", &migration]);
    stage.cluster.happens(B, "let prepare");
    is_given_up(&stage, &operation, "OPERATION_CANCELLED");
    // Who watches it reads why, and a script sees that it failed.
    let watch = ["migration", "watch", &migration];
    let watched = stage.cluster.berth(&watch).refused(1);
    let watched = watched.saying(&["OPERATION_CANCELLED"]);
    let last = watched.stdout.lines().last().unwrap_or_default();
    let last: Value = serde_json::from_str(last).expect("JSON");
    assert_eq!(last["state"], "Failed", "{last:#}");

    stage.cluster.happens(A, "hold transfer");
    let (operation, _) = stage.begin("a", &["--host", B]);
    stage.is_seen(B, "a", "Receiving");
    stage.cluster.run(&["operation", "cancel", &operation]);
    is_given_up(&stage, &operation, "OPERATION_CANCELLED");

    let (operation, migration) = stage.begin("a", &["--host", B]);
    stage.is_seen(B, "a", "Receiving");
    stage
        .cluster
        .run(&["migration", "force-complete", &migration]);
    stage.cluster.succeeds(&operation);
    assert_eq!(stage.cluster.pins_on("a", B), [2, 3]);

    stage.cluster.happens(B, "hold transfer");
    stage.cluster.happens(B, "hold post-copy");
    let (operation, migration) = stage.begin("a", &["--host", A, "--post-copy"]);
    stage.is_seen(A, "a", "Receiving");
    stage
        .cluster
        .run(&["migration", "force-complete", &migration]);
    stage.is_seen(A, "a", "PullingIn");
    stage.cluster.run(&["migration", "abort", &migration]);
    eventually("a word that it goes on", || {
        let shown = stage.cluster.ask(&["operation", "show", &operation])?;
        let is_said = shown["log"].to_string().contains("TRANSFER_GOES_ON");
        is_said.then_some(()).ok_or_else(|| format!("{shown:#}"))
    });
    stage.cluster.happens(B, "let post-copy");
    stage.cluster.succeeds(&operation);
    let _ = stage.cluster.pins_on("a", A);
    stage.holds();
}

/// Goal: how a guest is sent is the cluster's policy unless its move wants otherwise, it is what
/// held when the move began, and what makes no sense is refused at once.
#[test]
fn how_a_guest_is_sent_is_policy() {
    let stage = Stage::start();
    let set = [
        "policy",
        "set",
        "migration.bandwidth_mib_s=1000",
        "migration.downtime_ms=300",
    ];
    let more = ["migration.auto_converge=false", "migration.post_copy=true"];
    stage.cluster.run(&[&set[..], &more].concat());
    stage.cluster.happens(A, "hold transfer");
    let (operation, _) = stage.begin("a", &["--host", B, "--downtime-ms", "500"]);
    stage
        .cluster
        .run(&["policy", "set", "migration.bandwidth_mib_s=none"]);
    let transfer = stage.last_migration("a").unwrap().transfer;
    assert_eq!(transfer.bandwidth_mib_per_s_max, Some(1000));
    assert_eq!(transfer.downtime_ms_max, Some(500));
    assert!(
        !transfer.auto_converge && transfer.post_copy,
        "{transfer:?}"
    );
    stage.cluster.happens(A, "let transfer");
    stage.cluster.succeeds(&operation);
    for (words, told) in [
        (["--bandwidth-mib-s", "0"], "bandwidth"),
        (["--downtime-ms", "2000001"], "downtime"),
        (["--timeout-ms", "999"], "timeout"),
    ] {
        let asked = [&["vm", "migrate", "a"][..], &words].concat();
        let refused = stage.cluster.berth(&asked);
        assert!(refused.status != Some(0), "{refused:#?}");
        assert!(refused.stderr.contains(told), "{refused:#?}");
    }
    // A guest that must not wait for pages of another host is never in post-copy.
    let words = [
        "flavor",
        "create",
        "real-time",
        "--vcpus",
        "2",
        "--memory-mib",
        "64",
    ];
    let specs = [
        "hw:cpu_policy=dedicated",
        "hw:cpu_realtime=true",
        "hw:cpu_realtime_mask=^0",
    ];
    let specs = specs.map(|spec| ["--spec", spec]).concat();
    stage.cluster.run(&[&words[..], &specs].concat());
    let _ = stage.cluster.boot("r", "real-time", A);
    let refused = stage.cluster.berth(&["vm", "migrate", "r", "--post-copy"]);
    let _ = refused.refused(1).saying(&["post_copy"]);
    stage.cluster.run(&["vm", "delete", "b"]);
    stage.cluster.run(&["vm", "migrate", "r"]);
    assert!(!stage.last_migration("r").unwrap().transfer.post_copy);
    stage.holds();
}

/// Goal: disks stay where both hosts see them, a guest with disks prefers such hosts, and elsewhere
/// they are copied with it.
#[test]
fn disks_go_along_where_hosts_do_not_share_them() {
    let names = [A, B, "host-c"];
    let mut stage = Stage::with(names.map(|name| host(name, 1, 4, "", "0-3")).into());
    stage.restart(2, &[], &["--storage-id", "elsewhere"]);
    let words = ["--vcpus", "1", "--memory-mib", "64", "--disk-gib", "4"];
    let pinned = ["--spec", "hw:cpu_policy=dedicated"];
    stage
        .cluster
        .run(&[&["flavor", "create", "disked"][..], &words, &pinned].concat());
    let create = [
        "vm",
        "create",
        "d",
        "--flavor",
        "disked",
        "--disk",
        "old.qcow2:4",
    ];
    stage.cluster.run(&[&create[..], &["--host", A]].concat());
    // Where it sees its disks somebody is already; where it does not, nobody.
    stage.cluster.pinned_flavor("pair", 2);
    let _ = stage.cluster.boot("beside", "pair", B);
    for (more, to, bytes) in [
        (&[][..], B, 0),
        (
            &["--host", "host-c", "--bandwidth-mib-s", "1500"],
            "host-c",
            4_u64 << 30,
        ),
    ] {
        if bytes == 0 {
            stage.cluster.happens(A, "hold transfer");
        }
        let (operation, migration) = stage.begin("d", more);
        let copied = watched(&stage, &migration)["disk"]["total"].as_u64();
        assert_eq!(copied, Some(bytes), "to {to}");
        stage.cluster.happens(A, "let transfer");
        stage.cluster.succeeds(&operation);
        let _ = stage.cluster.pins_on("d", to);
        stage.holds();
    }
}

/// Returns the first figures that who follows a migration is told.
fn watched(stage: &Stage, migration: &str) -> Value {
    let mut command = stage.cluster.programs.command("berth");
    let addresses = stage.cluster.addresses();
    command.args(["--output", "json", "--scheduler", &addresses]);
    command.args(["migration", "watch", migration]);
    let log = stage.cluster.folder().join(format!("watch-{migration}"));
    let watch = Process::start(command, &log);
    eventually("a line with figures", || {
        let text = watch.log();
        let lines = text.lines();
        let mut lines = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let line = lines.find(|line| line["progress"].is_object());
        line.map(|line| line["progress"].clone()).ok_or(text)
    })
}
