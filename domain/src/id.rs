//! Identifiers that programs choose. Names that people choose are in [`crate::name`].
//!
//! Invariant: an identifier never changes its meaning; identifiers of different things have
//! different types.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }

        impl From<Uuid> for $name {
            fn from(uuid: Uuid) -> Self {
                Self(uuid)
            }
        }
    };
}

uuid_id!(
    /// Identifies one cluster for ever; a data directory of another cluster is refused by it.
    ClusterId
);
uuid_id!(
    /// Identifies a resource provider, as in OpenStack Placement.
    ProviderId
);
uuid_id!(
    /// Identifies a consumer of allocations, as in OpenStack Placement.
    ConsumerId
);
uuid_id!(
    /// Identifies an aggregate: a group of resource providers that clients form.
    AggregateId
);
uuid_id!(
    /// Identifies a claim.
    ClaimId
);
uuid_id!(
    /// Identifies one life of a VM: a VM deleted and made again under the same name has another.
    VmUid
);
uuid_id!(
    /// Identifies one image: one that is removed and added again under the same name has another.
    ImageUid
);
uuid_id!(
    /// Identifies one attempt to move a VM.
    MigrationId
);
uuid_id!(
    /// Identifies a long operation.
    OperationId
);
uuid_id!(
    /// Chosen by a client for one mutating request, the same again when it retries.
    RequestId
);
uuid_id!(
    /// Chosen by an agent each time its process starts; calls meant for an earlier one are refused.
    Incarnation
);

/// Fences the steps of operations: a later lease always has a greater epoch, cluster-wide.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(pub u64);

/// Counts the changes of one mutable resource, so that a client can state which version it saw.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Generation(pub u64);

impl Generation {
    /// Returns the generation after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A moment in milliseconds since the Unix epoch, as stamped by a leader.
///
/// Replicated time never runs backwards: the state takes the greater of its own and a command's.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct TimeMs(pub u64);
