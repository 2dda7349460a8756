//! The witness: a second place that knows how far the Raft log was synchronised.
//!
//! The log alone cannot show that its end is missing: what a loss of power tears off while it is
//! written looks like what a fault of the disk destroys later. The witness tells them apart. A
//! record is written after the log's own synchronisation, never before:
//!
//! | after a crash | means |
//! |---|---|
//! | log = witness | nothing was under way |
//! | log = witness + 1 | the crash came between the two; the write is whole and is kept |
//! | newest record torn | as before: the record before it counts |
//! | log < witness | the log lost a write after it was synchronised: damage |
//!
//! So the last row alone refuses the start, and no loss of power leads to it. What a record looks
//! like, and which of them counts, is in `witness_record`.
//!
//! An acknowledgement waits until its record is *written*: a process that is killed right after it
//! leaves both. The record's own synchronisation runs in a thread beside the log's next write, which
//! is not acknowledged before it is done. So the witness costs no second wait for the disk. What is
//! given up is small: if power is lost within that time, *and* a fault of the disk destroys exactly
//! the last write of the log, which was synchronised, nothing on this disk shows it.
//!
//! Rejected: waiting for the record's synchronisation too, which makes each write half as long
//! again or twice as long (`examples/witness_cost.rs`). Rejected: synchronising both at once. Then
//! the witness may be ahead of the log after a loss of power, by a write that was never
//! acknowledged, and the last acknowledged write is not covered at any time.
//!
//! The witness does *not* hold entries and repairs nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use crate::extent::Extent;
use crate::identity::Identity;
use crate::witness_record::{self, BYTES, Newest, OtherOwner};

/// Why the witness cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is none, although one was made.
    #[error("{path} is missing, so nothing shows whether the Raft log is whole")]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// It belongs to another directory, or the marker was changed.
    #[error(
        "{path} belongs to another member or disk than the marker in the directory names: one of \
         the two is damaged or comes from elsewhere"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("{path} could not be {doing}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was attempted.
        doing: &'static str,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
}

/// The witness of a directory.
pub struct Witness {
    path: PathBuf,
    file: File,
    owner: u64,
    newest: Extent,
    damaged: usize,
    /// Started with the first record.
    synchroniser: Option<Synchroniser>,
}

impl Witness {
    /// Opens the witness of this member's directory and reads its newest record.
    pub fn open(path: &Path, identity: &Identity) -> Result<Self, Error> {
        let io = |doing| {
            move |source| Error::Io {
                path: path.into(),
                doing,
                source,
            }
        };
        let mut file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::Missing { path: path.into() });
            }
            Err(error) => return Err(io("opened")(error)),
        };
        let mut bytes = Vec::with_capacity(BYTES);
        (&mut file)
            .take(BYTES as u64)
            .read_to_end(&mut bytes)
            .map_err(io("read"))?;
        let owner = witness_record::owner_of(identity);
        let Newest {
            extent: newest,
            damaged,
        } = witness_record::newest(&bytes, owner)
            .map_err(|OtherOwner| Error::Foreign { path: path.into() })?;
        Ok(Self {
            path: path.to_owned(),
            file,
            owner,
            newest,
            damaged,
            synchroniser: None,
        })
    }

    /// Returns the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the newest record; with sequence 0 if there is none.
    pub fn newest(&self) -> Extent {
        self.newest
    }

    /// Returns how many records were torn or damaged when the file was opened.
    pub fn damaged(&self) -> usize {
        self.damaged
    }

    /// Writes down what the log is, once the record before it is durable. Only to be called when
    /// the log is synchronised. The new record is durable after the next call, or after
    /// [`settle`](Self::settle).
    pub fn record(&mut self, extent: Extent) -> Result<(), Error> {
        self.settle()?;
        let block = witness_record::encode(extent, self.owner);
        let at = witness_record::position(extent) as u64;
        let written = self.file.write_all_at(&block, at);
        written.map_err(|source| self.io_error("written", source))?;
        self.newest = extent;
        let begun = match &mut self.synchroniser {
            Some(synchroniser) => synchroniser.begin(),
            None => Synchroniser::start(&self.file)
                .and_then(|new| self.synchroniser.insert(new).begin()),
        };
        begun.map_err(|source| self.io_error("synchronised", source))
    }

    /// Waits until the newest record is durable.
    pub fn settle(&mut self) -> Result<(), Error> {
        let settled = match &mut self.synchroniser {
            Some(synchroniser) => synchroniser.wait(),
            None => Ok(()),
        };
        settled.map_err(|source| self.io_error("synchronised", source))
    }

    fn io_error(&self, doing: &'static str, source: io::Error) -> Error {
        Error::Io {
            path: self.path.clone(),
            doing,
            source,
        }
    }
}

/// The thread that synchronises the file, one request at a time.
struct Synchroniser {
    /// `None` once it is to end.
    requests: Option<SyncSender<()>>,
    results: Receiver<io::Result<()>>,
    under_way: bool,
    thread: Option<JoinHandle<()>>,
}

impl Synchroniser {
    fn start(file: &File) -> io::Result<Self> {
        let file = file.try_clone()?;
        let (requests, requested) = sync_channel(1);
        let (finished, results) = sync_channel(1);
        let thread = thread::Builder::new()
            .name("berth-witness".into())
            .spawn(move || {
                while let Ok(()) = requested.recv() {
                    if finished.send(file.sync_data()).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Self {
            requests: Some(requests),
            results,
            under_way: false,
            thread: Some(thread),
        })
    }

    fn begin(&mut self) -> io::Result<()> {
        let sent = self.requests.as_ref().map(|requests| requests.send(()));
        self.under_way = true;
        match sent {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) | None => Err(ended()),
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.under_way) {
            true => self.results.recv().unwrap_or_else(|_| Err(ended())),
            false => Ok(()),
        }
    }
}

impl Drop for Synchroniser {
    /// The directory's lock is given back after this: no other process may find the file in use.
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // It has nothing to say that was not said by its result.
            let _ = thread.join();
        }
    }
}

fn ended() -> io::Error {
    io::Error::other("the thread that synchronises it has ended")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::witness_record::{BLOCK_BYTES, BLOCKS, BODY_BYTES};

    fn identity(member_id: u64) -> Identity {
        Identity {
            cluster_id: "c".into(),
            member_id,
            disk_id: "d".into(),
        }
    }

    fn extent(sequence: u64) -> Extent {
        Extent {
            sequence,
            first_index: 2,
            last_index: sequence + 1,
            last_term: 1,
            terms_hash: 9,
        }
    }

    fn blank() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("WITNESS");
        fs::write(&path, vec![0; berth_migrations::WITNESS_BYTES]).expect("write");
        (folder, path)
    }

    #[test]
    fn the_newest_record_counts() {
        let (_folder, path) = blank();
        let mut witness = Witness::open(&path, &identity(1)).expect("open");
        assert_eq!(witness.newest(), Extent::default());
        for sequence in 1..=21 {
            witness.record(extent(sequence)).expect("record");
        }
        let witness = Witness::open(&path, &identity(1)).expect("open");
        assert_eq!((witness.newest(), witness.damaged()), (extent(21), 0));
    }

    /// Goal: whichever byte of the newest record is wrong, the one before it counts, and a wrong
    /// byte elsewhere changes nothing. Method: every byte in turn.
    #[test]
    fn a_damaged_record_falls_back_to_the_one_before() {
        let (_folder, path) = blank();
        let mut witness = Witness::open(&path, &identity(1)).expect("open");
        for sequence in 1..=12 {
            witness.record(extent(sequence)).expect("record");
        }
        let sound = fs::read(&path).expect("read");
        for at in (0..sound.len()).filter(|at| at % BLOCK_BYTES < 80) {
            let mut bytes = sound.clone();
            bytes[at] ^= 0x10;
            fs::write(&path, bytes).expect("write");
            let newest = Witness::open(&path, &identity(1)).expect("open").newest();
            let hit = at / BLOCK_BYTES == 12 % BLOCKS as usize && at % BLOCK_BYTES < BODY_BYTES + 4;
            assert_eq!(newest, extent(if hit { 11 } else { 12 }), "byte {at}");
        }
    }

    #[test]
    fn a_cut_file_has_what_is_left() {
        let (_folder, path) = blank();
        let mut witness = Witness::open(&path, &identity(1)).expect("open");
        for sequence in 1..=7 {
            witness.record(extent(sequence)).expect("record");
        }
        let file = File::options().write(true).open(&path).expect("open");
        file.set_len(7 * BLOCK_BYTES as u64 + 10).expect("truncate");
        let witness = Witness::open(&path, &identity(1)).expect("open");
        assert_eq!((witness.newest(), witness.damaged()), (extent(6), 1));
    }

    #[test]
    fn the_witness_of_another_member_is_refused() {
        let (_folder, path) = blank();
        let mut witness = Witness::open(&path, &identity(1)).expect("open");
        witness.record(extent(1)).expect("record");
        let other = Witness::open(&path, &identity(2)).map(|_| ());
        assert!(matches!(other, Err(Error::Foreign { .. })));
        fs::remove_file(&path).expect("remove");
        let missing = Witness::open(&path, &identity(1)).map(|_| ());
        assert!(matches!(missing, Err(Error::Missing { .. })));
    }
}
