//! `berth-scheduler restore` and `recover`, and the recovery after them, as an operator types them.
//!
//! Goal: of a cluster whose schedulers are lost a backup makes another one, and of a majority that is lost
//! the member that is left; what the hosts run is found and claimed, nothing runs twice, and nothing is
//! started before all hosts have reported. Method: whole processes under load; directories are deleted.

mod json;
mod lost_time;
mod other_clusters;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use berth_tests::processes::{Answer, Cluster, Host, eventually};
use serde_json::Value;

use crate::PROGRAMS;
use crate::backup::{Load, Stop, back_up, urls};

fn shown(path: &Path) -> String {
    path.to_str().expect("a path").to_owned()
}

fn start() -> Cluster {
    start_with_conductors(1)
}

fn start_with_conductors(count: u32) -> Cluster {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(3)
        .conductors(count)
        .host(Host::new("h1"))
        .host(Host::new("h2"))
        .host(Host::new("h3"))
        .start();
    cluster.pinned_flavor("one", 1);
    cluster
}

/// Kills all schedulers and leaves the first, with another directory.
fn lose_schedulers(cluster: &mut Cluster, directory: &Path) {
    for scheduler in &mut cluster.schedulers {
        scheduler.kill();
    }
    cluster.schedulers.truncate(1);
    cluster.schedulers[0].set("--data-dir", &shown(directory));
}

fn recovery(cluster: &Cluster) -> Result<Value, String> {
    cluster.ask(&["cluster", "recovery", "status"])
}

#[track_caller]
fn await_end(cluster: &Cluster) -> Value {
    eventually("the recovery to end", || {
        let status = recovery(cluster)?;
        let has_ended = !status["recovery"]["end_time"].is_null();
        has_ended
            .then_some(status.clone())
            .ok_or_else(|| format!("{status:#}"))
    })
}

/// Returns the guests that each simulated hypervisor has.
fn guests(cluster: &Cluster) -> BTreeMap<String, Vec<String>> {
    let mut guests: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for host in ["h1", "h2", "h3"] {
        let text = fs::read_to_string(cluster.guests_file(host)).unwrap_or_default();
        for vm in ["a", "b", "c", "d", "e"] {
            if text.contains(&format!("\"vm\":\"{vm}\"")) {
                guests
                    .entry(vm.to_owned())
                    .or_default()
                    .push(host.to_owned());
            }
        }
    }
    guests
}

fn state_of(cluster: &Cluster, vm: &str) -> (String, Value) {
    let shown = cluster.json(&["vm", "show", vm]);
    let state = shown["vm"]["state"].as_str().expect("a state").to_owned();
    (state, shown["vm"]["host"].clone())
}

/// Goal: what happened after the backup is found at the hosts: a VM that was moved, one that was deleted,
/// one that was stopped, one that was created. Until every host has reported nothing is done.
#[test]
fn a_cluster_is_restored_from_a_backup() {
    let mut cluster = start();
    let folder = tempfile::tempdir().expect("a folder");
    for (vm, host) in [("a", "h1"), ("b", "h1"), ("c", "h2")] {
        let _ = cluster.boot(vm, "one", host);
    }
    let leader = cluster.leader();
    let full = folder.path().join("full");
    let made = back_up(&cluster, leader, &full, &[]);
    // What is lost with the schedulers.
    cluster.run(&["vm", "migrate", "a", "--host", "h2"]);
    let moved = cluster.pins_on("a", "h2");
    cluster.run(&["vm", "delete", "b"]);
    cluster.run(&["vm", "stop", "c"]);
    let created = cluster.boot("d", "one", "h3");
    let before = guests(&cluster);

    let directory = folder.path().join("restored");
    lose_schedulers(&mut cluster, &directory);
    let h3 = cluster
        .agents
        .iter()
        .position(|a| a.name == "h3")
        .expect("h3");
    cluster.agents[h3].kill();
    let restored = cluster.schedulers[0].answer(&cluster.programs, &["restore", &shown(&full)]);
    let restored = restored.with_status(0);
    assert!(
        restored.stdout.contains("3 hosts and 3 VMs"),
        "{restored:#?}"
    );
    cluster.schedulers[0].start(&cluster.programs);

    eventually("the hosts that run to report", || {
        let status = recovery(&cluster)?;
        let awaited = &status["awaited"];
        let is_last = awaited.as_array().is_some_and(|all| {
            all.iter()
                .all(|host| host["host"] == "h3" || host["reported"] == true)
        });
        is_last.then_some(()).ok_or_else(|| format!("{status:#}"))
    });
    let create = Cluster::create("e", "one");
    let _ = cluster.berth(&create).refused(1).saying(&["RECOVERING"]);
    let _ = cluster
        .berth(&["vm", "start", "c"])
        .refused(1)
        .saying(&["RECOVERING"]);
    let _ = cluster
        .berth(&["vm", "delete", "b"])
        .refused(1)
        .saying(&["RECOVERING"]);
    let end = ["cluster", "recovery", "end", "--accept-conflicts"];
    let _ = cluster
        .berth(&end)
        .refused(1)
        .saying(&["RECOVERY_INCOMPLETE", "h3"]);
    assert_eq!(guests(&cluster), before, "nothing was done meanwhile");
    let status = cluster.berth(&["cluster", "status"]).with_status(0);
    assert!(status.stdout.contains("\"recovery\""), "{status:#?}");

    cluster.agents[h3].start(&cluster.programs);
    let ended = await_end(&cluster);
    assert_eq!(ended["recovery"]["cause"], "restored", "{ended:#}");
    assert!(made["end_index"].as_u64() < ended["recovery"]["first_revision"].as_u64());
    assert_eq!(guests(&cluster), before, "and nothing afterwards");
    assert_eq!(cluster.pins_on("a", "h2"), moved);
    assert_eq!(cluster.pins_on("d", "h3"), created);
    assert_eq!(state_of(&cluster, "b"), ("Stopped".to_owned(), "h1".into()));
    assert_eq!(state_of(&cluster, "c"), ("Stopped".to_owned(), "h2".into()));
    let why = Value::Null;
    let settled = |vm: &str, state: &str, host: Value| {
        serde_json::json!({
            "vm": vm, "state": state, "host": host, "message": why,
        })
    };
    let expected = [
        settled("d", "added", "h3".into()),
        settled("a", "active", "h2".into()),
        settled("b", "stopped", Value::Null),
        settled("c", "stopped", Value::Null),
    ];
    assert_eq!(
        ended["settled"],
        Value::from(expected.to_vec()),
        "{ended:#}"
    );

    // The cluster goes on: what is to go goes, what is to start starts, others join.
    cluster.run(&["vm", "delete", "b"]);
    cluster.run(&["vm", "start", "c"]);
    cluster.run(&["vm", "migrate", "d", "--host", "h1"]);
    let _ = cluster.boot("e", "one", "h3");
    cluster.add_scheduler();
    cluster.add_scheduler();
    eventually("three voters", || {
        let status = cluster.ask(&["cluster", "status"])?;
        let members = status["members"].as_array().cloned().unwrap_or_default();
        let voters = members.iter().filter(|m| m["role"] == "voter").count();
        (voters == 3)
            .then_some(())
            .ok_or_else(|| format!("{status:#}"))
    });
}

/// Goal: of three members of which two are lost under load the third makes a new group with everything
/// that it had; the command refuses while another one answers.
#[test]
fn a_survivor_forms_a_new_group() {
    let mut cluster = start();
    let _ = cluster.boot("a", "one", "h1");
    let folder = tempfile::tempdir().expect("a folder");
    let load = Load::default();
    let addresses = urls(&cluster);
    let leader = cluster.leader();
    let (survivor, lost) = ((leader + 1) % 3, (leader + 2) % 3);
    thread::scope(|scope| {
        let stop = Stop(&load);
        scope.spawn(|| load.run(addresses));
        eventually("a load", || {
            (load.acknowledged() > 50).then_some(()).ok_or("none")
        });
        for member in [lost, leader] {
            cluster.schedulers[member].kill();
            fs::remove_dir_all(cluster.data_dir(member)).expect("a directory");
        }
        drop(stop);
    });
    let at = cluster.schedulers[survivor].address.clone();
    let flavors = |cluster: &Cluster, more: &[&str]| {
        let answer = cluster.berth_at(&at, &[&["flavor", "list"][..], more].concat());
        let listed = answer.json()?;
        let names = listed.as_array().map(Vec::len);
        names.ok_or_else(|| listed.to_string())
    };
    // Without a leader, from what it has.
    let had = eventually("flavors", || flavors(&cluster, &["--stale"]));

    let into = folder.path().join("new");
    let force = ["recover", "--force-new-group", "--into", &shown(&into)];
    let running = cluster.schedulers[survivor].answer(&cluster.programs, &force);
    assert_eq!(running.status, Some(1), "{running:#?}");
    helps(
        &running,
        "in use by another process",
        "directory-in-use",
        "docs/stops.md",
    );
    cluster.schedulers[survivor].kill();
    let inspect = cluster.schedulers[survivor].answer(&cluster.programs, &["recover", "--inspect"]);
    let inspected = inspect.with_status(0);
    for word in [
        "last entry",
        "state hash",
        "hosts        3",
        "VMs          1",
    ] {
        assert!(inspected.stdout.contains(word), "{inspected:#?}");
    }
    let recovered = cluster.schedulers[survivor].answer(&cluster.programs, &force);
    let recovered = recovered.with_status(0);
    assert!(
        recovered
            .stdout
            .contains("start a member of the old group again"),
        "{recovered:#?}"
    );
    let part = cluster.schedulers.swap_remove(survivor);
    cluster.schedulers.clear();
    cluster.schedulers.push(part);
    cluster.schedulers[0].set("--data-dir", &shown(&into));
    cluster.schedulers[0].start(&cluster.programs);
    let ended = await_end(&cluster);
    assert_eq!(ended["recovery"]["cause"], "quorum_lost", "{ended:#}");
    let has = flavors(&cluster, &[]).expect("flavors");
    println!(
        "{} acknowledged, the survivor had {had}, the new group has {has}",
        load.acknowledged()
    );
    assert!(has >= had, "{has} of {had}");
    let _ = cluster.pins_on("a", "h1");
    let _ = cluster.boot("b", "one", "h1");
}

/// Expects a command that cannot be carried out to say what is wrong, and what helps, with a code that a
/// document explains.
#[track_caller]
fn helps(refused: &Answer, words: &str, code: &str, document: &str) {
    assert_eq!(refused.status, Some(1), "{refused:#?}");
    assert!(refused.stderr.contains(words), "{words}: {refused:#?}");
    let hint = refused
        .stderr
        .lines()
        .find(|line| line.starts_with("hint: "));
    let hint = hint.unwrap_or_else(|| panic!("no hint: {refused:#?}"));
    let reason = format!("(code {code}, see {document})");
    assert!(hint.ends_with(&reason), "{hint}");
    let document = fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(document),
    )
    .expect("a document");
    assert!(document.contains(&format!("`{code}`")), "{code}");
}

/// Goal: of two restores into one directory at once one makes a member there, and the other one is refused and
/// takes nothing of it away.
#[test]
fn of_two_restores_into_one_directory_one_is_made() {
    let cluster = start();
    let folder = tempfile::tempdir().expect("a folder");
    let full = folder.path().join("full");
    let _ = back_up(&cluster, 0, &full, &[]);
    for round in 0..8 {
        let directory = folder.path().join(format!("new-{round}"));
        let restore = || {
            let mut command = cluster.programs.command("berth-scheduler");
            command.args(["--listen", "127.0.0.1:7100", "--data-dir"]);
            command.arg(&directory).arg("restore").arg(&full);
            Answer::of(command)
        };
        let answers = thread::scope(|scope| {
            let both = [scope.spawn(restore), scope.spawn(restore)];
            both.map(|one| one.join().expect("it ends"))
        });
        let made = answers.iter().filter(|answer| answer.status == Some(0));
        assert_eq!(made.count(), 1, "{answers:#?}");
        let mut inspect = cluster.programs.command("berth-scheduler");
        inspect.arg("--data-dir").arg(&directory);
        inspect.args(["recover", "--inspect"]);
        let inspected = Answer::of(inspect).with_status(0);
        assert!(
            inspected.stdout.contains("hosts        3"),
            "{inspected:#?}"
        );
    }
}

/// Goal: a member is not given up while another one of its cluster answers, and files and directories that
/// cannot serve are refused, with nothing written.
#[test]
fn what_cannot_be_restored_is_refused() {
    let mut cluster = start();
    let folder = tempfile::tempdir().expect("a folder");
    let full = folder.path().join("full");
    let made = back_up(&cluster, 0, &full, &[]);
    let follower = (cluster.leader() + 1) % 3;
    cluster.schedulers[follower].kill();
    let into = folder.path().join("new");
    let force = ["recover", "--force-new-group", "--into", &shown(&into)];
    let alive = cluster.schedulers[follower].answer(&cluster.programs, &force);
    let words = "of the same cluster answers";
    helps(&alive, words, "member-answers", "docs/restore.md");
    assert!(!into.exists(), "it made a directory, and removed it");
    let within = cluster.data_dir(follower).join("new").join("deep");
    let force = ["recover", "--force-new-group", "--into", &shown(&within)];
    let refused = cluster.schedulers[follower].answer(&cluster.programs, &force);
    helps(
        &refused,
        "is within",
        "within-old-directory",
        "docs/restore.md",
    );

    let program = |cluster: &mut Cluster, directory: &Path, more: &[&str]| {
        cluster.schedulers[follower].set("--data-dir", &shown(directory));
        cluster.schedulers[follower].answer(&cluster.programs, more)
    };
    let live = cluster.data_dir((follower + 1) % 3);
    let whole = fs::read(&full).expect("a file");
    let cut = folder.path().join("cut");
    fs::write(&cut, &whole[..whole.len() - 7]).expect("a file");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 4;
    let bad = folder.path().join("bad");
    fs::write(&bad, flipped).expect("a file");
    let foreign = folder.path().join("foreign");
    fs::write(&foreign, "no backup".repeat(100)).expect("a file");
    let foreign = shown(&foreign);
    let end = made["end_index"].as_u64().expect("an index");
    // Behind the last command the log may have entries that change nothing.
    let revision = made["revision"].as_u64().expect("a revision");
    let (beyond, before) = ((end + 1).to_string(), (revision - 1).to_string());
    let free = folder.path().join("free");
    let (full, cut, bad, free) = (shown(&full), shown(&cut), shown(&bad), free.as_path());
    for (more, words, code) in [
        (vec!["restore", &cut], "cut short", "BACKUP_CUT_SHORT"),
        (vec!["restore", &bad], "damaged", "BACKUP_DAMAGED"),
        (
            vec!["restore", "/nowhere"],
            "No such file",
            "FILE_NOT_FOUND",
        ),
        (vec!["restore", "/"], "Is a directory", "FILE_UNUSABLE"),
        (
            vec!["restore", "/dev/null"],
            "cut short",
            "BACKUP_CUT_SHORT",
        ),
        (vec!["restore", &foreign], "not a backup", "NOT_A_BACKUP"),
        (
            vec!["restore", &full, &full],
            "another one stands before it",
            "BACKUP_SECOND_FULL",
        ),
        (
            vec!["restore", &full, "--at", &beyond],
            "before index",
            "BACKUP_OUT_OF_RANGE",
        ),
        (
            vec!["restore", &full, "--at", &before],
            "after revision",
            "BACKUP_OUT_OF_RANGE",
        ),
    ] {
        let refused = program(&mut cluster, free, &more);
        helps(&refused, words, code, "docs/backup.md");
    }
    for (directory, more, words, code) in [
        (
            live.as_path(),
            vec!["restore", &full],
            "is not empty",
            "directory-occupied",
        ),
        (
            free,
            vec!["recover", "--inspect"],
            "holds no member",
            "no-member",
        ),
    ] {
        let refused = program(&mut cluster, directory, &more);
        helps(&refused, words, code, "docs/stops.md");
    }
    assert!(!free.exists(), "it was made, and is removed");
    // One that was there stays.
    fs::create_dir(free).expect("a directory");
    let refused = program(&mut cluster, free, &["restore", &cut]);
    helps(&refused, "cut short", "BACKUP_CUT_SHORT", "docs/backup.md");
    let left = fs::read_dir(free).expect("it is there").count();
    assert_eq!(left, 0, "nothing was written");
    for wrong in [
        vec!["restore"],
        vec!["recover"],
        vec!["recover", "--force-new-group"],
    ] {
        let refused = program(&mut cluster, free, &wrong);
        assert_eq!(refused.status, Some(2), "{refused:#?}");
    }
    // The cluster did not notice.
    let _ = cluster.boot("a", "one", "h1");
}

/// Returns the present time, as it is typed.
fn now() -> String {
    let now = Command::new("date").args(["-u", "+%FT%T.%NZ"]).output();
    let now = String::from_utf8(now.expect("a time").stdout).expect("text");
    now.trim().to_owned()
}

/// Goal: each moment between a full backup and the end of its increments can be restored, by its revision
/// and by its time; another one is refused, with nothing written. Method: three VMs, one before each file.
#[test]
fn a_moment_of_the_past_is_restored() {
    let mut cluster = start();
    let folder = tempfile::tempdir().expect("a folder");
    let files = ["full", "one", "two"].map(|name| folder.path().join(name));
    let (mut times, mut ends) = (vec![now()], Vec::new());
    for (number, vm) in ["a", "b", "c"].into_iter().enumerate() {
        let _ = cluster.boot(vm, "one", "h1");
        let since = match number {
            0 => Vec::new(),
            _ => vec!["--since", files[number - 1].to_str().expect("a path")],
        };
        let made = back_up(&cluster, 0, &files[number], &since);
        ends.push(made["end_index"].as_u64().expect("an index").to_string());
        times.push(now());
    }
    let later = now();
    let mut number = 0;
    let mut restore = |at: &str| {
        number += 1;
        let directory = folder.path().join(format!("restored-{number}"));
        cluster.schedulers[0].set("--data-dir", &shown(&directory));
        let files = files.iter().map(|file| file.to_str().expect("a path"));
        let words = ["restore"].into_iter().chain(files).chain(["--at", at]);
        let words: Vec<&str> = words.collect();
        let answer = cluster.schedulers[0].answer(&cluster.programs, &words);
        (answer, fs::read_dir(directory).map_or(0, Iterator::count))
    };
    for (at, vms) in [
        (&times[1], 1),
        (&times[2], 2),
        (&ends[0], 1),
        (&ends[1], 2),
        (&ends[2], 3),
    ] {
        let (answer, _) = restore(at);
        let answer = answer.with_status(0);
        let words = format!("3 hosts and {vms} VMs");
        assert!(answer.stdout.contains(&words), "{at}: {answer:#?}");
    }
    for (at, status, words) in [
        (&*times[0], 1, "later than"),
        (&*later, 1, "older than"),
        ("2026-11-27T18:42:31", 2, "with its offset"),
        ("yesterday", 2, "with its offset"),
    ] {
        let (refused, left) = restore(at);
        assert_eq!(refused.status, Some(status), "{refused:#?}");
        assert!(refused.stderr.contains(words), "{at}: {refused:#?}");
        assert_eq!(left, 0, "{at}: nothing was written");
    }
}

/// Goal: what was in progress when the schedulers were lost harms no guest: each is on one host afterwards,
/// its VM is there, nothing is in progress, and the conductor of the old cluster does nothing more. Method:
/// the state is from before a live migration, from its middle, and from before the VM of a boot; while the
/// transfer goes on the schedulers are killed, the new one is killed too while it recovers, and an agent.
#[test]
fn what_was_in_progress_is_settled() {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(1)
        .transfer_ms(6_000)
        .host(Host::new("h1"))
        .host(Host::new("h2"))
        .host(Host::new("h3"))
        .start();
    cluster.pinned_flavor("one", 1);
    let folder = tempfile::tempdir().expect("a folder");
    let _ = cluster.boot("a", "one", "h1");
    let _ = cluster.boot("b", "one", "h2");
    let early = folder.path().join("early");
    let _ = back_up(&cluster, 0, &early, &[]);
    let _ = cluster.boot("c", "one", "h3");
    let moving = ["a", "b"].map(|vm| cluster.begin(&["vm", "migrate", vm, "--host", "h3"]));
    for operation in &moving {
        cluster.reaches(operation, "LiveMigration", "Succeeded");
    }
    let middle = folder.path().join("middle");
    let _ = back_up(&cluster, 0, &middle, &[]);
    let _ = cluster.begin(&Cluster::create("d", "one"));
    for (name, backup) in [("one", &early), ("two", &middle)] {
        restore_while_moving(&mut cluster, backup, &folder.path().join(name));
        // What a transfer that ended half-way has prepared is removed after the recovery.
        let guests = eventually("each guest on one host", || {
            let guests = guests(&cluster);
            let is_once = ["a", "b", "c"].iter().all(|vm| guests[*vm].len() == 1);
            is_once
                .then_some(guests.clone())
                .ok_or_else(|| format!("{guests:?}"))
        });
        for vm in ["a", "b", "c"] {
            let hosts = &guests[vm];
            assert_eq!(hosts.len(), 1, "{vm}: {guests:?}");
            let (state, host) = state_of(&cluster, vm);
            assert_eq!(
                (&*state, host),
                ("Active", hosts[0].as_str().into()),
                "{vm}"
            );
            let _ = cluster.pins_on(vm, &hosts[0]);
        }
        for vm in cluster.json(&["vm", "list"]).as_array().expect("a list") {
            let passing = ["Building", "Migrating", "Deleting"];
            let state = vm["state"].as_str().expect("a state");
            assert!(!passing.contains(&state), "{vm:#}");
        }
        let operations = cluster.json(&["operation", "list"]);
        let mut operations = operations.as_array().expect("a list").iter();
        assert!(
            operations.all(|o| !o["outcome"].is_null()),
            "something goes on"
        );
    }
    // Each VM can still be moved.
    cluster.run(&["vm", "migrate", "c", "--host", "h1"]);
}

fn restore_while_moving(cluster: &mut Cluster, backup: &Path, directory: &Path) {
    lose_schedulers(cluster, directory);
    let restore = ["restore", &shown(backup)];
    let restored = cluster.schedulers[0].answer(&cluster.programs, &restore);
    let _ = restored.with_status(0);
    cluster.schedulers[0].start(&cluster.programs);
    eventually("the recovery to begin", || recovery(cluster));
    cluster.schedulers[0].kill();
    cluster.schedulers[0].start(&cluster.programs);
    cluster.agents[2].kill();
    cluster.agents[2].start(&cluster.programs);
    let ended = await_end(cluster);
    assert_eq!(ended["conflict_count"], 0, "{ended:#}");
}

/// Goal: a host that was added after the backup, and whose agent does not run while the cluster recovers,
/// loses nothing: what runs there is a VM again once it reports, though its VM is recorded as STOPPED
/// elsewhere; before that nothing is placed there.
#[test]
fn a_host_that_reports_after_the_recovery_keeps_its_guests() {
    let mut cluster = start();
    let folder = tempfile::tempdir().expect("a folder");
    let h3 = (cluster.agents.iter()).position(|a| a.name == "h3");
    let h3 = h3.expect("h3");
    cluster.agents[h3].kill();
    eventually("h3 to be fenced", || {
        let answer = cluster.berth(&["host", "fence", "h3", "--confirm-off"]);
        let is_done = answer.status == Some(0);
        is_done.then_some(()).ok_or(answer.stderr)
    });
    cluster.run(&["host", "remove", "h3"]);
    let _ = cluster.boot("a", "one", "h1");
    cluster.run(&["vm", "stop", "a"]);
    let full = folder.path().join("full");
    let leader = cluster.leader();
    let _ = back_up(&cluster, leader, &full, &[]);
    // What is lost with the schedulers.
    cluster.agents[h3].start(&cluster.programs);
    eventually("h3", || cluster.ask(&["host", "show", "h3"]));
    cluster.run(&["vm", "start", "a"]);
    cluster.run(&["vm", "migrate", "a", "--host", "h3"]);
    let created = cluster.boot("d", "one", "h3");
    let before = guests(&cluster);
    cluster.agents[h3].kill();

    let directory = folder.path().join("restored");
    lose_schedulers(&mut cluster, &directory);
    let restored = cluster.schedulers[0].answer(&cluster.programs, &["restore", &shown(&full)]);
    let _ = restored.with_status(0);
    cluster.schedulers[0].start(&cluster.programs);
    let _ = await_end(&cluster);
    assert_eq!(state_of(&cluster, "a"), ("Stopped".to_owned(), "h1".into()));
    cluster.agents[h3].start(&cluster.programs);
    eventually("the guests of h3 to have VMs", || {
        let states = [state_of(&cluster, "a"), {
            let shown = cluster.ask(&["vm", "show", "d"])?;
            let state = shown["vm"]["state"].as_str().unwrap_or_default();
            (state.to_owned(), shown["vm"]["host"].clone())
        }];
        let runs = |(state, host): &(String, Value)| state == "Active" && *host == "h3";
        (states.iter().all(runs))
            .then_some(())
            .ok_or_else(|| format!("{states:?}"))
    });
    assert_eq!(guests(&cluster), before, "none was stopped or started");
    assert_eq!(cluster.pins_on("d", "h3"), created);
    let _ = cluster.boot("e", "one", "h3");
    cluster.run(&["vm", "migrate", "a", "--host", "h1"]);
}

/// Goal: members of the old cluster that come back as a majority while the new one is down harm nothing:
/// no agent does what they say, and agents and conductors go back to the new one. Method: what the old
/// cluster states was made wrong by a migration since.
#[test]
fn members_of_before_that_come_back_are_not_followed() {
    let mut cluster = start_with_conductors(2);
    let folder = tempfile::tempdir().expect("a folder");
    let _ = cluster.boot("a", "one", "h1");
    let leader = cluster.leader();
    let full = folder.path().join("full");
    let _ = back_up(&cluster, leader, &full, &[]);
    let directory = folder.path().join("restored");
    for scheduler in &mut cluster.schedulers {
        scheduler.kill();
    }
    let mut old = cluster.schedulers.split_off(1);
    cluster.schedulers[0].set("--data-dir", &shown(&directory));
    let restored = cluster.schedulers[0].answer(&cluster.programs, &["restore", &shown(&full)]);
    let _ = restored.with_status(0);
    cluster.schedulers[0].start(&cluster.programs);
    let _ = await_end(&cluster);
    cluster.run(&["vm", "migrate", "a", "--host", "h2"]);
    let before = guests(&cluster);
    assert_eq!(before["a"], ["h2"]);
    for program in ["h1", "h2", "h3", "conductor-1"] {
        eventually(&format!("{program} to know the new cluster"), || {
            let file = cluster.learnt_dir(program).join("schedulers");
            let text = fs::read_to_string(file).map_err(|e| e.to_string())?;
            text.contains("era 1000000000000").then_some(()).ok_or(text)
        });
    }

    cluster.schedulers[0].kill();
    for member in &mut old {
        member.start(&cluster.programs);
    }
    let at = old[0].address.clone();
    let before_recovery = eventually("the old cluster to lead", || {
        let status = cluster.berth_at(&at, &["cluster", "status"]).json()?;
        (status["leader_id"].as_u64() > Some(0))
            .then_some(status["cluster_id"].clone())
            .ok_or_else(|| format!("{status:#}"))
    });
    // Longer than agents take to compare with what a scheduler expects.
    thread::sleep(Duration::from_secs(15));
    assert_eq!(
        guests(&cluster),
        before,
        "the old cluster had nothing stopped"
    );
    cluster.schedulers[0].start(&cluster.programs);
    one_cluster_is_shown(&cluster, &at, &before_recovery);
    other_clusters::commands_of_the_old_group_change_nothing(&cluster, &at);
    other_clusters::commands_are_of_the_new_group(&cluster, &at);
    other_clusters::programs_without_data_follow_the_new_group(&mut cluster, &at);
    other_clusters::a_conductor_of_the_old_group_is_passed_over(&mut cluster, &at);
    eventually("every host to be up again", || {
        let hosts = cluster.ask(&["host", "list"])?;
        let mut hosts_up = hosts.as_array().into_iter().flatten();
        (hosts_up.all(|host| host["host"]["liveness"] == "Up"))
            .then_some(())
            .ok_or_else(|| format!("{hosts:#}"))
    });
    eventually("a boot", || {
        let answer = cluster.berth(&Cluster::create("e", "one"));
        (answer.status == Some(0))
            .then_some(())
            .ok_or(answer.stderr)
    });
    cluster.run(&["vm", "migrate", "a", "--host", "h1"]);
    assert_eq!(guests(&cluster)["a"], ["h1"]);
}

/// Goal: a client that names members of the old group beside the new one is shown the new cluster, and warned.
fn one_cluster_is_shown(cluster: &Cluster, old: &str, before_recovery: &Value) {
    let new = cluster.schedulers[0].address.clone();
    let ask = |addresses: &str| {
        cluster
            .berth_at(addresses, &["cluster", "status"])
            .json()
            .unwrap_or_else(|seen| panic!("{seen}"))
    };
    let alone = eventually("the new cluster to lead", || {
        // It succeeds once there is a leader.
        cluster.berth_at(&new, &["cluster", "status"]).json()
    });
    assert_eq!(alone["other_clusters"], serde_json::json!([]));
    for addresses in [format!("{old},{new}"), format!("{new},{old}")] {
        let status = ask(&addresses);
        assert_eq!(status["cluster_id"], alone["cluster_id"], "{status:#}");
        let other = serde_json::json!([{
            "address": old, "cluster_id": before_recovery, "fewer_recoveries": true,
        }]);
        assert_eq!(status["other_clusters"], other, "{status:#}");
        let mut command = cluster.programs.command("berth");
        command.args(["--scheduler", &addresses, "cluster", "status"]);
        let shown = Answer::of(command).with_status(0);
        let warnings = shown
            .stderr
            .matches("warning: schedulers of several clusters");
        assert_eq!(warnings.count(), 1, "{shown:#?}");
        let named = before_recovery.as_str().expect("an id");
        assert!(shown.stderr.contains(named), "{shown:#?}");
    }
}
