//! A state that breaks an invariant although every file is whole, as a fault in the state machine would
//! leave it.

use std::sync::Arc;

use berth_scheduler::stop::Reason;
use berth_state::Row;
use berth_store::{Disk as _, FileDisk, StateHash, TableStore as _};
use berth_testkit::state::{World, pinned, vm_name};

use super::single::Single;

/// A VM is running, and no claim holds its place. The member notices it by itself, and goes on when it
/// is started without looking.
pub(super) async fn vm_without_claim() {
    let mut single = Single::used().await;
    // Its table is there once a member with it has stopped as requested.
    single.serves(&[]).await.terminate().await;
    add_vm(&single);
    let looks = single.file("looks.toml", "invariant_check_interval_ms = 100\n");
    let error = single
        .stops(Reason::InvariantBroken, &["--config", &looks])
        .await;
    assert!(error.contains("vm a"), "{error}");
    let ignores = single.file("ignores.toml", "invariant_check_interval_ms = 0\n");
    drop(single.serves(&["--config", &ignores]).await);
}

fn add_vm(single: &Single) {
    let mut world = World::with_hosts(1);
    world.boot("a", &pinned(1), "h1");
    let vm = world.state.vm(&vm_name("a")).expect("it is booted");
    let row = berth_codec::encode_row(&Row::Vm(Arc::clone(vm)));
    let mut parts = FileDisk::open(&single.directory()).expect("a disk").split();
    let mut meta = parts.table.meta().expect("meta").expect("a description");
    let rows: Vec<_> = parts.table.rows().map(|row| row.expect("a row")).collect();
    meta.state_hash = StateHash::of_rows(rows.into_iter().chain([row.clone()]))
        .to_bytes()
        .into();
    meta.rows += 1;
    let batch = vec![(row.key, Some(row.value))];
    parts.table.write(batch, Some(&meta)).expect("a write");
    parts.table.flush().expect("a flush");
}
