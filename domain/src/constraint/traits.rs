//! The host has the qualities (traits) that the guest requires, and none that it forbids.

use super::{Demand, Violation};
use crate::host_view::HostView;

/// Refuses a host that lacks a required trait or has a forbidden one.
///
/// # Errors
///
/// [`Violation::TraitMissing`] or [`Violation::TraitForbidden`].
pub fn check(view: &HostView, demand: &Demand) -> Result<(), Violation> {
    if let Some(quality) = demand.required.difference(&view.traits).next() {
        return Err(Violation::TraitMissing(quality.clone()));
    }
    if let Some(quality) = demand.forbidden.intersection(&view.traits).next() {
        return Err(Violation::TraitForbidden(quality.clone()));
    }
    Ok(())
}
