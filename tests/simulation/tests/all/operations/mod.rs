//! Goal: whatever happens at whatever step of whatever operation, the operation ends, every
//! invariant of the state holds at every moment, no guest ever runs twice or without a claim, and
//! nothing is left over: no claim, no guest, no operation. Where a host died for good, its VM can be
//! evacuated afterwards, and is.
//!
//! Method: the real state, the real decisions, the real sagas, the real cores of the agents and
//! simulated hypervisors, under a virtual clock. The sites at which an operation asks an agent are
//! taken from a run without faults, so that a new step is met by every fault without a word here;
//! and a new kind of operation does not compile until it has a story in [`stories`]. Each run
//! asserts that its fault happened where it was meant to.

mod death;
mod faults;
mod race;
mod stories;
mod world;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use berth_domain::operation::Step;
use berth_saga::plan::Undo;
use faults::{FAULTS, Fault, Script, Site};
use stories::STORIES;
use world::{Death, World};

/// The sites that a story comes to when nothing goes wrong, or when a step is refused.
fn sites(begun: &World, scripts: &[Script]) -> Vec<Site> {
    let mut world = begun.clone();
    world.script(scripts);
    world.run(None);
    let mut sites = Vec::new();
    for site in world.visited {
        if !sites.contains(&site) {
            sites.push(site);
        }
    }
    sites
}

/// Every fault at every site, and at every site of the undo of every step.
fn cases(begun: &World) -> Vec<Vec<Script>> {
    let mut cases = vec![Vec::new()];
    for site in sites(begun, &[]) {
        cases.extend(FAULTS.map(|fault| vec![Script { site, fault }]));
        let refused = Script {
            site,
            fault: Fault::Refuse,
        };
        for undo in sites(begun, &[refused]).into_iter().filter(|s| s.undo) {
            let then = |fault| vec![refused, Script { site: undo, fault }];
            cases.extend(FAULTS.map(then));
        }
    }
    cases
}

fn check(mut ended: World) {
    ended.check_end();
    ended.check_can_be_evacuated();
}

/// Goal: as in the file's header. Method: stories x sites x faults.
#[test]
fn every_step_of_every_operation_meets_every_fault() {
    let mut report = String::new();
    let mut total = 0;
    for story in STORIES {
        let begun = World::at(story);
        let cases = cases(&begun);
        for scripts in &cases {
            let mut world = begun.clone();
            world.script(scripts);
            world.run(None);
            world.assert_happened();
            check(world);
        }
        writeln!(report, "{:<28} {:>5} cases", story.name, cases.len()).expect("memory");
        total += cases.len();
    }
    println!("{report}{total} combinations of step and fault");
}

/// Has the conductor die at every effect of a case; returns how often it did.
///
/// What happens before a death is the same for all of them: it is gone through once, and each death
/// goes on with a copy of the world.
fn deaths(begun: &World, scripts: &[Script]) -> usize {
    let mut world = begun.clone();
    world.script(scripts);
    let mut conductor = world.conductor();
    for number in 1.. {
        for death in [Death::Before(number), Death::After(number)] {
            let mut world = world.clone();
            world.finish(conductor.clone(), Some(death));
            check(world);
        }
        if !world.goes_on(&mut conductor, None) {
            return 2 * number;
        }
    }
    unreachable!("goes_on ends")
}

/// Returns the sum of what `count` says of each; every core takes the next one that is left.
fn on_all_cores<T: Sync>(all: &[T], count: impl Fn(&T) -> usize + Sync) -> usize {
    let next = AtomicUsize::new(0);
    let take = || std::iter::from_fn(|| all.get(next.fetch_add(1, Ordering::Relaxed)));
    let work = || take().map(&count).sum::<usize>();
    let cores = thread::available_parallelism().map_or(1, Into::into);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let sums = workers.into_iter().map(|worker| worker.join());
        sums.map(|sum| sum.expect("its panic was printed")).sum()
    })
}

/// Goal: the conductor may die before and after everything that it does, whatever else goes wrong.
/// Method: for every case of the test above, a death at every effect; another conductor takes over.
#[test]
fn every_operation_survives_its_conductor() {
    let begun: Vec<World> = STORIES.iter().map(World::at).collect();
    let of = |begun| cases(begun).into_iter().map(move |case| (begun, case));
    let all: Vec<(&World, Vec<Script>)> = begun.iter().flat_map(of).collect();
    let runs = on_all_cores(&all, |(begun, scripts)| deaths(begun, scripts));
    println!("{runs} deaths of a conductor");
    assert!(runs > 10_000, "only {runs}");
}

/// Goal: no step is forgotten. Method: the steps of the lists that ask an agent, and those that the
/// stories come to, are the same; and so are the undos.
#[test]
fn the_stories_come_to_every_step() {
    let mut planned: BTreeSet<(Step, bool)> = BTreeSet::new();
    let mut visited = BTreeSet::new();
    for story in STORIES {
        let begun = World::at(story);
        for step in berth_saga::steps(&begun.kind()) {
            if step.step != Step::Claim {
                planned.insert((step.step, false));
            }
            if step.undo == Undo::CallAgent {
                planned.insert((step.step, true));
            }
        }
        for site in sites(&begun, &[]) {
            visited.insert((site.step, false));
            let fault = Fault::Refuse;
            let refused = [Script { site, fault }];
            let undos = sites(&begun, &refused).into_iter().filter(|s| s.undo);
            visited.extend(undos.map(|s| (s.step, true)));
        }
    }
    // What is asked after a transfer, to clean up, is no undo of the list.
    visited.remove(&(Step::Settle, true));
    assert_eq!(planned, visited);
}
