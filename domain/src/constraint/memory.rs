//! The host's memory holds the guest beside the others, by the rule of [`crate::memory`].

use super::Violation;
use crate::allocation::Resources;
use crate::host_view::HostView;
use crate::memory::Taken;
use crate::numa::Assignment;
use crate::resource::ResourceClass;

/// Refuses a host that would hold more memory than its rule allows: which pages the guest gets
/// matters, so its assignment is looked at too.
///
/// # Errors
///
/// [`Violation::Capacity`] of `MEMORY_MB`.
pub fn check(
    view: &HostView,
    resources: &Resources,
    assignment: &Assignment,
) -> Result<(), Violation> {
    let topology = &view.host.report.topology;
    let more = Taken::of(topology, resources, assignment);
    let verdict = match more.total_mib() {
        0 => Ok(()),
        _ => view.books().admit(more),
    };
    verdict.map_err(|excess| Violation::Capacity {
        class: ResourceClass::memory_mb(),
        requested: more.total_mib(),
        excess: Some(excess),
    })
}
