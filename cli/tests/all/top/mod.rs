//! `berth top`: its model, its feed, its keys, its pictures, and the program on a terminal.
//!
//! | module | what it tests |
//! |---|---|
//! | `model` | the model after random changes of a state |
//! | `feed` | messages of a watch, and watches that break off |
//! | `pictures` | what is drawn, at any size and after any keys |
//! | `terminal` | the program on a pseudo terminal, over a cluster of `berth dev` |

mod emulator;
mod feed;
mod model;
mod pictures;
mod terminal;

use std::collections::BTreeMap;

use berth_domain::event::{Name, Record};
use berth_scheduler::feed::record;
use berth_state::State;

/// Returns what a watch of all but the audit sends of a state.
fn records(state: &State) -> BTreeMap<Name, Record> {
    let records = state.rows().filter_map(record);
    let records = records.filter(|record| !matches!(record, Record::Audit(_)));
    records.map(|record| (record.name(), record)).collect()
}
