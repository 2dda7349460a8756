//! The bytes of a download as parts of an image. Not here: where they come from.
//!
//! Invariant: zeros that fill a block become a hole, however the network divides the bytes.

use super::super::store::ImagePart;

/// How many zeros are a hole. As small as that, a file of data with short holes stays sparse.
pub(super) const BLOCK_BYTES: usize = 64 << 10;

/// What has come of a block.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    pending: Vec<u8>,
}

impl Blocks {
    /// Takes bytes, and returns the blocks that are complete with them.
    pub(super) fn add(&mut self, mut bytes: &[u8]) -> Vec<ImagePart> {
        let mut parts = Vec::new();
        while !bytes.is_empty() {
            let taken = bytes.len().min(BLOCK_BYTES - self.pending.len());
            let (head, rest) = bytes.split_at(taken);
            self.pending.extend_from_slice(head);
            bytes = rest;
            if self.pending.len() == BLOCK_BYTES {
                parts.extend(self.rest());
            }
        }
        parts
    }

    /// Returns what no whole block is left of.
    pub(super) fn rest(&mut self) -> Option<ImagePart> {
        let block = std::mem::take(&mut self.pending);
        match block.iter().all(|byte| *byte == 0) {
            true if block.is_empty() => None,
            true => Some(ImagePart::Zeros(block.len() as u64)),
            false => Some(ImagePart::Data(block)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the parts are the bytes, with the same holes however they are divided.
    #[test]
    fn the_parts_are_the_bytes() {
        let mut bytes = vec![1; BLOCK_BYTES + 5];
        bytes.resize(4 * BLOCK_BYTES, 0);
        bytes.extend_from_slice(&[0, 0, 7]);
        for step in [1000, BLOCK_BYTES, bytes.len()] {
            let mut blocks = Blocks::default();
            let mut parts: Vec<_> = bytes.chunks(step).flat_map(|c| blocks.add(c)).collect();
            parts.extend(blocks.rest());
            assert_eq!(blocks.rest(), None);
            let zeros = |part: &ImagePart| matches!(part, ImagePart::Zeros(_));
            let holes: Vec<bool> = parts.iter().map(zeros).collect();
            assert_eq!(holes, [false, false, true, true, false], "{step}");
            let whole = parts.into_iter().flat_map(|part| match part {
                ImagePart::Data(bytes) => bytes,
                ImagePart::Zeros(count) => vec![0; usize::try_from(count).unwrap()],
            });
            assert_eq!(whole.collect::<Vec<_>>(), bytes, "{step}");
        }
    }
}
