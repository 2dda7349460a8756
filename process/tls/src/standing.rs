//! What a connection rests on: the chain of certificates that the other end has shown, and whether the
//! authorities that are trusted now stand behind it.
//!
//! ```text
//!   handshake ─▶ Standing ─┬▶ each request asks; a number is compared, unless the files were exchanged
//!                          └▶ other files: all are verified again, and those that do not hold are ended
//! ```
//!
//! Invariant: no request is let in on a chain that the newest files do not trust, and a connection whose
//! chain they do not trust ends by itself, with all streams that are open on it.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Waker};

use rustls::pki_types::{CertificateDer, ServerName};

use crate::live::Tls;

/// What the other end of a connection is to this one.
#[derive(Clone, Debug)]
pub(crate) enum Side {
    /// It has dialled.
    Client,
    /// It was dialled by this name.
    Server(ServerName<'static>),
}

/// What a connection rests on.
#[derive(Debug)]
pub struct Standing {
    tls: Tls,
    /// Under which it is known among those of `tls`.
    number: u64,
    chain: Vec<CertificateDer<'static>>,
    side: Side,
    /// With the files of which generation the chain was verified last.
    verified_with: AtomicU64,
    /// Why it was ended.
    ended: OnceLock<String>,
    /// Whoever waits for something to come on the connection.
    waiting: Mutex<Option<Waker>>,
}

impl Standing {
    /// Takes note of a connection whose other end has shown a chain that was verified with the files
    /// of a generation.
    ///
    /// # Errors
    ///
    /// When files that came meanwhile do not trust it.
    pub(crate) fn new(
        tls: &Tls,
        verified_with: u64,
        chain: &[CertificateDer<'static>],
        side: Side,
    ) -> Result<Arc<Self>, String> {
        let standing = tls.standings().insert(|number| Self {
            tls: tls.clone(),
            number,
            chain: chain.to_vec(),
            side,
            verified_with: AtomicU64::new(verified_with),
            ended: OnceLock::new(),
            waiting: Mutex::default(),
        });
        // Whoever exchanges the files makes them known first and looks at the connections then: what
        // he has not found here finds what he has made known.
        standing.check().map(|()| standing)
    }

    /// Checks that the authorities of now stand behind the other end's certificate.
    ///
    /// # Errors
    ///
    /// Why they do not.
    pub fn check(&self) -> Result<(), String> {
        if let Some(why) = self.ended.get() {
            return Err(why.clone());
        }
        if self.verified_with.load(Ordering::Acquire) == self.tls.generation() {
            return Ok(());
        }
        let material = self.tls.current();
        material.verify(&self.chain, &self.side)?;
        self.verified_with
            .store(material.generation(), Ordering::Release);
        Ok(())
    }

    /// Ends the connection.
    fn end(&self, why: String) {
        let _ = self.ended.set(why);
        let waiting = self.lock_waiting().take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }

    /// Returns what breaks the connection, once it was ended.
    pub(crate) fn broken(&self) -> Option<io::Error> {
        let why = self.ended.get()?;
        Some(io::Error::new(
            io::ErrorKind::ConnectionAborted,
            why.clone(),
        ))
    }

    /// Has somebody told who waits for something to come, and returns whether the connection was ended
    /// already.
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

impl Drop for Standing {
    fn drop(&mut self) {
        self.tls.standings().remove(self.number);
    }
}

/// The connections that are open.
#[derive(Debug, Default)]
pub(crate) struct Standings(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    made: u64,
    all: HashMap<u64, Weak<Standing>>,
}

impl Standings {
    fn lock(&self) -> MutexGuard<'_, Open> {
        // Every change is one insertion or removal.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, make: impl FnOnce(u64) -> Standing) -> Arc<Standing> {
        let mut open = self.lock();
        open.made += 1;
        let number = open.made;
        let standing = Arc::new(make(number));
        open.all.insert(number, Arc::downgrade(&standing));
        standing
    }

    fn remove(&self, number: u64) {
        self.lock().all.remove(&number);
    }

    /// Ends the connections whose other ends the newest files do not trust, and returns how many.
    pub(crate) fn review(&self) -> usize {
        // The last one of a connection removes it from here, so none is dropped under the lock.
        let open: Vec<_> = {
            let open = self.lock();
            open.all.values().filter_map(Weak::upgrade).collect()
        };
        let mut ended = 0;
        for standing in open {
            if standing.broken().is_none()
                && let Err(why) = standing.check()
            {
                standing.end(why);
                ended += 1;
            }
        }
        ended
    }
}
