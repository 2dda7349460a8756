//! The metadata of the host's aggregates is what the flavor asks for.

use super::{Demand, Violation};
use crate::host_view::HostView;

/// Refuses a host none of whose aggregates says what the flavor asks for.
///
/// # Errors
///
/// [`Violation::Aggregate`] of the first key.
pub fn check(view: &HostView, demand: &Demand) -> Result<(), Violation> {
    let metadata = &view.aggregates.metadata;
    let unmet = demand.aggregate_specs.iter().find(|(key, wanted)| {
        let values = metadata.get(*key);
        values.is_none_or(|values| values.is_disjoint(wanted))
    });
    match unmet {
        None => Ok(()),
        Some((key, wanted)) => Err(Violation::Aggregate {
            key: key.clone(),
            wanted: wanted.iter().cloned().collect(),
        }),
    }
}
