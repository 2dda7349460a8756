//! From the names that a client sent to classes and traits that exist.

use std::collections::BTreeSet;

use berth_domain::allocation::Resources;
use berth_domain::resource::{ResourceClass, Trait};
use berth_state::State;

use super::fault::quoted;
use super::forms::Amounts;

/// Returns these traits.
///
/// # Errors
///
/// Which do not exist.
pub(super) fn traits<'n>(
    state: &State,
    names: impl IntoIterator<Item = &'n String>,
) -> Result<BTreeSet<Trait>, String> {
    let (mut known, mut unknown) = (BTreeSet::new(), Vec::new());
    for name in names {
        match Trait::new(name) {
            Ok(found) if state.knows_trait(&found) => {
                known.insert(found);
            }
            Ok(_) | Err(_) => unknown.push(&**name),
        }
    }
    match unknown.is_empty() {
        true => Ok(known),
        false => Err(format!(
            "No such trait(s): {}.",
            quoted(&unknown.join(", "))
        )),
    }
}

/// Returns these amounts.
///
/// # Errors
///
/// The first class that does not exist.
pub(super) fn amounts(state: &State, amounts: &Amounts) -> Result<Resources, String> {
    let amounts = amounts
        .iter()
        .map(|(name, amount)| Ok((class(state, name)?, *amount)));
    amounts.collect()
}

/// Returns the class of this name.
///
/// # Errors
///
/// That it does not exist.
pub(super) fn class(state: &State, name: &str) -> Result<ResourceClass, String> {
    let class = ResourceClass::new(name).ok();
    class
        .filter(|class| state.knows_class(class))
        .ok_or_else(|| format!("No such resource class {}.", quoted(name)))
}
