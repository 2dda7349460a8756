//! The records of the [witness](crate::witness): how they lie in its file, and which of them counts.
//!
//! ```text
//! WITNESS, 32 KiB, allocated when the directory is made:
//!   block 0 │ block 1 │ … │ block 7        4 KiB each; write n goes to block n mod 8
//!   "BRTHWIT1" | owner u64 | extent (40 bytes) | crc32 u32 | zeros
//! ```
//!
//! Blocks of their own keep a torn or damaged record from taking its neighbours along: of the records
//! that can be read, the one with the greatest number counts.
//!
//! Pure: the file and a disk in memory have the same bytes.

use xxhash_rust::xxh3::xxh3_64;

use crate::extent::{EXTENT_BYTES, Extent};
use crate::identity::Identity;

/// The bytes of a witness.
pub(crate) const BYTES: usize = berth_migrations::WITNESS_BYTES;
pub(crate) const BLOCK_BYTES: usize = 4096;
pub(crate) const BLOCKS: u64 = (BYTES / BLOCK_BYTES) as u64;
pub(crate) const BODY_BYTES: usize = 16 + EXTENT_BYTES;
const MAGIC: &[u8; 8] = b"BRTHWIT1";

/// What a witness says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Newest {
    /// The newest record; with sequence 0 if there is none.
    pub(crate) extent: Extent,
    /// How many blocks are torn, damaged or cut off.
    pub(crate) damaged: usize,
}

/// A record belongs to another member or disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OtherOwner;

/// Returns the newest record among these bytes, as far as they are there.
pub(crate) fn newest(bytes: &[u8], owner: u64) -> Result<Newest, OtherOwner> {
    // What is cut off counts as damaged.
    let mut damaged = BYTES.saturating_sub(bytes.len()).div_ceil(BLOCK_BYTES);
    let mut newest = Extent::default();
    for block in bytes.chunks_exact(BLOCK_BYTES) {
        match parse(block) {
            Block::Blank => {}
            Block::Damaged => damaged += 1,
            Block::Record { owner: other, .. } if other != owner => return Err(OtherOwner),
            Block::Record { extent, .. } if extent.sequence > newest.sequence => newest = extent,
            Block::Record { .. } => {}
        }
    }
    Ok(Newest {
        extent: newest,
        damaged,
    })
}

/// Returns the block that holds this extent.
pub(crate) fn encode(extent: Extent, owner: u64) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    block[..8].copy_from_slice(MAGIC);
    block[8..16].copy_from_slice(&owner.to_le_bytes());
    block[16..BODY_BYTES].copy_from_slice(&extent.to_bytes());
    let crc = crc32fast::hash(&block[..BODY_BYTES]);
    block[BODY_BYTES..BODY_BYTES + 4].copy_from_slice(&crc.to_le_bytes());
    block
}

/// Returns where the block of this extent begins.
pub(crate) fn position(extent: Extent) -> usize {
    (extent.sequence % BLOCKS) as usize * BLOCK_BYTES
}

/// Returns a number that stands for the member and its disk.
pub(crate) fn owner_of(identity: &Identity) -> u64 {
    let text = format!(
        "{}\n{}\n{}",
        identity.cluster_id, identity.member_id, identity.disk_id
    );
    xxh3_64(text.as_bytes())
}

enum Block {
    /// Never written.
    Blank,
    /// Torn or damaged.
    Damaged,
    Record {
        owner: u64,
        extent: Extent,
    },
}

fn parse(block: &[u8]) -> Block {
    let body = &block[..BODY_BYTES];
    if block.iter().all(|byte| *byte == 0) {
        return Block::Blank;
    }
    let mut crc = [0; 4];
    crc.copy_from_slice(&block[BODY_BYTES..BODY_BYTES + 4]);
    let mut owner = [0; 8];
    owner.copy_from_slice(&body[8..16]);
    match Extent::from_bytes(&body[16..]) {
        Some(extent) if &body[..8] == MAGIC && crc32fast::hash(body) == u32::from_le_bytes(crc) => {
            Block::Record {
                owner: u64::from_le_bytes(owner),
                extent,
            }
        }
        Some(_) | None => Block::Damaged,
    }
}
