//! Free PCI functions, by kind.

use berth_domain::host_view::HostView;
use berth_domain::pci::{PciDevice, PciRequest};
use smallvec::SmallVec;

/// Fewer kinds of functions than this are distinguished. Where the hosts have more, every host passes.
pub const KINDS: usize = 16;

/// How many functions of each kind are free on a host.
pub type Devices = [u16; KINDS];

/// The kinds of functions that hosts have.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    /// One function of each.
    known: Vec<PciDevice>,
}

/// The functions that a guest demands: of which kinds, and how many in sum.
#[derive(Clone, Debug, Default)]
pub struct DeviceDemand(SmallVec<[(u32, u32); 2]>);

impl Kinds {
    /// Counts the free functions of a host. Kinds that are new are numbered.
    pub fn count(&mut self, view: &HostView) -> Devices {
        let mut free = [0_u16; KINDS];
        if view.headroom.pci == 0 {
            return free;
        }
        for device in view.host.report.topology.pci() {
            if view.usage.pci.contains(&device.address) {
                continue;
            }
            if let Some(kind) = self.number(device) {
                free[kind] = free[kind].saturating_add(1);
            }
        }
        free
    }

    /// Returns the number of a function's kind: what functions must have in common for every request
    /// to accept both or neither.
    fn number(&mut self, device: &PciDevice) -> Option<usize> {
        let is_like = |kind: &PciDevice| {
            kind.vendor == device.vendor
                && kind.product == device.product
                && kind.kind == device.kind
                && kind.tags == device.tags
        };
        let known = self.known.iter().position(is_like);
        known.or_else(|| {
            (self.known.len() < KINDS).then(|| {
                self.known.push(device.clone());
                self.known.len() - 1
            })
        })
    }

    /// Returns what these requests demand; nothing while there are more kinds than are
    /// distinguished.
    #[must_use]
    pub fn requested(&self, requests: &[PciRequest]) -> DeviceDemand {
        if self.known.len() == KINDS {
            return DeviceDemand::default();
        }
        let bits = |request: &PciRequest| {
            let kinds = self.known.iter().enumerate();
            let accepted = kinds.filter(|(_, kind)| request.accepts(kind));
            accepted.fold(0, |bits, (number, _)| bits | 1 << number)
        };
        DeviceDemand(requests.iter().map(|r| (bits(r), r.count)).collect())
    }
}

impl DeviceDemand {
    /// Returns whether there are enough for each request alone.
    #[must_use]
    pub fn are_met(&self, free: &Devices) -> bool {
        self.0.iter().all(|(bits, count)| {
            let mut left = *bits;
            let mut sum = 0;
            while left != 0 {
                sum += u32::from(free[left.trailing_zeros() as usize]);
                left &= left - 1;
            }
            sum >= *count
        })
    }
}
