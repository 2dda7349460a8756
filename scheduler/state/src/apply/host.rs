//! Hosts: registered by their agents, cordoned and removed by operators.
//!
//! A host's root provider lives and dies with it and carries its inventories.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_domain::bound::REPORT_BYTES_MAX;
use berth_domain::claim::Claim;
use berth_domain::constraint::shape;
use berth_domain::cpu_set::CpuSet;
use berth_domain::host::{Host, HostReport, Liveness, inventories_of, traits_of};
use berth_domain::host_view::HostView;
use berth_domain::id::{Generation, ProviderId};
use berth_domain::instance::EmulatorThreads;
use berth_domain::name::{HostName, VmName};
use berth_domain::pmem::PmemDevice;
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::resource::Trait;
use berth_domain::version::ServiceVersion;
use berth_domain::vm;
use berth_domain::volume::REGIONS_MAX;

use super::inventory::examine_count;
use crate::refusals::{exists, host_is_drained, invalid, precondition};
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};
use crate::weight;

/// How many VMs a refused shape names.
const NAMED_MAX: usize = 16;

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn register_host(
        &mut self,
        name: &HostName,
        provider: ProviderId,
        report: &HostReport,
    ) -> Result<Reply, Refusal> {
        if report.memory_reserved_mib > report.topology.memory_mib() {
            return Err(invalid(
                "INVALID_HOST_REPORT",
                format!("host {name} keeps more memory for itself than it has"),
            ));
        }
        self.examine_host_traits(name, report)?;
        // A VM of the time before may have a namespace that was taken out since.
        if !self.state.is_recovering() {
            self.examine_namespaces(name, report)?;
        }
        examine_regions(name, report)?;
        self.examine_reported_names(name, report)?;
        self.examine_report_size(name, report)?;
        match self.state.host(name).cloned() {
            Some(view) => self.report_again(&view, report),
            None => self.register_new_host(name, provider, report),
        }
    }

    /// Refuses a report that no real host has. What it weighs does not depend on the host's record.
    fn examine_report_size(&self, name: &HostName, report: &HostReport) -> Result<(), Refusal> {
        let bytes = weight::of_report(report);
        if bytes <= REPORT_BYTES_MAX || !self.may_write(ServiceVersion::BOUNDED_RECORDS) {
            return Ok(());
        }
        Err(Refusal::new(
            Code::ResourceExhausted,
            "HOST_REPORT_TOO_LARGE",
            format!(
                "the report of host {name} takes {bytes} bytes, at most {REPORT_BYTES_MAX} are possible"
            ),
        )
        .with_hint("configure fewer PCI devices, namespaces or regions for guests on that host")
        .with("host", name)
        .with("max", REPORT_BYTES_MAX))
    }

    /// Refuses a trait that cannot be created, and too many of them. A newer agent may know standard
    /// ones that this scheduler does not.
    fn examine_host_traits(&self, name: &HostName, report: &HostReport) -> Result<(), Refusal> {
        examine_count(report.traits.len(), "traits")?;
        let strange = |t: &&Trait| !t.is_custom() && !self.state.knows_trait(t);
        let Some(strange) = report.traits.iter().find(strange) else {
            return Ok(());
        };
        Err(invalid(
            "INVALID_HOST_REPORT",
            format!("host {name} reports trait {strange}, which is not a standard one"),
        )
        .with_hint("upgrade the schedulers before the agents; custom traits begin with CUSTOM_")
        .with("host", name)
        .with("trait", strange))
    }

    /// Refuses a report without a namespace that is claimed, or that is not erased yet: the
    /// agent's configuration was changed. One that is configured and not there is reported as such.
    fn examine_namespaces(&self, name: &HostName, report: &HostReport) -> Result<(), Refusal> {
        let has = |device: &PmemDevice| {
            let namespace = report.topology.namespace(&device.name);
            namespace.is_some_and(|namespace| namespace.class == device.class)
        };
        let claims = self.state.claims_of_host(name);
        let held = claims.flat_map(|claim| claim.assignment.pmem.iter().map(move |d| (claim, d)));
        let held = held.filter(|(claim, device)| !claim.has_written_off(&device.name));
        let gone: Vec<_> = held.filter(|(_, device)| !has(device)).collect();
        if gone.is_empty() {
            return Ok(());
        }
        let described = gone.iter().take(NAMED_MAX).map(|(claim, device)| {
            let PmemDevice { name, class, .. } = device;
            match claim.is_in_use() {
                true => format!("{name} ({class}) of vm {}", claim.vm),
                false => format!("{name} ({class}), not erased yet after vm {}", claim.vm),
            }
        });
        let described: Vec<String> = described.collect();
        let more = match gone.len() - described.len() {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let message = format!(
            "host {name} does not offer pmem namespaces that are in use: {}{more}",
            described.join(", ")
        );
        Err(precondition("PMEM_NAMESPACE_IN_USE", message)
            .with_hint(
                "put them back into pmem_namespaces of the agent's configuration with the label that \
                 they had; move or delete the VMs before a namespace is taken out; one that is lost for \
                 good is written off: berth host pmem write-off",
            )
            .with("host", name))
    }

    fn register_new_host(
        &mut self,
        name: &HostName,
        provider: ProviderId,
        report: &HostReport,
    ) -> Result<Reply, Refusal> {
        if self.state.provider(provider).is_some() {
            return Err(exists("provider", provider));
        }
        if self.state.provider_named(name.as_str()).is_some() {
            return Err(exists("provider", name).with_hint(
                "a client's provider has the host's name: rename the host or delete it",
            ));
        }
        self.create_missing(report);
        let created_at = self.now();
        self.put_provider(ResourceProvider {
            id: provider,
            name: name.as_str().to_owned(),
            generation: Generation::default(),
            parent: None,
            root: provider,
            host: Some(name.clone()),
            inventories: inventories_of(report, self.state.rule_of(name)),
            traits: traits_of(report),
            aggregates: BTreeSet::new(),
            origin: None,
            created_at,
            updated_at: created_at,
        });
        let host = self.put_host(Host {
            name: name.clone(),
            provider,
            report: report.clone(),
            liveness: Liveness::Up,
            cordoned: false,
            cordoned_by: None,
            shape_refused: None,
            generation: Generation(1),
            created_at,
            fenced: None,
            unknown: Vec::new(),
            compared: 0,
            hit: BTreeSet::new(),
            failed_volumes: Vec::new(),
            registered_version: self.registering_under(),
            // It may have been added in the time that is lost, and have guests.
            unreported: self.state.header.recovery.is_some() && report.runs_guests(),
            orphans: BTreeSet::new(),
        });
        self.settle_regions(name);
        self.take_volumes_back(name);
        Ok(Reply::Host(host))
    }

    /// Returns what a host that registers notes of the cluster version; nothing before there is a
    /// place to note it.
    fn registering_under(&self) -> ServiceVersion {
        if self.may_write(ServiceVersion::FINALIZE_UPGRADE) {
            self.state.header.cluster_version
        } else {
            ServiceVersion::OLDEST
        }
    }

    /// Takes the new report of a known host. A smaller shape is taken over, and the claims that it
    /// has no room for are marked. One that would give what guests have to others too is not: but
    /// everything else is, since a host whose agent cannot be reached under its new address and
    /// incarnation could not be emptied either.
    fn report_again(&mut self, view: &HostView, report: &HostReport) -> Result<Reply, Refusal> {
        let old = &view.host;
        let registered_version = self.registering_under();
        let is_known = old.report == *report && old.registered_version == registered_version;
        if is_known && old.liveness == Liveness::Up && old.shape_refused.is_none() {
            return Ok(Reply::Host(old.clone()));
        }
        let mut host = Host {
            report: report.clone(),
            shape_refused: None,
            hit: BTreeSet::new(),
            registered_version,
            ..(**old).clone()
        };
        host.record_liveness(Liveness::Up);
        let refused = self
            .floating_over_dedicated(old, &host)
            .or_else(|| self.pinned_elsewhere(&host))
            .or_else(|| self.smaller_too_early(&host));
        if refused.is_some() {
            host.shape_refused = refused;
            host.report.topology = old.report.topology.clone();
            host.report.memory_reserved_mib = old.report.memory_reserved_mib;
            host.report.disk_gib = old.report.disk_gib;
            host.hit.clone_from(&old.hit);
        }
        // Its traits are new, its namespaces may be the old ones.
        self.examine_reported_names(&host.name, &host.report)?;
        host.hit = self.hit_claims(&host);
        if host == **old {
            return Ok(Reply::Host(old.clone()));
        }
        host.generation = old.generation.next();
        self.create_missing(&host.report);
        self.offer(&host);
        let has_regions = !(host.report.regions.is_empty() && old.report.regions.is_empty());
        let host = self.put_host(host);
        if has_regions {
            self.place_volumes_again(&host.name);
            self.settle_regions(&host.name);
        }
        Ok(Reply::Host(host))
    }

    /// Has the host's provider offer what the host has now.
    fn offer(&mut self, host: &Host) {
        let rule = self.state.rule_of(&host.name);
        let inventories = inventories_of(&host.report, rule);
        let traits = traits_of(&host.report);
        let provider = self.state.provider(host.provider).cloned();
        if let Some(provider) = provider
            && (provider.inventories != inventories || provider.traits != traits)
        {
            self.put_provider(ResourceProvider {
                inventories,
                traits,
                generation: provider.generation.next(),
                updated_at: self.now(),
                ..(*provider).clone()
            });
        }
    }

    /// Returns which guests float over CPUs that are to be dedicated from now on. Such guests were
    /// let loose over the CPUs that were shared when they began, and nothing calls them back, so
    /// a vCPU with one of these CPUs to itself would not have it to itself.
    fn floating_over_dedicated(&self, old: &Host, new: &Host) -> Option<String> {
        let taken = old
            .report
            .topology
            .shared()
            .intersection(&new.report.topology.dedicated());
        if taken.is_empty() {
            return None;
        }
        let floats = |vm: &VmName| {
            let topology = self.state.vm(vm).and_then(|vm| vm.spec.topology.as_ref());
            topology.is_none_or(|t| t.emulator_threads == EmulatorThreads::Share)
        };
        let vms: BTreeSet<&VmName> = self
            .state
            .claims_of_host(&new.name)
            .filter(|claim| claim.is_in_use() && floats(&claim.vm))
            .map(|claim| &claim.vm)
            .collect();
        (!vms.is_empty()).then(|| {
            format!(
                "it dedicates CPUs {taken}, over which vms {} float",
                named(&vms)
            )
        })
    }

    /// Returns which guests have CPUs to themselves that the host has from now on in another cell, or
    /// for everybody. That is another division of the host rather than the loss of a part.
    fn pinned_elsewhere(&self, host: &Host) -> Option<String> {
        let mut vms = BTreeSet::new();
        let mut moved = CpuSet::new();
        for claim in self.state.claims_of_host(&host.name) {
            let cpus = shape::moved_cpus(&host.report.topology, &claim.assignment);
            if !cpus.is_empty() {
                vms.insert(&claim.vm);
                moved = moved.union(&cpus);
            }
        }
        (!vms.is_empty()).then(|| {
            format!(
                "vms {} have CPUs {moved} to themselves, which the host has in another cell or for \
                 everybody now",
                named(&vms)
            )
        })
    }

    /// Returns which guests a host has no room for any more, while that cannot be marked yet.
    fn smaller_too_early(&self, host: &Host) -> Option<String> {
        if self.may_write(ServiceVersion::SMALLER_HOSTS) {
            return None;
        }
        let hit = self.hit_claims(host);
        let claims = hit.iter().filter_map(|claim| self.state.claim(*claim));
        let vms: BTreeSet<&VmName> = claims.map(|claim| &claim.vm).collect();
        (!vms.is_empty()).then(|| {
            format!(
                "it has no room for vms {} any more, and before the upgrade is finalized a host \
                 cannot become smaller than its guests",
                named(&vms)
            )
        })
    }

    pub(super) fn set_liveness(
        &mut self,
        name: &HostName,
        liveness: Liveness,
    ) -> Result<Reply, Refusal> {
        self.change_host(name, |host| host.record_liveness(liveness))
    }

    pub(super) fn set_cordon(&mut self, name: &HostName, cordoned: bool) -> Result<Reply, Refusal> {
        // It is cordoned for as long as its drain runs, so that nothing comes there.
        if let Some(drain) = self.state.drain_of(name).filter(|_| !cordoned) {
            return Err(host_is_drained(name, drain.id));
        }
        self.change_host(name, |host| match cordoned {
            true => host.cordon(None),
            false => host.uncordon(),
        })
    }

    pub(super) fn change_host(
        &mut self,
        name: &HostName,
        change: impl FnOnce(&mut Host),
    ) -> Result<Reply, Refusal> {
        let view = self.state.host(name);
        let old = &view.ok_or_else(|| Refusal::not_found("host", name))?.host;
        let mut host = (**old).clone();
        change(&mut host);
        if host == **old {
            return Ok(Reply::Host(old.clone()));
        }
        host.generation = host.generation.next();
        Ok(Reply::Host(self.put_host(host)))
    }

    /// Returns how an operator has a claim of a VM on a host released.
    fn how_to_release(&self, claim: &Claim, host: &Host) -> String {
        let vm = &claim.vm;
        let known = self.state.vm(vm);
        let leave = self.state.how_vms_leave(host);
        match known.filter(|known| known.state == vm::State::Resized) {
            Some(known) if known.host.as_ref() == Some(&host.name) => {
                format!("`berth vm confirm-resize {vm}` ends its resize; then: {leave}")
            }
            Some(_) => format!("`berth vm confirm-resize {vm}` releases the claim"),
            None => leave,
        }
    }

    pub(super) fn forget_host(&mut self, name: &HostName) -> Result<Reply, Refusal> {
        let view = self.state.host(name);
        let host = view.ok_or_else(|| Refusal::not_found("host", name))?;
        if let Some(drain) = self.state.drain_of(name) {
            return Err(host_is_drained(name, drain.id));
        }
        let host = host.host.clone();
        let provider = host.provider;
        let claims = self.state.claims_of_host(name);
        let (lost, claims): (Vec<_>, Vec<_>) = claims.partition(|claim| claim.is_written_off());
        let lost: Vec<_> = lost.iter().map(|claim| claim.id).collect();
        if let Some(claim) = claims.iter().find(|claim| !claim.is_in_use()) {
            return Err(precondition(
                "HOST_IN_USE",
                format!(
                    "pmem namespaces of host {name} are not erased yet, among them one that vm {} had",
                    claim.vm
                ),
            )
            .with_hint(
                "wait until its agent has erased them; berth host show says how far it is; those that \
                 are lost for good can be written off: berth host pmem write-off",
            )
            .with("host", name));
        }
        if let Some(claim) = claims.first() {
            return Err(precondition(
                "HOST_IN_USE",
                format!(
                    "host {name} is held by claims, among them one of vm {}",
                    claim.vm
                ),
            )
            .with_hint(self.how_to_release(claim, &host))
            .with("host", name)
            .with("vm", &claim.vm));
        }
        self.examine_volumes_gone(name)?;
        let is_clients = |child: &&Arc<ResourceProvider>| !child.is_reported();
        if let Some(child) = self.state.children_of(provider).find(is_clients) {
            return Err(precondition(
                "HOST_IN_USE",
                format!("resource provider {} is below host {name}", child.name),
            )
            .with("host", name)
            .with("provider", child.id));
        }
        for claim in lost {
            self.remove_claim(claim);
        }
        self.drop_regions(&host);
        self.leave_aggregates(name);
        self.leave_policy(name);
        self.drop_copies_of(name);
        self.remove_host(name);
        self.remove_provider(provider);
        Ok(Reply::None)
    }
}

/// Refuses regions of equal names, too many of them, and one without a step of sizes.
fn examine_regions(name: &HostName, report: &HostReport) -> Result<(), Refusal> {
    let names: BTreeSet<_> = report.regions.iter().map(|region| &region.name).collect();
    let is_good = names.len() == report.regions.len()
        && names.len() <= REGIONS_MAX
        && report.regions.iter().all(|region| region.align_bytes > 0);
    if is_good {
        return Ok(());
    }
    Err(invalid(
        "INVALID_HOST_REPORT",
        format!(
            "host {name} reports more than {REGIONS_MAX} regions, two of one name, or one with sizes \
             in steps of 0"
        ),
    )
    .with("host", name))
}

/// Returns the names of VMs, of many only the first.
fn named(vms: &BTreeSet<&VmName>) -> String {
    let names: Vec<&str> = vms.iter().take(NAMED_MAX).map(|vm| vm.as_str()).collect();
    let more = vms.len() - names.len();
    let and_more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("{}{and_more}", names.join(", "))
}
