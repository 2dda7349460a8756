//! The role of a program or a person in a cluster.

use std::fmt;
use std::str::FromStr;

/// The role of a program or a person in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// A member of the scheduler.
    Scheduler,
    /// A conductor.
    Conductor,
    /// The agent of a host, which acts for that host alone.
    Agent,
    /// A controller of volumes.
    CsiController,
    /// People and scripts that may do everything.
    Operator,
    /// People and scripts that may only read.
    Reader,
}

/// The prefix of the role in the organisation of a certificate's subject.
pub const PREFIX: &str = "berth:";

impl Role {
    /// Every role.
    pub const ALL: [Self; 6] = [
        Self::Scheduler,
        Self::Conductor,
        Self::Agent,
        Self::CsiController,
        Self::Operator,
        Self::Reader,
    ];

    /// Returns its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduler => "scheduler",
            Self::Conductor => "conductor",
            Self::Agent => "agent",
            Self::CsiController => "csi-controller",
            Self::Operator => "operator",
            Self::Reader => "reader",
        }
    }

    /// Returns whether others dial it, so that its certificate has to name an address.
    #[must_use]
    pub fn serves(self) -> bool {
        match self {
            Self::Scheduler | Self::Conductor | Self::Agent | Self::CsiController => true,
            Self::Operator | Self::Reader => false,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text names no role.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no role; the roles are scheduler, conductor, agent, csi-controller, operator, reader"
)]
pub struct UnknownRole(pub String);

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        let known = Self::ALL.into_iter().find(|role| role.as_str() == text);
        known.ok_or_else(|| UnknownRole(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_read_as_they_are_written() {
        for role in Role::ALL {
            assert_eq!(role.to_string().parse(), Ok(role));
        }
        let message = "root".parse::<Role>().unwrap_err().to_string();
        for role in Role::ALL {
            assert!(message.contains(role.as_str()), "{message}");
        }
    }
}
