//! The wire: Berth's protobuf packages and their conversions to the domain.
//!
//! | module | what |
//! |---|---|
//! | [`types`] | shared values: topologies, assignments, claims, flavors, refusals |
//! | [`host`], [`placement`], [`scheduler`], [`image`], [`policy`], [`planner`], [`volume`], [`operation`], [`event`], [`audit`], [`cluster`] | what a scheduler serves |
//! | [`conductor`] | what a conductor serves to users |
//! | [`agent`] | what a compute agent serves to conductors |
//! | [`log`] | what every program serves of its log |
//! | [`state`] | what is stored: commands and rows |
//! | [`convert`] | wire to domain and back |
//! | [`status`] | refusals as gRPC statuses |
//! | [`client`] | connections, and calls that find the leader |
//! | [`raw`] | messages as bytes, for calls without generated code |
//! | [`consistency`] | the consistency of reads, and what a stale answer is worth, in metadata |
//! | [`for_cluster`] | the cluster that a request is for, in metadata |
//! | [`filter`] | filters of lists, evaluated on the messages |
//! | [`mod@reference`] | the messages of the API with their comments |
//! | [`mod@format`] | which cluster version brought which part of what is stored |
//! | [`raft`] | what members of a scheduler group send each other |
//! | [`csi`] | the Container Storage Interface |
//!
//! Invariant: generated code stays in these modules, and nothing here knows a service's logic.

pub mod client;
pub mod consistency;
pub mod convert;
pub mod filter;
pub mod for_cluster;
pub mod format;
pub mod raw;
pub mod reference;
pub mod status;
mod wire;

// Generated code of one package finds another by its path below `berth`, which is this crate.
macro_rules! packages {
    ($($(#[$doc:meta])* $area:ident = $package:literal;)*) => {$(
        $(#[$doc])*
        pub mod $area {
            #[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
            #[allow(clippy::wildcard_enum_match_arm, rustdoc::all)]
            pub mod v1 {
                tonic::include_proto!($package);
            }
        }
    )*};
}

packages! {
    /// Shared values: `berth.type`.
    types = "berth.r#type.v1";
    /// Compute hosts: `berth.host`.
    host = "berth.host.v1";
    /// Counted resources: `berth.placement`.
    placement = "berth.placement.v1";
    /// Choosing, VMs, migrations, claims: `berth.scheduler`.
    scheduler = "berth.scheduler.v1";
    /// Images of the cluster: `berth.image`.
    image = "berth.image.v1";
    /// What operators prefer: `berth.policy`.
    policy = "berth.policy.v1";
    /// What would be survived, balanced, and what still fits: `berth.planner`.
    planner = "berth.planner.v1";
    /// Long operations: `berth.operation`.
    operation = "berth.operation.v1";
    /// What changes, as it changes: `berth.event`.
    event = "berth.event.v1";
    /// The audit: `berth.audit`.
    audit = "berth.audit.v1";
    /// What users call to boot, delete and move: `berth.conductor`.
    conductor = "berth.conductor.v1";
    /// Which log lines a program writes: `berth.log`.
    log = "berth.log.v1";
    /// What conductors call on each host: `berth.agent`.
    agent = "berth.agent.v1";
    /// The scheduler's Raft group and registered services: `berth.cluster`.
    cluster = "berth.cluster.v1";
    /// Stored commands and rows: `berth.state`.
    state = "berth.state.v1";
    /// Volumes of persistent memory: `berth.volume`.
    volume = "berth.volume.v1";
    /// What members of a scheduler group send each other: `berth.raft`.
    raft = "berth.raft.v1";
    /// The Container Storage Interface, which is not ours: `csi`.
    csi = "csi.v1";
}

// The package's own name is a keyword.
#[doc(hidden)]
pub use types as r#type;

/// The descriptors of all packages, for gRPC reflection.
pub const DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptor.bin"));
