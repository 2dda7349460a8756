//! The reads of `berth.scheduler.v1.SchedulerService`.

use std::ops::Bound;

use berth_domain::claim::Claim;
use berth_domain::id::{ClaimId, MigrationId};
use berth_domain::migration::Migration;
use berth_domain::name::{FlavorName, HostName, PciAliasName, VmName};
use berth_domain::ownership::ProjectName;
use berth_domain::refusal::Refusal;
use berth_domain::vm::Vm;
use berth_proto::convert::ownership::read_project;
use berth_proto::convert::page::Page;
use berth_proto::convert::vm_metadata::read_selectors;
use berth_proto::convert::{Invalid, field};
use berth_proto::filter::Filter;
use berth_proto::scheduler::v1;
use berth_proto::status::to_status;
use berth_proto::types::v1::Flavor;
use berth_state::State;
use tonic::{Response, Status};

use super::context::Context;
use super::power::{write_vm, write_vm_for};
use super::{list, reality};

type Answer<T> = Result<Response<T>, Status>;

pub(super) async fn flavor(
    context: &Context,
    wire: v1::GetFlavorRequest,
) -> Answer<v1::GetFlavorResponse> {
    let name: FlavorName = field::name(&wire.name, "name")?;
    let state = context.state(wire.consistency).await?;
    let flavor = state.flavor(&name);
    let flavor = flavor.ok_or_else(|| to_status(&Refusal::not_found("flavor", &name)))?;
    Ok(Response::new(v1::GetFlavorResponse {
        flavor: Some((&**flavor).into()),
        revision: state.revision(),
    }))
}

pub(super) async fn flavors(
    context: &Context,
    wire: v1::ListFlavorsRequest,
) -> Answer<v1::ListFlavorsResponse> {
    let page = Page::filtered(wire.page_size, &wire.page_token, &wire.filter)?;
    let filter = Filter::new::<Flavor>(&wire.filter)?;
    let state = context.state(wire.consistency).await?;
    let listed = list::filtered(context, filter, move |filter| {
        let (flavors, next_page_token) = list::page(
            state.flavors(),
            &page,
            |text| FlavorName::new(text).ok(),
            FlavorName::to_string,
            |flavor| filter.matches_with(|| Flavor::from(flavor)),
        )?;
        Ok(v1::ListFlavorsResponse {
            flavors: flavors.iter().map(|flavor| (&**flavor).into()).collect(),
            next_page_token,
            revision: state.revision(),
        })
    });
    listed.await.map(Response::new)
}

pub(super) async fn pci_alias(
    context: &Context,
    wire: v1::GetPciAliasRequest,
) -> Answer<v1::GetPciAliasResponse> {
    let name: PciAliasName = field::name(&wire.name, "name")?;
    let state = context.state(wire.consistency).await?;
    let alias = state.pci_alias(&name);
    let alias = alias.ok_or_else(|| to_status(&Refusal::not_found("pci_alias", &name)))?;
    Ok(Response::new(v1::GetPciAliasResponse {
        pci_alias: Some((&**alias).into()),
        revision: state.revision(),
    }))
}

pub(super) async fn pci_aliases(
    context: &Context,
    wire: v1::ListPciAliasesRequest,
) -> Answer<v1::ListPciAliasesResponse> {
    let page = Page::new(wire.page_size, &wire.page_token)?;
    let state = context.state(wire.consistency).await?;
    let (aliases, next_page_token) = list::page(
        state.pci_aliases(),
        &page,
        |text| PciAliasName::new(text).ok(),
        PciAliasName::to_string,
        |_| true,
    )?;
    Ok(Response::new(v1::ListPciAliasesResponse {
        pci_aliases: aliases.iter().map(|alias| (&**alias).into()).collect(),
        next_page_token,
        revision: state.revision(),
    }))
}

pub(super) async fn vm(context: &Context, wire: v1::GetVmRequest) -> Answer<v1::GetVmResponse> {
    let name: VmName = field::name(&wire.name, "name")?;
    let state = context.state(wire.consistency).await?;
    let vm = state.vm(&name);
    let vm = vm.ok_or_else(|| to_status(&Refusal::not_found("vm", &name)))?;
    let claims = state.claims_of_vm(&name);
    Ok(Response::new(v1::GetVmResponse {
        vm: Some(v1::Vm {
            restart_obstacle: state.restart_obstacle(vm).unwrap_or_default(),
            ..write_vm(&state, vm)
        }),
        claims: claims.map(|claim| (&**claim).into()).collect(),
        revision: state.revision(),
        lost: reality::lost(&state, &name),
    }))
}

pub(super) async fn vms(
    context: &Context,
    wire: v1::ListVmsRequest,
) -> Answer<v1::ListVmsResponse> {
    let page = Page::filtered(wire.page_size, &wire.page_token, &wire.filter)?;
    let filter = Filter::new::<v1::Vm>(&wire.filter)?;
    let host: Option<HostName> = field::optional_name(&wire.host, "host")?;
    let project = read_project(&wire.project, "project")?;
    let labels = read_selectors(wire.labels, "labels")?;
    let state = context.state(wire.consistency).await?;
    let listed = list::filtered(context, filter, move |filter| {
        let keep = |vm: &Vm| {
            let is_there = host.is_none() || vm.host == host;
            is_there
                && labels
                    .iter()
                    .all(|label| label.matches(&vm.metadata.labels))
                && filter.matches_with(|| write_vm_for(filter, &state, vm))
        };
        match &project {
            Some(project) => vms_of_project(&state, &page, project, keep),
            None => vms_of_all(&state, &page, keep),
        }
    });
    listed.await.map(Response::new)
}

/// Returns a page of the VMs of all projects.
fn vms_of_all(
    state: &State,
    page: &Page,
    keep: impl Fn(&Vm) -> bool,
) -> Result<v1::ListVmsResponse, Invalid> {
    let (vms, next_page_token) = list::page(
        state.vms(),
        page,
        |text| VmName::new(text).ok(),
        VmName::to_string,
        keep,
    )?;
    Ok(v1::ListVmsResponse {
        vms: vms.iter().map(|vm| write_vm(state, vm)).collect(),
        next_page_token,
        revision: state.revision(),
    })
}

/// Returns a page of the VMs of a project, which are looked up rather than searched for.
fn vms_of_project(
    state: &State,
    page: &Page,
    project: &ProjectName,
    keep: impl Fn(&Vm) -> bool,
) -> Result<v1::ListVmsResponse, Invalid> {
    let after = list::after(page, |text| VmName::new(text).ok())?;
    let after = after.map_or(Bound::Unbounded, Bound::Excluded);
    let names = state.vms_of_project(project.as_str()).into_iter();
    let names = names.flat_map(|vms| vms.range((after.clone(), Bound::Unbounded)));
    let vms = names.filter_map(|name| state.vm(name));
    let (vms, next_page_token) = page.cut(vms.filter(|vm| keep(vm)), |vm| vm.name.to_string());
    Ok(v1::ListVmsResponse {
        vms: vms.into_iter().map(|vm| write_vm(state, vm)).collect(),
        next_page_token,
        revision: state.revision(),
    })
}

pub(super) async fn migration(
    context: &Context,
    wire: v1::GetMigrationRequest,
) -> Answer<v1::GetMigrationResponse> {
    let id: MigrationId = field::name(&wire.name, "name")?;
    let state = context.state(wire.consistency).await?;
    let migration = state.migration(id);
    let migration = migration.ok_or_else(|| to_status(&Refusal::not_found("migration", id)))?;
    Ok(Response::new(v1::GetMigrationResponse {
        migration: Some((&**migration).into()),
        revision: state.revision(),
    }))
}

pub(super) async fn migrations(
    context: &Context,
    wire: v1::ListMigrationsRequest,
) -> Answer<v1::ListMigrationsResponse> {
    let page = Page::filtered(wire.page_size, &wire.page_token, &wire.filter)?;
    let filter = Filter::new::<v1::Migration>(&wire.filter)?;
    let vm: Option<VmName> = field::optional_name(&wire.vm, "vm")?;
    let state = context.state(wire.consistency).await?;
    let listed = list::filtered(context, filter, move |filter| {
        let (migrations, next_page_token) = list::page(
            state.migrations(),
            &page,
            |text| text.parse().ok(),
            MigrationId::to_string,
            |migration: &Migration| {
                vm.as_ref().is_none_or(|vm| migration.vm == *vm)
                    && filter.matches_with(|| v1::Migration::from(migration))
            },
        )?;
        Ok(v1::ListMigrationsResponse {
            migrations: migrations.iter().map(|m| (&**m).into()).collect(),
            next_page_token,
            revision: state.revision(),
        })
    });
    listed.await.map(Response::new)
}

pub(super) async fn claim(
    context: &Context,
    wire: v1::GetClaimRequest,
) -> Answer<v1::GetClaimResponse> {
    let id: ClaimId = field::name(&wire.name, "name")?;
    let state = context.state(wire.consistency).await?;
    let claim = state.claim(id);
    let claim = claim.ok_or_else(|| to_status(&Refusal::not_found("claim", id)))?;
    Ok(Response::new(v1::GetClaimResponse {
        claim: Some((&**claim).into()),
        revision: state.revision(),
    }))
}

pub(super) async fn claims(
    context: &Context,
    wire: v1::ListClaimsRequest,
) -> Answer<v1::ListClaimsResponse> {
    let page = Page::new(wire.page_size, &wire.page_token)?;
    let host: Option<HostName> = field::optional_name(&wire.host, "host")?;
    let vm: Option<VmName> = field::optional_name(&wire.vm, "vm")?;
    let state = context.state(wire.consistency).await?;
    let keep = |claim: &Claim| {
        host.as_ref().is_none_or(|host| claim.host == *host)
            && vm.as_ref().is_none_or(|vm| claim.vm == *vm)
    };
    let parse = |text: &str| text.parse().ok();
    let (claims, next_page_token) = match (&vm, &host) {
        (None, None) => list::page(state.claims(), &page, parse, ClaimId::to_string, keep),
        // These have indexes of their own.
        (Some(vm), _) => {
            let claims = state.claims_of_vm(vm).map(|c| (c.id, c.clone()));
            list::page(&claims.collect(), &page, parse, ClaimId::to_string, keep)
        }
        (None, Some(host)) => {
            let claims = state.claims_of_host(host).map(|c| (c.id, c.clone()));
            list::page(&claims.collect(), &page, parse, ClaimId::to_string, keep)
        }
    }?;
    Ok(Response::new(v1::ListClaimsResponse {
        claims: claims.iter().map(|claim| (&**claim).into()).collect(),
        next_page_token,
        revision: state.revision(),
    }))
}
