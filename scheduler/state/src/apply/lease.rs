//! Leases: who carries an operation out, fenced by epochs that only grow.

use berth_domain::id::{Epoch, OperationId, TimeMs};
use berth_domain::name::ServiceName;
use berth_domain::operation::{Kind, Lease, Operation};
use berth_domain::refusal::{Code, Refusal};

use crate::command::LeaseRequest;
use crate::refusals::precondition;
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    /// Gives a lease with an epoch greater than any before.
    pub(super) fn grant(&mut self, request: &LeaseRequest) -> Lease {
        let header = &mut self.state.header;
        header.epoch = Epoch(header.epoch.0 + 1);
        Lease {
            conductor: request.conductor.clone(),
            epoch: header.epoch,
            expires_at: after(header.time, request.ttl_ms),
        }
    }

    pub(super) fn take_lease(
        &mut self,
        id: OperationId,
        request: &LeaseRequest,
    ) -> Result<Reply, Refusal> {
        let operation = self.state.operation(id).cloned();
        let operation = operation.ok_or_else(|| Refusal::not_found("operation", id))?;
        if operation.is_done() {
            return Err(done(id));
        }
        self.examine_conductor(&request.conductor)?;
        if let Some(lease) = &operation.lease
            && lease.conductor != request.conductor
            && lease.expires_at > self.now()
        {
            return Err(precondition(
                "LEASE_HELD",
                format!("conductor {} carries operation {id} out", lease.conductor),
            )
            .with("operation", id)
            .with("conductor", &lease.conductor));
        }
        let lease = self.grant(request);
        Ok(Reply::Operation(self.put_operation(Operation {
            lease: Some(lease),
            ..(*operation).clone()
        })))
    }

    /// Prolongs what is still the conductor's; an expired lease that no other conductor took is.
    pub(super) fn renew_leases(
        &mut self,
        conductor: &ServiceName,
        leases: &[(OperationId, Epoch)],
        ttl_ms: u64,
    ) -> Reply {
        if self.state.is_recovering() {
            // What its operations do is settled by what hosts report.
            return Reply::Leases(Vec::new());
        }
        let expires_at = after(self.now(), ttl_ms);
        let mut held = Vec::new();
        for (id, epoch) in leases {
            let Some(operation) = self.state.operation(*id).cloned() else {
                continue;
            };
            let Some(lease) = &operation.lease else {
                continue;
            };
            if lease.conductor != *conductor || lease.epoch != *epoch {
                continue;
            }
            held.push(*id);
            if lease.expires_at >= expires_at {
                continue;
            }
            let lease = Lease {
                expires_at,
                ..lease.clone()
            };
            self.put_operation(Operation {
                lease: Some(lease),
                ..(*operation).clone()
            });
        }
        Reply::Leases(held)
    }

    pub(super) fn cancel_operation(&mut self, id: OperationId) -> Result<Reply, Refusal> {
        let operation = self.state.operation(id).cloned();
        let operation = operation.ok_or_else(|| Refusal::not_found("operation", id))?;
        if operation.is_done() || operation.cancelled {
            return Ok(Reply::Operation(operation));
        }
        let cancelled = Operation {
            cancelled: true,
            ..(*operation).clone()
        };
        if let Some(drain) = operation.drain() {
            return Ok(self.settle_drain(cancelled, drain.clone()));
        }
        Ok(Reply::Operation(self.put_operation(cancelled)))
    }

    /// Asks for the transfer of a live migration to be ended soon. The carrying conductor reads it.
    pub(super) fn force_complete(&mut self, id: OperationId) -> Result<Reply, Refusal> {
        let operation = self.state.operation(id).cloned();
        let operation = operation.ok_or_else(|| Refusal::not_found("operation", id))?;
        if !matches!(operation.kind, Kind::LiveMigrate { .. }) {
            let message = format!("operation {id} is no live migration, so it has no transfer");
            return Err(precondition("NOT_A_MIGRATION", message).with("operation", id));
        }
        if operation.is_done() || operation.force_complete {
            return Ok(Reply::Operation(operation));
        }
        Ok(Reply::Operation(self.put_operation(Operation {
            force_complete: true,
            ..(*operation).clone()
        })))
    }
}

/// Refuses a caller that does not hold the operation's current lease.
pub(super) fn fence(operation: &Operation, epoch: Epoch) -> Result<(), Refusal> {
    let current = operation.lease.as_ref().map_or(Epoch(0), |l| l.epoch);
    if current == epoch {
        return Ok(());
    }
    Err(Refusal::new(
        Code::Aborted,
        "STALE_EPOCH",
        format!(
            "operation {} is carried out under epoch {current}, not {epoch}",
            operation.id
        ),
    )
    .with("operation", operation.id)
    .with("epoch", current))
}

/// Refuses what comes after the end.
pub(super) fn done(id: OperationId) -> Refusal {
    precondition("OPERATION_DONE", format!("operation {id} is done")).with("operation", id)
}

fn after(now: TimeMs, ttl_ms: u64) -> TimeMs {
    TimeMs(now.0.saturating_add(ttl_ms))
}
