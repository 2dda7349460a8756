//! The current files: polled every few seconds, and reloaded when they are valid.
//!
//! Invariant: invalid files are not used. Three files that are written one after the other match again
//! at the end; until then the old ones stay in use.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::identity::Identity;
use crate::material::{Fault, Files, Material};
use crate::revoked::{Revoked, RevokedList};
use crate::trust::OpenConnections;

/// How often the files are checked for changes.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// How long before its expiry the log warns about a certificate, in seconds.
const EXPIRY_WARNING_S: i64 = 7 * 24 * 60 * 60;

/// How often it warns, in polls.
const POLLS_PER_WARNING: u32 = 30 * 60;

/// The current certificates and key. Cheap to clone; clones share them.
#[derive(Clone, Debug)]
pub struct Tls {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    files: Files,
    current: RwLock<Arc<Material>>,
    /// The stamps of the files just before they were first read.
    initial_stamps: FileStamps,
    /// Counts reloads. Each request reads it.
    generation: AtomicU64,
    /// The same, for tasks that wait for a reload.
    generations: watch::Sender<u64>,
    /// Held during a reload: one at a time.
    reloading: Mutex<()>,
    /// The certificates that are not accepted.
    revoked: RevokedList,
    /// Counts reloads and changes of that list: a chain that was verified before is verified again.
    trust_version: AtomicU64,
    /// The open connections that depend on these files.
    connections: OpenConnections,
}

/// Modification time, length and inode of each file when it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FileStamps(Vec<Option<(SystemTime, u64, u64)>>);

impl FileStamps {
    fn of(files: &Files) -> Self {
        Self(
            [&files.ca, &files.cert, &files.key]
                .map(|path| stamp(path))
                .into(),
        )
    }
}

fn stamp(path: &Path) -> Option<(SystemTime, u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(path).ok()?;
    // A file that was replaced within one tick of the clock has another inode.
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong with them.
    pub fn open(files: Files) -> Result<Self, Fault> {
        let stamps = FileStamps::of(&files);
        let revoked = RevokedList::default();
        let material = Material::read(&files, &revoked)?;
        Ok(Self::of(files, stamps, material, revoked))
    }

    /// As [`Self::open`], without validating the certificate: for tests of how
    /// peers refuse one that has expired.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong with the files otherwise.
    pub fn open_unvalidated(files: Files) -> Result<Self, Fault> {
        let stamps = FileStamps::of(&files);
        let revoked = RevokedList::default();
        let material = Material::read_unvalidated(&files, &revoked)?;
        Ok(Self::of(files, stamps, material, revoked))
    }

    fn of(files: Files, stamps: FileStamps, material: Material, revoked: RevokedList) -> Self {
        let shared = Shared {
            files,
            initial_stamps: stamps,
            current: RwLock::new(Arc::new(material)),
            generation: AtomicU64::new(0),
            generations: watch::Sender::new(0),
            reloading: Mutex::default(),
            revoked,
            trust_version: AtomicU64::new(0),
            connections: OpenConnections::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Returns the current certificates and key.
    #[must_use]
    pub fn current(&self) -> Arc<Material> {
        // Replacing one pointer cannot be left half done.
        let current = self.shared.current.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the own identity.
    #[must_use]
    pub fn identity(&self) -> Arc<Identity> {
        self.current().identity().clone()
    }

    /// Returns the number of reloads: connections of an older generation present an older certificate.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.shared.generation.load(Ordering::Acquire)
    }

    /// Subscribes to the generation.
    #[must_use]
    pub fn generations(&self) -> watch::Receiver<u64> {
        self.shared.generations.subscribe()
    }

    /// Returns the number of changes of what is trusted.
    pub(crate) fn trust_version(&self) -> u64 {
        self.shared.trust_version.load(Ordering::Acquire)
    }

    /// Returns the certificates that are not accepted.
    #[must_use]
    pub fn revoked(&self) -> Arc<Revoked> {
        self.shared.revoked.get()
    }

    pub(crate) fn revoked_list(&self) -> &RevokedList {
        &self.shared.revoked
    }

    /// Accepts none of these certificates from now on, and closes the connections of those that
    /// presented one. An earlier list changes nothing.
    pub fn revoke(&self, revoked: Revoked) {
        let (revision, count) = (revoked.revision, revoked.fingerprints.len());
        if !self.shared.revoked.replace(revoked) {
            return;
        }
        let ended = self.review();
        tracing::info!(
            revision,
            certificates = count,
            closed_connections = ended,
            "revoked certificates listed"
        );
    }

    /// Has what is trusted checked again for all open connections, and returns how many were closed.
    fn review(&self) -> usize {
        // After what it counts: who reads the number reads that too.
        self.shared.trust_version.fetch_add(1, Ordering::AcqRel);
        self.shared.connections.review()
    }

    /// Returns the open connections that depend on these files.
    pub(crate) fn connections(&self) -> &OpenConnections {
        &self.shared.connections
    }

    /// Reloads the files, and closes the connections whose peers they do not trust.
    ///
    /// # Errors
    ///
    /// What is wrong with them, or that they carry another identity; then the old ones stay in use.
    pub fn reload(&self) -> Result<(), Fault> {
        let reloading = self.shared.reloading.lock();
        let _reloading = reloading.unwrap_or_else(PoisonError::into_inner);
        let material = Material::read(&self.shared.files, &self.shared.revoked)?;
        let (before, now) = (self.identity(), material.identity().clone());
        if (before.role, &before.name) != (now.role, &now.name) {
            return Err(Fault::IdentityChanged {
                path: self.shared.files.cert.clone(),
                now: now.principal(),
                before: before.principal(),
            });
        }
        let generation = self.generation() + 1;
        let current = self.shared.current.write();
        *current.unwrap_or_else(PoisonError::into_inner) = Arc::new(material);
        // The generation is published after its material: a reader of the number gets that material.
        self.shared.generation.store(generation, Ordering::Release);
        self.shared.generations.send_replace(generation);
        let ended = self.review();
        if ended > 0 {
            tracing::warn!(
                connections = ended,
                "closed connections: the certificates of their peers are not trusted any more"
            );
        }
        Ok(())
    }

    /// Reloads the files whenever they change, until `stopping` is cancelled.
    pub async fn follow(self, stopping: CancellationToken) {
        let mut loaded = self.shared.initial_stamps.clone();
        let mut last_fault = String::new();
        let mut polls = 0;
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
            if polls % POLLS_PER_WARNING == 0 {
                self.warn_before_expiry();
            }
            polls = polls.wrapping_add(1);
            let tls = self.clone();
            let before = loaded.clone();
            let polled = tokio::task::spawn_blocking(move || tls.poll(&before)).await;
            match polled {
                Ok(None) => {}
                Ok(Some(Ok(stamps))) => {
                    loaded = stamps;
                    last_fault.clear();
                    let identity = self.identity();
                    tracing::info!(
                        identity = identity.principal(),
                        fingerprint = identity.fingerprint,
                        days_left = identity.days_left(crate::identity::now()),
                        "certificates reloaded"
                    );
                }
                Ok(Some(Err(why))) if why != last_fault => {
                    tracing::warn!(why, "new certificates rejected, the old ones stay in use");
                    last_fault = why;
                }
                Ok(Some(Err(_))) => {}
                Err(error) => tracing::error!(%error, "polling certificates failed"),
            }
        }
    }

    /// Reloads the files if their stamps have changed.
    fn poll(&self, before: &FileStamps) -> Option<Result<FileStamps, String>> {
        // Before they are read: a change in between is seen by the next poll.
        let stamps = FileStamps::of(&self.shared.files);
        if stamps == *before {
            return None;
        }
        let reloaded = self.reload().map(|()| stamps);
        Some(reloaded.map_err(|fault| fault.to_string()))
    }

    fn warn_before_expiry(&self) {
        let identity = self.identity();
        let left = identity.not_after - crate::identity::now();
        if left < EXPIRY_WARNING_S {
            tracing::warn!(
                identity = identity.principal(),
                hours_left = left / 3600,
                "the certificate expires soon: renew it (berth certs renew)"
            );
        }
    }
}
