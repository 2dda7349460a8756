//! Whether a conductor that carries an operation on is the one that holds it.
//!
//! The state identifies holders by epoch alone: a caller that knows the number could continue another
//! one's. Conductors have names in their certificates, so it is checked here, before the log.
//!
//! Invariant: each epoch is given to one conductor, once and for all, and epochs of an operation only
//! grow. So what this member has replicated may be late, and is never wrong: who holds an epoch here
//! holds it everywhere.

use std::sync::Arc;

use berth_domain::id::{Epoch, OperationId};
use berth_domain::name::ServiceName;
use berth_process::access;
use berth_proto::types::v1::ReadConsistency;
use berth_state::State;
use berth_tls::Identity;
use tonic::Status;

use super::context::Context;

/// What is known of an epoch of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Held {
    /// This conductor holds it.
    By(ServiceName),
    /// Another one came after it, or the operation is done, or there is none: it is no longer valid.
    Past,
    /// It was not granted yet.
    NotYet,
}

fn held(state: &State, operation: OperationId, epoch: Epoch) -> Held {
    let Some(operation) = state.operation(operation) else {
        return Held::NotYet;
    };
    match &operation.lease {
        _ if operation.is_done() => Held::Past,
        Some(lease) if lease.epoch == epoch => Held::By(lease.conductor.clone()),
        Some(lease) if lease.epoch > epoch => Held::Past,
        Some(_) | None => Held::NotYet,
    }
}

/// Checks that the caller is the conductor that holds an operation under an epoch.
///
/// # Errors
///
/// When another conductor holds it, or none yet.
pub(super) async fn check(
    context: &Context,
    caller: Option<Arc<Identity>>,
    operation: OperationId,
    epoch: Epoch,
) -> Result<(), Status> {
    // Without TLS callers are not authenticated.
    let Some(caller) = caller else {
        return Ok(());
    };
    let mut known = context
        .stale(move |state| held(state, operation, epoch))
        .await?;
    if known == Held::NotYet {
        let state = context.state(ReadConsistency::Linearizable.into()).await?;
        if state.operation(operation).is_none() {
            known = Held::Past;
        } else {
            known = held(&state, operation, epoch);
        }
    }
    match known {
        // The state refuses the request with the current epoch.
        Held::Past => Ok(()),
        Held::By(conductor) => access::check_is_conductor(&caller, conductor.as_str()),
        Held::NotYet => Err(access::not_yours(format!(
            "{} does not hold operation {operation}: no conductor has it under epoch {epoch}",
            caller.principal()
        ))),
    }
}
