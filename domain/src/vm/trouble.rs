//! The record that a guest does not run although it should. Comparing a hypervisor with the claims
//! finds it: see [`crate::reality`].

use serde::{Deserialize, Serialize};

use crate::id::{ClaimId, TimeMs};

/// What is wrong with a guest that should run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Absence {
    /// It ended by itself and did not shut down; reported as this below service version 4, also
    /// where it did.
    Stopped,
    /// The hypervisor does not know it, nor how it ended.
    Missing,
    /// Its user shut it down from within.
    ShutDown,
}

impl Absence {
    /// All of them, for tables.
    pub const ALL: [Self; 3] = [Self::Stopped, Self::Missing, Self::ShutDown];

    /// Returns it as programs below service version 4 know it.
    #[must_use]
    pub fn to_older(self) -> Self {
        match self {
            Self::ShutDown => Self::Stopped,
            Self::Stopped | Self::Missing => self,
        }
    }

    /// Returns the sentence as text for people.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Stopped => "the hypervisor says that it ended by itself",
            Self::Missing => "the hypervisor does not know it",
            Self::ShutDown => "it shut itself down",
        }
    }
}

/// The record that the guest of an ACTIVE VM was found not to run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Trouble {
    /// What is wrong.
    pub absence: Absence,
    /// The claim on which it should run.
    pub claim: ClaimId,
    /// Since when this is known, in replicated time.
    pub since: TimeMs,
}
