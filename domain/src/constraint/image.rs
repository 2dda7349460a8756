//! The host is the kind of machine that the guest's image requests.

use super::{Demand, Violation};
use crate::host_view::HostView;

/// Refuses a host of another architecture, with another hypervisor, or that does not report what it
/// is: an agent from before these were reported takes only guests without such requirements.
///
/// # Errors
///
/// [`Violation::Image`] of the first property that is not met.
pub fn check(view: &HostView, demand: &Demand) -> Result<(), Violation> {
    let (own, requested) = (&view.host.report.platform, &demand.platform);
    let unmet = |property, requested: String, actual: Option<String>| {
        Err(Violation::Image {
            property,
            requested,
            actual,
        })
    };
    if let Some(architecture) = &requested.architecture
        && !own.runs(architecture)
    {
        let actual = own.architecture.as_ref().map(ToString::to_string);
        return unmet("hw_architecture", architecture.to_string(), actual);
    }
    let actual = || own.hypervisor.as_ref().map(ToString::to_string);
    if let Some(hypervisor) = &requested.hypervisor
        && !own.is(hypervisor)
    {
        return unmet("img_hv_type", hypervisor.to_string(), actual());
    }
    match &requested.mode {
        Some(mode) if !own.has(mode) => {
            let actual = own.hypervisor.as_ref().map(|_| "hvm".to_owned());
            unmet("hw_vm_mode", mode.to_string(), actual)
        }
        Some(_) | None => Ok(()),
    }
}
