//! What a command answers.
//!
//! A reply carries whole records, so that the caller of a command need not read again.

use std::sync::Arc;

use berth_domain::aggregate::Aggregate;
use berth_domain::allocation::Consumer;
use berth_domain::flavor::Flavor;
use berth_domain::host::Host;
use berth_domain::id::OperationId;
use berth_domain::image::Image;
use berth_domain::network::Network;
use berth_domain::operation::Operation;
use berth_domain::pci::PciAlias;
use berth_domain::policy::SchedulingPolicy;
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::Refusal;
use berth_domain::resource::{Custom, ResourceClass, Trait};
use berth_domain::server_group::ServerGroup;
use berth_domain::service::Service;
use berth_domain::volume::Volume;

use crate::row::Change;

/// What a command that was carried out answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It was done, and there is nothing to show for it.
    None,
    /// The host as it is now.
    Host(Arc<Host>),
    /// The conductor as it is registered now.
    Service(Arc<Service>),
    /// The flavor as it is now.
    Flavor(Arc<Flavor>),
    /// The PCI alias as it is now.
    PciAlias(Arc<PciAlias>),
    /// The provider as it is now.
    Provider(Arc<ResourceProvider>),
    /// The consumers that exist after the command, in the order of its updates.
    Consumers(Vec<Arc<Consumer>>),
    /// What the writes of a batch have written and that exists after it, each once.
    Batch {
        /// Providers that were made or changed by name, as they are now.
        providers: Vec<Arc<ResourceProvider>>,
        /// Consumers, as they are now.
        consumers: Vec<Arc<Consumer>>,
    },
    /// The custom resource class as it is now.
    Class {
        /// The class.
        class: Arc<Custom<ResourceClass>>,
        /// Whether it was there before.
        existed: bool,
    },
    /// The custom trait.
    Trait {
        /// The trait.
        custom: Arc<Custom<Trait>>,
        /// Whether it was there before.
        existed: bool,
    },
    /// The aggregate of hosts as it is now.
    Aggregate(Arc<Aggregate>),
    /// The server group as it is now.
    ServerGroup(Arc<ServerGroup>),
    /// What is preferred now.
    Policy(Arc<SchedulingPolicy>),
    /// The operation as it is now; its lease holds the epoch.
    Operation(Arc<Operation>),
    /// The operations of which the caller holds the lease.
    Leases(Vec<OperationId>),
    /// The image as it is now.
    Image(Arc<Image>),
    /// A network.
    Network(Arc<Network>),
    /// The volume as it is now.
    Volume(Arc<Volume>),
}

/// What applying a command gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The answer.
    pub outcome: Result<Reply, Refusal>,
    /// Every row that differs from before, each once.
    pub changes: Vec<Change>,
}
