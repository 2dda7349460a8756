//! The main job on real machines: three schedulers, a conductor and two agents as processes,
//! and guests that QEMU runs on two hypervisors.
//!
//! Goal: a pinned guest gets other CPUs, claimed before it leaves, and nothing else changes for
//! it; what does not fit is refused before anything moves; the leader's death does not matter.
//! Method: commands are typed as a user types them, and what comes of it is read from the
//! kernel, libvirt and the guests' consoles. The scenarios follow each other on one lab, since
//! booting is what takes the time.
//!
//! Memory is not looked at: all machines of a lab share the one kernel's nodes.

mod browser;
mod cluster;
mod disks;
mod recovery;
mod restarts;
mod transfers;
mod verdict;
mod volumes;

use berth_domain::operation::{Mark, Step};
use berth_tests::processes::Terminal;
use serde_json::json;

use cluster::{PATIENCE, System, eventually};
use verdict::{domains, hosts_agree, runs_on};

pub(crate) fn guests_move_between_real_hosts() {
    let mut system = System::start();
    make_flavors(&system);
    volumes::ask_for(&system);
    a_pinned_guest_gets_another_cpu(&system);
    browser::follows_a_migration(&system);
    transfers::a_user_stops_a_transfer(&system);
    transfers::a_guest_arrives_by_post_copy(&system);
    transfers::the_destinations_libvirtd_dies(&mut system);
    transfers::the_destinations_libvirtd_dies_while_it_starts(&mut system);
    restarts::guests_are_started_again(&system);
    what_does_not_fit_is_refused(&system);
    a_migration_outlives_the_leader(&mut system);
    a_guest_takes_disk_and_network_along(&system);
    volumes::they_outlive_their_guests(&system);
    recovery::a_lost_cluster_is_restored(&mut system);
    an_old_agent_gets_no_numa_guest(&mut system);
    system.print_phases();
}

/// A lab of its own: its hosts keep the disks of their guests to themselves.
pub(crate) fn guests_that_are_off_take_their_disks_along() {
    let system = System::start_apart();
    make_flavors(&system);
    disks::they_travel_and_are_kept_until_it_is_confirmed(&system);
    disks::a_snapshot_boots_on_another_host(&system);
}

fn make_flavors(system: &System) {
    let size = ["--vcpus", "1", "--memory-mib", "128"];
    let dedicated = ["--spec", "hw:cpu_policy=dedicated"];
    let create = |name: &str, more: &[&str]| {
        let head = ["flavor", "create", name];
        system.json(&[&head[..], &size, &dedicated, more].concat());
    };
    create("pinned", &[]);
    create("pinned-disk", &["--disk-gib", "1"]);
}

/// Afterwards: `host-a` empty; on `host-b` both `b` and `a`.
fn a_pinned_guest_gets_another_cpu(system: &System) {
    system.boot("a", "host-a");
    system.boot("b", "host-b");
    let a = runs_on(system, "a", "host-a");
    let b = runs_on(system, "b", "host-b");
    assert_eq!(a, b, "a can keep its CPU: there is nothing to show");
    hosts_agree(system);

    system.json(&["vm", "migrate", "a", "--host", "host-b"]);
    let moved = runs_on(system, "a", "host-b");
    assert_ne!(moved, b, "a and b are on one CPU");
    assert_eq!(runs_on(system, "b", "host-b"), b);
    assert!(system.claims("host-a").is_empty());
    hosts_agree(system);
    let [migration] = &cluster::list(&system.json(&["migration", "list", "--vm", "a"]))[..] else {
        panic!("not one migration");
    };
    assert_eq!(migration["state"], "Completed", "{migration:#}");
}

/// Afterwards: `c` on `host-a` besides.
fn what_does_not_fit_is_refused(system: &System) {
    system.boot("c", "host-a");
    let before = system.json(&["vm", "show", "c"]);
    let refused = system.berth(&["vm", "migrate", "c", "--host", "host-b"]);
    assert_eq!(refused.status, Some(1), "{refused:?}");
    for words in ["host-b", "NUMA node 0: 0 free dedicated CPUs", "needs 1"] {
        assert!(refused.stderr.contains(words), "{words:?}: {refused:?}");
    }
    assert_eq!(system.json(&["vm", "show", "c"]), before);
    assert_eq!(system.json(&["migration", "list", "--vm", "c"]), json!([]));
    runs_on(system, "c", "host-a");
    hosts_agree(system);
}

/// Afterwards: on each host one guest, `a` and `b`, on the same CPU.
fn a_migration_outlives_the_leader(system: &mut System) {
    system.json(&["vm", "delete", "c"]);
    assert!(domains(system, "host-a").is_empty());
    let before = runs_on(system, "a", "host-b");
    let migrate = ["vm", "migrate", "a", "--host", "host-a", "--no-wait"];
    let started = system.json(&migrate);
    let operation = started["operation"].as_str().expect("an id").to_owned();
    eventually("the transfer", || {
        let shown = system.operation(&operation);
        let begun = |entry: &berth_domain::operation::Entry| {
            entry.step == Step::LiveMigration && entry.mark == Mark::Started
        };
        assert_eq!(
            shown.outcome, None,
            "it is over before the leader is killed"
        );
        let begun = shown.log.iter().any(begun);
        begun.then_some(()).ok_or_else(|| format!("{shown:?}"))
    });
    let leader = system.kill_leader();
    assert!(
        system.machine("host-b").vcpu_affinity("a").is_ok(),
        "a has left before the leader was killed"
    );
    system.json(&["operation", "wait", &operation]);
    let after = runs_on(system, "a", "host-a");
    assert_ne!(after, before, "the lowest free CPU is another");
    assert_eq!(domains(system, "host-b").len(), 1);
    hosts_agree(system);

    system.start_scheduler(leader, &[]);
    system.schedulers_agree();
}

/// Afterwards: as before, and `d` on `host-b`.
fn a_guest_takes_disk_and_network_along(system: &System) {
    let far = system.machine("control").address();
    let reach = format!("reach {far}");
    let head = ["vm", "create", "d", "--flavor", "pinned-disk"];
    let place = ["--host", "host-a", "--disk", "disk.qcow2:1"];
    let nic = ["--nic", "br0=52:54:00:00:07:07"];
    system.json(&[&head[..], &place, &nic].concat());
    let console = system.console("d");
    console.wait_for("disk vda", PATIENCE).unwrap();
    console
        .wait_for("nic up 52:54:00:00:07:07 10.0.7.7", PATIENCE)
        .unwrap();
    console.wait_for_count_above(2, PATIENCE).unwrap();
    runs_on(system, "d", "host-a");
    assert_eq!(system.ask_guest("d", "host-a", "store berth"), "stored");
    assert_eq!(system.ask_guest("d", "host-a", &reach), "reached");
    shows_its_console(system);

    let mut terminal = system.terminal("vm console d --interactive");
    asks_on(&mut terminal, "ping", "pong");
    system.json(&["vm", "migrate", "d", "--host", "host-b"]);
    runs_on(system, "d", "host-b");
    // The session came along. It holds the guest's line as long as it lasts.
    terminal.until("[berth: the guest is on host-b now]");
    asks_on(&mut terminal, "recall", "berth");
    terminal.keys("\u{1d}q");
    terminal.ends(0);
    assert_eq!(system.ask_guest("d", "host-b", "ping"), "pong");
    assert_eq!(system.ask_guest("d", "host-b", "recall"), "berth");
    assert_eq!(system.ask_guest("d", "host-b", &reach), "reached");
    shows_its_console(system);
    hosts_agree(system);
}

/// Types a question on the guest's console, and waits for its answer.
#[track_caller]
fn asks_on(terminal: &mut Terminal, question: &str, answer: &str) {
    terminal.keys(&format!("{question}\r"));
    terminal.until(&format!("answer to {question}: {answer}"));
}

/// The command shows what the guest says, wherever it is.
fn shows_its_console(system: &System) {
    let count = system.console("d").count().expect("it counts");
    let shown = system.berth(&["vm", "console", "d"]);
    assert_eq!(shown.status, Some(0), "{shown:?}");
    let line = format!("count {count}\r\n");
    assert!(shown.stdout.contains(&line), "no {line:?}: {shown:?}");
}

/// `host-b` has no room for `a` beside `b` and `d`: `b` makes it.
fn an_old_agent_gets_no_numa_guest(system: &mut System) {
    system.json(&["vm", "delete", "b"]);
    system.kill_agent("host-b");
    system.start_agent("host-b", &["--service-version", "1"]);
    eventually("the old agent", || {
        let shown = system.ask(&["host", "show", "host-b"])?;
        let version = &shown["host"]["report"]["service_version"];
        (version == 1)
            .then_some(())
            .ok_or_else(|| version.to_string())
    });
    let look = || {
        let migrations = system.json(&["migration", "list", "--vm", "a"]);
        (system.json(&["vm", "show", "a"]), migrations)
    };
    let before = look();
    let refused = system.berth(&["vm", "migrate", "a", "--host", "host-b"]);
    assert_eq!(refused.status, Some(1), "{refused:?}");
    assert!(
        refused.stderr.contains("SERVICE_VERSION_TOO_OLD"),
        "{refused:?}"
    );
    assert_eq!(look(), before);
    runs_on(system, "a", "host-a");
    runs_on(system, "d", "host-b");
    hosts_agree(system);
}
