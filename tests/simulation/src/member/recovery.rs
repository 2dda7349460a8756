//! The leader's part in a recovery.

use berth_decide::{Action, Decision, DecisionRequest, decide};
use berth_domain::id::TimeMs;
use berth_replication::Ticket;
use berth_state::command::Command;

use super::Running;

impl Running {
    /// Ends a recovery when nothing is missing and nothing conflicts.
    pub(super) fn end_recovery(&mut self, now: TimeMs) {
        if self.replica.may_propose().is_err() {
            return;
        }
        let Some(machine) = self.replica.speculative() else {
            return;
        };
        let outcome = machine.state().recovery_outcome();
        if outcome.is_none_or(|outcome| !outcome.conflicts.is_empty()) {
            return;
        }
        let accept_conflicts = false;
        let command = Command::EndRecovery { accept_conflicts };
        let request = DecisionRequest::new(DecisionRequest::LEADER, Action::Plain(command));
        let decision = decide(machine.state(), berth_codec::admit, now, &request);
        if let Decision::Command(proposal) = decision {
            self.last_ticket += 1;
            let ticket = Ticket(self.last_ticket);
            let proposed = self.replica.propose(ticket, proposal.envelope);
            assert!(proposed.is_ok(), "the replica said that it takes proposals");
        }
    }
}
