//! Transfers that do not simply arrive: stopped by a user, made to end by post-copy, cut off by the
//! death of the destination's libvirtd. Whatever happens, the guest runs on one host.
//!
//! All of them leave `a` and `b` on `host-b`, and `host-a` empty, as they find them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use berth_domain::migration::{Migration, State};
use berth_domain::operation::Operation;
use serde_json::Value;

use super::cluster::{PATIENCE, System, eventually, parse};
use super::verdict::{domains, hosts_agree, is_sending, runs_on};

/// A migration of `a` to `host-a` that takes many seconds, under way.
pub(super) struct Slow {
    migration: String,
    operation: String,
}

pub(super) fn begin(system: &System, more: &[&str]) -> Slow {
    let head = ["vm", "migrate", "a", "--host", "host-a", "--no-wait"];
    let slowly = ["--bandwidth-mib-s", "2"];
    let started = system.json(&[&head[..], &slowly, more].concat());
    let operation = started["operation"].as_str().expect("an id").to_owned();
    let all: Vec<Migration> = parse(system.json(&["migration", "list", "--vm", "a"]));
    let migration = all.last().expect("the one that was begun").id.to_string();
    let slow = Slow {
        migration,
        operation,
    };
    eventually("the transfer", || {
        let shown = slow.show(system);
        assert!(!shown.state.is_ended(), "it is over already: {shown:?}");
        (shown.state == State::Running)
            .then_some(())
            .ok_or_else(|| format!("{shown:?}"))
    });
    slow
}

impl Slow {
    fn show(&self, system: &System) -> Migration {
        parse(system.json(&["migration", "show", &self.migration]))
    }

    fn asked(&self, system: &System, verb: &str) -> Operation {
        parse(system.json(&["migration", verb, &self.migration]))
    }

    /// Waits for the end, whatever it is.
    pub(super) fn end(&self, system: &System) -> Migration {
        let _: Result<Value, String> = system.ask(&["operation", "wait", &self.operation]);
        self.show(system)
    }
}

/// What is wished for is wished for twice, and through any conductor.
pub(crate) fn a_user_stops_a_transfer(system: &System) {
    let before = runs_on(system, "a", "host-b");
    let slow = begin(system, &[]);
    assert!(slow.asked(system, "abort").cancelled);
    assert!(slow.asked(system, "abort").cancelled);
    let ended = slow.end(system);
    assert_eq!(ended.state, State::Failed);
    let why = ended.error.expect("it says why").message;
    assert!(why.contains("stopped on request"), "{why}");
    assert_eq!(runs_on(system, "a", "host-b"), before);
    assert!(domains(system, "host-a").is_empty());
    assert!(system.claims("host-a").is_empty());
    hosts_agree(system);
    // Too late to change anything.
    assert!(slow.asked(system, "force-complete").is_done());
}

pub(crate) fn a_guest_arrives_by_post_copy(system: &System) {
    let slow = begin(system, &["--post-copy"]);
    assert!(slow.show(system).transfer.post_copy);
    slow.asked(system, "force-complete");
    let ended = slow.end(system);
    assert_eq!(ended.state, State::Completed, "{ended:?}");
    runs_on(system, "a", "host-a");
    assert!(system.claims("host-b").len() == 1);
    hosts_agree(system);
    system.json(&["vm", "migrate", "a", "--host", "host-b"]);
    runs_on(system, "a", "host-b");
    let refused = system.berth(&["vm", "migrate", "a", "--timeout-action", "post-copy"]);
    assert!(
        refused.stderr.contains("needs transfer.post_copy = true"),
        "{refused:?}"
    );
}

/// A libvirtd that is killed while it starts the arriving guest, at any moment of that, leaves nothing
/// that would keep the migration from being settled.
pub(crate) fn the_destinations_libvirtd_dies_while_it_starts(system: &mut System) {
    let before = runs_on(system, "a", "host-b");
    for after_ms in [0, 60, 130, 250] {
        let known = processes_of_a();
        let started = system.json(&["vm", "migrate", "a", "--host", "host-a", "--no-wait"]);
        let operation = started["operation"].as_str().expect("an id");
        let deadline = Instant::now() + PATIENCE;
        while processes_of_a() == known {
            assert!(Instant::now() < deadline, "no process of a second guest");
        }
        std::thread::sleep(Duration::from_millis(after_ms));
        system.machine_mut("host-a").kill_libvirtd().unwrap();
        system.machine_mut("host-a").restart_libvirtd().unwrap();
        let _: Result<Value, String> = system.ask(&["operation", "wait", operation]);
        assert_eq!(runs_on(system, "a", "host-b"), before, "{after_ms} ms");
        assert!(domains(system, "host-a").is_empty());
        assert!(system.claims("host-a").is_empty());
    }
    hosts_agree(system);
}

/// Returns the QEMU processes of `a`, on whichever host.
fn processes_of_a() -> BTreeSet<u32> {
    let entries = std::fs::read_dir("/proc").expect("it is mounted");
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        line.contains("qemu-system") && line.contains("guest=a,")
    })
    .collect()
}

/// While the destination's hypervisor cannot be asked it is not known what it has of the guest; the
/// guest runs meanwhile, and then it is known that it stayed.
pub(crate) fn the_destinations_libvirtd_dies(system: &mut System) {
    let before = runs_on(system, "a", "host-b");
    let slow = begin(system, &[]);
    // What follows when it is killed earlier is another case.
    eventually("memory that is sent", || is_sending(system, "a", "host-b"));
    system.machine_mut("host-a").kill_libvirtd().unwrap();
    let console = system.console("a");
    let count = console.count().unwrap();
    console.wait_for_count_above(count + 2, PATIENCE).unwrap();
    eventually("the doubt", || {
        let shown = slow.show(system);
        assert!(!shown.state.is_ended(), "nobody can know that: {shown:?}");
        (shown.state == State::Unsettled)
            .then_some(())
            .ok_or_else(|| format!("{shown:?}"))
    });
    system.machine_mut("host-a").restart_libvirtd().unwrap();
    let ended = slow.end(system);
    assert_eq!(ended.state, State::Failed, "{ended:?}");
    assert_eq!(runs_on(system, "a", "host-b"), before);
    assert!(domains(system, "host-a").is_empty());
    assert!(system.claims("host-a").is_empty());
    hosts_agree(system);
}
