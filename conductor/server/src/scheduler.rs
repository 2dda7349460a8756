//! The scheduler's client, in the domain's terms.
//!
//! Invariant: each call here may be repeated. Reads and records repeat without harm by
//! themselves; the others carry a request id.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use berth_domain::claim::Claim;
use berth_domain::first_boot::FirstBoot;
use berth_domain::host::Host;
use berth_domain::id::{Epoch, MigrationId, OperationId};
use berth_domain::migration::Migration;
use berth_domain::name::{HostName, ServiceName, VmName};
use berth_domain::operation::{Kind, Operation};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::service::Service;
use berth_domain::version::ServiceVersion;
use berth_domain::vm::Vm;
use berth_process::access;
use berth_proto::client::SchedulerChannel;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::{
    GetClusterStatusRequest, ListServicesRequest, RegisterServiceRequest,
};
use berth_proto::convert::operation::Advance;
use berth_proto::convert::{Invalid, ResourceName as _, field};
use berth_proto::for_cluster::{self, ForCluster};
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::host::v1::{
    FenceHostRequest, GetHostRequest, ListHostsRequest, VerifyFenceRequest,
};
use berth_proto::operation::v1::operation_service_client::OperationServiceClient;
use berth_proto::operation::v1::{
    CancelOperationRequest, ForceCompleteOperationRequest, GetOperationRequest, LeaseHold,
    ListOperationsRequest, RenewLeasesRequest, TakeLeaseRequest, WaitOperationRequest,
};
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::scheduler::v1::{
    BeginDeleteRequest, GetMigrationRequest, GetVmRequest, ScheduleMigrationRequest,
    ScheduleNextRequest, ScheduleVmRequest,
};
use berth_proto::{operation, status};
use berth_saga::{Facts, HostFacts, StepRecord};
use berth_traces::{current, within};
use tokio::task::JoinSet;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Request, Status};
use uuid::Uuid;

use crate::grants::Grants;

/// How long the end of an operation is waited for at a time: less than a call may take.
const WAIT_MS: u64 = 5_000;

/// How long a scheduler may take to record that a host was fenced.
const FENCE_DEADLINE: Duration = Duration::from_secs(90);

/// How long a scheduler may take to answer which cluster it is of.
const CHECK_DEADLINE: Duration = Duration::from_secs(1);

/// Makes one call with a request that may have to be sent more than once.
macro_rules! call {
    ($self:ident, $client:ident.$method:ident, $request:expr) => {
        call!(call: $self, $client.$method, $request).inspect(|_| $self.note_change())
    };
    ($way:ident: $self:ident, $client:ident.$method:ident, $request:expr) => {{
        let request = $request;
        $self
            .channel
            .$way(|channel| {
                let request = $self.for_whom(request.clone());
                let channel = berth_traces::client::Traced::new(channel);
                async move { $client::new(channel).$method(request).await }
            })
            .await
            .map_err(|status| $self.explain(status))
    }};
}

/// As `call`, of a method that changes nothing.
macro_rules! read {
    ($self:ident, $client:ident.$method:ident, $request:expr) => {
        call!(read: $self, $client.$method, $request)
    };
}

pub(crate) mod images;
mod moves;
mod power;

/// The scheduler, whichever member leads. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Scheduler {
    channel: SchedulerChannel,
    /// The principal of the request.
    name: ServiceName,
    /// For how long operations are held at a time.
    lease_ttl: Duration,
    /// The service version of this conductor: a host can do no more through it.
    version: ServiceVersion,
    /// The principal on whose behalf it calls; the conductor itself if absent.
    on_behalf_of: Option<MetadataValue<Ascii>>,
    /// The cluster that the request is for.
    cluster: ForCluster,
    /// Whether something was changed for the request.
    has_changed: Arc<AtomicBool>,
    /// What was granted with the operations that were read.
    grants: Grants,
}

/// What begins an operation, and what the response holds beside it.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) operation: Operation,
    /// Of a boot: what is read again for every other operation.
    pub(crate) boot: Option<Box<Boot>>,
}

/// A VM that is booted, and its claim.
#[derive(Debug)]
pub(crate) struct Boot {
    vm: Vm,
    claim: Option<Claim>,
}

impl From<Operation> for Begun {
    fn from(operation: Operation) -> Self {
        Self {
            operation,
            boot: None,
        }
    }
}

/// Which of the running operations to search for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    /// Those with an expired lease.
    Expired,
    /// Those that this conductor held when it ended last.
    Own,
}

fn refusal(status: Status) -> Refusal {
    status::from_status(&status)
}

/// Returns whether the program of an earlier build answers: without certificates it does not know the
/// method, with them it has no role for it.
pub(crate) fn is_without_method(status: &Status) -> bool {
    matches!(
        status.code(),
        tonic::Code::Unimplemented | tonic::Code::PermissionDenied
    )
}

fn unreadable(invalid: Invalid) -> Refusal {
    // Newer schedulers may send reasons that this conductor does not know: not to be taken for a "no".
    let message = format!("the scheduler's answer cannot be read: {invalid}");
    Refusal::new(Code::Unavailable, "UNREADABLE_ANSWER", message)
}

/// Reading a host panicked, or this conductor is stopping.
fn unfinished() -> Refusal {
    Refusal::new(
        Code::Unavailable,
        "UNREADABLE_ANSWER",
        "a host could not be read",
    )
}

/// What works on no VM has no facts of one.
fn no_vm() -> Refusal {
    let message = "the operation works on no VM";
    Refusal::new(Code::Internal, "OPERATION_WITHOUT_VM", message)
}

fn read_operation(wire: Option<operation::v1::Operation>) -> Result<Operation, Refusal> {
    field::required(wire, "operation").map_err(unreadable)
}

impl Scheduler {
    pub(crate) fn new(
        channel: SchedulerChannel,
        name: ServiceName,
        lease_ttl: Duration,
        version: ServiceVersion,
    ) -> Self {
        Self {
            channel,
            name,
            lease_ttl,
            version,
            on_behalf_of: None,
            cluster: ForCluster::default(),
            has_changed: Arc::default(),
            grants: Grants::default(),
        }
    }

    /// Returns the same client, which calls on behalf of the caller of a request, and has schedulers of
    /// another cluster than it is for refuse it.
    pub(crate) fn for_user<T>(&self, request: &Request<T>) -> Self {
        let principal = access::principal(request);
        let is_known = principal != access::UNVERIFIED;
        Self {
            // What a principal is made of stands in metadata as it is.
            on_behalf_of: principal.parse().ok().filter(|_| is_known),
            cluster: ForCluster::of_request(request),
            has_changed: Arc::default(),
            ..self.clone()
        }
    }

    /// Adds to a request the principal on whose behalf it is made, and the cluster that it is for.
    fn for_whom<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        self.cluster.add_to(&mut request);
        if let Some(principal) = &self.on_behalf_of {
            let metadata = request.metadata_mut();
            metadata.insert(access::ON_BEHALF_OF, principal.clone());
        }
        request
    }

    /// Notes that something was changed for the request: what is refused after it was carried out in part.
    pub(crate) fn note_change(&self) {
        self.has_changed.store(true, Ordering::Relaxed);
    }

    /// Returns what a refusal means for the request as a whole.
    fn explain(&self, status: Status) -> Status {
        let is_partly_done = self.has_changed.load(Ordering::Relaxed);
        match is_partly_done && for_cluster::is_other(&status) {
            true => status::to_status(&for_cluster::after_change(status::from_status(&status))),
            false => status,
        }
    }

    /// Has a scheduler refuse a request that is for another cluster. One that does not answer refuses nothing.
    ///
    /// # Errors
    ///
    /// The refusal.
    pub(crate) async fn check_cluster(&self) -> Result<(), Refusal> {
        if !self.cluster.is_one() {
            return Ok(());
        }
        let hasty = self.channel.clone().with_deadline(CHECK_DEADLINE);
        let answer = hasty.read(|channel| {
            let request = self.for_whom(GetClusterStatusRequest::default());
            async move {
                ClusterServiceClient::new(channel)
                    .get_cluster_status(request)
                    .await
            }
        });
        match answer.await {
            Err(status) if for_cluster::is_other(&status) => Err(refusal(status)),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Returns what was granted with the operations that were read.
    pub(crate) fn grants(&self) -> &Grants {
        &self.grants
    }

    fn read_granted(
        &self,
        operation: Option<operation::v1::Operation>,
        grant: Option<operation::v1::SignedGrant>,
    ) -> Result<Operation, Refusal> {
        let operation = read_operation(operation)?;
        self.grants.take(&operation, grant);
        Ok(operation)
    }

    pub(crate) fn name(&self) -> &ServiceName {
        &self.name
    }

    pub(crate) fn lease_ttl(&self) -> Duration {
        self.lease_ttl
    }

    pub(crate) fn version(&self) -> ServiceVersion {
        self.version
    }

    pub(crate) fn endpoints(&self) -> Vec<String> {
        self.channel.endpoints()
    }

    fn wire_ttl(&self) -> Option<prost_types::Duration> {
        let ms = u64::try_from(self.lease_ttl.as_millis()).unwrap_or(u64::MAX);
        Some(field::duration(ms))
    }

    // ---- begin -----------------------------------------------------------------------------

    /// Chooses and claims a host and begins the boot. `request` holds the VM and the constraints;
    /// the conductor is filled in here.
    pub(crate) async fn schedule_vm(
        &self,
        mut request: ScheduleVmRequest,
    ) -> Result<Begun, Refusal> {
        request.conductor = self.name.resource_name();
        request.lease_ttl = self.wire_ttl();
        request.request_id = given_or_new(request.request_id);
        let answer = call!(self, SchedulerServiceClient.schedule_vm, request);
        let answer = answer.map_err(refusal)?;
        let vm: Option<Vm> = field::optional(answer.vm, "vm").map_err(unreadable)?;
        let claim = field::optional(answer.claim, "claim").map_err(unreadable)?;
        Ok(Begun {
            operation: read_operation(answer.operation)?,
            // Absent where a repeated request is about a VM that was deleted since.
            boot: vm.map(|vm| Box::new(Boot { vm, claim })),
        })
    }

    /// Chooses and claims a destination and begins the migration.
    pub(crate) async fn schedule_migration(
        &self,
        mut request: ScheduleMigrationRequest,
    ) -> Result<Operation, Refusal> {
        request.conductor = self.name.resource_name();
        request.lease_ttl = self.wire_ttl();
        request.request_id = given_or_new(request.request_id);
        let answer = call!(self, SchedulerServiceClient.schedule_migration, request);
        read_operation(answer.map_err(refusal)?.operation)
    }

    /// Begins a deletion.
    pub(crate) async fn begin_delete(
        &self,
        mut request: BeginDeleteRequest,
    ) -> Result<Operation, Refusal> {
        request.conductor = self.name.resource_name();
        request.lease_ttl = self.wire_ttl();
        request.request_id = given_or_new(request.request_id);
        let answer = call!(self, SchedulerServiceClient.begin_delete, request);
        read_operation(answer.map_err(refusal)?.operation)
    }

    // ---- carry on --------------------------------------------------------------------------

    pub(crate) async fn advance(&self, record: &StepRecord) -> Result<Operation, Refusal> {
        // Without a request id: the state knows a record that it has, and so the window of
        // remembered requests is left to users.
        let advance = Advance {
            operation: record.operation,
            epoch: record.epoch,
            step: record.step,
            mark: record.mark.clone(),
            effect: record.effect.clone(),
        };
        let request = operation::v1::AdvanceRequest::from(&advance);
        let answer = call!(self, OperationServiceClient.advance, request).map_err(refusal)?;
        self.read_granted(answer.operation, answer.grant)
    }

    pub(crate) async fn schedule_next(
        &self,
        operation: OperationId,
        epoch: Epoch,
    ) -> Result<(), Refusal> {
        let request = ScheduleNextRequest {
            operation: operation.resource_name(),
            epoch: epoch.0,
            request_id: given_or_new(String::new()),
        };
        let answer = call!(self, SchedulerServiceClient.schedule_next, request);
        answer.map(|_| ()).map_err(refusal)
    }

    pub(crate) async fn take_lease(&self, operation: OperationId) -> Result<Operation, Refusal> {
        let request = TakeLeaseRequest {
            operation: operation.resource_name(),
            conductor: self.name.resource_name(),
            lease_ttl: self.wire_ttl(),
            request_id: String::new(),
        };
        let answer = call!(self, OperationServiceClient.take_lease, request).map_err(refusal)?;
        self.read_granted(answer.operation, answer.grant)
    }

    /// Prolongs leases, and returns which are still held.
    pub(crate) async fn renew_leases(
        &self,
        leases: &[(OperationId, Epoch)],
    ) -> Result<BTreeSet<OperationId>, Refusal> {
        let leases = leases.iter().map(|(operation, epoch)| LeaseHold {
            operation: operation.resource_name(),
            epoch: epoch.0,
        });
        let request = RenewLeasesRequest {
            conductor: self.name.resource_name(),
            leases: leases.collect(),
            lease_ttl: self.wire_ttl(),
            request_id: String::new(),
        };
        // An answer that comes after the leases have expired is useless.
        let channel = self.channel.clone().with_deadline(self.lease_ttl / 2);
        let answer = channel
            .call(|channel| {
                let request = request.clone();
                async move {
                    OperationServiceClient::new(channel)
                        .renew_leases(request)
                        .await
                }
            })
            .await;
        let held = answer.map_err(refusal)?.held;
        held.iter()
            .map(|name| field::name(name, "held").map_err(unreadable))
            .collect()
    }

    /// Returns running operations that this conductor may take.
    pub(crate) async fn find(&self, search: Search) -> Result<Vec<Operation>, Refusal> {
        let mut found = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = ListOperationsRequest {
                page_token,
                running_only: true,
                lease_expired_only: search == Search::Expired,
                ..ListOperationsRequest::default()
            };
            let answer = read!(self, OperationServiceClient.list_operations, request);
            let answer = answer.map_err(refusal)?;
            for wire in answer.operations {
                found.push(Operation::try_from(wire).map_err(unreadable)?);
            }
            page_token = answer.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        if search == Search::Own {
            let is_own = |o: &Operation| o.lease.as_ref().map(|l| &l.conductor) == Some(&self.name);
            found.retain(is_own);
        }
        Ok(found)
    }

    /// Has an operation given up, or its transfer stopped.
    pub(crate) async fn cancel(
        &self,
        operation: OperationId,
        request_id: String,
    ) -> Result<Operation, Refusal> {
        let request = CancelOperationRequest {
            name: operation.resource_name(),
            request_id: given_or_new(request_id),
        };
        let answer = call!(self, OperationServiceClient.cancel_operation, request);
        read_operation(answer.map_err(refusal)?.operation)
    }

    /// Has an operation's transfer end soon.
    pub(crate) async fn force_complete(
        &self,
        operation: OperationId,
        request_id: String,
    ) -> Result<Operation, Refusal> {
        let request = ForceCompleteOperationRequest {
            name: operation.resource_name(),
            request_id: given_or_new(request_id),
        };
        let answer = call!(
            self,
            OperationServiceClient.force_complete_operation,
            request
        );
        read_operation(answer.map_err(refusal)?.operation)
    }

    // ---- read ------------------------------------------------------------------------------

    pub(crate) async fn operation(&self, operation: OperationId) -> Result<Operation, Refusal> {
        let request = GetOperationRequest {
            name: operation.resource_name(),
            ..GetOperationRequest::default()
        };
        let answer = read!(self, OperationServiceClient.get_operation, request);
        let answer = answer.map_err(refusal)?;
        self.read_granted(answer.operation, answer.grant)
    }

    /// Returns what the guest of a boot is given for it; only for the holder of its lease.
    async fn first_boot(&self, operation: OperationId) -> Result<Option<Arc<FirstBoot>>, Refusal> {
        let request = GetOperationRequest {
            name: operation.resource_name(),
            ..GetOperationRequest::default()
        };
        let answer = read!(self, OperationServiceClient.get_operation, request);
        let first_boot = answer.map_err(refusal)?.first_boot;
        let first_boot = field::optional(first_boot, "first_boot").map_err(unreadable)?;
        Ok(first_boot.map(Arc::new))
    }

    /// Waits until an operation has ended, not for long, and returns it as it is then.
    pub(crate) async fn wait_for(&self, operation: OperationId) -> Result<Operation, Refusal> {
        let request = WaitOperationRequest {
            name: operation.resource_name(),
            timeout: Some(field::duration(WAIT_MS)),
        };
        let answer = read!(self, OperationServiceClient.wait_operation, request);
        read_operation(answer.map_err(refusal)?.operation)
    }

    /// Reads what a saga has to know; `None` for the facts of an operation that is done, since
    /// its VM may be deleted.
    pub(crate) async fn read(
        &self,
        operation: OperationId,
    ) -> Result<(Operation, Option<Facts>), Refusal> {
        let operation = self.operation(operation).await?;
        if operation.is_done() {
            return Ok((operation, None));
        }
        match self.facts(&operation).await {
            Ok(facts) => Ok((operation, Some(facts))),
            // The VM went between the two reads: with the end of the operation, or not at all.
            Err(refusal) if refusal.code == Code::NotFound => {
                let again = self.operation(operation.id).await?;
                if again.is_done() {
                    return Ok((again, None));
                }
                Err(Refusal::new(
                    Code::Unavailable,
                    &refusal.reason,
                    refusal.message,
                ))
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// As [`Self::read`], of an operation that was read a moment ago: everything at once, as what it
    /// is about does not change.
    pub(crate) async fn read_known(
        &self,
        known: &Operation,
    ) -> Result<(Operation, Option<Facts>), Refusal> {
        let (now, facts) = tokio::join!(self.operation(known.id), self.facts(known));
        let now = now?;
        match facts {
            Ok(facts) if !now.is_done() && now.claim == known.claim => Ok((now, Some(facts))),
            Ok(_) | Err(_) => self.read(known.id).await,
        }
    }

    /// Returns a migration.
    pub(crate) async fn migration(&self, id: MigrationId) -> Result<Migration, Refusal> {
        let request = GetMigrationRequest {
            name: id.resource_name(),
            ..GetMigrationRequest::default()
        };
        let answer = read!(self, SchedulerServiceClient.get_migration, request);
        field::required(answer.map_err(refusal)?.migration, "migration").map_err(unreadable)
    }

    async fn facts(&self, operation: &Operation) -> Result<Facts, Refusal> {
        let migration = async |id: Option<MigrationId>| match id {
            Some(id) => self.migration(id).await.map(Some),
            None => Ok(None),
        };
        // Mostly it is known at once which one.
        let at_once = migration(operation.kind.migration());
        let vm = operation.vm().ok_or_else(no_vm)?;
        let ((vm, claims), at_once) = tokio::try_join!(self.vm(vm), at_once)?;
        let needed = Facts::migration_needed(&operation.kind, &claims);
        let migration = match at_once {
            Some(migration) => Some(migration),
            None => migration(needed).await?,
        };
        self.with_hosts(operation, vm, claims, migration).await
    }

    /// Returns what the saga of a boot has to know, of which only the host is read.
    pub(crate) async fn facts_of_boot(
        &self,
        operation: &Operation,
        boot: Boot,
    ) -> Result<Facts, Refusal> {
        let claims = Vec::from_iter(boot.claim);
        self.with_hosts(operation, boot.vm, claims, None).await
    }

    /// Reads the hosts that an operation has to do with.
    async fn with_hosts(
        &self,
        operation: &Operation,
        vm: Vm,
        claims: Vec<Claim>,
        migration: Option<Migration>,
    ) -> Result<Facts, Refusal> {
        let mut vm = vm;
        if operation.kind == Kind::Boot && vm.spec.has_seed() {
            vm.first_boot = self.first_boot(operation.id).await?;
        }
        let claims: BTreeMap<_, _> = claims.into_iter().map(|c| (c.id, c)).collect();
        let claim = operation.claim.and_then(|id| claims.get(&id)).cloned();
        let mut facts = Facts {
            vm,
            migration,
            claim,
            claims,
            hosts: BTreeMap::new(),
        };
        let needed = Facts::hosts_needed(&facts.vm, facts.migration.as_ref(), facts.claim.as_ref());
        let mut reads = JoinSet::new();
        for name in needed {
            let scheduler = self.clone();
            // Calls in a task of their own belong to the same span.
            let reading = async move { (scheduler.host(&name).await, name) };
            reads.spawn(within(current(), reading));
        }
        while let Some(answer) = reads.join_next().await {
            let Ok((host, name)) = answer else {
                return Err(unfinished());
            };
            match host {
                Ok(host) => {
                    let mut known = HostFacts::from(&host);
                    known.service_version = known.service_version.min(self.version);
                    facts.hosts.insert(name, known);
                }
                // The saga knows what it means that a host is not there.
                Err(refusal) if refusal.code == Code::NotFound => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(facts)
    }

    /// Returns a VM with its claims.
    pub(crate) async fn vm(&self, name: &VmName) -> Result<(Vm, Vec<Claim>), Refusal> {
        let request = GetVmRequest {
            name: name.resource_name(),
            ..GetVmRequest::default()
        };
        let answer = read!(self, SchedulerServiceClient.get_vm, request).map_err(refusal)?;
        let vm = field::required(answer.vm, "vm").map_err(unreadable)?;
        let claims = field::each(answer.claims, "claims", usize::MAX).map_err(unreadable)?;
        Ok((vm, claims))
    }

    pub(crate) async fn host(&self, name: &HostName) -> Result<Host, Refusal> {
        let request = GetHostRequest {
            name: name.resource_name(),
            ..GetHostRequest::default()
        };
        let answer = read!(self, HostServiceClient.get_host, request).map_err(refusal)?;
        field::required(answer.host, "host").map_err(unreadable)
    }

    /// Returns the hosts that match, in the order of their names, at most `max`.
    pub(crate) async fn hosts(
        &self,
        matches: impl Fn(&Host) -> bool,
        max: usize,
    ) -> Result<Vec<Host>, Refusal> {
        let mut hosts: Vec<Host> = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = ListHostsRequest {
                page_token,
                ..ListHostsRequest::default()
            };
            let answer = read!(self, HostServiceClient.list_hosts, request).map_err(refusal)?;
            for summary in answer.hosts {
                let host: Host = field::required(summary.host, "host").map_err(unreadable)?;
                if matches(&host) {
                    hosts.push(host);
                }
            }
            page_token = answer.next_page_token;
            if page_token.is_empty() || hosts.len() >= max {
                hosts.truncate(max);
                return Ok(hosts);
            }
        }
    }

    /// Looks up a fence before its command runs: returns the host if it was recorded before.
    pub(crate) async fn verify_fence(
        &self,
        fence: FenceHostRequest,
    ) -> Result<Option<Host>, Refusal> {
        let request = VerifyFenceRequest { fence: Some(fence) };
        match read!(self, HostServiceClient.verify_fence, request) {
            Ok(answer) => field::optional(answer.host, "host").map_err(unreadable),
            // A scheduler of an earlier build, during an upgrade, which may take a method that it does
            // not know for one that no role may call: as that build, without the lookup.
            Err(status) if is_without_method(&status) => Ok(None),
            Err(status) => Err(refusal(status)),
        }
    }

    /// Records that the fence command succeeded.
    pub(crate) async fn fence(&self, fenced: FenceHostRequest) -> Result<Host, Refusal> {
        // The scheduler waits for reports of the host's agent first.
        let patient = self.channel.clone().with_deadline(FENCE_DEADLINE);
        let answer = patient
            .call(|channel| {
                let request = self.for_whom(fenced.clone());
                async move { HostServiceClient::new(channel).fence_host(request).await }
            })
            .await;
        let answer = answer.map_err(|status| refusal(self.explain(status)))?;
        field::required(answer.host, "host").map_err(unreadable)
    }

    // ---- report ----------------------------------------------------------------------------

    /// Registers a conductor; the first attempt ends once each scheduler was tried.
    pub(crate) async fn register(&self, service: &Service, is_first: bool) -> Result<(), Refusal> {
        let request = RegisterServiceRequest {
            service: Some(service.into()),
            request_id: String::new(),
        };
        let patient = &self.channel;
        let channel = match is_first {
            true => patient.clone().without_patience(),
            false => patient.clone(),
        };
        let registering = Self {
            channel,
            ..self.clone()
        };
        let answer = call!(registering, ClusterServiceClient.register_service, request);
        let registered = answer.map(|_| ());
        registered.map_err(|status| patient.not_registered(&status))
    }

    /// Returns the version up to which the replicated format is used.
    pub(crate) async fn cluster_version(&self) -> Result<ServiceVersion, Refusal> {
        let request = GetClusterStatusRequest::default();
        let answer = read!(self, ClusterServiceClient.get_cluster_status, request);
        let answer = answer.map_err(refusal)?;
        Ok(ServiceVersion::from_wire(answer.cluster_version))
    }

    /// Returns once a leader has answered: what is read is confirmed by a majority.
    pub(crate) async fn reach_leader(&self) -> Result<(), Refusal> {
        let request = ListServicesRequest {
            page_size: 1,
            ..ListServicesRequest::default()
        };
        let answer = read!(self, ClusterServiceClient.list_services, request);
        answer.map(|_| ()).map_err(refusal)
    }

    /// Returns whether a registration stands as it was made.
    pub(crate) async fn is_registered(&self, service: &Service) -> Result<bool, Refusal> {
        let request = ListServicesRequest {
            page_size: 1_000,
            ..ListServicesRequest::default()
        };
        let answer = read!(self, ClusterServiceClient.list_services, request).map_err(refusal)?;
        let own = berth_proto::cluster::v1::Service::from(service);
        let mut known = answer
            .services
            .iter()
            .filter(|known| known.name == own.name);
        Ok(known.any(|known| {
            known.address == own.address && known.service_version == own.service_version
        }))
    }
}

/// A call to the scheduler is repeated when its answer is lost, so it needs an id; the user's
/// where there is one, so that the user's own repetition gets the same answer.
fn given_or_new(request_id: String) -> String {
    if request_id.is_empty() {
        Uuid::now_v7().to_string()
    } else {
        request_id
    }
}
