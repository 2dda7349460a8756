//! Goal: memory and shared CPUs are given away up to their ratio and not beyond; lowering the ratio shows what is beyond it
//! and breaks nothing; balancing under load, with agents that die, leaves every invariant whole.
//!
//! Method: a whole Berth in this process, or real processes where something dies; the real command.

use berth_tests::processes::{Cluster, Host, Traffic, eventually, verdict};
use berth_tests::small::{Small, text};
use serde_json::Value;

use crate::PROGRAMS;

/// The status of `berth verify` where the answer is no.
const NO: i32 = 4;

/// Two hosts of 16 GiB, and guests of 4 GiB that share memory.
struct World(Small);

impl World {
    fn new() -> Self {
        let world = Small::with_hosts(PROGRAMS, 2);
        let size = ["--vcpus", "1", "--memory-mib", "4096"];
        world.done(&[&["flavor", "create", "quarter"][..], &size].concat());
        let size = ["--vcpus", "1", "--memory-mib", "64"];
        world.done(&[&["flavor", "create", "tiny"][..], &size].concat());
        Self(world)
    }

    fn create(&self, name: &str, flavor: &str) -> Vec<String> {
        let words = [
            "vm",
            "create",
            name,
            "--flavor",
            flavor,
            "--kernel",
            "vmlinuz",
            "--initrd",
            "initrd.gz",
        ];
        words.map(str::to_owned).into()
    }

    /// Boots guests until one is refused; returns how many came and the refusal.
    fn fill(&self, prefix: &str) -> (usize, Value) {
        self.fill_with(prefix, "quarter")
    }

    fn fill_with(&self, prefix: &str, flavor: &str) -> (usize, Value) {
        for number in 0..64 {
            let words = self.create(&format!("{prefix}{number}"), flavor);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let answer = self.0.berth(&words);
            if answer.status != Some(0) {
                let told: Value = serde_json::from_str(&answer.refused(1).stderr).unwrap();
                return (number, told["error"].clone());
            }
        }
        panic!("nobody is refused");
    }

    /// Returns what is told of each host's memory.
    fn memory(&self) -> Vec<Value> {
        let answer = self.0.berth(&["verify"]).with_status(NO);
        let told: Value = serde_json::from_str(&answer.stdout).expect("JSON");
        told["hosts"].as_array().unwrap().clone()
    }

    fn violations(&self) -> Vec<String> {
        let hosts = self.memory();
        hosts.iter().map(|host| text(&host["violation"])).collect()
    }

    fn on(&self, host: &str) -> Vec<String> {
        let vms = self.0.done(&["vm", "list", "--host", host]);
        let vms = vms.as_array().unwrap().iter();
        vms.map(|vm| text(&vm["name"])).collect()
    }
}

/// Goal: at ratio 1.5 two hosts of four take six guests each, and no seventh; at ratio 1 the same
/// guests are a hard violation, with some of them stopped a soft one, and with fewer none.
#[test]
fn memory_is_given_away_up_to_the_ratio_and_not_beyond() {
    let world = World::new();
    let policy = ["policy", "set", "memory.ratio=1.5"];
    world.0.done(&policy);
    let (booted, refused) = world.fill("a");
    assert_eq!(booted, 12, "{refused:#}");
    assert_eq!(text(&refused["reason"]), "NO_VALID_HOST", "{refused:#}");
    for host in world.memory() {
        assert_eq!(host["ratio"], 1.5, "{host:#}");
        assert_eq!(host["available_mib"], 16_384, "{host:#}");
        assert_eq!(host["used_mib"], 24_576, "{host:#}");
        assert_eq!(host["violation"], "none", "{host:#}");
    }

    world.0.done(&["policy", "set", "memory.ratio=1"]);
    assert_eq!(world.violations(), ["hard", "hard"]);
    for host in world.memory() {
        assert!(text(&host["explanation"]).contains("24576"), "{host:#}");
    }
    let vms = world.0.done(&["vm", "list"]);
    let mut vms = vms.as_array().unwrap().iter();
    assert!(vms.all(|vm| vm["state"] == "Active"), "nothing is broken");
    let (more, _) = world.fill("b");
    assert_eq!(more, 0, "nothing is placed beyond the ratio");

    let hosts = world.0.done(&["host", "list"]);
    let first = text(&hosts[0]["host"]["name"]);
    let guests = world.on(&first);
    for vm in &guests[..2] {
        world.0.done(&["vm", "stop", vm]);
    }
    assert_eq!(world.violations(), ["soft", "hard"]);
    for vm in &guests[..2] {
        world.0.done(&["vm", "delete", vm]);
    }
    assert_eq!(world.violations(), ["none", "hard"]);
}

/// Goal: a group and a host have terms of their own, and what they have is shown with where it is
/// from.
#[test]
fn groups_and_hosts_have_terms_of_their_own() {
    let world = World::new();
    let hosts = world.0.done(&["host", "list"]);
    let names: Vec<String> = (0..2).map(|at| text(&hosts[at]["host"]["name"])).collect();
    world.0.done(&["aggregate", "create", "rack"]);
    world.0.done(&["aggregate", "add-host", "rack", &names[0]]);
    world
        .0
        .done(&["policy", "set", "memory.ratio=2", "--group", "rack"]);
    world.0.done(&[
        "policy",
        "set",
        "memory.mem_node_mib=4096",
        "--host",
        &names[1],
    ]);
    let (booted, _) = world.fill("a");
    assert_eq!(booted, 8 + 3, "twice four, and a quarter less than four");
    let memory = world.memory();
    assert_eq!(memory[0]["ratio"], 2.0, "{memory:#?}");
    assert_eq!(memory[1]["available_mib"], 12_288, "{memory:#?}");
}

/// Goal: shared CPUs are given away up to the ratio of the policy, exactly; a higher one lets more in, a
/// lower one stops nothing and is seen, and a host has settings of its own. Method: two hosts of two
/// shared CPUs.
#[test]
fn shared_cpus_are_given_away_up_to_the_ratio_and_not_beyond() {
    let world = World::new();
    let cpus = || {
        let hosts = world.0.done(&["host", "list"]);
        let hosts = hosts.as_array().cloned().unwrap_or_default();
        hosts
            .into_iter()
            .map(|host| host["cpu"].clone())
            .collect::<Vec<_>>()
    };
    let default = &cpus()[0];
    assert!(
        default["ratio"] == 4.0 && default["capacity"] == 8,
        "{default:#}"
    );
    assert_eq!(text(&default["ratio_from"]), "default");
    world.0.done(&["policy", "set", "cpu.ratio=1.5"]);
    let (booted, refused) = world.fill_with("a", "tiny");
    assert_eq!(booted, 6, "{refused:#}");
    assert_eq!(text(&refused["reason"]), "NO_VALID_HOST", "{refused:#}");
    world.0.done(&["policy", "set", "cpu.ratio=2"]);
    assert_eq!(world.fill_with("b", "tiny").0, 2);

    world.0.done(&["policy", "set", "cpu.ratio=0.5"]);
    assert_eq!(world.fill_with("c", "tiny").0, 0);
    let vms = world.0.done(&["vm", "list"]);
    let mut vms = vms.as_array().unwrap().iter();
    assert!(vms.all(|vm| vm["state"] == "Active"), "nothing is stopped");
    for cpu in cpus() {
        assert!(cpu["used"] == 4 && cpu["capacity"] == 1, "{cpu:#}");
        assert_eq!(text(&cpu["ratio_from"]), "cluster", "{cpu:#}");
    }
    for host in world.memory() {
        let warnings = host["warnings"].to_string();
        assert!(warnings.contains("guests have 4 shared vCPUs"), "{host:#}");
    }

    let hosts = world.0.done(&["host", "list"]);
    let first = text(&hosts[0]["host"]["name"]);
    let own = ["cpu.ratio=8", "cpu.reserved=1", "--host", &first];
    world.0.done(&[&["policy", "set"][..], &own].concat());
    assert_eq!(
        world.fill_with("d", "tiny").0,
        4,
        "eight on one CPU, four are there"
    );
    let shown = world.0.done(&["host", "show", &first]);
    let cpu = &shown["cpu"];
    assert!(cpu["reserved"] == 1 && cpu["total"] == 2, "{cpu:#}");
    assert_eq!(text(&cpu["reserved_from"]), "host", "{cpu:#}");
    let policy = world.0.done(&["policy", "show"]);
    assert_eq!(
        text(&policy["hosts"][&first]["cpu.ratio"]),
        "8.0",
        "{policy:#}"
    );
}

/// Goal: while users boot, move and delete, and an agent dies and comes back, balancing leaves every
/// claim and every guest in order, and ends where there is nothing to gain.
#[test]
fn balancing_under_load_leaves_everything_in_order() {
    let mut builder = Cluster::builder(PROGRAMS).schedulers(1).conductors(2);
    for name in ["h1", "h2", "h3", "h4"] {
        builder = builder.host(Host::new(name));
    }
    let mut cluster = builder.start();
    cluster.wait();
    cluster.pinned_flavor("pinned", 1);
    for vm in ["a", "b", "c", "d"] {
        let _ = cluster.boot(vm, "pinned", "h1");
    }
    let traffic = Traffic::start(&cluster, "pinned");
    let balance = ["balance", "--execute", "--yes"];
    // What it plans may be void by the time it is carried out; then it says so and stops.
    let run = |cluster: &Cluster| {
        let answer = cluster.berth(&balance);
        assert!(matches!(answer.status, Some(0 | 1)), "{}", answer.stderr);
    };
    run(&cluster);
    cluster.agents[3].kill();
    run(&cluster);
    let programs = &cluster.programs;
    cluster.agents[3].start(programs);
    run(&cluster);
    traffic.rounds(1);
    let _ = traffic.finish();
    eventually("every host is heard of", || {
        let hosts = cluster.ask(&["host", "list"])?;
        let mut hosts = hosts.as_array().cloned().unwrap_or_default().into_iter();
        let up = hosts.all(|host| host["host"]["liveness"] == "Up");
        up.then_some(()).ok_or("one is not".to_owned())
    });
    eventually("nothing is under way", || {
        let running = cluster.ask(&["operation", "list", "--running"])?;
        let none = running.as_array().is_some_and(Vec::is_empty);
        none.then_some(()).ok_or(format!("{running}"))
    });
    cluster.run(&balance);
    let again = cluster.json(&["balance"]);
    assert_eq!(again["moves"].as_array().unwrap().len(), 0, "{again:#}");
    verdict::holds(&cluster);
    verdict::runs_what_is_claimed(&cluster);
}
