//! A host with libvirt and a watchdog: when nobody hears of it, its guests are stopped or it is reset,
//! and only then they are started elsewhere.
//!
//! Goal: the machine is reset when its agent is killed, and when its hypervisor hangs; it is not while
//! the agent is heard, has stopped its guests, or was stopped in good order. Method: two emulated
//! machines with agents, libvirt and guests; scheduler and conductor are processes of this machine,
//! and each agent reaches them through a gate of its own. The resets are those that QEMU tells.
//!
//! Nothing is measured by this machine's clock: what must not happen for some time is looked for in
//! the time of the emulated machine, by which its watchdog runs as well.

use std::path::Path;
use std::time::{Duration, Instant};

use berth_tests::lab::{Watched, WatchedDisk};
use berth_tests::processes::{Cluster, Gate};
use serde_json::Value;

use crate::PROGRAMS;

/// After how long the watchdogs run out.
const TIMEOUT_S: u32 = 10;
/// Until its last feeding, and a little: if it is not reset in that time of its own, it is not at all.
const LONGER_S: f64 = TIMEOUT_S as f64 + 3.0;

/// After how long agents stop their guests, and what they promise with such a watchdog.
const LIMIT: &str = "host.self_fence_ms=5000";
const PROMISED_MS: u64 = 5_000 + 5_000 + 3 * 10_000 + 2_000;

/// How long anything may take: two emulators are between this and the processor.
const PATIENCE: Duration = Duration::from_secs(240);
const GLANCE: Duration = Duration::from_millis(100);

/// What an agent says when it does not feed the watchdog any more.
const STARVED: &str = "the watchdog is not fed any more";
/// What it says when it stops, and the machine will be reset for it.
const RUNS_ON: &str = "this machine is RESET within 10 s";
/// What a machine says when it is up.
const UP: &str = "watched: ready";

/// A host in an emulated machine.
struct Site {
    name: &'static str,
    machine: Watched,
    gate: Gate,
}

impl Site {
    fn start(name: &'static str, disk: &WatchedDisk, cluster: &Cluster) -> Self {
        let gate = Gate::to(&cluster.schedulers[0].address);
        let machine = disk.start(name, TIMEOUT_S, gate.address().port()).unwrap();
        Self {
            name,
            machine,
            gate,
        }
    }

    /// Starts the agent, once the machine has come up so often.
    fn start_agent(&mut self, lives: usize) {
        self.machine.says(UP, lives).unwrap();
        let start = "/run/berth-compute-agent --config /run/agent.toml";
        let kept = "echo $! >/run/agent.pid";
        // In a shell of its own, which leaves it to the first process to collect.
        let typed = self
            .machine
            .types(&format!("({start} >/dev/ttyS0 2>&1 & {kept})"));
        typed.unwrap();
    }

    /// Sends the agent a signal, and waits until it is gone.
    fn ends_agent(&mut self, signal: &str) {
        let pid = "$(cat /run/agent.pid)";
        let waits = format!("while [ -d /proc/{pid} ]; do sleep 0.1; done; echo gone");
        let told = self.machine.ask(&format!("kill -{signal} {pid}; {waits}"));
        assert_eq!(told.unwrap(), "gone");
    }

    /// Returns how many guests run, as the machine's kernel sees it.
    fn guests(&mut self) -> String {
        self.machine
            .ask("pidof qemu-system-x86_64 | wc -w")
            .unwrap()
    }

    /// Returns whether the watchdog runs, by what the machine's kernel says.
    fn watchdog(&mut self) -> String {
        let state = "cat /sys/class/watchdog/watchdog0/state";
        self.machine.ask(state).unwrap()
    }

    fn hangs_libvirt(&mut self) {
        let hang = "kill -STOP $(pidof libvirtd) && echo hangs";
        assert_eq!(self.machine.ask(hang).unwrap(), "hangs");
    }

    /// Has time pass in the machine, by its own clock.
    fn lives_on(&mut self) {
        let end = self.machine.uptime_s().unwrap() + LONGER_S;
        eventually("time passes", || {
            let now = self.machine.uptime_s().unwrap();
            (now > end).then_some(()).ok_or(format!("{now} of {end}"))
        });
    }
}

/// Shows what the machines said if the test failed.
impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.name, self.machine.console());
        }
    }
}

#[track_caller]
fn eventually<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) if Instant::now() > deadline => panic!("waited for {what}: {seen}"),
            // A look that never pauses would take a processor from what it waits for.
            Err(_) => std::thread::sleep(GLANCE),
        }
    }
}

fn host(cluster: &Cluster, name: &str) -> Result<Value, String> {
    Ok(cluster.ask(&["host", "show", name])?["host"].clone())
}

#[track_caller]
fn promises(cluster: &Cluster, name: &str, expected_ms: u64) {
    eventually("the promise", || {
        let promised = host(cluster, name)?["report"]["self_fence_ms"].clone();
        (promised == expected_ms)
            .then_some(())
            .ok_or(format!("{name} promises {promised}"))
    });
}

fn create(cluster: &Cluster, vm: &str, name: &str) {
    let what = ["vm", "create", vm, "--flavor", "small", "--host", name];
    let boot = ["--kernel", "counter", "--initrd", "nothing"];
    cluster.run(&[&what[..], &boot].concat());
}

fn says(what: &str, begun: Instant) {
    println!("[{:5.1}] {what}", begun.elapsed().as_secs_f32());
}

pub(crate) fn a_host_that_is_not_heard_of_is_reset_unless_it_runs_nothing() {
    let begun = Instant::now();
    let disk = WatchedDisk::make(Path::new(PROGRAMS)).unwrap();
    let cluster = Cluster::builder(PROGRAMS).schedulers(1).conductors(1);
    let cluster = cluster.start();
    let small = ["flavor", "create", "small", "--vcpus", "1"];
    cluster.run(&[&small[..], &["--memory-mib", "32"]].concat());
    cluster.run(&["policy", "set", LIMIT]);
    let mut one = Site::start("w1", &disk, &cluster);
    let mut two = Site::start("w2", &disk, &cluster);
    for site in [&mut one, &mut two] {
        site.start_agent(1);
        promises(&cluster, site.name, PROMISED_MS);
        assert_eq!(site.watchdog(), "active");
    }
    says("two hosts with watchdogs", begun);
    create(&cluster, "a", "w1");
    create(&cluster, "b", "w2");
    says("two guests", begun);

    // What becomes of it is looked at below.
    assert_eq!((one.machine.resets(), &*one.guests()), (0, "1"));
    one.ends_agent("KILL");
    says("an agent is killed", begun);

    an_agent_that_is_heard_is_not_reset(&mut two);
    says("an agent has been heard for longer than the timeout", begun);
    an_agent_that_stops_in_good_order_disarms(&cluster, &mut two);
    says("an agent has stopped in good order", begun);
    an_agent_that_is_cut_off_stops_its_guests(&cluster, &mut two);
    says("an agent has been cut off and stopped its guests", begun);
    a_dead_agent_has_its_host_reset(&cluster, &mut one);
    says(
        "the host of the killed agent was reset, its guest runs elsewhere",
        begun,
    );
    an_agent_that_stops_unheard_leaves_the_watchdog(&cluster, &mut one);
    a_hypervisor_that_hangs_has_its_host_reset(&cluster, &mut two);
    says("a host whose hypervisor hung was reset", begun);
    an_unfed_watchdog_has_bitten(&mut one);
    says("a host whose agent stopped unheard was reset", begun);
}

fn an_agent_that_is_heard_is_not_reset(two: &mut Site) {
    two.lives_on();
    assert_eq!((two.machine.resets(), &*two.guests()), (0, "1"));
}

/// Goal: who stops an agent, as for another version of it, loses neither guests nor the machine.
fn an_agent_that_stops_in_good_order_disarms(cluster: &Cluster, two: &mut Site) {
    two.ends_agent("TERM");
    assert_eq!(two.watchdog(), "inactive");
    promises(cluster, two.name, 0);
    // Somebody else feeds it, and leaves it in good order.
    let agent = "/run/berth-compute-agent --config /run/agent.toml";
    let others = format!("exec 4>/dev/watchdog0; {agent}; printf V >&4");
    let refused = two.machine.ask(&format!("sh -c '{others}'")).unwrap();
    assert!(refused.contains("fed by another process"), "{refused}");
    assert_eq!(two.watchdog(), "inactive");
    two.lives_on();
    assert_eq!((two.machine.resets(), &*two.guests()), (0, "1"));
    two.start_agent(1);
    promises(cluster, two.name, PROMISED_MS);
    assert_eq!(two.watchdog(), "active");
}

/// Goal: an agent that can stop its guests does, and its machine goes on.
fn an_agent_that_is_cut_off_stops_its_guests(cluster: &Cluster, two: &mut Site) {
    two.gate.shut();
    eventually("the guest is stopped", || {
        let guests = two.guests();
        (guests == "0").then_some(()).ok_or(guests)
    });
    two.lives_on();
    assert_eq!(two.machine.resets(), 0);
    assert_eq!(two.watchdog(), "active");
    two.gate.open();
    eventually("it is up", || {
        let told = host(cluster, two.name)?;
        let is_up = told["liveness"] == "Up" && told["fenced"].is_null();
        is_up.then_some(()).ok_or(told.to_string())
    });
}

/// Goal: a host is taken for dead after it was reset, and not before; then its guest runs elsewhere,
/// and nowhere else.
fn a_dead_agent_has_its_host_reset(cluster: &Cluster, one: &mut Site) {
    eventually("w1 is proven dead", || {
        let told = host(cluster, one.name)?["fenced"].clone();
        let is_fenced = told["how"] == "SelfFenced";
        is_fenced.then_some(()).ok_or(told.to_string())
    });
    assert_eq!(one.machine.resets(), 1);
    cluster.run(&["vm", "evacuate", "a"]);
    let told = cluster.json(&["vm", "show", "a"]);
    assert_eq!(told["vm"]["host"], "w2", "{told:#}");
    one.start_agent(2);
    eventually("the fence is lifted", || {
        let fenced = host(cluster, one.name)?["fenced"].clone();
        fenced.is_null().then_some(()).ok_or(fenced.to_string())
    });
    assert_eq!(one.guests(), "0");
}

/// Goal: what cannot be taken back stands: an agent that is stopped while no scheduler can be told
/// leaves the watchdog as it is, and says so. Method: the hypervisor hangs, so that it is not certain
/// either that nothing runs. The machine is reset while other things are looked at.
fn an_agent_that_stops_unheard_leaves_the_watchdog(cluster: &Cluster, one: &mut Site) {
    promises(cluster, one.name, PROMISED_MS);
    one.hangs_libvirt();
    one.gate.shut();
    let typed = one.machine.types("kill -TERM $(cat /run/agent.pid)");
    typed.unwrap();
}

fn an_unfed_watchdog_has_bitten(one: &mut Site) {
    one.machine.says(UP, 3).unwrap();
    assert_eq!(one.machine.resets(), 2);
    let console = one.machine.console();
    let (before, _) = console.rsplit_once(UP).unwrap();
    assert!(before.contains(RUNS_ON), "it was reset without a word");
}

/// Goal: where guests cannot be stopped the machine is reset, after the agent has said why.
fn a_hypervisor_that_hangs_has_its_host_reset(cluster: &Cluster, two: &mut Site) {
    promises(cluster, two.name, PROMISED_MS);
    assert_eq!(two.guests(), "1");
    assert_eq!(two.machine.resets(), 0);
    let hang = two
        .machine
        .ask("kill -STOP $(pidof libvirtd) && echo hangs");
    assert_eq!(hang.unwrap(), "hangs");
    two.gate.shut();
    two.machine.says(UP, 2).unwrap();
    assert_eq!(two.machine.resets(), 1);
    let console = two.machine.console();
    let (before, _) = console.rsplit_once(UP).unwrap();
    assert!(before.contains(STARVED), "it was reset without a word");
    assert_eq!(two.guests(), "0");
}
