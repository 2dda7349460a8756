//! `/traits`, `/traits/{name}` and `/resource_providers/{uuid}/traits`.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use berth_domain::id::TimeMs;
use berth_domain::provider::ResourceProvider;
use berth_domain::resource::Trait;
use berth_domain::standard;
use berth_state::command::Command;
use berth_state::{Reply as Outcome, State};
use serde_json::{Value, json};

use super::aggregate::CONFLICT;
use super::shared::{
    before, fact, find, generation, in_order, provider_id, provider_of, refused_at, refused_of,
};
use crate::call::Call;
use crate::fault::{Fault, quoted};
use crate::reply::Reply;
use crate::{refused, schemas};

/// Which traits are listed.
enum Named<'q> {
    All,
    OneOf(BTreeSet<&'q str>),
    StartingWith(&'q str),
}

impl<'q> Named<'q> {
    fn read(text: Option<&'q str>) -> Result<Self, Fault> {
        let Some(text) = text else {
            return Ok(Self::All);
        };
        Ok(match text.split_once(':') {
            Some(("in", names)) => Self::OneOf(names.split(',').collect()),
            Some(("startswith", prefix)) => Self::StartingWith(prefix),
            Some(_) => Self::All,
            None => {
                return Err(Fault::bad_request(format!(
                    "Badly formatted name parameter. Expected name query string parameter in \
                     form: ?name=[in|startswith]:[name1,name2|prefix]. Got: \"{}\"",
                    quoted(text)
                )));
            }
        })
    }

    fn takes(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::OneOf(names) => names.contains(name),
            Self::StartingWith(prefix) => name.starts_with(prefix),
        }
    }
}

pub(super) async fn list(call: &Call<'_>) -> Result<Reply, Fault> {
    call.check_query(schemas::trait_query())?;
    let named = Named::read(call.query.get("name"))?;
    let associated = match call.query.get("associated") {
        None => None,
        Some(text) if text.eq_ignore_ascii_case("true") => Some(true),
        Some(text) if text.eq_ignore_ascii_case("false") => Some(false),
        Some(_) => {
            return Err(Fault::bad_request(
                "The query parameter \"associated\" only accepts \"true\" or \"false\"",
            ));
        }
    };
    let state = call.state().await?;
    let is_had = |name: &Trait| state.providers_with(name).next().is_some();
    let all = standard::traits()
        .iter()
        .chain(state.custom_traits().keys());
    let listed = all.filter(|name| {
        named.takes(name.as_str()) && associated.is_none_or(|associated| is_had(name) == associated)
    });
    let listed: Vec<&Trait> = listed.collect();
    let modified = modified(call, &state, listed.iter().copied());
    Ok(Reply::json(&json!({"traits": listed}))?.modified(modified))
}

/// Returns when the newest of these traits was created; standard ones are there from the start,
/// of which no time is kept.
fn modified<'t>(call: &Call<'_>, state: &State, names: impl Iterator<Item = &'t Trait>) -> TimeMs {
    let custom = names.filter_map(|name| state.custom_trait(name));
    let newest = custom.map(|custom| custom.updated_at).max();
    newest.unwrap_or_else(|| call.now())
}

pub(super) async fn show(call: &Call<'_>, text: &str) -> Result<Reply, Fault> {
    let state = call.state().await?;
    let name = Trait::new(text).ok().filter(|name| state.knows_trait(name));
    let name = name.ok_or_else(|| no_trait(text))?;
    Ok(Reply::done().modified(modified(call, &state, std::iter::once(&name))))
}

fn no_trait(text: &str) -> Fault {
    Fault::not_found(format!("No such trait(s): {}.", quoted(text)))
}

pub(super) async fn create(call: &Call<'_>, text: &str) -> Result<Reply, Fault> {
    let name = Trait::new(text).ok().filter(|_| schemas::is_custom(text));
    let name = name.ok_or_else(|| {
        Fault::bad_request(
            "The trait is invalid. A valid trait must be no longer than 255 characters, start \
             with the prefix \"CUSTOM_\" and use following characters: \"A\"-\"Z\", \"0\"-\"9\" \
             and \"_\"",
        )
    })?;
    let created = call.command(Command::CreateTrait { name }).await;
    let created = created.map_err(|refusal| refused::in_general(&refusal))?;
    let Outcome::Trait { custom, existed } = created else {
        return Err(refused::mismatch());
    };
    let status = match existed {
        true => StatusCode::NO_CONTENT,
        false => StatusCode::CREATED,
    };
    let reply = Reply::empty(status).modified(custom.created_at);
    Ok(reply.at(call.location(&format!("/traits/{text}"))))
}

pub(super) async fn delete(call: &Call<'_>, text: &str) -> Result<Reply, Fault> {
    let name = Trait::new(text).map_err(|_| no_trait(text))?;
    match call.command(Command::DeleteTrait { name }).await {
        Ok(_) => Ok(Reply::done()),
        Err(refusal) => Err(match &*refusal.reason {
            "TRAIT_NOT_FOUND" => no_trait(text),
            "STANDARD_TRAIT" => Fault::bad_request(format!("Cannot delete standard trait {text}.")),
            "TRAIT_IN_USE" => Fault::conflict(format!(
                "The trait {text} is in use by a resource provider."
            )),
            _ => refused::in_general(&refusal),
        }),
    }
}

pub(super) async fn of_provider(call: &Call<'_>, id: &str) -> Result<Reply, Fault> {
    let state = call.state().await?;
    render(find(&state, id)?)
}

fn render(provider: &ResourceProvider) -> Result<Reply, Fault> {
    let body = json!({
        "traits": in_order(&provider.traits).collect::<Vec<_>>(),
        "resource_provider_generation": provider.generation.0,
    });
    Ok(Reply::json(&body)?.modified(provider.updated_at))
}

pub(super) async fn replace(call: &Call<'_>, id: &str) -> Result<Reply, Fault> {
    let body = call.read(schemas::provider_traits())?;
    let given = generation(&body["resource_provider_generation"]);
    let names = body["traits"].as_array().into_iter().flatten();
    let names = names.filter_map(Value::as_str);
    let (mut traits, mut unknown) = (BTreeSet::new(), Vec::new());
    for name in names {
        match Trait::new(name) {
            Ok(name) => {
                traits.insert(name);
            }
            Err(_) => unknown.push(name),
        }
    }
    if !unknown.is_empty() {
        let fault = no_such(&unknown.join(", "));
        return Err(before(call, id, Some((given, CONFLICT)), fault).await);
    }
    let command = Command::SetTraits {
        provider: provider_id(id)?,
        generation: given,
        traits,
    };
    let written = call
        .command(command)
        .await
        .map_err(|refusal| match &*refusal.reason {
            "UNKNOWN_TRAIT" => no_such(fact(&refusal, "traits")),
            _ => refused_at(id, CONFLICT, &refusal),
        })?;
    render(&*provider_of(written)?)
}

fn no_such(names: &str) -> Fault {
    Fault::bad_request(format!("No such trait {}", quoted(names)))
}

pub(super) async fn clear(call: &Call<'_>, id: &str) -> Result<Reply, Fault> {
    let command = Command::DeleteTraits {
        provider: provider_id(id)?,
    };
    match call.command(command).await {
        Ok(_) => Ok(Reply::done()),
        Err(refusal) => Err(refused_of(id, &refusal)),
    }
}
