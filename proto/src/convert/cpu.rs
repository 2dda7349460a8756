//! How far shared CPUs are over-committed: the policy, and what is reported of a host.

use berth_domain::host_view::HostView;
use berth_domain::inventory::Inventory;
use berth_domain::policy::CpuPolicy;
use berth_domain::policy::cpu::{CpuTerms, EffectiveCpu};
use berth_domain::resource::ResourceClass;

use super::field::Invalid;
use super::scoped;
use crate::policy::v1;

scoped::scoped_policy!(
    CpuPolicy,
    CpuTerms {
        ratio_milli,
        reserved
    },
    "a ratio or a number of CPUs is out of its bounds, or terms say nothing"
);

/// Writes the reported shared CPUs of a host.
#[must_use]
pub fn write_host_cpu(said: &EffectiveCpu, view: &HostView) -> v1::HostCpu {
    let class = ResourceClass::vcpu();
    let offered = view.inventories.get(&class).copied();
    // A host that offers none has none of them.
    let offered = offered.unwrap_or(Inventory {
        allocation_ratio: said.rule.ratio,
        ..Inventory::exact(0)
    });
    let small = |amount: u64| u32::try_from(amount).unwrap_or(u32::MAX);
    v1::HostCpu {
        ratio_milli: small(offered.allocation_ratio.milli()),
        ratio_from: Some((&said.ratio_from).into()),
        reserved: small(offered.reserved),
        reserved_from: Some((&said.reserved_from).into()),
        total: small(offered.total),
        capacity: offered.capacity(),
        used: view.used_of(&class),
    }
}
