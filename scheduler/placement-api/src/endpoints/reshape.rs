//! `/reshaper`: inventories and allocations of several providers and consumers at once.

use std::collections::BTreeMap;

use berth_domain::id::ProviderId;
use berth_domain::refusal::Refusal;
use berth_state::command::{Command, ProviderInventories};
use serde_json::Value;

use super::allocation::{not_written, read_all};
use super::inventory::read_set;
use super::shared::{fact, in_use, no_class};
use crate::call::Call;
use crate::fault::{Fault, code, quoted};
use crate::reply::Reply;
use crate::{schemas, uuids};

pub(super) async fn reshape(call: &Call<'_>) -> Result<Reply, Fault> {
    let body = call.read(schemas::reshaper(call.version))?;
    let inventories = read_inventories(call, &body["inventories"])?;
    let consumers = read_all(call, &body["allocations"]);
    let command = Command::Reshape {
        consumers: consumers.map_err(|invalid| invalid.into_reshape_fault())?,
        inventories,
    };
    match call.command(command).await {
        Ok(_) => Ok(Reply::done()),
        Err(refusal) => Err(refused(&refusal, &body["inventories"])),
    }
}

type Inventories = BTreeMap<ProviderId, ProviderInventories>;

fn read_inventories(call: &Call<'_>, body: &Value) -> Result<Inventories, Fault> {
    let providers = body.as_object().into_iter().flatten();
    let inventories = providers.map(|(text, body)| {
        let id = uuids::exact(text).ok_or_else(|| no_provider(text))?;
        let (generation, inventories) = read_set(call, text, body)?;
        let inventories = ProviderInventories {
            generation,
            inventories,
        };
        Ok((ProviderId(id), inventories))
    });
    inventories.collect()
}

fn no_provider(text: &str) -> Fault {
    let text = quoted(text);
    Fault::bad_request(format!(
        "Resource provider {text} in inventories not found: No resource provider with uuid \
         {text} found"
    ))
    .with_code(code::PROVIDER_NOT_FOUND)
}

fn refused(refusal: &Refusal, inventories: &Value) -> Fault {
    let provider = fact(refusal, "provider");
    match &*refusal.reason {
        "PROVIDER_NOT_FOUND" if inventories.get(provider).is_some() => no_provider(provider),
        "PROVIDER_GENERATION" => {
            let (actual, given) = (fact(refusal, "actual"), fact(refusal, "given"));
            Fault::conflict(format!(
                "resource provider generation conflict for provider {provider}: actual: \
                 {actual}, given: {given}"
            ))
            .with_code(code::CONCURRENT_UPDATE)
        }
        "UNKNOWN_RESOURCE_CLASS" => {
            let why = no_class(fact(refusal, "class"));
            Fault::bad_request(format!("malformed reshaper data: {why}"))
        }
        "INVENTORY_IN_USE" => {
            let detail = format!("update conflict: {}", in_use(refusal, provider));
            Fault::conflict(detail).with_code(code::INVENTORY_IN_USE)
        }
        _ => not_written(refusal, ""),
    }
}
