//! Every refusal of Berth: a code for programs, a sentence as text for people, and for placement
//! the reason per host and cell with the smallest shortfall.
//!
//! Invariant: bounded. The hosts are counted by cause, and only the few nearest to a "yes" are
//! listed ([`HOSTS_MAX`]), so that a refusal of a thousand hosts still fits on one screen.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::hint::Hint;
use crate::name::HostName;
use crate::topology::CellId;

/// How many hosts a refusal lists.
pub const HOSTS_MAX: usize = 8;

/// The canonical gRPC code of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Code {
    /// The request itself is wrong.
    InvalidArgument,
    /// The thing does not exist.
    NotFound,
    /// The thing exists already.
    AlreadyExists,
    /// The thing is in the wrong state for this.
    FailedPrecondition,
    /// The client saw an older generation, or a lease was lost.
    Aborted,
    /// No resource is left.
    ResourceExhausted,
    /// The requested data is no longer stored.
    OutOfRange,
    /// Try again later, perhaps elsewhere.
    Unavailable,
    /// Took too long; the outcome may be unknown.
    DeadlineExceeded,
    /// Was cancelled.
    Cancelled,
    /// Not for this caller.
    PermissionDenied,
    /// The peer is too old to know the call.
    Unimplemented,
    /// A fault of Berth or of the host.
    Internal,
}

/// How much is missing, where something countable is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Missing {
    /// What is missing, as `dedicated CPUs` or `2 MiB pages`.
    pub resource: String,
    /// The requested amount.
    pub requested: u64,
    /// How much there is.
    pub available: u64,
}

/// Why one host was refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostRefusal {
    /// The host.
    pub host: HostName,
    /// The cause for programs, as `DEDICATED_CPUS`.
    pub cause: String,
    /// A message as text for people.
    pub message: String,
    /// The guest cell that did not fit.
    pub guest_cell: Option<u32>,
    /// The host cell that came nearest.
    pub host_cell: Option<CellId>,
    /// The smallest shortfall.
    pub missing: Option<Missing>,
}

/// A "no".
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Refusal {
    /// The canonical code.
    pub code: Code,
    /// The reason for programs, as `NO_VALID_HOST`.
    pub reason: String,
    /// A message as text for people: what was refused, and where.
    pub message: String,
    /// What to do about it, where there is something.
    pub hint: Option<String>,
    /// For placement: the change that the hint names, for programs. It travels with the answer to
    /// the request, and is in no record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<Box<Hint>>,
    /// Further facts for programs.
    pub metadata: BTreeMap<String, String>,
    /// For placement: how many hosts were refused for which cause.
    pub causes: BTreeMap<String, u32>,
    /// For placement: the hosts that came nearest, at most [`HOSTS_MAX`].
    pub hosts: Vec<HostRefusal>,
}

impl Refusal {
    /// Returns a refusal without placement detail.
    pub fn new(code: Code, reason: &str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.to_owned(),
            message: message.into(),
            hint: None,
            change: None,
            metadata: BTreeMap::new(),
            causes: BTreeMap::new(),
            hosts: Vec::new(),
        }
    }

    /// Returns the refusal as records keep it: without the change that the answer carries.
    #[must_use]
    pub fn as_record(&self) -> Self {
        Self {
            change: None,
            ..self.clone()
        }
    }

    /// Returns the refusal with a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the refusal with a change after which the request succeeds, and with its sentence as
    /// the hint.
    #[must_use]
    pub fn with_change(mut self, change: Hint) -> Self {
        self.hint = Some(change.describe());
        self.change = Some(Box::new(change));
        self
    }

    /// Returns the refusal with one more fact for programs.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl fmt::Display) -> Self {
        self.metadata.insert(key.to_owned(), value.to_string());
        self
    }

    /// Returns the refusal of a thing that does not exist.
    pub fn not_found(kind: &str, name: impl fmt::Display) -> Self {
        let reason = format!("{}_NOT_FOUND", kind.to_uppercase());
        let called = kind.replace('_', " ");
        Self::new(
            Code::NotFound,
            &reason,
            format!("{called} {name} does not exist"),
        )
        .with(kind, name)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}
