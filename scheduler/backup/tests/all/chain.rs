//! Goal: a chain verifies exactly if its files follow each other in one history, and leads to the state
//! that the last one states. Method: a history with every kind of entry, cut into every pair of
//! increments; files that are missing, repeated, of another cluster or another history, and files that
//! are sound and state a wrong hash.

use berth_backup::chain::Verified;
use berth_backup::{Chain, Header, Kind, Place, Reader, VerifyError};
use berth_replication::replay::Observer;
use berth_replication::{Applied, Machine, ReplayError};
use berth_store::StateHash;
use berth_testkit::replication::{Registers, set};
use raft::eraftpb::Entry;

use crate::common::{History, full_header, hash_entry, position_of, written};

fn verify(files: &[Vec<u8>]) -> Result<Verified<Registers>, VerifyError> {
    let mut chain = Chain::new(());
    for file in files {
        chain.add(Reader::new(&file[..])?)?;
    }
    chain.finish()
}

fn refused(files: &[Vec<u8>]) -> VerifyError {
    match verify(files) {
        Ok(_) => panic!("it verifies"),
        Err(error) => error,
    }
}

/// Goal: increments of one to all entries, chained, equal a full backup of the same end.
#[test]
fn increments_lead_to_the_state_of_a_full_backup() {
    let history = History::new(30);
    let end = history.entries.len();
    let whole = verify(&[history.full(end)]).expect("it verifies");
    for step in 1..=end {
        let mut files = vec![history.full(0)];
        let mut from = 0;
        while from < end {
            let to = end.min(from + step);
            files.push(history.increment(from, to));
            from = to;
        }
        let chained = verify(&files).expect("it verifies");
        assert_eq!(chained.position, whole.position, "{step}");
        assert_eq!(chained.commands, 30, "{step}");
        assert!(chained.machine.rows().eq(whole.machine.rows()), "{step}");
    }
    // One that adds nothing follows as well.
    let files = [history.full(end), history.increment(end, end)];
    assert_eq!(verify(&files).expect("it verifies").position, history.end());
}

/// Goal: the revision that a full backup states can be requested of it, whatever entries without a command
/// stand behind the last one, and also with an increment after it; no earlier one can.
#[test]
fn a_full_backup_has_the_revision_that_it_states() {
    let history = History::new(30);
    let end = history.entries.len();
    let at = |revision, files: &[Vec<u8>]| {
        let mut chain: Chain<Registers> = Chain::new(()).up_to(revision);
        for file in files {
            chain.add(Reader::new(&file[..])?)?;
        }
        chain.finish()
    };
    for entries in 1..=end {
        let revision = history.revision(entries);
        let full = history.full(entries);
        let whole = verify(std::slice::from_ref(&full)).expect("it verifies");
        for files in [
            vec![full.clone()],
            vec![full.clone(), history.increment(entries, end)],
        ] {
            let there = at(revision, &files).expect("it has the revision");
            assert!(there.machine.rows().eq(whole.machine.rows()), "{entries}");
        }
        let earlier = at(revision - 1, &[full]).err();
        let expected = VerifyError::Later {
            first: revision,
            at: revision - 1,
        };
        assert_eq!(earlier.map(|e| e.to_string()), Some(expected.to_string()));
    }
}

/// Notes the registers before and after each command.
#[derive(Default)]
struct Noted(Vec<(u64, usize, usize)>);

impl Observer<Registers> for Noted {
    fn before(&mut self, machine: &Registers, index: u64, _: &<Registers as Machine>::Command) {
        self.0.push((index, machine.rows().count(), 0));
    }

    fn after(
        &mut self,
        machine: &Registers,
        index: u64,
        _: &<Registers as Machine>::Command,
        _: &Applied<<Registers as Machine>::Outcome>,
    ) {
        let last = self.0.last_mut().expect("the same command was seen before");
        assert_eq!(last.0, index);
        last.2 = machine.rows().count();
    }
}

/// Goal: an observer sees every command once, in order, with the state before it and after it.
#[test]
fn each_replayed_command_is_observed() {
    let history = History::new(12);
    let end = history.entries.len();
    let mut chain = Chain::<Registers>::new(());
    let mut noted = Noted::default();
    for file in [
        history.full(0),
        history.increment(0, 7),
        history.increment(7, end),
    ] {
        let reader = Reader::new(&file[..]).expect("a header");
        chain.add_observed(reader, &mut noted).expect("it follows");
    }
    let verified = chain.finish().expect("it verifies");
    assert_eq!(noted.0.len() as u64, verified.commands);
    assert_eq!(noted.0.first().map(|(_, before, _)| *before), Some(0));
    for pair in noted.0.windows(2) {
        assert!(pair[0].0 < pair[1].0 && pair[0].2 == pair[1].1, "{pair:?}");
    }
    let last = noted.0.last().map(|(_, _, after)| *after);
    assert_eq!(last, Some(verified.machine.rows().count()));
}

#[test]
fn a_gap_names_what_is_missing() {
    let history = History::new(12);
    let first = history.at(0).index;
    let (full, later) = (history.full(2), history.increment(5, 9));
    let error = refused(&[full.clone(), later.clone()]);
    assert_eq!(
        error.to_string(),
        format!(
            "entries {} to {} are missing between it and the one before it",
            first + 3,
            first + 5
        )
    );
    let error = refused(&[full.clone(), history.increment(0, 5)]);
    assert!(
        matches!(error, VerifyError::Overlap { after, end } if after == first && end == first + 2)
    );
    let twice = [
        full.clone(),
        history.increment(2, 5),
        history.increment(2, 5),
    ];
    assert!(matches!(refused(&twice), VerifyError::Overlap { .. }));
    assert!(matches!(refused(&[later]), VerifyError::NoFull { after } if after == first + 5));
    assert!(matches!(
        refused(&[full.clone(), full]),
        VerifyError::SecondFull
    ));
    assert!(matches!(refused(&[]), VerifyError::Nothing));
}

#[test]
fn another_cluster_and_another_history_are_refused() {
    let history = History::new(12);
    let full = history.full(4);
    let other = Header {
        cluster_id: "another".to_owned(),
        ..history.increment_header(4, 6)
    };
    let other = written(other, &[], &history.entries[4..6]);
    assert!(matches!(
        refused(&[full.clone(), other]),
        VerifyError::OtherCluster { .. }
    ));
    let moved = |change: fn(&mut Place)| {
        let mut header = history.increment_header(4, 6);
        change(header.after.as_mut().expect("an increment"));
        written(header, &[], &history.entries[4..6])
    };
    let error = refused(&[full.clone(), moved(|after| after.term -= 1)]);
    assert!(matches!(
        error,
        VerifyError::OtherHistory { what: "term", .. }
    ));
    let error = refused(&[full, moved(|after| after.state_hash[0] ^= 1)]);
    assert!(matches!(
        error,
        VerifyError::OtherHistory { what: "state", .. }
    ));
}

/// Goal: a file whose checksums are right and whose state is not is found. Method: entries and headers
/// that a faulty member could have written.
#[test]
fn a_wrong_state_is_found() {
    let history = History::new(12);
    let with_end = |change: fn(&mut Place)| {
        let mut header = history.increment_header(0, 5);
        change(&mut header.end);
        vec![history.full(0), written(header, &[], &history.entries[..5])]
    };
    let error = refused(&with_end(|end| end.state_hash[3] ^= 8));
    assert!(matches!(error, VerifyError::Hash { .. }), "{error}");
    let error = refused(&with_end(|end| end.rows += 1));
    assert!(matches!(error, VerifyError::Rows { .. }), "{error}");

    // A command was changed before the file was written.
    let mut entries = history.entries[..5].to_vec();
    entries[0].data = Registers::encode(&set("r0", "other"));
    let header = history.increment_header(0, 5);
    let error = refused(&[history.full(0), written(header, &[], &entries)]);
    let found = matches!(error, VerifyError::Hash { .. } | VerifyError::Replay(_));
    assert!(found, "{error}");
}

#[test]
fn entries_that_cannot_be_replayed_are_named() {
    let history = History::new(1);
    let at = history.end();
    let count = history.entries.len();
    let with = |entry: Entry| {
        let entry = Entry {
            index: at.index + 1,
            term: at.term,
            ..entry
        };
        let header = Header {
            kind: Kind::Increment.into(),
            after: Some(at.into()),
            end: Place {
                index: entry.index,
                ..at.into()
            },
            ..full_header(at)
        };
        refused(&[history.full(count), written(header, &[], &[entry])])
    };
    let unreadable = Entry {
        data: "no command at all".into(),
        ..Entry::default()
    };
    let error = with(unreadable);
    let VerifyError::Replay(ReplayError::Command { index, .. }) = &error else {
        panic!("{error}");
    };
    assert_eq!(*index, at.index + 1);
    let unknown = Entry {
        data: "?".into(),
        context: vec![9].into(),
        ..Entry::default()
    };
    let error = with(unknown);
    assert!(matches!(
        error,
        VerifyError::Replay(ReplayError::Unknown { .. })
    ));
    let mut wrong = at;
    wrong.hash = StateHash::EMPTY;
    let error = with(hash_entry(wrong));
    assert!(matches!(
        error,
        VerifyError::Replay(ReplayError::Diverged { .. })
    ));
}

/// Goal: a state that breaks an invariant does not verify, though its hash fits. A register without a
/// name is one.
#[test]
fn an_unsound_state_is_found() {
    let rows = [berth_store::Row {
        key: "".into(),
        value: "x".into(),
    }];
    let machine = Registers::from_rows((), rows.iter().cloned(), 1).expect("a state");
    let file = written(full_header(position_of(&machine, 1, 1)), &rows, &[]);
    assert!(matches!(
        refused(&[file]),
        VerifyError::Invariant { index: 1, .. }
    ));
}
