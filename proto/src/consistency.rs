//! The consistency of a read, in the metadata of its request, and what an answer from one member's own
//! state is worth, in the metadata of its response.
//!
//! ```text
//!   request    x-berth-consistency: stale      any single member answers, with or without a leader
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
use tonic::transport::Channel;
use tonic::{Request, Status};

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
}

/// A text is not the name of a consistency.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be stale or linearizable")]
pub struct UnknownConsistency;

impl Consistency {
    /// Returns its name in metadata.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Linearizable => "linearizable",
            Self::Stale => "stale",
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
            _ => Err(UnknownConsistency),
        }
    }

    /// Returns a channel whose calls have this consistency.
    #[must_use]
    pub fn over(self, channel: Channel) -> ReadChannel {
        InterceptedService::new(channel, self)
    }
}

/// A channel whose calls have a consistency.
pub type ReadChannel = InterceptedService<Channel, Consistency>;

impl Interceptor for Consistency {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        match self {
            // The default has no header: older servers have only this one.
            Self::Linearizable => {}
            Self::Stale => {
                let value = MetadataValue::from_static(Self::Stale.as_str());
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
        for one in [Consistency::Linearizable, Consistency::Stale] {
            assert_eq!(Consistency::parse(one.as_str().as_bytes()), Ok(one));
        }
        for bad in [&b""[..], b"STALE", b"stale ", b"\xff"] {
            assert_eq!(Consistency::parse(bad), Err(UnknownConsistency));
        }
    }
}
