//! Every refusal of Berth: a code for programs, a sentence as text for people, and for placement
//! the reason per host and cell with the smallest shortfall.
//!
//! Invariant: bounded. The hosts are counted by cause, and only the few nearest to a "yes" are
//! listed ([`HOSTS_MAX`]), so that a refusal of a thousand hosts still fits on one screen.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cell_id::CellId;
use crate::hint::Hint;
use crate::name::HostName;

pub use crate::missing::Missing;

/// How many hosts a refusal lists.
pub const HOSTS_MAX: usize = 8;

/// How many bytes the texts of a recorded refusal have at most.
pub const RECORDED_BYTES_MAX: usize = 8 * 1024;

/// How many bytes of it are the message and the hint at most, each, where all do not fit.
const TEXT_BYTES_MAX: usize = 2 * 1024;

/// How many bytes of it is the reason at most.
const REASON_BYTES_MAX: usize = 128;

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

    /// Returns the refusal as records keep it: without the change that the answer carries; and, where
    /// records are bounded, with what fits into [`RECORDED_BYTES_MAX`]. Its texts come from hypervisors,
    /// hosts and clients, which could fill the state with them.
    #[must_use]
    pub fn as_record(&self, is_bounded: bool) -> Self {
        let record = Self {
            change: None,
            ..self.clone()
        };
        match is_bounded {
            true => record.shortened(),
            false => record,
        }
    }

    fn shortened(mut self) -> Self {
        if !self.is_long() {
            return self;
        }
        cut(&mut self.reason, REASON_BYTES_MAX);
        cut(&mut self.message, TEXT_BYTES_MAX);
        if let Some(hint) = &mut self.hint {
            cut(hint, TEXT_BYTES_MAX);
        }
        let texts = self.texts();
        let mut left = RECORDED_BYTES_MAX.saturating_sub(texts);
        let mut fits = |bytes: usize| {
            let rest = left.checked_sub(bytes);
            left = rest.unwrap_or(left);
            rest.is_some()
        };
        self.metadata
            .retain(|key, value| fits(entry_bytes(key, value)));
        self.hosts.retain(|host| fits(host.bytes()));
        self.causes.retain(|cause, _| fits(entry_bytes(cause, "")));
        self
    }

    /// Returns whether bounded records do not keep it as it is.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.bytes() > RECORDED_BYTES_MAX
    }

    /// Returns how many bytes its texts have, with some for each part.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let metadata = self.metadata.iter();
        let metadata = metadata.map(|(key, value)| entry_bytes(key, value));
        let causes = self.causes.keys().map(|cause| entry_bytes(cause, ""));
        let hosts = self.hosts.iter().map(HostRefusal::bytes);
        self.texts() + metadata.chain(causes).chain(hosts).sum::<usize>()
    }

    fn texts(&self) -> usize {
        let hint = self.hint.as_ref().map_or(0, String::len);
        self.reason.len() + self.message.len() + hint
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

impl HostRefusal {
    fn bytes(&self) -> usize {
        let missing = self.missing.as_ref();
        let missing = missing.map_or(0, |missing| missing.resource.len());
        let texts = self.host.as_str().len() + self.cause.len() + self.message.len() + missing;
        texts + PART_BYTES
    }
}

/// What a part of a refusal has beside its texts: numbers and lengths.
const PART_BYTES: usize = 64;

fn entry_bytes(key: &str, value: &str) -> usize {
    key.len() + value.len() + PART_BYTES
}

/// Cuts a text to at most `max` bytes, and marks that it was.
pub fn cut(text: &mut String, max: usize) {
    const MARK: &str = "…";
    if text.len() > max {
        let mut at = max - MARK.len();
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        text.truncate(at);
        text.push_str(MARK);
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: whichever text is long, and however many there are, what is recorded is bounded, and what
    /// fits is recorded as it is.
    #[test]
    fn a_recorded_refusal_is_bounded_whatever_is_long() {
        let long = "ä".repeat(RECORDED_BYTES_MAX);
        let plain = || Refusal::new(Code::Internal, "REASON", "message").with("host", "h1");
        assert_eq!(plain().shortened(), plain());
        let host = |message: &str| HostRefusal {
            host: HostName::new("h1").unwrap(),
            cause: "CAUSE".to_owned(),
            message: message.to_owned(),
            guest_cell: None,
            host_cell: None,
            missing: None,
        };
        let many = |count: usize| (0..count).map(|number| number.to_string());
        let cases = [
            Refusal::new(Code::Internal, &long, "message"),
            Refusal::new(Code::Internal, "REASON", &*long),
            plain().with_hint(&*long),
            plain().with("long", &long),
            plain().with(&long, "long"),
            Refusal {
                metadata: many(10_000).map(|n| (n.clone(), n)).collect(),
                ..plain()
            },
            Refusal {
                causes: many(10_000).map(|n| (n, 1)).collect(),
                ..plain()
            },
            Refusal {
                hosts: vec![host(&long); HOSTS_MAX],
                ..plain()
            },
        ];
        for case in cases {
            let kept = case.clone().shortened();
            assert!(case.bytes() > RECORDED_BYTES_MAX, "{case:?}");
            assert!(kept.bytes() <= RECORDED_BYTES_MAX, "{kept:?}");
            assert!(!kept.reason.is_empty() && !kept.message.is_empty());
            assert_eq!(kept.clone().shortened(), kept, "once is enough");
        }
    }
}
