//! The cluster version, and who is too old for it.
//!
//! Which members there are, and what they can do, the state does not know: the one who proposes
//! [`Command::FinalizeUpgrade`](crate::command::Command::FinalizeUpgrade) has looked.

use std::collections::BTreeSet;

use berth_domain::name::ServiceName;
use berth_domain::refusal::Refusal;
use berth_domain::version::{ServiceVersion, TOO_OLD};

use crate::refusals::{precondition, upgrade_incomplete};
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    /// Returns whether rows may hold what a version brought.
    pub(super) fn may_write(&self, brought_by: ServiceVersion) -> bool {
        self.state.header.cluster_version >= brought_by
    }

    /// The same version again is no change. It never falls: rows may hold what it brought.
    pub(super) fn finalize_upgrade(
        &mut self,
        version: ServiceVersion,
        gone: &BTreeSet<ServiceName>,
    ) -> Result<Reply, Refusal> {
        let present = self.state.header.cluster_version;
        if version < present {
            return Err(precondition(
                "CLUSTER_VERSION_TOO_NEW",
                format!(
                    "the cluster version is {present} and never falls, {version} was requested"
                ),
            )
            .with("cluster_version", present)
            .with("wanted_version", version));
        }
        let services = self.state.services.values();
        let behind: Vec<String> = services
            .filter(|service| service.version < version && !gone.contains(&service.name))
            .map(|service| format!("conductor {} ({})", service.name, service.version))
            .collect();
        if !behind.is_empty() {
            return Err(upgrade_incomplete(version, &behind));
        }
        for name in gone {
            if self.state.service(name).is_some() {
                self.remove_service(name);
            }
        }
        self.state.header.cluster_version = version;
        Ok(Reply::None)
    }

    pub(super) fn unregister_service(&mut self, name: &ServiceName) -> Result<Reply, Refusal> {
        if self.state.service(name).is_none() {
            return Err(Refusal::not_found("service", name));
        }
        let now = self.now();
        let held = self.state.running_operations().filter(|operation| {
            let lease = operation.lease.as_ref();
            lease.is_some_and(|l| l.conductor == *name && l.expires_at > now)
        });
        let held = held.count();
        if held > 0 {
            return Err(precondition(
                "SERVICE_HOLDS_LEASES",
                format!("conductor {name} carries out {held} operations"),
            )
            .with_hint("stop it, and wait until its leases have run out")
            .with("service", name));
        }
        self.remove_service(name);
        Ok(Reply::None)
    }

    /// Refuses work to a conductor that is older than the cluster version: what others began it may
    /// not know how to go on with. One that has not registered is not known to be.
    pub(super) fn examine_conductor(&self, name: &ServiceName) -> Result<(), Refusal> {
        if !self.may_write(ServiceVersion::FINALIZE_UPGRADE) {
            return Ok(());
        }
        let required = self.state.header.cluster_version;
        let Some(service) = self.state.service(name).filter(|s| s.version < required) else {
            return Ok(());
        };
        Err(precondition(
            TOO_OLD,
            format!(
                "conductor {name} is at service version {}, the cluster version is {required}",
                service.version
            ),
        )
        .with_hint("upgrade that conductor, or use another one")
        .with("service", name)
        .with("service_version", service.version)
        .with("needed_version", required))
    }
}
