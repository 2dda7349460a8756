//! The table: which role may call which method. `docs/security.md` shows it, and a test holds both
//! against the descriptors of all services.
//!
//! Invariant: a method that is not here is refused. So a new method cannot be called with certificates
//! before it has a row, that is, before its callers have been considered.

use std::collections::HashMap;
use std::sync::LazyLock;

use berth_tls::Role;

/// A set of roles, a bit each.
type Roles = u8;

const S: Roles = 1;
const C: Roles = 1 << 1;
const A: Roles = 1 << 2;
const V: Roles = 1 << 3;
const O: Roles = 1 << 4;
const R: Roles = 1 << 5;
const ALL: Roles = S | C | A | V | O | R;

fn bit(role: Role) -> Roles {
    match role {
        Role::Scheduler => S,
        Role::Conductor => C,
        Role::Agent => A,
        Role::CsiController => V,
        Role::Operator => O,
        Role::Reader => R,
    }
}

/// The methods of a service, with the roles that may call each.
type Row = (&'static str, &'static [(&'static str, Roles)]);

/// Every service and its methods, in the order of their names.
pub(super) const TABLE: &[Row] = &[
    (
        "berth.agent.v1.ComputeAgentService",
        &[
            ("GetAgentInfo", C | O | R),
            ("SpawnVm", C),
            ("DestroyVm", C),
            // Not for those who only look: it raises the fence of the VM.
            ("GetDomain", C),
            ("ListDomains", C | O | R),
            ("CheckCanLiveMigrateDestination", C),
            ("CheckCanLiveMigrateSource", C),
            ("FitLiveMigration", C),
            ("PreLiveMigration", C),
            ("LiveMigration", C),
            ("RollbackLiveMigrationAtDestination", C),
            ("PostLiveMigrationAtSource", C),
            ("ReadConsole", C),
            ("AttachConsole", C),
            ("StopVm", C),
            ("StartVm", C),
            ("SettleVm", C),
            ("AbortLiveMigration", C),
            ("ForceCompleteLiveMigration", C),
            ("GetTransfer", C | O | R),
            ("MakeDisks", C),
            ("CopyDisk", C),
            ("PublishImage", C),
            ("DropImage", C),
            ("WaitTransfer", C),
            ("FetchDisks", C),
            ("DropDisks", C),
            // The agent of another host, where a guest's disks go.
            ("ReadDisks", A),
            // It connects to other hosts: for those who change something, through a conductor.
            ("CheckHost", C),
            ("PutImage", C),
            // It connects to servers beyond the cluster.
            ("DownloadImage", C),
            ("FetchImage", C),
            ("ReadImage", A),
        ],
    ),
    (
        "berth.agent.v1.VolumeAgentService",
        &[("SyncVolume", V | O)],
    ),
    (
        "berth.audit.v1.AuditService",
        &[
            ("GetAuditEntry", O | R),
            ("ListAuditEntries", O | R),
            ("ListRefusals", O | R),
        ],
    ),
    (
        "berth.cluster.v1.ClusterService",
        &[
            // Every client of a scheduler finds the leader by these two.
            ("GetClusterStatus", ALL),
            ("WaitLeader", ALL),
            ("JoinCluster", S),
            ("AddMember", O),
            // Members report where others of them are.
            ("UpdateMember", S | O),
            ("PromoteMember", O),
            ("RemoveMember", O),
            ("TransferLeadership", O),
            ("RegisterService", C),
            ("ListServices", C | V | O | R),
            ("FinalizeUpgrade", O),
            ("UnregisterService", O),
            ("RotateGrantKey", O),
            ("GetRecovery", C | V | O | R),
            ("EndRecovery", O),
            ("RevokeCertificate", O),
            ("ReinstateCertificate", O),
            // Log lines name users, hosts and addresses.
            ("GetDiagnostics", O),
            // The browser gets the role of the certificate that it is called with.
            ("CreatePageLogin", O),
            // It holds everything that is replicated, the key of grants among it.
            ("Backup", O),
            // Every program refuses what is listed.
            ("ListRevokedCertificates", ALL),
        ],
    ),
    (
        "berth.conductor.v1.ConductorService",
        &[
            ("CreateVm", O),
            ("DeleteVm", O),
            ("MigrateVm", O),
            ("ResizeVm", O),
            ("ConfirmResize", O),
            ("RevertResize", O),
            ("EvacuateVm", O),
            ("ShelveVm", O),
            ("UnshelveVm", O),
            ("DrainHost", O),
            ("StopVm", O),
            ("StartVm", O),
            ("RebootVm", O),
            ("RebuildVm", O),
            ("SnapshotVm", O),
            ("FenceHost", O),
            // What a guest writes there may be anything, as a password.
            ("ReadConsole", O),
            ("AttachConsole", O),
            ("GetServiceInfo", O | R),
            ("WatchMigration", O | R),
            ("AbortMigration", O),
            ("ForceCompleteMigration", O),
            ("CheckHosts", O),
            ("AddImage", O),
            ("DownloadImage", O),
            ("CopyImage", O),
        ],
    ),
    (
        "berth.event.v1.EventService",
        &[("Watch", C | V | O | R), ("GetHistory", O | R)],
    ),
    (
        "berth.host.v1.HostService",
        &[
            // Each for its own host.
            ("RegisterHost", A),
            ("ReportHost", A),
            ("ExpectDomains", A),
            ("CompareDomains", A),
            ("ReportGuests", A),
            ("ReportErasures", A),
            ("FenceHost", C | O),
            ("VerifyFence", C | O),
            ("GetHost", C | V | O | R),
            ("ListHosts", C | V | O | R),
            ("GetCpuBaseline", O | R),
            ("ListMemorySignals", O | R),
            ("CordonHost", C | O),
            ("UncordonHost", O),
            ("WriteOffPmem", O),
            ("RemoveHost", O),
        ],
    ),
    (
        "berth.image.v1.ImageService",
        &[
            // A conductor adds images for operators, and ends what it could not complete.
            ("CreateImage", C),
            ("CompleteImage", C),
            ("GetImage", C | O | R),
            ("ListImages", C | O | R),
            ("SetImageCopy", C),
            ("DeleteImage", C | O),
            ("GrantImage", C),
            // An agent deletes what it returns.
            ("FindUnusedImageFiles", A | O | R),
        ],
    ),
    (
        "berth.log.v1.LogService",
        &[
            ("GetLogLevel", O | R),
            // Debug lines name more than others, and cost more.
            ("SetLogLevel", O),
            ("ResetLogLevel", O),
        ],
    ),
    (
        "berth.operation.v1.OperationService",
        &[
            ("GetOperation", C | O | R),
            ("ListOperations", C | O | R),
            ("WaitOperation", C | O | R),
            ("WatchOperation", C | O | R),
            ("CancelOperation", C | O),
            ("ForceCompleteOperation", C | O),
            ("Advance", C),
            ("TakeLease", C),
            ("RenewLeases", C),
        ],
    ),
    (
        "berth.placement.v1.CatalogService",
        &[
            ("CreateResourceClass", O),
            ("RenameResourceClass", O),
            ("DeleteResourceClass", O),
            ("ListResourceClasses", O | R),
            ("CreateTrait", O),
            ("DeleteTrait", O),
            ("ListTraits", O | R),
        ],
    ),
    (
        "berth.placement.v1.ImportService",
        &[("ImportResourceProviders", O), ("ImportConsumers", O)],
    ),
    (
        "berth.placement.v1.PlacementService",
        &[
            ("CreateResourceProvider", O),
            ("GetResourceProvider", O | R),
            ("ListResourceProviders", O | R),
            ("UpdateResourceProvider", O),
            ("DeleteResourceProvider", O),
            ("ReplaceInventories", O),
            ("PutInventory", O),
            ("DeleteInventory", O),
            ("ReplaceTraits", O),
            ("ReplaceAggregates", O),
            ("ReplaceAllocations", O),
            ("DeleteAllocations", O),
            ("Reshape", O),
            ("BatchWrite", O),
            ("GetAllocations", O | R),
            ("GetUsage", O | R),
            ("ListConsumers", O | R),
            ("WatchResourceProviders", O | R),
            ("GetProjectUsage", O | R),
            ("FindAllocationCandidates", O | R),
        ],
    ),
    (
        "berth.planner.v1.PlannerService",
        &[
            ("VerifyCluster", O | R),
            ("GetScore", O | R),
            ("PlanBalance", O | R),
            ("GetCapacity", O | R),
        ],
    ),
    (
        "berth.policy.v1.AggregateService",
        &[
            ("CreateAggregate", O),
            ("GetAggregate", O | R),
            ("ListAggregates", O | R),
            ("UpdateAggregate", O),
            ("DeleteAggregate", O),
            ("ListAvailabilityZones", O | R),
        ],
    ),
    (
        "berth.policy.v1.PolicyService",
        &[
            ("GetSchedulingPolicy", C | O | R),
            ("UpdateSchedulingPolicy", O),
        ],
    ),
    (
        "berth.policy.v1.ServerGroupService",
        &[
            ("CreateServerGroup", O),
            ("GetServerGroup", O | R),
            ("ListServerGroups", O | R),
            ("DeleteServerGroup", O),
        ],
    ),
    (
        "berth.raft.v1.RaftService",
        &[("Exchange", S), ("InstallSnapshot", S), ("Forward", S)],
    ),
    (
        "berth.scheduler.v1.MoveService",
        &[
            // Operators may only ask for a decision: the principal that begins an operation carries it out.
            ("ScheduleMove", C | O),
            ("ScheduleUnshelve", C | O),
            ("ConfirmResize", C),
            ("BeginRevertResize", C),
            ("BeginShelve", C),
            ("PlanDrain", C | O | R),
            ("BeginDrain", C),
            ("MoveDrained", C),
            ("RecordDrained", C),
        ],
    ),
    (
        "berth.scheduler.v1.PowerService",
        &[
            ("BeginPower", C),
            ("UpdateRestartPolicy", O),
            ("OpenConsole", C),
            ("GetDueRestarts", C | O | R),
        ],
    ),
    (
        "berth.scheduler.v1.SchedulerService",
        &[
            ("CreateFlavor", O),
            ("GetFlavor", C | V | O | R),
            ("ListFlavors", C | V | O | R),
            ("DeleteFlavor", O),
            ("CreatePciAlias", O),
            ("GetPciAlias", C | O | R),
            ("ListPciAliases", C | O | R),
            ("DeletePciAlias", O),
            ("CreateNetwork", O),
            ("GetNetwork", C | O | R),
            ("ListNetworks", C | O | R),
            ("DeleteNetwork", O),
            ("ScheduleVm", C | O),
            ("ScheduleMigration", C | O),
            ("ScheduleNext", C),
            ("BeginDelete", C),
            ("UpdateVm", O),
            ("GetVm", C | O | R),
            ("ListVms", C | O | R),
            ("GetMigration", C | O | R),
            ("ListMigrations", C | O | R),
            ("GetClaim", C | O | R),
            ("ListClaims", C | O | R),
        ],
    ),
    (
        "berth.volume.v1.VolumeService",
        &[
            // An agent makes and deletes ephemeral volumes of its own host.
            ("CreateVolume", A | V | O),
            ("DeleteVolume", A | V | O),
            ("GetVolume", ALL),
            ("ListVolumes", ALL),
            ("GetVolumeCapacity", ALL),
            ("FitVolumes", ALL),
            ("PlanVolumeRoom", ALL),
            ("ReportVolumes", A),
        ],
    ),
    (
        "grpc.health.v1.Health",
        &[("Check", ALL), ("List", ALL), ("Watch", ALL)],
    ),
    (
        "grpc.reflection.v1.ServerReflection",
        &[("ServerReflectionInfo", ALL)],
    ),
    (
        "grpc.reflection.v1alpha.ServerReflection",
        &[("ServerReflectionInfo", ALL)],
    ),
];

/// The methods that a scheduler may call for an operator or a reader who uses its page, and names, where that
/// person may: its own certificate alone may call none of them.
pub(super) const DELEGATED: &[&str] = &[
    "berth.conductor.v1.ConductorService/AbortMigration",
    "berth.conductor.v1.ConductorService/DrainHost",
    "berth.conductor.v1.ConductorService/GetServiceInfo",
    "berth.conductor.v1.ConductorService/MigrateVm",
    "berth.conductor.v1.ConductorService/ReadConsole",
    "berth.conductor.v1.ConductorService/WatchMigration",
];

/// The table by whole names, as `berth.event.v1.EventService/Watch`.
static BY_NAME: LazyLock<HashMap<String, Roles>> = LazyLock::new(|| {
    let rows = TABLE.iter().flat_map(|(service, methods)| {
        let named = move |(method, roles): &(&str, Roles)| (format!("{service}/{method}"), *roles);
        methods.iter().map(named)
    });
    rows.collect()
});

/// Returns whether a role may call a method, as `berth.event.v1.EventService/Watch`.
#[must_use]
pub fn may(role: Role, method: &str) -> bool {
    BY_NAME
        .get(method)
        .is_some_and(|roles| roles & bit(role) != 0)
}

/// Returns whether a scheduler may call a method for a person whom it names and who may call it.
#[must_use]
pub fn is_delegated(method: &str) -> bool {
    DELEGATED.contains(&method)
}

/// Returns the roles that may call a method.
pub fn roles(method: &str) -> impl Iterator<Item = Role> + '_ {
    Role::ALL.into_iter().filter(move |role| may(*role, method))
}

/// Returns every method of the table, as `berth.event.v1.EventService/Watch`.
pub fn methods() -> impl Iterator<Item = String> {
    TABLE.iter().flat_map(|(service, methods)| {
        methods
            .iter()
            .map(move |(method, _)| format!("{service}/{method}"))
    })
}

/// Returns service and method of every method of these services.
pub fn methods_of(
    services: &'static [&'static str],
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let served = TABLE
        .iter()
        .filter(|(service, _)| services.contains(service));
    served.flat_map(|(service, methods)| methods.iter().map(move |(method, _)| (*service, *method)))
}

/// Returns the methods of which [`is_delegated`] is true, as `docs/security.md` shows them.
#[must_use]
pub fn delegated_markdown() -> String {
    let methods = DELEGATED.iter().map(|method| format!("`{method}`"));
    methods.collect::<Vec<_>>().join(", ")
}

/// Returns the table as `docs/security.md` shows it: methods of one service that the same roles may
/// call stand together.
#[must_use]
pub fn markdown() -> String {
    let mut text = "| service | methods | who |\n|---|---|---|\n".to_owned();
    for (service, methods) in TABLE {
        let mut groups: Vec<(Roles, Vec<&str>)> = Vec::new();
        for (method, roles) in *methods {
            match groups.iter_mut().find(|(known, _)| known == roles) {
                Some((_, group)) => group.push(method),
                None => groups.push((*roles, vec![method])),
            }
        }
        for (roles, group) in groups {
            let who = match roles {
                ALL => "everybody".to_owned(),
                roles => {
                    let who = Role::ALL.into_iter().filter(|role| roles & bit(*role) != 0);
                    who.map(Role::as_str).collect::<Vec<_>>().join(", ")
                }
            };
            text.push_str(&format!("| `{service}` | {} | {who} |\n", group.join(", ")));
        }
    }
    text
}
