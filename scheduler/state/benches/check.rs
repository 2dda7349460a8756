//! How long a large state takes to be put together from its rows, to be checked, and to begin a recovery:
//! `cargo bench -p berth-state --bench check -- 3000`, with the number of hosts.
//!
//! 34 VMs run on each host. Beside the time that passed it prints that of the processors, which other
//! programs on the machine change less. Not a test: it passes no judgement.

use std::hint::black_box;
use std::time::{Duration, Instant};

use berth_domain::id::{ClusterId, TimeMs};
use berth_domain::recovery::Cause;
use berth_domain::version::ServiceVersion;
use berth_state::State;
use berth_state::recovery::Begin;
use berth_testkit::state::scale::{self, Size};
use uuid::Uuid;

/// What `/proc/self/stat` counts in.
const TICK: Duration = Duration::from_millis(10);

fn main() {
    let hosts = std::env::args().find_map(|argument| argument.parse().ok());
    let state = measure("generate", || {
        scale::state(Size {
            hosts: hosts.unwrap_or(1_000),
            vms_per_host: 34,
            seed: 1,
            version: ServiceVersion::CURRENT,
        })
    });
    let rows: Vec<_> = state.rows().collect();
    println!("{} hosts, {} rows", state.hosts().len(), rows.len());
    let state = measure("from_rows", || State::from_rows(rows)).expect("the rows belong together");
    measure("check", || state.check()).expect("the state is sound");
    let recovered = measure("recovered", || {
        state.recovered(&Begin {
            cluster: ClusterId(Uuid::from_u128(1)),
            cause: Cause::Restored,
            at: TimeMs(1),
            index: 1,
            level: ServiceVersion::CURRENT,
        })
    });
    black_box(recovered);
}

fn measure<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let (begun, used) = (Instant::now(), processor_time());
    let result = work();
    let (took, used) = (begun.elapsed(), processor_time() - used);
    println!("{what:<12} {took:>9.2?}, {used:>9.2?} on processors");
    result
}

/// Returns what all threads of this process took of the processors.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, which ends with the bracket, may have spaces.
    let after = text.rsplit_once(") ").map_or("", |(_, after)| after);
    let ticks = after.split(' ').skip(11).take(2);
    ticks
        .filter_map(|ticks| ticks.parse().ok())
        .map(|ticks: u32| TICK * ticks)
        .sum()
}
