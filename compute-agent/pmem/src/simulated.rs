//! Simulated persistent memory: in memory, under any clock, with injected faults.
//!
//! A [`World`] is a host's memory: its namespaces, what is written in them, and what goes wrong. It
//! outlives the [`Simulated`] that an agent uses, as the real one outlives the agent. Contents are
//! kept as runs of one byte, so that a namespace may have terabytes.
//!
//! Nothing runs by itself: each call first does what has become due by the clock that was passed in. The
//! same calls at the same times give the same results.
//!
//! Invariant: what a listing means, and what makes a namespace unusable, is decided by the very code
//! that reads real listings.

mod contents;
mod erases;
mod world;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::config::Configured;
use crate::discovery::Discovery;
use crate::memory::{Error, Order, Pmem, Progress};
use crate::versions::Versions;

pub(crate) use contents::Contents;
use erases::Erases;
pub use world::{Memory, World};

/// The time since some beginning; it never goes back.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Returns a clock that goes as fast as ours.
#[must_use]
pub fn wall_clock() -> Clock {
    let begin = Instant::now();
    Arc::new(move || begin.elapsed())
}

/// How many namespaces are erased at the same time.
const PARALLEL: usize = 2;

/// An agent's view of a [`World`].
pub struct Simulated {
    world: World,
    configured: Configured,
    clock: Clock,
    erases: Mutex<Erases>,
}

impl Simulated {
    /// Returns the world's memory as an agent with that configuration sees it.
    #[must_use]
    pub fn new(world: &World, configured: Configured, clock: Clock) -> Self {
        Self {
            world: world.clone(),
            configured,
            clock,
            erases: Mutex::default(),
        }
    }

    /// Returns when something happens next by itself, in the time of the clock: an erase that ends
    /// or fails.
    #[must_use]
    pub fn next_event(&self) -> Option<Duration> {
        self.settled().next_event(&self.world)
    }

    /// Returns the erases after what has become due.
    fn settled(&self) -> MutexGuard<'_, Erases> {
        let mut erases = self.erases.lock().unwrap_or_else(PoisonError::into_inner);
        erases.settle(&self.world, &self.configured, (self.clock)());
        erases
    }
}

impl Pmem for Simulated {
    fn versions(&self) -> Versions {
        self.world.versions()
    }

    fn discover(&self) -> Result<Discovery, Error> {
        drop(self.settled());
        self.world.discover(&self.configured)
    }

    fn start_erase(&self, order: &Order) -> Result<Progress, Error> {
        if self.configured.label(&order.namespace).is_none() {
            let namespace = order.namespace.clone();
            return Err(Error::NotConfigured { namespace });
        }
        let mut erases = self.settled();
        erases.start(order)?;
        erases.settle(&self.world, &self.configured, (self.clock)());
        let progress = erases.progress(&order.namespace);
        Ok(progress.expect("it was started a moment ago"))
    }

    fn erases(&self) -> Vec<Progress> {
        self.settled().all()
    }

    fn erase(&self, namespace: &str) -> Option<Progress> {
        self.settled().progress(namespace)
    }

    fn abort_erase(&self, namespace: &str) {
        let mut erases = self.settled();
        erases.abort(namespace);
        erases.settle(&self.world, &self.configured, (self.clock)());
    }
}
