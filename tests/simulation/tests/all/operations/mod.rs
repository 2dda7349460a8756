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
use stories::{STORIES, Story};
use world::{Death, World};

/// The sites that a story comes to when nothing goes wrong, or when a step is refused.
fn sites(story: &Story, scripts: &[Script]) -> Vec<Site> {
    let mut world = World::at(story);
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
fn cases(story: &Story) -> Vec<Vec<Script>> {
    let mut cases = vec![Vec::new()];
    for site in sites(story, &[]) {
        cases.extend(FAULTS.map(|fault| vec![Script { site, fault }]));
        let refused = Script {
            site,
            fault: Fault::Refuse,
        };
        for undo in sites(story, &[refused]).into_iter().filter(|s| s.undo) {
            let then = |fault| vec![refused, Script { site: undo, fault }];
            cases.extend(FAULTS.map(then));
        }
    }
    cases
}

fn run(story: &Story, scripts: &[Script], death: Option<Death>) -> World {
    let mut world = World::at(story);
    world.script(scripts);
    world.run(death);
    if death.is_none() {
        world.assert_happened();
    }
    world.check_end();
    world.check_can_be_evacuated();
    world
}

/// Goal: as in the file's header. Method: stories x sites x faults.
#[test]
fn every_step_of_every_operation_meets_every_fault() {
    let mut report = String::new();
    let mut total = 0;
    for story in STORIES {
        let cases = cases(story);
        for scripts in &cases {
            run(story, scripts, None);
        }
        writeln!(report, "{:<28} {:>5} cases", story.name, cases.len()).expect("memory");
        total += cases.len();
    }
    println!("{report}{total} combinations of step and fault");
}

/// Has the conductor die at every effect of a case; returns how often it did.
fn deaths(story: &Story, scripts: &[Script]) -> usize {
    let effects = run(story, scripts, None).effects;
    for number in 1..=effects {
        for death in [Death::Before(number), Death::After(number)] {
            run(story, scripts, Some(death));
        }
    }
    2 * effects
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
    let all: Vec<(&Story, Vec<Script>)> = STORIES
        .iter()
        .flat_map(|story| cases(story).into_iter().map(move |case| (story, case)))
        .collect();
    let runs = on_all_cores(&all, |(story, scripts)| deaths(story, scripts));
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
        let world = World::at(story);
        for step in berth_saga::steps(&world.kind()) {
            if step.step != Step::Claim {
                planned.insert((step.step, false));
            }
            if step.undo == Undo::CallAgent {
                planned.insert((step.step, true));
            }
        }
        for site in sites(story, &[]) {
            visited.insert((site.step, false));
            let fault = Fault::Refuse;
            let refused = [Script { site, fault }];
            let undos = sites(story, &refused).into_iter().filter(|s| s.undo);
            visited.extend(undos.map(|s| (s.step, true)));
        }
    }
    // What is asked after a transfer, to clean up, is no undo of the list.
    visited.remove(&(Step::Settle, true));
    assert_eq!(planned, visited);
}
