//! Stops that other members cause, and those for versions.

use std::fs;

use berth_domain::version::ServiceVersion;
use berth_scheduler::stop::Reason;
use berth_store::{Disk as _, FileDisk, Row, StateHash, TableStore as _};

use super::single::{Group, Single, copy, status, stops};
use crate::common::eventually;

/// The directory of a member is put back as it was before later writes, while a leader runs that
/// knows what the member acknowledged.
pub(super) async fn rolled_back() {
    let mut group = Group::start(&[]).await;
    group.leads(0).await;
    group.kill(2);
    let older = group.path("older");
    copy(&group.directory(2), &older);
    group.spawn(2, &[]);
    group.serves().await;
    group.leads(0).await;
    group.write(20).await;
    group.serves().await;
    group.kill(2);
    fs::remove_dir_all(group.directory(2)).expect("a directory");
    fs::rename(older, group.directory(2)).expect("it is put back");
    group.spawn(2, &[]);
    group.stops(2, Reason::RolledBack).await;
    group.replace(2).await;
}

/// Members 1 and 2 go on without what 0 and 1 acknowledged, since the directory of 1 was put back.
/// Then 0 comes back. The history of 1 and 2 is chosen.
pub(super) async fn two_histories() {
    let mut group = Group::start(&[]).await;
    group.leads(0).await;
    group.kill(2);
    group.kill(1);
    let older = group.path("older");
    copy(&group.directory(1), &older);
    group.spawn(1, &[]);
    group.write(20).await;
    let lost = group.term(0).await;
    group.kill(1);
    group.kill(0);
    fs::remove_dir_all(group.directory(1)).expect("a directory");
    fs::rename(older, group.directory(1)).expect("it is put back");
    group.spawn(1, &[]);
    group.spawn(2, &[]);
    group.write(80).await;
    // On a busy machine 0 was elected more than once meanwhile, and would lead again with its history.
    while group.term(1).await <= lost {
        group.leads(1).await;
        group.leads(2).await;
    }
    group.spawn(0, &[]);
    group.stops(0, Reason::TwoHistories).await;
    group.replace(0).await;
}

/// A row is taken out of the table of a stopped member, with a description that fits: nothing on
/// the disk is wrong, and the state is another than the leader's.
pub(super) async fn diverged() {
    let mut group = Group::start(&[]).await;
    group.leads(0).await;
    group.write(3).await;
    group.serves().await;
    let stopped = group.processes[2].take().expect("it runs");
    stopped.terminate().await;
    lose_a_row(&group);
    group.spawn(2, &[]);
    // States are compared after commands; those above may be compared before the member stopped.
    group.write(1).await;
    group.stops(2, Reason::Diverged).await;
    group.replace(2).await;
}

fn lose_a_row(group: &Group) {
    let mut parts = FileDisk::open(&group.directory(2)).expect("a disk").split();
    let mut meta = parts.table.meta().expect("meta").expect("a description");
    let rows: Vec<Row> = parts.table.rows().map(|row| row.expect("a row")).collect();
    let name = group.kept().as_bytes();
    let holds = |row: &Row| row.value.windows(name.len()).any(|part| part == name);
    let lost: Vec<&Row> = rows.iter().filter(|row| holds(row)).collect();
    let lost = lost.first().expect("the row of the flavor");
    let left = rows.iter().filter(|row| row.key != lost.key).cloned();
    meta.state_hash = StateHash::of_rows(left).to_bytes().into();
    meta.rows -= 1;
    let batch = vec![(lost.key.clone(), None)];
    parts.table.write(batch, Some(&meta)).expect("a write");
    parts.table.flush().expect("a flush");
}

pub(super) async fn removed() {
    let mut group = Group::start(&[]).await;
    group.leads(0).await;
    group.remove(2).await;
    group.stops(2, Reason::Removed).await;
    // Starting it again does not help.
    stops(Reason::Removed, group.process(2, &[])).await;
    fs::remove_dir_all(group.directory(2)).expect("a directory");
    group.join_again(2).await;
}

pub(super) async fn join_refused() {
    let mut group = Group::start(&[]).await;
    group.remove(2).await;
    group.stops(2, Reason::Removed).await;
    fs::remove_dir_all(group.directory(2)).expect("a directory");
    let first = group.addresses[0].clone();
    let old = ["--join", first.as_str(), "--service-version", "1"];
    stops(Reason::JoinFailed, group.process(2, &old)).await;
    group.join_again(2).await;
}

/// Long elections, so that no leader's entries reach a member before it has queried the others.
const NO_ELECTION: &str = "raft_tick_ms = 10000\n";

/// The cluster version is raised while a member is killed that had reported the newest service
/// version. It starts as an older one beside a member that knows of it.
pub(super) async fn outdated() {
    let mut group = Group::start(&["--service-version", "1"]).await;
    for number in 0..3 {
        group.kill(number);
        group.spawn(number, &[]);
        group.serves().await;
    }
    group.leads(0).await;
    let halted = group.processes[2].take().expect("it runs");
    halted.halt();
    group.finalize(ServiceVersion::CURRENT.0).await;
    drop(halted);
    // Stopped, not killed: the table has the version then.
    let stopped = group.processes[0].take().expect("it runs");
    stopped.terminate().await;
    group.kill(1);

    let file = group.path("slow.toml");
    fs::write(&file, NO_ELECTION).expect("a file");
    let config = ["--config", file.to_str().expect("a name")];
    group.spawn(0, &config);
    eventually("a member that is there", || status(&group.addresses[0])).await;
    let old = [&config[..], &["--service-version", "1"]].concat();
    stops(Reason::Outdated, group.process(2, &old)).await;
    group.kill(0);
    for number in 0..3 {
        group.spawn(number, &[]);
    }
    group.serves().await;
}

pub(super) async fn newer_command() {
    let mut single = Single::used().await;
    single
        .stops(Reason::NewerCommand, &["--service-version", "1"])
        .await;
    single.serves(&[]).await;
}

pub(super) async fn newer_checkpoint() {
    let mut single = Single::new();
    let file = single.file("often.toml", "checkpoint_entries = 100\n");
    let running = single.serves(&["--bootstrap", "--config", &file]).await;
    let checkpoints = single.directory().join(berth_store::folders::CHECKPOINTS);
    // Not the one that a new cluster begins with, nor one that is being written.
    let is_written = || {
        let entries = fs::read_dir(&checkpoints).expect("a folder");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let named = names.filter(|name| name.to_string_lossy().starts_with("checkpoint-"));
        (named.count() > 1).then_some(())
    };
    for _ in 0..120 {
        single.answers().await;
    }
    eventually("a checkpoint", || async { is_written() }).await;
    drop(running);
    single
        .stops(Reason::StateUnreadable, &["--service-version", "1"])
        .await;
    single.serves(&[]).await;
}
