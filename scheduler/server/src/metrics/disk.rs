//! The disk of this member: how large its parts are, how much is free, and its newest checkpoint.
//!
//! It is read every few seconds by a thread that may hang, not at a scrape: a disk that does not answer
//! delays nothing but this.
//!
//! Invariant: what could not be read is left out, and the age of the values is among them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use berth_process::metrics::{Definition, Exposition};
use berth_store::{folders, space};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

static SIZE: Definition = Definition::gauge(
    "berth_disk_used_bytes",
    &["part"],
    "Size of a part of the data directory: the Raft log, the checkpoints, the table.",
);
static FREE: Definition = Definition::gauge(
    "berth_disk_free_bytes",
    &[],
    "Free space of the disk of the data directory.",
);
static CHECKPOINT: Definition = Definition::gauge(
    "berth_checkpoint_index",
    &[],
    "The entry of the log at which the newest checkpoint was taken.",
);
static CHECKPOINT_AGE: Definition = Definition::gauge(
    "berth_checkpoint_age_seconds",
    &[],
    "Time since the newest checkpoint was written.",
);
static AGE: Definition = Definition::gauge(
    "berth_disk_sample_age_seconds",
    &[],
    "Time since the sizes of the data directory were read; it grows while the disk does not answer.",
);

const INTERVAL: Duration = Duration::from_secs(5);
/// How many files of a part are counted: a directory of a member has a few.
const FILES_MAX: usize = 100_000;

/// What is known of the disk.
#[derive(Clone, Debug, Default)]
struct Sample {
    used: Vec<(&'static str, u64)>,
    free_bytes: Option<u64>,
    checkpoint: Option<(u64, SystemTime)>,
}

/// The latest sample, and when it was read.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk(Arc<Mutex<Option<(Instant, Sample)>>>);

impl Disk {
    /// Reads the data directory until `stopping`.
    pub(super) async fn run(self, data_dir: PathBuf, stopping: CancellationToken) {
        let sampling = async {
            loop {
                let directory = data_dir.clone();
                if let Ok(sample) = spawn_blocking(move || sample(&directory)).await {
                    *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
                        Some((Instant::now(), sample));
                }
                tokio::time::sleep(INTERVAL).await;
            }
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = sampling => {}
        }
    }

    pub(super) fn expose(&self, out: &mut Exposition) {
        for definition in [&SIZE, &FREE, &CHECKPOINT, &CHECKPOINT_AGE, &AGE] {
            out.declare(definition);
        }
        // It is replaced as a whole.
        let latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((read_at, sample)) = latest.clone() else {
            return;
        };
        drop(latest);
        for (part, bytes) in sample.used {
            out.add(&SIZE, [part], bytes);
        }
        if let Some(bytes) = sample.free_bytes {
            out.set(&FREE, bytes);
        }
        if let Some((index, written_at)) = sample.checkpoint {
            out.set(&CHECKPOINT, index);
            out.set(&CHECKPOINT_AGE, written_at.elapsed().unwrap_or_default());
        }
        out.set(&AGE, read_at.elapsed());
    }
}

fn sample(data_dir: &Path) -> Sample {
    let parts = [
        ("log", folders::LOG),
        ("checkpoints", folders::CHECKPOINTS),
        ("table", folders::TABLE),
    ];
    let used = parts.map(|(part, folder)| (part, size(&data_dir.join(folder))));
    Sample {
        used: used.to_vec(),
        free_bytes: space::free_mib(data_dir).ok().map(|mib| mib << 20),
        checkpoint: newest_checkpoint(&data_dir.join(folders::CHECKPOINTS)),
    }
}

/// Returns the size of the files in a directory and below; of what can be read.
fn size(path: &Path) -> u64 {
    let mut directories = vec![path.to_owned()];
    let (mut bytes, mut files) = (0, 0);
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            files += 1;
            if files > FILES_MAX {
                return bytes;
            }
            // A file may have been removed meanwhile.
            match entry.metadata() {
                Ok(found) if found.is_dir() => directories.push(entry.path()),
                Ok(found) => bytes += found.len(),
                Err(_) => {}
            }
        }
    }
    bytes
}

fn newest_checkpoint(path: &Path) -> Option<(u64, SystemTime)> {
    let entries = std::fs::read_dir(path).ok()?.flatten();
    let checkpoint = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        let index = name.to_str()?.strip_prefix("checkpoint-")?.parse().ok()?;
        Some((index, entry.metadata().ok()?.modified().ok()?))
    };
    entries.filter_map(checkpoint).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_measured_and_the_newest_checkpoint_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for (file, bytes) in [
            ("a", 7),
            ("below/b", 5),
            ("checkpoint-00000000000000000007", 1),
            ("checkpoint-00000000000000000012", 1),
            ("new-3.part", 1),
        ] {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, vec![0; bytes]).unwrap();
        }
        assert_eq!(size(folder.path()), 15);
        let newest = newest_checkpoint(folder.path()).unwrap();
        assert_eq!(newest.0, 12);
        assert_eq!(size(&folder.path().join("absent")), 0);
    }
}
