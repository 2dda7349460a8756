//! `/resource_providers/{uuid}/inventories` and one of them by class.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use berth_domain::id::Generation;
use berth_domain::inventory::{Inventory, UNITS_MAX};
use berth_domain::overcommit::AllocationRatio;
use berth_domain::provider::ResourceProvider;
use berth_domain::resource::ResourceClass;
use berth_state::command::Command;
use serde_json::{Map, Value, json};

use super::shared::{
    before, find, generation, in_use, no_class, provider_id, provider_of, refused_at, refused_of,
    whole,
};
use crate::call::Call;
use crate::fault::{Fault, code, quoted};
use crate::reply::Reply;
use crate::{names, refused, schemas};

const GENERATION: &str = "resource_provider_generation";
const CONFLICT: &str = "resource provider generation conflict";

fn shown(inventory: &Inventory) -> Map<String, Value> {
    let fields = [
        ("total", json!(inventory.total)),
        ("reserved", json!(inventory.reserved)),
        ("min_unit", json!(inventory.min_unit)),
        ("max_unit", json!(inventory.max_unit)),
        ("step_size", json!(inventory.step_size)),
        ("allocation_ratio", json!(inventory.allocation_ratio.get())),
    ];
    fields
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
}

fn render_all(provider: &ResourceProvider) -> Result<Reply, Fault> {
    let inventories = provider.inventories.iter();
    let inventories: Map<String, Value> = inventories
        .map(|(class, inventory)| (class.to_string(), shown(inventory).into()))
        .collect();
    let body = json!({"inventories": inventories, GENERATION: provider.generation.0});
    let reply = Reply::json(&body)?;
    Ok(match provider.inventories.is_empty() {
        // OpenStack takes the time from the inventories alone, and so sends none without any.
        true => reply.never_modified(),
        false => reply.modified(provider.updated_at),
    })
}

fn render_one(provider: &ResourceProvider, inventory: &Inventory) -> Result<Reply, Fault> {
    let mut body = shown(inventory);
    body.insert(GENERATION.to_owned(), provider.generation.0.into());
    Ok(Reply::json(&body)?.modified(provider.updated_at))
}

/// Tells the inventory of a class that a provider has after a command.
fn render_written(provider: &ResourceProvider, class: &ResourceClass) -> Result<Reply, Fault> {
    let inventory = provider.inventories.get(class);
    render_one(provider, inventory.ok_or_else(refused::mismatch)?)
}

pub(super) async fn list(call: &Call<'_>, id: &str) -> Result<Reply, Fault> {
    let state = call.state().await?;
    render_all(find(&state, id)?)
}

pub(super) async fn show(call: &Call<'_>, id: &str, class: &str) -> Result<Reply, Fault> {
    let state = call.state().await?;
    let provider = find(&state, id)?;
    let known = ResourceClass::new(class).ok();
    let inventory = known.and_then(|class| provider.inventories.get(&class));
    let inventory = inventory.ok_or_else(|| {
        Fault::not_found(format!("No inventory of class {} for {id}", quoted(class)))
    })?;
    render_one(provider, inventory)
}

/// Reads an inventory that the schema has let through. Absent fields have OpenStack's defaults.
fn read(call: &Call<'_>, id: &str, class: &str, body: &Value) -> Result<Inventory, String> {
    let field = |name: &str, default: u64| match body.get(name) {
        Some(value) => whole(value).unwrap_or(u64::MAX),
        None => default,
    };
    let ratio = match body.get("allocation_ratio").and_then(Value::as_f64) {
        Some(ratio) => AllocationRatio::new(ratio).map_err(|error| error.to_string())?,
        None => AllocationRatio::ONE,
    };
    let inventory = Inventory {
        total: field("total", 0),
        reserved: field("reserved", 0),
        min_unit: field("min_unit", 1),
        max_unit: field("max_unit", UNITS_MAX),
        step_size: field("step_size", 1),
        allocation_ratio: ratio,
    };
    let wrong = match call.has(26) {
        true if inventory.reserved > inventory.total => "greater than total",
        false if inventory.capacity() == 0 => "greater than or equal to total",
        _ => return Ok(inventory),
    };
    Err(format!(
        "Invalid inventory for '{}' on resource provider '{id}'. The reserved value is {wrong}.",
        quoted(class)
    ))
}

/// Reads the name of a class that the schema has let through; only its length may be wrong.
fn class_name(text: &str) -> Result<ResourceClass, String> {
    ResourceClass::new(text).map_err(|_| no_class(text))
}

pub(super) async fn create(call: &Call<'_>, id: &str) -> Result<Reply, Fault> {
    let body = match call.read(schemas::create_inventory()) {
        Ok(body) => body,
        Err(fault) => return Err(before(call, id, None, fault).await),
    };
    let unable = |why: &str| {
        let detail = format!("Unable to create inventory for resource provider {id}: {why}");
        Fault::bad_request(detail)
    };
    let name = body["resource_class"].as_str().unwrap_or_default();
    let read = read(call, id, name, &body).and_then(|i| Ok((class_name(name)?, i)));
    let (class, inventory) = match read {
        Ok(read) => read,
        Err(why) => return Err(before(call, id, None, unable(&why)).await),
    };
    let command = Command::PutInventory {
        provider: provider_id(id)?,
        generation: None,
        class: class.clone(),
        inventory,
        create: true,
    };
    let created = call
        .command(command)
        .await
        .map_err(|refusal| match &*refusal.reason {
            "INVENTORY_EXISTS" => Fault::conflict(format!("Update conflict: {}", refusal.message))
                .with_code(code::CONCURRENT_UPDATE),
            "UNKNOWN_RESOURCE_CLASS" => unable(&no_class(name)),
            _ => refused_of(id, &refusal),
        })?;
    let reply = render_written(&*provider_of(created)?, &class)?;
    let path = format!("/resource_providers/{id}/inventories/{class}");
    Ok(reply
        .with_status(StatusCode::CREATED)
        .at(call.location(&path)))
}

pub(super) async fn replace(call: &Call<'_>, id: &str) -> Result<Reply, Fault> {
    let body = match call.read(schemas::inventories()) {
        Ok(body) => body,
        Err(fault) => return Err(before(call, id, None, fault).await),
    };
    let given = generation(&body[GENERATION]);
    let inventories = match read_all(call, id, &body) {
        Ok(inventories) => inventories,
        Err(fault) => return Err(before(call, id, Some((given, CONFLICT)), fault).await),
    };
    let command = Command::SetInventories {
        provider: provider_id(id)?,
        generation: given,
        inventories,
    };
    let written = call
        .command(command)
        .await
        .map_err(|refusal| match &*refusal.reason {
            "UNKNOWN_RESOURCE_CLASS" => unknown_class(id, super::shared::fact(&refusal, "class")),
            "INVENTORY_IN_USE" => {
                Fault::conflict(format!("update conflict: {}", in_use(&refusal, id)))
                    .with_code(code::INVENTORY_IN_USE)
            }
            _ => refused_at(id, CONFLICT, &refusal),
        })?;
    render_all(&*provider_of(written)?)
}

fn unknown_class(id: &str, class: &str) -> Fault {
    let why = no_class(class);
    Fault::bad_request(format!(
        "Unknown resource class in inventory for resource provider {id}: {why}"
    ))
}

type Inventories = BTreeMap<ResourceClass, Inventory>;

fn read_all(call: &Call<'_>, id: &str, body: &Value) -> Result<Inventories, Fault> {
    let records = body["inventories"].as_object().into_iter().flatten();
    let records = records.map(|(name, record)| {
        let inventory = read(call, id, name, record).map_err(|why| {
            let detail = format!("Unable to update inventory for resource provider {id}: {why}");
            Fault::bad_request(detail)
        })?;
        let class = class_name(name).map_err(|_| unknown_class(id, name))?;
        Ok((class, inventory))
    });
    records.collect()
}

/// Reads what a reshape gives to a provider.
pub(super) fn read_set(
    call: &Call<'_>,
    id: &str,
    body: &Value,
) -> Result<(Generation, Inventories), Fault> {
    Ok((generation(&body[GENERATION]), read_all(call, id, body)?))
}

pub(super) async fn update(call: &Call<'_>, id: &str, name: &str) -> Result<Reply, Fault> {
    let body = match call.read(schemas::inventory()) {
        Ok(body) => body,
        Err(fault) => return Err(before(call, id, None, fault).await),
    };
    let given = generation(&body[GENERATION]);
    let none = |why: &str| {
        Fault::bad_request(format!(
            "No inventory record with resource class for resource provider {id}: {why}"
        ))
    };
    let read = read(call, id, name, &body).map_err(|why| {
        let detail = format!("Unable to update inventory for resource provider {id}: {why}");
        Fault::bad_request(detail)
    });
    let class = || class_name(name).map_err(Fault::not_found);
    let (class, inventory) = match read.and_then(|inventory| Ok((class()?, inventory))) {
        Ok(read) => read,
        Err(fault) => return Err(before_unfit(call, id, given, name, fault).await),
    };
    let command = Command::PutInventory {
        provider: provider_id(id)?,
        generation: Some(given),
        class: class.clone(),
        inventory,
        create: false,
    };
    let written = call
        .command(command)
        .await
        .map_err(|refusal| match &*refusal.reason {
            "INVENTORY_NOT_FOUND" => none(&format!("No inventory of class {class} found.")),
            "UNKNOWN_RESOURCE_CLASS" => Fault::not_found(no_class(name)),
            _ => refused_at(id, CONFLICT, &refusal),
        })?;
    render_written(&*provider_of(written)?, &class)
}

/// As [`before`]; that the class does not exist goes first, too.
async fn before_unfit(
    call: &Call<'_>,
    id: &str,
    given: Generation,
    class: &str,
    fault: Fault,
) -> Fault {
    let fault = match call.state().await {
        Ok(state) => names::class(&state, class).map_or_else(Fault::not_found, |_| fault),
        Err(unavailable) => return unavailable,
    };
    before(call, id, Some((given, CONFLICT)), fault).await
}

pub(super) async fn delete_all(call: &Call<'_>, id: &str) -> Result<Reply, Fault> {
    let command = Command::DeleteInventories {
        provider: provider_id(id)?,
    };
    match call.command(command).await {
        Ok(_) => Ok(Reply::done()),
        Err(refusal) => Err(match &*refusal.reason {
            "INVENTORY_IN_USE" => {
                Fault::conflict(in_use(&refusal, id)).with_code(code::INVENTORY_IN_USE)
            }
            _ => refused_of(id, &refusal),
        }),
    }
}

pub(super) async fn delete(call: &Call<'_>, id: &str, name: &str) -> Result<Reply, Fault> {
    let missing = || {
        let name = quoted(name);
        Fault::not_found(format!("No inventory of class {name} found for delete"))
    };
    let class = match ResourceClass::new(name) {
        Ok(class) => class,
        Err(_) => return Err(before(call, id, None, missing()).await),
    };
    let command = Command::DeleteInventory {
        provider: provider_id(id)?,
        class,
    };
    match call.command(command).await {
        Ok(_) => Ok(Reply::done()),
        Err(refusal) => Err(match &*refusal.reason {
            "INVENTORY_NOT_FOUND" => missing(),
            "INVENTORY_IN_USE" => {
                let why = in_use(&refusal, id);
                let detail = format!("Unable to delete inventory of class {name}: {why}");
                Fault::conflict(detail).with_code(code::CONCURRENT_UPDATE)
            }
            _ => refused_of(id, &refusal),
        }),
    }
}
