//! `berth watch` over a whole cluster: what it tells is what there is, whoever dies meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use berth_tests::processes::{Cluster, Host, Process, eventually, verdict};
use serde_json::Value;

use crate::PROGRAMS;

/// What a program knows that follows the lines of a watch.
#[derive(Default)]
struct Replayed {
    records: BTreeMap<(String, String), Value>,
    revision: u64,
    lines: usize,
    restarts: usize,
}

impl Replayed {
    fn of(text: &str) -> Self {
        let mut replayed = Self::default();
        let mut changes = BTreeSet::new();
        // The last line may be half written.
        for line in text.split_inclusive('\n').filter(|l| l.ends_with('\n')) {
            // What is told to people stands beside it in the same file.
            let Ok(line) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            replayed.lines += 1;
            let revision = line["revision"].as_u64().expect("a revision");
            let part = |part: &str| line[part].as_str().unwrap_or_default().to_owned();
            let key = (part("kind"), part("name"));
            let event = part("event");
            if event != "is" {
                assert!(revision >= replayed.revision, "back in time: {line}");
                replayed.revision = revision;
            }
            match event.as_str() {
                "is" => drop(replayed.records.insert(key, line["record"].clone())),
                "put" | "deleted" => {
                    let is_first = changes.insert((revision, key.clone()));
                    assert!(is_first, "told twice: {line}");
                    if event == "put" {
                        replayed.records.insert(key, line["record"].clone());
                    } else {
                        assert!(replayed.records.remove(&key).is_some(), "{line}");
                    }
                }
                "in_step" | "progress" => {}
                "restart" => {
                    replayed.restarts += 1;
                    replayed.records.clear();
                    replayed.revision = 0;
                }
                other => panic!("{other} in {line}"),
            }
        }
        replayed
    }

    fn of_kind(&self, kind: &str) -> Vec<&Value> {
        let records = self.records.iter();
        let records = records.filter(|((of, _), _)| of == kind);
        records.map(|(_, record)| record).collect()
    }
}

fn sorted(list: &Value) -> Vec<&Value> {
    let mut list: Vec<&Value> = list.as_array().expect("a list").iter().collect();
    let name = |value: &Value| {
        let id = value.get("id").or_else(|| value.get("name"));
        id.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    list.sort_by_key(|value| name(value));
    list
}

/// Goal: one watch tells everything that happens to VMs, migrations and operations, while each
/// member of the scheduler is killed in turn, with nothing left out or twice. Method: guests are
/// booted, moved and deleted; the lines are replayed and compared with the lists.
#[test]
fn a_watch_follows_the_cluster_over_the_death_of_each_member() {
    let mut cluster = Cluster::builder(PROGRAMS)
        .host(Host::new("h1"))
        .host(Host::new("h2"))
        .start();
    cluster.pinned_flavor("pinned", 1);
    let _ = cluster.boot("a", "pinned", "h1");
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("watch");
    let mut command = cluster.programs.command("berth");
    command.args(["--output", "json", "--scheduler", &cluster.addresses()]);
    command.args(["watch", "vms", "migrations", "operations"]);
    let watch = Process::start(command, &log);
    eventually("the beginning", || {
        let told = Replayed::of(&watch.log());
        (told.lines > 1).then_some(()).ok_or(watch.log())
    });
    for round in 0..3 {
        let vm = format!("vm-{round}");
        cluster.run(&Cluster::create(&vm, "pinned"));
        cluster.schedulers[round].kill();
        let host = ["h2", "h1"][round % 2];
        cluster.run(&["vm", "migrate", "a", "--host", host]);
        if round != 1 {
            cluster.run(&["vm", "delete", &vm]);
        }
        cluster.schedulers[round].start(&cluster.programs);
        cluster.wait();
    }
    let lists = ["vm", "migration", "operation"].map(|kind| {
        let mut list = cluster.json(&[kind, "list"]);
        // What is being done to a VM is told by its operation, not kept with it.
        for record in list.as_array_mut().into_iter().flatten() {
            record.as_object_mut().map(|record| record.remove("task"));
        }
        (kind, list)
    });
    let replayed = eventually("all that happened", || {
        let replayed = Replayed::of(&watch.log());
        let differs = lists
            .iter()
            .find(|(kind, list)| replayed.of_kind(kind) != sorted(list));
        match differs {
            None => Ok(replayed),
            Some((kind, list)) => Err(format!("{kind}: {list:#}\n{}", watch.log())),
        }
    });
    assert_eq!(replayed.restarts, 0, "all of it was kept");
    assert_eq!(replayed.of_kind("vm").len(), 2);
    assert_eq!(replayed.of_kind("migration").len(), 3);
    verdict::holds(&cluster);
}

/// Goal: a watch outlives a time without schedulers. Method: all members are killed, and started again
/// once each command that watches has noticed; it shows what happens then.
#[test]
fn watches_outlive_a_time_without_schedulers() {
    let mut cluster = Cluster::builder(PROGRAMS).host(Host::new("h1")).start();
    cluster.pinned_flavor("pinned", 1);
    let _ = cluster.boot("a", "pinned", "h1");
    let folder = tempfile::tempdir().expect("a folder");
    let watches = [
        (&["watch", "vms"][..], "a "),
        (&["provider", "watch"], "h1"),
    ];
    let watches = watches.map(|(words, first)| {
        let mut command = cluster.programs.command("berth");
        command.args(["--scheduler", &cluster.addresses()]);
        command.args(words);
        let watch = Process::start(command, &folder.path().join(words.join("-")));
        has(&watch, first);
        watch
    });
    for member in &mut cluster.schedulers {
        member.kill();
    }
    for watch in &watches {
        has(watch, "continuing at another scheduler");
    }
    for member in &mut cluster.schedulers {
        member.start(&cluster.programs);
    }
    cluster.wait();
    let _ = cluster.boot("later", "pinned", "h1");
    cluster.run(&["provider", "create", "later"]);
    for watch in &watches {
        has(watch, "later");
    }
}

fn has(watch: &Process, words: &str) {
    eventually("words of a watch", || {
        let log = watch.log();
        log.contains(words).then_some(()).ok_or(log)
    });
}

/// Goal: people see what happens on lines of their own, from a revision on, and only what they
/// asked for; a revision that never was is refused.
#[test]
fn people_read_what_happens() {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .host(Host::new("h1"))
        .start();
    cluster.pinned_flavor("pinned", 1);
    let folder = tempfile::tempdir().expect("a folder");
    let start = |name: &str, arguments: &[&str]| {
        let mut command = cluster.programs.command("berth");
        command.args(["--scheduler", &cluster.addresses(), "watch"]);
        command.args(arguments);
        Process::start(command, &folder.path().join(name))
    };
    let all = start("all", &["vms", "hosts"]);
    let begun = eventually("the beginning", || {
        let text = all.log();
        let line = text.lines().find(|line| line.starts_with("in step"));
        let revision = line.and_then(|line| line.rsplit(' ').next());
        revision.map(str::to_owned).ok_or(text)
    });
    assert!(
        all.log().contains("host       is       h1  UP"),
        "{}",
        all.log()
    );
    let _ = cluster.boot("a", "pinned", "h1");
    cluster.run(&["vm", "delete", "a"]);
    let story = |text: &str| -> Vec<String> {
        let vm = text.lines().filter(|line| line.contains("  vm  "));
        let words = vm.map(|line| line.split_whitespace().skip(1));
        words
            .map(|words| words.collect::<Vec<_>>().join(" "))
            .collect()
    };
    let expected = [
        "vm new a BUILDING on h1",
        "vm changed a ACTIVE on h1",
        "vm changed a DELETING on h1",
        "vm gone a",
    ];
    eventually("the story", || {
        let seen = story(&all.log());
        (seen == expected).then_some(()).ok_or(all.log())
    });
    let since = start("since", &["--name", "vms/a", "--since", &begun]);
    eventually("the story again", || {
        let seen = story(&since.log());
        // Who begins in the middle cannot know what is new.
        let same = seen.len() == 4 && seen[0] == "vm changed a BUILDING on h1";
        (same && seen[1..] == expected[1..])
            .then_some(())
            .ok_or(since.log())
    });
    let _ = cluster
        .berth(&["watch", "--since", "99999999"])
        .with_status(1)
        .saying(&["REVISION_NOT_REACHED", "\"hint\":\""]);
    let _ = cluster
        .berth(&["watch", "vms", "--name", "hosts/h1"])
        .with_status(1)
        .saying(&["names[0]"]);
}
