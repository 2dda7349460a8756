//! Reads one backup from a stream of bytes, and verifies every checksum, count and hash of it.
//!
//! Items are handed out before the end was seen, so nothing that is built from them may be used until
//! the reader is [finished](Reader::finish). Each length is compared with a limit before memory is
//! taken for it.

use std::collections::VecDeque;
use std::io::{self, Read};

use berth_store::StateHash;
use berth_store::container::{Hashing, Unread, u32_at};
use bytes::Bytes;
use prost::Message as _;

use crate::header::{Header, Kind};
use crate::record::{Item, Record, Trailer};
use crate::{FORMAT, HEADER_BYTES_MAX, MAGIC, RECORD_BYTES_MAX, TRAILER_BYTES_MAX};

/// Why a backup cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read at all.
    #[error("the file cannot be read")]
    Io(#[source] io::Error),
    /// It is something else.
    #[error("it is not a backup: it does not begin like one")]
    Foreign,
    /// The file ends too early.
    #[error("it is cut short in its {0}")]
    Truncated(&'static str),
    /// A checksum or a structure is wrong.
    #[error("it is damaged: the {0} is wrong")]
    Damaged(&'static str),
    /// A newer program wrote it.
    #[error("it has format {actual}, and this program reads up to {FORMAT}")]
    Newer {
        /// The format of the file.
        actual: u32,
    },
}

impl From<Unread> for ReadError {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Truncated(part) => Self::Truncated(part),
            Unread::Io(error) => Self::Io(error),
        }
    }
}

/// What a backup holds, after all of it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// What it states about itself.
    pub header: Header,
    /// The number of rows.
    pub rows: u64,
    /// The number of entries.
    pub entries: u64,
    /// The length of the file.
    pub bytes: u64,
}

/// Reads one backup.
pub struct Reader<R: Read> {
    input: Hashing<R>,
    header: Header,
    items: VecDeque<Item>,
    read: Trailer,
    /// Of the rows.
    hash: StateHash,
    /// Index and term of the last entry.
    last: (u64, u64),
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads and verifies the header.
    ///
    /// # Errors
    ///
    /// It is damaged, cut short, of a newer program or something else.
    pub fn new(input: R) -> Result<Self, ReadError> {
        let mut input = Hashing::new(input);
        let header = read_header(&mut input)?;
        if let Some(fault) = header.fault() {
            return Err(ReadError::Damaged(fault));
        }
        let after = header.after.as_ref();
        Ok(Self {
            input,
            last: after.map_or((0, 0), |after| (after.index, after.term)),
            header,
            items: VecDeque::new(),
            read: Trailer::default(),
            hash: StateHash::EMPTY,
            ended: false,
        })
    }

    /// Returns what the backup states about itself.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the next row or entry; nothing after the last, when all of the file is verified.
    ///
    /// # Errors
    ///
    /// The file is damaged, or cut short.
    // No iterator: its errors would have to be kept for later.
    #[expect(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Item>, ReadError> {
        while self.items.is_empty() && !self.ended {
            self.read_record()?;
        }
        Ok(self.items.pop_front())
    }

    /// Reads what is left, and returns what the backup holds.
    ///
    /// # Errors
    ///
    /// The file is damaged, or cut short.
    pub fn finish(mut self) -> Result<Summary, ReadError> {
        while self.next()?.is_some() {}
        Ok(Summary {
            rows: self.read.rows,
            entries: self.read.entries,
            bytes: self.input.bytes(),
            header: self.header,
        })
    }

    fn read_record(&mut self) -> Result<(), ReadError> {
        let record_bytes = self.read_u32("records")? as usize;
        if record_bytes == 0 {
            self.read_end()?;
            self.ended = true;
            return Ok(());
        }
        if record_bytes > RECORD_BYTES_MAX {
            return Err(ReadError::Damaged("length of a record"));
        }
        let crc = self.read_u32("records")?;
        let payload = read_bytes(&mut self.input, record_bytes, "records")?;
        if crc32fast::hash(&payload) != crc {
            return Err(ReadError::Damaged("checksum of a record"));
        }
        let record = Record::decode(Bytes::from(payload));
        self.take(record.map_err(|_| ReadError::Damaged("content of a record"))?)
    }

    fn take(&mut self, record: Record) -> Result<(), ReadError> {
        let fits = match self.header.kind() {
            Kind::Full => record.entries.is_empty(),
            Kind::Increment => record.rows.is_empty(),
            Kind::Unspecified => false,
        };
        if !fits || record == Record::default() {
            return Err(ReadError::Damaged("content of a record"));
        }
        self.read.rows += record.rows.len() as u64;
        self.read.entries += record.entries.len() as u64;
        for row in record.rows {
            self.hash.insert(&row.key, &row.value);
            self.items.push_back(Item::Row(row.into()));
        }
        for wire in record.entries {
            let entry = wire.into_entry();
            let entry = entry.ok_or(ReadError::Damaged("type of an entry"))?;
            let (index, term) = self.last;
            if Some(entry.index) != index.checked_add(1) || entry.term < term {
                return Err(ReadError::Damaged("order of the entries"));
            }
            self.last = (entry.index, entry.term);
            self.items.push_back(Item::Entry(entry));
        }
        Ok(())
    }

    fn read_end(&mut self) -> Result<(), ReadError> {
        let trailer_bytes = self.read_u32("end")? as usize;
        if trailer_bytes > TRAILER_BYTES_MAX {
            return Err(ReadError::Damaged("length of the trailer"));
        }
        let trailer = read_bytes(&mut self.input, trailer_bytes, "end")?;
        let expected = self.input.digest128().to_le_bytes();
        let digest = read_bytes(&mut self.input, expected.len(), "end")?;
        if digest != expected {
            return Err(ReadError::Damaged("checksum of the whole"));
        }
        let trailer = Trailer::decode(trailer.as_slice());
        if trailer.ok() != Some(self.read) {
            return Err(ReadError::Damaged("number of rows and entries"));
        }
        let end = &self.header.end;
        let agrees = match self.header.kind() {
            Kind::Full => Some(self.hash) == end.hash() && self.read.rows == end.rows,
            Kind::Increment => self.last == (end.index, end.term),
            Kind::Unspecified => false,
        };
        if !agrees {
            return Err(ReadError::Damaged("state at the end"));
        }
        match self.input.is_at_end()? {
            true => Ok(()),
            false => Err(ReadError::Damaged("length of the file")),
        }
    }

    fn read_u32(&mut self, part: &'static str) -> Result<u32, ReadError> {
        let mut word = [0; 4];
        self.input.fill(&mut word, part)?;
        Ok(u32::from_le_bytes(word))
    }
}

fn read_header<R: Read>(input: &mut Hashing<R>) -> Result<Header, ReadError> {
    let mut head = vec![0; 16];
    for (byte, expected) in head.iter_mut().zip(MAGIC) {
        // A short file that begins otherwise is no part of a backup.
        input.fill(std::slice::from_mut(byte), "header")?;
        if byte != expected {
            return Err(ReadError::Foreign);
        }
    }
    input.fill(&mut head[8..], "header")?;
    let format = u32_at(&head, 8);
    if format > FORMAT {
        return Err(ReadError::Newer { actual: format });
    }
    let header_bytes = u32_at(&head, 12) as usize;
    if header_bytes > HEADER_BYTES_MAX {
        return Err(ReadError::Damaged("length of the header"));
    }
    let rest = read_bytes(input, header_bytes + 4, "header")?;
    head.extend_from_slice(&rest);
    let body = &head[..16 + header_bytes];
    if crc32fast::hash(body) != u32_at(&head, 16 + header_bytes) {
        return Err(ReadError::Damaged("checksum of the header"));
    }
    if format == 0 {
        return Err(ReadError::Damaged("format"));
    }
    Header::decode(&body[16..]).map_err(|_| ReadError::Damaged("content of the header"))
}

/// Reads so many bytes. Memory is taken as they arrive: a length that is damaged and below its limit
/// costs no more than the file has.
fn read_bytes<R: Read>(
    input: &mut Hashing<R>,
    count: usize,
    part: &'static str,
) -> Result<Vec<u8>, ReadError> {
    const STEP: usize = 1 << 20;
    let mut bytes = Vec::new();
    while bytes.len() < count {
        let from = bytes.len();
        bytes.resize(count.min(from + STEP), 0);
        input.fill(&mut bytes[from..], part)?;
    }
    Ok(bytes)
}
