//! The checkpoint container: a whole state in one stream of bytes.
//!
//! ```text
//! magic "BERTHCKP" | format u32 | header length u32 | header (protobuf) | crc32 of all before
//! chunk*           : payload length u32 (> 0) | crc32 of payload u32 | payload
//!                    payload: (key length varint | key | value length varint | value)*
//! end              : 0 u32 | xxh3-64 of everything before it u64
//! ```
//!
//! Numbers are little-endian. The same bytes are the snapshot that a member that fell behind
//! receives. Reading verifies every checksum, the row count and the state hash; rows are handed
//! out before the end was seen, so nothing built from them may be used until the reader is
//! [finished](Reader::finish).

use std::io::{self, Read, Write};

use bytes::{Buf, Bytes};
use prost::Message as _;

use crate::container::{Hashing, Unread, u32_at};
use crate::hash::StateHash;
use crate::membership::Membership;
use crate::row::Row;

const MAGIC: &[u8; 8] = b"BERTHCKP";
/// The container version that this code writes, and the newest that it reads.
pub const FORMAT: u32 = 1;
const CHUNK_BYTES: usize = 256 << 10;
/// Limits that a damaged length must not exceed; a single row may be larger than a usual chunk.
const CHUNK_BYTES_MAX: usize = 64 << 20;
const HEADER_BYTES_MAX: usize = 1 << 20;

/// What a checkpoint says about itself.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Header {
    /// The cluster that this state belongs to.
    #[prost(string, tag = "1")]
    pub cluster_id: String,
    /// The last applied index.
    #[prost(uint64, tag = "2")]
    pub index: u64,
    /// The term of the entry at that index.
    #[prost(uint64, tag = "3")]
    pub term: u64,
    /// The membership at that index.
    #[prost(message, required, tag = "4")]
    pub membership: Membership,
    /// The hash of all rows.
    #[prost(bytes = "vec", tag = "5")]
    pub state_hash: Vec<u8>,
    /// How many rows follow.
    #[prost(uint64, tag = "6")]
    pub rows: u64,
}

impl Header {
    /// Returns the hash of all rows.
    pub fn hash(&self) -> Option<StateHash> {
        StateHash::from_bytes(&self.state_hash)
    }
}

/// Why a checkpoint could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file could not be read at all.
    #[error("the checkpoint could not be read")]
    Io(#[source] io::Error),
    /// The file ends too early.
    #[error("the checkpoint is cut short in its {0}")]
    Truncated(&'static str),
    /// A checksum or a structure is wrong.
    #[error("the checkpoint is damaged: {0}")]
    Damaged(&'static str),
    /// A newer program wrote it.
    #[error("the checkpoint has format {actual}, this program reads up to {FORMAT}")]
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

/// Writes one checkpoint.
pub struct Writer<W: Write> {
    out: Hashing<W>,
    chunk: Vec<u8>,
    rows: u64,
    header: Header,
    hash: StateHash,
}

impl<W: Write> Writer<W> {
    /// Writes the header and prepares for rows.
    pub fn new(out: W, header: Header) -> io::Result<Self> {
        let mut out = Hashing::new(out);
        out.write_head(MAGIC, FORMAT, &header)?;
        Ok(Self {
            out,
            chunk: Vec::with_capacity(CHUNK_BYTES + 4096),
            rows: 0,
            header,
            hash: StateHash::EMPTY,
        })
    }

    /// Adds one row.
    pub fn row(&mut self, row: &Row) -> io::Result<()> {
        self.rows += 1;
        self.hash.insert(&row.key, &row.value);
        for part in [&row.key, &row.value] {
            prost::encoding::encode_varint(part.len() as u64, &mut self.chunk);
            self.chunk.extend_from_slice(part);
        }
        if self.chunk.len() >= CHUNK_BYTES {
            self.flush_chunk()?;
        }
        Ok(())
    }

    /// Writes the end and returns how many bytes were written in all.
    ///
    /// # Panics
    ///
    /// When the rows are not the ones that the header announced: the state and its hash have
    /// come apart, and a checkpoint of that would spread the fault.
    pub fn finish(mut self) -> io::Result<u64> {
        assert_eq!(
            (self.rows, Some(self.hash)),
            (self.header.rows, self.header.hash()),
            "the rows of the state at index {} do not match the hash that was kept of them",
            self.header.index
        );
        self.flush_chunk()?;
        self.out.write_all(&0_u32.to_le_bytes())?;
        let digest = self.out.digest();
        self.out.write_all(&digest.to_le_bytes())?;
        Ok(self.out.bytes())
    }

    fn flush_chunk(&mut self) -> io::Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        self.out.write_piece(&self.chunk)?;
        self.chunk.clear();
        Ok(())
    }
}

/// Reads one checkpoint.
pub struct Reader<R: Read> {
    input: Hashing<R>,
    header: Header,
    chunk: Bytes,
    rows: u64,
    hash: StateHash,
    /// Set by the first fault; iteration ends there and `finish` reports it.
    fault: Option<ReadError>,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads and verifies the header.
    pub fn new(input: R) -> Result<Self, ReadError> {
        let mut input = Hashing::new(input);
        let mut head = vec![0; 16];
        input.fill(&mut head, "header")?;
        if &head[..8] != MAGIC {
            return Err(ReadError::Damaged("it does not begin like one"));
        }
        let format = u32_at(&head, 8);
        if format > FORMAT {
            return Err(ReadError::Newer { actual: format });
        }
        let header_bytes = u32_at(&head, 12) as usize;
        if header_bytes > HEADER_BYTES_MAX {
            return Err(ReadError::Damaged("length of the header"));
        }
        head.resize(16 + header_bytes + 4, 0);
        input.fill(&mut head[16..], "header")?;
        let body = &head[..16 + header_bytes];
        if crc32fast::hash(body) != u32_at(&head, 16 + header_bytes) {
            return Err(ReadError::Damaged("checksum of the header"));
        }
        let header =
            Header::decode(&body[16..]).map_err(|_| ReadError::Damaged("content of the header"))?;
        if header.hash().is_none() {
            return Err(ReadError::Damaged("state hash of the header"));
        }
        Ok(Self {
            input,
            header,
            chunk: Bytes::new(),
            rows: 0,
            hash: StateHash::EMPTY,
            fault: None,
            ended: false,
        })
    }

    /// Returns what the checkpoint says about itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Reads what is left and says whether all of it was sound.
    pub fn finish(mut self) -> Result<Header, ReadError> {
        while self.next().is_some() {}
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if self.rows != self.header.rows {
            return Err(ReadError::Damaged("number of rows"));
        }
        if Some(self.hash) != self.header.hash() {
            return Err(ReadError::Damaged("hash of the rows"));
        }
        Ok(self.header)
    }

    fn next_row(&mut self) -> Result<Option<Row>, ReadError> {
        if self.chunk.is_empty() && !self.next_chunk()? {
            return Ok(None);
        }
        let key = take(&mut self.chunk)?;
        let value = take(&mut self.chunk)?;
        self.rows += 1;
        self.hash.insert(&key, &value);
        Ok(Some(Row { key, value }))
    }

    fn next_chunk(&mut self) -> Result<bool, ReadError> {
        let mut word = [0; 4];
        self.input.fill(&mut word, "chunks")?;
        let chunk_bytes = u32::from_le_bytes(word) as usize;
        if chunk_bytes == 0 {
            let expected = self.input.digest();
            let mut digest = [0; 8];
            self.input.fill(&mut digest, "end")?;
            if u64::from_le_bytes(digest) != expected {
                return Err(ReadError::Damaged("checksum of the whole"));
            }
            return Ok(false);
        }
        if chunk_bytes > CHUNK_BYTES_MAX {
            return Err(ReadError::Damaged("length of a chunk"));
        }
        self.input.fill(&mut word, "chunks")?;
        let mut payload = vec![0; chunk_bytes];
        self.input.fill(&mut payload, "chunks")?;
        if crc32fast::hash(&payload) != u32::from_le_bytes(word) {
            return Err(ReadError::Damaged("checksum of a chunk"));
        }
        self.chunk = payload.into();
        Ok(true)
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        if self.ended {
            return None;
        }
        let row = self.next_row().unwrap_or_else(|fault| {
            self.fault = Some(fault);
            None
        });
        self.ended = row.is_none();
        row
    }
}

fn take(chunk: &mut Bytes) -> Result<Bytes, ReadError> {
    let part_bytes = prost::encoding::decode_varint(chunk)
        .map_err(|_| ReadError::Damaged("length of a row"))? as usize;
    if part_bytes > chunk.remaining() {
        return Err(ReadError::Damaged("length of a row"));
    }
    Ok(chunk.split_to(part_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: u32) -> Vec<Row> {
        (0..count)
            .map(|n| Row {
                key: format!("row/{n:06}").into(),
                value: vec![n as u8; (n % 700) as usize].into(),
            })
            .collect()
    }

    fn written(rows: &[Row]) -> Vec<u8> {
        let header = Header {
            cluster_id: "c".into(),
            index: 9,
            term: 2,
            membership: Membership::default(),
            state_hash: StateHash::of_rows(rows.iter().cloned()).to_bytes().into(),
            rows: rows.len() as u64,
        };
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, header).expect("header");
        for row in rows {
            writer.row(row).expect("row");
        }
        let count = writer.finish().expect("end");
        assert_eq!(count, bytes.len() as u64);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Vec<Row>, ReadError> {
        let mut reader = Reader::new(bytes)?;
        let rows: Vec<Row> = reader.by_ref().collect();
        reader.finish()?;
        Ok(rows)
    }

    #[test]
    fn rows_come_back() {
        for count in [0, 1, 3000] {
            let rows = rows(count);
            assert_eq!(read(&written(&rows)).expect("sound"), rows);
        }
    }

    #[test]
    fn every_truncation_is_noticed() {
        let bytes = written(&rows(20));
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn every_flipped_byte_is_noticed() {
        let bytes = written(&rows(20));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x41;
            assert!(read(&damaged).is_err(), "flipped at {at}");
        }
    }

    #[test]
    fn a_newer_format_is_named() {
        let mut bytes = written(&rows(1));
        bytes[8] = 9;
        assert!(matches!(read(&bytes), Err(ReadError::Newer { actual: 9 })));
    }
}
