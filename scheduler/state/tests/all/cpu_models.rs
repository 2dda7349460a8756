//! Goal: a claim records the CPU that its host gives, and no other.
//!
//! Method: hosts that report CPUs, and claims as a leader would propose them, right and wrong. The rule
//! itself is tested in `domain`, whole moves in `tests/tests/all/cpu_models.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::claim::{Claim, Owner};
use berth_domain::cpu_model::{BaselineScope, GuestCpu, HostCpu};
use berth_domain::id::VmUid;
use berth_domain::name::{CpuFeature, CpuModelName, CpuVendor};
use berth_domain::operation::{Kind, Mark, Step};
use berth_domain::vm::VmSpec;
use berth_state::State;
use berth_state::command::Command;
use berth_testkit::state::*;

use crate::{cold_moves, power};

fn features(names: &[&str]) -> BTreeSet<CpuFeature> {
    let feature = |name: &&str| CpuFeature::new(name).unwrap();
    names.iter().map(feature).collect()
}

/// Returns a host's CPU that has these features beyond those of its model, `sse`.
fn cpu(beyond: &[&str]) -> HostCpu {
    let model = CpuModelName::new("Base").unwrap();
    let own = GuestCpu {
        vendor: Some(CpuVendor::new("Intel").unwrap()),
        required: features(beyond),
        ..GuestCpu::named(model.clone())
    };
    HostCpu {
        host_model: Arc::new(own),
        features: features(&[beyond, &["sse"]].concat()),
        models: BTreeMap::from([(model, BTreeSet::new())]),
    }
}

/// Returns hosts that have these features beyond those of their model.
fn world(hosts: &[(&str, &[&str])]) -> World {
    let mut world = World::with_hosts(0);
    for (name, beyond) in hosts {
        let mut report = report(topology(1, 4, 2));
        report.cpu = Some(Arc::new(cpu(beyond)));
        world.register(name, report).unwrap();
    }
    world
}

fn begin(world: &mut World, spec: &VmSpec, claim: Claim) -> Result<(), String> {
    let command = Command::BeginBoot {
        operation: operation_id(world.fresh()),
        vm: claim.vm.clone(),
        uid: VmUid(uuid(4, world.fresh())),
        spec: Box::new(spec.clone()),
        requested_host: None,
        claim,
        lease: world.lease(),
        project: None,
        restart: Default::default(),
        first_boot: None,
        metadata: Default::default(),
    };
    world
        .run(command)
        .map(drop)
        .map_err(|refusal| refusal.reason)
}

#[test]
fn a_claim_with_another_cpu_than_its_host_gives_is_refused() {
    let mut world = world(&[("h1", &["avx"])]);
    let spec = floating(1);
    let right = world.claim("a", &spec, "h1", Owner::Vm);
    assert_eq!(
        right.cpu.as_ref().map(ToString::to_string).as_deref(),
        Some("Base (Intel) +avx")
    );
    let named = GuestCpu::named(CpuModelName::new("Base").unwrap());
    for wrong in [None, Some(Arc::new(named))] {
        let claim = Claim {
            cpu: wrong,
            ..right.clone()
        };
        let refused = begin(&mut world, &spec, claim);
        assert_eq!(refused, Err("CLAIM_CPU_DIFFERS".to_owned()));
    }
    assert_eq!(begin(&mut world, &spec, right), Ok(()));
}

#[test]
fn hosts_of_one_kind_share_what_they_report() {
    let mut world = world(&[("h1", &["avx"]), ("h2", &[]), ("h3", &["avx"])]);
    let reported = |state: &State, host: &str| {
        let view = state.host(&host_name(host)).unwrap();
        view.host.report.cpu.clone().unwrap()
    };
    let shares = |state: &State| {
        let [one, two, three] = ["h1", "h2", "h3"].map(|host| reported(state, host));
        (Arc::ptr_eq(&one, &three), Arc::ptr_eq(&one, &two))
    };
    assert_eq!(shares(&world.state), (true, false));
    let rebuilt = State::from_rows(world.state.rows()).unwrap();
    assert_eq!(shares(&rebuilt), (true, false));
    let baseline = |world: &World| {
        let found = world.state.cpu_baseline(&BaselineScope::Cluster);
        found.unwrap().cpu.to_string()
    };
    assert_eq!(baseline(&world), "Base (Intel)");
    // The one host without the feature gets it.
    let mut report = report(topology(1, 4, 2));
    report.cpu = Some(Arc::new(cpu(&["avx"])));
    world.register("h2", report).unwrap();
    assert_eq!(shares(&world.state), (true, true));
    assert_eq!(baseline(&world), "Base (Intel) +avx");
}

/// Goal: a guest is not stopped where it could not be started again, and where it has to be, it gets
/// what its host gives by then. Method: a host whose agent comes back with less than its guest runs with.
#[test]
fn what_restarts_a_guest_looks_at_its_host_first() {
    let mut world = world(&[("h1", &["avx"]), ("h2", &["avx"])]);
    world.boot("a", &pinned(1), "h1");
    let shown = |world: &World, vm: &str| {
        let vm = world.state.vm(&vm_name(vm)).unwrap();
        let claim = world.state.claim(vm.claim.unwrap()).unwrap();
        claim.cpu.as_ref().map(ToString::to_string)
    };
    let with_avx = Some("Base (Intel) +avx".to_owned());
    assert_eq!(shown(&world, "a"), with_avx);
    let mut less = report(topology(1, 4, 2));
    less.cpu = Some(Arc::new(cpu(&[])));
    world.register("h1", less).unwrap();
    assert_eq!(shown(&world, "a"), with_avx, "it runs with it");

    let reboot = Kind::Reboot { timeout_ms: 0 };
    let refused = power::begin(&mut world, "a", reboot).unwrap_err();
    assert_eq!(refused.reason, "CPU_FEATURES");
    assert!(refused.message.contains("it lacks avx"), "{refused}");
    assert!(refused.hint.unwrap().starts_with("stop and start it"));

    // A move that fails after the guest was stopped starts it with what is given now.
    let operation = cold_moves::begin(&mut world, "a", "h2", cold_moves::AS_IT_IS).unwrap();
    for mark in [
        Mark::Started,
        Mark::Failed(refusal("NO")),
        Mark::UndoStarted,
    ] {
        world.log(operation, Step::StopSource, mark).unwrap();
    }
    assert_eq!(shown(&world, "a"), Some("Base (Intel)".to_owned()));
}

/// Goal: a resize is not reverted onto a host that does not give the CPU of before.
#[test]
fn a_revert_looks_at_the_host_of_before_first() {
    let mut world = world(&[("h1", &["avx"]), ("h2", &["avx"])]);
    world.boot("a", &pinned(1), "h1");
    let operation = cold_moves::begin(&mut world, "a", "h2", cold_moves::RESIZE).unwrap();
    cold_moves::carry_out(&mut world, operation);
    let mut less = report(topology(1, 4, 2));
    less.cpu = Some(Arc::new(cpu(&[])));
    world.register("h1", less).unwrap();
    let revert = Command::BeginRevertResize {
        operation: operation_id(world.fresh()),
        vm: vm_name("a"),
        lease: world.lease(),
    };
    let refused = world.run(revert).unwrap_err();
    assert_eq!(refused.reason, "CPU_FEATURES");
    assert!(refused.hint.unwrap().contains("confirm-resize"));
}
