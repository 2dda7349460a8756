//! The record that a guest does not run although it should. Comparing a hypervisor with the claims
//! finds it: see [`crate::reality`].

use serde::{Deserialize, Serialize};

use crate::id::{ClaimId, TimeMs};

/// What is wrong with a guest that should run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Absence {
    /// The hypervisor knows it, and it does not run: it crashed or was shut down.
    Stopped,
    /// The hypervisor does not know it.
    Missing,
}

impl Absence {
    /// Both, for tables.
    pub const ALL: [Self; 2] = [Self::Stopped, Self::Missing];

    /// Returns the sentence as text for people.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Stopped => "the hypervisor says that it stopped by itself or was shut down",
            Self::Missing => "the hypervisor does not know it",
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
