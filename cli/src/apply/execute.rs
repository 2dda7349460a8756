//! Carries a plan out: in its order, and VMs several at a time.
//!
//! Not here: what is done (`plan`).
//!
//! Invariant: what is changed is what the plan has seen, where the API can tell: aggregates and the policy by
//! their generation, new resources by their name, VMs that are deleted by their identifier.

use std::collections::BTreeMap;

use anyhow::bail;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::vm::LabelSelector;
use berth_proto::conductor::v1::{CreateVmRequest, DeleteVmRequest};
use berth_proto::policy::v1::aggregate_service_client::AggregateServiceClient;
use berth_proto::policy::v1::server_group_service_client::ServerGroupServiceClient;
use berth_proto::policy::v1::{
    Aggregate, CreateAggregateRequest, CreateServerGroupRequest, UpdateAggregateRequest,
    UpdateSchedulingPolicyRequest,
};
use berth_proto::scheduler::v1::power_service_client::PowerServiceClient;
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::scheduler::v1::{
    CreateFlavorRequest, CreateNetworkRequest, CreatePciAliasRequest, UpdateRestartPolicyRequest,
    UpdateVmRequest,
};
use berth_proto::types::v1::VmTemplate;

use super::document::describe;
use super::existing;
use super::kind::Kind;
use super::plan::{Action, Entry, Existing};
use super::resource::{self, Resource};
use super::settings::{Keys, Settings};
use crate::session::{Session, conduct, request_id, resource as name_of};
use crate::{call, image, output, policy, progress, vm};

/// How many VMs are created or deleted at a time.
const AT_A_TIME: usize = 16;

/// The reason of a refusal of what is not any more as the plan has seen it.
pub(super) const CHANGED_MEANWHILE: &str = "CHANGED_MEANWHILE";

/// What became of an entry of a plan.
pub(super) type Outcome = Result<(), anyhow::Error>;

/// Carries a plan out and returns what became of each entry that there was something to do for, by its
/// position. After a failure of what VMs need no VM is created, and after any failure none is deleted.
pub(super) async fn run(
    session: &Session,
    entries: &[Entry],
    labels: &[LabelSelector],
) -> BTreeMap<usize, Outcome> {
    let mut outcomes = BTreeMap::new();
    let is_vm = |entry: &Entry| entry.key.0 == Kind::Vm;
    for (at, entry) in entries.iter().enumerate().filter(|(_, e)| !is_vm(e)) {
        if entry.action == Action::Unchanged {
            continue;
        }
        let outcome = change(session, entry).await;
        let is_failed = outcome.is_err();
        report(session, entry, &outcome);
        outcomes.insert(at, outcome);
        if is_failed {
            return outcomes;
        }
    }
    for is_deletion in [false, true] {
        if is_deletion && outcomes.values().any(Result::is_err) {
            break;
        }
        let due = entries.iter().enumerate().filter(|(_, entry)| {
            let is_due = entry.action != Action::Unchanged || building(entry).is_some();
            is_vm(entry) && is_due && (entry.action == Action::Delete) == is_deletion
        });
        let due: Vec<(usize, &Entry)> = due.collect();
        for some in due.chunks(AT_A_TIME) {
            together(session, some, labels, &mut outcomes).await;
        }
    }
    outcomes
}

/// Returns the operation that still builds a VM.
fn building(entry: &Entry) -> Option<&String> {
    entry.existing.as_ref()?.vm.as_ref()?.building.as_ref()
}

/// Begins what is due of some VMs, and waits for all of it.
async fn together(
    session: &Session,
    due: &[(usize, &Entry)],
    labels: &[LabelSelector],
    outcomes: &mut BTreeMap<usize, Outcome>,
) {
    let mut begun = Vec::new();
    for (at, entry) in due {
        match begin(session, entry, labels).await {
            Ok(operation) => begun.push((*at, *entry, operation)),
            Err(error) => {
                let outcome = Err(error);
                report(session, entry, &outcome);
                outcomes.insert(*at, outcome);
            }
        }
    }
    for (at, entry, operation) in begun {
        let outcome = end(session, entry, operation).await;
        report(session, entry, &outcome);
        outcomes.insert(at, outcome);
    }
}

/// Begins what is due of a VM; returns the operation to wait for, if there is one.
async fn begin(
    session: &Session,
    entry: &Entry,
    labels: &[LabelSelector],
) -> anyhow::Result<Option<String>> {
    match (entry.action, &entry.declared) {
        (Action::Create, Some(Resource::Vm(template))) => {
            create_vm(session, &entry.key.1, template).await.map(Some)
        }
        (Action::Delete, _) => delete_vm(session, entry, labels).await,
        (Action::Change, _) => {
            change(session, entry).await?;
            Ok(building(entry).cloned())
        }
        (Action::Create | Action::RecreateNeeded | Action::Unchanged, _) => {
            Ok(building(entry).cloned())
        }
    }
}

/// Waits for the end of what has begun.
async fn end(session: &Session, entry: &Entry, operation: Option<String>) -> Outcome {
    if let Some(operation) = operation {
        if !session.for_programs() {
            output::message(format!("{}:", describe(entry.key.0, &entry.key.1)));
        }
        progress::follow(session, &operation).await?;
    }
    if let (Action::Create, Some(Resource::Vm(template))) = (entry.action, &entry.declared) {
        vm::check_created(session, &entry.key.1, template).await?;
    }
    Ok(())
}

async fn create_vm(session: &Session, name: &str, declared: &VmTemplate) -> anyhow::Result<String> {
    let mut template = declared.clone();
    for disk in &mut template.disks {
        if let Some(image) = &disk.image
            && disk.format == 0
            && let Some(format) = image::format_of(session, image).await?
        {
            disk.format = berth_proto::types::v1::disk::Format::from(format).into();
        }
    }
    let request = CreateVmRequest {
        vm: name_of("vms", name),
        template: Some(resource::with_formats(template)),
        requested_host: String::new(),
        request_id: request_id(None),
    };
    let operation = vm::begin_create(session, request).await?;
    Ok(operation.unwrap_or_default().name)
}

/// Begins the deletion of a VM that still is the one that the plan has seen, with its labels.
async fn delete_vm(
    session: &Session,
    entry: &Entry,
    labels: &[LabelSelector],
) -> anyhow::Result<Option<String>> {
    let Some(now) = existing::get(session, &entry.key).await? else {
        return Ok(None);
    };
    let uid = |existing: &Existing| existing.vm.as_ref().map(|vm| vm.uid.clone());
    let is_labelled = now.resource.has_labels(labels);
    if entry.existing.as_ref().and_then(uid) != uid(&now) || !is_labelled {
        let message = format!("vm {} was created again, or lost its label", entry.key.1);
        let refusal = Refusal::new(Code::Aborted, CHANGED_MEANWHILE, message);
        bail!(refusal.with_hint("apply again"));
    }
    let request = DeleteVmRequest {
        vm: name_of("vms", &entry.key.1),
        request_id: request_id(None),
    };
    let operation = conduct!(session.conductor().await?, delete_vm, request)?.operation;
    Ok(operation.map(|operation| operation.name))
}

/// Creates or changes a resource by requests that are done when they return.
async fn change(session: &Session, entry: &Entry) -> Outcome {
    let Some(declared) = &entry.declared else {
        return Ok(());
    };
    match (declared, &entry.existing) {
        (Resource::Aggregate(new), Some(existing)) => {
            update_aggregate(session, new, existing).await
        }
        (Resource::SchedulingPolicy(new), Some(existing)) => {
            update_policy(session, new, existing).await
        }
        (Resource::Vm(new), Some(existing)) => {
            update_vm(session, &entry.key.1, new, existing).await
        }
        (declared, _) => create(session, declared.clone()).await,
    }
}

async fn create(session: &Session, declared: Resource) -> Outcome {
    let request_id = request_id(None);
    match declared {
        Resource::PciAlias(alias) => {
            let request = CreatePciAliasRequest {
                pci_alias: Some(alias),
                request_id,
            };
            call!(session, SchedulerServiceClient, create_pci_alias, request)?;
        }
        Resource::Network(network) => {
            let request = CreateNetworkRequest {
                network: Some(network),
                request_id,
            };
            call!(session, SchedulerServiceClient, create_network, request)?;
        }
        Resource::Flavor(flavor) => {
            let request = CreateFlavorRequest {
                flavor: Some(flavor),
                request_id,
            };
            call!(session, SchedulerServiceClient, create_flavor, request)?;
        }
        Resource::Aggregate(aggregate) => {
            let request = CreateAggregateRequest {
                aggregate: Some(aggregate),
                request_id,
            };
            call!(session, AggregateServiceClient, create_aggregate, request)?;
        }
        Resource::ServerGroup(group) => {
            let request = CreateServerGroupRequest {
                server_group: Some(group),
                request_id,
            };
            call!(
                session,
                ServerGroupServiceClient,
                create_server_group,
                request
            )?;
        }
        // The policy is there always, and VMs are created by operations.
        Resource::SchedulingPolicy(_) | Resource::Vm(_) => {}
    }
    Ok(())
}

async fn update_aggregate(session: &Session, new: &Aggregate, existing: &Existing) -> Outcome {
    let Resource::Aggregate(old) = &existing.resource else {
        return Ok(());
    };
    let without = |of: &[String], other: &[String]| -> Vec<String> {
        let of = of.iter().filter(|host| !other.contains(host));
        of.cloned().collect()
    };
    let request = UpdateAggregateRequest {
        name: new.name.clone(),
        add_hosts: without(&new.hosts, &old.hosts),
        remove_hosts: without(&old.hosts, &new.hosts),
        set_metadata: more(&new.metadata, &old.metadata),
        unset_metadata: missing(&old.metadata, &new.metadata),
        generation: Some(existing.generation),
        request_id: request_id(None),
    };
    call!(session, AggregateServiceClient, update_aggregate, request)?;
    Ok(())
}

/// Returns what of a map another one has not, or has with another value.
fn more(new: &Keys, old: &Keys) -> Keys {
    let entries = new
        .iter()
        .filter(|(key, value)| old.get(*key) != Some(*value));
    entries
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Returns the keys of a map that another one has not.
fn missing(old: &Keys, new: &Keys) -> Vec<String> {
    old.keys()
        .filter(|key| !new.contains_key(*key))
        .cloned()
        .collect()
}

/// Sets what differs of the policy: a request for the cluster, and one for each group and host.
async fn update_policy(session: &Session, new: &Settings, existing: &Existing) -> Outcome {
    let Resource::SchedulingPolicy(old) = &existing.resource else {
        return Ok(());
    };
    let due = new.beyond(old);
    let cluster = (!due.cluster.is_empty()).then(|| (due.cluster, String::new(), String::new()));
    let groups = due.groups.into_iter();
    let groups = groups.map(|(name, keys)| (keys, name_of("aggregates", &name), String::new()));
    let hosts = due.hosts.into_iter();
    let hosts = hosts.map(|(name, keys)| (keys, String::new(), name_of("hosts", &name)));
    let mut generation = existing.generation;
    for (settings, group, host) in cluster.into_iter().chain(groups).chain(hosts) {
        let request = UpdateSchedulingPolicyRequest {
            settings,
            generation: Some(generation),
            request_id: request_id(None),
            unset: Vec::new(),
            group,
            host,
        };
        generation = policy::update(session, request).await?.generation;
    }
    Ok(())
}

async fn update_vm(
    session: &Session,
    name: &str,
    new: &VmTemplate,
    existing: &Existing,
) -> Outcome {
    let Resource::Vm(old) = &existing.resource else {
        return Ok(());
    };
    let request = UpdateVmRequest {
        vm: name_of("vms", name),
        set_labels: more(&new.labels, &old.labels),
        remove_labels: missing(&old.labels, &new.labels),
        description: (new.description != old.description).then(|| new.description.clone()),
        protected: (new.protected != old.protected).then_some(new.protected),
        request_id: request_id(None),
    };
    let is_changed = !request.set_labels.is_empty()
        || !request.remove_labels.is_empty()
        || request.description.is_some()
        || request.protected.is_some();
    if is_changed {
        call!(session, SchedulerServiceClient, update_vm, request)?;
    }
    if new.restart_policy != old.restart_policy {
        let request = UpdateRestartPolicyRequest {
            vm: name_of("vms", name),
            policy: Some(new.restart_policy.unwrap_or_default()),
            request_id: request_id(None),
        };
        call!(session, PowerServiceClient, update_restart_policy, request)?;
    }
    Ok(())
}

/// Reports what became of a resource. What has failed is reported at the end.
fn report(session: &Session, entry: &Entry, outcome: &Outcome) {
    if session.for_programs() {
        return;
    }
    let what = describe(entry.key.0, &entry.key.1);
    let sentence = match (outcome, entry.action) {
        (Err(_), _) => format!("{what} has failed"),
        (Ok(()), Action::Create) => format!("{what} is created"),
        (Ok(()), Action::Change) => format!("{what} is changed"),
        (Ok(()), Action::Delete) => format!("{what} is deleted"),
        (Ok(()), Action::Unchanged | Action::RecreateNeeded) => format!("{what} is built"),
    };
    output::message(sentence);
}
