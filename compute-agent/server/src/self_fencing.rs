//! The self-fencing promise of this agent: within which time its guests stop once no heartbeat of it is
//! acknowledged; and how its next run learns of the promise.
//!
//! ```text
//!   scheduler: stop your guests N ms after your last heartbeat that was acknowledged
//!        │
//!        ▼
//!   written down ─▶ kept by the core ─▶ promised: registered with the host's report
//! ```
//!
//! A promise is kept from before it is registered until after it is withdrawn. It states when *nothing
//! runs any more*, so it is made only where that is true also if this process dies: with simulated
//! guests, which live in it, and where a watchdog resets the machine. Guests of a real hypervisor
//! outlive their agent, and nothing would stop them; a host with them and without a watchdog promises
//! nothing.
//!
//! Invariant: what is kept is never weaker than any promise that the scheduler may have on record.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use berth_agent_core::STOPPING_MS;
use berth_domain::id::TimeMs;

/// Changes with every start of the machine, at which the clock restarts.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What the next run of the agent has to know: its guests may have been started elsewhere meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PersistedPromise {
    boot: String,
    sent_at_ms: u64,
    limit_ms: u64,
}

/// The promise of one run of the agent.
#[derive(Debug)]
pub(crate) struct SelfFencing {
    /// Whether its guests end with this process or a watchdog ends them, so that something always
    /// stops them.
    possible: bool,
    /// How much longer that may take than if this process did it.
    reset_ms: u64,
    /// Where it is written down; nowhere, where no guest outlives this process.
    file: Option<PathBuf>,
    /// What may be on record: the limits that were promised last and before it, 0 for none.
    promised: [u64; 2],
    /// The limit that the scheduler requests.
    requested_limit_ms: u64,
}

impl SelfFencing {
    /// Returns that of a run that has promised nothing yet.
    pub(crate) fn new(possible: bool, file: Option<PathBuf>) -> Self {
        Self {
            possible,
            reset_ms: 0,
            file,
            promised: [0, 0],
            requested_limit_ms: 0,
        }
    }

    /// Returns that of a host that a watchdog resets so long after it was to be fed last.
    pub(crate) fn by_reset(file: PathBuf, reset_ms: u64) -> Self {
        Self {
            reset_ms,
            ..Self::new(true, Some(file))
        }
    }

    /// Records the limit that the scheduler requests.
    pub(crate) fn set_requested_limit(&mut self, limit_ms: u64) {
        self.requested_limit_ms = if self.possible { limit_ms } else { 0 };
    }

    /// Returns whether the registered promise differs from the requested limit.
    pub(crate) fn differs(&self) -> bool {
        self.promised != [self.requested_limit_ms; 2]
    }

    /// Returns what has to be kept: the strictest of all promises that may be on record. 0: none.
    pub(crate) fn kept_ms(&self) -> u64 {
        let strict = self.promised.into_iter().filter(|ms| *ms > 0);
        strict.min().unwrap_or(0)
    }

    /// Begins to promise the requested limit, and returns what is to be registered.
    pub(crate) fn begin(&mut self) -> u64 {
        if self.promised[1] != self.requested_limit_ms {
            // What was begun before may be on record as well as what is.
            let strictest = self.kept_ms();
            self.promised = [strictest, self.requested_limit_ms];
        }
        match self.requested_limit_ms {
            0 => 0,
            limit_ms => limit_ms
                .saturating_add(STOPPING_MS)
                .saturating_add(self.reset_ms),
        }
    }

    /// It was registered: no other promise is on record any more.
    pub(crate) fn registered(&mut self) {
        self.promised = [self.promised[1]; 2];
    }

    /// Writes down that a report that was sent then was answered, for the next run.
    ///
    /// # Errors
    ///
    /// When it cannot be; what was written before is stricter.
    pub(crate) fn persist(&self, sent_at: TimeMs) -> io::Result<()> {
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
        let persist = PersistedPromise {
            boot: boot()?,
            sent_at_ms: sent_at.0,
            limit_ms,
        };
        if let Some(directory) = file.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let aside = file.with_extension("new");
        std::fs::write(&aside, persist.to_string())?;
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

fn read(file: &Path) -> io::Result<Option<PersistedPromise>> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let note = PersistedPromise::parse(&text).ok_or_else(|| {
        let why = format!("{} is not the record of an agent", file.display());
        io::Error::new(io::ErrorKind::InvalidData, why)
    })?;
    Ok(Some(note))
}

impl PersistedPromise {
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

impl fmt::Display for PersistedPromise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {} {}", self.boot, self.sent_at_ms, self.limit_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is kept is as strict as all that may be on record. Method: the requested limit
    /// changes while answers are lost.
    #[test]
    fn what_may_be_on_record_is_kept() {
        let mut own = SelfFencing::new(true, None);
        own.set_requested_limit(9_000);
        assert_eq!((own.differs(), own.kept_ms()), (true, 0));
        assert_eq!((own.begin(), own.kept_ms()), (14_000, 9_000));
        own.registered();
        assert!(!own.differs());
        // To a longer one: the answer is lost, then another is requested.
        own.set_requested_limit(20_000);
        assert_eq!((own.begin(), own.kept_ms()), (25_000, 9_000));
        own.set_requested_limit(15_000);
        assert_eq!((own.begin(), own.kept_ms()), (20_000, 9_000));
        own.registered();
        assert_eq!(own.kept_ms(), 15_000);
        // To none: kept until that is on record.
        own.set_requested_limit(0);
        assert_eq!((own.begin(), own.kept_ms()), (0, 15_000));
        own.registered();
        assert_eq!((own.differs(), own.kept_ms()), (false, 0));
    }

    #[test]
    fn a_host_whose_guests_outlive_the_agent_promises_nothing() {
        let mut own = SelfFencing::new(false, None);
        own.set_requested_limit(9_000);
        assert_eq!((own.differs(), own.begin(), own.kept_ms()), (false, 0, 0));
    }

    /// Goal: a host that is reset promises a time by which it has been.
    #[test]
    fn a_reset_takes_longer_than_a_stop() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("made/lease");
        let mut own = SelfFencing::by_reset(file.clone(), 32_000);
        own.set_requested_limit(9_000);
        assert_eq!((own.begin(), own.kept_ms()), (46_000, 9_000));
        own.persist(TimeMs(77)).unwrap();
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
        own.set_requested_limit(9_000);
        let _ = own.begin();
        own.persist(TimeMs(77)).unwrap();
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
        own.set_requested_limit(0);
        let _ = own.begin();
        own.registered();
        own.persist(TimeMs(78)).unwrap();
        assert!(!file.exists());
    }
}
