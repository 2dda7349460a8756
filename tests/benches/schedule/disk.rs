//! The floor that no durable service gets below: appending a record and syncing it, one by one.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use berth_tests::measure::figures::Figures;

/// Appends records of `bytes` bytes, each followed by fdatasync, for `time`.
pub(crate) fn append_and_sync(
    folder: &Path,
    bytes: usize,
    time: Duration,
) -> anyhow::Result<Figures> {
    let path = folder.join("append");
    let mut file = OpenOptions::new()
        .create_new(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("failed to create {}", path.display()))?;
    let record = vec![7; bytes];
    let mut figures = Figures::new();
    let start = Instant::now();
    while start.elapsed() < time {
        let begun = Instant::now();
        file.write_all(&record)?;
        file.sync_data()?;
        figures.record(begun.elapsed());
    }
    figures.end(start.elapsed());
    std::fs::remove_file(path)?;
    Ok(figures)
}
