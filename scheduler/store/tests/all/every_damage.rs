//! Every single damage to every file of a member's directory.
//!
//! Goal: whatever one fault of the disk does (a flipped bit, a zeroed sector, a file cut short,
//! deleted, or put back as it was earlier), the member either goes on with everything that it
//! acknowledged, its vote included, or refuses to start and says how to rejoin; and it says the
//! same when it is started again. Never a panic, never a silent loss.
//!
//! Method: a directory with a history (votes, replaced entries, a received snapshot, checkpoints,
//! removed entries) as kill -9 leaves it, once with the log in one file and once in many, and
//! copies of it from earlier moments. One damage at a time, on a copy. Bytes are sampled evenly; with
//! `BERTH_EVERY_DAMAGE=1` every byte is taken. The counts are printed.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use berth_store::disk::Parts;
use berth_store::{
    Disk as _, FileDisk, Identity, LogBatch, LogStore as _, Recovered, Row, TableMeta,
    TableStore as _, checkpoints, disk, identity, log, recover, witness,
};
use bytes::Bytes;
use raft::eraftpb::{Entry, HardState};

use super::damage::{CLUSTER, entries, header, rows};

type State = BTreeMap<Bytes, Bytes>;

/// How many places of a file are damaged in each way, unless all are.
const SAMPLES: usize = 100;
const SECTOR: usize = 512;

/// A directory's files by path.
type Files = BTreeMap<PathBuf, Content>;

/// A file without the zeros at its end: what raft-engine and sled allocate ahead is long.
#[derive(Clone, PartialEq)]
struct Content {
    used: Vec<u8>,
    length: u64,
}

impl Content {
    fn of(mut bytes: Vec<u8>) -> Self {
        let length = bytes.len() as u64;
        let used = bytes.iter().rposition(|byte| *byte != 0);
        bytes.truncate(used.map_or(0, |at| at + 1));
        Self {
            used: bytes,
            length,
        }
    }

    fn with(&self, change: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut changed = self.clone();
        change(&mut changed.used);
        changed
    }

    fn cut(&self, at: usize) -> Self {
        Self {
            used: self.used[..at].to_vec(),
            length: at as u64,
        }
    }
}

/// What a member must still know.
#[derive(Default)]
struct Acknowledged {
    entries: BTreeMap<u64, Entry>,
    hard_state: HardState,
}

struct Scene {
    folder: tempfile::TempDir,
    log_file_bytes: u64,
    acknowledged: Acknowledged,
    /// The directory of a member that was added and has received nothing yet.
    fresh: Files,
    /// The directory at earlier moments, oldest first.
    earlier: Vec<Files>,
    last: Files,
}

fn identity() -> Identity {
    Identity {
        cluster_id: CLUSTER.into(),
        member_id: 1,
        disk_id: "disk".into(),
    }
}

impl Scene {
    fn new(log_file_bytes: u64) -> Self {
        // In memory if possible: thousands of starts synchronise nothing that matters.
        let folder = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .expect("temporary folder");
        let mut scene = Self {
            folder,
            log_file_bytes,
            acknowledged: Acknowledged::default(),
            fresh: Files::new(),
            earlier: Vec::new(),
            last: Files::new(),
        };
        let path = scene.folder.path().join("member");
        drop(FileDisk::create(&path, identity()).expect("create"));
        scene.fresh = read_all(&path);
        let mut parts = scene.open(&path).expect("open");
        checkpoints::save(&parts.checkpoints, header(1), rows(1)).expect("save");
        recover(&mut parts, &build).expect("a new member");
        scene.play(&mut parts, &path);
        scene.last = read_all(&path);
        drop(parts);
        scene
    }

    fn open(&self, path: &Path) -> Result<Parts<FileDisk>, berth_store::disk::Error> {
        Ok(FileDisk::open_with_log_files(path, self.log_file_bytes)?.split())
    }

    /// Lives through a history. The state at index `n` has the rows 2 to `n`.
    fn play(&mut self, parts: &mut Parts<FileDisk>, path: &Path) {
        self.vote(parts, 1, 1);
        for index in 2..=20 {
            self.write(parts, entries(index, index, 1));
        }
        self.earlier.push(read_all(path));
        // A newer leader replaces what was not committed, and a vote is given without entries.
        self.write(parts, entries(18, 19, 2));
        self.vote(parts, 3, 2);
        self.write(parts, entries(20, 24, 3));
        self.checkpoint(parts, 15, 1);
        write_table(parts, 15, 1);
        self.checkpoint(parts, 22, 3);
        self.compact(parts, 16);
        self.earlier.push(read_all(path));
        for index in 25..=34 {
            self.write(parts, entries(index, index, 3));
        }
        // A snapshot takes the place of the log.
        let received = header_of(40, 4);
        save(parts, received, 1);
        let reset = LogBatch {
            reset: true,
            ..LogBatch::default()
        };
        self.acknowledged.entries.clear();
        self.take(parts, reset);
        self.earlier.push(read_all(path));
        for index in 41..=60 {
            self.write(parts, entries(index, index, 4));
        }
        self.checkpoint(parts, 50, 4);
        write_table(parts, 55, 4);
        self.vote(parts, 5, 3);
        self.write(parts, entries(61, 64, 5));
        self.earlier.push(read_all(path));
        for index in 65..=70 {
            self.write(parts, entries(index, index, 5));
        }
        self.vote(parts, 6, 2);
    }

    fn vote(&mut self, parts: &mut Parts<FileDisk>, term: u64, vote: u64) {
        self.acknowledged.hard_state = HardState {
            term,
            vote,
            commit: self.acknowledged.hard_state.commit,
            ..HardState::default()
        };
        self.take(parts, LogBatch::default());
    }

    fn write(&mut self, parts: &mut Parts<FileDisk>, entries: Vec<Entry>) {
        let known = &mut self.acknowledged.entries;
        known.split_off(&entries[0].index);
        known.extend(entries.iter().map(|e| (e.index, e.clone())));
        let term = entries[0].term;
        let hard_state = &mut self.acknowledged.hard_state;
        if term > hard_state.term {
            (hard_state.term, hard_state.vote) = (term, 0);
        }
        self.take(
            parts,
            LogBatch {
                entries,
                ..LogBatch::default()
            },
        );
    }

    fn take(&mut self, parts: &mut Parts<FileDisk>, batch: LogBatch) {
        let hard_state = Some(self.acknowledged.hard_state.clone());
        parts
            .log
            .append(LogBatch {
                hard_state,
                ..batch
            })
            .expect("append");
        parts.log.sync().expect("sync");
    }

    fn checkpoint(&self, parts: &Parts<FileDisk>, index: u64, term: u64) {
        save(parts, header_of(index, term), 2);
    }

    fn compact(&mut self, parts: &mut Parts<FileDisk>, first_kept: u64) {
        parts.log.compact(first_kept).expect("compact");
        self.acknowledged.entries = self.acknowledged.entries.split_off(&first_kept);
    }

    /// Starts the member from these files, twice, and says how it ended.
    fn judge(&self, files: &Files, damage: &str) -> Verdict {
        let path = self.folder.path().join("damaged");
        let _ = fs::remove_dir_all(&path);
        write_all(&path, files);
        let first = self.start(&path, damage);
        let second = self.start(&path, damage);
        assert_eq!(first, second, "{damage}: the second start ends otherwise");
        first
    }

    fn start(&self, path: &Path, damage: &str) -> Verdict {
        let started = catch_unwind(AssertUnwindSafe(|| {
            let mut parts = self.open(path)?;
            let recovered = recover(&mut parts, &build)?;
            Ok::<_, Refusal>((parts.identity.clone(), recovered))
        }));
        match started.unwrap_or_else(|_| panic!("{damage}: it panics")) {
            Ok((owner, recovered)) => {
                assert_eq!(owner, identity(), "{damage}");
                self.nothing_is_lost(&recovered, damage);
                Verdict::GoesOn
            }
            Err(refusal) => {
                assert!(refusal.names_damage(), "{damage}: {refusal:?}");
                Verdict::Refuses
            }
        }
    }

    fn nothing_is_lost(&self, recovered: &Recovered<State>, damage: &str) {
        let known = &self.acknowledged;
        let expected: State = rows(recovered.index).map(|r| (r.key, r.value)).collect();
        assert_eq!(recovered.state.as_ref(), Some(&expected), "{damage}");
        let found: Vec<&Entry> = recovered.entries.iter().collect();
        let behind: Vec<&Entry> = known
            .entries
            .range(recovered.log_start.0 + 1..)
            .map(|e| e.1)
            .collect();
        assert_eq!(found, behind, "{damage}: the entries");
        assert!(recovered.index >= recovered.log_start.0, "{damage}");
        let vote = (recovered.hard_state.term, recovered.hard_state.vote);
        let own = (known.hard_state.term, known.hard_state.vote);
        assert_eq!(vote, own, "{damage}: term and vote");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    GoesOn,
    Refuses,
}

fn build(rows: &mut dyn Iterator<Item = Row>, _index: u64) -> Result<State, String> {
    Ok(rows.map(|row| (row.key, row.value)).collect())
}

fn header_of(index: u64, term: u64) -> berth_store::Header {
    berth_store::Header {
        term,
        ..header(index)
    }
}

fn save(parts: &Parts<FileDisk>, header: berth_store::Header, keep: usize) {
    use berth_store::CheckpointStore as _;
    let index = header.index;
    checkpoints::save(&parts.checkpoints, header, rows(index)).expect("save");
    for old in parts
        .checkpoints
        .list()
        .expect("list")
        .into_iter()
        .skip(keep)
    {
        parts.checkpoints.remove(old).expect("remove");
    }
}

fn write_table(parts: &mut Parts<FileDisk>, index: u64, term: u64) {
    let header = header(index);
    let meta = TableMeta {
        index,
        term,
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

/// Why a start was refused.
#[derive(Debug)]
enum Refusal {
    Disk(disk::Error),
    Recover(recover::Error),
}

impl From<disk::Error> for Refusal {
    fn from(error: disk::Error) -> Self {
        Self::Disk(error)
    }
}

impl From<recover::Error> for Refusal {
    fn from(error: recover::Error) -> Self {
        Self::Recover(error)
    }
}

impl Refusal {
    /// Says whether the refusal names what is damaged, so that its remedy is to join again: it is
    /// not one of the operating system, which would have another remedy.
    fn names_damage(&self) -> bool {
        match self {
            Self::Disk(disk::Error::Identity(error)) => matches!(
                error,
                identity::Error::Missing { .. } | identity::Error::Damaged { .. }
            ),
            Self::Disk(disk::Error::Migration(error)) => matches!(
                error,
                berth_migrations::Error::Newer { .. } | berth_migrations::Error::Damaged { .. }
            ),
            Self::Disk(disk::Error::Log(error)) | Self::Recover(recover::Error::Log(error)) => {
                names_damage_of_log(error)
            }
            Self::Disk(disk::Error::Checkpoints(error))
            | Self::Recover(recover::Error::Checkpoints(error)) => {
                matches!(error, checkpoints::Error::Missing { .. })
            }
            Self::Disk(
                disk::Error::NotAFolder { .. }
                | disk::Error::NotAFile { .. }
                | disk::Error::Space(_)
                | disk::Error::Table(_),
            )
            | Self::Recover(recover::Error::State { .. }) => false,
            Self::Recover(
                recover::Error::Gap { .. }
                | recover::Error::Behind { .. }
                | recover::Error::Contradicted { .. }
                | recover::Error::Unwitnessed { .. }
                | recover::Error::Incomplete { .. }
                | recover::Error::NoCheckpoint { .. }
                | recover::Error::OtherCluster { .. }
                | recover::Error::LogLost { .. },
            ) => true,
        }
    }
}

fn names_damage_of_log(error: &log::Error) -> bool {
    match error {
        log::Error::Panicked(_)
        | log::Error::Corrupted { .. }
        | log::Error::Header { .. }
        | log::Error::Damaged(_)
        | log::Error::Witness(witness::Error::Missing { .. } | witness::Error::Foreign { .. }) => {
            true
        }
        log::Error::Full
        | log::Error::Witness(witness::Error::Io { .. })
        | log::Error::Io(_)
        | log::Error::Failed { .. }
        | log::Error::GaveUp { .. }
        | log::Error::Engine { .. } => false,
    }
}

fn read_all(root: &Path) -> Files {
    let mut files = Files::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("list") {
            let path = entry.expect("entry").path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let name = path.strip_prefix(root).expect("inside").to_owned();
                    files.insert(name, Content::of(fs::read(&path).expect("read")));
                }
            }
        }
    }
    files
}

fn write_all(root: &Path, files: &Files) {
    for (name, content) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("create");
        fs::write(&path, &content.used).expect("write");
        let file = fs::OpenOptions::new().write(true).open(&path);
        file.expect("open").set_len(content.length).expect("extend");
    }
}

/// Returns places from 0 to `end`, evenly spread: all of them, or as many as are sampled.
fn places(end: usize) -> Vec<usize> {
    let all = std::env::var("BERTH_EVERY_DAMAGE").is_ok_and(|v| v == "1");
    let step = match all {
        true => 1,
        // Odd, so that the places do not all fall on the same field of records of even length.
        false => (end.div_ceil(SAMPLES)) | 1,
    };
    (0..end).step_by(step).collect()
}

/// Counts of the ways in which starts ended, by file and damage.
#[derive(Default)]
struct Counts(BTreeMap<(String, &'static str), BTreeMap<Verdict, usize>>);

impl Counts {
    fn add(&mut self, file: &Path, kind: &'static str, verdict: Verdict) {
        let file = file.display().to_string();
        let of = self.0.entry((file, kind)).or_default();
        *of.entry(verdict).or_default() += 1;
    }

    fn print(&self, scene: &str) {
        let mut sum = BTreeMap::new();
        for ((file, kind), verdicts) in &self.0 {
            let goes_on = verdicts.get(&Verdict::GoesOn).unwrap_or(&0);
            let refuses = verdicts.get(&Verdict::Refuses).unwrap_or(&0);
            println!("{scene}: {file}, {kind}: {goes_on} go on, {refuses} refuse");
            for (verdict, count) in verdicts {
                *sum.entry(*verdict).or_insert(0) += count;
            }
        }
        println!("{scene}: in all {sum:?}");
    }
}

fn damage_all(scene: &Scene) -> Counts {
    let mut counts = Counts::default();
    let whole = &scene.last;
    assert_eq!(scene.judge(whole, "nothing"), Verdict::GoesOn);
    for (name, content) in whole {
        let mut run = |kind: &'static str, at: usize, changed: Option<Content>| {
            let mut files = whole.clone();
            match changed {
                Some(changed) => files.insert(name.clone(), changed),
                None => files.remove(name),
            };
            let damage = format!("{kind} of {} at {at}", name.display());
            counts.add(name, kind, scene.judge(&files, &damage));
        };
        run("deletion", 0, None);
        let end = content.used.len();
        for at in places(end) {
            let flipped = content.with(|bytes| bytes[at] ^= 1 << (at % 8));
            run("flip", at, Some(flipped));
            run("cut", at, Some(content.cut(at)));
        }
        for at in (0..end).step_by(SECTOR) {
            let zeroed = content.with(|bytes| bytes[at..(at + SECTOR).min(end)].fill(0));
            run("zeroed sector", at, Some(zeroed));
        }
        for (moment, earlier) in scene.earlier.iter().enumerate() {
            if let Some(older) = earlier.get(name).filter(|older| *older != content) {
                run("older file", moment, Some(older.clone()));
            }
        }
    }
    counts
}

/// Deletes whole folders, and puts them back as they were.
fn damage_folders(scene: &Scene, counts: &mut Counts) {
    for folder in ["log", "checkpoints", "table"] {
        let rest = |files: &Files, inside: bool| -> Files {
            let own = files
                .iter()
                .filter(|file| file.0.starts_with(folder) == inside);
            own.map(|(name, content)| (name.clone(), content.clone()))
                .collect()
        };
        let others = rest(&scene.last, false);
        let verdict = scene.judge(&others, &format!("deletion of {folder}/"));
        counts.add(Path::new(folder), "deletion", verdict);
        for (moment, earlier) in scene.earlier.iter().enumerate() {
            let mut files = others.clone();
            files.extend(rest(earlier, true));
            let verdict = scene.judge(&files, &format!("older {folder}/ {moment}"));
            counts.add(Path::new(folder), "older folder", verdict);
        }
    }
}

/// Replaces log and checkpoints by those of a fresh member, or deletes them, in every combination,
/// while the table stays: it shows that there was a state.
fn damage_around_the_table(scene: &Scene, counts: &mut Counts) {
    let is_of = |name: &Path, part: &str| match part {
        // The witness lies beside the log and belongs to it.
        "log" => !name.starts_with("checkpoints") && !name.starts_with("table") && !is_owner(name),
        part => name.starts_with(part),
    };
    for of_log in Replaced::ALL {
        for of_checkpoints in Replaced::ALL {
            let mut files = scene.last.clone();
            for (part, how) in [("log", of_log), ("checkpoints", of_checkpoints)] {
                if how != Replaced::Kept {
                    files.retain(|name, _| !is_of(name, part));
                }
                if how == Replaced::Fresh {
                    let fresh = scene.fresh.iter().filter(|file| is_of(file.0, part));
                    files.extend(fresh.map(|(name, content)| (name.clone(), content.clone())));
                }
            }
            let damage = format!("log {of_log:?}, checkpoints {of_checkpoints:?}, the table kept");
            let verdict = scene.judge(&files, &damage);
            let is_whole = (of_log, of_checkpoints) == (Replaced::Kept, Replaced::Kept);
            let expected = [Verdict::Refuses, Verdict::GoesOn][usize::from(is_whole)];
            assert_eq!(verdict, expected, "{damage}");
            counts.add(Path::new("log, checkpoints"), "replacement", verdict);
        }
    }
}

/// Whether a file says which member owns the directory, and in which layout it is.
fn is_owner(name: &Path) -> bool {
    name == Path::new("MEMBER") || name == Path::new("FORMAT")
}

/// What becomes of a part of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replaced {
    Kept,
    Fresh,
    Deleted,
}

impl Replaced {
    const ALL: [Self; 3] = [Self::Kept, Self::Fresh, Self::Deleted];
}

#[test]
fn every_damage_of_one_log_file_is_survived_or_refused() {
    let scene = Scene::new(32 << 20);
    let mut counts = damage_all(&scene);
    damage_folders(&scene, &mut counts);
    damage_around_the_table(&scene, &mut counts);
    counts.print("one log file");
}

#[test]
fn every_damage_of_many_log_files_is_survived_or_refused() {
    let scene = Scene::new(1024);
    let logs = scene.last.keys().filter(|name| name.starts_with("log"));
    assert!(logs.count() > 3, "{:?}", scene.last.keys());
    let mut counts = damage_all(&scene);
    damage_folders(&scene, &mut counts);
    damage_around_the_table(&scene, &mut counts);
    counts.print("many log files");
}
