//! Writes one backup into a stream of bytes.
//!
//! ```text
//! magic "BERTHBKP" | format u32 | header length u32 | header (protobuf) | crc32 of all before
//! record*          : length u32 (> 0) | crc32 of payload u32 | payload (protobuf)
//! end              : 0 u32 | trailer length u32 | trailer (protobuf) | xxh3-128 of all before
//! ```
//!
//! Numbers are little-endian. Nothing is written twice, so that the stream may be a pipe or a
//! connection.

use std::io::{self, Write};

use berth_store::container::Hashing;
use berth_store::{Row, StateHash};
use prost::Message as _;
use raft::eraftpb::Entry;

use crate::header::{Header, Kind};
use crate::record::{Record, Trailer};
use crate::{FORMAT, MAGIC, RECORD_BYTES_MAX};

/// A record is written when it has so many bytes.
const RECORD_BYTES: usize = 256 << 10;

/// Why a backup could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The stream does not take it.
    #[error("the backup could not be written")]
    Io(#[from] io::Error),
    /// What was to be written is not what the header states: a fault in the member, and a backup of
    /// that would hide it.
    #[error("what was written does not match the header: {0}")]
    Contradiction(&'static str),
}

/// Writes one backup.
pub struct Writer<W: Write> {
    out: Hashing<W>,
    header: Header,
    record: Record,
    record_bytes: usize,
    written: Trailer,
    /// Of the rows.
    hash: StateHash,
    last_index: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the header and prepares for rows or entries.
    ///
    /// # Errors
    ///
    /// The stream does not take it, or the header contradicts itself.
    pub fn new(out: W, header: Header) -> Result<Self, WriteError> {
        if let Some(fault) = header.fault() {
            return Err(WriteError::Contradiction(fault));
        }
        let mut out = Hashing::new(out);
        out.write_head(MAGIC, FORMAT, &header)?;
        Ok(Self {
            out,
            last_index: header.after_index(),
            header,
            record: Record::default(),
            record_bytes: 0,
            written: Trailer::default(),
            hash: StateHash::EMPTY,
        })
    }

    /// Adds a row of the state.
    ///
    /// # Errors
    ///
    /// The stream does not take it.
    pub fn row(&mut self, row: &Row) -> Result<(), WriteError> {
        self.hash.insert(&row.key, &row.value);
        self.written.rows += 1;
        self.record_bytes += row.key.len() + row.value.len();
        self.record.rows.push(row.into());
        self.flush_when_due()
    }

    /// Adds an entry of the log.
    ///
    /// # Errors
    ///
    /// The stream does not take it, or it does not follow the one before it.
    pub fn entry(&mut self, entry: &Entry) -> Result<(), WriteError> {
        if entry.index != self.last_index + 1 {
            return Err(WriteError::Contradiction("the order of the entries"));
        }
        self.last_index = entry.index;
        self.written.entries += 1;
        self.record_bytes += entry.data.len() + entry.context.len() + 16;
        self.record.entries.push(entry.into());
        self.flush_when_due()
    }

    /// Writes the end and returns how many bytes were written in all.
    ///
    /// # Errors
    ///
    /// The stream does not take it, or what was written is not what the header states.
    pub fn finish(mut self) -> Result<u64, WriteError> {
        let end = &self.header.end;
        let agrees = match self.header.kind() {
            Kind::Full => Some(self.hash) == end.hash() && self.written.rows == end.rows,
            Kind::Increment => self.last_index == end.index,
            Kind::Unspecified => false,
        };
        if !agrees {
            return Err(WriteError::Contradiction("the state at the end"));
        }
        self.flush_record()?;
        let trailer = self.written.encode_to_vec();
        self.out.write_all(&0_u32.to_le_bytes())?;
        self.out.write_length(trailer.len())?;
        self.out.write_all(&trailer)?;
        let digest = self.out.digest128();
        self.out.write_all(&digest.to_le_bytes())?;
        self.out.flush()?;
        Ok(self.out.bytes())
    }

    fn flush_when_due(&mut self) -> Result<(), WriteError> {
        match self.record_bytes >= RECORD_BYTES {
            true => self.flush_record(),
            false => Ok(()),
        }
    }

    fn flush_record(&mut self) -> Result<(), WriteError> {
        if self.record == Record::default() {
            return Ok(());
        }
        let payload = self.record.encode_to_vec();
        if payload.len() > RECORD_BYTES_MAX {
            return Err(WriteError::Contradiction("the size of a record"));
        }
        self.record.rows.clear();
        self.record.entries.clear();
        self.record_bytes = 0;
        self.out.write_piece(&payload)?;
        Ok(())
    }
}
