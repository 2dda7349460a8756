//! The commands that the replicated log holds.
//!
//! Invariant: everything that is not a function of the state is inside: ids, time, the chosen
//! host and CPUs. Applying one command to equal states gives equal states, on every member.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::sync::Arc;

use berth_domain::aggregate::{Aggregate, AggregateChange};
pub use berth_domain::allocation::ConsumerUpdate;
use berth_domain::audit::RequestSummary;
use berth_domain::claim::{Claim, ErasureReport};
use berth_domain::fence;
use berth_domain::first_boot::FirstBoot;
use berth_domain::flavor::Flavor;
use berth_domain::grant::GrantSeed;
use berth_domain::host::{HostReport, Liveness};
use berth_domain::id::{
    AggregateId, ClusterId, ConsumerId, Epoch, Generation, ImageUid, Incarnation, MigrationId,
    OperationId, ProviderId, RequestId, TimeMs, VmUid,
};
use berth_domain::image::{Image, ImageContent};
use berth_domain::import::{ConsumerImport, ProviderImport};
use berth_domain::inventory::Inventory;
use berth_domain::name::{
    AggregateName, FlavorName, HostName, ImageName, NetworkName, PciAliasName, PmemName,
    ServerGroupName, ServiceName, VmName, VolumeId,
};
use berth_domain::network::Network;
use berth_domain::operation::{DrainSpec, Mark, PlannedPlace, Step};
pub use berth_domain::operation::{Effect, Kind, LeaseRequest};
use berth_domain::ownership::ProjectName;
use berth_domain::pci::PciAlias;
use berth_domain::policy::{MigrationPolicy, SchedulingPolicy};
use berth_domain::reality::Comparison;
use berth_domain::recovery::ReportedGuest;
use berth_domain::refusal::Refusal;
use berth_domain::resource::{ResourceClass, Trait};
use berth_domain::revocation::{Fingerprint, RevokedCertificate};
use berth_domain::server_group::ServerGroup;
use berth_domain::service::Service;
use berth_domain::version::ServiceVersion;
use berth_domain::vm::{Metadata, MetadataChange, RestartPolicy, VmSpec};
use berth_domain::volume::{Report, Volume};

/// The first part of what is written.
struct FirstPart(String);

impl fmt::Write for FirstPart {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if !self.0.is_empty() {
            return Err(fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}

/// A command with what surrounds every command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// When the leader proposed it, in replicated time: see the leader's clock.
    pub at: TimeMs,
    /// On whose behalf, as `unverified:127.0.0.1`.
    pub principal: String,
    /// Present where a client may retry: the first answer is given again.
    pub request: Option<RequestKey>,
    /// What the audit records of it; absent for what no client requested.
    pub audit: Option<Box<RequestSummary>>,
    /// What to do.
    pub command: Command,
}

/// Recognises the retry of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKey {
    /// The method, as `ScheduleVm`.
    pub method: String,
    /// The client's id of the request.
    pub id: RequestId,
    /// A hash of the request; the same id with another payload is refused.
    pub payload_hash: u128,
}

/// What one provider has after a reshape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderInventories {
    /// The generation that the client saw.
    pub generation: Generation,
    /// What it has from now on.
    pub inventories: BTreeMap<ResourceClass, Inventory>,
}

/// A VM in the plan of a drain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedVm {
    /// The VM.
    pub vm: VmName,
    /// Where it goes, if its host is dead.
    pub place: Option<PlannedPlace>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Names the cluster; the first command of its log.
    Bootstrap {
        /// The cluster.
        cluster: ClusterId,
    },
    /// Registers a host, or takes the new report of one that is known.
    RegisterHost {
        /// The host.
        host: HostName,
        /// The root provider that it gets if it is new.
        provider: ProviderId,
        /// What its agent reports.
        report: HostReport,
    },
    /// Notes that an agent was lost or is heard of again.
    SetLiveness {
        /// The host.
        host: HostName,
        /// What is known.
        liveness: Liveness,
    },
    /// Cordons a host or lifts it.
    SetCordon {
        /// The host.
        host: HostName,
        /// Whether nothing new is placed there.
        cordoned: bool,
    },
    /// Forgets a host that holds no claim.
    RemoveHost {
        /// The host.
        host: HostName,
    },
    /// Registers a conductor.
    RegisterService(Service),
    /// Makes a flavor.
    CreateFlavor(Flavor),
    /// Deletes a flavor; VMs keep their copy.
    DeleteFlavor {
        /// The flavor.
        flavor: FlavorName,
    },
    /// Makes an aggregate of hosts.
    CreateAggregate(Aggregate),
    /// Changes hosts and metadata of an aggregate.
    UpdateAggregate {
        /// The aggregate.
        aggregate: AggregateName,
        /// What is changed.
        change: AggregateChange,
    },
    /// Deletes an aggregate without hosts.
    DeleteAggregate {
        /// The aggregate.
        aggregate: AggregateName,
    },
    /// Makes a server group.
    CreateServerGroup(ServerGroup),
    /// Deletes a server group without members.
    DeleteServerGroup {
        /// The group.
        group: ServerGroupName,
    },
    /// Replaces what is preferred; its generation is the one that it replaces.
    SetPolicy(SchedulingPolicy),
    /// Makes a PCI alias.
    CreatePciAlias(PciAlias),
    /// Deletes a PCI alias; VMs keep their copies.
    DeletePciAlias {
        /// The alias.
        alias: PciAliasName,
    },
    /// Begins to add an image; it has neither content nor copies.
    CreateImage(Image),
    /// Records that the first host has all of an image.
    CompleteImage {
        /// Its name.
        image: ImageName,
        /// Which image.
        uid: ImageUid,
        /// What is in it.
        content: ImageContent,
        /// The host that has it.
        host: HostName,
    },
    /// Records whether a host has a copy of an image.
    SetImageCopy {
        /// Its name.
        image: ImageName,
        /// Which image.
        uid: ImageUid,
        /// The host.
        host: HostName,
        /// Whether it has a copy.
        present: bool,
    },
    /// Removes an image that no VM has.
    DeleteImage {
        /// Its name.
        image: ImageName,
        /// Which image; absent: whichever has the name.
        uid: Option<ImageUid>,
    },
    /// Creates a network.
    CreateNetwork(Network),
    /// Deletes a network that no VM is on.
    DeleteNetwork {
        /// The network.
        network: NetworkName,
    },
    /// Makes a client's resource provider.
    CreateProvider {
        /// Who it is.
        id: ProviderId,
        /// What people call it.
        name: String,
        /// The provider above it.
        parent: Option<ProviderId>,
    },
    /// Renames a client's resource provider or moves it, with all that is below it, below another.
    UpdateProvider {
        /// Who.
        id: ProviderId,
        /// What people call it from now on; absent: as before.
        name: Option<String>,
        /// The provider above it from now on, none making it a root; absent: as before.
        parent: Option<Option<ProviderId>>,
        /// Whether one that is below another may leave it.
        reparent: bool,
    },
    /// Deletes a client's resource provider without children and allocations.
    DeleteProvider {
        /// Who.
        id: ProviderId,
    },
    /// Replaces all inventories of a client's provider.
    SetInventories {
        /// Whose.
        provider: ProviderId,
        /// The generation that the client saw.
        generation: Generation,
        /// What it has from now on.
        inventories: BTreeMap<ResourceClass, Inventory>,
    },
    /// Adds or changes one inventory of a client's provider.
    PutInventory {
        /// Whose.
        provider: ProviderId,
        /// The generation that the client saw; absent: whatever it is.
        generation: Option<Generation>,
        /// Of what.
        class: ResourceClass,
        /// What it has of it from now on.
        inventory: Inventory,
        /// Whether it must have none of the class before; otherwise it must have some.
        create: bool,
    },
    /// Takes one inventory from a client's provider.
    DeleteInventory {
        /// Whose.
        provider: ProviderId,
        /// Of what.
        class: ResourceClass,
    },
    /// Takes all inventories from a client's provider.
    DeleteInventories {
        /// Whose.
        provider: ProviderId,
    },
    /// Replaces all traits of a client's provider.
    SetTraits {
        /// Whose.
        provider: ProviderId,
        /// The generation that the client saw.
        generation: Generation,
        /// Which it has from now on.
        traits: BTreeSet<Trait>,
    },
    /// Takes all traits from a client's provider.
    DeleteTraits {
        /// Whose.
        provider: ProviderId,
    },
    /// Replaces the aggregates of a client's provider.
    SetAggregates {
        /// Whose.
        provider: ProviderId,
        /// The generation that the client saw; absent: neither is it compared, nor does it change.
        generation: Option<Generation>,
        /// To which it belongs from now on.
        aggregates: BTreeSet<AggregateId>,
    },
    /// Replaces the allocations of consumers, all or none.
    SetAllocations {
        /// The consumers.
        consumers: Vec<ConsumerUpdate>,
    },
    /// Takes everything from a consumer.
    DeleteAllocations {
        /// Whose.
        consumer: ConsumerId,
    },
    /// Replaces inventories and allocations together, all or none.
    Reshape {
        /// What the providers have afterwards.
        inventories: BTreeMap<ProviderId, ProviderInventories>,
        /// The consumers.
        consumers: Vec<ConsumerUpdate>,
    },
    /// Carries out several writes of counted placement in their order, all or none.
    Batch {
        /// The writes; what is no such write is refused.
        writes: Vec<Command>,
    },
    /// Makes a custom resource class, unless it is there.
    CreateClass {
        /// Its name.
        class: ResourceClass,
    },
    /// Renames a custom resource class, wherever it is used.
    RenameClass {
        /// Its name so far.
        from: ResourceClass,
        /// Its name from now on.
        to: ResourceClass,
    },
    /// Deletes a custom resource class that no provider has.
    DeleteClass {
        /// Its name.
        class: ResourceClass,
    },
    /// Makes a custom trait, unless it is there.
    CreateTrait {
        /// Its name.
        name: Trait,
    },
    /// Deletes a custom trait that no provider has.
    DeleteTrait {
        /// Its name.
        name: Trait,
    },
    /// Takes providers over from another Placement, all or none.
    ImportProviders {
        /// The name of the other Placement.
        source: String,
        /// The providers, parents before what is below them.
        providers: Vec<ProviderImport>,
    },
    /// Takes consumers over from another Placement, all or none.
    ImportConsumers {
        /// The name of the other Placement.
        source: String,
        /// The consumers.
        consumers: Vec<ConsumerImport>,
    },
    /// Makes a VM together with its claim and the operation that boots it.
    BeginBoot {
        /// The operation.
        operation: OperationId,
        /// The VM's name.
        vm: VmName,
        /// This life of it.
        uid: VmUid,
        /// What the user requested.
        spec: Box<VmSpec>,
        /// The host that the user named, if any.
        requested_host: Option<HostName>,
        /// What was chosen, HELD.
        claim: Claim,
        /// Who carries it out.
        lease: LeaseRequest,
        /// The project that the VM belongs to; absent: the default one.
        project: Option<ProjectName>,
        /// When it is started again by itself.
        restart: RestartPolicy,
        /// What the guest is given for its first boot, if its specification has a seed.
        first_boot: Option<Arc<FirstBoot>>,
        /// What its operator writes on it.
        metadata: Metadata,
    },
    /// Changes what operators write on a VM.
    UpdateVm {
        /// The VM.
        vm: VmName,
        /// What changes.
        change: MetadataChange,
    },
    /// Sets when a VM is started again by itself.
    SetRestartPolicy {
        /// The VM.
        vm: VmName,
        /// When.
        policy: RestartPolicy,
    },
    /// Records that a user types on the console of a guest. Only the audit has it.
    OpenConsole {
        /// The VM.
        vm: VmName,
        /// Who types for the user.
        conductor: ServiceName,
        /// Whether a session of another user is ended for it.
        take_over: bool,
    },
    /// Begins a migration together with its claim on the destination.
    BeginMigration {
        /// The operation.
        operation: OperationId,
        /// The attempt.
        migration: MigrationId,
        /// The VM.
        vm: VmName,
        /// The host that the user named, if any.
        requested_host: Option<HostName>,
        /// What was chosen on the destination, HELD.
        claim: Claim,
        /// Who carries it out.
        lease: LeaseRequest,
        /// How the guest is moved.
        policy: MigrationPolicy,
    },
    /// Begins to drain a host, which is cordoned.
    BeginDrain {
        /// The operation.
        operation: OperationId,
        /// The host.
        host: HostName,
        /// How its VMs are moved.
        spec: DrainSpec,
        /// Who requested it.
        by: String,
        /// Its VMs in the order in which they are moved.
        plan: Vec<PlannedVm>,
        /// Who carries it out.
        lease: LeaseRequest,
    },
    /// Begins the move of a VM of a host that is drained, and records it there.
    MoveDrained {
        /// The drain.
        drain: OperationId,
        /// The lease under which it is requested.
        epoch: Epoch,
        /// The move: [`Command::BeginMigration`] or [`Command::BeginMove`].
        begin: Box<Command>,
    },
    /// Records what became of a VM of a host that is drained.
    RecordDrained {
        /// The drain.
        drain: OperationId,
        /// The lease under which it is recorded.
        epoch: Epoch,
        /// The VM.
        vm: VmName,
        /// Why its move was refused; absent: its move has ended.
        refusal: Option<Refusal>,
    },
    /// Begins a deletion. A VM that holds nothing is gone at once.
    BeginDelete {
        /// The operation.
        operation: OperationId,
        /// The VM.
        vm: VmName,
        /// Who carries it out.
        lease: LeaseRequest,
    },
    /// Begins an operation on the VM's own host, on the claim that it has.
    BeginPower {
        /// The operation.
        operation: OperationId,
        /// The VM.
        vm: VmName,
        /// What it is about: one that [`Kind::is_power`].
        kind: Kind,
        /// Who carries it out.
        lease: LeaseRequest,
        /// Whether no user requested it, but the restart policy of the VM. Where its restarts are
        /// used up nothing begins, and the VM is STOPPED.
        by_policy: bool,
    },
    /// Begins a cold migration, a resize or an evacuation, with its claim on the destination.
    BeginMove {
        /// The operation.
        operation: OperationId,
        /// The attempt.
        migration: MigrationId,
        /// The VM.
        vm: VmName,
        /// What the user requests from now on, where it changes.
        spec: Option<Box<VmSpec>>,
        /// The host that the user named, if any.
        requested_host: Option<HostName>,
        /// Whether it waits to be confirmed or reverted.
        verify: bool,
        /// Whether the VM's host is dead, and it is started elsewhere.
        evacuate: bool,
        /// What was chosen on the destination, HELD.
        claim: Claim,
        /// Who carries it out.
        lease: LeaseRequest,
    },
    /// Keeps what a cold migration brought: what the VM had before is released.
    ConfirmResize {
        /// The VM.
        vm: VmName,
        /// The operation that deletes the disks on the source where there are any, and who carries it
        /// out. Without, such a migration is not confirmed.
        deleter: Option<(OperationId, LeaseRequest)>,
    },
    /// Begins to take a cold migration back.
    BeginRevertResize {
        /// The operation.
        operation: OperationId,
        /// The VM.
        vm: VmName,
        /// Who carries it out.
        lease: LeaseRequest,
    },
    /// Begins to shelve a VM.
    BeginShelve {
        /// The operation.
        operation: OperationId,
        /// The VM.
        vm: VmName,
        /// Who carries it out.
        lease: LeaseRequest,
    },
    /// Begins to start a shelved VM on a host that was chosen for it.
    BeginUnshelve {
        /// The operation.
        operation: OperationId,
        /// The VM.
        vm: VmName,
        /// The host that the user named, if any.
        requested_host: Option<HostName>,
        /// What was chosen, HELD.
        claim: Claim,
        /// Who carries it out.
        lease: LeaseRequest,
    },
    /// Takes an operation whose lease ran out, or which is one's own already.
    TakeLease {
        /// The operation.
        operation: OperationId,
        /// Who takes it.
        lease: LeaseRequest,
    },
    /// Prolongs leases that are still held; the others are left alone.
    RenewLeases {
        /// The holder.
        conductor: ServiceName,
        /// Which, with the epoch of each.
        leases: Vec<(OperationId, Epoch)>,
        /// For how long from now.
        ttl_ms: u64,
    },
    /// Asks for an operation to be given up, or its transfer to be stopped.
    CancelOperation {
        /// The operation.
        operation: OperationId,
    },
    /// Logs a step of an operation and does what the step means, in one.
    Advance {
        /// The operation.
        operation: OperationId,
        /// The lease under which it is done.
        epoch: Epoch,
        /// The step.
        step: Step,
        /// What happened to it.
        mark: Mark,
        /// What it means for the state.
        effect: Effect,
    },
    /// Records that a host was fenced.
    FenceHost {
        /// The host.
        host: HostName,
        /// Whose word it is.
        method: fence::Method,
        /// On whose behalf.
        by: String,
        /// What the fence command printed.
        output: String,
        /// The run of the host's agent that it is about.
        incarnation: Incarnation,
    },
    /// Asks for the transfer of a live migration to be ended soon.
    ForceComplete {
        /// The operation.
        operation: OperationId,
    },
    /// Takes what an agent found to differ from what was expected.
    NoteReality {
        /// The host.
        host: HostName,
        /// The run of its agent.
        incarnation: Incarnation,
        /// What it found.
        comparison: Comparison,
    },
    /// Takes what guests a host has, while the cluster recovers.
    ReportGuests {
        /// The host.
        host: HostName,
        /// The run of its agent.
        incarnation: Incarnation,
        /// The revision of the state that its agent read before it listed them.
        basis: u64,
        /// All guests there that Berth made.
        guests: Vec<ReportedGuest>,
    },
    /// Ends the recovery: settles where guests are and which run, as their hosts have reported.
    EndRecovery {
        /// Whether conflicts are left to the operator.
        accept_conflicts: bool,
    },
    /// Takes what an agent says of the namespaces of persistent memory that it is to erase.
    NoteErasures {
        /// The host.
        host: HostName,
        /// The run of its agent.
        incarnation: Incarnation,
        /// How far it is with each.
        reports: Vec<ErasureReport>,
    },
    /// Says that a namespace of persistent memory is lost for good.
    WriteOffPmem {
        /// The host.
        host: HostName,
        /// The namespace.
        namespace: PmemName,
    },
    /// Makes a volume together with what it takes, unless one of its name is there that will do.
    CreateVolume {
        /// The volume, with its id and where it goes.
        volume: Box<Volume>,
        /// How much of it may be usable at most, in bytes; 0: no limit.
        limit_bytes: u64,
    },
    /// Has a volume removed.
    DeleteVolume {
        /// Which.
        volume: VolumeId,
        /// Only if it still has this generation; nothing: whatever it has.
        generation: Option<Generation>,
        /// Forgets instead what is left of it on hosts that are none of the cluster's any more.
        forget: bool,
    },
    /// Takes what an agent says of the volumes of its host.
    NoteVolumes {
        /// The host.
        host: HostName,
        /// The run of its agent.
        incarnation: Incarnation,
        /// What it says.
        reports: Vec<Report>,
    },
    /// Raises the cluster version: from here on commands and rows may hold what it brought.
    FinalizeUpgrade {
        /// The version that every member knows from now on.
        version: ServiceVersion,
        /// Conductors that are forgotten with it: they are older, and gone.
        gone: BTreeSet<ServiceName>,
    },
    /// Replaces the key with which grants are signed, unless it was replaced meanwhile.
    ReplaceGrantKey {
        /// The number of the new key: one more than that of the present one.
        number: u32,
        /// The secret of the new key.
        seed: GrantSeed,
    },
    /// Revokes a certificate; when it is revoked is set by the state.
    RevokeCertificate(RevokedCertificate),
    /// Ends the revocation of a certificate.
    ReinstateCertificate {
        /// Which.
        fingerprint: Fingerprint,
    },
    /// Forgets a conductor.
    UnregisterService {
        /// Which.
        service: ServiceName,
    },
}

impl Command {
    /// Returns its name, as `BeginBoot`: what `Debug` writes before anything else.
    #[must_use]
    pub fn name(&self) -> String {
        let mut name = FirstPart(String::new());
        // It stops after the first part.
        let _ = write!(name, "{self:?}");
        name.0
    }

    /// Returns whether this is a write of counted placement, which can be one of a batch.
    #[must_use]
    pub fn is_placement_write(&self) -> bool {
        match self {
            Self::CreateProvider { .. }
            | Self::UpdateProvider { .. }
            | Self::DeleteProvider { .. }
            | Self::SetInventories { .. }
            | Self::PutInventory { .. }
            | Self::DeleteInventory { .. }
            | Self::DeleteInventories { .. }
            | Self::SetTraits { .. }
            | Self::DeleteTraits { .. }
            | Self::SetAggregates { .. }
            | Self::SetAllocations { .. }
            | Self::DeleteAllocations { .. }
            | Self::Reshape { .. }
            | Self::CreateClass { .. }
            | Self::DeleteClass { .. }
            | Self::CreateTrait { .. }
            | Self::DeleteTrait { .. } => true,
            // It is carried out wherever the class is used, however often that is.
            Self::RenameClass { .. }
            | Self::Batch { .. }
            | Self::ImportProviders { .. }
            | Self::ImportConsumers { .. }
            | Self::Bootstrap { .. }
            | Self::RegisterHost { .. }
            | Self::SetLiveness { .. }
            | Self::SetCordon { .. }
            | Self::RemoveHost { .. }
            | Self::RegisterService(_)
            | Self::CreateFlavor(_)
            | Self::DeleteFlavor { .. }
            | Self::CreateAggregate(_)
            | Self::UpdateAggregate { .. }
            | Self::DeleteAggregate { .. }
            | Self::CreateServerGroup(_)
            | Self::DeleteServerGroup { .. }
            | Self::SetPolicy(_)
            | Self::CreatePciAlias(_)
            | Self::DeletePciAlias { .. }
            | Self::CreateImage(_)
            | Self::CompleteImage { .. }
            | Self::SetImageCopy { .. }
            | Self::DeleteImage { .. }
            | Self::CreateNetwork(_)
            | Self::DeleteNetwork { .. }
            | Self::BeginBoot { .. }
            | Self::SetRestartPolicy { .. }
            | Self::OpenConsole { .. }
            | Self::UpdateVm { .. }
            | Self::BeginMigration { .. }
            | Self::BeginDrain { .. }
            | Self::MoveDrained { .. }
            | Self::RecordDrained { .. }
            | Self::BeginDelete { .. }
            | Self::BeginMove { .. }
            | Self::ConfirmResize { .. }
            | Self::BeginRevertResize { .. }
            | Self::BeginShelve { .. }
            | Self::BeginUnshelve { .. }
            | Self::BeginPower { .. }
            | Self::TakeLease { .. }
            | Self::RenewLeases { .. }
            | Self::CancelOperation { .. }
            | Self::Advance { .. }
            | Self::FenceHost { .. }
            | Self::ForceComplete { .. }
            | Self::NoteReality { .. }
            | Self::ReportGuests { .. }
            | Self::EndRecovery { .. }
            | Self::NoteErasures { .. }
            | Self::WriteOffPmem { .. }
            | Self::CreateVolume { .. }
            | Self::DeleteVolume { .. }
            | Self::NoteVolumes { .. }
            | Self::FinalizeUpgrade { .. }
            | Self::ReplaceGrantKey { .. }
            | Self::RevokeCertificate(_)
            | Self::ReinstateCertificate { .. }
            | Self::UnregisterService { .. } => false,
        }
    }
}
