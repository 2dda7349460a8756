//! How long the end of a recovery takes: `cargo bench -p berth-state --bench recovery -- 10000`, with the
//! number of hosts, and the number of guests that have the places of recorded VMs (default 100).
//!
//! 34 VMs run on each host, and the agents report them twice, as they do. `outcome` is what the leader
//! computes before it proposes the end, `end` is the command as every member applies it, while another
//! copy of the state is kept: every node that is written is copied. Not a test: it passes no judgement.

use std::time::{Duration, Instant};

use berth_domain::id::ClaimId;
use berth_domain::recovery::ReportedGuest;
use berth_domain::version::ServiceVersion;
use berth_state::State;
use berth_state::command::Command;
use berth_testkit::state::World;
use berth_testkit::state::scale::{self, Size};
use uuid::Uuid;

fn main() {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let hosts = numbers.next().unwrap_or(1_000);
    let strays = numbers.next().unwrap_or(100);
    let before = scale::state(Size {
        hosts,
        vms_per_host: 34,
        seed: 1,
        version: ServiceVersion::CURRENT,
    });
    let migrations = before.migrations().len();
    println!(
        "{hosts} hosts, {} VMs, {migrations} migrations",
        before.vms().len()
    );
    let mut world = World::of(before.clone()).without_checks().recovered();
    for host in (0..hosts).map(scale::host) {
        let report = world.view(host.as_str()).host.report.clone();
        world.register(host.as_str(), report).expect("it registers");
    }
    for round in ["first reports", "second reports"] {
        let mut longest = Duration::ZERO;
        let begun = Instant::now();
        for number in 0..hosts {
            let guests = guests(
                &before,
                number,
                strays * (number + 1) / hosts - strays * number / hosts,
            );
            let one = Instant::now();
            world
                .report_guests(scale::host(number).as_str(), &guests)
                .expect("it reports");
            longest = longest.max(one.elapsed());
        }
        println!(
            "{round:<16} {:>9.2?}, longest {longest:.2?}",
            begun.elapsed()
        );
    }
    let outcome = measure("outcome", || world.state.recovery_outcome());
    let outcome = outcome.expect("every host has reported");
    println!(
        "{} differences, {} conflicts",
        outcome.settled.len(),
        outcome.conflicts.len()
    );
    let kept = world.state.clone();
    let accept_conflicts = true;
    measure("end", || {
        world.run(Command::EndRecovery { accept_conflicts })
    })
    .expect("it ends");
    drop(kept);
}

/// Returns what a host has: its guests, some of which no VM is recorded for.
fn guests(state: &State, number: u64, strays: u64) -> Vec<ReportedGuest> {
    let host = scale::host(number);
    let mut guests: Vec<_> = scale::guests(state, &host).collect();
    for (guest, stray) in guests.iter_mut().zip(0..strays) {
        let claim = guest.domain.claim.and_then(|id| state.claim(id));
        let vm = claim.and_then(|claim| state.vm(&claim.vm));
        guest.spec = vm.map(|vm| Box::new(vm.spec.clone()));
        guest.domain.name = format!("unrecorded-{number}-{stray}");
        let id = Uuid::from_u64_pair(number + 1, stray + 1);
        (guest.domain.uuid, guest.domain.claim) = (id, Some(ClaimId(id)));
    }
    guests
}

fn measure<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = work();
    println!("{what:<16} {:>9.2?}", begun.elapsed());
    result
}
