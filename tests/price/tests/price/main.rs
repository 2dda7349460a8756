//! What a placement decision costs, in figures that do not depend on the machine: allocations, and
//! rows and bytes that are written.
//!
//! Goal: a change that makes decisions dearer is noticed when it is made. Method: the product's
//! replicas and machine decide, replicate and apply a batch of boots and of live migrations over disks
//! in memory; the mean of each figure is compared with `allowed.txt`. One that is above it by more than
//! a few per cent fails, and so does one that is far below, so that the table follows.
//!
//! A binary of its own: its allocator counts. It contains the machine as source text and not the
//! library, whose programs have an allocator of their own.
//!
//! Not here: time. How long it takes is measured by `cargo bench -p berth-tests --bench schedule`.
//!
//! The figures as they are now, to be put into the table:
//!
//! ```text
//! cargo test -p berth-price -- --nocapture
//! ```

mod allocator;
mod group;
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the library's module, of which a part is used"
)]
#[path = "../../../../scheduler/server/src/machine.rs"]
mod machine;
#[allow(
    dead_code,
    reason = "the library's module, which the machine needs; states are not checked here"
)]
#[path = "../../../../scheduler/server/src/parallel_check.rs"]
mod parallel_check;
mod table;
mod world;

use berth_domain::operation::{Mark, Step};
use berth_state::command::Effect;

use crate::allocator::Counting;
use crate::group::Group;
use crate::table::Figures;
use crate::world::{AT, Requests, advance, loaded, migration_steps, operations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How many requests are decided before their commands are replicated together.
const BATCH: usize = 16;
/// How many batches are measured, after one that is not.
const BATCHES: usize = 8;

#[test]
fn a_decision_costs_no_more_than_is_allowed() {
    let mut group = Group::new(loaded());
    let mut requests = Requests::new();
    let mut figures = Figures::default();
    for batch in 0..=BATCHES {
        let mut record = |operation: &str, group: &mut Group| {
            let spent = group.take_spent();
            if batch > 0 {
                figures.add(operation, &spent, BATCH);
            }
        };
        group.take_spent();
        let wave: Vec<_> = (0..BATCH).map(|_| requests.schedule_vm()).collect();
        let boots = operations(group.execute(AT, &wave));
        record("schedule_vm", &mut group);

        let marks = [
            (Mark::Started, Effect::None),
            (Mark::Succeeded, Effect::CompleteBoot),
        ];
        for (mark, effect) in marks {
            let steps = boots.iter();
            let steps = steps.map(|boot| advance(boot, Step::Spawn, mark.clone(), effect.clone()));
            group.execute(AT, &steps.collect::<Vec<_>>());
        }
        record("rest_of_boot", &mut group);

        let wave = boots.iter().map(|boot| requests.schedule_migration(boot));
        let moves = operations(group.execute(AT, &wave.collect::<Vec<_>>()));
        record("schedule_migration", &mut group);

        let steps: Vec<_> = moves.iter().map(|one| migration_steps(one)).collect();
        for at in 0..steps[0].len() {
            let of_all: Vec<_> = steps.iter().map(|steps| steps[at].clone()).collect();
            group.execute(AT, &of_all);
        }
        record("rest_of_migration", &mut group);
    }
    group.state().check().expect("the state is sound");
    figures.compare(include_str!("allowed.txt"));
}
