//! The state as rows: what is kept of it, and what a command changed.
//!
//! Indexes, usages and host views are no rows: they follow from rows and are rebuilt.

use std::sync::Arc;

use berth_domain::aggregate::Aggregate;
use berth_domain::allocation::Consumer;
use berth_domain::audit::Entry;
use berth_domain::claim::Claim;
use berth_domain::flavor::Flavor;
use berth_domain::host::Host;
use berth_domain::id::{ClaimId, ConsumerId, MigrationId, OperationId, ProviderId};
use berth_domain::image::Image;
use berth_domain::migration::Migration;
use berth_domain::name::{
    AggregateName, FlavorName, HostName, ImageName, NetworkName, PciAliasName, ServerGroupName,
    ServiceName, VmName, VolumeId,
};
use berth_domain::network::Network;
use berth_domain::operation::Operation;
use berth_domain::pci::PciAlias;
use berth_domain::policy::SchedulingPolicy;
use berth_domain::provider::ResourceProvider;
use berth_domain::recovery::{RecoveredHost, SettledVm};
use berth_domain::resource::{Custom, ResourceClass, Trait};
use berth_domain::revocation::{Fingerprint, RevokedCertificate};
use berth_domain::server_group::ServerGroup;
use berth_domain::service::Service;
use berth_domain::vm::Vm;
use berth_domain::volume::Volume;

use crate::header::Header;
use crate::request::{Request, RequestName};

/// What names a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The one header.
    Header,
    /// A host.
    Host(HostName),
    /// A resource provider.
    Provider(ProviderId),
    /// A consumer that is not a claim.
    Consumer(ConsumerId),
    /// A flavor.
    Flavor(FlavorName),
    /// A conductor.
    Service(ServiceName),
    /// A VM.
    Vm(VmName),
    /// A claim.
    Claim(ClaimId),
    /// A migration.
    Migration(MigrationId),
    /// An operation.
    Operation(OperationId),
    /// A remembered request.
    Request(Arc<RequestName>),
    /// A resource class that a client created.
    Class(ResourceClass),
    /// A trait that a client created.
    Trait(Trait),
    /// The one scheduling policy.
    Policy,
    /// A PCI alias.
    PciAlias(PciAliasName),
    /// An image.
    Image(ImageName),
    /// A network.
    Network(NetworkName),
    /// A server group.
    ServerGroup(ServerGroupName),
    /// An aggregate of hosts.
    Aggregate(AggregateName),
    /// An entry of the audit, by its revision.
    Audit(u64),
    /// A volume.
    Volume(VolumeId),
    /// A revoked certificate.
    RevokedCertificate(Fingerprint),
    /// What a host reported during recovery.
    RecoveredHost(HostName),
    /// A VM that the latest recovery settled, by its number.
    SettledVm(u32),
}

/// One record of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "every other one is shared with the state"
)]
pub enum Row {
    /// The one header.
    Header(Header),
    /// A host.
    Host(Arc<Host>),
    /// A resource provider, a host's root among them.
    Provider(Arc<ResourceProvider>),
    /// A consumer that is not a claim.
    Consumer(Arc<Consumer>),
    /// A flavor.
    Flavor(Arc<Flavor>),
    /// A conductor.
    Service(Arc<Service>),
    /// A VM.
    Vm(Arc<Vm>),
    /// A claim.
    Claim(Arc<Claim>),
    /// A migration.
    Migration(Arc<Migration>),
    /// An operation.
    Operation(Arc<Operation>),
    /// A remembered request.
    Request(Arc<Request>),
    /// A resource class that a client created.
    Class(Arc<Custom<ResourceClass>>),
    /// A trait that a client created.
    Trait(Arc<Custom<Trait>>),
    /// The one scheduling policy, once something was set.
    Policy(Arc<SchedulingPolicy>),
    /// A PCI alias.
    PciAlias(Arc<PciAlias>),
    /// An image.
    Image(Arc<Image>),
    /// A network.
    Network(Arc<Network>),
    /// A server group.
    ServerGroup(Arc<ServerGroup>),
    /// An aggregate of hosts.
    Aggregate(Arc<Aggregate>),
    /// An entry of the audit.
    Audit(Arc<Entry>),
    /// A volume.
    Volume(Arc<Volume>),
    /// A revoked certificate.
    RevokedCertificate(Arc<RevokedCertificate>),
    /// What a host reported during recovery.
    RecoveredHost(Arc<RecoveredHost>),
    /// A VM that the latest recovery settled otherwise than it was recorded.
    SettledVm(Arc<SettledVm>),
}

impl Row {
    /// Returns what names this row.
    #[must_use]
    pub fn key(&self) -> Key {
        match self {
            Self::Header(_) => Key::Header,
            Self::Host(row) => Key::Host(row.name.clone()),
            Self::Provider(row) => Key::Provider(row.id),
            Self::Consumer(row) => Key::Consumer(row.id),
            Self::Flavor(row) => Key::Flavor(row.name.clone()),
            Self::Service(row) => Key::Service(row.name.clone()),
            Self::Vm(row) => Key::Vm(row.name.clone()),
            Self::Claim(row) => Key::Claim(row.id),
            Self::Migration(row) => Key::Migration(row.id),
            Self::Operation(row) => Key::Operation(row.id),
            Self::Request(row) => Key::Request(row.name.clone()),
            Self::Class(row) => Key::Class(row.name.clone()),
            Self::Trait(row) => Key::Trait(row.name.clone()),
            Self::Policy(_) => Key::Policy,
            Self::PciAlias(row) => Key::PciAlias(row.name.clone()),
            Self::Image(row) => Key::Image(row.name.clone()),
            Self::Network(row) => Key::Network(row.name.clone()),
            Self::Aggregate(row) => Key::Aggregate(row.name.clone()),
            Self::ServerGroup(row) => Key::ServerGroup(row.name.clone()),
            Self::Audit(row) => Key::Audit(row.revision),
            Self::Volume(row) => Key::Volume(row.id.clone()),
            Self::RevokedCertificate(row) => Key::RevokedCertificate(row.fingerprint),
            Self::RecoveredHost(row) => Key::RecoveredHost(row.host.clone()),
            Self::SettledVm(row) => Key::SettledVm(row.number),
        }
    }
}

/// What a command did to one row: its first and its last value around the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which row.
    pub key: Key,
    /// The row before; absent if there was none.
    pub old: Option<Row>,
    /// The row after; absent if it is gone.
    pub new: Option<Row>,
}
