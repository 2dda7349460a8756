//! What several resources need: provider look-up, numbers, refusals.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_domain::id::{Generation, ProviderId};
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::Refusal;
use berth_domain::resource::Trait;
use berth_domain::standard;
use berth_state::{Reply as Outcome, State};
use serde_json::Value;

use crate::call::Call;
use crate::fault::{Fault, code, quoted};
use crate::{refused, uuids};

/// Reads the id of a provider in a path.
pub(super) fn provider_id(text: &str) -> Result<ProviderId, Fault> {
    uuids::exact(text)
        .map(ProviderId)
        .ok_or_else(|| no_provider(text))
}

/// There is no such provider.
pub(super) fn no_provider(text: &str) -> Fault {
    let text = quoted(text);
    Fault::not_found(format!("No resource provider with uuid {text} found"))
}

/// Returns the fault of a refusal for the provider in the path.
pub(super) fn refused_of(id: &str, refusal: &Refusal) -> Fault {
    match &*refusal.reason {
        "PROVIDER_NOT_FOUND" => no_provider(id),
        _ => refused::in_general(refusal),
    }
}

/// Returns what [`refused_of`] does, with the endpoint's words for another generation.
pub(super) fn refused_at(id: &str, conflict: &str, refusal: &Refusal) -> Fault {
    match &*refusal.reason {
        "PROVIDER_GENERATION" => Fault::conflict(conflict).with_code(code::CONCURRENT_UPDATE),
        _ => refused_of(id, refusal),
    }
}

/// Returns the provider of this state that a path names.
pub(super) fn find<'s>(state: &'s State, text: &str) -> Result<&'s Arc<ResourceProvider>, Fault> {
    let provider = state.provider(provider_id(text)?);
    provider.ok_or_else(|| no_provider(text))
}

/// Returns the error for a bad body for a provider: that the provider does not exist
/// and that it is at another generation go first. The state is looked at only after something was
/// found wrong, so that good requests cost one step.
pub(super) async fn before(
    call: &Call<'_>,
    provider: &str,
    generation: Option<(Generation, &str)>,
    fault: Fault,
) -> Fault {
    let state = match call.state().await {
        Ok(state) => state,
        Err(unavailable) => return unavailable,
    };
    match (find(&state, provider), generation) {
        (Err(missing), _) => missing,
        (Ok(found), Some((given, detail))) if found.generation != given => {
            Fault::conflict(detail).with_code(code::CONCURRENT_UPDATE)
        }
        (Ok(_), _) => fault,
    }
}

/// Reads the generation that a body was based on. What no provider can have is as good as one
/// that it does not have.
pub(super) fn generation(value: &Value) -> Generation {
    Generation(whole(value).unwrap_or(u64::MAX))
}

/// Reads a whole number that the schema has let through: 1.0 is one too.
pub(super) fn whole(value: &Value) -> Option<u64> {
    let exact = value.as_u64();
    // The schema bounds what may be written so; the conversion keeps to the bounds of the type.
    exact.or_else(|| {
        value
            .as_f64()
            .filter(|float| *float >= 0.0)
            .map(|float| float as u64)
    })
}

/// Returns the provider that a command answered with.
pub(super) fn provider_of(outcome: Outcome) -> Result<Arc<ResourceProvider>, Fault> {
    let Outcome::Provider(provider) = outcome else {
        return Err(refused::mismatch());
    };
    Ok(provider)
}

/// Returns a fact of a refusal.
pub(super) fn fact<'r>(refusal: &'r Refusal, key: &str) -> &'r str {
    refusal.metadata.get(key).map_or("", |value| value)
}

/// Tells that inventories are in use. Classes are named in OpenStack's order.
pub(super) fn in_use(refusal: &Refusal, provider: &str) -> String {
    let mut classes: Vec<&str> = fact(refusal, "classes").split(',').map(str::trim).collect();
    let standard = standard::classes();
    classes.sort_by_key(|name| {
        let place = standard.iter().position(|class| class.as_str() == *name);
        (place.unwrap_or(standard.len()), *name)
    });
    let classes = classes.join(", ");
    format!("Inventory for '{classes}' on resource provider '{provider}' in use.")
}

/// Returns traits in the order in which OpenStack Placement shows them: standard ones first.
pub(super) fn in_order(traits: &BTreeSet<Trait>) -> impl Iterator<Item = &Trait> {
    let standard = traits.iter().filter(|name| !name.is_custom());
    standard.chain(traits.iter().filter(|name| name.is_custom()))
}

/// The class does not exist.
pub(super) fn no_class(name: &str) -> String {
    format!("No such resource class {}.", quoted(name))
}
