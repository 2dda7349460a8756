//! Records who requested what, and drops the oldest records.

use berth_domain::audit::{Entry, Outcome};
use berth_domain::operation::Subject;
use berth_domain::refusal::Refusal;
use berth_domain::version::ServiceVersion;

use crate::command::Envelope;
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

pub use berth_domain::bound::AUDIT_MAX;

impl<J: Journal> Transaction<'_, J> {
    /// Records a command and its outcome, if a client requested it.
    pub(super) fn audit(&mut self, envelope: &Envelope, outcome: &Result<Reply, Refusal>) {
        let Some(request) = &envelope.audit else {
            return;
        };
        let mut request = (**request).clone();
        let operation = match outcome {
            Ok(Reply::Operation(operation)) => Some(operation),
            Ok(_) | Err(_) => None,
        };
        if let Some(operation) = operation {
            // Who names the operation alone is about its VM all the same.
            match &operation.subject {
                Subject::Vm(vm) => drop(request.vm.get_or_insert_with(|| vm.clone())),
                Subject::Drain(drain) => {
                    request.host.get_or_insert_with(|| drain.host.clone());
                }
            }
        }
        let outcome = match outcome {
            Ok(_) => Outcome::Accepted {
                operation: operation.map(|operation| operation.id),
            },
            Err(refusal) => {
                let is_bounded = self.may_write(ServiceVersion::BOUNDED_RECORDS);
                Outcome::Refused(refusal.as_record(is_bounded))
            }
        };
        self.put_audit(Entry {
            revision: self.state.header.revision,
            at: self.now(),
            principal: envelope.principal.clone(),
            request,
            outcome,
        });
        while self.state.audit.len() > AUDIT_MAX {
            let Some((oldest, _)) = self.state.audit.get_min() else {
                return;
            };
            let oldest = *oldest;
            self.remove_audit(oldest);
        }
    }
}
