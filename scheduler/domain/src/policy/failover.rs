//! What is asked of the room that is left for guests of a host that dies.

use serde::{Deserialize, Serialize};

/// What becomes of a new guest that would leave no room for those of a host that dies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Admission {
    /// Nobody looks.
    #[default]
    Off,
    /// It is placed, and that is told.
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

/// What is asked of the room for guests of a host that dies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FailoverPolicy {
    /// Of new guests.
    pub admission: Admission,
}
