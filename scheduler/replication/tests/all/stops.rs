//! What makes a replica stop: it must never go on from a state that it cannot vouch for.
//!
//! Method: one replica on a disk in memory, whose log holds the offending entry as committed, or
//! whose machine breaks its contract.

use berth_replication::{Applied, Config, Effects, Fatal, Machine, Replica, Row, Ticket};
use berth_store::disk::{Disk as _, Parts};
use berth_store::{
    Header, Identity, LogBatch, LogStore as _, Member, Membership, MemoryDisk, StateHash,
    checkpoints, recover,
};
use berth_testkit::replication::{Command, Outcome, Registers, Unknown, set};
use bytes::Bytes;
use raft::eraftpb::{Entry, HardState};

const CLUSTER: &str = "stops";

/// Returns a disk with the state of a new cluster and these entries, all committed.
fn disk(entries: Vec<Entry>) -> Parts<MemoryDisk> {
    let disk = MemoryDisk::new(Identity {
        cluster_id: CLUSTER.into(),
        member_id: 1,
        disk_id: "disk".into(),
    });
    let mut parts = disk.split();
    let header = Header {
        cluster_id: CLUSTER.into(),
        index: 1,
        term: 1,
        membership: Membership::single(Member {
            id: 1,
            ..Member::default()
        }),
        state_hash: StateHash::EMPTY.to_bytes().into(),
        rows: 0,
    };
    checkpoints::save(&parts.checkpoints, header, std::iter::empty()).expect("save");
    let hard_state = HardState {
        term: 1,
        commit: entries.last().map_or(1, |e| e.index),
        ..HardState::default()
    };
    parts
        .log
        .append(LogBatch {
            entries,
            hard_state: Some(hard_state),
            ..LogBatch::default()
        })
        .expect("append");
    parts.log.sync().expect("sync");
    parts
}

fn entry(index: u64, context: &'static [u8], data: impl Into<Bytes>) -> Entry {
    Entry {
        index,
        term: 1,
        context: Bytes::from_static(context),
        data: data.into(),
        ..Entry::default()
    }
}

fn start<M: Machine<Level = ()>>(parts: &mut Parts<MemoryDisk>) -> Replica<M> {
    let recovered = recover(parts, &|rows, index| {
        M::from_rows((), rows, index).map_err(|e| e.to_string())
    })
    .expect("recover");
    let config = Config {
        check_invariants: true,
        ..Config::new(1, CLUSTER)
    };
    Replica::new(config, recovered).expect("a replica")
}

/// Lets the replica work until it has nothing left to do, or stops.
fn work<M: Machine>(replica: &mut Replica<M>) -> Result<Vec<Effects<M>>, Fatal> {
    let mut all = Vec::new();
    while let Some(effects) = replica.ready()? {
        if let Some(persist) = &effects.persist {
            replica.persisted(persist.number)?;
        }
        all.push(effects);
    }
    Ok(all)
}

fn stops_with(entries: Vec<Entry>) -> Fatal {
    let mut replica = start::<Registers>(&mut disk(entries));
    match work(&mut replica) {
        Ok(_) => panic!("it goes on"),
        Err(fatal) => fatal,
    }
}

#[test]
fn a_command_that_cannot_be_read_stops_it() {
    let fatal = stops_with(vec![entry(2, b"", "set a 1"), entry(3, b"", "leap a 1")]);
    assert!(matches!(fatal, Fatal::Command { index: 3, .. }), "{fatal}");
    assert!(fatal.to_string().contains("a newer program"), "{fatal}");
}

#[test]
fn an_entry_of_an_unknown_kind_stops_it() {
    let fatal = stops_with(vec![entry(2, b"\x07", "anything")]);
    assert!(matches!(fatal, Fatal::Entry { index: 2 }), "{fatal}");
}

fn hash_record(at: u64, index: u64, hash: StateHash) -> Entry {
    let mut data = index.to_le_bytes().to_vec();
    data.extend_from_slice(&hash.to_bytes());
    entry(at, b"\x01", data)
}

#[test]
fn a_state_that_is_not_the_leaders_stops_it() {
    let row = Row {
        key: "a".into(),
        value: "2".into(),
    };
    let fatal = stops_with(vec![
        entry(2, b"", "set a 1"),
        entry(3, b"", "set b 1"),
        hash_record(4, 2, StateHash::of_rows([row])),
    ]);
    assert!(matches!(fatal, Fatal::Diverged { index: 2, .. }), "{fatal}");
}

#[test]
fn a_state_that_is_the_leaders_goes_on() {
    let row = Row {
        key: "a".into(),
        value: "1".into(),
    };
    let entries = vec![
        entry(2, b"", "set a 1"),
        entry(3, b"", "set b 1"),
        hash_record(4, 2, StateHash::of_rows([row])),
    ];
    let mut replica = start::<Registers>(&mut disk(entries));
    work(&mut replica).expect("it goes on");
    assert_eq!(replica.position().index, 4);
}

#[test]
fn a_broken_invariant_stops_it() {
    let fatal = stops_with(vec![entry(2, b"", "set  1")]);
    assert!(
        matches!(fatal, Fatal::Invariant { index: 2, .. }),
        "{fatal}"
    );
}

/// A machine that predicts something else than it does.
#[derive(Clone)]
struct Liar(Registers);

impl Machine for Liar {
    type Command = Command;
    type Outcome = Outcome;
    type Level = ();
    type Error = Unknown;

    fn encode(command: &Command) -> Bytes {
        Registers::encode(command)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Command, Unknown> {
        self.0.decode(bytes)
    }

    fn apply(&mut self, index: u64, command: &Command) -> Applied<Outcome> {
        self.0.apply(index, command)
    }

    fn speculate(&mut self, index: u64, command: &Command) -> Outcome {
        let outcome = self.0.speculate(index, command);
        Outcome {
            rows: outcome.rows + 1,
            ..outcome
        }
    }

    fn rows(&self) -> impl Iterator<Item = Row> {
        self.0.rows()
    }

    fn from_rows((): (), rows: impl Iterator<Item = Row>, applied: u64) -> Result<Self, Unknown> {
        Registers::from_rows((), rows, applied).map(Self)
    }

    fn check(&self) -> Result<(), String> {
        self.0.check()
    }
}

#[test]
fn a_wrong_prediction_stops_it_before_anybody_is_told() {
    let mut replica = start::<Liar>(&mut disk(Vec::new()));
    replica.campaign();
    work(&mut replica).expect("it leads");
    assert!(replica.role().deciding);
    replica.propose(Ticket(1), set("a", 1)).expect("taken");
    let fatal = match work(&mut replica) {
        Ok(_) => panic!("it goes on"),
        Err(fatal) => fatal,
    };
    assert!(matches!(fatal, Fatal::Prediction { .. }), "{fatal}");
}

#[test]
fn an_answer_waits_for_the_disk() {
    let mut replica = start::<Registers>(&mut disk(Vec::new()));
    replica.campaign();
    work(&mut replica).expect("it leads");
    replica.propose(Ticket(1), set("a", 1)).expect("taken");
    let mut numbers = Vec::new();
    while let Some(effects) = replica.ready().expect("it goes on") {
        assert!(effects.answers.is_empty(), "nothing is durable yet");
        numbers.extend(effects.persist.map(|p| p.number));
    }
    assert_eq!(replica.machine().and_then(|m| m.get("a")), None);
    assert_eq!(replica.speculative().and_then(|m| m.get("a")), Some("1"));
    replica
        .persisted(*numbers.last().expect("something to write"))
        .expect("persisted");
    let answers: Vec<_> = work(&mut replica)
        .expect("it goes on")
        .into_iter()
        .flat_map(|effects| effects.answers)
        .collect();
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].ticket, Ticket(1));
    assert_eq!(replica.machine().and_then(|m| m.get("a")), Some("1"));
}
