//! A guest goes where its volumes are.

use super::{Demand, Violation};
use crate::host_view::HostView;

/// Refuses a host that has not all volumes of the guest.
///
/// # Errors
///
/// [`Violation::VolumeElsewhere`].
pub fn check(view: &HostView, demand: &Demand) -> Result<(), Violation> {
    let here = &view.host.name;
    let mut volumes = demand.volumes.iter();
    match volumes.find(|volume| !volume.hosts.contains_key(here)) {
        None => Ok(()),
        Some(volume) => Err(Violation::VolumeElsewhere {
            volume: volume.volume.clone(),
            hosts: volume.hosts.keys().take(2).cloned().collect(),
        }),
    }
}
