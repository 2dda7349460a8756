//! What this agent promises of its guests when nobody hears of it, and how the next run of it learns
//! of the promise.
//!
//! ```text
//!   scheduler: stop your guests N ms after your last report that was answered
//!        │
//!        ▼
//!   written down ─▶ kept by the core ─▶ promised: registered with the host's report
//! ```
//!
//! A promise is kept from before it is given until after it is taken back. It says when *nothing runs
//! any more*, and so it is given only where that is true also if this process dies: with simulated
//! guests, which live in it, and where a watchdog resets the machine. Guests of a real hypervisor
//! outlive their agent, and nobody would stop them; a host with them and without a watchdog promises
//! nothing.
//!
//! Invariant: what is kept is never weaker than anything that the scheduler may have on record.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use berth_domain::id::TimeMs;

use crate::core::STOPPING_MS;

/// Changes with every start of the machine, with which the clock begins anew.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What the next run of the agent has to know: its guests may have been given up meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Note {
    boot: String,
    sent_at_ms: u64,
    limit_ms: u64,
}

/// The promise of one run of the agent.
#[derive(Debug)]
pub(crate) struct SelfFencing {
    /// Whether its guests end with this process or a watchdog ends them, so that there is somebody to
    /// stop them always.
    possible: bool,
    /// How much longer that may take than if this process did it.
    reset_ms: u64,
    /// Where it is written down; nowhere, where no guest outlives this process.
    file: Option<PathBuf>,
    /// What may be on record: the limits that were promised last and before it, 0 for none.
    promised: [u64; 2],
    /// What the scheduler wants.
    wanted: u64,
}

impl SelfFencing {
    /// Returns that of a run that has promised nothing yet.
    pub(crate) fn new(possible: bool, file: Option<PathBuf>) -> Self {
        Self {
            possible,
            reset_ms: 0,
            file,
            promised: [0, 0],
            wanted: 0,
        }
    }

    /// Returns that of a host that a watchdog resets so long after it was to be fed last.
    pub(crate) fn by_reset(file: PathBuf, reset_ms: u64) -> Self {
        Self {
            reset_ms,
            ..Self::new(true, Some(file))
        }
    }

    /// Takes note of what the scheduler wants.
    pub(crate) fn want(&mut self, limit_ms: u64) {
        self.wanted = if self.possible { limit_ms } else { 0 };
    }

    /// Returns whether what was promised is not what is wanted.
    pub(crate) fn differs(&self) -> bool {
        self.promised != [self.wanted; 2]
    }

    /// Returns what has to be kept: the strictest of all that may be on record. 0: nothing.
    pub(crate) fn kept_ms(&self) -> u64 {
        let strict = self.promised.into_iter().filter(|ms| *ms > 0);
        strict.min().unwrap_or(0)
    }

    /// Begins to promise what is wanted, and returns what is to be registered.
    pub(crate) fn begin(&mut self) -> u64 {
        if self.promised[1] != self.wanted {
            // What was begun before may be on record as well as what is.
            let strictest = self.kept_ms();
            self.promised = [strictest, self.wanted];
        }
        match self.wanted {
            0 => 0,
            limit_ms => limit_ms
                .saturating_add(STOPPING_MS)
                .saturating_add(self.reset_ms),
        }
    }

    /// It was registered: nothing else is on record any more.
    pub(crate) fn registered(&mut self) {
        self.promised = [self.promised[1]; 2];
    }

    /// Writes down that a report that was sent then was answered, for the next run.
    ///
    /// # Errors
    ///
    /// When it cannot be; what was written before is stricter.
    pub(crate) fn note(&self, sent_at: TimeMs) -> io::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let limit_ms = self.kept_ms();
        if limit_ms == 0 {
            return match std::fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                Ok(()) | Err(_) => Ok(()),
            };
        }
        let note = Note {
            boot: boot()?,
            sent_at_ms: sent_at.0,
            limit_ms,
        };
        if let Some(directory) = file.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let aside = file.with_extension("new");
        std::fs::write(&aside, note.to_string())?;
        std::fs::rename(aside, file)
    }

    /// Takes up what an earlier run has promised: when its last answered report was sent, and how long
    /// after that its guests are to be stopped.
    ///
    /// # Errors
    ///
    /// When it is not known what that was.
    pub(crate) fn take_up(&mut self) -> io::Result<Option<(TimeMs, u64)>> {
        let Some(file) = &self.file else {
            return Ok(None);
        };
        let note = read(file)?.filter(|note| note.limit_ms > 0);
        let Some(note) = note else { return Ok(None) };
        // Its guests ended with the machine.
        if note.boot != boot()? {
            return Ok(None);
        }
        self.promised = [note.limit_ms, note.limit_ms];
        Ok(Some((TimeMs(note.sent_at_ms), note.limit_ms)))
    }
}

fn boot() -> io::Result<String> {
    Ok(std::fs::read_to_string(BOOT_ID)?.trim().to_owned())
}

fn read(file: &Path) -> io::Result<Option<Note>> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let note = Note::parse(&text).ok_or_else(|| {
        let why = format!("{} is not what an agent wrote there", file.display());
        io::Error::new(io::ErrorKind::InvalidData, why)
    })?;
    Ok(Some(note))
}

impl Note {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let note = Self {
            boot: words.next()?.to_owned(),
            sent_at_ms: words.next()?.parse().ok()?,
            limit_ms: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(note)
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {} {}", self.boot, self.sent_at_ms, self.limit_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is kept is as strict as all that may be on record. Method: what is wanted changes
    /// while answers are lost.
    #[test]
    fn what_may_be_on_record_is_kept() {
        let mut own = SelfFencing::new(true, None);
        own.want(9_000);
        assert_eq!((own.differs(), own.kept_ms()), (true, 0));
        assert_eq!((own.begin(), own.kept_ms()), (14_000, 9_000));
        own.registered();
        assert!(!own.differs());
        // To a longer one: the answer is lost, then another is wanted.
        own.want(20_000);
        assert_eq!((own.begin(), own.kept_ms()), (25_000, 9_000));
        own.want(15_000);
        assert_eq!((own.begin(), own.kept_ms()), (20_000, 9_000));
        own.registered();
        assert_eq!(own.kept_ms(), 15_000);
        // To none: kept until that is on record.
        own.want(0);
        assert_eq!((own.begin(), own.kept_ms()), (0, 15_000));
        own.registered();
        assert_eq!((own.differs(), own.kept_ms()), (false, 0));
    }

    #[test]
    fn a_host_whose_guests_outlive_the_agent_promises_nothing() {
        let mut own = SelfFencing::new(false, None);
        own.want(9_000);
        assert_eq!((own.differs(), own.begin(), own.kept_ms()), (false, 0, 0));
    }

    /// Goal: a host that is reset promises a time by which it has been.
    #[test]
    fn a_reset_takes_longer_than_a_stop() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("made/lease");
        let mut own = SelfFencing::by_reset(file.clone(), 32_000);
        own.want(9_000);
        assert_eq!((own.begin(), own.kept_ms()), (46_000, 9_000));
        own.note(TimeMs(77)).unwrap();
        assert!(file.exists());
    }

    /// Goal: the next run knows what this one has promised, as long as the machine runs.
    #[test]
    fn the_next_run_takes_it_up() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lease");
        let next = || SelfFencing::new(true, Some(file.clone()));
        assert_eq!(next().take_up().unwrap(), None);
        let mut own = next();
        own.want(9_000);
        let _ = own.begin();
        own.note(TimeMs(77)).unwrap();
        let mut second = next();
        assert_eq!(second.take_up().unwrap(), Some((TimeMs(77), 9_000)));
        assert_eq!(second.kept_ms(), 9_000);
        assert!(second.differs(), "nothing is wanted yet");

        let text = std::fs::read_to_string(&file).unwrap();
        let other = text.replace(&boot().unwrap(), "another");
        std::fs::write(&file, other).unwrap();
        assert_eq!(next().take_up().unwrap(), None, "another boot");
        std::fs::write(&file, "{").unwrap();
        assert!(next().take_up().is_err());
        own.want(0);
        let _ = own.begin();
        own.registered();
        own.note(TimeMs(78)).unwrap();
        assert!(!file.exists());
    }
}
