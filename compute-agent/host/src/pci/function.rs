//! A PCI function with the properties that a machine reports, before any rule is applied.

use std::collections::BTreeSet;

use berth_domain::pci::{PciAddress, PciId, PciKind};

/// The base class of bridges.
const CLASS_BRIDGE: u32 = 0x06;

/// The group of functions that the machine's IOMMU cannot isolate from each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Iommu {
    /// Unknown, as of described machines.
    #[default]
    Untold,
    /// The function is in none: the IOMMU is off.
    Off,
    /// The group.
    Group(u32),
}

/// A PCI function of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) address: PciAddress,
    pub(crate) vendor: PciId,
    pub(crate) product: PciId,
    /// Base class, subclass and programming interface, a byte each.
    pub(crate) class: u32,
    /// The node that it is attached to, where the machine reports it.
    pub(crate) node: Option<u32>,
    pub(crate) kind: PciKind,
    /// The physical function of a virtual one.
    pub(crate) parent: Option<PciAddress>,
    /// The driver of the host that has it now.
    pub(crate) driver: Option<String>,
    pub(crate) iommu: Iommu,
    /// The network devices that it is.
    pub(crate) devnames: BTreeSet<String>,
    /// What the host lives on it for, as `the file system /`; empty where it does not.
    pub(crate) carries: BTreeSet<String>,
}

impl Function {
    /// Returns whether other functions are behind it.
    pub(crate) fn is_bridge(&self) -> bool {
        self.class >> 16 == CLASS_BRIDGE
    }

    /// Returns what the host lives on it for, if it does.
    pub(crate) fn in_use(&self) -> Option<String> {
        let carries: Vec<_> = self.carries.iter().cloned().collect();
        (!carries.is_empty()).then(|| carries.join(" and "))
    }
}

/// Records on each physical function what its virtual ones carry: they vanish when it is assigned.
pub(crate) fn inherit_use(functions: &mut [Function]) {
    let virtual_ones: Vec<_> = functions
        .iter()
        .filter_map(|f| Some((f.parent?, f.address, f.in_use()?)))
        .collect();
    for (parent, address, carries) in virtual_ones {
        if let Some(parent) = functions.iter_mut().find(|f| f.address == parent) {
            let inherited = format!("{carries} through its virtual function {address}");
            parent.carries.insert(inherited);
        }
    }
}
