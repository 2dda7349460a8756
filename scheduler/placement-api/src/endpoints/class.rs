//! `/resource_classes` and `/resource_classes/{name}`.

use axum::http::StatusCode;
use berth_domain::refusal::Refusal;
use berth_domain::resource::ResourceClass;
use berth_domain::standard;
use berth_state::Reply as Outcome;
use berth_state::command::Command;
use serde_json::{Value, json};

use super::shared::no_class;
use crate::api::check_is_json;
use crate::call::Call;
use crate::fault::{Fault, quoted};
use crate::reply::Reply;
use crate::{names, refused, schemas};

fn shown(class: &ResourceClass) -> Value {
    let href = path(class.as_str());
    json!({"name": class, "links": [{"rel": "self", "href": href}]})
}

fn path(name: &str) -> String {
    format!("/resource_classes/{name}")
}

pub(super) async fn list(call: &Call<'_>) -> Result<Reply, Fault> {
    let state = call.state().await?;
    let all = standard::classes().iter().chain(state.classes().keys());
    let all: Vec<Value> = all.map(shown).collect();
    let newest = state
        .classes()
        .values()
        .map(|custom| custom.updated_at)
        .max();
    let reply = Reply::json(&json!({"resource_classes": all}))?;
    Ok(reply.modified(newest.unwrap_or_else(|| call.now())))
}

pub(super) async fn show(call: &Call<'_>, text: &str) -> Result<Reply, Fault> {
    let state = call.state().await?;
    let class = names::class(&state, text).map_err(Fault::not_found)?;
    let modified = state.class(&class).map(|custom| custom.updated_at);
    let reply = Reply::json(&shown(&class))?;
    Ok(reply.modified(modified.unwrap_or_else(|| call.now())))
}

/// Reads the name in a body that the schema has let through.
fn name_in(body: &Value) -> Result<ResourceClass, Fault> {
    let text = body["name"].as_str().unwrap_or_default();
    // The schema's bounds are those of the type.
    ResourceClass::new(text).map_err(|error| Fault::bad_request(error.to_string()))
}

pub(super) async fn create(call: &Call<'_>) -> Result<Reply, Fault> {
    let class = name_in(&call.read(schemas::class())?)?;
    let existed = made(call, &class).await?;
    if existed {
        let detail = format!("Conflicting resource class already exists: {class}");
        return Err(Fault::conflict(detail));
    }
    let reply = Reply::empty(StatusCode::CREATED);
    Ok(reply.at(call.location(&path(class.as_str()))))
}

/// Makes a class, and returns whether it was there already.
async fn made(call: &Call<'_>, class: &ResourceClass) -> Result<bool, Fault> {
    let command = Command::CreateClass {
        class: class.clone(),
    };
    match call.command(command).await {
        Ok(Outcome::Class { existed, .. }) => Ok(existed),
        Ok(_) => Err(refused::mismatch()),
        Err(refusal) => Err(refused::in_general(&refusal)),
    }
}

pub(super) async fn update(call: &Call<'_>, text: &str) -> Result<Reply, Fault> {
    match call.has(7) {
        true => ensure(call, text).await,
        false => rename(call, text).await,
    }
}

/// From 1.7 on there is no body: the class is there afterwards.
async fn ensure(call: &Call<'_>, text: &str) -> Result<Reply, Fault> {
    let body = json!({"name": text});
    schemas::class()
        .check(&body)
        .map_err(|wrong| Fault::bad_request(format!("JSON does not validate: {wrong}")))?;
    let class = name_in(&body)?;
    let status = match made(call, &class).await? {
        true => StatusCode::NO_CONTENT,
        false => StatusCode::CREATED,
    };
    Ok(Reply::empty(status).at(call.location(&path(class.as_str()))))
}

/// Before 1.7 the body holds the new name.
async fn rename(call: &Call<'_>, text: &str) -> Result<Reply, Fault> {
    check_is_json(call.media_type.as_deref())?;
    let to = name_in(&call.read(schemas::class())?)?;
    let from = ResourceClass::new(text).map_err(|_| Fault::not_found(no_class(text)))?;
    let command = Command::RenameClass {
        from,
        to: to.clone(),
    };
    match call.command(command).await {
        Ok(_) => Reply::json(&shown(&to)),
        Err(refusal) => Err(match &*refusal.reason {
            "CLASS_EXISTS" => Fault::conflict(format!("Resource class already exists: {to}")),
            "STANDARD_CLASS" => {
                let text = quoted(text);
                Fault::bad_request(format!("Cannot update standard resource class {text}"))
            }
            _ => of_class(&refusal, text),
        }),
    }
}

fn of_class(refusal: &Refusal, text: &str) -> Fault {
    match &*refusal.reason {
        "CLASS_NOT_FOUND" => Fault::not_found(no_class(text)),
        _ => refused::in_general(refusal),
    }
}

pub(super) async fn delete(call: &Call<'_>, text: &str) -> Result<Reply, Fault> {
    let class = ResourceClass::new(text).map_err(|_| Fault::not_found(no_class(text)))?;
    match call.command(Command::DeleteClass { class }).await {
        Ok(_) => Ok(Reply::done()),
        Err(refusal) => Err(match &*refusal.reason {
            "STANDARD_CLASS" => Fault::bad_request(format!(
                "Error in delete resource class: Cannot delete standard resource class {text}."
            )),
            "CLASS_IN_USE" => Fault::conflict(format!(
                "Error in delete resource class: Cannot delete resource class {text}. Class is \
                 in use in inventory."
            )),
            _ => of_class(&refusal, text),
        }),
    }
}
