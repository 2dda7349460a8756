//! Goal: whatever the state holds is in a full backup, and whatever a command does is in an increment:
//! both verify, and lead to the same rows. Method: the sequences with which repeats are tested hold every
//! kind of command; each is written as a full backup of its beginning, increments of the commands, and a
//! full backup where each increment ends. The kinds and tables that were seen are counted.

use std::collections::BTreeSet;

use berth_backup::{Chain, Header, Kind, Reader, VerifyError, Writer};
use berth_codec::encode_command;
use berth_domain::audit::RequestSummary;
use berth_domain::id::TimeMs;
use berth_domain::version::ServiceVersion;
use berth_replication::effects::Position;
use berth_replication::{Machine as _, Replay};
use berth_scheduler::machine::{Level, Machine};
use berth_state::command::{Command, Envelope};
use berth_store::{Row, StateHash};
use berth_testkit::state::scale::{self, Size};
use berth_testkit::state::{World, request};
use raft::eraftpb::Entry;

use crate::repeats::{KINDS, kind, sequences};

/// How many tables there are.
const TABLES: usize = 22;

/// How many commands are in one increment.
const STEP: usize = 16;

pub(super) fn position_of(machine: &Machine, index: u64) -> Position {
    Position {
        index,
        term: 1,
        hash: StateHash::of_rows(machine.rows()),
        rows: machine.rows().count() as u64,
    }
}

fn header(machine: &Machine, after: Option<Position>, end: Position) -> Header {
    let kind = match after {
        Some(_) => Kind::Increment,
        None => Kind::Full,
    };
    Header {
        cluster_id: "6f1c6f0e-3a0e-4c39-8a51-4a8c3b6b1f10".to_owned(),
        cluster_version: machine.state().header().cluster_version.0,
        member_id: 1,
        kind: kind.into(),
        after: after.map(Into::into),
        end: end.into(),
        revision: machine.state().revision(),
        ..Header::default()
    }
}

pub(super) fn full(machine: &Machine, at: Position) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, header(machine, None, at)).expect("a header");
    for row in machine.rows() {
        writer.row(&row).expect("a row");
    }
    writer.finish().expect("an end");
    bytes
}

fn increment(machine: &Machine, from: Position, to: Position, entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = header(machine, Some(from), to);
    let mut writer = Writer::new(&mut bytes, header).expect("a header");
    for entry in entries {
        writer.entry(entry).expect("an entry");
    }
    writer.finish().expect("an end");
    bytes
}

fn entry(index: u64, at: u64, number: u64, command: Command) -> Entry {
    let key = request(number, 7);
    let summary = RequestSummary {
        method: key.method.clone(),
        request_id: Some(key.id),
        vm: None,
        host: None,
        summary: String::new(),
        choice: None,
    };
    let envelope = Envelope {
        at: TimeMs(at),
        principal: "operator".to_owned(),
        audit: Some(Box::new(summary)),
        request: Some(key),
        command,
    };
    Entry {
        index,
        term: 1,
        data: encode_command(&envelope),
        ..Entry::default()
    }
}

fn verify(files: &[Vec<u8>]) -> Result<(Position, Vec<Row>), VerifyError> {
    let mut chain = Chain::<Machine>::new(Level::default());
    for file in files {
        chain.add(Reader::new(&file[..])?)?;
    }
    let verified = chain.finish()?;
    Ok((verified.position, verified.machine.rows().collect()))
}

/// Backs a sequence up in all ways, and returns the tables that full backups had.
fn back_up(sequence: Vec<(u64, Command)>) -> BTreeSet<u8> {
    let machine = Machine::new(World::with_hosts(3).state);
    let first = position_of(&machine, machine.state().revision());
    let mut files = vec![full(&machine, first)];
    let mut replay = Replay::new(machine, first);
    let entries: Vec<Entry> = (1..)
        .zip(sequence)
        .map(|(number, (at, command))| entry(first.index + number, at, number, command))
        .collect();
    let mut tables = BTreeSet::new();
    for part in entries.chunks(STEP) {
        let from = replay.position();
        for entry in part {
            replay.apply(entry).expect("it is applied");
        }
        let end = replay.position();
        files.push(increment(replay.machine(), from, end, part));
        let whole = verify(&[full(replay.machine(), end)]).expect("the full backup verifies");
        let rows: Vec<Row> = replay.machine().rows().collect();
        tables.extend(rows.iter().map(|row| row.key[0]));
        assert_eq!(whole, (end, rows));
    }
    let chained = verify(&files).expect("the increments verify");
    let rows: Vec<Row> = replay.machine().rows().collect();
    assert_eq!(chained, (replay.position(), rows));
    tables
}

#[test]
fn every_table_and_every_command_is_backed_up() {
    let mut tables = BTreeSet::new();
    let mut kinds = BTreeSet::new();
    for sequence in sequences() {
        kinds.extend(sequence.iter().map(|(_, command)| kind(command)));
        tables.extend(back_up(sequence));
    }
    let missing: Vec<_> = KINDS.iter().filter(|kind| !kinds.contains(*kind)).collect();
    assert!(missing.is_empty(), "no sequence holds {missing:?}");
    assert_eq!(tables.len(), TABLES, "{tables:?}");
}

/// Goal: a program does not read the backup of a cluster version beyond its own as something else.
#[test]
fn a_newer_cluster_version_is_refused() {
    let machine = Machine::new(World::with_hosts(0).state);
    let at = position_of(&machine, machine.state().revision());
    let file = full(&machine, at);
    let old = Level(ServiceVersion(ServiceVersion::CURRENT.0 - 1));
    let refused = Chain::<Machine>::new(old).add(Reader::new(&file[..]).expect("a header"));
    let Err(VerifyError::State(source)) = refused else {
        panic!("it is taken");
    };
    let text = source.to_string();
    let newer = format!("cluster version is {}", ServiceVersion::CURRENT);
    assert!(text.contains(&newer), "{text}");
}

/// Goal: states as benchmarks generate them are read back as they were, from a backup and from its rows.
#[test]
fn generated_states_are_read_back() {
    let state = scale::state(Size {
        hosts: 30,
        vms_per_host: 34,
        seed: 3,
        version: ServiceVersion::CURRENT,
    });
    let machine = Machine::new(state.clone());
    let at = position_of(&machine, state.revision());
    let mut chain = Chain::<Machine>::new(Level::default());
    let file = full(&machine, at);
    chain.add(Reader::new(&file[..]).unwrap()).unwrap();
    let verified = chain.finish().unwrap();
    assert_eq!(verified.position, at);
    assert!(*verified.machine.state() == state);
    let read = Machine::from_rows(Level::default(), machine.rows(), at.index);
    assert!(*read.unwrap().state() == state);
}
