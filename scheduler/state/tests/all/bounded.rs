//! Goal: no text of a host or a hypervisor, and no number of VMs, makes the state grow beyond
//! `berth_domain::bound`; and before the cluster version that has the bounds none is enforced, since older
//! members enforce none.

use std::sync::Arc;

use berth_domain::audit::{Outcome, RequestSummary};
use berth_domain::bound::{VMS_OF_FEW_HOSTS, vms_max};
use berth_domain::host::HostReport;
use berth_domain::id::TimeMs;
use berth_domain::name::RegionName;
use berth_domain::operation::{Mark, Step};
use berth_domain::refusal::{Code, RECORDED_BYTES_MAX, Refusal};
use berth_domain::version::ServiceVersion;
use berth_domain::vm::Vm;
use berth_domain::volume::{DeviceMode, Extent, FOREIGN_MAX, REGIONS_MAX, Region};
use berth_state::command::{Command, Effect, Envelope};
use berth_state::{Row, State};
use berth_testkit::state::scale::{self, Size};
use berth_testkit::state::*;

/// The versions without and with the bounds.
const VERSIONS: [ServiceVersion; 2] = [
    ServiceVersion(ServiceVersion::BOUNDED_RECORDS.0 - 1),
    ServiceVersion::BOUNDED_RECORDS,
];

fn long() -> Refusal {
    let text = "x".repeat(4 * RECORDED_BYTES_MAX);
    Refusal::new(Code::Internal, "HYPERVISOR_FAILED", text)
}

/// Begins to boot a VM whose host refuses it with a long text, to the end.
fn fail_boot(world: &mut World, vm: &str) {
    let operation = world.begin_boot(vm, &pinned(1), "h1").unwrap();
    world.log(operation, Step::Spawn, Mark::Started).unwrap();
    let failed = Mark::Failed(long());
    // A conductor that got no answer sends it again.
    for _ in 0..2 {
        world.log(operation, Step::Spawn, failed.clone()).unwrap();
    }
    world
        .log(operation, Step::Spawn, Mark::UndoStarted)
        .unwrap();
    let effect = Effect::FailBoot(long());
    world
        .advance(operation, Step::Spawn, Mark::Undone, effect)
        .unwrap();
}

#[test]
fn what_a_hypervisor_says_is_recorded_in_short() {
    for version in VERSIONS {
        let mut world = World::at_version(version, 1);
        fail_boot(&mut world, "a");
        let vm = world.state.vm(&vm_name("a")).unwrap();
        let operation = world.state.operations().values().next().unwrap();
        let logged = operation
            .log
            .iter()
            .filter_map(|entry| entry.mark.refusal());
        let recorded: Vec<&Refusal> = logged.chain(&vm.error).collect();
        assert_eq!(recorded.len(), 2, "a repeated step is logged once");
        for refusal in recorded {
            let is_bounded = version == ServiceVersion::BOUNDED_RECORDS;
            assert_eq!(!refusal.is_long(), is_bounded, "version {version}");
            assert_eq!(refusal.reason, "HYPERVISOR_FAILED");
        }
    }
}

#[test]
fn an_entry_of_the_audit_is_bounded() {
    for version in VERSIONS {
        let mut world = World::at_version(version, 1).without_checks();
        let many = (0..9_000).map(|number| format!("CUSTOM_{number}"));
        let names: Vec<String> = many.collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        world.run(placement::create(1, None)).unwrap();
        let refused = world.run_envelope(Envelope {
            at: TimeMs(world.now),
            principal: "operator:ann".to_owned(),
            request: None,
            audit: Some(Box::new(RequestSummary {
                method: "ReplaceTraits".to_owned(),
                request_id: None,
                vm: None,
                host: None,
                summary: String::new(),
                choice: None,
            })),
            command: placement::traits(1, 0, &names),
        });
        assert!(refused.unwrap_err().is_long(), "the answer names all");
        let (_, entry) = world.state.audit().get_max().unwrap();
        let Outcome::Refused(recorded) = &entry.outcome else {
            panic!("{entry:?}");
        };
        let is_bounded = version == ServiceVersion::BOUNDED_RECORDS;
        assert_eq!(!recorded.is_long(), is_bounded, "version {version}");
    }
}

/// Goal: a report that is as long as a message may be, all of it in lists that are allowed each, is
/// refused.
#[test]
fn a_report_that_no_host_has_is_refused() {
    let region = |number: usize| Region {
        name: RegionName::new(&format!("r{number}")).unwrap(),
        cell: None,
        mode: DeviceMode::Lvm,
        capacity_bytes: 1 << 40,
        align_bytes: 1 << 20,
        foreign: vec![
            Extent {
                offset_bytes: 0,
                length_bytes: 1 << 20,
            };
            FOREIGN_MAX
        ],
        trouble: String::new(),
    };
    let report = HostReport {
        regions: (0..REGIONS_MAX).map(region).collect(),
        ..report(topology(2, 3, 1))
    };
    for version in VERSIONS {
        let mut world = World::at_version(version, 0);
        let outcome = world.register("h1", report.clone());
        let expected = match version == ServiceVersion::BOUNDED_RECORDS {
            true => "HOST_REPORT_TOO_LARGE",
            false => "ok",
        };
        assert_eq!(reason(&outcome), expected, "version {version}");
    }
}

/// Goal: VMs that hold no claim are bounded too. Method: as many as one host makes, all but one made of the
/// row of a VM whose boot failed.
#[test]
fn vms_are_bounded_though_they_hold_nothing() {
    for version in VERSIONS {
        let mut world = World::at_version(version, 1);
        fail_boot(&mut world, "a");
        let failed = world.state.vm(&vm_name("a")).unwrap().clone();
        let copies = (2..VMS_OF_FEW_HOSTS).map(|number| {
            Row::Vm(Arc::new(Vm {
                name: vm_name(&format!("vm-{number}")),
                ..(*failed).clone()
            }))
        });
        let rows = world.state.rows().chain(copies);
        let state = State::from_rows(rows.collect::<Vec<_>>()).unwrap();
        let mut world = world.without_checks();
        world.state = state;
        fail_boot(&mut world, "last");
        assert_eq!(world.state.vms().len(), VMS_OF_FEW_HOSTS);
        let outcome = world.begin_boot("more", &pinned(1), "h1");
        let is_bounded = version == ServiceVersion::BOUNDED_RECORDS;
        match (outcome, is_bounded) {
            (Ok(_), false) => {}
            (Err(refusal), true) => {
                assert_eq!(refusal.reason, "TOO_MANY_VMS");
                // One that is deleted makes room for another.
                delete(&mut world, "last");
                world.begin_boot("more", &pinned(1), "h1").unwrap();
            }
            (outcome, _) => panic!("version {version}: {outcome:?}"),
        }
    }
}

/// Goal: a cluster of more hosts may have more VMs. Method: one of 1,001 hosts with one VM less than it may
/// have, which is more than one of 1,000 may.
#[test]
fn a_larger_cluster_may_have_more_vms() {
    let size = Size {
        hosts: 1_000,
        vms_per_host: 0,
        seed: 1,
        version: ServiceVersion::CURRENT,
    };
    let mut world = World::of(scale::state(size)).without_checks();
    world.register("h1", report(topology(2, 3, 1))).unwrap();
    let max = vms_max(1_001);
    assert!(max > vms_max(1_000));
    fail_boot(&mut world, "a");
    let failed = world.state.vm(&vm_name("a")).unwrap().clone();
    let missing = max - 1 - world.state.vms().len();
    let copies = (0..missing).map(|number| {
        Row::Vm(Arc::new(Vm {
            name: vm_name(&format!("copy-{number}")),
            ..(*failed).clone()
        }))
    });
    let rows: Vec<_> = world.state.rows().chain(copies).collect();
    world.state = State::from_rows(rows).unwrap();
    fail_boot(&mut world, "last");
    let refusal = world.begin_boot("more", &pinned(1), "h1").unwrap_err();
    assert_eq!(refusal.reason, "TOO_MANY_VMS");
    assert_eq!(refusal.metadata["max"], max.to_string());
}

/// Deletes a VM that has no claim, which takes no step.
fn delete(world: &mut World, vm: &str) {
    let operation = operation_id(world.fresh());
    let lease = world.lease();
    let vm = vm_name(vm);
    world
        .run(Command::BeginDelete {
            operation,
            vm,
            lease,
        })
        .unwrap();
}
