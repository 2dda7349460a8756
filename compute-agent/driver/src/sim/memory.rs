//! The memory of a simulated machine: what its guests touch of theirs, and what that leaves.
//!
//! ```text
//! total = all cells     huge pages | NODE_MIB | what guests touch | free
//!                                              └── what does not fit is in swap space, while there is any
//! ```
//!
//! A guest touches [`ACTIVE_PERCENT`] of its memory in ordinary pages unless another share was set,
//! which it takes along when it moves. Huge pages and locked memory are touched as a whole.
//!
//! Invariant: no clock and no randomness; the same guests with the same shares make the same figures.

use std::collections::BTreeMap;

use berth_domain::id::VmUid;
use berth_domain::name::VmName;
use berth_domain::signals::{GuestMemory, MemorySignals, NodeMemory, Pressure, Swap};

use super::host::{Domain, Host};

/// How much of its memory in ordinary pages a guest touches, in percent.
pub const ACTIVE_PERCENT: u64 = 50;

/// How much memory the machine needs for itself, in MiB.
pub const NODE_MIB: u64 = 256;

/// The largest ordinary page in KiB; what is larger is a huge page.
const ORDINARY_PAGE_KIB_MAX: u64 = 4;

/// What a simulated machine has besides its cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Machine {
    swap_mib: u64,
    pressure: Option<Pressure>,
}

impl Host {
    /// From now on the machine has so much swap space.
    pub fn set_swap_mib(&mut self, mib: u64) {
        self.machine.swap_mib = mib;
    }

    /// From now on programs of the machine wait for memory for such a share of the time.
    pub fn set_pressure(&mut self, pressure: Pressure) {
        self.machine.pressure = Some(pressure);
    }

    /// From now on a guest touches this share of its memory, in percent; nothing means
    /// [`ACTIVE_PERCENT`].
    pub fn set_active(&mut self, vm: VmUid, percent: Option<u64>) {
        if let Some(domain) = self.domains.get_mut(&vm) {
            domain.active_percent = percent.map(|percent| percent.min(100));
        }
    }

    /// Returns the share of its memory that a guest touches, if it was set.
    #[must_use]
    pub fn active(&self, vm: VmUid) -> Option<u64> {
        self.domains.get(&vm)?.active_percent
    }

    /// Returns what each guest has of the machine's memory.
    #[must_use]
    pub fn guest_memory(&self) -> BTreeMap<VmName, GuestMemory> {
        let here = self.domains.values().filter(|domain| domain.holds_memory());
        here.map(|domain| (domain.spec.vm.clone(), touched(domain)))
            .collect()
    }

    /// Returns the machine's memory, without that of single guests.
    #[must_use]
    pub fn machine_memory(&self) -> MemorySignals {
        let total_kib = kib(self.topology().memory_mib());
        let pools = self.topology().cells().iter().flat_map(|cell| &cell.pages);
        let huge = pools.filter(|pool| pool.size_kib > ORDINARY_PAGE_KIB_MAX);
        let huge_kib = huge.fold(0_u64, |sum, pool| {
            sum.saturating_add(pool.size_kib.saturating_mul(pool.total))
        });
        let touched_kib = self
            .guest_memory()
            .values()
            .fold(0_u64, |sum, guest| sum.saturating_add(guest.resident_kib));
        let left_kib = total_kib.saturating_sub(huge_kib);
        let needed_kib = touched_kib.saturating_add(kib(NODE_MIB));
        let free_kib = left_kib.saturating_sub(needed_kib);
        let swap_kib = kib(self.machine.swap_mib);
        let swapped_kib = needed_kib.saturating_sub(left_kib);
        MemorySignals {
            memory: Some(NodeMemory {
                total_kib,
                free_kib,
                // It keeps nothing in caches.
                available_kib: Some(free_kib),
                huge_kib,
            }),
            swap: Some(Swap {
                total_kib: swap_kib,
                free_kib: swap_kib.saturating_sub(swapped_kib),
            }),
            pressure: self.machine.pressure,
            guests: None,
        }
    }
}

/// Returns what a guest touches of its memory.
fn touched(domain: &Domain) -> GuestMemory {
    let spec = &domain.spec;
    let cells = spec.assignment.cells.iter();
    let huge = cells.filter(|cell| {
        cell.page_size_kib
            .is_some_and(|size| size > ORDINARY_PAGE_KIB_MAX)
    });
    let huge_kib = huge.map(|cell| kib(cell.memory_mib)).sum::<u64>();
    let ordinary_kib = kib(spec.spec.flavor.memory_mib).saturating_sub(huge_kib);
    let is_locked = |topology: &berth_domain::instance::InstanceTopology| {
        topology.locked_memory || !topology.realtime.is_empty()
    };
    let percent = match spec.spec.topology.as_ref().is_some_and(is_locked) {
        true => 100,
        false => domain.active_percent.unwrap_or(ACTIVE_PERCENT),
    };
    GuestMemory {
        resident_kib: ordinary_kib / 100 * percent + ordinary_kib % 100 * percent / 100,
        huge_kib,
        swapped_kib: 0,
    }
}

fn kib(mib: u64) -> u64 {
    mib.saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    use berth_domain::id::TimeMs;
    use berth_domain::instance::PageSize;

    use crate::conformance::sample;

    /// A host of 2 GiB, of which a quarter is in huge pages, with so many guests of 128 MiB in
    /// ordinary pages; the first is in huge ones.
    fn host(guests: u32) -> Host {
        let mut host = Host::new(sample::host(2));
        for number in 0..guests {
            let (pages, size) = match number {
                0 => (PageSize::Kib(2048), Some(2048)),
                _ => (PageSize::Unspecified, None),
            };
            let spec = sample::pinned_spec(1, pages);
            let assignment = sample::pins(0, &[1], size);
            let guest = sample::domain(&format!("g{number}"), number.into(), spec, assignment);
            host.create(TimeMs(0), &guest).unwrap();
        }
        host
    }

    fn mib(kib: u64) -> u64 {
        assert_eq!(kib % 1024, 0);
        kib / 1024
    }

    /// Returns what is free of the memory and of the swap space, in MiB.
    fn free(host: &Host) -> (u64, u64) {
        let signals = host.machine_memory();
        let (memory, swap) = (signals.memory.unwrap(), signals.swap.unwrap());
        assert_eq!((mib(memory.total_kib), mib(memory.huge_kib)), (2048, 512));
        (mib(memory.free_kib), mib(swap.free_kib))
    }

    #[test]
    fn a_guest_touches_a_share_of_its_ordinary_pages_and_all_huge_ones() {
        let mut host = host(2);
        let name = |name: &str| VmName::new(name).unwrap();
        let touched = |host: &Host| {
            let all = host.guest_memory();
            let one = |vm| (mib(all[&vm].resident_kib), mib(all[&vm].huge_kib));
            (one(name("g0")), one(name("g1")))
        };
        assert_eq!(touched(&host), ((0, 128), (64, 0)));
        let uid = |number| VmUid(uuid::Uuid::from_u128(number));
        host.set_active(uid(0), Some(75));
        host.set_active(uid(1), Some(75));
        host.set_active(uid(9), Some(75));
        assert_eq!(touched(&host), ((0, 128), (96, 0)));
        host.set_active(uid(1), Some(1000));
        assert_eq!(touched(&host), ((0, 128), (128, 0)));
        host.crash(TimeMs(0), uid(1));
        assert_eq!(host.guest_memory().len(), 1, "one that stopped has none");
    }

    #[test]
    fn what_does_not_fit_is_in_swap_space() {
        assert_eq!(free(&host(0)), (1280, 0));
        assert_eq!(free(&host(11)), (1280 - 10 * 64, 0));
        let mut full = host(26);
        full.set_swap_mib(500);
        assert_eq!(free(&full), (0, 500 - (25 * 64 - 1280)));
        for number in 1..26 {
            full.set_active(VmUid(uuid::Uuid::from_u128(number)), Some(100));
        }
        assert_eq!(free(&full), (0, 0), "more than there is of both");
        assert_eq!(full.machine_memory().pressure, None);
    }
}
