//! What exact N+1 costs: `cargo bench -p berth-selection --bench failover [-- HOSTS…]`.
//!
//! Hosts of 8 cells with about ten guests each, all with CPUs of their own, many with huge pages or
//! PCI functions, at 70 and 85 % of the dedicated CPUs ([`cluster`]). One thread, seed fixed. It
//! prints how long all verdicts take from scratch, how many are open, what one change costs (a claim
//! is placed or released, one host is told of), what is caught up after it where the budget of one
//! change was spent until every verdict is evaluated again (by the clock, and at most in CPU time, which
//! other programs disturb less), how many of them a whole search could
//! still find after as many placements as a change may spend, and what it costs to ask whether a
//! claim would break a proof. At the end all plans are carried out step by step, and all verdicts
//! made again.

mod cluster;

use std::hint::black_box;
use std::time::{Duration, Instant};

use berth_domain::numa::Strategy;
use berth_selection::failover::{Budget, Verdict, VerdictTracker, evaluate};
use cluster::Cluster;

const SEED: u64 = 7;
const CHANGES: usize = 1000;

fn main() {
    let arguments = std::env::args().skip(1);
    let sizes: Vec<usize> = arguments.filter_map(|text| text.parse().ok()).collect();
    let sizes = if sizes.is_empty() {
        vec![100, 1000]
    } else {
        sizes
    };
    println!(
        "| hosts | policy | load % | guests | from scratch s | proven | refuted | unknown | change p50 ms | \
         p99 ms | greatest ms | caught up p99 ms | greatest ms | CPU ms at most | unsearched at most | asking p50 ms | p99 ms | \
         greatest ms | breaks |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for hosts in sizes {
        for strategy in [Strategy::Spread, Strategy::Pack] {
            for load in [0.7, 0.85] {
                measure(hosts, strategy, load);
            }
        }
    }
}

fn measure(hosts: usize, strategy: Strategy, load: f64) {
    let mut cluster = Cluster::new(hosts, strategy, SEED);
    cluster.fill(load);
    let guests = cluster.guests.len();
    let fleet = cluster.fleet();
    let start = Instant::now();
    let mut tracker = VerdictTracker::new(fleet, Vec::new(), Budget::default());
    let scratch = start.elapsed().as_secs_f64();
    let tally = tracker.tally();
    let (mut changes, mut behind, mut asked) = (Vec::new(), Vec::new(), Vec::new());
    let (mut breaks, mut unsearched) = (0, 0);
    let mut cpu_max = Duration::ZERO;
    for turn in 0..CHANGES {
        // As many come as go: the load stays.
        let host = if turn % 2 == 0 {
            cluster.depart()
        } else {
            let Some(guest) = cluster.choose() else {
                continue;
            };
            let start = Instant::now();
            let broken = black_box(tracker.would_break(&guest)).expect("a host of the fleet");
            asked.push(start.elapsed());
            breaks += usize::from(!broken.is_empty());
            cluster.arrive(guest)
        };
        let (view, guests) = cluster.host(&host);
        let start = Instant::now();
        black_box(tracker.renew(&view, guests)).expect("hosts as they are");
        changes.push(start.elapsed());
        let (start, cpu) = (Instant::now(), cpu_time());
        while tracker.is_behind() {
            black_box(tracker.catch_up(Budget::default().per_change));
        }
        behind.push(start.elapsed());
        cpu_max = cpu_max.max(cpu_time().saturating_sub(cpu));
        unsearched = unsearched.max(tracker.unsearched());
        black_box(tracker.catch_up(Budget::default().per_change));
    }
    let [change, change_p99, change_max] = percentiles(&changes);
    let [_, behind_p99, behind_max] = percentiles(&behind);
    let [ask, ask_p99, ask_max] = percentiles(&asked);
    println!(
        "| {hosts} | {strategy:?} | {:.0} | {guests} | {scratch:.3} | {} | {} | {} | {change:.3} | {change_p99:.3} | \
         {change_max:.1} | {behind_p99:.1} | {behind_max:.1} | {:.1} | {unsearched} | {ask:.3} | {ask_p99:.3} | {ask_max:.1} | {breaks} of {} |",
        load * 100.0,
        tally.proven,
        tally.refuted,
        tally.unknown,
        cpu_max.as_secs_f64() * 1e3,
        asked.len(),
    );
    check(&tracker, &cluster);
}

/// Carries out all plans, and makes all verdicts anew.
fn check(tracker: &VerdictTracker, cluster: &Cluster) {
    let mut fleet = cluster.fleet();
    let mut differ = 0;
    for (domain, verdict) in tracker.verdicts() {
        if let Verdict::Proven(plan) = verdict {
            plan.verify(&mut fleet, domain)
                .expect("a plan that can be carried out");
        }
        let anew = evaluate(&mut fleet, domain, Budget::default());
        let is_same = std::mem::discriminant(verdict) == std::mem::discriminant(&anew);
        differ += usize::from(!is_same);
    }
    let tally = tracker.tally();
    eprintln!(
        "after {CHANGES} changes: {tally:?}, all plans carried out, {differ} verdicts differ from \
         those made again"
    );
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// Returns the median, the 99th percentile and the greatest, in milliseconds.
fn percentiles(times: &[Duration]) -> [f64; 3] {
    let mut millis: Vec<f64> = times.iter().map(|t| t.as_secs_f64() * 1e3).collect();
    millis.sort_by(f64::total_cmp);
    let at = |part: f64| millis[((millis.len() - 1) as f64 * part) as usize];
    [at(0.5), at(0.99), at(1.0)]
}
