//! What `berth top` costs in a large cluster: the time and the memory of its model, and the time of a
//! picture.
//!
//! Method: a state of 10,000 hosts with 10 VMs each. Its records are copied as if they had come by the wire,
//! and applied as a snapshot; then each claim and each VM is applied again, as a change. Pictures are drawn
//! of each view with 200 x 50 cells. Memory is what the process has resident, before and after.
//!
//! Nothing is asserted: the figures are for people. `cargo bench -p berth-cli --bench top`

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use berth_cli::top::app::{App, View};
use berth_cli::top::frame;
use berth_cli::top::key::Key;
use berth_cli::top::model::Model;
use berth_cli::top::moment::Now;
use berth_cli::top::paint::Terminal;
use berth_domain::event::{Change, Record};
use berth_domain::host::Host;
use berth_domain::id::TimeMs;
use berth_domain::version::ServiceVersion;
use berth_scheduler::feed::record;
use berth_state::Row;
use berth_testkit::state::scale::{Size, state};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Returns the resident memory in MiB.
fn resident_mib() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = pages.split(' ').nth(1).and_then(|text| text.parse().ok());
    pages.unwrap_or(0u64) * 4096 / (1 << 20)
}

/// Returns a record that shares nothing with the row, if a watch of all but the audit sends it.
fn copied(row: Row) -> Option<Record> {
    match record(row)? {
        Record::Vm(vm) => Some(Record::Vm(Arc::new((*vm).clone()))),
        Record::Migration(migration) => Some(Record::Migration(Arc::new((*migration).clone()))),
        Record::Host(host) => {
            let mut host = Host::clone(&host);
            host.report.topology = Arc::new((*host.report.topology).clone());
            Some(Record::Host(Arc::new(host)))
        }
        Record::Claim(claim) => Some(Record::Claim(Arc::new((*claim).clone()))),
        Record::Operation(operation) => Some(Record::Operation(Arc::new((*operation).clone()))),
        Record::Audit(_) => None,
    }
}

fn main() {
    let size = Size {
        hosts: 10_000,
        vms_per_host: 10,
        seed: 1,
        version: ServiceVersion::CURRENT,
    };
    let state = state(size);
    let before = resident_mib();
    let mut app = App::default();
    app.feed.opened(0);
    let begin = Instant::now();
    let mut model = Model::default();
    let mut records = 0;
    for record in state.rows().filter_map(copied) {
        model.apply(Change::Put(record));
        records += 1;
    }
    let took = begin.elapsed();
    let memory = resident_mib().saturating_sub(before);
    println!("snapshot of {records} records: {took:.2?}, {memory} MiB resident (copying included)");

    let changes: Vec<Record> = state.rows().filter_map(copied).collect();
    let begin = Instant::now();
    let mut changed = 0;
    for record in changes {
        if matches!(record, Record::Claim(_) | Record::Vm(_)) {
            model.apply(Change::Put(record));
            changed += 1;
        }
    }
    let took = begin.elapsed();
    println!("{changed} changes of claims and VMs: {took:.2?}");

    app.feed.replace(model);
    let terminal = Terminal {
        color: true,
        unicode: true,
    };
    let now = Now {
        running: begin.elapsed(),
        clock: TimeMs(0),
    };
    for (key, view) in ['1', '2', '3', '4'].into_iter().zip(View::ALL) {
        app.key(Key::Char(key));
        let begin = Instant::now();
        const PICTURES: u32 = 10;
        for _ in 0..PICTURES {
            let mut buffer = Buffer::empty(Rect::new(0, 0, 200, 50));
            app.drawn = frame::draw(&app, now, terminal, &mut buffer);
            black_box(&buffer);
        }
        let each = begin.elapsed() / PICTURES;
        println!("a picture of the view {}: {each:.2?}", view.title());
    }
}
