//! Damage after which a member has to be removed and join again.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use berth_scheduler::stop::Reason;
use berth_store::folders::{CHECKPOINTS, LOG, WITNESS};

use super::single::{Group, Single, stops};

/// A reason and the damage to a directory that leads to it. The second folder is that of another
/// cluster's member.
type Damage = (Reason, fn(&Path, &Path));

const DAMAGES: &[Damage] = &[
    (Reason::MarkerDamaged, |own, _| {
        fs::write(own.join("MEMBER"), "nothing that a member writes").expect("a marker");
    }),
    (Reason::FormatDamaged, |own, _| {
        fs::write(own.join("FORMAT"), b"\xff\xfe").expect("a ledger");
    }),
    (Reason::FormatNewer, |own, _| {
        fs::write(own.join("FORMAT"), "4000 what a newer program does\n").expect("a ledger");
    }),
    (Reason::LogDamaged, |own, _| {
        // The alignment in the header of the newest file: 53 bytes of magic and a version before.
        let file = newest(&own.join(LOG), ".raftlog");
        let file = File::options().write(true).open(file).expect("a log");
        file.write_all_at(&[1], 61).expect("a damage");
    }),
    (Reason::LogBehind, |own, _| {
        fs::remove_dir_all(own.join(LOG)).expect("a log");
    }),
    (Reason::WitnessContradicts, |own, other| {
        fs::copy(other.join(WITNESS), own.join(WITNESS)).expect("a witness");
    }),
    (Reason::WitnessLost, |own, _| {
        fs::remove_file(own.join(WITNESS)).expect("a witness");
    }),
    (Reason::CheckpointsLost, |own, _| {
        fs::remove_dir_all(own.join(CHECKPOINTS)).expect("checkpoints");
    }),
    (Reason::CheckpointsLost, |own, _| {
        let checkpoint = newest(&own.join(CHECKPOINTS), CHECKPOINT);
        fs::remove_dir_all(own.join(CHECKPOINTS)).expect("checkpoints");
        fs::create_dir(own.join(CHECKPOINTS)).expect("a folder");
        fs::write(checkpoint, "nothing that a member writes").expect("a checkpoint");
    }),
    (Reason::MixedDirectory, |own, other| {
        let checkpoint = newest(&own.join(CHECKPOINTS), CHECKPOINT);
        fs::copy(newest(&other.join(CHECKPOINTS), CHECKPOINT), checkpoint).expect("a checkpoint");
    }),
];

/// What the names of checkpoints begin with.
const CHECKPOINT: &str = "checkpoint-";

/// The reasons that are produced here.
pub(super) const REASONS: &[Reason] = &[
    Reason::MarkerDamaged,
    Reason::FormatDamaged,
    Reason::FormatNewer,
    Reason::LogDamaged,
    Reason::LogBehind,
    Reason::WitnessContradicts,
    Reason::WitnessLost,
    Reason::CheckpointsLost,
    Reason::MixedDirectory,
];

/// Returns the file with the greatest of the names that contain this.
pub(super) fn newest(folder: &Path, part: &str) -> PathBuf {
    let entries = fs::read_dir(folder).expect("a folder");
    let files = entries.map(|entry| entry.expect("an entry").path());
    let has_part = |path: &PathBuf| path.to_string_lossy().contains(part);
    files.filter(has_part).max().expect("a file")
}

/// One member of three is damaged and replaced again and again; the others go on.
pub(super) async fn all() {
    let other = Single::used().await;
    let mut group = Group::start(&[]).await;
    for (reason, damage) in DAMAGES {
        assert!(REASONS.contains(reason), "{}", reason.code());
        group.kill(2);
        damage(&group.directory(2), &other.directory());
        stops(*reason, group.process(2, &[])).await;
        // A refusal changes nothing: the second start says the same.
        stops(*reason, group.process(2, &[])).await;
        group.replace(2).await;
    }
}
