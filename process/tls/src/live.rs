//! The files as they are now: looked at every few seconds, and taken when they are whole.
//!
//! Invariant: what is broken is not taken. Whoever writes three files one after the other makes them
//! fit together again at the end; until then the old ones serve.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::identity::Identity;
use crate::material::{Fault, Files, Material};
use crate::standing::Standings;

/// How often it is looked whether the files have changed.
const LOOK: Duration = Duration::from_secs(2);

/// How long before its end a certificate is spoken of in the log, in seconds.
const SOON: i64 = 7 * 24 * 60 * 60;

/// How often it is spoken of, in looks.
const REMIND: u32 = 30 * 60;

/// Certificates and key as they are now. Cheap to clone; clones share them.
#[derive(Clone, Debug)]
pub struct Tls {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    files: Files,
    current: RwLock<Arc<Material>>,
    /// What the files looked like just before they were read first.
    at_first: Looks,
    /// Counts how often other files were taken. Each request looks at it.
    generation: AtomicU64,
    /// The same, for whoever waits for others.
    told: watch::Sender<u64>,
    /// Held while other files are taken: one after the other.
    reloading: Mutex<()>,
    /// What is open with these files.
    standings: Standings,
}

/// What files looked like when they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Looks(Vec<Option<(SystemTime, u64, u64)>>);

impl Looks {
    fn of(files: &Files) -> Self {
        Self(
            [&files.ca, &files.cert, &files.key]
                .map(|path| look(path))
                .into(),
        )
    }
}

fn look(path: &Path) -> Option<(SystemTime, u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let found = std::fs::metadata(path).ok()?;
    // A file that was exchanged within one tick of the clock has another number.
    Some((found.modified().ok()?, found.len(), found.ino()))
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong with them.
    pub fn open(files: Files) -> Result<Self, Fault> {
        let looks = Looks::of(&files);
        let material = Material::read(&files)?;
        Ok(Self::of(files, looks, material))
    }

    /// As [`Self::open`], of a certificate that may be of no use: see [`Material::read_useless`].
    ///
    /// # Errors
    ///
    /// The first thing that is wrong with the files otherwise.
    pub fn open_useless(files: Files) -> Result<Self, Fault> {
        let looks = Looks::of(&files);
        let material = Material::read_useless(&files)?;
        Ok(Self::of(files, looks, material))
    }

    fn of(files: Files, looks: Looks, material: Material) -> Self {
        let shared = Shared {
            files,
            at_first: looks,
            current: RwLock::new(Arc::new(material)),
            generation: AtomicU64::new(0),
            told: watch::Sender::new(0),
            reloading: Mutex::default(),
            standings: Standings::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Returns certificates and key as they are now.
    #[must_use]
    pub fn current(&self) -> Arc<Material> {
        // An exchange of one pointer cannot be left half way.
        let current = self.shared.current.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns who one is.
    #[must_use]
    pub fn identity(&self) -> Arc<Identity> {
        self.current().identity().clone()
    }

    /// Returns how often other files were taken: connections of an older generation show an older
    /// certificate.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.shared.generation.load(Ordering::Acquire)
    }

    /// Returns the way to wait for the next generation.
    #[must_use]
    pub fn generations(&self) -> watch::Receiver<u64> {
        self.shared.told.subscribe()
    }

    /// Returns what is open with these files.
    pub(crate) fn standings(&self) -> &Standings {
        &self.shared.standings
    }

    /// Takes the files as they are now, and ends the connections whose other ends they do not trust.
    ///
    /// # Errors
    ///
    /// What is wrong with them, or that they are somebody else's; then those before go on to serve.
    pub fn reload(&self) -> Result<(), Fault> {
        let reloading = self.shared.reloading.lock();
        let _reloading = reloading.unwrap_or_else(PoisonError::into_inner);
        let mut material = Material::read(&self.shared.files)?;
        let (before, now) = (self.identity(), material.identity().clone());
        if (before.role, &before.name) != (now.role, &now.name) {
            return Err(Fault::Another {
                path: self.shared.files.cert.clone(),
                now: now.principal(),
                before: before.principal(),
            });
        }
        let generation = self.generation() + 1;
        material.set_generation(generation);
        let current = self.shared.current.write();
        *current.unwrap_or_else(PoisonError::into_inner) = Arc::new(material);
        // Whoever sees the number finds what it stands for.
        self.shared.generation.store(generation, Ordering::Release);
        self.shared.told.send_replace(generation);
        let ended = self.shared.standings.review();
        if ended > 0 {
            tracing::warn!(
                connections = ended,
                "connections are closed: the certificates of their other ends are not trusted any more"
            );
        }
        Ok(())
    }

    /// Takes other files whenever there are any, until `stopping` is cancelled.
    pub async fn follow(self, stopping: CancellationToken) {
        let mut taken = self.shared.at_first.clone();
        let mut told = String::new();
        let mut looks = 0;
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
            if looks % REMIND == 0 {
                self.remind();
            }
            looks = looks.wrapping_add(1);
            let tls = self.clone();
            let before = taken.clone();
            let looked = tokio::task::spawn_blocking(move || tls.look(&before)).await;
            match looked {
                Ok(None) => {}
                Ok(Some(Ok(looks))) => {
                    taken = looks;
                    told.clear();
                    let identity = self.identity();
                    tracing::info!(
                        who = identity.principal(),
                        fingerprint = identity.fingerprint,
                        days_left = identity.days_left(crate::identity::now()),
                        "other certificates are used from now on"
                    );
                }
                Ok(Some(Err(why))) if why != told => {
                    tracing::warn!(why, "new certificates are not used, those before serve on");
                    told = why;
                }
                Ok(Some(Err(_))) => {}
                Err(error) => tracing::error!(%error, "looking at certificates failed"),
            }
        }
    }

    /// Takes the files if they do not look as before.
    fn look(&self, before: &Looks) -> Option<Result<Looks, String>> {
        // Before they are read: what changes in between is seen by the next look.
        let looks = Looks::of(&self.shared.files);
        if looks == *before {
            return None;
        }
        let taken = self.reload().map(|()| looks);
        Some(taken.map_err(|fault| fault.to_string()))
    }

    fn remind(&self) {
        let identity = self.identity();
        let left = identity.not_after - crate::identity::now();
        if left < SOON {
            tracing::warn!(
                who = identity.principal(),
                hours_left = left / 3600,
                "the certificate runs out: renew it (berth certs renew)"
            );
        }
    }
}
