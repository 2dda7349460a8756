//! How long one claim takes to apply: `cargo bench -p berth-state`.
//!
//! 1,000 hosts of 8 cells, 70 % of the dedicated CPUs taken by guests with two each; then further
//! boots begin, spread over all hosts. `alone`: nobody else holds the state. `shared`: a clone is
//! taken before each command and kept until after it, so that every node that is written is copied.

#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;
use std::time::{Duration, Instant};

use berth_domain::claim::{self, Claim, Owner};
use berth_domain::constraint::{Applicant, Demand};
use berth_domain::id::{ClaimId, ProviderId, TimeMs, VmUid};
use berth_domain::numa::Strategy;
use berth_domain::operation::{Mark, Step};
use berth_domain::vm::VmSpec;
use berth_state::State;
use berth_state::command::{Command, Effect, Envelope, LeaseRequest};
use support::{conductor, host_name, operation_id, pinned, report, topology, uuid, vm_name};

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
    let assignment = Applicant::new(&demand)
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
        },
        lease: LeaseRequest {
            conductor: conductor("c1"),
            ttl_ms: 10_000,
        },
    })
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
        "{name:24} mean {mean:>9.2?}  p50 {:>9.2?}  p99 {:>9.2?}",
        at(50),
        at(99)
    );
}

fn main() {
    let spec = pinned(2);
    let state = loaded(&spec);
    println!("{HOSTS} hosts of 8 cells, {} guests", state.vms().len());
    for (name, shared, changes) in [
        ("speculate, alone", false, false),
        ("speculate, shared", true, false),
        ("apply, alone", false, true),
        ("apply, shared", true, true),
    ] {
        let mut copy = State::from_rows(state.rows()).expect("the rows are sound");
        let mut times = Vec::new();
        for number in 0..SAMPLES {
            let begin = begin(&copy, &spec, HOSTS * GUESTS_PER_HOST + number);
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
