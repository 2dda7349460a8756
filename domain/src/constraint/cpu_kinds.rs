//! Where CPUs are for guests of both kinds, no CPU that one guest has to itself is another's to
//! float over.
//!
//! A host is set up so by `vcpu_pin_set`, as OpenStack's former option of that name; its manuals
//! advise operators to keep the kinds on different hosts. Here a host takes those of the kind that
//! it has, and any while it is empty.

use super::{Demand, Violation};
use crate::host_view::HostView;
use crate::instance::EmulatorThreads;
use crate::resource::ResourceClass;

/// Refuses a host on which the guest would share dedicated CPUs with others or with itself.
///
/// # Errors
///
/// [`Violation::CpuKinds`].
pub fn check(view: &HostView, demand: &Demand) -> Result<(), Violation> {
    let wants = |class| {
        demand
            .resources
            .get(&class)
            .is_some_and(|amount| *amount > 0)
    };
    let (vcpu, pcpu) = (ResourceClass::vcpu(), ResourceClass::pcpu());
    let wants_dedicated = wants(pcpu.clone());
    let emulator_floats = demand
        .topology
        .as_ref()
        .is_some_and(|wish| wish.emulator_threads == EmulatorThreads::Share);
    let floats = wants(vcpu.clone()) || (wants_dedicated && emulator_floats);
    let has_floating = view.used_of(&vcpu) > 0;
    let has_dedicated = view.used_of(&pcpu) > 0;
    let clashes =
        (floats && (has_dedicated || wants_dedicated)) || (wants_dedicated && has_floating);
    if clashes && view.outline.has_common_cpus {
        return Err(Violation::CpuKinds {
            wants_both: floats && wants_dedicated,
            has_dedicated,
        });
    }
    Ok(())
}
