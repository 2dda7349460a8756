//! Goal: any member gives its state and the entries behind an earlier one, with and without a leader,
//! and these lead from the one to the other; what does not fit its log is refused. Method: three members
//! on real disks, states read while commands are written, and replays of the entries between them.

use std::path::{Path, PathBuf};

use berth_replication::effects::Replaced;
use berth_replication::runtime::{ArchiveError, Handle, Past};
use berth_replication::{HistoryError, Machine as _, Reached, Replay};
use berth_store::StateHash;
use berth_testkit::replication::group::Group;
use berth_testkit::replication::{Registers, add, set};

type State = Replaced<Registers>;

async fn snapshot(handle: &Handle<Registers>) -> State {
    handle.snapshot().await.expect("it has a state")
}

/// Replays what a member's log has between two states, and compares where that leads.
async fn compare(handle: &Handle<Registers>, earlier: &State, later: &State) {
    let from = Reached::from(earlier.position);
    let entries = handle.log_between(from, later.position.index).await;
    let entries = entries.expect("the log has them");
    let mut replay = Replay::new(earlier.machine.clone(), earlier.position);
    for entry in &entries {
        replay.apply(entry).expect("it is the next one");
    }
    assert_eq!(replay.position(), later.position);
    assert!(replay.machine().rows().eq(later.machine.rows()));
}

async fn settled(handle: &Handle<Registers>, index: u64) -> State {
    loop {
        let state = snapshot(handle).await;
        if state.position.index >= index {
            return state;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_member_gives_what_lies_between_two_states() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut group = Group::start(folder.path(), 3).await;
    let leader = group.leader().await;
    let mut early = Vec::new();
    for member in group.members.values() {
        early.push(snapshot(&member.handle).await);
    }
    let mut last = 0;
    for number in 0..200 {
        // Parts are a megabyte: the log is read in several.
        let value = "v".repeat(if number % 10 == 0 { 200 << 10 } else { 10 });
        let command = match number % 2 {
            0 => set(format!("k{}", number % 30), value),
            _ => add("sum", number),
        };
        last = leader.propose(command).await.expect("commit").index;
    }
    let handles: Vec<_> = group.members.values().map(|m| m.handle.clone()).collect();
    for (handle, early) in handles.iter().zip(&early) {
        let late = settled(handle, last).await;
        compare(handle, early, &late).await;
        compare(handle, &late, &late).await;
        // The state of one member is that of another at the same index.
        compare(&handles[0], early, &late).await;
    }

    // A quorum is lost: the last member goes on to give its own.
    let alone = group.members.pop_last().expect("three members").1;
    while let Some((_, member)) = group.members.pop_first() {
        member.abort().await;
    }
    let late = settled(&alone.handle, last).await;
    compare(&alone.handle, &early[2], &late).await;
    alone.abort().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_the_log_is_refused() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut group = Group::start(folder.path(), 1).await;
    let handle = group.leader().await;
    let early = snapshot(&handle).await;
    for number in 0..20 {
        handle.propose(add("sum", number)).await.expect("commit");
    }
    let late = snapshot(&handle).await;
    let end = late.position.index;
    let read = |reached: Reached| handle.log_between(reached, end);
    let reached = Reached::from(early.position);
    assert!(read(reached).await.is_ok());

    let index = end + 1;
    let beyond = Reached { index, ..reached };
    let expected = HistoryError::NotReached {
        index,
        applied: end,
    };
    assert_eq!(read(beyond).await, Err(expected));
    let term = reached.term + 7;
    let refused = read(Reached { term, ..reached }).await;
    assert!(matches!(refused, Err(HistoryError::OtherTerm { .. })));
    let hash = Some(StateHash::EMPTY);
    let other = Reached {
        hash,
        ..Reached::from(late.position)
    };
    let refused = read(other).await;
    assert!(matches!(refused, Err(HistoryError::OtherState { .. })));
    // Without a hash the term has to do.
    let unknown = Reached {
        hash: None,
        ..other
    };
    assert_eq!(read(unknown).await, Ok(Vec::new()));

    // Two checkpoints later the log begins behind it.
    let mut number = 0;
    while handle.status().await.expect("it runs").first_index <= reached.index + 1 {
        handle.propose(add("sum", number)).await.expect("commit");
        handle.request_checkpoint().await;
        number += 1;
    }
    let refused = read(reached).await;
    assert!(
        matches!(refused, Err(HistoryError::Forgotten { .. })),
        "{refused:?}"
    );

    let member = group.members.pop_first().expect("one member").1;
    let closed = member.handle.clone();
    member.abort().await;
    assert_eq!(
        closed.log_between(reached, end).await,
        Err(HistoryError::Stopped)
    );
}

/// Returns where the entries of an earlier state lead to.
fn replayed(past: Past<Registers>) -> (Vec<berth_store::Row>, u64, StateHash) {
    let Past {
        mut replay,
        entries,
        ..
    } = past;
    for entry in &entries {
        replay.apply(entry).expect("it is the next one");
    }
    let position = replay.position();
    let rows = replay.machine().rows().collect();
    (rows, position.index, position.hash)
}

/// Returns the files of the first member's checkpoints, earliest first.
fn checkpoints(group: &Group) -> Vec<PathBuf> {
    let files = std::fs::read_dir(group.folder().join("m1/checkpoints")).expect("checkpoints");
    let paths = files.flatten().map(|file| file.path());
    let mut paths: Vec<_> = paths.filter(|path| path.extension().is_none()).collect();
    paths.sort();
    paths
}

/// Has a checkpoint of this state written, and the log cut.
async fn checkpoint(group: &Group, handle: &Handle<Registers>, state: &State) {
    let index = state.position.index;
    let name = format!("{index:020}");
    loop {
        handle.request_checkpoint().await;
        let paths = checkpoints(group);
        let newest = paths.last().expect("one from the beginning");
        let first = handle.status().await.expect("it runs").first_index;
        let is_cut = paths[0]
            .to_string_lossy()
            .ends_with(&format!("{:020}", first - 1));
        if newest.to_string_lossy().ends_with(&name) && is_cut {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// Goal: each earlier state as far as the log reaches can be made again, and is the one that was; an
/// earlier one is refused with the first that can be made. Method: a state is noted after each command,
/// while checkpoints replace each other; then every index is requested, also with a damaged checkpoint.
#[tokio::test(flavor = "multi_thread")]
async fn earlier_states_are_made_again() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut group = Group::start(folder.path(), 1).await;
    let handle = group.leader().await;
    let archive = group.members[&1].archive.clone();
    let mut noted = vec![snapshot(&handle).await];
    for number in 0..60 {
        let name = format!("k{}", number % 7);
        handle.propose(add(&name, number)).await.expect("commit");
        noted.push(snapshot(&handle).await);
        if number % 20 == 19 {
            checkpoint(&group, &handle, noted.last().expect("a state")).await;
        }
    }
    let last = noted.last().expect("a state").position.index;
    let (_, end, hash) = replayed(archive.earliest(last).await.expect("a state"));
    assert_eq!((end, hash), (last, noted.last().expect("it").position.hash));
    // The log is shortened a moment after each checkpoint is there, in the end up to the second of three.
    let between = noted[30].position.index;
    let shortened = async {
        while !matches!(
            archive.before(between).await,
            Err(ArchiveError::Forgotten { .. })
        ) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let patience = std::time::Duration::from_secs(60);
    let shortened = tokio::time::timeout(patience, shortened).await;
    shortened.expect("the log is never shortened");
    let mut made = 0;
    for state in &noted {
        let at = state.position.index;
        match archive.before(at).await {
            Ok(past) => {
                let (rows, index, hash) = replayed(past);
                assert_eq!((index, hash), (at, state.position.hash));
                assert!(rows.into_iter().eq(state.machine.rows()));
                made += 1;
            }
            Err(ArchiveError::Forgotten { first }) => {
                assert_eq!(made, 0, "what is earlier is refused");
                assert!(first > at);
            }
            Err(error) => panic!("{error}"),
        }
    }
    // The log reaches back to the second of three checkpoints.
    assert!((20..30).contains(&made), "{made}");
    damaged(&group, last).await;
    let member = group.members.pop_first().expect("one member").1;
    member.abort().await;
    let stopped = archive.before(last).await.err();
    assert!(matches!(
        stopped,
        Some(ArchiveError::Log(HistoryError::Stopped))
    ));
}

/// With either checkpoint damaged the latest state is made of the other one; with both, of none.
async fn damaged(group: &Group, last: u64) {
    let archive = &group.members[&1].archive;
    let (rows, index, hash) = replayed(archive.before(last).await.expect("a state"));
    let paths = checkpoints(group);
    assert_eq!(paths.len(), 2);
    for path in &paths {
        flip(path);
        for past in [archive.before(last).await, archive.earliest(last).await] {
            let made = replayed(past.expect("of the other one"));
            assert_eq!(made, (rows.clone(), index, hash), "{}", path.display());
        }
        flip(path);
    }
    paths.iter().for_each(|path| flip(path));
    for past in [archive.before(last).await, archive.earliest(last).await] {
        let refused = past.err();
        let is_damaged = matches!(refused, Some(ArchiveError::Checkpoint { .. }));
        assert!(is_damaged, "{refused:?}");
    }
    paths.iter().for_each(|path| flip(path));
}

/// Flips a bit in the middle of a file.
fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).expect("a checkpoint");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).expect("written");
}
