//! A set of vCPUs as text: `0-3,8`, without some of them `0-7,^2,^4-5`, or, in masks, all but
//! some `^0-1`.

use std::collections::BTreeSet;

use crate::cpu_set::{CPU_MAX, CpuId, CpuSet};
use crate::instance::VcpuId;

/// What is allowed, for messages.
pub(super) const RULE: &str = "must be vCPUs, as 0-3,8 or 0-7,^2; a mask that begins with ^ means \
     all vCPUs but these, as ^0-1";

/// A set of vCPUs of a guest of which the number of vCPUs is not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mask {
    included: CpuSet,
    excluded: CpuSet,
    begins_with_exclusion: bool,
}

/// The vCPUs of a mask: those that the guest has, and those that it does not.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) known: BTreeSet<VcpuId>,
    pub(super) unknown: CpuSet,
}

impl Mask {
    /// Reads a mask.
    ///
    /// # Errors
    ///
    /// The allowed values.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut mask = Self {
            included: CpuSet::new(),
            excluded: CpuSet::new(),
            begins_with_exclusion: text.trim().starts_with('^'),
        };
        for part in text.split(',') {
            let part = part.trim();
            let (set, range) = match part.strip_prefix('^') {
                Some(range) => (&mut mask.excluded, range),
                None => (&mut mask.included, part),
            };
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (vcpu(first)?, vcpu(last)?);
            if first > last {
                return Err(format!("range {part:?} runs backwards"));
            }
            for number in first..=last {
                set.insert(CpuId(number));
            }
        }
        Ok(mask)
    }

    /// Returns the vCPUs of a list: what it includes without what it excludes.
    pub(super) fn list(&self, vcpus: u32) -> Named {
        let mut named = Named {
            known: BTreeSet::new(),
            unknown: CpuSet::new(),
        };
        for CpuId(number) in self.included.difference(&self.excluded).iter() {
            if number < vcpus {
                named.known.insert(VcpuId(number));
            } else {
                named.unknown.insert(CpuId(number));
            }
        }
        named
    }

    /// Returns the vCPUs of a mask: as a list, but one that begins with an exclusion begins with
    /// all vCPUs.
    pub(super) fn mask(&self, vcpus: u32) -> Named {
        let mut named = self.list(vcpus);
        if self.begins_with_exclusion {
            let all = (0..vcpus).filter(|v| !self.excluded.contains(CpuId(*v)));
            named.known.extend(all.map(VcpuId));
        }
        named
    }
}

fn vcpu(text: &str) -> Result<u32, String> {
    let text = text.trim();
    let is_digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_digits);
    number
        .filter(|number| *number <= CPU_MAX)
        .ok_or_else(|| RULE.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(vcpus: &BTreeSet<VcpuId>) -> Vec<u32> {
        vcpus.iter().map(|v| v.0).collect()
    }

    /// Goal: lists and masks mean what they mean in OpenStack Nova. Method: a table for 6 vCPUs.
    #[test]
    fn lists_and_masks() {
        for (text, list, mask, unknown) in [
            ("0-3", vec![0, 1, 2, 3], vec![0, 1, 2, 3], ""),
            ("0-3,^2", vec![0, 1, 3], vec![0, 1, 3], ""),
            (" 5 , 1 - 2 ", vec![1, 2, 5], vec![1, 2, 5], ""),
            ("^0", vec![], vec![1, 2, 3, 4, 5], ""),
            ("^0-1,^5", vec![], vec![2, 3, 4], ""),
            ("^0-1,5", vec![5], vec![2, 3, 4, 5], ""),
            ("^0,0", vec![], vec![1, 2, 3, 4, 5], ""),
            ("4-7", vec![4, 5], vec![4, 5], "6-7"),
            ("4-7,^6-7", vec![4, 5], vec![4, 5], ""),
            ("^9", vec![], vec![0, 1, 2, 3, 4, 5], ""),
        ] {
            let parsed = Mask::parse(text).unwrap();
            assert_eq!(numbers(&parsed.list(6).known), list, "{text:?}");
            let named = parsed.mask(6);
            assert_eq!(numbers(&named.known), mask, "{text:?}");
            assert_eq!(named.unknown.to_string(), unknown, "{text:?}");
        }
        for bad in [
            "",
            "a",
            "1,,2",
            "3-1",
            "-1",
            "1-",
            "^",
            "^^1",
            "8192",
            "1-99999999999",
        ] {
            assert!(Mask::parse(bad).is_err(), "{bad:?}");
        }
    }
}
