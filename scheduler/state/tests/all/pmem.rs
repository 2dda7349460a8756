//! Persistent memory of claims: given once, erased before it is given again, never lost.
//!
//! The world checks the whole state after each command.

use berth_domain::claim::{
    ERASURE_FAILURES_MAX, ErasureProgress, ErasureReport, State as ClaimState,
};
use berth_domain::flavor::Flavor;
use berth_domain::host::Liveness;
use berth_domain::id::{ClaimId, Incarnation};
use berth_domain::name::PmemName;
use berth_domain::pmem::{Label, PmemNamespace};
use berth_domain::refusal::Refusal;
use berth_domain::topology::CellId;
use berth_domain::vm::VmSpec;
use berth_state::command::Command;
use berth_testkit::state::*;

const GIB: u64 = 1 << 30;

pub(crate) fn namespace(name: &str, label: &str) -> PmemNamespace {
    PmemNamespace {
        name: PmemName::new(name).unwrap(),
        class: Label::parse(label).unwrap().class(),
        size_bytes: GIB,
        align_bytes: 2 << 20,
        path: format!("/dev/{name}"),
        cell: Some(CellId(0)),
        region: "region0".to_owned(),
        trouble: String::new(),
    }
}

/// Returns a host with two namespaces SMALL.
fn world() -> World {
    let mut world = World::with_hosts(0);
    register(&mut world, &["ns0", "ns1"]).unwrap();
    world
}

fn register(world: &mut World, names: &[&str]) -> Result<(), Refusal> {
    let namespaces = names.iter().map(|name| namespace(name, "SMALL"));
    let shape = topology(2, 3, 1).with_pmem(namespaces.collect()).unwrap();
    world.register("h1", report(shape)).map(drop)
}

pub(crate) fn guest(labels: &str) -> VmSpec {
    let plain: Flavor = flavor("pmem", 1, 256, &[("hw:pmem", labels)]);
    spec(plain)
}

fn incarnation(world: &World) -> Incarnation {
    world.view("h1").host.report.incarnation
}

fn tell(
    world: &mut World,
    claim: ClaimId,
    name: &str,
    progress: ErasureProgress,
) -> Result<(), Refusal> {
    let command = Command::NoteErasures {
        host: host_name("h1"),
        incarnation: incarnation(world),
        reports: vec![ErasureReport {
            claim,
            namespace: PmemName::new(name).unwrap(),
            progress,
        }],
    };
    world.run(command).map(drop)
}

/// Deletes a running VM and returns what is left of its claim.
fn delete(world: &mut World, vm: &str) -> ClaimId {
    let claim = world.state.vm(&vm_name(vm)).unwrap().claim.unwrap();
    world.delete(vm);
    assert_eq!(world.state.vm(&vm_name(vm)), None, "the VM is gone at once");
    claim
}

/// Goal: no state of the machine hands a namespace out that is not erased, and none loses it: whatever
/// is told in whatever order, it is free again exactly when its agent has said that it is erased.
#[test]
fn a_namespace_is_given_again_exactly_when_it_is_erased() {
    use ErasureProgress::{Erased, Failed, Running};
    let failed = || Failed {
        failure: "the program ended with status 1".to_owned(),
    };
    let running = |erased_bytes| Running { erased_bytes };
    let stories = [
        vec![Erased],
        vec![running(0), running(GIB / 2), Erased],
        vec![failed(), running(0), Erased],
        vec![failed(), failed(), failed(), failed(), Erased],
        vec![running(5), failed(), running(7), failed(), Erased],
    ];
    for story in stories {
        let mut world = world();
        world.boot("a", &guest("SMALL,SMALL"), "h1");
        let refused = world.begin_boot("b", &guest("SMALL"), "h1").unwrap_err();
        assert_eq!(
            refused.causes.keys().collect::<Vec<_>>(),
            ["PMEM_TAKEN"],
            "{refused}"
        );
        let claim = delete(&mut world, "a");
        let left = world.state.claim(claim).unwrap().clone();
        assert_eq!(left.state, ClaimState::Releasing);
        assert!(
            left.assignment.cells.is_empty(),
            "its CPUs and pages are free"
        );
        for progress in story {
            let refused = world.begin_boot("b", &guest("SMALL"), "h1").unwrap_err();
            assert!(refused.causes.contains_key("PMEM_TAKEN"), "{progress:?}");
            // What is said of another claim is void.
            tell(&mut world, ClaimId(uuid(9, 9)), "ns0", Erased).unwrap();
            tell(&mut world, claim, "ns0", progress).unwrap();
        }
        let left = world.state.claim(claim).unwrap().clone();
        assert_eq!(left.erasures.len(), 1, "{left:?}");
        world.boot("b", &guest("SMALL"), "h1");
        // Late words about what is another's by now are void.
        tell(&mut world, claim, "ns0", failed()).unwrap();
        tell(&mut world, claim, "ns0", Erased).unwrap();
        assert!(world.begin_boot("c", &guest("SMALL"), "h1").is_err());
        tell(&mut world, claim, "ns1", Erased).unwrap();
        assert_eq!(world.state.claim(claim), None, "nothing is left over");
        world.boot("c", &guest("SMALL"), "h1");
    }
}

/// Goal: who fails again and again is told, and goes on.
#[test]
fn what_cannot_be_erased_is_quarantined() {
    let mut world = world();
    world.boot("a", &guest("SMALL"), "h1");
    let claim = delete(&mut world, "a");
    for count in 1..=ERASURE_FAILURES_MAX {
        let failure = format!("attempt {count}");
        tell(
            &mut world,
            claim,
            "ns0",
            ErasureProgress::Failed { failure },
        )
        .unwrap();
        let erasures = world.state.claim(claim).unwrap().erasures.clone();
        let erasure = erasures.values().next().unwrap();
        assert_eq!(erasure.failures, count);
        assert_eq!(erasure.is_quarantined(), count == ERASURE_FAILURES_MAX);
    }
    let long = "x".repeat(10_000);
    let failure = ErasureProgress::Failed { failure: long };
    let refused = tell(&mut world, claim, "ns0", failure).unwrap_err();
    assert_eq!(refused.reason, "INVALID_ERASURES");
    tell(&mut world, claim, "ns0", ErasureProgress::Erased).unwrap();
    assert_eq!(world.state.claim(claim), None);
}

/// Goal: only the agent that runs now is listened to, and a VM of the same name is another one.
#[test]
fn late_agents_and_vms_of_the_same_name() {
    let mut world = world();
    world.boot("a", &guest("SMALL"), "h1");
    let claim = delete(&mut world, "a");
    let command = Command::NoteErasures {
        host: host_name("h1"),
        incarnation: Incarnation(uuid(9, 2)),
        reports: Vec::new(),
    };
    let refused = world.run(command).unwrap_err();
    assert_eq!(refused.reason, "STALE_INCARNATION");
    world.boot("a", &guest("SMALL"), "h1");
    let own: Vec<_> = world.state.claims_of_vm(&vm_name("a")).collect();
    assert_eq!(own.len(), 1);
    assert_ne!(own[0].id, claim);
    assert_eq!(world.state.expected_of(&host_name("h1")).len(), 1);
    assert_eq!(world.state.erasures_of(&host_name("h1")).len(), 1);
}

/// Goal: a namespace that somebody has, or that is not erased, cannot leave the configuration; one that
/// is told to be of no use can, and marks who has it.
#[test]
fn used_namespaces_stay_configured() {
    let mut world = world();
    world.boot("a", &guest("SMALL"), "h1");
    let refused = register(&mut world, &["ns1"]).unwrap_err();
    assert_eq!(refused.reason, "PMEM_NAMESPACE_IN_USE");
    assert!(refused.message.contains("ns0") && refused.message.contains("vm a"));
    register(&mut world, &["ns0"]).unwrap();
    register(&mut world, &["ns0", "ns1"]).unwrap();
    let claim = delete(&mut world, "a");
    let refused = register(&mut world, &["ns1"]).unwrap_err();
    assert!(refused.message.contains("not erased yet"), "{refused}");
    let refused = world.run(Command::RemoveHost {
        host: host_name("h1"),
    });
    assert_eq!(refused.unwrap_err().reason, "HOST_IN_USE");
    tell(&mut world, claim, "ns0", ErasureProgress::Erased).unwrap();
    register(&mut world, &["ns1"]).unwrap();

    register(&mut world, &["ns0", "ns1"]).unwrap();
    world.boot("b", &guest("SMALL,SMALL"), "h1");
    let mut gone = namespace("ns0", "SMALL");
    (gone.size_bytes, gone.path) = (0, String::new());
    gone.trouble = "this host has no namespace of that name".to_owned();
    let shape = topology(2, 3, 1);
    let shape = shape
        .with_pmem(vec![gone, namespace("ns1", "SMALL")])
        .unwrap();
    world.register("h1", report(shape)).unwrap();
    let host = &world.view("h1").host;
    assert_eq!(host.hit.len(), 1, "its VM is told: {host:#?}");
}

fn write_off(world: &mut World, name: &str) -> Result<(), Refusal> {
    let command = Command::WriteOffPmem {
        host: host_name("h1"),
        namespace: PmemName::new(name).unwrap(),
    };
    world.run(command).map(drop)
}

fn is_down(world: &mut World) {
    let command = Command::SetLiveness {
        host: host_name("h1"),
        liveness: Liveness::Down,
    };
    world.run(command).unwrap();
}

/// Returns how many namespaces of the label are counted as used on the host.
fn used(world: &World) -> u64 {
    let class = Label::parse("SMALL").unwrap().class();
    world.view("h1").used.get(&class).copied().unwrap_or(0)
}

/// Goal: a namespace that is lost while it waits to be erased holds up neither its agent nor the
/// removal of its host, and is not counted; one that works, or that nobody has, is not written off.
#[test]
fn a_lost_namespace_is_written_off_while_it_is_released() {
    let mut world = world();
    assert_eq!(
        write_off(&mut world, "ns0").unwrap_err().reason,
        "PMEM_NAMESPACE_FREE"
    );
    world.boot("a", &guest("SMALL"), "h1");
    assert_eq!(
        write_off(&mut world, "ns0").unwrap_err().reason,
        "PMEM_NAMESPACE_WORKS"
    );
    let claim = delete(&mut world, "a");
    // Its agent does not start any more, as the namespace is gone.
    is_down(&mut world);
    assert_eq!(used(&world), 1);
    write_off(&mut world, "ns0").unwrap();
    write_off(&mut world, "ns0").unwrap();
    assert_eq!(used(&world), 0);
    register(&mut world, &["ns1"]).unwrap();
    assert!(world.state.erasures_of(&host_name("h1")).is_empty());
    world.boot("b", &guest("SMALL"), "h1");
    let _ = delete(&mut world, "b");
    let remove = || Command::RemoveHost {
        host: host_name("h1"),
    };
    let refused = world.run(remove()).unwrap_err();
    assert!(refused.message.contains("vm b"), "{refused}");
    let left = world.state.claims_of_host(&host_name("h1"));
    let left = left.map(|c| c.id).find(|id| *id != claim).unwrap();
    tell(&mut world, left, "ns1", ErasureProgress::Erased).unwrap();
    world.run(remove()).unwrap();
    assert_eq!(world.state.claim(claim), None, "it goes with its host");
}

/// Goal: a namespace that was written off and comes back is given to nobody before it is erased,
/// whether a VM had it then or not.
#[test]
fn a_namespace_that_comes_back_is_erased_before_it_is_given() {
    for is_deleted_before in [true, false] {
        let mut world = world();
        world.boot("a", &guest("SMALL"), "h1");
        let mut claim = None;
        if is_deleted_before {
            claim = Some(delete(&mut world, "a"));
        }
        is_down(&mut world);
        write_off(&mut world, "ns0").unwrap();
        register(&mut world, &["ns1"]).unwrap();
        let claim = claim.unwrap_or_else(|| {
            assert_eq!(world.view("h1").host.hit.len(), 1, "its VM is told");
            delete(&mut world, "a")
        });
        assert!(world.state.erasures_of(&host_name("h1")).is_empty());
        register(&mut world, &["ns0", "ns1"]).unwrap();
        let due = world.state.erasures_of(&host_name("h1"));
        assert_eq!(due.len(), 1);
        assert_eq!(due[0].0, claim);
        world.boot("b", &guest("SMALL"), "h1");
        let refused = world.begin_boot("c", &guest("SMALL"), "h1").unwrap_err();
        assert_eq!(
            refused.causes.keys().collect::<Vec<_>>(),
            ["PMEM_TAKEN"],
            "{refused}"
        );
        tell(&mut world, claim, "ns0", ErasureProgress::Erased).unwrap();
        assert_eq!(world.state.claim(claim), None);
        world.boot("c", &guest("SMALL"), "h1");
    }
}
