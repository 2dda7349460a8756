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
