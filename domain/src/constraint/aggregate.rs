//! The host's aggregates have the metadata that the flavor requires.

use super::{Demand, Violation};
use crate::host_view::HostView;

/// Refuses a host without an aggregate that has the metadata that the flavor requires.
///
/// # Errors
///
/// [`Violation::Aggregate`] of the first key.
pub fn check(view: &HostView, demand: &Demand) -> Result<(), Violation> {
    let metadata = &view.aggregates.metadata;
    let unmet = demand.aggregate_specs.iter().find(|(key, requested)| {
        let values = metadata.get(*key);
        values.is_none_or(|values| values.is_disjoint(requested))
    });
    match unmet {
        None => Ok(()),
        Some((key, requested)) => Err(Violation::Aggregate {
            key: key.clone(),
            requested: requested.iter().cloned().collect(),
        }),
    }
}
