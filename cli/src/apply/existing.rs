//! What is there: the declared resources, what they name, and the VMs that are pruned.
//!
//! Not here: what becomes of them (`plan`).
//!
//! Invariant: it only reads.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::policy::SchedulingPolicy;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::vm::LabelSelector;
use berth_proto::host::v1::GetHostRequest;
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::policy::v1::aggregate_service_client::AggregateServiceClient;
use berth_proto::policy::v1::policy_service_client::PolicyServiceClient;
use berth_proto::policy::v1::server_group_service_client::ServerGroupServiceClient;
use berth_proto::policy::v1::{
    GetAggregateRequest, GetSchedulingPolicyRequest, GetServerGroupRequest,
};
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::scheduler::v1::vm::State;
use berth_proto::scheduler::v1::{
    GetFlavorRequest, GetNetworkRequest, GetPciAliasRequest, GetVmRequest, ListVmsRequest, Vm,
};

use super::document::Declared;
use super::kind::Kind;
use super::plan::{Existing, Key, VmStatus, World, hosts_named, references};
use super::resource::Resource;
use super::settings::Settings;
use crate::session::{Session, resource, short};
use crate::{all_pages, read};

/// Reads what is there of these resources, and the VMs that have all of these labels, if there are any labels.
///
/// # Errors
///
/// The scheduler's refusal.
pub(super) async fn read_world(
    session: &Session,
    declared: &[Declared],
    labels: &[LabelSelector],
) -> anyhow::Result<World> {
    let mut world = World::default();
    for one in declared {
        let key = (one.resource.kind(), one.name.clone());
        if let Some(existing) = get(session, &key).await? {
            world.existing.insert(key, existing);
        }
    }
    let named: BTreeSet<Key> = declared
        .iter()
        .flat_map(|one| references(&one.resource))
        .collect();
    for key in named {
        if world.existing.contains_key(&key) || get(session, &key).await?.is_some() {
            world.references.insert(key);
        }
    }
    let hosts: BTreeSet<String> = declared
        .iter()
        .flat_map(|one| hosts_named(&one.resource))
        .collect();
    for host in hosts {
        if has_host(session, &host).await? {
            world.hosts.insert(host);
        }
    }
    if !labels.is_empty() {
        for (name, existing) in labelled(session, labels).await? {
            world.labelled.insert(name.clone());
            world.existing.entry((Kind::Vm, name)).or_insert(existing);
        }
    }
    Ok(world)
}

/// Returns a resource, if it is there.
///
/// # Errors
///
/// The scheduler's refusal.
pub(super) async fn get(session: &Session, key: &Key) -> anyhow::Result<Option<Existing>> {
    let (kind, name) = key;
    let name = resource(kind.collection(), name);
    let read = match kind {
        Kind::PciAlias => pci_alias(session, name).await,
        Kind::Network => network(session, name).await,
        Kind::Flavor => flavor(session, name).await,
        Kind::Aggregate => aggregate(session, name).await,
        Kind::ServerGroup => server_group(session, name).await,
        Kind::SchedulingPolicy => return policy(session).await.map(Some),
        Kind::Vm => vm(session, name).await,
    };
    match read {
        Ok(existing) => Ok(Some(existing)),
        Err(refusal) if refusal.code == Code::NotFound => Ok(None),
        Err(refusal) => Err(refusal.into()),
    }
}

async fn has_host(session: &Session, name: &str) -> anyhow::Result<bool> {
    let request = GetHostRequest {
        name: resource("hosts", name),
        ..Default::default()
    };
    match read!(session, HostServiceClient, get_host, request) {
        Ok(_) => Ok(true),
        Err(refusal) if refusal.code == Code::NotFound => Ok(false),
        Err(refusal) => Err(refusal.into()),
    }
}

fn of(resource: Resource) -> Existing {
    Existing {
        resource,
        generation: 0,
        vm: None,
    }
}

async fn pci_alias(session: &Session, name: String) -> Result<Existing, Refusal> {
    let request = GetPciAliasRequest {
        name,
        ..Default::default()
    };
    let response = read!(session, SchedulerServiceClient, get_pci_alias, request)?;
    Ok(of(Resource::PciAlias(
        response.pci_alias.unwrap_or_default(),
    )))
}

async fn network(session: &Session, name: String) -> Result<Existing, Refusal> {
    let request = GetNetworkRequest {
        name,
        ..Default::default()
    };
    let response = read!(session, SchedulerServiceClient, get_network, request)?;
    let network = response.network.unwrap_or_default();
    Ok(of(Resource::of_network(network)))
}

async fn flavor(session: &Session, name: String) -> Result<Existing, Refusal> {
    let request = GetFlavorRequest {
        name,
        ..Default::default()
    };
    let response = read!(session, SchedulerServiceClient, get_flavor, request)?;
    Ok(of(Resource::of_flavor(response.flavor.unwrap_or_default())))
}

async fn aggregate(session: &Session, name: String) -> Result<Existing, Refusal> {
    let request = GetAggregateRequest {
        name,
        ..Default::default()
    };
    let response = read!(session, AggregateServiceClient, get_aggregate, request)?;
    let aggregate = response.aggregate.unwrap_or_default();
    Ok(Existing {
        generation: aggregate.generation,
        ..of(Resource::of_aggregate(aggregate))
    })
}

async fn server_group(session: &Session, name: String) -> Result<Existing, Refusal> {
    let request = GetServerGroupRequest {
        name,
        ..Default::default()
    };
    let response = read!(session, ServerGroupServiceClient, get_server_group, request)?;
    let group = response.server_group.unwrap_or_default();
    Ok(of(Resource::of_server_group(group)))
}

async fn policy(session: &Session) -> anyhow::Result<Existing> {
    let request = GetSchedulingPolicyRequest::default();
    let response = read!(session, PolicyServiceClient, get_scheduling_policy, request)?;
    let policy: SchedulingPolicy = response.policy.unwrap_or_default().try_into()?;
    Ok(Existing {
        resource: Resource::SchedulingPolicy(Settings::of(&policy)),
        generation: policy.generation.0,
        vm: None,
    })
}

async fn vm(session: &Session, name: String) -> Result<Existing, Refusal> {
    let request = GetVmRequest {
        name,
        ..Default::default()
    };
    let response = read!(session, SchedulerServiceClient, get_vm, request)?;
    Ok(of_vm(response.vm.unwrap_or_default()))
}

/// Returns a VM as it is there.
pub(super) fn of_vm(vm: Vm) -> Existing {
    let state = vm.state();
    let is_building = state == State::Building && !vm.operation.is_empty();
    let status = VmStatus {
        uid: vm.uid.clone(),
        building: is_building.then(|| vm.operation.clone()),
        is_deleting: state == State::Deleting,
        is_failed: state == State::Error,
        is_resized: state == State::Resized,
    };
    Existing {
        vm: Some(status),
        ..of(Resource::of_vm(vm))
    }
}

/// Returns the VMs that have all of these labels, by their names.
async fn labelled(
    session: &Session,
    labels: &[LabelSelector],
) -> anyhow::Result<BTreeMap<String, Existing>> {
    let request = ListVmsRequest {
        labels: labels.iter().map(ToString::to_string).collect(),
        ..Default::default()
    };
    let vms = all_pages!(session, SchedulerServiceClient, list_vms, request, vms);
    let vms = vms.into_iter();
    // A scheduler that does not know labels returns every VM.
    let vms = vms.filter(|vm| labels.iter().all(|label| label.matches(&vm.labels)));
    Ok(vms
        .map(|vm| (short(&vm.name).to_owned(), of_vm(vm)))
        .collect())
}
