//! What the two ends of a live migration check before anything moves, and whether the guest is sent
//! encrypted.
//!
//! Invariant: a guest is neither sent nor received in plain text by an agent that requires encryption;
//! it holds that also against `migrate_data` that passed an older conductor.

use berth_domain::agent::{DestinationCheck, Fence, Reply};
use berth_domain::id::VmUid;
use berth_domain::migration::MigrateData;
use berth_domain::migration_tls::{TlsPolicy, TlsReport, agree};
use berth_domain::name::HostName;
use berth_domain::refusal::{Refusal, cut};
use berth_driver_api::{Error, Request};

use super::agent::{Agent, CallId, Effect, Facts, Start, Work, reply};
use super::answers::Done;
use super::calls::{Started, precondition};
use super::guests::Phase;

/// The longest fault that a report carries, in bytes; the wire bounds it too.
const FAULT_MAX: usize = 512;

impl Facts {
    /// Returns what is reported of encryption; the fault is why the driver cannot encrypt.
    #[must_use]
    pub fn tls_report(&self, fault: Option<String>) -> TlsReport {
        TlsReport {
            host: self.host.clone(),
            policy: self.tls,
            fault: fault.map(|mut fault| {
                cut(&mut fault, FAULT_MAX);
                fault
            }),
        }
    }
}

/// Returns what to do where a host cannot reach the hypervisor of another one.
pub(super) fn peer_hint(host: &HostName, uri: &str) -> String {
    format!(
        "on host {host}, try virsh --connect {uri} version; check that libvirtd of the other host \
         listens there, the certificates and the firewall"
    )
}

impl Agent {
    /// Answers a destination's check; where guests may come encrypted, the driver is queried first.
    pub(super) fn check_destination(&mut self, vm: VmUid) -> Started {
        if let Some(guest) = self.guests.get(&vm)
            && !matches!(guest.phase, Phase::Incoming(_))
        {
            return Err(self.exists(vm));
        }
        match self.facts.tls {
            TlsPolicy::Off => Ok(Start::Reply(Ok(self.destination_check(None)))),
            TlsPolicy::Require | TlsPolicy::Prefer => {
                Ok(Start::Work(Work::CheckDestination, Request::CheckTls(vm)))
            }
        }
    }

    /// Replies to a destination's check with what the driver reported of encryption.
    pub(super) fn destination_checked(&self, result: Done) -> Result<Reply, Refusal> {
        let fault = self.tls_fault(result)?;
        Ok(self.destination_check(fault))
    }

    fn destination_check(&self, fault: Option<String>) -> Reply {
        Reply::Destination(DestinationCheck {
            migration_uri: self.facts.migration_uri.clone(),
            storage_id: self.facts.storage_id.clone(),
            driver: self.facts.driver.clone(),
            shared_cpus: self.facts.topology.shared(),
            tls: Some(self.facts.tls_report(fault)),
            bridges: self.facts.bridges.clone(),
        })
    }

    /// Returns why the driver cannot encrypt; nothing if it can.
    fn tls_fault(&self, result: Done) -> Result<Option<String>, Refusal> {
        match result {
            Ok(_) => Ok(None),
            Err(Error::Refused { message }) => Ok(Some(message)),
            Err(error) => Err(self.refusal(&error)),
        }
    }

    /// Checks, as the source, whether a guest can go to a destination.
    pub(super) fn check_source(&mut self, vm: VmUid, destination: DestinationCheck) -> Started {
        let guest = self.running(vm)?;
        if destination.driver != self.facts.driver {
            let message = format!(
                "guest {} runs under driver {} and cannot go to driver {}",
                guest.domain.vm, self.facts.driver, destination.driver
            );
            return Err(precondition("DRIVER_DIFFERS", message));
        }
        let has_disks = !guest.domain.spec.disks.is_empty();
        let is_shared = destination.storage_id == self.facts.storage_id;
        if has_disks && !is_shared && !self.knows_disk_copy() {
            let message = format!(
                "guest {} has disks on storage {:?}, the destination uses {:?}",
                guest.domain.vm, self.facts.storage_id, destination.storage_id
            );
            return Err(precondition("DISKS_NOT_SHARED", message)
                .with_hint("give hosts that share their instance directory one storage_id"));
        }
        if self.facts.tls == TlsPolicy::Off {
            let tls = self.agreed(&destination, None)?;
            let request = Request::CheckPeer(vm, destination.migration_uri.clone());
            return Ok(Start::Work(
                Work::CheckSourcePeer { destination, tls },
                request,
            ));
        }
        Ok(Start::Work(
            Work::CheckSourceTls(destination),
            Request::CheckTls(vm),
        ))
    }

    /// Goes on with a source's check once the driver has reported of encryption.
    pub(super) fn source_tls_checked(
        &mut self,
        vm: VmUid,
        id: Option<CallId>,
        result: Done,
        destination: DestinationCheck,
    ) -> Vec<Effect> {
        let fault = self.tls_fault(result);
        let tls = fault.and_then(|fault| self.agreed(&destination, fault));
        match tls {
            Ok(tls) => {
                let request = Request::CheckPeer(vm, destination.migration_uri.clone());
                self.go_on(vm, id, Work::CheckSourcePeer { destination, tls }, request)
            }
            Err(refusal) => id.map(|id| reply(id, Err(refusal))).into_iter().collect(),
        }
    }

    /// Goes on with a source's check once the driver has tried to reach the destination.
    pub(super) fn source_peer_checked(
        &mut self,
        vm: VmUid,
        id: Option<CallId>,
        result: Done,
        destination: DestinationCheck,
        tls: bool,
    ) -> Vec<Effect> {
        let refusal = match result {
            Ok(_) => {
                let work = Work::CheckSource { destination, tls };
                return self.go_on(vm, id, work, Request::Domain(vm));
            }
            Err(Error::Refused { message }) => self.peer_unreachable(&destination, &message),
            Err(error) => self.refusal(&error),
        };
        id.map(|id| reply(id, Err(refusal))).into_iter().collect()
    }

    fn peer_unreachable(&self, destination: &DestinationCheck, why: &str) -> Refusal {
        let (host, uri) = (&self.facts.host, &destination.migration_uri);
        let message = format!("host {host} cannot reach the hypervisor at {uri}: {why}");
        precondition("PEER_UNREACHABLE", message)
            .with("host", host)
            .with("migration_uri", uri)
            .with_hint(peer_hint(host, uri))
    }

    fn agreed(
        &self,
        destination: &DestinationCheck,
        fault: Option<String>,
    ) -> Result<bool, Refusal> {
        let (there, uri) = (destination.tls.as_ref(), &destination.migration_uri);
        agree(&self.facts.tls_report(fault), there, uri)
    }

    /// Refuses a transfer in plain text where encryption is required.
    pub(super) fn require_tls(&self, fence: &Fence, data: &MigrateData) -> Result<(), Refusal> {
        if data.tls || self.facts.tls != TlsPolicy::Require {
            return Ok(());
        }
        let (host, vm) = (&self.facts.host, &data.vm);
        let message = format!(
            "host {host} requires encrypted live migration, and guest {vm} would be sent in plain text: \
             the other host's agent, or the conductor of operation {}, is too old to agree on encryption",
            fence.operation
        );
        let hint =
            format!("upgrade them, or set migration.tls = \"prefer\" on host {host} until then");
        Err(precondition("MIGRATION_NOT_ENCRYPTED", message)
            .with("host", host)
            .with_hint(hint))
    }
}
