//! `/allocations`, `/allocations/{consumer}` and `/resource_providers/{uuid}/allocations`.
//!
//! Claims of Berth are consumers too. They are shown here and not written: their consumer has the
//! project of its VM, the VM as its user and the type `BERTH_CLAIM`.

use std::collections::BTreeMap;

use berth_domain::allocation::{Consumer, ConsumerGeneration, ConsumerUpdate, Resources};
use berth_domain::claim::Claim;
use berth_domain::id::{ClaimId, ConsumerId, Generation, ProviderId, TimeMs};
use berth_domain::ownership::DEFAULT_PROJECT;
use berth_domain::refusal::Refusal;
use berth_domain::resource::{ConsumerType, ResourceClass};
use berth_state::State;
use berth_state::command::Command;
use berth_state::placement::CLAIM_CONSUMER_TYPE;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::shared::{fact, find, no_class, whole};
use crate::call::Call;
use crate::fault::{Fault, code, quoted};
use crate::reply::Reply;
use crate::{refused, schemas, uuids};

/// Stands for project and user before 1.8, as in OpenStack Placement.
const NO_OWNER: Uuid = Uuid::nil();
/// A claim does not change as long as it is there.
const CLAIM_GENERATION: u64 = 1;

pub(super) async fn show(call: &Call<'_>, text: &str) -> Result<Reply, Fault> {
    let state = call.state().await?;
    let id = uuids::exact(text);
    if let Some(consumer) = id.and_then(|id| state.consumer(ConsumerId(id))) {
        let allocations = consumer.allocations.iter();
        let allocations = allocations.filter_map(|(id, taken)| shown(&state, *id, taken));
        let owner = Owner {
            project: consumer.project.clone(),
            user: consumer.user.clone(),
            generation: consumer.generation.0,
            kind: consumer
                .consumer_type
                .as_ref()
                .map_or("unknown", ConsumerType::as_str),
        };
        let body = owner.add_to(call, json!({"allocations": Map::from_iter(allocations)}));
        return Ok(Reply::json(&body)?.modified(consumer.updated_at));
    }
    let body = match id.and_then(|id| state.claim(ClaimId(id))) {
        Some(claim) => of_claim(call, &state, claim),
        None => json!({"allocations": {}}),
    };
    Ok(Reply::json(&body)?.modified(call.now()))
}

/// Whose allocations they are.
struct Owner<'c> {
    project: String,
    user: String,
    generation: u64,
    kind: &'c str,
}

impl Owner<'_> {
    fn add_to(&self, call: &Call<'_>, mut body: Value) -> Value {
        if call.has(12) {
            body["project_id"] = (&*self.project).into();
            body["user_id"] = (&*self.user).into();
        }
        if call.has(28) {
            body["consumer_generation"] = self.generation.into();
        }
        if call.has(38) {
            body["consumer_type"] = self.kind.into();
        }
        body
    }
}

fn of_claim(call: &Call<'_>, state: &State, claim: &Claim) -> Value {
    let root = state
        .hosts()
        .get(&claim.host)
        .map(|view| view.host.provider);
    let allocations = root.and_then(|root| shown(state, root, &claim.resources));
    let vm = state.vm(&claim.vm);
    let project = vm.map_or(DEFAULT_PROJECT, |vm| vm.ownership.project_name());
    let owner = Owner {
        project: project.to_owned(),
        user: claim.vm.to_string(),
        generation: CLAIM_GENERATION,
        kind: CLAIM_CONSUMER_TYPE,
    };
    owner.add_to(call, json!({"allocations": Map::from_iter(allocations)}))
}

fn shown(state: &State, id: ProviderId, resources: &Resources) -> Option<(String, Value)> {
    let generation = state.provider(id)?.generation.0;
    let shown = json!({"resources": resources, "generation": generation});
    Some((id.to_string(), shown))
}

pub(super) async fn of_provider(call: &Call<'_>, id: &str) -> Result<Reply, Fault> {
    let (id, has_generation, now) = (id.to_owned(), call.has(28), call.now());
    // A provider may have as many consumers as there are.
    let allocations = call.search("allocations", move |state, _| {
        taken_of(state, &id, has_generation, now)
    });
    allocations.await
}

fn taken_of(state: &State, id: &str, has_generation: bool, now: TimeMs) -> Result<Reply, Fault> {
    let provider = find(state, id)?;
    let entry = |resources: &Resources, generation: u64| {
        let mut entry = json!({"resources": resources});
        if has_generation {
            entry["consumer_generation"] = generation.into();
        }
        entry
    };
    let consumers: Vec<&Consumer> = state.consumers_of(provider.id).map(|c| &**c).collect();
    let modified = consumers.iter().map(|consumer| consumer.updated_at).max();
    let taken = consumers.into_iter().filter_map(|consumer| {
        let resources = consumer.allocations.get(&provider.id)?;
        Some((
            consumer.id.to_string(),
            entry(resources, consumer.generation.0),
        ))
    });
    let mut allocations: Map<String, Value> = taken.collect();
    // What a claim takes is taken from the root of its host's tree.
    if let Some(host) = provider.host.as_ref().filter(|_| provider.is_root()) {
        let claims = state.claims_of_host(host);
        allocations.extend(claims.map(|claim| {
            (
                claim.id.to_string(),
                entry(&claim.resources, CLAIM_GENERATION),
            )
        }));
    }
    let body = json!({
        "allocations": allocations,
        "resource_provider_generation": provider.generation.0,
    });
    Ok(Reply::json(&body)?.modified(modified.unwrap_or(now)))
}

pub(super) async fn replace(call: &Call<'_>, text: &str) -> Result<Reply, Fault> {
    let consumer = uuids::parse(text).ok_or_else(|| malformed(text))?;
    let body = call.read(schemas::allocations(call.version))?;
    let update = read(call, consumer, &body)
        .map_err(|invalid| invalid.into_fault(&format!(" for consumer {consumer}:")))?;
    write(call, vec![update], &format!(" for consumer {consumer}:")).await
}

fn malformed(text: &str) -> Fault {
    Fault::bad_request(format!("Malformed consumer_uuid: {}", quoted(text)))
}

pub(super) async fn replace_all(call: &Call<'_>) -> Result<Reply, Fault> {
    let body = call.read(schemas::all_allocations(call.version))?;
    let updates = read_all(call, &body).map_err(|invalid| invalid.into_fault(""))?;
    write(call, updates, "").await
}

async fn write(
    call: &Call<'_>,
    consumers: Vec<ConsumerUpdate>,
    consumer_suffix: &str,
) -> Result<Reply, Fault> {
    match call.command(Command::SetAllocations { consumers }).await {
        Ok(_) => Ok(Reply::done()),
        Err(refusal) => Err(not_written(&refusal, consumer_suffix)),
    }
}

/// Why a body of allocations is invalid, whatever the state is.
pub(super) enum InvalidBody {
    /// It names a class that cannot exist.
    Class(String),
    /// It names a provider that cannot exist, or a consumer.
    Other(Fault),
}

impl InvalidBody {
    fn into_fault(self, consumer_suffix: &str) -> Fault {
        match self {
            Self::Class(name) => unknown_class(&name, consumer_suffix),
            Self::Other(fault) => fault,
        }
    }

    /// Returns the fault as the reshaper words it.
    pub(super) fn into_reshape_fault(self) -> Fault {
        match self {
            Self::Class(name) => {
                Fault::bad_request(format!("malformed reshaper data: {}", no_class(&name)))
            }
            Self::Other(fault) => fault,
        }
    }
}

fn unknown_class(name: &str, consumer_suffix: &str) -> Fault {
    let why = no_class(name);
    Fault::bad_request(format!(
        "Unable to allocate inventory{consumer_suffix} {why}"
    ))
}

/// Returns the error for allocations that the state refuses.
pub(super) fn not_written(refusal: &Refusal, consumer_suffix: &str) -> Fault {
    let (class, provider) = (fact(refusal, "class"), fact(refusal, "provider"));
    let unable = |why: &str| {
        Fault::conflict(format!(
            "Unable to allocate inventory: Unable to create allocation for '{class}' on resource \
             provider '{provider}'. The requested amount would {why}."
        ))
    };
    match &*refusal.reason {
        "PROVIDER_NOT_FOUND" => no_such_provider(provider),
        "UNKNOWN_RESOURCE_CLASS" => unknown_class(class, consumer_suffix),
        "NO_INVENTORY" => Fault::conflict(format!(
            "Unable to allocate inventory: Inventory for '{class}' on resource provider \
             '{provider}' invalid."
        )),
        "INVENTORY_CONSTRAINTS" => unable("violate inventory constraints"),
        "CAPACITY_EXCEEDED" => unable("exceed the capacity"),
        "CONSUMER_GENERATION" => {
            let (expected, got) = (fact(refusal, "expected"), fact(refusal, "got"));
            let detail = format!(
                "consumer generation conflict - expected {expected} but got {got} (consumer {})",
                fact(refusal, "consumer")
            );
            Fault::conflict(detail).with_code(code::CONCURRENT_UPDATE)
        }
        _ => refused::in_general(refusal),
    }
}

fn no_such_provider(text: &str) -> Fault {
    let text = quoted(text);
    Fault::bad_request(format!(
        "Allocation for resource provider '{text}' that does not exist."
    ))
}

/// Reads the consumers of a body that holds several.
pub(super) fn read_all(call: &Call<'_>, body: &Value) -> Result<Vec<ConsumerUpdate>, InvalidBody> {
    let consumers = body.as_object().into_iter().flatten();
    let updates = consumers.map(|(text, body)| {
        let consumer = uuids::parse(text).ok_or_else(|| InvalidBody::Other(malformed(text)))?;
        read(call, consumer, body)
    });
    updates.collect()
}

/// Reads what one consumer takes, from a body that the schema has let through.
fn read(call: &Call<'_>, consumer: Uuid, body: &Value) -> Result<ConsumerUpdate, InvalidBody> {
    let mut allocations = BTreeMap::new();
    for (provider, resources) in pairs(&body["allocations"]) {
        let id = match call.has(12) {
            true => uuids::exact(provider),
            false => uuids::parse(provider),
        };
        let id = id.ok_or_else(|| InvalidBody::Other(no_such_provider(provider)))?;
        allocations.insert(ProviderId(id), read_amounts(resources)?);
    }
    let owner = |key: &str| match body[key].as_str() {
        Some(text) => text.to_owned(),
        None => NO_OWNER.to_string(),
    };
    let kind = body["consumer_type"].as_str();
    Ok(ConsumerUpdate {
        consumer: ConsumerId(consumer),
        generation: expected(call, &body["consumer_generation"]),
        project: owner("project_id"),
        user: owner("user_id"),
        consumer_type: kind.and_then(|kind| ConsumerType::new(kind).ok()),
        allocations,
    })
}

fn expected(call: &Call<'_>, generation: &Value) -> ConsumerGeneration {
    if !call.has(28) {
        return ConsumerGeneration::Any;
    }
    if generation.is_null() {
        return ConsumerGeneration::New;
    }
    // No consumer gets as far as what cannot be read.
    ConsumerGeneration::Exactly(Generation(whole(generation).unwrap_or(u64::MAX)))
}

/// Returns the providers and what is taken of them, of a list (before 1.12) or an object.
fn pairs(allocations: &Value) -> Vec<(&str, &Value)> {
    if let Some(items) = allocations.as_array() {
        let pairs = items.iter().filter_map(|item| {
            let provider = item["resource_provider"]["uuid"].as_str()?;
            Some((provider, &item["resources"]))
        });
        return pairs.collect();
    }
    let pairs = allocations.as_object().into_iter().flatten();
    let pairs = pairs.map(|(id, body)| (&**id, &body["resources"]));
    pairs.collect()
}

fn read_amounts(resources: &Value) -> Result<Resources, InvalidBody> {
    let amounts = resources.as_object().into_iter().flatten();
    let amounts = amounts.map(|(name, amount)| {
        let class = ResourceClass::new(name).map_err(|_| InvalidBody::Class(name.clone()))?;
        Ok((class, whole(amount).unwrap_or(u64::MAX)))
    });
    amounts.collect()
}

pub(super) async fn delete(call: &Call<'_>, text: &str) -> Result<Reply, Fault> {
    let none = || Fault::not_found(format!("No allocations for consumer '{}'", quoted(text)));
    let consumer = uuids::exact(text).ok_or_else(none)?;
    let command = Command::DeleteAllocations {
        consumer: ConsumerId(consumer),
    };
    match call.command(command).await {
        Ok(_) => Ok(Reply::done()),
        Err(refusal) if refusal.reason == "ALLOCATIONS_NOT_FOUND" => Err(none()),
        Err(refusal) => Err(refused::in_general(&refusal)),
    }
}
