//! The disk under a loss of power: log, checkpoints and table together.
//!
//! Goal: whatever `sync` returned for is there afterwards, and the table is either the state it
//! claims to be or is rebuilt. Method: this binary starts itself as a writer on a disk that can be
//! cut off (see `berth_testkit::power`), and opens what is left.
//!
//! It is a test binary of its own, since it starts itself again and needs root.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use berth_store::{
    Disk as _, FileDisk, Header, Identity, LogBatch, LogStore as _, Member, Membership, Recovered,
    Row, StateHash, TableMeta, checkpoints, recover,
};
use berth_testkit::power;
use bytes::Bytes;
use raft::eraftpb::{Entry, HardState};

const WRITER: &str = "BERTH_TEST_STORE_WRITER";
const REGISTERS: u64 = 50;

/// Not a test by itself: the writer that the other one starts and cuts off.
#[test]
fn writer_process() {
    if let Ok(task) = std::env::var(WRITER) {
        let (folder, notes) = task.split_once(' ').expect("a folder and a file");
        write(Path::new(folder), Path::new(notes));
    }
}

fn row_at(index: u64) -> Row {
    Row {
        key: format!("register {}", index % REGISTERS).into(),
        value: format!("{index}").into(),
    }
}

/// Returns the state at an index: each register holds the last index that wrote it.
fn state_at(index: u64) -> BTreeMap<Bytes, Bytes> {
    let first = 2.max(index.saturating_sub(REGISTERS - 1));
    (first..=index)
        .map(row_at)
        .map(|row| (row.key, row.value))
        .collect()
}

fn header_at(index: u64) -> Header {
    let rows = rows_at(index);
    Header {
        cluster_id: "cut".into(),
        index,
        term: 1,
        membership: Membership::single(Member {
            id: 1,
            ..Member::default()
        }),
        rows: rows.len() as u64,
        state_hash: StateHash::of_rows(rows).to_bytes().into(),
    }
}

fn rows_at(index: u64) -> Vec<Row> {
    let state = state_at(index).into_iter();
    state.map(|(key, value)| Row { key, value }).collect()
}

fn write(folder: &Path, notes: &Path) {
    let identity = Identity {
        cluster_id: "cut".into(),
        member_id: 1,
        disk_id: "disk".into(),
    };
    let mut parts = FileDisk::create(folder, identity).expect("create").split();
    let mut notes = File::options().append(true).open(notes).expect("open");
    checkpoints::save(&parts.checkpoints, header_at(1), rows_at(1).into_iter()).expect("save");
    let mut before = 1;
    for index in 2.. {
        let entry = Entry {
            index,
            term: 1,
            data: vec![b'x'; 200].into(),
            ..Entry::default()
        };
        parts
            .log
            .append(LogBatch {
                entries: vec![entry],
                hard_state: Some(HardState {
                    term: 1,
                    vote: 1,
                    commit: index - 1,
                    ..HardState::default()
                }),
                ..LogBatch::default()
            })
            .expect("append");
        parts.log.sync().expect("sync");
        notes
            .write_all(format!("{index}\n").as_bytes())
            .expect("note");
        if index.is_multiple_of(20) {
            write_table(&mut parts.table, index);
        }
        if index.is_multiple_of(150) {
            let rows = rows_at(index).into_iter();
            checkpoints::save(&parts.checkpoints, header_at(index), rows).expect("save");
            parts.log.compact(before + 1).expect("compact");
            before = index;
        }
    }
}

fn write_table(table: &mut impl berth_store::TableStore, index: u64) {
    let header = header_at(index);
    let batch = rows_at(index).into_iter();
    let meta = TableMeta {
        index,
        term: 1,
        state_hash: header.state_hash,
        rows: header.rows,
        membership: header.membership,
        cluster_id: header.cluster_id,
    };
    table
        .write(batch.map(|r| (r.key, Some(r.value))).collect(), Some(&meta))
        .expect("write");
    // Every other batch is left to chance.
    if index.is_multiple_of(40) {
        table.flush().expect("flush");
    }
}

fn last_noted(notes: &Path) -> u64 {
    let text = fs::read_to_string(notes).expect("read");
    text.lines()
        .last()
        .map_or(0, |n| n.parse().expect("a number"))
}

#[test]
fn power_cut_loses_nothing_that_was_synchronised() {
    for round in 1..=5 {
        let mut disk = match power::Disk::new(512) {
            Ok(disk) => disk,
            Err(why) => return power::skipped("power_cut_loses_nothing", &why),
        };
        let outside = tempfile::tempdir().expect("temporary folder");
        let notes = outside.path().join("notes");
        File::create(&notes).expect("create");
        let mut writer = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "writer_process", "--nocapture"])
            .env(
                WRITER,
                format!("{} {}", disk.path().join("m").display(), notes.display()),
            )
            .stdout(Stdio::null())
            .spawn()
            .expect("start the writer");
        let deadline = Instant::now() + Duration::from_secs(60);
        while last_noted(&notes) < 120 * round {
            assert!(Instant::now() < deadline, "the writer does not write");
            std::thread::sleep(Duration::from_millis(5));
        }
        let (mount, told) = disk.cut(&mut writer, || last_noted(&notes));
        verify(&mount.join("m"), told);
    }
}

fn verify(folder: &Path, told: u64) {
    let mut parts = FileDisk::open(folder).expect("open").split();
    let found: Recovered<BTreeMap<Bytes, Bytes>> = recover(&mut parts, &|rows, _| {
        Ok(rows.map(|row| (row.key, row.value)).collect())
    })
    .expect("recover");
    let last = found.entries.last().map_or(found.index, |e| e.index);
    assert!(
        last >= told,
        "{told} was synchronised, the log ends at {last}"
    );
    assert_eq!(found.state, Some(state_at(found.index)));
    assert!(
        found.index + 300 > told,
        "no state newer than {}",
        found.index
    );
}
