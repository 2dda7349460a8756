//! The methods of a scheduler, which of them read, and a request for each read.

use berth_proto::audit::v1::*;
use berth_proto::cluster::v1::*;
use berth_proto::event::v1::*;
use berth_proto::host::v1::*;
use berth_proto::image::v1::*;
use berth_proto::operation::v1::*;
use berth_proto::placement::v1::*;
use berth_proto::planner::v1::*;
use berth_proto::policy::v1::*;
use berth_proto::scheduler::v1::*;
use berth_proto::volume::v1::*;
use prost::Message;
use prost_types::FileDescriptorSet;

use super::world::{CONSUMER, PROVIDER, World};

/// What a method does.
pub(super) enum Kind {
    Read,
    Write,
    /// About the member that responds, and so not the same at each.
    Own,
    Unknown,
}

/// The packages of other programs, and the transport between members.
const ELSEWHERE: [&str; 4] = ["berth.agent.", "berth.conductor.", "csi.", "berth.raft."];

const READS: [&str; 9] = [
    "Get", "List", "Find", "Plan", "Fit", "Verify", "Watch", "Wait", "Expect",
];

const WRITES: [&str; 43] = [
    "Add",
    "Advance",
    "Batch",
    "Begin",
    "Cancel",
    "Compare",
    "Complete",
    "Confirm",
    "Cordon",
    "Create",
    "Delete",
    "End",
    "Fence",
    "Finalize",
    "Force",
    "Grant",
    "Import",
    "Join",
    "Move",
    "Open",
    "Promote",
    "Put",
    "Record",
    "Register",
    "Remove",
    "Rename",
    "Renew",
    "Replace",
    "Report",
    "Reset",
    "Reshape",
    "Revert",
    "Reinstate",
    "Revoke",
    "Rotate",
    "Schedule",
    "Set",
    "Take",
    "Transfer",
    "Uncordon",
    "Unregister",
    "Update",
    "Write",
];

const OWN: [&str; 5] = [
    "/berth.cluster.v1.ClusterService/Backup",
    "/berth.cluster.v1.ClusterService/GetClusterStatus",
    "/berth.cluster.v1.ClusterService/GetDiagnostics",
    "/berth.cluster.v1.ClusterService/WaitLeader",
    "/berth.log.v1.LogService/GetLogLevel",
];

/// Returns the paths of all methods that a scheduler serves.
pub(super) fn methods() -> Vec<String> {
    let set = FileDescriptorSet::decode(berth_proto::DESCRIPTOR_SET).expect("descriptors");
    let mut paths = Vec::new();
    for file in &set.file {
        let package = file.package();
        let is_elsewhere = ELSEWHERE
            .iter()
            .any(|p| format!("{package}.").starts_with(p));
        if is_elsewhere || !(package.starts_with("berth.")) {
            continue;
        }
        for service in &file.service {
            let of = |method: &str| format!("/{package}.{}/{method}", service.name());
            paths.extend(service.method.iter().map(|method| of(method.name())));
        }
    }
    paths
}

/// Returns what the method of a path does, by its verb.
pub(super) fn kind(path: &str) -> Kind {
    let method = path.rsplit('/').next().expect("a method");
    let begins = |verbs: &[&str]| verbs.iter().any(|verb| method.starts_with(verb));
    if OWN.contains(&path) {
        Kind::Own
    } else if begins(&READS) {
        Kind::Read
    } else if begins(&WRITES) {
        Kind::Write
    } else {
        Kind::Unknown
    }
}

/// Returns whether a stream without an end has sent all that it has.
pub(super) fn is_last(path: &str, message: &[u8]) -> bool {
    match path.rsplit('/').next() {
        Some("Watch") => {
            let message = WatchResponse::decode(message).expect("a message");
            message.phase() == watch_response::Phase::InStep
        }
        Some("WatchResourceProviders") => {
            let message = WatchResourceProvidersResponse::decode(message).expect("a message");
            message.revision != 0
        }
        Some("WatchOperation") => true,
        _ => false,
    }
}

/// Returns a request for a read; none if it has no case.
pub(super) fn request(path: &str, world: &World) -> Option<Vec<u8>> {
    let text = str::to_owned;
    let bytes = match path.strip_prefix("/berth.")? {
        "audit.v1.AuditService/GetAuditEntry" => GetAuditEntryRequest {
            name: world.audit_entry.clone(),
            ..Default::default()
        }
        .encode_to_vec(),
        "audit.v1.AuditService/ListAuditEntries" => {
            ListAuditEntriesRequest::default().encode_to_vec()
        }
        "audit.v1.AuditService/ListRefusals" => ListRefusalsRequest::default().encode_to_vec(),
        "cluster.v1.ClusterService/ListServices" => ListServicesRequest::default().encode_to_vec(),
        "cluster.v1.ClusterService/GetRecovery" => GetRecoveryRequest::default().encode_to_vec(),
        "cluster.v1.ClusterService/ListRevokedCertificates" => {
            ListRevokedCertificatesRequest::default().encode_to_vec()
        }
        // Members joined at different revisions, before which their logs have nothing.
        "event.v1.EventService/GetHistory" => GetHistoryRequest {
            name: text("vms/a"),
            after_revision: world.joined_revision,
            ..Default::default()
        }
        .encode_to_vec(),
        "event.v1.EventService/Watch" => WatchRequest::default().encode_to_vec(),
        "host.v1.HostService/GetHost" => GetHostRequest {
            name: text("hosts/h1"),
            ..Default::default()
        }
        .encode_to_vec(),
        "host.v1.HostService/GetCpuBaseline" => GetCpuBaselineRequest::default().encode_to_vec(),
        "host.v1.HostService/ListHosts" => ListHostsRequest::default().encode_to_vec(),
        "host.v1.HostService/ListMemorySignals" => {
            ListMemorySignalsRequest::default().encode_to_vec()
        }
        "host.v1.HostService/VerifyFence" => VerifyFenceRequest {
            fence: Some(FenceHostRequest {
                name: text("hosts/h1"),
                method: fence::Method::FenceCommand.into(),
                ..Default::default()
            }),
        }
        .encode_to_vec(),
        "host.v1.HostService/ExpectDomains" => ExpectDomainsRequest {
            name: text("hosts/h1"),
        }
        .encode_to_vec(),
        "operation.v1.OperationService/GetOperation" => GetOperationRequest {
            name: world.operation.clone(),
            ..Default::default()
        }
        .encode_to_vec(),
        "operation.v1.OperationService/ListOperations" => {
            ListOperationsRequest::default().encode_to_vec()
        }
        "operation.v1.OperationService/WaitOperation" => WaitOperationRequest {
            name: world.operation.clone(),
            timeout: Some(prost_types::Duration {
                seconds: 0,
                nanos: 1_000_000,
            }),
        }
        .encode_to_vec(),
        "operation.v1.OperationService/WatchOperation" => WatchOperationRequest {
            name: world.operation.clone(),
        }
        .encode_to_vec(),
        "placement.v1.CatalogService/ListResourceClasses" => {
            ListResourceClassesRequest::default().encode_to_vec()
        }
        "placement.v1.CatalogService/ListTraits" => ListTraitsRequest::default().encode_to_vec(),
        "placement.v1.PlacementService/GetResourceProvider" => GetResourceProviderRequest {
            name: format!("resourceProviders/{PROVIDER}"),
            ..Default::default()
        }
        .encode_to_vec(),
        "placement.v1.PlacementService/ListResourceProviders" => {
            ListResourceProvidersRequest::default().encode_to_vec()
        }
        "placement.v1.PlacementService/GetAllocations" => GetAllocationsRequest {
            consumer: format!("consumers/{CONSUMER}"),
            ..Default::default()
        }
        .encode_to_vec(),
        "placement.v1.PlacementService/GetUsage" => GetUsageRequest {
            resource_provider: format!("resourceProviders/{PROVIDER}"),
            ..Default::default()
        }
        .encode_to_vec(),
        "placement.v1.PlacementService/ListConsumers" => {
            ListConsumersRequest::default().encode_to_vec()
        }
        "placement.v1.PlacementService/WatchResourceProviders" => {
            WatchResourceProvidersRequest::default().encode_to_vec()
        }
        "placement.v1.PlacementService/GetProjectUsage" => GetProjectUsageRequest {
            project: text("p"),
            ..Default::default()
        }
        .encode_to_vec(),
        "placement.v1.PlacementService/FindAllocationCandidates" => {
            FindAllocationCandidatesRequest {
                groups: vec![CandidateGroup {
                    resources: [(text("VCPU"), 1)].into(),
                    ..Default::default()
                }],
                ..Default::default()
            }
            .encode_to_vec()
        }
        "planner.v1.PlannerService/VerifyCluster" => {
            VerifyClusterRequest::default().encode_to_vec()
        }
        "planner.v1.PlannerService/GetScore" => GetScoreRequest::default().encode_to_vec(),
        "planner.v1.PlannerService/PlanBalance" => PlanBalanceRequest::default().encode_to_vec(),
        "planner.v1.PlannerService/GetCapacity" => GetCapacityRequest {
            flavor: text("flavors/small"),
            ..Default::default()
        }
        .encode_to_vec(),
        "policy.v1.AggregateService/GetAggregate" => GetAggregateRequest {
            name: text("aggregates/a"),
            ..Default::default()
        }
        .encode_to_vec(),
        "policy.v1.AggregateService/ListAggregates" => {
            ListAggregatesRequest::default().encode_to_vec()
        }
        "policy.v1.AggregateService/ListAvailabilityZones" => {
            ListAvailabilityZonesRequest::default().encode_to_vec()
        }
        "policy.v1.PolicyService/GetSchedulingPolicy" => {
            GetSchedulingPolicyRequest::default().encode_to_vec()
        }
        "image.v1.ImageService/GetImage" => GetImageRequest {
            name: text("images/i"),
            ..Default::default()
        }
        .encode_to_vec(),
        "image.v1.ImageService/ListImages" => ListImagesRequest::default().encode_to_vec(),
        "image.v1.ImageService/FindUnusedImageFiles" => FindUnusedImageFilesRequest {
            file_names: vec![text("i@3f6c1d2e7b1a")],
        }
        .encode_to_vec(),
        "policy.v1.ServerGroupService/GetServerGroup" => GetServerGroupRequest {
            name: text("serverGroups/g"),
            ..Default::default()
        }
        .encode_to_vec(),
        "policy.v1.ServerGroupService/ListServerGroups" => {
            ListServerGroupsRequest::default().encode_to_vec()
        }
        "scheduler.v1.MoveService/PlanDrain" => PlanDrainRequest {
            host: text("hosts/h1"),
            ..Default::default()
        }
        .encode_to_vec(),
        "scheduler.v1.PowerService/GetDueRestarts" => {
            GetDueRestartsRequest::default().encode_to_vec()
        }
        "scheduler.v1.SchedulerService/GetFlavor" => GetFlavorRequest {
            name: text("flavors/small"),
            ..Default::default()
        }
        .encode_to_vec(),
        "scheduler.v1.SchedulerService/ListFlavors" => {
            ListFlavorsRequest::default().encode_to_vec()
        }
        "scheduler.v1.SchedulerService/GetPciAlias" => GetPciAliasRequest {
            name: text("pciAliases/nic"),
            ..Default::default()
        }
        .encode_to_vec(),
        "scheduler.v1.SchedulerService/ListPciAliases" => {
            ListPciAliasesRequest::default().encode_to_vec()
        }
        "scheduler.v1.SchedulerService/GetNetwork" => GetNetworkRequest {
            name: text("networks/web"),
            ..Default::default()
        }
        .encode_to_vec(),
        "scheduler.v1.SchedulerService/ListNetworks" => {
            ListNetworksRequest::default().encode_to_vec()
        }
        "scheduler.v1.SchedulerService/GetVm" => GetVmRequest {
            name: text("vms/a"),
            ..Default::default()
        }
        .encode_to_vec(),
        "scheduler.v1.SchedulerService/ListVms" => ListVmsRequest::default().encode_to_vec(),
        // None was made: the refusals are compared.
        "scheduler.v1.SchedulerService/GetMigration" => GetMigrationRequest {
            name: text("migrations/0198c0de-0000-7000-8000-000000000001"),
            ..Default::default()
        }
        .encode_to_vec(),
        "scheduler.v1.SchedulerService/ListMigrations" => {
            ListMigrationsRequest::default().encode_to_vec()
        }
        "scheduler.v1.SchedulerService/GetClaim" => GetClaimRequest {
            name: world.claim.clone(),
            ..Default::default()
        }
        .encode_to_vec(),
        "scheduler.v1.SchedulerService/ListClaims" => ListClaimsRequest::default().encode_to_vec(),
        "volume.v1.VolumeService/GetVolume" => GetVolumeRequest {
            name: text("volumes/0198c0de-0000-7000-8000-000000000001"),
            ..Default::default()
        }
        .encode_to_vec(),
        "volume.v1.VolumeService/ListVolumes" => ListVolumesRequest::default().encode_to_vec(),
        "volume.v1.VolumeService/GetVolumeCapacity" => {
            GetVolumeCapacityRequest::default().encode_to_vec()
        }
        "volume.v1.VolumeService/FitVolumes" => FitVolumesRequest {
            required_bytes: vec![1],
            ..Default::default()
        }
        .encode_to_vec(),
        "volume.v1.VolumeService/PlanVolumeRoom" => PlanVolumeRoomRequest {
            host: text("hosts/h1"),
            required_bytes: 1,
            ..Default::default()
        }
        .encode_to_vec(),
        _ => return None,
    };
    Some(bytes)
}

/// Returns the reads of the REST API.
pub(super) fn rest(world: &World) -> Vec<String> {
    let provider = format!("/resource_providers/{PROVIDER}");
    let mut paths = [
        "/",
        "/resource_classes",
        "/resource_classes/VCPU",
        "/traits",
        "/traits/HW_CPU_X86_AVX2",
        "/resource_providers",
        "/resource_providers?name=pool",
        "/allocation_candidates?resources=VCPU:1",
        "/usages?project_id=p",
    ]
    .map(str::to_owned)
    .to_vec();
    paths.push(format!("/allocations/{CONSUMER}"));
    paths.push(format!(
        "/allocations/{}",
        world.claim.trim_start_matches("claims/")
    ));
    paths.push(provider.clone());
    for below in [
        "inventories",
        "inventories/VCPU",
        "traits",
        "aggregates",
        "usages",
        "allocations",
    ] {
        paths.push(format!("{provider}/{below}"));
    }
    paths
}
