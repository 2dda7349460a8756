//! What is written in a namespace: runs of one byte; all else is zero.

use std::collections::BTreeMap;

/// The contents of a namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    /// By where each run begins: its length and its byte. No two overlap, none is of zeros.
    runs: BTreeMap<u64, (u64, u8)>,
}

impl Contents {
    /// Writes a run; earlier contents are overwritten.
    pub(crate) fn fill(&mut self, start: u64, length: u64, byte: u8) {
        let end = start.saturating_add(length);
        if start == end {
            return;
        }
        let touched: Vec<(u64, (u64, u8))> = self
            .runs
            .range(..end)
            .rev()
            .take_while(|(begin, (length, _))| **begin + length > start)
            .map(|(begin, run)| (*begin, *run))
            .collect();
        for (begin, (length, old)) in touched {
            self.runs.remove(&begin);
            if begin < start {
                self.runs.insert(begin, (start - begin, old));
            }
            if begin + length > end {
                self.runs.insert(end, (begin + length - end, old));
            }
        }
        if byte != 0 {
            self.runs.insert(start, (end - start, byte));
        }
    }

    pub(crate) fn read(&self, start: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let end = start + length as u64;
        for (begin, (length, byte)) in self.runs.range(..end) {
            let from = (*begin).max(start);
            let to = (begin + length).min(end);
            if from < to {
                let place = |at: u64| usize::try_from(at - start).expect("within what is read");
                bytes[place(from)..place(to)].fill(*byte);
            }
        }
        bytes
    }

    pub(super) fn is_zero(&self) -> bool {
        self.runs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn runs_hold_what_bytes_would(
            writes in proptest::collection::vec((0_u64..40, 0_u64..20, 0_u8..3), 0..20)
        ) {
            let mut contents = Contents::default();
            let mut bytes = vec![0; 64];
            for (start, length, byte) in writes {
                contents.fill(start, length, byte);
                bytes[start as usize..(start + length) as usize].fill(byte);
                proptest::prop_assert_eq!(&contents.read(0, 64), &bytes);
                proptest::prop_assert_eq!(&contents.read(7, 20), &bytes[7..27]);
                proptest::prop_assert_eq!(contents.is_zero(), bytes.iter().all(|b| *b == 0));
            }
        }
    }
}
