//! The host's counted resources suffice, by the rules of OpenStack Placement.

use super::{Demand, Violation};
use crate::host_view::HostView;

/// Refuses a host with too little of a counted resource.
///
/// # Errors
///
/// [`Violation::Capacity`] of the class of which the greatest part is missing.
pub fn check(view: &HostView, demand: &Demand) -> Result<(), Violation> {
    let violations = demand.resources.iter().filter_map(|(class, &requested)| {
        let excess = match view.inventories.get(class) {
            None => None,
            Some(inventory) => Some(inventory.admit(view.used_of(class), requested).err()?),
        };
        Some(Violation::Capacity {
            class: class.clone(),
            requested,
            excess,
        })
    });
    violations
        .max_by_key(Violation::distance)
        .map_or(Ok(()), Err)
}
