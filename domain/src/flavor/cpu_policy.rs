//! `hw:cpu_policy` and `hw:cpu_dedicated_mask`: which vCPUs float, and which have a CPU of their
//! own; or the same set by `resources:VCPU` and `resources:PCPU`.

use std::collections::BTreeSet;

use super::faults::Faults;
use super::settings::Settings;
use super::{Flavor, Side};
use crate::instance::{CpuPolicy, VcpuId};

/// The name of the setting.
const NAME: &str = "cpu_policy";
/// The name of the mask.
const MASK: &str = "cpu_dedicated_mask";

pub(super) fn parse(text: &str) -> Result<CpuPolicy, String> {
    match text {
        "shared" => Ok(CpuPolicy::Shared),
        "dedicated" => Ok(CpuPolicy::Dedicated),
        "mixed" => Ok(CpuPolicy::Mixed),
        _ => Err("must be shared, dedicated or mixed".to_owned()),
    }
}

/// Returns the policy of a guest. An image may request dedicated CPUs where the flavor
/// sets nothing; what the flavor sets, it cannot change.
pub(super) fn evaluate(settings: &Settings<'_>, faults: &mut Faults) -> CpuPolicy {
    let setting = &settings.cpu_policy;
    if let (Some(flavor), Some(image)) = (setting.flavor, setting.image) {
        let is_good = match (flavor.value, image.value) {
            (CpuPolicy::Shared, policy) => policy == CpuPolicy::Shared,
            (CpuPolicy::Mixed, policy) => policy != CpuPolicy::Dedicated,
            (CpuPolicy::Dedicated, _) => true,
        };
        if !is_good {
            let rule = format!(
                "contradicts the flavor's hw:cpu_policy={}: an image may ask for dedicated CPUs \
                 only where the flavor says nothing, or dedicated",
                flavor.text
            );
            faults.add(&Side::Image.named(NAME), image.text, rule);
        }
    }
    let (vcpu, pcpu) = (
        settings.groups.amount("VCPU"),
        settings.groups.amount("PCPU"),
    );
    if let Some((side, policy)) = setting.first() {
        for (class, amount) in [("VCPU", vcpu), ("PCPU", pcpu)] {
            if amount > 0 {
                let rule = format!(
                    "cannot be combined with {}={}; use one or the other",
                    side.key(NAME),
                    policy.text
                );
                faults.add(&settings.groups.field(class), amount, rule);
            }
        }
        return policy.value;
    }
    match (vcpu > 0, pcpu > 0) {
        (true, true) => {
            let rule = "cannot be combined with resources:VCPU; mixed guests are requested with \
                        hw:cpu_policy=mixed";
            faults.add(&settings.groups.field("PCPU"), pcpu, rule);
            CpuPolicy::Shared
        }
        (false, true) => CpuPolicy::Dedicated,
        (_, false) => CpuPolicy::Shared,
    }
}

/// Returns the vCPUs that get a CPU of their own. `realtime` doubles as the mask of a mixed guest.
pub(super) fn dedicated(
    flavor: &Flavor,
    settings: &Settings<'_>,
    policy: CpuPolicy,
    realtime: Option<&BTreeSet<VcpuId>>,
    faults: &mut Faults,
) -> BTreeSet<VcpuId> {
    let field = Side::Flavor.named(MASK);
    let mask = settings.dedicated_mask.as_ref();
    let needs_mixed = |faults: &mut Faults, open| {
        if let Some(mask) = mask {
            faults.add_if_closed(open, &field, mask.text, "needs hw:cpu_policy=mixed");
        }
    };
    match policy {
        CpuPolicy::Shared => {
            needs_mixed(faults, settings.may_tighten());
            BTreeSet::new()
        }
        CpuPolicy::Dedicated => {
            needs_mixed(faults, false);
            (0..flavor.vcpus).map(VcpuId).collect()
        }
        CpuPolicy::Mixed => match (mask, realtime) {
            (Some(mask), Some(_)) => {
                let rule = "a mixed guest with hw:cpu_realtime=true has its real-time vCPUs \
                            dedicated, by hw:cpu_realtime_mask; only one of the two may be given";
                faults.add(&field, mask.text, rule);
                BTreeSet::new()
            }
            (None, Some(realtime)) => realtime.clone(),
            (None, None) => {
                let rule = "mixed needs hw:cpu_dedicated_mask, or hw:cpu_realtime=true with \
                            hw:cpu_realtime_mask";
                let (side, text) = settings.cpu_policy.first().map_or_else(
                    || (Side::Flavor, "mixed"),
                    |(side, setting)| (side, setting.text),
                );
                faults.add(&side.named(NAME), text, rule);
                BTreeSet::new()
            }
            (Some(mask), None) => {
                let named = mask.value.mask(flavor.vcpus);
                let rule = if !named.unknown.is_empty() {
                    Some(format!(
                        "vCPUs are 0 to {}; {} do not exist",
                        flavor.vcpus - 1,
                        named.unknown
                    ))
                } else if named.known.is_empty() || named.known.len() == flavor.vcpus as usize {
                    Some("must leave at least one vCPU shared and one dedicated".to_owned())
                } else {
                    None
                };
                if let Some(rule) = rule {
                    faults.add(&field, mask.text, rule);
                }
                named.known
            }
        },
    }
}
