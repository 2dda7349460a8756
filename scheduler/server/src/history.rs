//! The state of a cluster at a moment of its history, as its backups give it.
//!
//! Not here: opening files, and what is done with the state: a new group (`new_group`) or reads
//! ([`reader`](crate::reader)).
//!
//! Invariant: a state is given only if the files reach the moment and verify.

use std::io::Read;

use berth_backup::{Chain, Reader, Summary, Verified, VerifyError};
use berth_domain::id::TimeMs;
use berth_domain::version::ServiceVersion;
use berth_replication::replay::{Observer, Unobserved};
use berth_state::State;
use berth_state::command::Envelope;

use crate::machine::{Level, Machine};
use crate::moment::Moment;

/// Why there is no state.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The files do not verify.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// The full backup is of later than the moment.
    #[error("its last command is later than {0}")]
    Later(String),
    /// All files are of before the moment.
    #[error("the last of them is older than {0}")]
    NotReached(String),
}

/// Backups that were taken so far.
pub struct History {
    chain: Chain<Machine>,
    at: Option<Moment>,
    made_at: TimeMs,
}

impl History {
    /// Begins with no file. It leads to the state at this moment, or at the end of the last file.
    #[must_use]
    pub fn new(level: ServiceVersion, at: Option<Moment>) -> Self {
        let chain = Chain::new(Level(level));
        let chain = match &at {
            None => chain,
            Some(Moment::Revision(at)) => chain.up_to(*at),
            Some(Moment::Time(at, _)) => {
                let at = *at;
                chain.before(move |command: &Envelope| command.at > at)
            }
        };
        Self {
            chain,
            at,
            made_at: TimeMs::default(),
        }
    }

    /// Takes the next file.
    ///
    /// # Errors
    ///
    /// It is not sound, does not follow the one before it, or begins after the moment.
    pub fn add<R: Read>(&mut self, reader: Reader<R>) -> Result<Summary, Error> {
        self.add_observed(reader, &mut Unobserved)
    }

    /// Takes the next file as [`Self::add`] does, and shows each replayed command to an observer.
    ///
    /// # Errors
    ///
    /// As those of [`Self::add`].
    pub fn add_observed<R: Read>(
        &mut self,
        reader: Reader<R>,
        observer: &mut dyn Observer<Machine>,
    ) -> Result<Summary, Error> {
        self.made_at = TimeMs(reader.header().created_ms);
        let is_first = self.chain.position().is_none();
        let summary = self.chain.add_observed(reader, observer)?;
        let state = self.chain.machine().map(Machine::state);
        if let (Some(Moment::Time(at, typed)), Some(state)) = (&self.at, state)
            && is_first
            && state.time() > *at
        {
            return Err(Error::Later(typed.clone()));
        }
        Ok(summary)
    }

    /// Returns the state as far as files were taken; none before the first.
    #[must_use]
    pub fn state(&self) -> Option<&State> {
        self.chain.machine().map(Machine::state)
    }

    /// Returns the state at the moment.
    ///
    /// # Errors
    ///
    /// The files do not reach it, or the state is not sound.
    pub fn finish(self) -> Result<Verified<Machine>, Error> {
        Ok(self.reached()?.finish()?)
    }

    /// As [`Self::finish`], without a check of the state's invariants: what is made of it is checked.
    ///
    /// # Errors
    ///
    /// The files do not reach it, or the state is another one than they state.
    pub(crate) fn finish_unchecked(self) -> Result<Verified<Machine>, Error> {
        Ok(self.reached()?.finish_unchecked()?)
    }

    /// Returns the files if they reach the moment.
    fn reached(self) -> Result<Chain<Machine>, Error> {
        match self.at {
            Some(Moment::Time(at, typed)) if !self.chain.is_reached() && self.made_at < at => {
                Err(Error::NotReached(typed))
            }
            Some(Moment::Time(..) | Moment::Revision(_)) | None => Ok(self.chain),
        }
    }
}
