//! What the containers of checkpoints and of backups have in common: a head that verifies itself, pieces
//! with a length and a checksum each, and the hash of everything.
//!
//! ```text
//! magic | format u32 | header length u32 | header (protobuf) | crc32 of all before
//! piece : length u32 | crc32 of payload u32 | payload
//! ```
//!
//! Numbers are little-endian. Not here: what a header and a piece mean, and what is a fault in them.

use std::io::{self, Read, Write};

use prost::Message;
use xxhash_rust::xxh3::Xxh3Default;

/// A stream of bytes whose hash and length are kept.
pub struct Hashing<T> {
    inner: T,
    hasher: Xxh3Default,
    bytes: u64,
}

/// Why bytes of a stream cannot be read.
#[derive(Debug)]
pub enum Unread {
    /// It ends before, in the part of this name.
    Truncated(&'static str),
    /// It cannot be read at all.
    Io(io::Error),
}

impl<T> Hashing<T> {
    /// Begins with nothing.
    pub fn new(inner: T) -> Self {
        Self {
            inner,
            hasher: Xxh3Default::new(),
            bytes: 0,
        }
    }

    /// Returns the hash of all bytes until now, in 64 bits.
    pub fn digest(&self) -> u64 {
        self.hasher.digest()
    }

    /// Returns the hash of all bytes until now, in 128 bits.
    pub fn digest128(&self) -> u128 {
        self.hasher.digest128()
    }

    /// Returns how many bytes there were until now.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn count(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
    }
}

impl<W: Write> Hashing<W> {
    /// Writes bytes.
    pub fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.count(bytes);
        self.inner.write_all(bytes)
    }

    /// Has what was written arrive.
    pub fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }

    /// Writes a length.
    pub fn write_length(&mut self, bytes: usize) -> io::Result<()> {
        self.write_all(&length(bytes)?.to_le_bytes())
    }

    /// Writes the head of a container.
    pub fn write_head(
        &mut self,
        magic: &[u8; 8],
        format: u32,
        header: &impl Message,
    ) -> io::Result<()> {
        let encoded = header.encode_to_vec();
        let mut head = Vec::with_capacity(20 + encoded.len());
        head.extend_from_slice(magic);
        head.extend_from_slice(&format.to_le_bytes());
        head.extend_from_slice(&length(encoded.len())?.to_le_bytes());
        head.extend_from_slice(&encoded);
        let crc = crc32fast::hash(&head);
        head.extend_from_slice(&crc.to_le_bytes());
        self.write_all(&head)
    }

    /// Writes a piece.
    pub fn write_piece(&mut self, payload: &[u8]) -> io::Result<()> {
        self.write_length(payload.len())?;
        self.write_all(&crc32fast::hash(payload).to_le_bytes())?;
        self.write_all(payload)
    }
}

impl<R: Read> Hashing<R> {
    /// Fills a buffer; a stream that ends before is cut short in the part of this name.
    pub fn fill(&mut self, buffer: &mut [u8], part: &'static str) -> Result<(), Unread> {
        self.inner.read_exact(buffer).map_err(|error| {
            match error.kind() == io::ErrorKind::UnexpectedEof {
                true => Unread::Truncated(part),
                false => Unread::Io(error),
            }
        })?;
        self.count(buffer);
        Ok(())
    }

    /// Returns whether the stream is at its end.
    pub fn is_at_end(&mut self) -> Result<bool, Unread> {
        let mut byte = [0];
        loop {
            match self.inner.read(&mut byte) {
                Ok(count) => return Ok(count == 0),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Unread::Io(error)),
            }
        }
    }
}

/// Returns the number that stands at an offset.
pub fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(word)
}

fn length(bytes: usize) -> io::Result<u32> {
    u32::try_from(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "more than 4 GiB in one piece"))
}
