//! `hw:cpu_realtime` and `hw:cpu_realtime_mask`: which dedicated vCPUs run with real-time
//! priority.

use std::collections::BTreeSet;

use super::faults::Faults;
use super::settings::Settings;
use super::{Flavor, Side};
use crate::instance::{CpuPolicy, EmulatorThreads, VcpuId};

/// The name of the switch.
const NAME: &str = "cpu_realtime";
/// The name of the mask.
const MASK: &str = "cpu_realtime_mask";

/// Returns the real-time vCPUs, if the flavor requests any. The image's mask comes before the
/// flavor's: it knows what runs in the guest.
pub(super) fn evaluate(
    flavor: &Flavor,
    settings: &Settings<'_>,
    cpu_policy: CpuPolicy,
    emulator: EmulatorThreads,
    faults: &mut Faults,
) -> Option<BTreeSet<VcpuId>> {
    let masks = &settings.realtime_mask;
    if !settings.realtime.is_some_and(|setting| setting.value) {
        // An image may serve flavors with and without; and a flavor may refuse explicitly.
        if let (None, Some(mask)) = (settings.realtime, &masks.flavor) {
            let rule = "has no effect without hw:cpu_realtime=true";
            faults.add(&Side::Flavor.named(MASK), mask.text, rule);
        }
        return None;
    }
    if cpu_policy == CpuPolicy::Shared {
        let rule = "needs hw:cpu_policy=dedicated or mixed";
        let open = settings.may_tighten();
        faults.add_if_closed(open, &Side::Flavor.named(NAME), "true", rule);
    }
    let (side, mask) = match (&masks.image, &masks.flavor) {
        (Some(image), _) => (Side::Image, Some(image)),
        (None, flavor) => (Side::Flavor, flavor.as_ref()),
    };
    let field = side.named(MASK);
    let text = mask.map_or("", |mask| mask.text);
    let vcpus = match mask {
        None => (0..flavor.vcpus).map(VcpuId).collect(),
        Some(mask) => {
            let named = mask.value.mask(flavor.vcpus);
            if !named.unknown.is_empty() {
                let (last, unknown) = (flavor.vcpus - 1, &named.unknown);
                let rule = format!("vCPUs are 0 to {last}; {unknown} do not exist");
                faults.add(&field, text, rule);
            }
            named.known
        }
    };
    if vcpus.is_empty() {
        faults.add(&field, text, "must name at least one vCPU");
    }
    if vcpus.len() == flavor.vcpus as usize && emulator == EmulatorThreads::Unspecified {
        let rule = "with every vCPU real-time there is no CPU for the emulator: leave one out, as \
                    ^0, or set hw:emulator_threads_policy";
        // The mask of an image comes before it.
        faults.add_if_closed(side == Side::Flavor, &field, text, rule);
    }
    Some(vcpus)
}
