//! A stream of bytes whose hash and length are kept.

use std::io::{self, Read, Write};

use xxhash_rust::xxh3::Xxh3Default;

use crate::reader::ReadError;

/// Passes bytes through and hashes them.
pub(crate) struct Hashing<T> {
    inner: T,
    hasher: Xxh3Default,
    bytes: u64,
}

impl<T> Hashing<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self {
            inner,
            hasher: Xxh3Default::new(),
            bytes: 0,
        }
    }

    /// Returns the hash of all bytes until now.
    pub(crate) fn digest(&self) -> [u8; 16] {
        self.hasher.digest128().to_le_bytes()
    }

    /// Returns how many bytes there were until now.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn count(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
    }
}

impl<W: Write> Hashing<W> {
    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.count(bytes);
        self.inner.write_all(bytes)
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<R: Read> Hashing<R> {
    /// Fills a buffer; a stream that ends before is cut short in the part of this name.
    pub(crate) fn fill(&mut self, buffer: &mut [u8], part: &'static str) -> Result<(), ReadError> {
        self.inner.read_exact(buffer).map_err(|error| {
            match error.kind() == io::ErrorKind::UnexpectedEof {
                true => ReadError::Truncated(part),
                false => ReadError::Io(error),
            }
        })?;
        self.count(buffer);
        Ok(())
    }

    /// Returns whether the stream is at its end.
    pub(crate) fn is_at_end(&mut self) -> Result<bool, ReadError> {
        let mut byte = [0];
        loop {
            match self.inner.read(&mut byte) {
                Ok(count) => return Ok(count == 0),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ReadError::Io(error)),
            }
        }
    }
}
