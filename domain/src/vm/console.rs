//! Whether a VM has a guest with a console, and what a user is answered where it has none.

use super::{State, Vm};
use crate::refusal::{Code, Refusal};

impl State {
    /// Returns whether there may be a guest, running or about to.
    #[must_use]
    pub fn may_have_guest(self) -> bool {
        match self {
            Self::Building
            | Self::Active
            | Self::Migrating
            | Self::Deleting
            | Self::Error
            | Self::Resized => true,
            Self::Stopped | Self::Shelved => false,
        }
    }
}

impl Vm {
    /// Returns the refusal for a VM without a guest.
    #[must_use]
    pub fn no_console(&self) -> Refusal {
        let (vm, state) = (&self.name, self.state.as_str());
        let hint = match self.state {
            State::Stopped => format!("`berth vm start {vm}` starts it"),
            State::Shelved => format!("`berth vm unshelve {vm}` starts it"),
            State::Building
            | State::Active
            | State::Migrating
            | State::Deleting
            | State::Error
            | State::Resized => format!("`berth vm show {vm}` shows what it waits for"),
        };
        let message = format!("vm {vm} is {state}, so its guest has no console");
        Refusal::new(Code::FailedPrecondition, "NO_CONSOLE", message)
            .with_hint(hint)
            .with("vm", vm)
            .with("state", state)
    }
}
