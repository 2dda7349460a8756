//! What is priced: a loaded cluster, and the requests of a boot and of a live migration.
//!
//! 64 hosts of 8 NUMA nodes, most dedicated CPUs taken, and an audit that is full, so that each entry
//! removes another. Every id is made of a number: two runs are the same.

use std::sync::Arc;

use berth_decide::{Action, DecisionRequest, ScheduleMigration, ScheduleVm};
use berth_domain::audit::RequestSummary;
use berth_domain::id::{ClaimId, MigrationId, OperationId, RequestId, TimeMs, VmUid};
use berth_domain::migration::Event;
use berth_domain::name::FlavorName;
use berth_domain::operation::{Mark, Operation, Step};
use berth_domain::vm::{RestartPolicy, VmSpec};
use berth_state::apply::AUDIT_MAX;
use berth_state::command::{Command, Effect, Envelope, LeaseRequest, RequestKey};
use berth_state::{Reply, State};
use berth_testkit::state::{World, conductor, flavor, report, spec, topology, uuid, vm_name};
use uuid::Uuid;

pub(crate) const HOSTS: u32 = 64;
const NODES: u32 = 8;
/// Dedicated CPUs of a NUMA node, and how many of them a guest of the load takes.
const CPUS: u32 = 16;
const LOAD_VCPUS: u32 = 11;
/// The time of all requests, in milliseconds.
pub(crate) const AT: TimeMs = TimeMs(2_000_000);

fn pinned(name: &str, vcpus: u32) -> berth_domain::flavor::Flavor {
    flavor(name, vcpus, 128, &[("hw:cpu_policy", "dedicated")])
}

/// Returns the state of the loaded cluster.
pub(crate) fn loaded() -> State {
    let mut world = World::with_hosts(0).without_checks();
    for number in 0..HOSTS {
        let report = report(topology(NODES, CPUS, 0));
        let name = format!("h{number:04}");
        world.register(&name, report).expect("the host is new");
    }
    world
        .run(Command::CreateFlavor(pinned("one", 1)))
        .expect("the flavor is new");
    let load: VmSpec = spec(pinned("load", LOAD_VCPUS));
    for number in 0..HOSTS * NODES {
        let host = format!("h{:04}", number / NODES);
        world.boot(&format!("load-{number}"), &load, &host);
    }
    fill_audit(&mut world.state);
    world.state
}

/// Fills the audit with requests that are refused.
fn fill_audit(state: &mut State) {
    let first = state.revision() + 1;
    for number in 0..AUDIT_MAX as u64 {
        let refused = Envelope {
            at: AT,
            principal: "unverified".to_owned(),
            request: None,
            audit: Some(Box::new(RequestSummary {
                method: "DeleteFlavor".to_owned(),
                request_id: None,
                vm: None,
                host: None,
                summary: "flavor=unknown".to_owned(),
                choice: None,
            })),
            command: Command::DeleteFlavor {
                flavor: FlavorName::new("unknown").expect("a name"),
            },
        };
        let outcome = state.speculate(first + number, &refused);
        assert!(outcome.is_err(), "there is no such flavor");
    }
}

/// Makes requests. Numbers grow, as the times in ids do.
pub(crate) struct Requests {
    next: u64,
}

impl Requests {
    pub(crate) fn new() -> Self {
        // Past every id of the load.
        Self { next: 1 << 32 }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn key(&mut self, method: &str) -> RequestKey {
        RequestKey {
            method: method.to_owned(),
            id: RequestId(timed(self.number())),
            payload_hash: 7,
        }
    }

    fn lease() -> LeaseRequest {
        LeaseRequest {
            conductor: conductor("c1"),
            ttl_ms: 600_000,
        }
    }

    /// Returns the request for a VM.
    pub(crate) fn schedule_vm(&mut self) -> DecisionRequest {
        let number = self.number();
        let load = spec(pinned("one", 1));
        let params = ScheduleVm {
            operation: OperationId(timed(self.number())),
            vm: vm_name(&format!("vm-{number}")),
            uid: VmUid(scattered(number)),
            claim: ClaimId(timed(self.number())),
            flavor: FlavorName::new("one").expect("a name"),
            boot: load.boot,
            disks: Vec::new(),
            nics: Vec::new(),
            image_properties: load.image_properties,
            hints: load.hints,
            volumes: Vec::new(),
            host: None,
            lease: Self::lease(),
            project: None,
            restart: RestartPolicy::default(),
            first_boot: None,
            metadata: Default::default(),
        };
        DecisionRequest {
            key: Some(self.key("ScheduleVm")),
            ..DecisionRequest::new("unverified", Action::ScheduleVm(params))
        }
    }

    /// Returns the request to migrate the VM of an operation that has booted it.
    pub(crate) fn schedule_migration(&mut self, booted: &Operation) -> DecisionRequest {
        let params = ScheduleMigration {
            operation: OperationId(timed(self.number())),
            migration: MigrationId(timed(self.number())),
            vm: booted.vm().expect("a boot is of a VM").clone(),
            claim: ClaimId(timed(self.number())),
            host: None,
            lease: Self::lease(),
            transfer: Default::default(),
        };
        DecisionRequest {
            key: Some(self.key("ScheduleMigration")),
            ..DecisionRequest::new("unverified", Action::ScheduleMigration(params))
        }
    }
}

/// Returns the request that records a step.
pub(crate) fn advance(
    operation: &Operation,
    step: Step,
    mark: Mark,
    effect: Effect,
) -> DecisionRequest {
    let lease = operation.lease.as_ref().expect("the operation runs");
    let command = Command::Advance {
        operation: operation.id,
        epoch: lease.epoch,
        step,
        mark,
        effect,
    };
    DecisionRequest::new("unverified", Action::Plain(command))
}

/// The steps of a live migration up to its end: those of its saga, written down by hand.
pub(crate) fn migration_steps(operation: &Operation) -> Vec<DecisionRequest> {
    let claim = operation.claim.expect("the destination is claimed");
    let settled = Effect::Settle {
        event: Event::Arrived,
        refusal: None,
    };
    let steps = [
        (Step::CheckDestination, Mark::Succeeded, Effect::None),
        (Step::CheckSource, Mark::Succeeded, Effect::None),
        (
            Step::FitDestination,
            Mark::Succeeded,
            Effect::ConfirmClaim { claim },
        ),
        (Step::PreLiveMigration, Mark::Started, Effect::None),
        (Step::PreLiveMigration, Mark::Succeeded, Effect::None),
        (Step::LiveMigration, Mark::Started, Effect::BeginTransfer),
        (Step::Settle, Mark::Succeeded, settled),
    ];
    let steps = steps.into_iter();
    steps
        .map(|(step, mark, effect)| advance(operation, step, mark, effect))
        .collect()
}

/// Returns the operations that were begun.
pub(crate) fn operations(replies: Vec<Reply>) -> Vec<Arc<Operation>> {
    let operations = replies.into_iter().map(|reply| {
        let Reply::Operation(operation) = reply else {
            panic!("no operation: {reply:?}");
        };
        operation
    });
    operations.collect()
}

/// Returns an id that a clock would have made.
fn timed(number: u64) -> Uuid {
    let version = 7_u128 << 76 | 2_u128 << 62;
    Uuid::from_u128(u128::from(AT.0) << 80 | version | u128::from(number))
}

/// Returns an id that chance would have made.
fn scattered(number: u64) -> Uuid {
    uuid(4, number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}
