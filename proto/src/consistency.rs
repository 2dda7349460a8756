//! The consistency of a read, in the metadata of its request, and what an answer from one member's own
//! state is worth, in the metadata of its response.
//!
//! ```text
//!   request    x-berth-consistency: stale      any single member answers, with or without a leader
//!              x-berth-consistency: revision=7 a member answers from its state at that revision
//!   response   x-berth-member: 2               the member that answered
//!              x-berth-revision: 812           the revision of the state that the answer was made of
//!              x-berth-age-ms: 4210            the time since a leader last confirmed that state
//!              x-berth-leader: 0               the leader that it knows; 0: none
//! ```
//!
//! Invariant: a response without `x-berth-revision` is no stale answer: the server does not support them
//! and has answered as without the request's header.

use std::time::Duration;

use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Status};

use crate::for_cluster::MemberChannel;

/// The key of the consistency of a request.
pub const CONSISTENCY: &str = "x-berth-consistency";
/// The key of the member that answered.
pub const MEMBER: &str = "x-berth-member";
/// The key of the revision of an answer.
pub const REVISION: &str = "x-berth-revision";
/// The key of the age of an answer in milliseconds. Absent where no leader has confirmed its state
/// since it started.
pub const AGE_MS: &str = "x-berth-age-ms";
/// The key of the leader that the member knows.
pub const LEADER: &str = "x-berth-leader";

/// The consistency of the calls over a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// Everything acknowledged before the request is in the answer.
    #[default]
    Linearizable,
    /// The state of the member that is called, however old that may be.
    Stale,
    /// The state at a revision, as far back as the log of the member that is called reaches.
    Revision(u64),
}

/// What stands before the number of a revision.
const AT: &str = "revision=";

/// A text is not the name of a consistency.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be stale, linearizable, or as revision=4711")]
pub struct UnknownConsistency;

impl Consistency {
    /// Returns its name in metadata.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::Linearizable => "linearizable".to_owned(),
            Self::Stale => "stale".to_owned(),
            Self::Revision(revision) => format!("{AT}{revision}"),
        }
    }

    /// Reads its name in metadata.
    ///
    /// # Errors
    ///
    /// When the text is no such name.
    pub fn parse(text: &[u8]) -> Result<Self, UnknownConsistency> {
        match text {
            b"linearizable" => Ok(Self::Linearizable),
            b"stale" => Ok(Self::Stale),
            other => revision(other)
                .map(Self::Revision)
                .ok_or(UnknownConsistency),
        }
    }

    /// Returns a channel whose calls have this consistency.
    #[must_use]
    pub fn over(self, channel: MemberChannel) -> ReadChannel {
        InterceptedService::new(channel, self)
    }
}

/// Reads the number of a revision, written as numbers are.
fn revision(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.strip_prefix(AT)?;
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// A channel whose calls have a consistency.
pub type ReadChannel = InterceptedService<MemberChannel, Consistency>;

impl Interceptor for Consistency {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        match self {
            // The default has no header: older servers have only this one.
            Self::Linearizable => {}
            Self::Stale | Self::Revision(_) => {
                let value = self.text().parse().map_err(|_| {
                    // The texts are made of letters, digits and signs.
                    Status::internal("the consistency cannot be written")
                })?;
                request.metadata_mut().insert(CONSISTENCY, value);
            }
        }
        Ok(request)
    }
}

/// What an answer from one member's own state is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staleness {
    /// The member that answered.
    pub member: u64,
    /// The revision of its state.
    pub revision: u64,
    /// The time since a leader last confirmed that state; unknown if none has since it started.
    pub age: Option<Duration>,
    /// The leader that it knows.
    pub leader: Option<u64>,
}

impl Staleness {
    /// Returns its metadata, as keys and values.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let age = self.age.map(|age| (AGE_MS, millis(age)));
        let known = [
            (MEMBER, self.member),
            (REVISION, self.revision),
            (LEADER, self.leader.unwrap_or(0)),
        ];
        known.into_iter().chain(age)
    }

    /// Reads it from the metadata of a response; nothing if the server does not support it.
    #[must_use]
    pub fn read(metadata: &MetadataMap) -> Option<Self> {
        let number = |key| number(metadata.get(key)?);
        Some(Self {
            member: number(MEMBER)?,
            revision: number(REVISION)?,
            age: number(AGE_MS).map(Duration::from_millis),
            leader: number(LEADER).filter(|leader| *leader != 0),
        })
    }
}

fn number(value: &MetadataValue<Ascii>) -> Option<u64> {
    value.to_str().ok()?.parse().ok()
}

fn millis(age: Duration) -> u64 {
    u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(staleness: Staleness) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        for (key, value) in staleness.entries() {
            metadata.insert(key, MetadataValue::from(value));
        }
        metadata
    }

    #[test]
    fn what_an_answer_is_worth_is_read_as_it_was_written() {
        for age in [None, Some(Duration::ZERO), Some(Duration::from_millis(7))] {
            for leader in [None, Some(3)] {
                let staleness = Staleness {
                    member: 2,
                    revision: 812,
                    age,
                    leader,
                };
                assert_eq!(Staleness::read(&written(staleness)), Some(staleness));
            }
        }
    }

    #[test]
    fn a_response_of_an_older_server_is_not_stale() {
        assert_eq!(Staleness::read(&MetadataMap::new()), None);
        let mut metadata = MetadataMap::new();
        for key in [MEMBER, REVISION] {
            metadata.insert(key, MetadataValue::from_static("many"));
        }
        assert_eq!(Staleness::read(&metadata), None);
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        let at = [0, 4711, u64::MAX].map(Consistency::Revision);
        let named = [Consistency::Linearizable, Consistency::Stale];
        for one in named.into_iter().chain(at) {
            assert_eq!(Consistency::parse(one.text().as_bytes()), Ok(one));
        }
        let wrong = [
            &b""[..],
            b"STALE",
            b"stale ",
            b"\xff",
            b"revision=",
            b"revision=07",
            b"revision=+7",
            b"revision=18446744073709551616",
        ];
        for bad in wrong {
            assert_eq!(Consistency::parse(bad), Err(UnknownConsistency));
        }
    }
}
