//! What opening does about every kind of damage.
//!
//! Goal: a state is used only if it verifies; what can be repaired is, and is told; what cannot is
//! a clear refusal. Method: a directory with two checkpoints (10 and 20), the log from 11 to 30 and
//! the table at 25, in which one thing at a time is damaged. The state at index `n` has the rows
//! 2 to `n`.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use berth_store::disk::Parts;
use berth_store::recover::{Error, Source};
use berth_store::{
    Disk as _, FileDisk, Header, Identity, LogBatch, LogStore as _, Member, Membership, Recovered,
    Row, StateHash, TableMeta, TableStore as _, checkpoints, identity, recover,
};
use bytes::Bytes;
use raft::eraftpb::{Entry, HardState};

pub(crate) const CLUSTER: &str = "one";

type State = BTreeMap<Bytes, Bytes>;

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    /// Makes the directory, with the table at this index.
    fn new(table: u64) -> Self {
        let place = Self {
            folder: tempfile::tempdir().expect("temporary folder"),
        };
        let identity = Identity {
            cluster_id: CLUSTER.into(),
            member_id: 1,
            disk_id: "disk".into(),
        };
        let disk = FileDisk::create(&place.path(), identity).expect("create");
        let mut parts = disk.split();
        for index in [10, 20] {
            checkpoints::save(&parts.checkpoints, header(index), rows(index)).expect("save");
        }
        parts
            .log
            .append(LogBatch {
                entries: entries(11, 30, 1),
                hard_state: Some(HardState {
                    term: 1,
                    vote: 1,
                    commit: 28,
                    ..HardState::default()
                }),
                ..LogBatch::default()
            })
            .expect("append");
        parts.log.sync().expect("sync");
        write_table(&mut parts, table);
        place
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("member")
    }

    fn open(&self) -> Parts<FileDisk> {
        FileDisk::open(&self.path()).expect("open").split()
    }

    fn recover(&self) -> Result<Recovered<State>, Error> {
        recover(&mut self.open(), &|rows, _| {
            Ok(rows.map(|row| (row.key, row.value)).collect())
        })
    }

    fn checkpoint(&self, index: u64) -> PathBuf {
        self.path()
            .join(format!("checkpoints/checkpoint-{index:020}"))
    }
}

pub(crate) fn rows(index: u64) -> impl Iterator<Item = Row> {
    (2..=index).map(|n| Row {
        key: format!("row {n:03}").into(),
        value: format!("written at {n}").into(),
    })
}

fn membership() -> Membership {
    Membership::single(Member {
        id: 1,
        ..Member::default()
    })
}

pub(crate) fn header(index: u64) -> Header {
    Header {
        cluster_id: CLUSTER.into(),
        index,
        term: 1,
        membership: membership(),
        state_hash: StateHash::of_rows(rows(index)).to_bytes().into(),
        rows: index - 1,
    }
}

pub(crate) fn entries(first: u64, last: u64, term: u64) -> Vec<Entry> {
    (first..=last)
        .map(|index| Entry {
            index,
            term,
            data: Bytes::from_static(b"command"),
            ..Entry::default()
        })
        .collect()
}

fn write_table(parts: &mut Parts<FileDisk>, index: u64) {
    let header = header(index);
    let meta = TableMeta {
        index,
        term: 1,
        state_hash: header.state_hash,
        rows: header.rows,
        membership: header.membership,
        cluster_id: CLUSTER.into(),
    };
    let batch = rows(index).map(|row| (row.key, Some(row.value))).collect();
    parts.table.clear().expect("clear");
    parts.table.write(batch, Some(&meta)).expect("write");
    parts.table.flush().expect("flush");
}

/// Checks which state is used and that the repair is told in these words.
fn check(found: &Recovered<State>, source: Source, index: u64, told: &[&str]) {
    assert_eq!((found.recovery.source, found.index), (source, index));
    let expected: State = rows(index).map(|row| (row.key, row.value)).collect();
    assert_eq!(found.state.as_ref(), Some(&expected));
    assert_eq!(found.entries.last().map(|e| e.index), Some(30));
    assert_eq!(
        found.recovery.repairs.len(),
        told.len(),
        "{:?}",
        found.recovery
    );
    for (repair, words) in found.recovery.repairs.iter().zip(told) {
        assert!(repair.contains(words), "{repair:?} does not tell {words:?}");
    }
}

fn flip(path: &Path, at: u64) {
    let mut bytes = fs::read(path).expect("read");
    bytes[at as usize] ^= 0x20;
    let mut file = OpenOptions::new().write(true).open(path).expect("open");
    file.seek(SeekFrom::Start(0)).expect("seek");
    file.write_all(&bytes).expect("write");
}

fn truncate(path: &Path, bytes: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("open");
    file.set_len(bytes).expect("truncate");
}

#[test]
fn a_sound_disk_starts_from_the_table() {
    let found = Place::new(25).recover().expect("recover");
    check(&found, Source::Table, 25, &[]);
    assert_eq!(found.hard_state.commit, 28);
    assert_eq!(found.log_start, (10, 1));
    assert!(!found.recovery.rebuild_table);
}

/// Goal: a start makes one state of rows, whichever it starts from: a large one takes seconds, and twice the
/// memory would be needed for two.
#[test]
fn a_state_is_built_once() {
    let with_table = Place::new(25);
    let without = Place::new(25);
    fs::remove_dir_all(without.path().join("table")).expect("remove");
    for place in [with_table, without] {
        let built = Cell::new(0);
        let build = |rows: &mut dyn Iterator<Item = Row>, _| {
            built.set(built.get() + 1);
            Ok(rows.count())
        };
        let found = recover(&mut place.open(), &build).expect("recover");
        assert_eq!(built.get(), 1, "{}", found.recovery);
    }
}

#[test]
fn a_table_ahead_of_the_hard_state_proves_the_commit() {
    let found = Place::new(30).recover().expect("recover");
    check(&found, Source::Table, 30, &[]);
    assert_eq!(found.hard_state.commit, 30);
}

#[test]
fn an_emptied_table_is_rebuilt_from_the_checkpoint() {
    let place = Place::new(25);
    fs::remove_dir_all(place.path().join("table")).expect("remove");
    let found = place.recover().expect("recover");
    check(&found, Source::Checkpoint, 20, &["empty or unfinished"]);
    assert!(found.recovery.rebuild_table);
}

#[test]
fn a_table_behind_the_checkpoint_is_rebuilt() {
    let found = Place::new(15).recover().expect("recover");
    check(&found, Source::Checkpoint, 20, &["behind checkpoint 20"]);
}

#[test]
fn a_table_with_a_changed_row_is_rebuilt() {
    let place = Place::new(25);
    let mut parts = place.open();
    let meta = parts.table.meta().expect("meta");
    let batch = vec![("row 007".into(), Some("something else".into()))];
    parts.table.write(batch, meta.as_ref()).expect("write");
    parts.table.flush().expect("flush");
    drop(parts);
    let found = place.recover().expect("recover");
    check(&found, Source::Checkpoint, 20, &["do not have the hash"]);
}

#[test]
fn a_table_of_another_history_is_rebuilt() {
    let place = Place::new(25);
    let mut parts = place.open();
    // The log was overwritten by a later leader from 24 on.
    parts
        .log
        .append(LogBatch {
            entries: entries(24, 30, 2),
            ..LogBatch::default()
        })
        .expect("append");
    parts.log.sync().expect("sync");
    drop(parts);
    let found = place.recover().expect("recover");
    check(
        &found,
        Source::Checkpoint,
        20,
        &["another entry at index 25"],
    );
    assert_eq!((found.hard_state.term, found.hard_state.vote), (2, 0));
}

/// A table that another handle has is not damaged: it is waited for, and never deleted.
#[test]
fn a_table_in_use_is_kept() {
    let place = Place::new(25);
    let file = fs::File::open(place.path().join("table/db")).expect("the file of sled");
    file.lock().expect("lock");
    let error = FileDisk::open(&place.path()).err().expect("it is locked");
    assert!(format!("{error:?}").contains("InUse"), "{error:?}");
    file.unlock().expect("unlock");
    let found = place.recover().expect("recover");
    check(&found, Source::Table, 25, &[]);
}

#[test]
fn a_table_of_another_cluster_is_rebuilt() {
    let place = Place::new(25);
    let mut parts = place.open();
    let mut meta = parts.table.meta().expect("meta").expect("a description");
    meta.cluster_id = "another".into();
    parts.table.write(Vec::new(), Some(&meta)).expect("write");
    parts.table.flush().expect("flush");
    drop(parts);
    let found = place.recover().expect("recover");
    check(
        &found,
        Source::Checkpoint,
        20,
        &["belongs to another cluster"],
    );
}

#[test]
fn a_table_ahead_of_the_log_stops_the_member() {
    let error = Place::new(33).recover().expect_err("entries were lost");
    assert!(matches!(error, Error::LogLost { table: 33, log: 30 }));
}

#[test]
fn a_damaged_newest_checkpoint_falls_back_to_the_one_before() {
    let damages: [fn(&Path); 3] = [
        |path| flip(path, 30),
        |path| flip(path, 300),
        |path| truncate(path, 200),
    ];
    for damage in damages {
        let place = Place::new(25);
        damage(&place.checkpoint(20));
        fs::remove_dir_all(place.path().join("table")).expect("remove");
        let found = place.recover().expect("recover");
        let told = ["checkpoint 20", "empty or unfinished"];
        check(&found, Source::OlderCheckpoint, 10, &told);
        // The damaged one is out of the way of the next.
        assert!(!place.checkpoint(20).exists());
    }
}

#[test]
fn a_damaged_newest_checkpoint_beside_a_good_table_costs_nothing() {
    let place = Place::new(25);
    truncate(&place.checkpoint(20), 0);
    let found = place.recover().expect("recover");
    check(&found, Source::Table, 25, &["cut short in its header"]);
    assert_eq!(found.checkpoint.map(|c| c.index), Some(10));
}

#[test]
fn two_damaged_checkpoints_are_a_clear_error() {
    let place = Place::new(25);
    flip(&place.checkpoint(10), 200);
    flip(&place.checkpoint(20), 200);
    let error = place.recover().expect_err("nothing is left");
    let text = error.to_string();
    assert!(matches!(error, Error::NoCheckpoint { .. }));
    assert!(
        text.contains("checkpoint 10") && text.contains("checkpoint 20"),
        "{text}"
    );
    // Nothing was removed: somebody may want to look at them.
    assert!(place.checkpoint(10).exists() && place.checkpoint(20).exists());
}

#[test]
fn an_older_checkpoint_that_the_log_does_not_continue_is_no_help() {
    let place = Place::new(25);
    place.open().log.compact(15).expect("compact");
    flip(&place.checkpoint(20), 300);
    let error = place.recover().expect_err("11 to 14 are missing");
    assert!(
        error.to_string().contains("does not continue it"),
        "{error}"
    );
}

#[test]
fn lost_checkpoints_beside_a_log_are_no_fresh_member() {
    let place = Place::new(25);
    for index in [10, 20] {
        fs::remove_file(place.checkpoint(index)).expect("remove");
    }
    let error = place.recover().expect_err("no state");
    assert!(matches!(error, Error::NoCheckpoint { .. }), "{error}");
}

#[test]
fn a_checkpoint_of_another_cluster_is_refused() {
    let place = Place::new(25);
    let foreign = Header {
        cluster_id: "another".into(),
        ..header(29)
    };
    checkpoints::save(&place.open().checkpoints, foreign, rows(29)).expect("save");
    let error = place.recover().expect_err("not ours");
    assert!(
        matches!(error, Error::OtherCluster { index: 29, .. }),
        "{error}"
    );
}

#[test]
fn a_snapshot_whose_log_was_not_reset_wins() {
    // The process ended between giving the snapshot its name and resetting the log.
    let place = Place::new(25);
    checkpoints::save(&place.open().checkpoints, header(50), rows(50)).expect("save");
    let found = place.recover().expect("recover");
    assert_eq!(
        (found.recovery.source, found.index),
        (Source::Checkpoint, 50)
    );
    assert_eq!(found.entries, vec![]);
    assert_eq!(found.log_start, (50, 1));
    assert_eq!(found.hard_state.commit, 50);
    let told = found.recovery.repairs.join("\n");
    assert!(told.contains("older than checkpoint 50"), "{told}");
    // The next leader's entries follow the snapshot, and the next start finds them.
    let mut parts = place.open();
    parts
        .log
        .append(LogBatch {
            entries: entries(51, 53, 2),
            ..LogBatch::default()
        })
        .expect("append");
    parts.log.sync().expect("sync");
    drop(parts);
    let found = place.recover().expect("recover");
    assert_eq!(found.entries, entries(51, 53, 2));
}

#[test]
fn an_empty_disk_of_a_known_member_waits_for_a_snapshot() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let identity = Identity {
        cluster_id: CLUSTER.into(),
        member_id: 4,
        disk_id: "disk".into(),
    };
    let disk = FileDisk::create(&folder.path().join("m"), identity).expect("create");
    let found: Recovered<State> =
        recover(
            &mut disk.split(),
            &|_, _| Err("no rows were written".into()),
        )
        .expect("recover");
    assert_eq!(found.recovery.source, Source::Nothing);
    assert!(found.state.is_none());
}

#[test]
fn the_directory_of_another_cluster_is_refused() {
    let place = Place::new(25);
    let error = FileDisk::open_in_cluster(&place.path(), "two").map(|_| ());
    let error = error.expect_err("another cluster");
    assert!(
        error
            .to_string()
            .contains("belongs to cluster one, not to cluster two"),
        "{error}"
    );
}

#[test]
fn a_directory_in_use_is_refused() {
    let place = Place::new(25);
    let parts = place.open();
    let error = FileDisk::open(&place.path()).map(|_| ());
    assert!(matches!(
        error,
        Err(berth_store::disk::Error::Identity(
            identity::Error::InUse { .. }
        ))
    ));
    drop(parts);
}

#[test]
fn a_lost_disk_does_not_come_back_under_its_id() {
    let place = Place::new(25);
    fs::remove_file(place.path().join("MEMBER")).expect("remove");
    let opened = FileDisk::open(&place.path()).map(|_| ());
    assert!(opened.is_err_and(|e| e.to_string().contains("holds no member")));
    let identity = Identity {
        cluster_id: CLUSTER.into(),
        member_id: 1,
        disk_id: "another disk".into(),
    };
    let created = FileDisk::create(&place.path(), identity).map(|_| ());
    assert!(created.is_err_and(|e| e.to_string().contains("not empty")));
}

/// Writes a log as programs did before there was a witness: hard state and entries, no extent.
fn log_without_extent(folder: &Path) {
    struct Kind;
    impl raft_engine::MessageExt for Kind {
        type Entry = Entry;

        fn index(entry: &Entry) -> u64 {
            entry.index
        }
    }
    fs::remove_dir_all(folder).expect("remove");
    let config = raft_engine::Config {
        dir: folder.to_string_lossy().into_owned(),
        ..raft_engine::Config::default()
    };
    let engine = raft_engine::Engine::open(config).expect("open");
    let mut batch = raft_engine::LogBatch::default();
    let hard_state = HardState {
        term: 1,
        vote: 1,
        commit: 28,
        ..HardState::default()
    };
    let bytes = protobuf::Message::write_to_bytes(&hard_state).expect("bytes");
    batch.put(1, b"hard-state".to_vec(), bytes).expect("put");
    batch
        .add_entries::<Kind>(2, &entries(11, 30, 1))
        .expect("entries");
    engine.write(&mut batch, true).expect("write");
}

/// Goal: a directory from before there was a witness gets one, once; a witness that is missing
/// later is a loss. Method: a log without an extent, and the ledger as it was then.
#[test]
fn a_directory_without_a_witness_gets_one_once() {
    let place = Place::new(25);
    let witness = place.path().join("WITNESS");
    log_without_extent(&place.path().join("log"));
    fs::remove_file(&witness).expect("remove");
    let ledger = place.path().join("FORMAT");
    let text = fs::read_to_string(&ledger).expect("read");
    let (before, _) = text.split_once("\n2 ").expect("two steps");
    fs::write(&ledger, format!("{before}\n")).expect("write");
    for _ in 0..2 {
        let found = place.recover().expect("recover");
        check(&found, Source::Table, 25, &[]);
        assert_eq!((found.hard_state.term, found.hard_state.vote), (1, 1));
    }

    // One that was emptied says nothing about a log that has been written to since.
    fs::write(&witness, vec![0; 32 << 10]).expect("write");
    let error = place.recover().expect_err("nothing shows that it is whole");
    assert!(matches!(error, Error::Unwitnessed { .. }), "{error}");
    fs::remove_file(&witness).expect("remove");
    let error = FileDisk::open(&place.path()).map(|_| ());
    let error = error.expect_err("it was made once");
    assert!(error.to_string().contains("WITNESS is missing"), "{error}");
}

/// A process that is killed between log and witness leaves the log one write ahead. The write is
/// whole, so it counts; it may be a vote that was already cast.
#[test]
fn a_log_ahead_of_its_witness_is_used() {
    let place = Place::new(25);
    place.recover().expect("recover");
    let witness = fs::read(place.path().join("WITNESS")).expect("read");
    let mut parts = place.open();
    parts
        .log
        .append(LogBatch {
            entries: entries(31, 31, 1),
            ..LogBatch::default()
        })
        .expect("append");
    parts.log.sync().expect("sync");
    drop(parts);
    fs::write(place.path().join("WITNESS"), witness).expect("write");
    let found = place.recover().expect("recover");
    assert_eq!(found.entries.last().map(|e| e.index), Some(31));
    assert_eq!(found.recovery.repairs, [""; 0]);
}
