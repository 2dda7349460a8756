//! What the cluster knows of the things that an operation is about, as read from the scheduler.
//!
//! Facts become stale; a saga reads new ones before it repeats a call that failed.

use std::collections::BTreeMap;

use berth_domain::claim::{Claim, Owner};
use berth_domain::fence::may_evacuate;
use berth_domain::host::Host;
use berth_domain::id::{ClaimId, Incarnation, MigrationId, TimeMs};
use berth_domain::migration::Migration;
use berth_domain::name::HostName;
use berth_domain::operation::Kind;
use berth_domain::version::ServiceVersion;
use berth_domain::vm::Vm;

/// What is known beside the operation itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The VM that the operation works on.
    pub vm: Vm,
    /// The migration that the operation is about, or for which what a deleted VM had is kept.
    pub migration: Option<Migration>,
    /// The claim that the operation took ([`Operation::claim`](berth_domain::operation::Operation)),
    /// as long as there is one.
    pub claim: Option<Claim>,
    /// All claims of the VM.
    pub claims: BTreeMap<ClaimId, Claim>,
    /// The hosts that the operation has to do with: the VM's, the claim's, the migration's,
    /// and the one that has what is left of a guest that was lost.
    pub hosts: BTreeMap<HostName, HostFacts>,
}

/// How one host's agent is reached, and what it can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFacts {
    /// Where the agent listens.
    pub address: String,
    /// The run of the agent.
    pub incarnation: Incarnation,
    /// What the agent can do.
    pub service_version: ServiceVersion,
    /// Whether it is proven to be dead: nothing that was begun there goes on.
    pub dead: bool,
    /// Identifies the storage of its guests' disks.
    pub storage_id: String,
}

impl From<&Host> for HostFacts {
    fn from(host: &Host) -> Self {
        Self {
            address: host.report.agent_address.clone(),
            incarnation: host.report.incarnation,
            service_version: host.report.service_version,
            // Only how long ago that was depends on the time.
            dead: may_evacuate(host, TimeMs(0)).is_ok(),
            storage_id: host.report.storage_id.clone(),
        }
    }
}

impl Facts {
    /// Returns the migration whose record an operation needs: what it is about; or, for a VM that is
    /// deleted, that for which its old host is kept.
    pub fn migration_needed<'c>(
        kind: &Kind,
        claims: impl IntoIterator<Item = &'c Claim>,
    ) -> Option<MigrationId> {
        let kept = claims.into_iter().find_map(|claim| match claim.owner {
            Owner::Migration(migration) => Some(migration),
            Owner::Vm => None,
        });
        let kept = kept.filter(|_| *kind == Kind::Delete);
        kind.migration().or(kept)
    }

    /// Returns the names of the hosts whose facts an operation needs.
    #[must_use]
    pub fn hosts_needed(
        vm: &Vm,
        migration: Option<&Migration>,
        claim: Option<&Claim>,
    ) -> Vec<HostName> {
        let mut names: Vec<HostName> = Vec::new();
        names.extend(vm.host.clone());
        names.extend(vm.remains_on.clone());
        names.extend(claim.map(|c| c.host.clone()));
        if let Some(migration) = migration {
            names.push(migration.source.clone());
            names.extend(migration.destination.clone());
        }
        names.sort();
        names.dedup();
        names
    }
}
