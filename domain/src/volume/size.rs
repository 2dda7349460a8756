//! How much of a region a volume takes, and how much of that can be used.
//!
//! A namespace in mode fsdax keeps the kernel's page structures at its beginning: 64 bytes for each
//! page of 4 KiB and 8 KiB more, rounded up to 2 MiB (`nd_pfn_init` of Linux). A logical volume can
//! be used whole.

use std::fmt;

use super::DeviceMode;

/// What sizes of logical volumes are multiples of: one physical extent.
pub const LVM_ALIGN_BYTES: u64 = 4 << 20;

/// What sizes of namespaces are multiples of, for each interleaved module, unless the host's
/// configuration sets another.
pub const DIRECT_ALIGN_BYTES: u64 = 1 << 30;

const PAGE_BYTES: u64 = 4 << 10;
const PAGE_STRUCTURE_BYTES: u64 = 64;
const INFORMATION_BYTES: u64 = 8 << 10;
const DATA_ALIGN_BYTES: u64 = 2 << 20;

/// Returns how much can be used of a volume that takes so much of its region.
#[must_use]
pub fn net_bytes(mode: DeviceMode, gross_bytes: u64) -> u64 {
    match mode {
        DeviceMode::Lvm => gross_bytes,
        DeviceMode::Direct => {
            let pages = gross_bytes / PAGE_BYTES;
            let lost = INFORMATION_BYTES + pages * PAGE_STRUCTURE_BYTES;
            gross_bytes.saturating_sub(lost.next_multiple_of(DATA_ALIGN_BYTES))
        }
    }
}

/// Returns the least that a volume of which so much can be used takes of its region; nothing where
/// that is beyond all numbers. One of which nothing need be used takes the least that can be.
///
/// # Panics
///
/// When `align_bytes` is 0.
#[must_use]
pub fn gross_bytes(mode: DeviceMode, required_bytes: u64, align_bytes: u64) -> Option<u64> {
    let required = required_bytes.max(1);
    let enough = |gross: &u64| net_bytes(mode, *gross) >= required;
    // At most a 63rd is lost, and twice the rounding.
    let lost = match mode {
        DeviceMode::Lvm => 0,
        DeviceMode::Direct => required / 63 + 3 * DATA_ALIGN_BYTES,
    };
    let most = required
        .checked_add(lost)?
        .checked_next_multiple_of(align_bytes)?;
    let fewer = |gross: &u64| gross.checked_sub(align_bytes).filter(enough);
    std::iter::successors(Some(most), fewer)
        .last()
        .filter(enough)
}

/// A size as Kubernetes writes it: a whole number of the largest unit that does, so that nothing of
/// it is lost. PMEM-CSI's users know the sentences that it stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown(pub u64);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["B", "KiB", "MiB", "GiB", "TiB"];
        let (mut amount, mut unit) = (self.0, 0);
        while amount > 0 && amount.is_multiple_of(1024) && unit + 1 < units.len() {
            (amount, unit) = (amount / 1024, unit + 1);
        }
        write!(f, "{amount}{}", units[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_numbers_of_the_largest_unit() {
        for (bytes, text) in [
            (0, "0B"),
            (1, "1B"),
            (1536, "1536B"),
            (1536 << 10, "1536KiB"),
            (124 << 20, "124MiB"),
            (6 << 30, "6GiB"),
            (2048 << 40, "2048TiB"),
            (u64::MAX, "18446744073709551615B"),
        ] {
            assert_eq!(Shown(bytes).to_string(), text);
        }
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn logical_volumes_are_rounded_up_to_extents() {
        let gross = |required| gross_bytes(DeviceMode::Lvm, required, LVM_ALIGN_BYTES);
        assert_eq!(gross(0), Some(4 * MIB));
        assert_eq!(gross(4 * MIB), Some(4 * MIB));
        assert_eq!(gross(4 * MIB + 1), Some(8 * MIB));
        assert_eq!(gross(u64::MAX), None);
    }

    /// A namespace of 128 MiB has 130,023,424 usable bytes, as a real kernel reports.
    #[test]
    fn namespaces_lose_what_the_kernel_keeps() {
        assert_eq!(net_bytes(DeviceMode::Direct, 128 * MIB), 130_023_424);
        assert_eq!(net_bytes(DeviceMode::Direct, MIB), 0);
        let gross = |required| gross_bytes(DeviceMode::Direct, required, DIRECT_ALIGN_BYTES);
        assert_eq!(gross(0), Some(1 << 30));
        // Of 1 GiB not all can be used, so a volume of 1 GiB takes two.
        assert_eq!(gross(1 << 30), Some(2 << 30));
        assert_eq!(
            gross(1 << 63),
            (1_u64 << 63).checked_add(((1_u64 << 63) / 63).next_multiple_of(1 << 30))
        );
        assert_eq!(gross(u64::MAX), None);
    }

    proptest::proptest! {
        /// Goal: it is enough, and one step less is not.
        #[test]
        fn no_less_would_do(required in 0_u64..1 << 45, shift in 0_u32..8, ways in 1_u64..9) {
            for (mode, align) in [
                (DeviceMode::Lvm, LVM_ALIGN_BYTES),
                (DeviceMode::Direct, ((16 * MIB) << shift) * ways),
            ] {
                let gross = gross_bytes(mode, required, align).unwrap();
                proptest::prop_assert!(gross.is_multiple_of(align));
                proptest::prop_assert!(net_bytes(mode, gross) >= required.max(1));
                proptest::prop_assert!(
                    gross == align || net_bytes(mode, gross - align) < required.max(1)
                );
            }
        }
    }
}
