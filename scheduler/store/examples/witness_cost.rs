//! Measures what the witness adds to a synchronised write of the Raft log.
//!
//! Three logs on the same disk take turns, a hundred writes each: one whose witness is in memory,
//! where it costs next to nothing; one whose witness is on that disk too; and one which also waits
//! for the witness's own synchronisation, which [`EngineLog`] does not. It prints a line for each
//! size of a write.
//!
//! ```text
//! cargo run --release -p berth-store --example witness_cost [rounds] [folder]
//! ```

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use berth_store::log::{EngineLog, FILE_BYTES};
use berth_store::witness::Witness;
use berth_store::{Identity, LogBatch, LogStore as _};
use raft::eraftpb::{Entry, HardState};

/// A place in memory, for the witness that is to cost nothing.
const MEMORY: &str = "/dev/shm";
const WRITES: u64 = 100;

struct Log {
    log: EngineLog,
    /// Waits for what the witness has yet to synchronise.
    strict: Option<File>,
    index: u64,
    times: Vec<Duration>,
}

impl Log {
    fn new(
        folder: &Path,
        witness: &Path,
        strict: bool,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        fs::write(witness, vec![0; 32 << 10])?;
        File::open(witness)?.sync_all()?;
        let identity = Identity {
            cluster_id: "cost".into(),
            member_id: 1,
            disk_id: "disk".into(),
        };
        Ok(Self {
            log: EngineLog::open(folder, Witness::open(witness, &identity)?, FILE_BYTES)?,
            strict: strict.then(|| File::open(witness)).transpose()?,
            index: 0,
            times: Vec::new(),
        })
    }

    fn write(&mut self, entries: u64) -> Result<(), Box<dyn std::error::Error>> {
        for _ in 0..WRITES {
            let first = self.index + 1;
            self.index += entries;
            let entries = (first..=self.index).map(|index| Entry {
                index,
                term: 1,
                data: vec![index as u8; 240].into(),
                ..Entry::default()
            });
            let batch = LogBatch {
                entries: entries.collect(),
                hard_state: Some(HardState {
                    term: 1,
                    vote: 1,
                    commit: first,
                    ..HardState::default()
                }),
                ..LogBatch::default()
            };
            let began = Instant::now();
            self.log.append(batch)?;
            self.log.sync()?;
            if let Some(witness) = &self.strict {
                witness.sync_data()?;
            }
            self.times.push(began.elapsed());
        }
        Ok(())
    }

    fn at(&mut self, share: f64) -> u128 {
        self.times.sort_unstable();
        self.times[((self.times.len() - 1) as f64 * share) as usize].as_micros()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let rounds: u64 = arguments.next().map_or(Ok(30), |text| text.parse())?;
    let base = arguments
        .next()
        .map_or_else(std::env::temp_dir, PathBuf::from);
    println!("us per write    without         with       strict");
    println!("entries       p50    p99    p50    p99    p50    p99");
    for entries in [1, 4, 64] {
        let folder = tempfile::tempdir_in(&base)?;
        let memory = tempfile::tempdir_in(MEMORY)?;
        let path = |name: &str| folder.path().join(name);
        let mut logs = [
            Log::new(&path("log-1"), &memory.path().join("witness"), false)?,
            Log::new(&path("log-2"), &path("witness-2"), false)?,
            Log::new(&path("log-3"), &path("witness-3"), true)?,
        ];
        for _ in 0..rounds {
            for log in &mut logs {
                log.write(entries)?;
            }
        }
        print!("{entries:7}   ");
        for log in &mut logs {
            print!(" {:6} {:6}", log.at(0.5), log.at(0.99));
        }
        println!();
    }
    Ok(())
}
