//! What may be placed where: how free memory is compared, and why something is refused.
//!
//! Two rules for memory. `AtMost` is what the design says: relative usage, (used + reserved) /
//! available, is at most the memory ratio. `Strict` is what every released htools does: free
//! memory must stay *above* its floor, so the last byte of a node is never given away. `Strict` is
//! the only rule that can be compared with htools; `AtMost` is the default.

/// The lowest that a floor can be, in MiB.
const FLOOR_MAX: f64 = 1e12;

/// How free memory is compared with its floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MemoryRule {
    /// Free memory may reach the floor: usage is at most the ratio.
    #[default]
    AtMost,
    /// Free memory must stay above the floor, as in htools.
    Strict,
}

/// Which memory ratio counts.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum RatioSource {
    /// That of the node's group.
    #[default]
    Policy,
    /// None, as in every released htools: 1.0 everywhere.
    Ignored,
    /// This one for every node.
    Fixed(f64),
}

/// The rules by which a cluster is judged.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rules {
    /// How free memory is compared with its floor.
    pub memory: MemoryRule,
    /// Which memory ratio counts.
    pub ratio: RatioSource,
}

impl Rules {
    /// Returns whether free memory is too little.
    #[must_use]
    pub fn is_short(&self, free: i64, floor: i64) -> bool {
        match self.memory {
            MemoryRule::AtMost => free < floor,
            MemoryRule::Strict => free <= floor,
        }
    }

    /// Returns the floor of free memory for a ratio, in MiB: below zero if it is above 1.
    ///
    /// `Strict` truncates as Ganeti's one release with this ratio did. `AtMost` takes the exact
    /// bound and allows for the last bits of the multiplication, since 1.2 x 100 must be 120.
    #[must_use]
    pub fn floor(&self, ratio: f64, available: i64) -> i64 {
        // No node has memory of which this would be too little, and sums of it are exact.
        let exact = ((1.0 - ratio) * available as f64).clamp(-FLOOR_MAX, FLOOR_MAX);
        match self.memory {
            MemoryRule::Strict => exact.trunc() as i64,
            MemoryRule::AtMost => {
                let nearest = exact.round();
                if (exact - nearest).abs() < 1e-6 {
                    nearest as i64
                } else {
                    exact.ceil() as i64
                }
            }
        }
    }
}

/// Why a placement is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Refusal {
    /// Too little memory, or too little for the failure of a peer.
    #[error("not enough memory")]
    Memory,
    /// Too little disk, too much spindle use, or no second copy.
    #[error("not enough disk")]
    Disk,
    /// Too few free spindles.
    #[error("not enough spindles")]
    Spindles,
    /// Too many virtual CPUs.
    #[error("not enough CPUs")]
    Cpu,
    /// An exclusion tag is on the node already.
    #[error("exclusion tag clash")]
    Tags,
    /// The target cannot receive what the source has.
    #[error("migration is not allowed between these nodes")]
    Migration,
    /// The node is offline, or is not another node of the instance's group.
    #[error("not an allowed target")]
    Target,
}
