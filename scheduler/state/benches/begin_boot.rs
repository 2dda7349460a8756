//! How long one claim takes to apply: `cargo bench -p berth-state`.
//!
//! 1,000 hosts of 8 cells, 70 % of the dedicated CPUs taken by guests with two each; then further
//! boots begin, spread over all hosts. `alone`: nobody else holds the state. `shared`: a clone is
//! taken before each command and kept until after it, so that every node that is written is copied.
//! `audited`: the command carries what the audit notes of a boot, with the weighers' words on four
//! hosts, as the leader writes it; the audit is full, so that each entry pushes one out.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_domain::audit::{Chosen, Points, Ranked, RequestSummary};
use berth_domain::claim::{self, Claim, Owner};
use berth_domain::constraint::{Demand, PreparedDemand};
use berth_domain::id::{ClaimId, ProviderId, TimeMs, VmUid};
use berth_domain::name::FlavorName;
use berth_domain::numa::Strategy;
use berth_domain::operation::{Mark, Step};
use berth_domain::vm::VmSpec;
use berth_state::State;
use berth_state::apply::AUDIT_MAX;
use berth_state::command::{Command, Effect, Envelope, LeaseRequest};
use berth_testkit::state::{
    conductor, host_name, operation_id, pinned, report, topology, uuid, vm_name,
};

const HOSTS: u64 = 1_000;
const GUESTS_PER_HOST: u64 = 22;
const SAMPLES: u64 = 6_000;

fn envelope(command: Command) -> Envelope {
    Envelope {
        at: TimeMs(1_000_000),
        principal: "unverified:bench".to_owned(),
        request: None,
        audit: None,
        command,
    }
}

fn begin(state: &State, spec: &VmSpec, number: u64) -> Envelope {
    let host = host_name(&format!("h{}", number % HOSTS));
    let demand = Demand::boot(spec).expect("the specification is valid");
    let view = state.host(&host).expect("the host is there");
    let assignment = PreparedDemand::new(&demand)
        .place(view, Strategy::Spread)
        .expect("the host has room");
    let vm = vm_name(&format!("vm{number}"));
    envelope(Command::BeginBoot {
        operation: operation_id(number),
        vm: vm.clone(),
        uid: VmUid(uuid(4, number)),
        spec: Box::new(spec.clone()),
        requested_host: None,
        claim: Claim {
            id: ClaimId(uuid(3, number.wrapping_mul(0x9E37_79B9_7F4A_7C15))),
            vm,
            owner: Owner::Vm,
            host,
            state: claim::State::Held,
            resources: demand.resources,
            assignment,
            erasures: Default::default(),
            cpu: None,
        },
        lease: LeaseRequest {
            conductor: conductor("c1"),
            ttl_ms: 10_000,
        },
        project: None,
        restart: Default::default(),
        first_boot: None,
        metadata: Default::default(),
    })
}

/// Returns what the audit notes of a boot.
fn noted(number: u64) -> Box<RequestSummary> {
    let ranked = |place: u64| Ranked {
        host: host_name(&format!("h{}", (number + place) % HOSTS)),
        points: ["load", "numa", "pci", "fragmentation"]
            .map(|weigher| Points {
                weigher: weigher.into(),
                points: 6_553_500,
            })
            .to_vec(),
    };
    Box::new(RequestSummary {
        method: "ScheduleVm".to_owned(),
        request_id: None,
        vm: Some(vm_name(&format!("vm{number}"))),
        host: None,
        summary: "flavor=pinned".to_owned(),
        choice: Some(Arc::new(Chosen {
            host: host_name(&format!("h{}", number % HOSTS)),
            hosts: 1_000,
            passed: 1_000,
            tried: 1,
            ranking: (0..4).map(ranked).collect(),
        })),
    })
}

/// Fills the audit.
fn fill_audit(state: &mut State, revision: u64) {
    let refused = Command::DeleteFlavor {
        flavor: FlavorName::new("unknown").expect("a name"),
    };
    for number in 0..AUDIT_MAX as u64 {
        let filled = Envelope {
            audit: Some(noted(number)),
            ..envelope(refused.clone())
        };
        // What is refused is noted too.
        assert!(state.speculate(revision + number, &filled).is_err());
    }
}

fn finish(state: &mut State, number: u64) {
    let operation = operation_id(number);
    let lease = state.operation(operation).and_then(|o| o.lease.clone());
    let epoch = lease.expect("the boot runs").epoch;
    for (mark, effect) in [
        (Mark::Started, Effect::None),
        (Mark::Succeeded, Effect::CompleteBoot),
    ] {
        let step = Step::Spawn;
        let advance = Command::Advance {
            operation,
            epoch,
            step,
            mark,
            effect,
        };
        state
            .speculate(0, &envelope(advance))
            .expect("the boot goes on");
    }
}

fn loaded(spec: &VmSpec) -> State {
    let mut state = State::new();
    for number in 0..HOSTS {
        let register = Command::RegisterHost {
            host: host_name(&format!("h{number}")),
            provider: ProviderId(uuid(2, number)),
            report: {
                let mut report = report(topology(8, 8, 2));
                report.disk_gib = 0;
                report
            },
        };
        state
            .speculate(0, &envelope(register))
            .expect("the host is new");
    }
    for number in 0..HOSTS * GUESTS_PER_HOST {
        let begin = begin(&state, spec, number);
        state.speculate(0, &begin).expect("the host has room");
        finish(&mut state, number);
    }
    state
}

fn report_times(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    let sum: Duration = times.iter().sum();
    let mean = sum / u32::try_from(times.len()).expect("some thousands");
    println!(
        "{name:28} mean {mean:>9.2?}  p50 {:>9.2?}  p99 {:>9.2?}",
        at(50),
        at(99)
    );
}

fn main() {
    let spec = pinned(2);
    let state = loaded(&spec);
    println!("{HOSTS} hosts of 8 cells, {} guests", state.vms().len());
    for (name, shared, changes, audited) in [
        ("speculate, alone", false, false, false),
        ("speculate, alone, audited", false, false, true),
        ("speculate, shared", true, false, false),
        ("speculate, shared, audited", true, false, true),
        ("apply, alone", false, true, false),
        ("apply, alone, audited", false, true, true),
        ("apply, shared", true, true, false),
        ("apply, shared, audited", true, true, true),
    ] {
        let mut copy = State::from_rows(state.rows()).expect("the rows are sound");
        fill_audit(&mut copy, 1);
        let mut times = Vec::new();
        for number in 0..SAMPLES {
            let mut begin = begin(&copy, &spec, HOSTS * GUESTS_PER_HOST + number);
            begin.audit = audited.then(|| noted(number));
            let number = number + AUDIT_MAX as u64;
            let kept = shared.then(|| copy.clone());
            let start = Instant::now();
            if changes {
                black_box(copy.apply(1 + number, black_box(&begin)).outcome.is_ok());
            } else {
                black_box(copy.speculate(1 + number, black_box(&begin)).is_ok());
            }
            times.push(start.elapsed());
            drop(kept);
        }
        report_times(name, times);
    }
    let start = Instant::now();
    state.check().expect("the state is sound");
    println!("check() takes {:.2?}", start.elapsed());
}
