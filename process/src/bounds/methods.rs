//! Which method takes what besides a request.
//!
//! Invariant: every method whose response has no end of its own is here; a test compares with the
//! descriptors.

use super::table::Resource;

/// What last until their client ends them, or for as long as it says.
pub const WATCHES: &[&str] = &[
    "berth.agent.v1.ComputeAgentService/AttachConsole",
    "berth.agent.v1.ComputeAgentService/ReadConsole",
    "berth.agent.v1.ComputeAgentService/WaitTransfer",
    "berth.conductor.v1.ConductorService/AttachConsole",
    "berth.conductor.v1.ConductorService/DrainHost",
    "berth.conductor.v1.ConductorService/ReadConsole",
    "berth.conductor.v1.ConductorService/WatchMigration",
    "berth.event.v1.EventService/Watch",
    "berth.operation.v1.OperationService/WaitOperation",
    "berth.operation.v1.OperationService/WatchOperation",
    "berth.placement.v1.PlacementService/WatchResourceProviders",
    "grpc.health.v1.Health/Watch",
    "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// What computes on the whole cluster, or on the whole log, for seconds.
pub const PLANS: &[&str] = &[
    "berth.event.v1.EventService/GetHistory",
    "berth.planner.v1.PlannerService/GetCapacity",
    "berth.planner.v1.PlannerService/GetScore",
    "berth.planner.v1.PlannerService/PlanBalance",
    "berth.planner.v1.PlannerService/VerifyCluster",
];

/// What searches all hosts.
pub const SEARCHES: &[&str] = &[
    "berth.placement.v1.PlacementService/FindAllocationCandidates",
    "berth.scheduler.v1.MoveService/PlanDrain",
    "berth.volume.v1.VolumeService/FitVolumes",
    "berth.volume.v1.VolumeService/PlanVolumeRoom",
];

/// Whose clients send more than one message, for as long as they like.
pub const CLIENT_STREAMS: &[&str] = &[
    "berth.agent.v1.ComputeAgentService/AttachConsole",
    "berth.agent.v1.ComputeAgentService/PutImage",
    "berth.conductor.v1.ConductorService/AddImage",
    "berth.conductor.v1.ConductorService/AttachConsole",
    "berth.raft.v1.RaftService/Exchange",
    "berth.raft.v1.RaftService/InstallSnapshot",
    "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// Returns what a request of a method takes: a watch instead of a request, or something besides it.
#[must_use]
pub fn resources(method: &str) -> (Resource, Option<Resource>) {
    match method {
        method if WATCHES.contains(&method) => (Resource::Watches, None),
        method if PLANS.contains(&method) => (Resource::Requests, Some(Resource::Plans)),
        method if SEARCHES.contains(&method) => (Resource::Requests, Some(Resource::Searches)),
        _ => (Resource::Requests, None),
    }
}

/// Returns whether a client may send several messages.
#[must_use]
pub fn is_client_stream(method: &str) -> bool {
    CLIENT_STREAMS.contains(&method)
}

/// What members send each other: a batch of the log.
const FRAME_BYTES_MAX: u64 = 64 << 20;

/// What users type: far more than the servers of consoles accept.
const CONSOLE_BYTES_MAX: u64 = 64 << 10;

/// Returns the longest message of a method whose messages have a limit of their own.
#[must_use]
pub fn message_bytes_max(method: &str) -> Option<u64> {
    let is_of_members = method.starts_with("berth.raft.v1.");
    let is_console = method.ends_with("/AttachConsole");
    is_of_members
        .then_some(FRAME_BYTES_MAX)
        .or(is_console.then_some(CONSOLE_BYTES_MAX))
}
