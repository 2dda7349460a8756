//! A set of host CPUs, as a bit set with the kernel's list notation (`0-3,8`).
//!
//! Invariant: no trailing zero words, so that equal sets are equal values.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The number of a logical CPU of a host, as the kernel counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CpuId(pub u32);

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a virtual CPU of a guest, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VcpuId(pub u32);

impl fmt::Display for VcpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The greatest CPU number that is accepted; bounds what a foreign text can make us allocate.
pub const CPU_MAX: u32 = 8191;

/// Why a text is not a CPU list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A part is neither a number nor a range.
    #[error("{part:?} in CPU list {list:?} is neither a number nor a range like 0-3")]
    Part {
        /// The whole text.
        list: String,
        /// The part that is wrong.
        part: String,
    },
    /// A range runs backwards.
    #[error("range {part:?} in CPU list {list:?} runs backwards")]
    Backwards {
        /// The whole text.
        list: String,
        /// The range.
        part: String,
    },
    /// A number is beyond [`CPU_MAX`].
    #[error("CPU {cpu} in CPU list {list:?} is beyond the greatest supported number, 8191")]
    TooLarge {
        /// The whole text.
        list: String,
        /// The number.
        cpu: u32,
    },
}

/// A set of host CPUs.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuSet {
    words: Vec<u64>,
}

impl CpuSet {
    /// Returns the empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: Vec::new() }
    }

    /// Returns whether the set has no CPU.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns the number of CPUs in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Returns whether `cpu` is in the set.
    #[must_use]
    pub fn contains(&self, cpu: CpuId) -> bool {
        let (word, bit) = split(cpu);
        self.words.get(word).is_some_and(|w| w & bit != 0)
    }

    /// Adds `cpu`; returns whether it was not there before.
    ///
    /// # Panics
    ///
    /// When the number is beyond [`CPU_MAX`]: those are refused where they enter.
    pub fn insert(&mut self, cpu: CpuId) -> bool {
        assert!(cpu.0 <= CPU_MAX, "CPU {cpu} is beyond {CPU_MAX}");
        let (word, bit) = split(cpu);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        new
    }

    /// Takes `cpu` out; returns whether it was there.
    pub fn remove(&mut self, cpu: CpuId) -> bool {
        let (word, bit) = split(cpu);
        let Some(w) = self.words.get_mut(word) else {
            return false;
        };
        let was = *w & bit != 0;
        *w &= !bit;
        self.trim();
        was
    }

    /// Returns the CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        let words = self.words.iter().enumerate();
        words.flat_map(|(index, word)| cpus_of(index, *word))
    }

    /// Returns the CPUs that are in both sets in ascending order, without making that set.
    pub fn iter_common<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = CpuId> + 'a {
        let words = self.words.iter().zip(&other.words).enumerate();
        words.flat_map(|(index, (a, b))| cpus_of(index, a & b))
    }

    /// Returns the lowest CPU, if any.
    #[must_use]
    pub fn first(&self) -> Option<CpuId> {
        self.iter().next()
    }

    /// Returns the CPUs that are in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (long, short) = if self.words.len() >= other.words.len() {
            (self, other)
        } else {
            (other, self)
        };
        let mut words = long.words.clone();
        for (w, o) in words.iter_mut().zip(&short.words) {
            *w |= o;
        }
        Self { words }
    }

    /// Returns the CPUs that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let words = self
            .words
            .iter()
            .zip(&other.words)
            .map(|(a, b)| a & b)
            .collect();
        let mut set = Self { words };
        set.trim();
        set
    }

    /// Returns the CPUs of this set that are not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut words = self.words.clone();
        for (w, o) in words.iter_mut().zip(&other.words) {
            *w &= !o;
        }
        let mut set = Self { words };
        set.trim();
        set
    }

    /// Returns the number of CPUs of this set that are not in `other`, without making that set.
    #[must_use]
    pub fn difference_len(&self, other: &Self) -> usize {
        self.words
            .iter()
            .enumerate()
            .map(|(index, w)| {
                let taken = other.words.get(index).copied().unwrap_or(0);
                (w & !taken).count_ones() as usize
            })
            .sum()
    }

    /// Returns the number of CPUs that are in both sets, without making that set.
    #[must_use]
    pub fn intersection_len(&self, other: &Self) -> usize {
        let common = self.words.iter().zip(&other.words);
        common.map(|(a, b)| (a & b).count_ones() as usize).sum()
    }

    /// Returns whether no CPU is in both sets.
    #[must_use]
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).all(|(a, b)| a & b == 0)
    }

    /// Returns whether every CPU of this set is in `other`.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.words
            .iter()
            .enumerate()
            .all(|(index, w)| w & !other.words.get(index).copied().unwrap_or(0) == 0)
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }
}

/// Returns the CPUs of one word.
fn cpus_of(index: usize, word: u64) -> impl Iterator<Item = CpuId> {
    let base = u32::try_from(index * 64).expect("bounded by CPU_MAX");
    std::iter::successors((word != 0).then_some(word), |w| {
        let rest = w & (w - 1);
        (rest != 0).then_some(rest)
    })
    .map(move |w| CpuId(base + w.trailing_zeros()))
}

fn split(cpu: CpuId) -> (usize, u64) {
    ((cpu.0 / 64) as usize, 1 << (cpu.0 % 64))
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        let mut set = Self::new();
        for cpu in cpus {
            set.insert(cpu);
        }
        set
    }
}

impl Extend<CpuId> for CpuSet {
    fn extend<I: IntoIterator<Item = CpuId>>(&mut self, cpus: I) {
        for cpu in cpus {
            self.insert(cpu);
        }
    }
}

impl FromStr for CpuSet {
    type Err = ParseError;

    fn from_str(list: &str) -> Result<Self, ParseError> {
        let mut set = Self::new();
        for part in list
            .trim()
            .split(',')
            .map(str::trim)
            .filter(|p| !p.is_empty())
        {
            let number = |text: &str| {
                text.trim().parse::<u32>().map_err(|_| ParseError::Part {
                    list: list.to_owned(),
                    part: part.to_owned(),
                })
            };
            let (low, high) = match part.split_once('-') {
                Some((low, high)) => (number(low)?, number(high)?),
                None => (number(part)?, number(part)?),
            };
            if low > high {
                return Err(ParseError::Backwards {
                    list: list.to_owned(),
                    part: part.to_owned(),
                });
            }
            if high > CPU_MAX {
                return Err(ParseError::TooLarge {
                    list: list.to_owned(),
                    cpu: high,
                });
            }
            set.extend((low..=high).map(CpuId));
        }
        Ok(set)
    }
}

impl TryFrom<String> for CpuSet {
    type Error = ParseError;

    fn try_from(list: String) -> Result<Self, ParseError> {
        list.parse()
    }
}

impl From<CpuSet> for String {
    fn from(set: CpuSet) -> Self {
        set.to_string()
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        let mut cpus = self.iter().map(|c| c.0).peekable();
        while let Some(low) = cpus.next() {
            let mut high = low;
            while cpus.next_if_eq(&(high + 1)).is_some() {
                high += 1;
            }
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(&low.to_string());
            if high > low {
                text.push('-');
                text.push_str(&high.to_string());
            }
        }
        f.pad(&text)
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    #[test]
    fn lists_are_read_and_written_in_the_kernel_s_notation() {
        for (text, expected) in [
            ("", ""),
            ("0", "0"),
            ("0-3,8", "0-3,8"),
            ("8,3,0-2", "0-3,8"),
            ("62-65\n", "62-65"),
        ] {
            assert_eq!(set(text).to_string(), expected);
        }
        for bad in ["a", "3-1", "1-", "0-9000", "-1"] {
            assert!(bad.parse::<CpuSet>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn set_arithmetic() {
        let (a, b) = (set("0-3,70"), set("2-5"));
        assert_eq!(a.union(&b), set("0-5,70"));
        assert_eq!(a.intersection(&b), set("2-3"));
        assert_eq!(a.difference(&b), set("0-1,70"));
        assert_eq!(a.difference_len(&b), 3);
        assert!(set("2").is_subset(&a) && !b.is_subset(&a) && set("").is_disjoint(&a));
        assert!(!a.is_subset(&b) && a.is_disjoint(&set("4-6")));
        let mut c = set("70");
        assert!(c.remove(CpuId(70)) && c.is_empty() && c == CpuSet::new());
        assert_eq!(a.len(), 5);
    }
}
