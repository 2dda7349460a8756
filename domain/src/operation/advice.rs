//! What can be done about a VM that is in the wrong state for an operation.
//!
//! Invariant: what is advised is admitted in the state that the VM is in, and leads to one in which
//! the operation is; where nothing does, nothing is advised.

use super::Kind;
use crate::vm::{State, Vm};

/// What can be done about the state of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// The operation that changes its state ends by itself.
    Wait,
    /// It is started.
    Start,
    /// It is moved as it is, stopped.
    MoveCold,
    /// It is started from its disks.
    Unshelve,
    /// Its resize is confirmed or reverted.
    EndResize,
    /// Its disks are recreated.
    Rebuild,
    /// It is deleted, and booted again.
    Delete,
}

impl Advice {
    /// Returns what helps so that an operation of this kind can begin on a VM in this state;
    /// `has_claim`: it holds a claim on a host.
    #[must_use]
    pub fn new(state: State, has_claim: bool, kind: &Kind) -> Option<Self> {
        let is_possible = match kind {
            // A drain is not about one VM.
            Kind::Boot | Kind::Delete | Kind::DrainHost(_) => return None,
            // They end a state that no other operation leads to.
            Kind::Unshelve | Kind::RevertResize { .. } | Kind::ConfirmResize { .. } => false,
            Kind::LiveMigrate { .. }
            | Kind::ColdMigrate { .. }
            | Kind::Evacuate { .. }
            | Kind::Shelve
            | Kind::Stop { .. }
            | Kind::Start
            | Kind::Reboot { .. }
            | Kind::Rebuild { .. }
            | Kind::Snapshot { .. } => true,
        };
        match state {
            State::Building | State::Migrating => Some(Self::Wait),
            State::Deleting | State::Active => None,
            State::Shelved if is_possible => Some(Self::Unshelve),
            State::Resized if is_possible => Some(Self::EndResize),
            State::Shelved | State::Resized => None,
            State::Stopped => match kind {
                Kind::LiveMigrate { .. } => Some(Self::MoveCold),
                Kind::Stop { .. } | Kind::Reboot { .. } => Some(Self::Start),
                Kind::Boot
                | Kind::Delete
                | Kind::DrainHost(_)
                | Kind::ColdMigrate { .. }
                | Kind::RevertResize { .. }
                | Kind::Evacuate { .. }
                | Kind::Shelve
                | Kind::Unshelve
                | Kind::Start
                | Kind::Rebuild { .. }
                | Kind::Snapshot { .. }
                | Kind::ConfirmResize { .. } => None,
            },
            State::Error if !is_possible => None,
            State::Error if has_claim => Some(Self::Rebuild),
            State::Error => Some(Self::Delete),
        }
    }

    /// Returns it as a sentence, with the commands that do it.
    #[must_use]
    pub fn describe(self, vm: &Vm) -> String {
        let first = vm.unprotect_first();
        let vm = &vm.name;
        match self {
            Self::Wait => "wait until the operation on it has ended".to_owned(),
            Self::Start => format!("start it first: `berth vm start {vm}`"),
            Self::MoveCold => format!(
                "move it as it is: `berth vm migrate {vm} --cold`, or start it first: `berth vm \
                 start {vm}`"
            ),
            Self::Unshelve => format!("unshelve it first: `berth vm unshelve {vm}`"),
            Self::EndResize => format!(
                "end its resize first: `berth vm confirm-resize {vm}` or `berth vm revert-resize \
                 {vm}`"
            ),
            Self::Rebuild => format!(
                "{first}recreate its disks: `berth vm rebuild {vm}`, or delete it: `berth vm delete {vm}`"
            ),
            Self::Delete => format!("{first}delete it, `berth vm delete {vm}`, and boot it again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::id::MigrationId;
    use crate::vm::Event;

    fn kinds() -> Vec<Kind> {
        let migration = MigrationId(Uuid::nil());
        let timeout_ms = 0;
        vec![
            Kind::LiveMigrate { migration },
            Kind::ColdMigrate { migration },
            Kind::RevertResize { migration },
            Kind::ConfirmResize { migration },
            Kind::Evacuate { migration },
            Kind::Shelve,
            Kind::Unshelve,
            Kind::Stop { timeout_ms },
            Kind::Start,
            Kind::Reboot { timeout_ms },
            Kind::Rebuild { images: Vec::new() },
            Kind::Snapshot {
                disk: 0,
                image: "i".to_owned(),
            },
        ]
    }

    /// Returns whether an operation of this kind may begin.
    fn admits(state: State, kind: &Kind) -> bool {
        match matches!(kind, Kind::LiveMigrate { .. }) {
            true => state.transition(Event::MigrationBegan).is_ok(),
            false => kind.works_in(state),
        }
    }

    /// Returns the advised operations, and the state to which they lead.
    fn followed(advice: Advice) -> Vec<(Kind, State)> {
        let migration = MigrationId(Uuid::nil());
        match advice {
            Advice::Wait | Advice::Delete => Vec::new(),
            Advice::Start => vec![(Kind::Start, State::Active)],
            Advice::MoveCold => vec![
                (Kind::ColdMigrate { migration }, State::Stopped),
                (Kind::Start, State::Active),
            ],
            Advice::Unshelve => vec![(Kind::Unshelve, State::Active)],
            Advice::EndResize => vec![
                (Kind::ConfirmResize { migration }, State::Active),
                (Kind::RevertResize { migration }, State::Active),
            ],
            Advice::Rebuild => vec![(Kind::Rebuild { images: Vec::new() }, State::Active)],
        }
    }

    /// Goal: no advice that cannot be followed, or that leads nowhere. Method: every state with
    /// every kind of operation that it does not admit.
    #[test]
    fn advice_is_admitted_and_leads_to_the_operation() {
        let mut count = 0;
        for state in State::ALL {
            for kind in kinds().iter().filter(|kind| !admits(state, kind)) {
                for has_claim in [false, true] {
                    let Some(advice) = Advice::new(state, has_claim, kind) else {
                        continue;
                    };
                    count += 1;
                    let place = format!("{state:?}, {kind:?}: {advice:?}");
                    if advice == Advice::Delete {
                        assert!(state.transition(Event::DeleteBegan).is_ok(), "{place}");
                    }
                    for (step, then) in followed(advice) {
                        assert!(admits(state, &step), "{place}");
                        let is_it = matches!(
                            (&step, kind),
                            (Kind::ColdMigrate { .. }, Kind::LiveMigrate { .. })
                        );
                        assert!(is_it || admits(then, kind), "{place}");
                    }
                }
            }
        }
        assert!(count > 60, "{count}");
    }
}
