//! `/resource_providers` and `/resource_providers/{uuid}`.

use axum::http::StatusCode;
use berth_domain::id::ProviderId;
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::Refusal;
use berth_state::command::Command;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::shared::{before, find, no_provider, provider_id, provider_of};
use crate::call::Call;
use crate::fault::{Fault, code, quoted};
use crate::filter::Filter;
use crate::microversion::Microversion;
use crate::reply::Reply;
use crate::{refused, schemas, uuids};

/// A provider as it is shown.
#[derive(Serialize)]
struct Shown<'p> {
    uuid: ProviderId,
    name: &'p str,
    generation: u64,
    links: Vec<Link>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_provider_uuid: Option<Option<ProviderId>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    root_provider_uuid: Option<ProviderId>,
}

#[derive(Serialize)]
struct Link {
    rel: &'static str,
    href: String,
}

#[derive(Serialize)]
struct List<'p> {
    resource_providers: Vec<Shown<'p>>,
}

fn shown(version: Microversion, provider: &ResourceProvider) -> Shown<'_> {
    let path = format!("/resource_providers/{}", provider.id);
    let since = [
        (0, "inventories"),
        (0, "usages"),
        (1, "aggregates"),
        (6, "traits"),
        (11, "allocations"),
    ];
    let known = since.into_iter().filter(|(since, _)| version.has(*since));
    let below = known.map(|(_, rel)| Link {
        rel,
        href: format!("{path}/{rel}"),
    });
    let own = Link {
        rel: "self",
        href: path.clone(),
    };
    let is_tree = version.has(14);
    Shown {
        uuid: provider.id,
        name: &provider.name,
        generation: provider.generation.0,
        links: std::iter::once(own).chain(below).collect(),
        parent_provider_uuid: is_tree.then_some(provider.parent),
        root_provider_uuid: is_tree.then_some(provider.root),
    }
}

pub(super) async fn list(call: &Call<'_>) -> Result<Reply, Fault> {
    call.check_query(schemas::provider_query(call.version))?;
    let filter = Filter::read(&call.query, call.version)?;
    let (version, now) = (call.version, call.now());
    let answer = call.search("resource providers", move |state, index| {
        let found = index.list(&filter.known(state)?);
        let providers = found.iter().filter_map(|id| state.provider(*id));
        let modified = providers.clone().map(|provider| provider.updated_at).max();
        let reply = Reply::json(&List {
            resource_providers: providers.map(|p| shown(version, p)).collect(),
        })?;
        Ok(reply.modified(modified.unwrap_or(now)))
    });
    answer.await
}

pub(super) async fn show(call: &Call<'_>, id: &str) -> Result<Reply, Fault> {
    let state = call.state().await?;
    let provider = find(&state, id)?;
    render(call, provider)
}

fn render(call: &Call<'_>, provider: &ResourceProvider) -> Result<Reply, Fault> {
    let reply = Reply::json(&shown(call.version, provider))?;
    Ok(reply.modified(provider.updated_at))
}

pub(super) async fn create(call: &Call<'_>) -> Result<Reply, Fault> {
    let body = call.read(schemas::create_provider(call.has(14)))?;
    let name = body["name"].as_str().unwrap_or_default().to_owned();
    let id = body["uuid"].as_str().and_then(uuids::parse);
    let id = ProviderId(id.unwrap_or_else(Uuid::new_v4));
    let unable = |why: &str| {
        let name = quoted(&name);
        Fault::bad_request(format!(
            "Unable to create resource provider \"{name}\", {id}: Object action create failed \
             because: {why}"
        ))
    };
    if name.is_empty() {
        return Err(unable("name is required"));
    }
    let command = Command::CreateProvider {
        id,
        name: name.clone(),
        parent: parent(&body),
    };
    let created = call.command(command).await.map_err(|refusal| {
        let taken = |what: String| {
            let detail = format!("Conflicting resource provider {what} already exists.");
            Fault::conflict(detail).with_code(code::DUPLICATE_NAME)
        };
        match &*refusal.reason {
            "DUPLICATE_NAME" => taken(format!("name: {}", quoted(&name))),
            "DUPLICATE_ID" => taken(format!("uuid: {id}")),
            "PARENT_NOT_FOUND" => unable("parent provider UUID does not exist."),
            "PARENT_SELF" => unable(
                "parent provider UUID cannot be same as UUID. Please set parent provider UUID to \
                 None if there is no parent.",
            ),
            _ => refused::in_general(&refusal),
        }
    })?;
    let provider = provider_of(created)?;
    let reply = match call.has(20) {
        true => render(call, &provider)?,
        false => Reply::empty(StatusCode::CREATED),
    };
    Ok(reply.at(call.location(&format!("/resource_providers/{id}"))))
}

/// Reads the parent that a body names, if it names one.
fn parent(body: &Value) -> Option<ProviderId> {
    let text = body.get("parent_provider_uuid")?.as_str()?;
    uuids::parse(text).map(ProviderId)
}

pub(super) async fn update(call: &Call<'_>, id: &str) -> Result<Reply, Fault> {
    let body = match call.read(schemas::update_provider(call.has(14))) {
        Ok(body) => body,
        Err(fault) => return Err(before(call, id, None, fault).await),
    };
    let name = body["name"].as_str().unwrap_or_default();
    let command = Command::UpdateProvider {
        id: provider_id(id)?,
        name: Some(name.to_owned()),
        parent: body.get("parent_provider_uuid").map(|_| parent(&body)),
        reparent: call.has(37),
    };
    let updated = call.command(command).await;
    let provider = provider_of(updated.map_err(|refusal| not_updated(&refusal, id, name))?)?;
    render(call, &provider)
}

fn not_updated(refusal: &Refusal, id: &str, name: &str) -> Fault {
    let unable = |why: &str| {
        Fault::bad_request(format!(
            "Unable to save resource provider {id}: Object action update failed because: {why}"
        ))
    };
    match &*refusal.reason {
        "PROVIDER_NOT_FOUND" => no_provider(id),
        "DUPLICATE_NAME" => {
            let detail = format!(
                "Conflicting resource provider {} already exists.",
                quoted(name)
            );
            Fault::conflict(detail).with_code(code::DUPLICATE_NAME)
        }
        "PARENT_NOT_FOUND" => unable("parent provider UUID does not exist."),
        "PARENT_SELF" | "PARENT_LOOP" => {
            unable("creating loop in the provider tree is not allowed.")
        }
        "REPARENTING" => unable("re-parenting a provider is not currently allowed."),
        "UNPARENTING" => unable("un-parenting a provider is not currently allowed."),
        _ => refused::in_general(refusal),
    }
}

pub(super) async fn delete(call: &Call<'_>, id: &str) -> Result<Reply, Fault> {
    let missing = || {
        let id = quoted(id);
        Fault::not_found(format!(
            "No resource provider with uuid {id} found for delete"
        ))
    };
    let command = Command::DeleteProvider {
        id: uuids::exact(id).map(ProviderId).ok_or_else(missing)?,
    };
    match call.command(command).await {
        Ok(_) => Ok(Reply::done()),
        Err(refusal) => Err(match &*refusal.reason {
            "PROVIDER_NOT_FOUND" => missing(),
            "PROVIDER_HAS_ALLOCATIONS" => Fault::conflict(format!(
                "Unable to delete resource provider {id}: Resource provider has allocations."
            ))
            .with_code(code::PROVIDER_IN_USE),
            "PROVIDER_HAS_CHILDREN" => Fault::conflict(format!(
                "Unable to delete parent resource provider {id}: It has child resource providers."
            ))
            .with_code(code::CANNOT_DELETE_PARENT),
            _ => refused::in_general(&refusal),
        }),
    }
}
