//! The state: every table, the indexes that follow from them, and the look-ups.
//!
//! It does not change anything: see [`crate::apply`]. What must hold of it is in [`crate::check`].
//!
//! Invariant: made of persistent maps, so that a clone costs a few pointers and a reader keeps a
//! frozen version while the original goes on.

use std::ops::Bound;
use std::sync::Arc;

use berth_domain::aggregate::Aggregate;
use berth_domain::allocation::{Consumer, Resources};
use berth_domain::audit::Entry;
use berth_domain::claim::{Claim, Owner};
use berth_domain::flavor::Flavor;
use berth_domain::host_rule::HostRule;
use berth_domain::host_view::HostView;
use berth_domain::id::{
    AggregateId, ClaimId, ClusterId, ConsumerId, MigrationId, OperationId, ProviderId, TimeMs,
};
use berth_domain::image::{Image, ImageFile};
use berth_domain::memory::{MemoryVerdict, Taken};
use berth_domain::migration::{self, Migration};
use berth_domain::name::{
    AggregateName, FlavorName, HostName, ImageName, NetworkName, PciAliasName, ServerGroupName,
    ServiceName, VmName, VolumeId,
};
use berth_domain::network::Network;
use berth_domain::operation::Operation;
use berth_domain::pci::PciAlias;
use berth_domain::policy::SchedulingPolicy;
use berth_domain::policy::cpu::EffectiveCpu;
use berth_domain::policy::memory::EffectiveMemory;
use berth_domain::provider::ResourceProvider;
use berth_domain::recovery::{RecoveredHost, SettledVm};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::resource::{Custom, ResourceClass, Trait};
use berth_domain::revocation::{Fingerprint, RevokedCertificate};
use berth_domain::server_group::ServerGroup;
use berth_domain::service::Service;
use berth_domain::vm::{Nic, Vm};
use berth_domain::volume::Volume;
use imbl::{OrdMap, OrdSet};
use uuid::Uuid;

use crate::header::Header;
use crate::request::{Request, RequestName};

/// The replicated state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub(crate) header: Header,
    pub(crate) hosts: OrdMap<HostName, Arc<HostView>>,
    pub(crate) providers: OrdMap<ProviderId, Arc<ResourceProvider>>,
    pub(crate) consumers: OrdMap<ConsumerId, Arc<Consumer>>,
    pub(crate) flavors: OrdMap<FlavorName, Arc<Flavor>>,
    pub(crate) services: OrdMap<ServiceName, Arc<Service>>,
    pub(crate) vms: OrdMap<VmName, Arc<Vm>>,
    pub(crate) claims: OrdMap<ClaimId, Arc<Claim>>,
    pub(crate) migrations: OrdMap<MigrationId, Arc<Migration>>,
    pub(crate) operations: OrdMap<OperationId, Arc<Operation>>,
    pub(crate) requests: OrdMap<Arc<RequestName>, Arc<Request>>,
    pub(crate) classes: OrdMap<ResourceClass, Arc<Custom<ResourceClass>>>,
    pub(crate) traits: OrdMap<Trait, Arc<Custom<Trait>>>,
    pub(crate) server_groups: OrdMap<ServerGroupName, Arc<ServerGroup>>,
    pub(crate) aggregates: OrdMap<AggregateName, Arc<Aggregate>>,
    /// A row only once something was set.
    pub(crate) policy: Arc<SchedulingPolicy>,
    pub(crate) pci_aliases: OrdMap<PciAliasName, Arc<PciAlias>>,
    pub(crate) images: OrdMap<ImageName, Arc<Image>>,
    pub(crate) networks: OrdMap<NetworkName, Arc<Network>>,
    /// By revision, which is also the order in which they are forgotten.
    pub(crate) audit: OrdMap<u64, Arc<Entry>>,
    pub(crate) volumes: OrdMap<VolumeId, Arc<Volume>>,
    pub(crate) revoked_certificates: OrdMap<Fingerprint, Arc<RevokedCertificate>>,
    /// Only while the cluster recovers.
    pub(crate) recovered_hosts: OrdMap<HostName, Arc<RecoveredHost>>,
    /// Of the latest recovery, once it has ended.
    pub(crate) settled_vms: OrdMap<u32, Arc<SettledVm>>,
    pub(crate) index: Index,
}

/// What follows from the tables and is kept beside them, so that nothing is searched for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    /// Claims by their host.
    pub(crate) host_claims: OrdSet<(HostName, ClaimId)>,
    /// Claims by their VM.
    pub(crate) vm_claims: OrdSet<(VmName, ClaimId)>,
    /// VMs by their server group; groups without any are left out.
    pub(crate) group_vms: OrdMap<ServerGroupName, OrdSet<VmName>>,
    /// How many claims the members of a server group have on each host; hosts and groups without
    /// any are left out.
    pub(crate) group_hosts: OrdMap<ServerGroupName, OrdMap<HostName, u32>>,
    /// Aggregates by their hosts; hosts without any are left out.
    pub(crate) host_aggregates: OrdMap<HostName, OrdSet<AggregateName>>,
    /// VMs by their project; projects without any are left out.
    pub(crate) project_vms: OrdMap<Arc<str>, OrdSet<VmName>>,
    /// VMs whose guests were found not to run although they should.
    pub(crate) troubled: OrdSet<VmName>,
    /// VMs by the MAC addresses of their interfaces.
    pub(crate) macs: OrdMap<Arc<str>, VmName>,
    /// VMs by the volumes that they have.
    pub(crate) volume_vms: OrdMap<VolumeId, VmName>,
    /// VMs by the images of the cluster that they have; images without any are left out.
    pub(crate) image_vms: OrdMap<ImageFile, OrdSet<VmName>>,
    /// VMs by the networks that they are on; networks without any are left out.
    pub(crate) network_vms: OrdMap<NetworkName, OrdSet<VmName>>,
    /// Providers by their name.
    pub(crate) provider_names: OrdMap<Arc<str>, ProviderId>,
    /// Providers by the one above them.
    pub(crate) children: OrdSet<(ProviderId, ProviderId)>,
    /// Providers, roots included, by the root of their tree.
    pub(crate) trees: OrdSet<(ProviderId, ProviderId)>,
    /// Providers by the custom resource classes that they have. Nearly every provider has the
    /// standard ones, so that an index of these would cost much and tell little.
    pub(crate) class_providers: OrdSet<(ResourceClass, ProviderId)>,
    /// Providers by their traits.
    pub(crate) trait_providers: OrdSet<(Trait, ProviderId)>,
    /// Providers by their aggregates.
    pub(crate) aggregate_providers: OrdSet<(AggregateId, ProviderId)>,
    /// Consumers by their project.
    pub(crate) project_consumers: OrdSet<(Arc<str>, ConsumerId)>,
    /// Consumers by what they take from.
    pub(crate) provider_consumers: OrdSet<(ProviderId, ConsumerId)>,
    /// What consumers take from each client's provider; absent where they take nothing.
    pub(crate) provider_used: OrdMap<ProviderId, Arc<Resources>>,
    /// Operations that are not done.
    pub(crate) running: OrdSet<OperationId>,
    /// Operations that are done, in the order in which they are forgotten.
    pub(crate) done: OrdSet<(TimeMs, OperationId)>,
    /// Migrations that have ended, in the order in which they are forgotten.
    pub(crate) ended: OrdSet<(TimeMs, MigrationId)>,
    /// Remembered requests, in the order in which they are forgotten.
    pub(crate) remembered: OrdMap<u64, Arc<RequestName>>,
    /// The requests in [`Self::remembered`] whose outcomes weigh something.
    pub(crate) outcomes: OrdSet<u64>,
    /// What these outcomes weigh together.
    pub(crate) outcomes_weight: u64,
    /// Volumes by their hosts.
    pub(crate) host_volumes: OrdSet<(HostName, VolumeId)>,
    /// Volumes that are not being deleted, by what people call them.
    pub(crate) volume_names: OrdMap<Arc<str>, VolumeId>,
    /// Volumes by the consumers that take what they take.
    pub(crate) volume_consumers: OrdMap<ConsumerId, VolumeId>,
    /// Hosts by the UUIDs of their orphans.
    pub(crate) orphans: OrdSet<(Uuid, HostName)>,
    /// Hosts on which no guest runs, although they do not report.
    pub(crate) dead: OrdSet<HostName>,
    /// Other hosts that have reported in a recovery, by the revision at which they were quiet.
    pub(crate) quiet: OrdSet<(u64, HostName)>,
}

macro_rules! table {
    ($one:ident, $all:ident, $key:ty, $row:ty, $what:literal) => {
        #[doc = concat!("Returns the ", $what, ", if there is one.")]
        #[must_use]
        pub fn $one(&self, key: $key) -> Option<&Arc<$row>> {
            self.$all.get(&key)
        }
    };
    ($one:ident, $all:ident, ref $key:ty, $row:ty, $what:literal) => {
        #[doc = concat!("Returns the ", $what, ", if there is one.")]
        #[must_use]
        pub fn $one(&self, key: &$key) -> Option<&Arc<$row>> {
            self.$all.get(key)
        }
    };
}

impl State {
    /// Returns the state before the first command.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns what is known of the cluster as a whole.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the cluster, once it was bootstrapped.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.header.cluster
    }

    /// Returns replicated time.
    #[must_use]
    pub fn time(&self) -> TimeMs {
        self.header.time
    }

    /// Returns the log index of the latest command.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.header.revision
    }

    table!(
        host,
        hosts,
        ref HostName,
        HostView,
        "host with what is taken of it"
    );
    table!(
        provider,
        providers,
        ProviderId,
        ResourceProvider,
        "resource provider"
    );
    table!(
        consumer,
        consumers,
        ConsumerId,
        Consumer,
        "consumer that is not a claim"
    );
    table!(
        class,
        classes,
        ref ResourceClass,
        Custom<ResourceClass>,
        "custom resource class"
    );
    table!(
        custom_trait,
        traits,
        ref Trait,
        Custom<Trait>,
        "custom trait"
    );
    table!(
        server_group,
        server_groups,
        ref ServerGroupName,
        ServerGroup,
        "server group"
    );
    table!(
        aggregate,
        aggregates,
        ref AggregateName,
        Aggregate,
        "aggregate of hosts"
    );
    table!(flavor, flavors, ref FlavorName, Flavor, "flavor");
    table!(
        pci_alias,
        pci_aliases,
        ref PciAliasName,
        PciAlias,
        "PCI alias"
    );
    table!(image, images, ref ImageName, Image, "image");
    table!(network, networks, ref NetworkName, Network, "network");
    table!(service, services, ref ServiceName, Service, "conductor");
    table!(vm, vms, ref VmName, Vm, "VM");
    table!(claim, claims, ClaimId, Claim, "claim");
    table!(migration, migrations, MigrationId, Migration, "migration");
    table!(operation, operations, OperationId, Operation, "operation");

    /// Returns what is preferred; the defaults where nothing was set.
    #[must_use]
    pub fn policy(&self) -> &Arc<SchedulingPolicy> {
        &self.policy
    }

    /// Returns what holds of the memory of a host, and who said so.
    #[must_use]
    pub fn memory_policy_of(&self, host: &HostName) -> EffectiveMemory {
        let names = self.index.host_aggregates.get(host);
        self.policy.memory.of(host, names.into_iter().flatten())
    }

    /// Returns what holds of the shared CPUs of a host, and who said so.
    #[must_use]
    pub fn cpu_policy_of(&self, host: &HostName) -> EffectiveCpu {
        let names = self.index.host_aggregates.get(host);
        self.policy.cpu.of(host, names.into_iter().flatten())
    }

    /// Returns what of a host may be given away.
    #[must_use]
    pub fn rule_of(&self, host: &HostName) -> HostRule {
        HostRule {
            memory: self.memory_policy_of(host).rule,
            cpu: self.cpu_policy_of(host).rule,
        }
    }

    /// Judges the memory of a host: what it holds more than it may, and because of what. It looks at
    /// every claim of the host.
    #[must_use]
    pub fn memory_verdict(&self, view: &HostView) -> MemoryVerdict {
        let topology = &view.host.report.topology;
        let mut running = Taken::default();
        for claim in self.claims_of_host(&view.host.name) {
            let vm = self.vms.get(&claim.vm).filter(|_| claim.is_active());
            if vm.is_some_and(|vm| vm.state.may_run()) {
                running.add(view.memory_of(claim));
            }
        }
        for guest in view.holders() {
            running.add(Taken::by_cells(topology, &guest.held));
        }
        MemoryVerdict::new(view.books(), running, 0)
    }

    /// Returns all hosts.
    #[must_use]
    pub fn hosts(&self) -> &OrdMap<HostName, Arc<HostView>> {
        &self.hosts
    }

    /// Returns all resource providers, the roots of hosts among them.
    #[must_use]
    pub fn providers(&self) -> &OrdMap<ProviderId, Arc<ResourceProvider>> {
        &self.providers
    }

    /// Returns all consumers that are not claims.
    #[must_use]
    pub fn consumers(&self) -> &OrdMap<ConsumerId, Arc<Consumer>> {
        &self.consumers
    }

    /// Returns all flavors.
    #[must_use]
    pub fn flavors(&self) -> &OrdMap<FlavorName, Arc<Flavor>> {
        &self.flavors
    }

    /// Returns the networks by their names.
    #[must_use]
    pub fn networks(&self) -> &OrdMap<NetworkName, Arc<Network>> {
        &self.networks
    }

    /// Returns all PCI aliases.
    #[must_use]
    pub fn pci_aliases(&self) -> &OrdMap<PciAliasName, Arc<PciAlias>> {
        &self.pci_aliases
    }

    /// Returns all images.
    #[must_use]
    pub fn images(&self) -> &OrdMap<ImageName, Arc<Image>> {
        &self.images
    }

    /// Returns all revoked certificates.
    #[must_use]
    pub fn revoked_certificates(&self) -> &OrdMap<Fingerprint, Arc<RevokedCertificate>> {
        &self.revoked_certificates
    }

    /// Returns all server groups.
    #[must_use]
    pub fn server_groups(&self) -> &OrdMap<ServerGroupName, Arc<ServerGroup>> {
        &self.server_groups
    }

    /// Returns all aggregates of hosts.
    #[must_use]
    pub fn aggregates(&self) -> &OrdMap<AggregateName, Arc<Aggregate>> {
        &self.aggregates
    }

    /// Returns the aggregates that a host is in.
    pub fn aggregates_of(&self, host: &HostName) -> impl Iterator<Item = &Arc<Aggregate>> + '_ {
        let names = self.index.host_aggregates.get(host);
        let names = names.into_iter().flatten();
        names.filter_map(|name| self.aggregates.get(name))
    }

    /// Returns all conductors.
    #[must_use]
    pub fn services(&self) -> &OrdMap<ServiceName, Arc<Service>> {
        &self.services
    }

    /// Returns all VMs.
    #[must_use]
    pub fn vms(&self) -> &OrdMap<VmName, Arc<Vm>> {
        &self.vms
    }

    /// Returns all claims.
    #[must_use]
    pub fn claims(&self) -> &OrdMap<ClaimId, Arc<Claim>> {
        &self.claims
    }

    /// Returns all migrations that are remembered.
    #[must_use]
    pub fn migrations(&self) -> &OrdMap<MigrationId, Arc<Migration>> {
        &self.migrations
    }

    /// Returns how many requests are remembered, and what their outcomes weigh together, in bytes;
    /// see [`crate::request`].
    #[must_use]
    pub fn remembered(&self) -> (usize, u64) {
        (self.requests.len(), self.index.outcomes_weight)
    }

    /// Returns all operations that are remembered.
    #[must_use]
    pub fn operations(&self) -> &OrdMap<OperationId, Arc<Operation>> {
        &self.operations
    }

    /// Returns the audit, by revision: the latest requests.
    #[must_use]
    pub fn audit(&self) -> &OrdMap<u64, Arc<Entry>> {
        &self.audit
    }

    /// Returns the claims on this host.
    pub fn claims_of_host(&self, host: &HostName) -> impl Iterator<Item = &Arc<Claim>> + '_ {
        let (low, high) = (ClaimId(Uuid::nil()), ClaimId(Uuid::max()));
        self.index
            .host_claims
            .range((host.clone(), low)..=(host.clone(), high))
            .filter_map(|(_, claim)| self.claims.get(claim))
    }

    /// Returns how many claims there are on this host, without a look at any of them.
    #[must_use]
    pub fn claim_count_of_host(&self, host: &HostName) -> usize {
        let (low, high) = (ClaimId(Uuid::nil()), ClaimId(Uuid::max()));
        let claims = self
            .index
            .host_claims
            .range((host.clone(), low)..=(host.clone(), high));
        claims.count()
    }

    /// Returns the claims for this VM.
    pub fn claims_of_vm(&self, vm: &VmName) -> impl Iterator<Item = &Arc<Claim>> + '_ {
        let (low, high) = (ClaimId(Uuid::nil()), ClaimId(Uuid::max()));
        self.index
            .vm_claims
            .range((vm.clone(), low)..=(vm.clone(), high))
            .filter_map(|(_, claim)| self.claims.get(claim))
    }

    /// Returns the resize of this VM that is to be confirmed or reverted; its source keeps a claim for it.
    #[must_use]
    pub fn verified_resize(&self, vm: &VmName) -> Option<&Arc<Migration>> {
        let owners = self.claims_of_vm(vm).filter_map(|claim| match claim.owner {
            Owner::Migration(id) => Some(id),
            Owner::Vm => None,
        });
        let mut migrations = owners.filter_map(|id| self.migration(id));
        migrations.find(|migration| migration.state == migration::State::Verifying)
    }

    /// Returns the VM with an interface of this MAC address, if there is one.
    #[must_use]
    pub fn vm_with_mac(&self, mac: &str) -> Option<&VmName> {
        self.index.macs.get(mac)
    }

    /// Says whether these interfaces of a new VM have MAC addresses of their own. No two VMs of a
    /// cluster share one, since any two may come to be plugged into one network.
    ///
    /// # Errors
    ///
    /// The first address that another VM has.
    pub fn examine_macs(&self, nics: &[Nic]) -> Result<(), Refusal> {
        let taken = |nic: &Nic| Some((nic.mac.clone(), self.vm_with_mac(&nic.mac)?));
        let Some((mac, vm)) = nics.iter().find_map(taken) else {
            return Ok(());
        };
        Err(Refusal::new(
            Code::AlreadyExists,
            "MAC_IN_USE",
            format!("an interface of vm {vm} has MAC address {mac} already"),
        )
        .with_hint("leave the address out, and one that is free is chosen")
        .with("mac", mac)
        .with("vm", vm))
    }

    /// Returns the operations that are not done.
    pub fn running_operations(&self) -> impl Iterator<Item = &Arc<Operation>> + '_ {
        self.index
            .running
            .iter()
            .filter_map(|id| self.operations.get(id))
    }

    /// Returns the operations that are not done and come after this one, in the order of their ids.
    pub fn running_operations_after(
        &self,
        after: Option<OperationId>,
    ) -> impl Iterator<Item = &Arc<Operation>> + '_ {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let running = self.index.running.range((after, Bound::Unbounded));
        running.filter_map(|id| self.operations.get(id))
    }

    /// Returns how many operations are done and how many migrations have ended: the oldest are
    /// forgotten beyond [`DONE_MAX`](crate::apply::DONE_MAX) and
    /// [`ENDED_MAX`](crate::apply::ENDED_MAX).
    pub fn ended(&self) -> (usize, usize) {
        (self.index.done.len(), self.index.ended.len())
    }

    /// Returns the operations that another conductor may take over at `now`.
    pub fn expired_leases(&self, now: TimeMs) -> impl Iterator<Item = &Arc<Operation>> + '_ {
        self.running_operations()
            .filter(move |o| o.lease.as_ref().is_none_or(|l| l.expires_at <= now))
    }
}
