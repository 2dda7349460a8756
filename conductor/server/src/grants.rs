//! What the scheduler granted to this conductor, by operation. Calls to agents carry it.
//!
//! Invariant: a call carries the grant of its own epoch or none, and only the newest is kept.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_domain::agent::Fence;
use berth_domain::id::{Epoch, OperationId};
use berth_domain::operation::Operation;
use berth_proto::operation::v1::SignedGrant;

/// The grants of the operations that are carried out. Cheap to clone; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grants(Arc<Mutex<BTreeMap<OperationId, (Epoch, SignedGrant)>>>);

impl Grants {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<OperationId, (Epoch, SignedGrant)>> {
        // Every change is one insertion or removal.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what the scheduler granted with an operation; drops what it granted for one that is done.
    pub(crate) fn take(&self, operation: &Operation, grant: Option<SignedGrant>) {
        let epoch = operation.lease.as_ref().map(|lease| lease.epoch);
        let mut grants = self.lock();
        match (epoch, grant) {
            _ if operation.is_done() => drop(grants.remove(&operation.id)),
            // A response that was overtaken is not newer than what is known.
            (Some(epoch), Some(grant))
                if grants
                    .get(&operation.id)
                    .is_none_or(|(known, _)| *known <= epoch) =>
            {
                grants.insert(operation.id, (epoch, grant));
            }
            (Some(_) | None, Some(_) | None) => {}
        }
    }

    /// Returns the grant of a call.
    pub(crate) fn of(&self, fence: &Fence) -> Option<SignedGrant> {
        let grants = self.lock();
        let (epoch, grant) = grants.get(&fence.operation)?;
        (*epoch == fence.epoch).then(|| grant.clone())
    }

    /// Drops the grant of an operation that is no longer carried out here.
    pub(crate) fn forget(&self, operation: OperationId, epoch: Option<Epoch>) {
        let mut grants = self.lock();
        if grants.get(&operation).map(|(known, _)| *known) == epoch {
            grants.remove(&operation);
        }
    }
}
