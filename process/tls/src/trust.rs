//! The trust in the peer of an open connection: the certificate chain that it presented, and whether
//! the current authorities trust it.
//!
//! ```text
//!   handshake ─▶ Trust ─┬▶ each request: compares numbers, and verifies again after a change
//!                       └▶ change (files reloaded, certificates revoked): all chains are verified
//!                          again, untrusted ones closed
//! ```
//!
//! Invariant: no request is accepted on a chain that the newest files do not trust or that is revoked,
//! and a connection with such a chain is closed, with all streams that are open on it.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Waker};

use rustls::pki_types::{CertificateDer, ServerName};

use crate::live::Tls;

/// Which end of a connection the peer is.
#[derive(Clone, Debug)]
pub(crate) enum Side {
    /// It dialled.
    Client,
    /// It was dialled by this name.
    Server(ServerName<'static>),
}

/// The trust in the peer of one open connection.
#[derive(Debug)]
pub struct Trust {
    tls: Tls,
    /// Its key among the open connections of `tls`.
    number: u64,
    chain: Vec<CertificateDer<'static>>,
    side: Side,
    /// What was trusted when the chain was last verified.
    verified_with: AtomicU64,
    /// Why it was closed.
    ended: OnceLock<String>,
    /// Wakes the task that waits for data on the connection.
    waiting: Mutex<Option<Waker>>,
}

impl Trust {
    /// Registers a connection whose peer presented a chain. `trust_version` is that of before the files
    /// were read with which the handshake verified it.
    ///
    /// # Errors
    ///
    /// When files that were loaded meanwhile do not trust it, or it is revoked.
    pub(crate) fn new(
        tls: &Tls,
        trust_version: u64,
        chain: &[CertificateDer<'static>],
        side: Side,
    ) -> Result<Arc<Self>, String> {
        let trust = tls.connections().insert(|number| Self {
            tls: tls.clone(),
            number,
            chain: chain.to_vec(),
            side,
            verified_with: AtomicU64::new(trust_version),
            ended: OnceLock::new(),
            waiting: Mutex::default(),
        });
        // A reload publishes the files first and reviews the connections then: a connection that the
        // review missed is checked here against the published files.
        trust.check()?;
        // The handshake knows nothing of this.
        tls.revoked_list().check(&trust.chain)?;
        Ok(trust)
    }

    /// Checks that the current authorities trust the peer's certificate, and that it is not revoked.
    ///
    /// # Errors
    ///
    /// Why they do not.
    pub fn check(&self) -> Result<(), String> {
        if let Some(why) = self.ended.get() {
            return Err(why.clone());
        }
        // Before what it counts is read: a change in between is seen by the next check.
        let version = self.tls.trust_version();
        if self.verified_with.load(Ordering::Acquire) == version {
            return Ok(());
        }
        self.tls.current().verify(&self.chain, &self.side)?;
        self.tls.revoked_list().check(&self.chain)?;
        self.verified_with.store(version, Ordering::Release);
        Ok(())
    }

    /// Closes the connection.
    fn end(&self, why: String) {
        let _ = self.ended.set(why);
        let waiting = self.lock_waiting().take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }

    /// Returns the error of the connection once it was closed.
    pub(crate) fn broken(&self) -> Option<io::Error> {
        let why = self.ended.get()?;
        Some(io::Error::new(
            io::ErrorKind::ConnectionAborted,
            why.clone(),
        ))
    }

    /// Registers the waker of the task that waits for data, and returns the error if the connection was
    /// closed already.
    pub(crate) fn wait(&self, context: &Context<'_>) -> Option<io::Error> {
        let mut waiting = self.lock_waiting();
        let is_known = waiting
            .as_ref()
            .is_some_and(|waker| waker.will_wake(context.waker()));
        if !is_known {
            *waiting = Some(context.waker().clone());
        }
        drop(waiting);
        self.broken()
    }

    fn lock_waiting(&self) -> MutexGuard<'_, Option<Waker>> {
        // Every change is one assignment.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Trust {
    fn drop(&mut self) {
        self.tls.connections().remove(self.number);
    }
}

/// The open connections.
#[derive(Debug, Default)]
pub(crate) struct OpenConnections(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    made: u64,
    all: HashMap<u64, Weak<Trust>>,
}

impl OpenConnections {
    fn lock(&self) -> MutexGuard<'_, Open> {
        // Every change is one insertion or removal.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, make: impl FnOnce(u64) -> Trust) -> Arc<Trust> {
        let mut open = self.lock();
        open.made += 1;
        let number = open.made;
        let trust = Arc::new(make(number));
        open.all.insert(number, Arc::downgrade(&trust));
        trust
    }

    fn remove(&self, number: u64) {
        self.lock().all.remove(&number);
    }

    /// Closes the connections whose peers the newest files do not trust, and returns how many.
    pub(crate) fn review(&self) -> usize {
        // Dropping the last reference takes the lock, so none is dropped under it.
        let open: Vec<_> = {
            let open = self.lock();
            open.all.values().filter_map(Weak::upgrade).collect()
        };
        let mut ended = 0;
        for trust in open {
            if trust.broken().is_none()
                && let Err(why) = trust.check()
            {
                trust.end(why);
                ended += 1;
            }
        }
        ended
    }
}
