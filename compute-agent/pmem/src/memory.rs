//! The trait of a host's persistent memory, with its parameters and results.
//!
//! ```text
//!             start_erase                 a worker is free
//!   (nothing) ───────────▶ QUEUED ───────────────────────▶ ERASING ───▶ DONE
//!                            │ abort_erase        abort_erase │ │
//!                            ▼                                │ │ it cannot go on
//!                         ABORTED ◀───────────────────────────┘ ▼
//!                            ▲ start_erase: QUEUED again     FAILED
//! ```
//!
//! All calls return soon, though listing runs a program; an async caller uses threads for them.
//! An erase runs by itself and is polled. All calls may be made at the same time.
//!
//! Invariant: what is DONE has been overwritten from end to end since that erase was ordered,
//! except for what its [`Mark`] covers. [`crate::conformance`] checks both implementations against
//! this.

use std::fmt;

use crate::command;
use crate::discovery::Discovery;
use crate::holders::Holder;
use crate::ndctl;
use crate::versions::Versions;

/// Id of an erase: chosen by the caller, another one each time a namespace leaves a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EraseId(pub u128);

impl fmt::Display for EraseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The progress of an erase, to continue from in another process.
///
/// It counts only for the very namespace that it was made for: one that was recreated since, even
/// under the same name, is erased from its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// What distinguishes the namespace from all others.
    pub uuid: String,
    /// Its size.
    pub size_bytes: u64,
    /// How much of it is overwritten, from its beginning.
    pub done_bytes: u64,
}

/// An erase to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Which erase.
    pub id: EraseId,
    /// The name of the namespace.
    pub namespace: String,
    /// How far it came before, in another process. It must be of this erase.
    pub resume: Option<Mark>,
}

/// How it is with an erase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Others are erased first.
    Queued,
    /// It is being overwritten.
    Erasing,
    /// All of it is overwritten.
    Done,
    /// It cannot go on.
    Failed(Failure),
    /// It was stopped on request.
    Aborted,
}

impl State {
    /// Returns whether it goes on by itself.
    #[must_use]
    pub fn is_active(&self) -> bool {
        match self {
            Self::Queued | Self::Erasing => true,
            Self::Done | Self::Failed(_) | Self::Aborted => false,
        }
    }
}

/// How far an erase has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Which erase.
    pub id: EraseId,
    /// The name of the namespace.
    pub namespace: String,
    /// What distinguishes the namespace from all others; not known before it begins.
    pub uuid: Option<String>,
    /// How much there is to erase; 0 before it begins.
    pub size_bytes: u64,
    /// How much is overwritten, from the beginning.
    pub done_bytes: u64,
    /// How it is with it.
    pub state: State,
}

impl Progress {
    pub(crate) fn new(order: &Order) -> Self {
        Self {
            id: order.id,
            namespace: order.namespace.clone(),
            uuid: None,
            size_bytes: 0,
            done_bytes: 0,
            state: State::Queued,
        }
    }

    /// Returns from where another process can continue. None before it has begun, and for a
    /// namespace that has no identity.
    #[must_use]
    pub fn mark(&self) -> Option<Mark> {
        let uuid = self.uuid.clone()?;
        Some(Mark {
            uuid,
            size_bytes: self.size_bytes,
            done_bytes: self.done_bytes,
        })
    }

    /// Sets out: from the mark where it is of this very namespace, else from the beginning.
    pub(crate) fn begin(&mut self, uuid: Option<&str>, size_bytes: u64, resume: Option<&Mark>) {
        let same = resume.filter(|mark| {
            uuid == Some(mark.uuid.as_str())
                && mark.size_bytes == size_bytes
                && mark.done_bytes <= size_bytes
        });
        self.uuid = uuid.map(str::to_owned);
        self.size_bytes = size_bytes;
        self.done_bytes = same.map_or(0, |mark| mark.done_bytes);
        self.state = State::Erasing;
    }
}

/// Why an erase cannot go on. It can be started again with the same id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It could not be seen which namespaces there are.
    #[error("cannot erase: {0}")]
    Unlisted(Error),
    /// The namespace cannot be used, so that it is not known which device it is.
    #[error("cannot erase namespace {namespace}: {why}")]
    Unusable {
        /// The namespace.
        namespace: String,
        /// Why not.
        why: String,
    },
    /// Another process has the device open: what is overwritten now may be written to again.
    #[error("{device} is held by {}", list(.holders))]
    Held {
        /// The device.
        device: String,
        /// By whom.
        holders: Vec<Holder>,
    },
    /// Whether another process has the device open cannot be determined.
    #[error("cannot determine what holds {device}: {why}")]
    Unseen {
        /// The device.
        device: String,
        /// Why not.
        why: String,
    },
    /// The program that overwrites it did not do so.
    #[error("cannot erase {device} from byte {offset}: {error}")]
    Program {
        /// The device.
        device: String,
        /// From where on it was to overwrite.
        offset: u64,
        /// What became of it.
        error: command::Error,
    },
    /// The program reports less than it was to overwrite, or not how much it was.
    #[error(
        "daxio was to erase {requested} bytes of {device} from byte {offset}, and printed: {said:?}"
    )]
    Unclear {
        /// The device.
        device: String,
        /// From where on it was to overwrite.
        offset: u64,
        /// How much it was to overwrite.
        requested: u64,
        /// Its output.
        said: String,
    },
}

fn list(holders: &[Holder]) -> String {
    let names: Vec<String> = holders.iter().map(ToString::to_string).collect();
    names.join(", ")
}

/// Why a call was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The program that lists namespaces did not.
    #[error(transparent)]
    Program(#[from] command::Error),
    /// It printed something else.
    #[error(transparent)]
    Listing(#[from] ndctl::Error),
    /// No such namespace is configured.
    #[error("namespace {namespace} does not stand in pmem_namespaces")]
    NotConfigured {
        /// The namespace.
        namespace: String,
    },
    /// Another erase of that namespace is under way.
    #[error("namespace {namespace} is being erased already, by erase {by}")]
    Busy {
        /// The namespace.
        namespace: String,
        /// By which erase.
        by: EraseId,
    },
}

/// A host's persistent memory.
pub trait Pmem: Send + Sync {
    /// Returns the versions that the kernel and the programs report. Never fails:
    /// a part that does not reply is recorded as such.
    fn versions(&self) -> Versions;

    /// Looks which of the configured namespaces can be used now.
    ///
    /// # Errors
    ///
    /// When it cannot be seen which namespaces there are.
    fn discover(&self) -> Result<Discovery, Error>;

    /// Begins to erase a namespace, or queues it. Repeated with the same id: no effect while it
    /// goes on and when it is done; one that failed or was aborted goes on from where it was.
    ///
    /// # Errors
    ///
    /// [`Error::NotConfigured`]; [`Error::Busy`] while another erase of it goes on.
    fn start_erase(&self, order: &Order) -> Result<Progress, Error>;

    /// Returns the last erase of each namespace that was started in this process, by name.
    fn erases(&self) -> Vec<Progress>;

    /// Returns the last erase of that namespace that was started in this process.
    fn erase(&self, namespace: &str) -> Option<Progress> {
        let erases = self.erases();
        erases.into_iter().find(|e| e.namespace == namespace)
    }

    /// Stops an erase; nothing of it is written any more when this returns, unless the program
    /// that writes cannot be ended, which its next start would find. Not going on: no effect.
    fn abort_erase(&self, namespace: &str);
}
