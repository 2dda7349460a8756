//! `berth.scheduler.v1.SchedulerService`: what changes something. Reads are in [`super::read`].

use std::sync::Arc;

use berth_decide::{Action, ScheduleMigration, ScheduleVm};
use berth_domain::claim::Claim;
use berth_domain::flavor::Flavor;
use berth_domain::id::{ClaimId, Epoch, MigrationId, OperationId, VmUid};
use berth_domain::migration::Migration;
use berth_domain::name::{HostName, ServiceName, VmName};
use berth_domain::operation::{LeaseRequest, Operation};
use berth_domain::ownership::Ownership;
use berth_domain::refusal::Refusal;
use berth_domain::vm::Vm;
use berth_process::access;
use berth_proto::convert::operation::lease_request;
use berth_proto::convert::vm::VmTemplate;
use berth_proto::convert::{Invalid, ResourceName as _, field, vm_metadata};
use berth_proto::scheduler::v1;
use berth_proto::scheduler::v1::scheduler_service_server::SchedulerService;
use berth_proto::status::to_status;
use berth_selection::Choice;
use berth_state::command::Command;
use berth_state::{Reply, State};
use prost_types::Duration;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::context::{Context, Done};
use super::keyed::{Caller, open};
use super::power::write_vm;
use super::{holder, network, read, refusal};

/// Serves `SchedulerService`.
pub(crate) struct SchedulerApi(pub(crate) Context);

impl SchedulerApi {
    async fn submit(
        &self,
        caller: Caller,
        validate_only: bool,
        action: Action,
    ) -> Result<Done, Status> {
        let (done, _) = self
            .submit_with_parts(caller, validate_only, action)
            .await?;
        Ok(done)
    }

    async fn submit_with_parts(
        &self,
        caller: Caller,
        validate_only: bool,
        action: Action,
    ) -> Result<(Done, Parts), Status> {
        let request = caller.into_request(validate_only, action);
        self.0.submit_then(request, Parts::of).await
    }
}

/// What an operation is about, as far as it was not settled meanwhile.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) vm: Option<Arc<Vm>>,
    pub(super) claim: Option<Arc<Claim>>,
    pub(super) migration: Option<Arc<Migration>>,
}

impl Parts {
    pub(super) fn of(state: &State, reply: &Reply) -> Self {
        let Reply::Operation(operation) = reply else {
            return Self::default();
        };
        let migration = operation.kind.migration();
        let migration = migration.and_then(|id| state.migration(id)).cloned();
        let claim = operation.claim.and_then(|claim| state.claim(claim));
        Self {
            vm: operation.vm().and_then(|vm| state.vm(vm)).cloned(),
            claim: claim.cloned(),
            migration,
        }
    }
}

#[tonic::async_trait]
impl SchedulerService for SchedulerApi {
    async fn create_flavor(
        &self,
        request: Request<v1::CreateFlavorRequest>,
    ) -> Result<Response<v1::CreateFlavorResponse>, Status> {
        let (wire, caller) = open(request)?;
        let mut flavor: Flavor = field::required(wire.flavor, "flavor")?;
        flavor.ownership = Ownership::requested(flavor.ownership.project);
        let action = Action::Plain(Command::CreateFlavor(flavor));
        let Reply::Flavor(flavor) = self.submit(caller, false, action).await?.reply else {
            return Err(refusal::mismatch());
        };
        Ok(Response::new(v1::CreateFlavorResponse {
            flavor: Some((&*flavor).into()),
        }))
    }

    async fn delete_flavor(
        &self,
        request: Request<v1::DeleteFlavorRequest>,
    ) -> Result<Response<v1::DeleteFlavorResponse>, Status> {
        let (wire, caller) = open(request)?;
        let flavor = field::name(&wire.name, "name")?;
        let action = Action::Plain(Command::DeleteFlavor { flavor });
        self.submit(caller, false, action).await?;
        Ok(Response::new(v1::DeleteFlavorResponse {}))
    }

    async fn create_pci_alias(
        &self,
        request: Request<v1::CreatePciAliasRequest>,
    ) -> Result<Response<v1::CreatePciAliasResponse>, Status> {
        let (wire, caller) = open(request)?;
        let alias = field::required(wire.pci_alias, "pci_alias")?;
        let action = Action::Plain(Command::CreatePciAlias(alias));
        let Reply::PciAlias(alias) = self.submit(caller, false, action).await?.reply else {
            return Err(refusal::mismatch());
        };
        Ok(Response::new(v1::CreatePciAliasResponse {
            pci_alias: Some((&*alias).into()),
        }))
    }

    async fn delete_pci_alias(
        &self,
        request: Request<v1::DeletePciAliasRequest>,
    ) -> Result<Response<v1::DeletePciAliasResponse>, Status> {
        let (wire, caller) = open(request)?;
        let alias = field::name(&wire.name, "name")?;
        let action = Action::Plain(Command::DeletePciAlias { alias });
        self.submit(caller, false, action).await?;
        Ok(Response::new(v1::DeletePciAliasResponse {}))
    }

    async fn create_network(
        &self,
        request: Request<v1::CreateNetworkRequest>,
    ) -> Result<Response<v1::CreateNetworkResponse>, Status> {
        let (wire, caller) = open(request)?;
        let network = field::required(wire.network, "network")?;
        let action = Action::Plain(Command::CreateNetwork(network));
        let Reply::Network(network) = self.submit(caller, false, action).await?.reply else {
            return Err(refusal::mismatch());
        };
        Ok(Response::new(v1::CreateNetworkResponse {
            network: Some((&*network).into()),
        }))
    }

    async fn delete_network(
        &self,
        request: Request<v1::DeleteNetworkRequest>,
    ) -> Result<Response<v1::DeleteNetworkResponse>, Status> {
        let (wire, caller) = open(request)?;
        let network = field::name(&wire.name, "name")?;
        let action = Action::Plain(Command::DeleteNetwork { network });
        self.submit(caller, false, action).await?;
        Ok(Response::new(v1::DeleteNetworkResponse {}))
    }

    async fn schedule_vm(
        &self,
        request: Request<v1::ScheduleVmRequest>,
    ) -> Result<Response<v1::ScheduleVmResponse>, Status> {
        let (wire, caller) = open(request)?;
        let validate_only = wire.validate_only;
        let params = schedule_vm(wire)?;
        let (done, parts) = self
            .submit_with_parts(caller, validate_only, Action::ScheduleVm(params))
            .await?;
        let explanation = done.choice.as_ref().map(explain);
        if validate_only {
            return Ok(Response::new(v1::ScheduleVmResponse {
                explanation,
                ..Default::default()
            }));
        }
        let operation = operation_of(done.reply)?;
        Ok(Response::new(v1::ScheduleVmResponse {
            operation: Some((&*operation).into()),
            vm: parts.vm.map(|vm| (&*vm).into()),
            claim: parts.claim.map(|claim| (&*claim).into()),
            explanation,
        }))
    }

    async fn schedule_migration(
        &self,
        request: Request<v1::ScheduleMigrationRequest>,
    ) -> Result<Response<v1::ScheduleMigrationResponse>, Status> {
        let (wire, caller) = open(request)?;
        let validate_only = wire.validate_only;
        let params = schedule_migration(wire)?;
        let (done, parts) = self
            .submit_with_parts(caller, validate_only, Action::ScheduleMigration(params))
            .await?;
        let explanation = done.choice.as_ref().map(explain);
        if validate_only {
            return Ok(Response::new(v1::ScheduleMigrationResponse {
                explanation,
                ..Default::default()
            }));
        }
        let operation = operation_of(done.reply)?;
        Ok(Response::new(v1::ScheduleMigrationResponse {
            operation: Some((&*operation).into()),
            migration: parts.migration.map(|migration| (&*migration).into()),
            claim: parts.claim.map(|claim| (&*claim).into()),
            explanation,
        }))
    }

    async fn schedule_next(
        &self,
        request: Request<v1::ScheduleNextRequest>,
    ) -> Result<Response<v1::ScheduleNextResponse>, Status> {
        let conductor = access::caller(request.extensions()).cloned();
        let (wire, caller) = open(request)?;
        let (operation, epoch) = (
            field::name(&wire.operation, "operation")?,
            Epoch(wire.epoch),
        );
        holder::check(&self.0, conductor, operation, epoch).await?;
        let action = Action::ScheduleNext {
            operation,
            epoch,
            claim: ClaimId(Uuid::now_v7()),
        };
        let (done, parts) = self.submit_with_parts(caller, false, action).await?;
        let operation = operation_of(done.reply)?;
        Ok(Response::new(v1::ScheduleNextResponse {
            claim: parts.claim.map(|claim| (&*claim).into()),
            operation: Some((&*operation).into()),
        }))
    }

    async fn begin_delete(
        &self,
        request: Request<v1::BeginDeleteRequest>,
    ) -> Result<Response<v1::BeginDeleteResponse>, Status> {
        let (wire, caller) = open(request)?;
        let action = Action::Plain(Command::BeginDelete {
            operation: OperationId(Uuid::now_v7()),
            vm: field::name(&wire.vm, "vm")?,
            lease: lease_request(&wire.conductor, wire.lease_ttl)?,
        });
        let operation = operation_of(self.submit(caller, false, action).await?.reply)?;
        Ok(Response::new(v1::BeginDeleteResponse {
            operation: Some((&*operation).into()),
        }))
    }

    async fn update_vm(
        &self,
        request: Request<v1::UpdateVmRequest>,
    ) -> Result<Response<v1::UpdateVmResponse>, Status> {
        let (wire, caller) = open(request)?;
        let name: VmName = field::name(&wire.vm, "vm")?;
        let change = vm_metadata::read_change(
            wire.set_labels,
            wire.remove_labels,
            wire.description,
            wire.protected,
        )?;
        if change.is_empty() {
            let rule = "must be accompanied by a change: set_labels, remove_labels, description or \
                        protected";
            return Err(Invalid::new("vm", rule).into());
        }
        let vm = name.clone();
        let action = Action::Plain(Command::UpdateVm { vm, change });
        let known = name.clone();
        let vm = move |state: &State, _: &Reply| -> Option<v1::Vm> {
            state.vm(&known).map(|vm| write_vm(state, vm))
        };
        let request = caller.into_request(false, action);
        let (done, vm) = self.0.submit_then(request, vm).await?;
        if done.reply != Reply::None {
            return Err(refusal::mismatch());
        }
        // It may have been deleted since a request that is repeated.
        let vm = vm.ok_or_else(|| to_status(&Refusal::not_found("vm", &name)))?;
        Ok(Response::new(v1::UpdateVmResponse { vm: Some(vm) }))
    }

    async fn get_flavor(
        &self,
        request: Request<v1::GetFlavorRequest>,
    ) -> Result<Response<v1::GetFlavorResponse>, Status> {
        read::flavor(&self.0, request.into_inner()).await
    }

    async fn list_flavors(
        &self,
        request: Request<v1::ListFlavorsRequest>,
    ) -> Result<Response<v1::ListFlavorsResponse>, Status> {
        read::flavors(&self.0, request.into_inner()).await
    }

    async fn get_pci_alias(
        &self,
        request: Request<v1::GetPciAliasRequest>,
    ) -> Result<Response<v1::GetPciAliasResponse>, Status> {
        read::pci_alias(&self.0, request.into_inner()).await
    }

    async fn list_pci_aliases(
        &self,
        request: Request<v1::ListPciAliasesRequest>,
    ) -> Result<Response<v1::ListPciAliasesResponse>, Status> {
        read::pci_aliases(&self.0, request.into_inner()).await
    }

    async fn get_network(
        &self,
        request: Request<v1::GetNetworkRequest>,
    ) -> Result<Response<v1::GetNetworkResponse>, Status> {
        network::get(&self.0, request.into_inner()).await
    }

    async fn list_networks(
        &self,
        request: Request<v1::ListNetworksRequest>,
    ) -> Result<Response<v1::ListNetworksResponse>, Status> {
        network::list(&self.0, request.into_inner()).await
    }

    async fn get_vm(
        &self,
        request: Request<v1::GetVmRequest>,
    ) -> Result<Response<v1::GetVmResponse>, Status> {
        read::vm(&self.0, request.into_inner()).await
    }

    async fn list_vms(
        &self,
        request: Request<v1::ListVmsRequest>,
    ) -> Result<Response<v1::ListVmsResponse>, Status> {
        read::vms(&self.0, request.into_inner()).await
    }

    async fn get_migration(
        &self,
        request: Request<v1::GetMigrationRequest>,
    ) -> Result<Response<v1::GetMigrationResponse>, Status> {
        read::migration(&self.0, request.into_inner()).await
    }

    async fn list_migrations(
        &self,
        request: Request<v1::ListMigrationsRequest>,
    ) -> Result<Response<v1::ListMigrationsResponse>, Status> {
        read::migrations(&self.0, request.into_inner()).await
    }

    async fn get_claim(
        &self,
        request: Request<v1::GetClaimRequest>,
    ) -> Result<Response<v1::GetClaimResponse>, Status> {
        read::claim(&self.0, request.into_inner()).await
    }

    async fn list_claims(
        &self,
        request: Request<v1::ListClaimsRequest>,
    ) -> Result<Response<v1::ListClaimsResponse>, Status> {
        read::claims(&self.0, request.into_inner()).await
    }
}

pub(super) fn operation_of(reply: Reply) -> Result<Arc<Operation>, Status> {
    let Reply::Operation(operation) = reply else {
        return Err(refusal::mismatch());
    };
    Ok(operation)
}

fn schedule_vm(wire: v1::ScheduleVmRequest) -> Result<ScheduleVm, Invalid> {
    let template: VmTemplate = field::required(wire.template, "template")?;
    let uid: Option<VmUid> = field::optional_uuid(&wire.uid, "uid")?;
    // The scheduler adds it, for what is given in `first_boot`.
    if let Some(at) = template.disks.iter().position(|disk| disk.seed) {
        let rule = "must not be set: a VM with `first_boot` gets a seed";
        let field = format!("template.disks[{at}].seed");
        return Err(Invalid::new(field, rule));
    }
    Ok(ScheduleVm {
        operation: OperationId(Uuid::now_v7()),
        vm: field::name(&wire.vm, "vm")?,
        uid: uid.unwrap_or_else(|| VmUid(Uuid::new_v4())),
        claim: ClaimId(Uuid::now_v7()),
        flavor: template.flavor,
        boot: template.boot,
        disks: template.disks,
        nics: template.nics,
        image_properties: template.image_properties,
        hints: template.hints,
        volumes: template.volumes,
        host: field::optional_name(&wire.requested_host, "requested_host")?,
        lease: lease(&wire.conductor, wire.lease_ttl, wire.validate_only)?,
        project: Ownership::requested(template.project).project,
        restart: template.restart,
        first_boot: template.first_boot.map(Arc::new),
        metadata: template.metadata,
    })
}

fn schedule_migration(wire: v1::ScheduleMigrationRequest) -> Result<ScheduleMigration, Invalid> {
    let host: Option<HostName> = field::optional_name(&wire.requested_host, "requested_host")?;
    Ok(ScheduleMigration {
        operation: OperationId(Uuid::now_v7()),
        migration: MigrationId(Uuid::now_v7()),
        vm: field::name(&wire.vm, "vm")?,
        claim: ClaimId(Uuid::now_v7()),
        host,
        lease: lease(&wire.conductor, wire.lease_ttl, wire.validate_only)?,
        transfer: field::optional(wire.transfer, "transfer")?.unwrap_or_default(),
    })
}

/// Reads the lease of the conductor. A request that is only validated needs none.
pub(super) fn lease(
    conductor: &str,
    ttl: Option<Duration>,
    validate_only: bool,
) -> Result<LeaseRequest, Invalid> {
    if !validate_only || !conductor.is_empty() {
        return lease_request(conductor, ttl);
    }
    Ok(LeaseRequest {
        conductor: ServiceName::new("validate-only").map_err(Invalid::here)?,
        ttl_ms: field::LEASE_TTL_MS_MIN,
    })
}

pub(super) fn explain(choice: &Choice) -> v1::Explanation {
    let examined = &choice.examined;
    v1::Explanation {
        host: choice.host.resource_name(),
        resources: field::amounts(&choice.resources),
        assignment: Some((&choice.assignment).into()),
        hosts_considered: examined.hosts,
        hosts_fitting: examined.passed,
        warnings: choice.warnings.clone(),
        ..Default::default()
    }
}
