//! A history of registers as a leader would write it, and backups of any part of it.

use berth_backup::{Header, Kind, Writer};
use berth_replication::effects::Position;
use berth_replication::replay::command_of;
use berth_replication::{Machine as _, Replay};
use berth_store::{Member, Membership, Row, StateHash};
use berth_testkit::replication::{Registers, add, set};
use raft::eraftpb::{ConfChangeV2, Entry, EntryType};

pub(crate) const CLUSTER: &str = "6f1c6f0e-3a0e-4c39-8a51-4a8c3b6b1f10";

/// The states after each index from the first on, and the entries between them.
pub(crate) struct History {
    pub(crate) states: Vec<(Registers, Position)>,
    pub(crate) entries: Vec<Entry>,
}

/// Returns the entry of a leader's hash of the state, as replication writes it.
pub(crate) fn hash_entry(at: Position) -> Entry {
    let data = [&at.index.to_le_bytes()[..], &at.hash.to_bytes()].concat();
    Entry {
        data: data.into(),
        context: vec![1].into(),
        ..Entry::default()
    }
}

impl History {
    /// Returns one with every kind of entry: so many commands, and between them empty entries of new
    /// leaders, changes of the membership and hashes.
    pub(crate) fn new(commands: u64) -> Self {
        let mut history = Self {
            states: vec![(
                Registers::default(),
                position_of(&Registers::default(), 1, 1),
            )],
            entries: Vec::new(),
        };
        for number in 0..commands {
            let command = match number % 3 {
                0 => set(format!("r{number}"), "x".repeat(number as usize % 40)),
                1 => add("sum", number),
                _ => set("last", number),
            };
            let data = Registers::encode(&command);
            history.push(Entry {
                data,
                ..Entry::default()
            });
            match number % 4 {
                0 => history.push(Entry::default()),
                1 => history.push(hash_entry(history.end())),
                2 => history.push(change_entry()),
                _ => {}
            }
        }
        history
    }

    /// Adds an entry, at which a new term begins if it is empty.
    pub(crate) fn push(&mut self, entry: Entry) {
        let (machine, at) = self.states.last().expect("the first state").clone();
        let is_elected = entry == Entry::default();
        let entry = Entry {
            index: at.index + 1,
            term: at.term + u64::from(is_elected),
            ..entry
        };
        let mut replay = Replay::new(machine, at);
        replay.apply(&entry).expect("it is the next one");
        let state = (replay.machine().clone(), replay.position());
        self.states.push(state);
        self.entries.push(entry);
    }

    pub(crate) fn end(&self) -> Position {
        self.states.last().expect("the first state").1
    }

    /// Returns the state at this number of entries.
    pub(crate) fn at(&self, entries: usize) -> Position {
        self.states[entries].1
    }

    /// Returns the index of the last command of so many entries.
    pub(crate) fn revision(&self, entries: usize) -> u64 {
        let commands = self.entries[..entries].iter();
        let commands = commands.filter(|entry| command_of(entry).is_some());
        commands
            .last()
            .map_or(self.at(0).index, |entry| entry.index)
    }

    /// Returns a full backup at this number of entries.
    pub(crate) fn full(&self, entries: usize) -> Vec<u8> {
        let (machine, at) = &self.states[entries];
        let rows: Vec<Row> = machine.rows().collect();
        let header = Header {
            revision: self.revision(entries),
            ..full_header(*at)
        };
        written(header, &rows, &[])
    }

    /// Returns the increment between two numbers of entries.
    pub(crate) fn increment(&self, from: usize, to: usize) -> Vec<u8> {
        let header = self.increment_header(from, to);
        written(header, &[], &self.entries[from..to])
    }

    pub(crate) fn increment_header(&self, from: usize, to: usize) -> Header {
        Header {
            kind: Kind::Increment.into(),
            after: Some(self.at(from).into()),
            ..full_header(self.at(to))
        }
    }
}

fn change_entry() -> Entry {
    let change = protobuf::Message::write_to_bytes(&ConfChangeV2::default());
    let mut entry = Entry {
        data: change.expect("it is encoded").into(),
        ..Entry::default()
    };
    entry.set_entry_type(EntryType::EntryConfChangeV2);
    entry
}

pub(crate) fn position_of(machine: &Registers, index: u64, term: u64) -> Position {
    Position {
        index,
        term,
        hash: StateHash::of_rows(machine.rows()),
        rows: machine.rows().count() as u64,
    }
}

pub(crate) fn full_header(at: Position) -> Header {
    Header {
        cluster_id: CLUSTER.to_owned(),
        cluster_version: 3,
        member_id: 2,
        created_ms: 1_700_000_000_000,
        kind: Kind::Full.into(),
        after: None,
        end: at.into(),
        revision: at.index,
        membership: Membership::single(Member {
            id: 2,
            address: "localhost:1".into(),
            ..Member::default()
        }),
        program_version: "0.1.0".to_owned(),
        redacted: false,
    }
}

/// Writes whatever header and content there is, as long as they agree.
pub(crate) fn written(header: Header, rows: &[Row], entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, header).expect("a header");
    for row in rows {
        writer.row(row).expect("a row");
    }
    for entry in entries {
        writer.entry(entry).expect("an entry");
    }
    let count = writer.finish().expect("an end");
    assert_eq!(count, bytes.len() as u64);
    bytes
}
