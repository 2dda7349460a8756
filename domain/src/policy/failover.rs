//! The failover policy: the headroom for the guests of a failed host.

use serde::{Deserialize, Serialize};

/// The admission of a new guest that would take the headroom for those of a failed host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Admission {
    /// No check.
    #[default]
    Off,
    /// It is placed, with a warning.
    Warn,
    /// It is refused.
    Refuse,
}

impl Admission {
    /// Returns the word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Warn => "warn",
            Self::Refuse => "refuse",
        }
    }

    /// Returns what a word means.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Off, Self::Warn, Self::Refuse]
            .into_iter()
            .find(|admission| admission.as_str() == word)
    }
}

/// The failover policy: the headroom for the guests of a failed host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FailoverPolicy {
    /// Of new guests.
    pub admission: Admission,
}
