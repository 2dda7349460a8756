//! What hypervisors really have, against what Berth believes: guests that crash or vanish, domains
//! that somebody else made, hosts that come back smaller, and hosts that are dead.
//!
//! Method: real processes on loopback with simulated hypervisors, to which a file tells what happens
//! that nobody asked for; asked by the real command.

use berth_tests::processes::{Answer, Cluster, Host, eventually, verdict};
use serde_json::Value;

use crate::PROGRAMS;

const BY_HAND: &str = "5b0c7e0a-0000-4000-8000-000000000001";

fn cluster() -> Cluster {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(1)
        .host(Host::new("h1"))
        .host(Host::new("h2"))
        .start();
    cluster.wait();
    cluster.pinned_flavor("pinned", 2);
    cluster
}

fn host(cluster: &Cluster, name: &str) -> Result<Value, String> {
    cluster.ask(&["host", "show", name])
}

fn absence(cluster: &Cluster, vm: &str) -> Result<Value, String> {
    Ok(cluster.ask(&["vm", "show", vm])?["vm"]["trouble"]["absence"].clone())
}

/// Waits until a VM's guest is told to be so.
#[track_caller]
fn is_told(cluster: &Cluster, vm: &str, wanted: &Value) {
    eventually(&format!("guest {vm} is {wanted}"), || {
        let found = absence(cluster, vm)?;
        (found == *wanted).then_some(()).ok_or(format!("{found}"))
    });
}

/// Goal: a domain that nobody claimed is told and left alone; a guest that crashed or is gone marks
/// its VM, which can be deleted as ever.
#[test]
fn what_hypervisors_have_is_compared_with_what_is_claimed() {
    let cluster = cluster();
    let _ = cluster.boot("a", "pinned", "h1");
    let _ = cluster.boot("b", "pinned", "h1");
    cluster.happens("h1", &format!("other {BY_HAND} by-hand"));
    let told = eventually("the foreign domain is told", || {
        let told = host(&cluster, "h1")?["host"]["unknown"].clone();
        let is_one = told.as_array().is_some_and(|all| all.len() == 1);
        is_one.then_some(told.clone()).ok_or(format!("{told}"))
    });
    assert_eq!(told[0]["name"], "by-hand");
    assert_eq!(told[0]["is_ours"], false);
    cluster.happens("h1", "crash a");
    is_told(&cluster, "a", &"Stopped".into());
    cluster.happens("h1", "lose b");
    is_told(&cluster, "b", &"Missing".into());
    assert_eq!(
        host(&cluster, "h1").unwrap()["host"]["unknown"],
        told,
        "it is still there"
    );
    cluster.run(&["vm", "delete", "a"]);
    cluster.run(&["vm", "delete", "b"]);
    let drained = cluster.berth(&["host", "drain", "h1"]).with_status(0);
    let _ = drained.saying(&["holds no VM", "reported guests that are no VMs: by-hand"]);
    verdict::holds(&cluster);
}

/// Goal: what was wrong with a guest is shown no more once a command that starts it has succeeded. Method:
/// each way in which a guest ends by itself, with each such command; what people see of it.
#[test]
fn a_start_that_worked_shows_nothing_wrong() {
    let cluster = cluster();
    let _ = cluster.boot("a", "pinned", "h1");
    let table = |arguments: &[&str]| {
        let mut command = cluster.programs.command("berth");
        command.args(["--scheduler", &cluster.addresses()]);
        command.args(arguments);
        Answer::of(command).with_status(0).stdout
    };
    let starts: [&[&str]; 4] = [
        &["vm", "start", "a"],
        &["vm", "reboot", "a", "--hard"],
        &["vm", "rebuild", "a"],
        &["vm", "migrate", "a", "--cold"],
    ];
    for (ends, absence) in [
        ("crash", "Stopped"),
        ("shutdown", "ShutDown"),
        ("lose", "Missing"),
    ] {
        for start in starts {
            let at = cluster.json(&["vm", "show", "a"])["vm"]["host"].clone();
            cluster.happens(at.as_str().expect("a host"), &format!("{ends} a"));
            is_told(&cluster, "a", &absence.into());
            let marked = table(&["vm", "list"]);
            assert!(marked.contains("ACTIVE, guest "), "{ends}: {marked}");
            let shown = table(start);
            let all = [shown, table(&["vm", "show", "a"]), table(&["vm", "list"])];
            for text in &all {
                let is_well = text.contains("ACTIVE") && !text.contains(", guest ");
                assert!(is_well, "{ends}, {start:?}: {text}");
            }
        }
    }
    verdict::holds(&cluster);
    verdict::runs_what_is_claimed(&cluster);
}

/// Goal: a host is proven dead by its fence command and by nobody's word while it is heard of; it
/// takes nothing, and opens when it is back and its guests are those that are claimed.
#[test]
fn a_dead_host_is_fenced_and_comes_back() {
    let mut cluster = cluster();
    let _ = cluster.boot("b", "pinned", "h2");
    let fence = ["host", "fence", "h2"];
    let _ = cluster
        .berth(&["host", "fence", "h2", "--confirm-off"])
        .refused(1)
        .saying(&["HOST_IS_ALIVE"]);
    let _ = cluster.berth(&fence).refused(1).saying(&["FENCE_FAILED"]);
    cluster.agents[1].kill();
    let script = cluster.folder().join("fence.sh");
    std::fs::write(&script, "echo \"$1 is off\"\n").unwrap();
    cluster.run(&fence);
    let fenced = host(&cluster, "h2").unwrap()["host"]["fenced"].clone();
    assert_eq!(
        (&fenced["how"], &fenced["output"]),
        (&"FenceCommand".into(), &"h2 is off\n".into())
    );
    let create = [&Cluster::create("c", "pinned")[..], &["--host", "h2"]].concat();
    let _ = cluster.berth(&create).refused(1).saying(&["HOST_FENCED"]);

    let programs = &cluster.programs;
    cluster.agents[1].start(programs);
    eventually("the fence is lifted", || {
        let fenced = host(&cluster, "h2")?["host"]["fenced"].clone();
        fenced.is_null().then_some(()).ok_or(format!("{fenced}"))
    });
    assert_eq!(absence(&cluster, "b"), Ok(Value::Null));
    let _ = cluster.boot("c", "pinned", "h2");
    verdict::holds(&cluster);
    verdict::runs_what_is_claimed(&cluster);
}

/// Goal: the VMs of a dead host are started elsewhere, once it is proven dead and not before; and when
/// it comes back it takes away what it had of them, so that nothing runs twice.
#[test]
fn the_vms_of_a_dead_host_run_elsewhere_and_not_twice() {
    let mut cluster = cluster();
    let _ = cluster.boot("a", "pinned", "h2");
    let _ = cluster.boot("b", "pinned", "h2");
    cluster.agents[1].kill();
    eventually("h2 is not heard of", || {
        let told = host(&cluster, "h2")?["host"]["liveness"].clone();
        (told == "Down").then_some(()).ok_or(format!("{told}"))
    });
    let evacuate = ["vm", "evacuate", "a"];
    let refused = cluster.berth(&evacuate).refused(1);
    let _ = refused.saying(&["HOST_NOT_FENCED"]);
    cluster.run(&["host", "fence", "h2", "--confirm-off"]);
    cluster.run(&evacuate);
    let moved = cluster.json(&["host", "evacuate", "h2"]);
    assert_eq!(moved["moved"][0]["vm"], "b", "{moved:#}");
    for vm in ["a", "b"] {
        let told = cluster.json(&["vm", "show", vm]);
        assert_eq!(told["vm"]["host"], "h1", "{told:#}");
    }

    let programs = &cluster.programs;
    cluster.agents[1].start(programs);
    eventually("the fence is lifted", || {
        let fenced = host(&cluster, "h2")?["host"]["fenced"].clone();
        fenced.is_null().then_some(()).ok_or(format!("{fenced}"))
    });
    verdict::holds(&cluster);
    verdict::runs_what_is_claimed(&cluster);
}

/// Goal: a host that comes back with less memory says who is hit, gives nothing of what is lost, and
/// is whole again when it has them back.
#[test]
fn a_host_that_lost_memory_says_who_is_hit() {
    let mut cluster = cluster();
    let _ = cluster.boot("a", "pinned", "h1");
    let machine = cluster.folder().join("h1-machine.toml");
    let whole = std::fs::read_to_string(&machine).unwrap();
    let small = whole.replace("memory_mib = 65536", "memory_mib = 8200");
    assert_ne!(small, whole);
    let mut come_back = |text: &str, hits: usize| {
        std::fs::write(&machine, text).unwrap();
        cluster.agents[0].kill();
        let programs = &cluster.programs;
        cluster.agents[0].start(programs);
        eventually(&format!("{hits} vms are hit"), || {
            let told = host(&cluster, "h1")?["host"].clone();
            let all = told["hit"].as_array().map(Vec::len);
            (all == Some(hits)).then_some(()).ok_or(format!("{told}"))
        });
    };
    come_back(&small, 1);
    come_back(&whole, 0);
    come_back(&small, 1);
    let create = [&Cluster::create("b", "pinned")[..], &["--host", "h1"]].concat();
    let _ = cluster.berth(&create).refused(1).saying(&["NO_VALID_HOST"]);
    cluster.run(&["vm", "delete", "a"]);
    let told = host(&cluster, "h1").unwrap()["host"].clone();
    assert_eq!(told["hit"].as_array().map(Vec::len), Some(0), "{told}");
    verdict::holds(&cluster);
}

/// Returns what is known of the memory of a host.
fn signals(cluster: &Cluster, name: &str) -> Result<Value, String> {
    let told = host(cluster, name)?["memory_signals"].clone();
    match told.is_null() {
        true => Err("nothing is known of its memory".to_owned()),
        false => Ok(told["signals"].clone()),
    }
}

/// Goal: operators see how much of its memory a guest touches, and what that leaves, as it changes;
/// and after the scheduler forgot it, as soon as the agent has reported again.
#[test]
fn memory_signals_follow_what_guests_touch() {
    let mut cluster = cluster();
    let _ = cluster.boot("a", "pinned", "h1");
    let flavor = cluster.ask(&["vm", "show", "a"]).unwrap()["vm"]["spec"]["flavor"].clone();
    let given_kib = flavor["memory_mib"].as_u64().unwrap() * 1024;
    let touched = |cluster: &Cluster, wanted: u64| {
        eventually("what the guest touches is told", || {
            let told = signals(cluster, "h1")?;
            let touched = &told["guests"]["each"]["a"]["resident_kib"];
            (*touched == wanted)
                .then_some(told.clone())
                .ok_or(format!("{told}"))
        })
    };
    let before = touched(&cluster, given_kib / 2);
    assert_eq!(before["pressure"], Value::Null, "nobody measures it");
    assert_eq!(before["swap"]["total_kib"], 0);
    cluster.happens("h1", "swap 4096");
    cluster.happens("h1", "pressure 12.5 3.25");
    cluster.happens("h1", "active a 100");
    let after = touched(&cluster, given_kib);
    let free = |signals: &Value| signals["memory"]["free_kib"].as_u64().unwrap();
    assert_eq!(free(&before) - free(&after), given_kib / 2);
    assert_eq!(after["swap"]["total_kib"], 4096 * 1024);
    assert_eq!(after["pressure"]["some"]["avg10_milli_percent"], 12_500);

    cluster.schedulers[0].kill();
    let programs = &cluster.programs;
    cluster.schedulers[0].start(programs);
    let _ = touched(&cluster, given_kib);
    let listed = cluster.ask(&["host", "list", "--memory"]).unwrap();
    let names: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|h| &h["host"])
        .collect();
    assert_eq!(names, ["h1", "h2"]);
    verdict::holds(&cluster);
}
