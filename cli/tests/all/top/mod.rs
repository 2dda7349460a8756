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
use berth_state::{Row, State};

/// Returns the record of a row, if a watch sends it.
fn record(row: Row) -> Option<Record> {
    match row {
        Row::Vm(vm) => Some(Record::Vm(vm)),
        Row::Migration(migration) => Some(Record::Migration(migration)),
        Row::Host(host) => Some(Record::Host(host)),
        Row::Claim(claim) => Some(Record::Claim(claim)),
        Row::Operation(operation) => Some(Record::Operation(operation)),
        Row::Audit(_)
        | Row::Header(_)
        | Row::Provider(_)
        | Row::Consumer(_)
        | Row::Flavor(_)
        | Row::Service(_)
        | Row::Request(_)
        | Row::Class(_)
        | Row::Trait(_)
        | Row::Policy(_)
        | Row::PciAlias(_)
        | Row::ServerGroup(_)
        | Row::Aggregate(_)
        | Row::Volume(_)
        | Row::RevokedCertificate(_)
        | Row::RecoveredHost(_) => None,
    }
}

/// Returns what a watch sends of a state.
fn records(state: &State) -> BTreeMap<Name, Record> {
    let records = state.rows().filter_map(record);
    records.map(|record| (record.name(), record)).collect()
}
