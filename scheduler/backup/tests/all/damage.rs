//! Goal: no damaged file is read as a backup, and each kind of damage is refused with its own reason.
//! Method: small backups of both kinds; every bit of them flipped, every truncation, bytes behind the
//! end; files of newer programs and of none.

use berth_backup::{Chain, FORMAT, ReadError, Reader, Summary, WriteError, Writer};
use berth_store::Row;
use berth_testkit::replication::Registers;
use proptest::prelude::*;

use crate::common::{History, full_header};

fn read(bytes: &[u8]) -> Result<Summary, ReadError> {
    Reader::new(bytes)?.finish()
}

/// Returns backups of both kinds, with and without content.
fn backups() -> Vec<Vec<u8>> {
    let history = History::new(12);
    let end = history.entries.len();
    vec![
        history.full(0),
        history.full(end),
        history.increment(0, end),
        history.increment(end, end),
    ]
}

#[test]
fn what_was_written_is_read() {
    let history = History::new(12);
    let end = history.entries.len();
    let full = read(&history.full(end)).expect("it is sound");
    assert_eq!(full.header, full_header(history.end()));
    assert_eq!((full.rows, full.entries), (history.end().rows, 0));
    assert_eq!(full.bytes, history.full(end).len() as u64);
    let increment = read(&history.increment(3, end)).expect("it is sound");
    assert_eq!(increment.header, history.increment_header(3, end));
    assert_eq!((increment.rows, increment.entries), (0, end as u64 - 3));
}

/// Goal: a row and an entry that are larger than a usual record are read back.
#[test]
fn large_values_make_records_of_their_own() {
    let mut history = History::new(3);
    for size in [1, 300 << 10, 2 << 20] {
        let command = berth_testkit::replication::set(format!("big{size}"), "y".repeat(size));
        history.push(raft::eraftpb::Entry {
            data: <Registers as berth_replication::Machine>::encode(&command),
            ..Default::default()
        });
    }
    let end = history.entries.len();
    for bytes in [history.full(end), history.increment(0, end)] {
        assert!(bytes.len() > 2 << 20);
        read(&bytes).expect("it is sound");
    }
}

#[test]
fn every_flipped_bit_is_refused() {
    for sound in backups() {
        read(&sound).expect("it is sound");
        for at in 0..sound.len() {
            for bit in 0..8 {
                let mut bytes = sound.clone();
                bytes[at] ^= 1 << bit;
                let refused = read(&bytes).expect_err("a flipped bit");
                let fits = match at {
                    0..8 => matches!(refused, ReadError::Foreign),
                    // The lowest bit makes format 1 format 0, which is no format.
                    8 if bit == 0 => matches!(refused, ReadError::Damaged(_)),
                    8..12 => matches!(refused, ReadError::Newer { .. }),
                    _ => matches!(refused, ReadError::Damaged(_) | ReadError::Truncated(_)),
                };
                assert!(fits, "bit {bit} of byte {at}: {refused}");
            }
        }
    }
}

#[test]
fn every_truncation_is_refused_as_one() {
    for sound in backups() {
        for length in 0..sound.len() {
            let refused = read(&sound[..length]).expect_err("a truncation");
            let fits = matches!(refused, ReadError::Truncated(_));
            assert!(fits, "{length} of {}: {refused}", sound.len());
        }
    }
}

#[test]
fn what_follows_the_end_is_refused() {
    for sound in backups() {
        for more in [&b"\0"[..], &sound] {
            let bytes = [&sound, more].concat();
            let refused = read(&bytes).expect_err("more than a backup");
            assert!(matches!(refused, ReadError::Damaged("length of the file")));
        }
    }
}

#[test]
fn newer_and_foreign_files_are_named() {
    let history = History::new(2);
    let mut newer = history.full(1);
    newer[8..12].copy_from_slice(&(FORMAT + 1).to_le_bytes());
    let refused = read(&newer).expect_err("a newer file");
    assert_eq!(
        refused.to_string(),
        "it has format 2, and this program reads up to 1"
    );
    let foreign = [&b"BERTHCKP"[..], &newer[8..]].concat();
    for bytes in [
        &foreign[..],
        b"PK\x03\x04 something else",
        b"hello\n",
        b"B\0",
    ] {
        let refused = read(bytes).expect_err("a foreign file");
        assert!(matches!(refused, ReadError::Foreign), "{refused}");
    }
}

/// Goal: a length that is damaged, and whose checksum was made to fit, costs no memory.
#[test]
fn lengths_have_limits() {
    let history = History::new(2);
    let sound = history.full(1);
    let header_bytes = u32::from_le_bytes(sound[12..16].try_into().expect("4 bytes")) as usize;
    let records = 16 + header_bytes + 4;
    for (at, name) in [(12, "header"), (records, "record")] {
        let mut bytes = sound.clone();
        bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        let refused = read(&bytes)
            .expect_err("a length beyond the limit")
            .to_string();
        assert!(refused.contains("length"), "{name}: {refused}");
        assert!(refused.contains(name), "{name}: {refused}");
    }
}

/// Goal: a member whose state and hash have come apart writes no backup.
#[test]
fn what_contradicts_the_header_is_not_written() {
    let history = History::new(6);
    let row = Row {
        key: "more".into(),
        value: "than".into(),
    };
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, full_header(history.at(0))).expect("a header");
    writer.row(&row).expect("a row");
    let refused = writer.finish().expect_err("a row too many");
    assert!(matches!(refused, WriteError::Contradiction(_)));
    assert!(read(&bytes).is_err());

    let header = history.increment_header(0, 4);
    let mut writer = Writer::new(Vec::new(), header.clone()).expect("a header");
    let refused = writer.entry(&history.entries[1]).expect_err("a gap");
    assert!(matches!(refused, WriteError::Contradiction(_)));
    let mut writer = Writer::new(Vec::new(), header).expect("a header");
    writer.entry(&history.entries[0]).expect("the first");
    let refused = writer.finish().expect_err("the end is missing");
    assert!(matches!(refused, WriteError::Contradiction(_)));
}

proptest! {
    /// Goal: whatever the bytes, reading ends without a panic, and nothing of it verifies.
    #[test]
    fn random_bytes_are_refused(tail in proptest::collection::vec(any::<u8>(), 0..400), keep in 0_usize..200) {
        let sound = History::new(4).full(3);
        let mut bytes = sound[..keep.min(sound.len() - 1)].to_vec();
        bytes.extend(tail);
        prop_assume!(bytes != sound);
        prop_assert!(read(&bytes).is_err());
        let mut chain = Chain::<Registers>::new(());
        let taken = Reader::new(&bytes[..]).ok().map(|reader| chain.add(reader));
        prop_assert!(!matches!(taken, Some(Ok(_))));
    }
}
