//! The state taken apart into rows, and put together from them.
//!
//! Invariant: what is put together equals what was taken apart, indexes and views included.

use std::collections::BTreeSet;

use berth_domain::claim::Claim;
use berth_domain::host_view::HostView;
use berth_domain::id::ClaimId;
use berth_domain::name::HostName;

use crate::row::{Key, Row};
use crate::state::State;
use crate::transaction::Transaction;

/// Why rows do not make a state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RebuildError {
    /// Two rows have one key.
    #[error("two rows have the key {0:?}")]
    Twice(Key),
    /// A claim is on a host that is not among the rows, or in cells that the host neither has nor lost.
    #[error("{claim:?} is on host {host}, which is not there or has another shape")]
    Homeless {
        /// The claim.
        claim: ClaimId,
        /// The host.
        host: HostName,
    },
}

impl State {
    /// Returns every row, in a fixed order: table by table, by key within one.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        std::iter::once(Row::Header(self.header))
            .chain(self.hosts.values().map(|v| Row::Host(v.host.clone())))
            .chain(self.providers.values().cloned().map(Row::Provider))
            .chain(self.consumers.values().cloned().map(Row::Consumer))
            .chain(self.flavors.values().cloned().map(Row::Flavor))
            .chain(self.services.values().cloned().map(Row::Service))
            .chain(self.vms.values().cloned().map(Row::Vm))
            .chain(self.claims.values().cloned().map(Row::Claim))
            .chain(self.migrations.values().cloned().map(Row::Migration))
            .chain(self.operations.values().cloned().map(Row::Operation))
            .chain(self.requests.values().cloned().map(Row::Request))
            .chain(self.classes.values().cloned().map(Row::Class))
            .chain(self.traits.values().cloned().map(Row::Trait))
            .chain(self.aggregates.values().cloned().map(Row::Aggregate))
            .chain(self.server_groups.values().cloned().map(Row::ServerGroup))
            .chain(
                self.policy
                    .is_set()
                    .then(|| Row::Policy(self.policy.clone())),
            )
            .chain(self.pci_aliases.values().cloned().map(Row::PciAlias))
            .chain(self.images.values().cloned().map(Row::Image))
            .chain(self.networks.values().cloned().map(Row::Network))
            .chain(self.audit.values().cloned().map(Row::Audit))
            .chain(self.volumes.values().cloned().map(Row::Volume))
            .chain(
                self.revoked_certificates
                    .values()
                    .cloned()
                    .map(Row::RevokedCertificate),
            )
            .chain(
                self.recovered_hosts
                    .values()
                    .cloned()
                    .map(Row::RecoveredHost),
            )
            .chain(self.settled_vms.values().cloned().map(Row::SettledVm))
    }

    /// Returns the state that these rows make, in whatever order they come. No row at all makes
    /// the state before the first command.
    ///
    /// # Errors
    ///
    /// When rows contradict each other so that no state can be made; whether the state is sound
    /// is for [`State::check`] to say.
    pub fn from_rows(rows: impl IntoIterator<Item = Row>) -> Result<Self, RebuildError> {
        let mut state = Self::new();
        let mut tx = Transaction::unrecorded(&mut state);
        let mut seen = BTreeSet::new();
        let mut claims = Vec::new();
        for row in rows {
            let key = row.key();
            if seen.contains(&key) {
                return Err(RebuildError::Twice(key));
            }
            seen.insert(key);
            match row {
                Row::Header(header) => tx.state.header = header,
                Row::Host(row) => drop(tx.put_host((*row).clone())),
                Row::Provider(row) => drop(tx.put_provider((*row).clone())),
                Row::Consumer(row) => drop(tx.put_consumer((*row).clone())),
                Row::Flavor(row) => drop(tx.put_flavor((*row).clone())),
                Row::Service(row) => drop(tx.put_service((*row).clone())),
                Row::Vm(row) => drop(tx.put_vm((*row).clone())),
                Row::Migration(row) => drop(tx.put_migration((*row).clone())),
                Row::Operation(row) => drop(tx.put_operation((*row).clone())),
                Row::Request(row) => tx.put_request((*row).clone()),
                Row::Class(row) => drop(tx.put_class((*row).clone())),
                Row::Trait(row) => drop(tx.put_trait((*row).clone())),
                Row::Aggregate(row) => drop(tx.put_aggregate((*row).clone())),
                Row::ServerGroup(row) => drop(tx.put_server_group((*row).clone())),
                Row::Policy(row) => drop(tx.put_policy((*row).clone())),
                Row::PciAlias(row) => drop(tx.put_pci_alias((*row).clone())),
                Row::Image(row) => drop(tx.put_image((*row).clone())),
                Row::Network(row) => drop(tx.put_network((*row).clone())),
                Row::Audit(row) => tx.put_audit((*row).clone()),
                Row::Volume(row) => drop(tx.put_volume((*row).clone())),
                Row::RevokedCertificate(row) => {
                    drop(tx.put_revoked_certificate((*row).clone()));
                }
                Row::RecoveredHost(row) => drop(tx.put_recovered_host((*row).clone())),
                Row::SettledVm(row) => tx.put_settled_vm((*row).clone()),
                // A claim takes from its host's view, so that the hosts come first.
                Row::Claim(row) => claims.push(row),
            }
        }
        for claim in &claims {
            let view = tx.state.host(&claim.host);
            if !view.is_some_and(|view| is_at_home(view, claim)) {
                return Err(RebuildError::Homeless {
                    claim: claim.id,
                    host: claim.host.clone(),
                });
            }
        }
        tx.place_claims(claims);
        Ok(state)
    }
}

/// Returns whether a claim is on NUMA nodes that its host has, or is marked as one that lost them.
fn is_at_home(view: &HostView, claim: &Claim) -> bool {
    if view.host.hit.contains(&claim.id) {
        return true;
    }
    let topology = &view.host.report.topology;
    let mut cells = claim.assignment.cells.iter();
    cells.all(|cell| topology.position(cell.host_cell).is_some())
}
