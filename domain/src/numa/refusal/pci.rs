//! PCI functions that are missing: which, where, and where else there are some.

use std::fmt;

use super::list;
use crate::topology::{CellId, SocketId};

/// Where PCI functions are missing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PciRegion {
    /// On the whole host.
    Host,
    /// At these cells.
    Cells(Vec<CellId>),
    /// On these sockets.
    Sockets(Vec<SocketId>),
    /// Beside the others that the guest requests: there are enough, but not near any cells on which
    /// the guest can be, or as they exclude each other.
    Beside,
    /// The same, where giving up some of one kind alone would not help.
    Together,
}

impl fmt::Display for PciRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        match self {
            Self::Host => f.write_str("on the host"),
            Self::Cells(cells) => write!(f, "on NUMA node{} {}", plural(cells.len()), list(cells)),
            Self::Sockets(sockets) => {
                write!(f, "on socket{} {}", plural(sockets.len()), list(sockets))
            }
            Self::Beside => f.write_str("near the guest beside the others that it asks for"),
            Self::Together => f.write_str("near the guest at once"),
        }
    }
}

/// PCI functions that are missing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciShortfall {
    /// What the functions must be like, as `8086:1572`.
    pub what: String,
    /// How many are requested.
    pub requested: u64,
    /// How many are free in the region.
    pub available: u64,
    /// How many more there are in the region, which others have.
    pub taken: u64,
    /// Where they are missing.
    pub region: PciRegion,
    /// Where else there are free ones, and how many.
    pub elsewhere: Option<(u64, PciRegion)>,
}

impl PciShortfall {
    /// Returns whether the host has too few even without any guest.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        self.region == PciRegion::Host && self.available + self.taken < self.requested
    }
}

impl fmt::Display for PciShortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            requested,
            available,
            taken,
            region,
            elsewhere,
        } = self;
        let plural = |count: u64| if count == 1 { "" } else { "s" };
        match (region, available) {
            (PciRegion::Together, _) => {
                return write!(f, "the {requested} devices {what} cannot be had {region}");
            }
            (_, 0) if *taken > 0 => write!(f, "no free device {what} {region}")?,
            (_, 0) => write!(f, "no device {what} {region}")?,
            (_, some) => write!(f, "{some} free device{} {what} {region}", plural(*some))?,
        }
        match taken {
            0 => {}
            1 => f.write_str(", one is taken")?,
            some => write!(f, ", {some} are taken")?,
        }
        if *requested > 1 || *available > 0 {
            write!(f, ", the guest needs {requested}")?;
        }
        match elsewhere {
            None => Ok(()),
            Some((1, place)) => write!(f, "; one is free {place}"),
            Some((count, place)) => write!(f, "; {count} are free {place}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numa::FitRefusal;

    /// Goal: people read where devices are missing, and where there are some.
    #[test]
    fn sentences_name_the_devices_that_are_missing() {
        let check_taken = |requested, available, taken, region, elsewhere, expected: &str| {
            let refusal = FitRefusal::Pci(PciShortfall {
                what: "8086:1572".to_owned(),
                requested,
                available,
                taken,
                region,
                elsewhere,
            });
            assert_eq!(refusal.to_string(), expected);
        };
        let check = |requested, available, region, elsewhere, expected: &str| {
            check_taken(requested, available, 0, region, elsewhere, expected);
        };
        check_taken(
            1,
            0,
            1,
            PciRegion::Host,
            None,
            "no free device 8086:1572 on the host, one is taken",
        );
        check_taken(
            3,
            1,
            2,
            PciRegion::Host,
            None,
            "1 free device 8086:1572 on the host, 2 are taken, the guest needs 3",
        );
        let socket = |id| PciRegion::Sockets(vec![SocketId(id)]);
        let cells = |ids: &[u32]| PciRegion::Cells(ids.iter().copied().map(CellId).collect());
        check(
            1,
            0,
            socket(0),
            Some((1, socket(1))),
            "no device 8086:1572 on socket 0; one is free on socket 1",
        );
        check(
            3,
            1,
            cells(&[0, 1]),
            Some((2, cells(&[3]))),
            "1 free device 8086:1572 on NUMA nodes 0 and 1, the guest needs 3; 2 are free on NUMA node 3",
        );
        check(
            2,
            0,
            PciRegion::Host,
            None,
            "no device 8086:1572 on the host, the guest needs 2",
        );
        check(
            2,
            1,
            PciRegion::Beside,
            None,
            "1 free device 8086:1572 near the guest beside the others that it asks for, the guest \
             needs 2",
        );
    }
}
