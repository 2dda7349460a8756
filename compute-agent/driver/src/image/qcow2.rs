//! The header of a qcow2 image, from its first bytes.
//!
//! Only what QEMU reads before it opens another file, or allocates memory: version, features, extensions, the
//! name of the backing file, and the sizes of the tables. Not here: the tables themselves, which point into
//! the image alone, and which QEMU checks.
//!
//! Invariant: pure, and total: any bytes give a header or a fault. A header is returned only if QEMU reads
//! the same fields from these bytes and opens no file for them but the backing file in [`Header::backing`].
//! What QEMU ignores today and a later version may follow is a fault.

/// The first bytes of an image.
pub(super) const MAGIC: &[u8] = b"QFI\xfb";

/// The largest cluster: header, extensions and the name of the backing file lie in the first one.
pub(super) const CLUSTER_MAX: usize = 1 << CLUSTER_BITS_MAX;

const CLUSTER_BITS_MIN: u32 = 9;
const CLUSTER_BITS_MAX: u32 = 21;
/// With extended L2 entries a cluster has 32 subclusters of at least one sector.
const CLUSTER_BITS_MIN_EXTENDED: u32 = 14;

const LENGTH_V2: usize = 72;
const LENGTH_V3: usize = 104;
/// Where the compression type is, if the header is long enough.
const COMPRESSION_TYPE: usize = 104;

/// The longest name of a backing file.
const NAME_MAX: usize = 1023;
/// How many extensions a header has at most; QEMU writes five.
const EXTENSIONS_MAX: usize = 32;
/// The largest L1 table and refcount table that QEMU loads, in bytes.
const L1_TABLE_MAX: u64 = 32 << 20;
const REFCOUNT_TABLE_MAX: u64 = 8 << 20;
/// The largest exponent of the bits of a reference count.
const REFCOUNT_ORDER_MAX: u32 = 6;
/// The largest virtual size: offsets of QEMU are signed.
const VIRTUAL_MAX: u64 = 1 << 62;

const INCOMPATIBLE_CORRUPT: u64 = 1 << 1;
const INCOMPATIBLE_DATA_FILE: u64 = 1 << 2;
const INCOMPATIBLE_COMPRESSION: u64 = 1 << 3;
const INCOMPATIBLE_EXTENDED_L2: u64 = 1 << 4;
/// Bit 0, dirty, is that of an image whose reference counts are repaired when it is opened.
const INCOMPATIBLE_KNOWN: u64 = 0b1_1111;
/// The guest's data lie in another file as they are.
const AUTOCLEAR_RAW_DATA_FILE: u64 = 1 << 1;

const EXTENSION_END: u32 = 0;
const EXTENSION_BACKING_FORMAT: u32 = 0xe279_2aca;
const EXTENSION_CRYPTO: u32 = 0x0537_be77;
const EXTENSION_DATA_FILE: u32 = 0x4441_5441;

/// The part of a header that decides what is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// How large the disk is that the image holds.
    pub virtual_bytes: u64,
    /// What it lies over.
    pub backing: Option<Backing>,
}

/// The file that an image lies over, as its header names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backing {
    /// The name, any bytes.
    pub name: Vec<u8>,
    /// The format, where it is stated. QEMU guesses it otherwise.
    pub format: Option<Vec<u8>>,
}

/// Why a header is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// There are fewer bytes than the header has.
    #[error("its qcow2 header is cut off")]
    Truncated,
    /// A version that QEMU does not have, or that Berth does not use.
    #[error("it is qcow2 of version {0}, and 2 and 3 are supported")]
    Version(u32),
    /// A field has a value that it cannot have.
    #[error("its qcow2 header is malformed: {0}")]
    Malformed(&'static str),
    /// Its contents lie in another file.
    #[error("its contents are in an external data file")]
    DataFile,
    /// It is encrypted.
    #[error("it is encrypted")]
    Encrypted,
    /// QEMU has marked it.
    #[error("it is marked as corrupt")]
    Corrupt,
    /// It has features without which it cannot be read, and which are not known.
    #[error("it has unknown incompatible features {0:#x}")]
    Features(u64),
    /// It has internal snapshots.
    #[error("it has {0} internal snapshots")]
    Snapshots(u32),
}

/// Reads the header from the first bytes of an image: the whole file, or at least [`CLUSTER_MAX`].
///
/// # Errors
///
/// What is wrong with it.
pub(super) fn parse(bytes: &[u8]) -> Result<Header, Fault> {
    if bytes.get(..4) != Some(MAGIC) {
        return Err(Fault::Malformed("it does not begin with the magic number"));
    }
    let version = u32_at(bytes, 4)?;
    let length = match version {
        2 => LENGTH_V2,
        3 => usize::try_from(u32_at(bytes, 100)?).unwrap_or(usize::MAX),
        other => return Err(Fault::Version(other)),
    };
    let cluster = cluster_of(bytes)?;
    if version == 3 && (length < LENGTH_V3 || length > cluster || !length.is_multiple_of(8)) {
        return Err(Fault::Malformed("the length of the header"));
    }
    if bytes.len() < length {
        return Err(Fault::Truncated);
    }
    if version == 3 {
        check_features(bytes, length)?;
    }
    check_tables(bytes, cluster)?;
    let virtual_bytes = u64_at(bytes, 24)?;
    if virtual_bytes > VIRTUAL_MAX {
        return Err(Fault::Malformed("the virtual size"));
    }
    let name = backing_name(bytes, length, cluster)?;
    let end = name.as_ref().map_or(cluster, |(offset, _)| *offset);
    let format = backing_format(bytes, length, end)?;
    Ok(Header {
        virtual_bytes,
        backing: name.map(|(_, name)| Backing { name, format }),
    })
}

fn cluster_of(bytes: &[u8]) -> Result<usize, Fault> {
    let bits = u32_at(bytes, 20)?;
    if !(CLUSTER_BITS_MIN..=CLUSTER_BITS_MAX).contains(&bits) {
        return Err(Fault::Malformed("the size of its clusters"));
    }
    Ok(1 << bits)
}

/// Checks the fields that only version 3 has.
fn check_features(bytes: &[u8], length: usize) -> Result<(), Fault> {
    let (incompatible, autoclear) = (u64_at(bytes, 72)?, u64_at(bytes, 88)?);
    let is_data_file = incompatible & INCOMPATIBLE_DATA_FILE != 0;
    if is_data_file || autoclear & AUTOCLEAR_RAW_DATA_FILE != 0 {
        return Err(Fault::DataFile);
    }
    let unknown = incompatible & !INCOMPATIBLE_KNOWN;
    if unknown != 0 {
        return Err(Fault::Features(unknown));
    }
    if incompatible & INCOMPATIBLE_CORRUPT != 0 {
        return Err(Fault::Corrupt);
    }
    let is_extended = incompatible & INCOMPATIBLE_EXTENDED_L2 != 0;
    if is_extended && u32_at(bytes, 20)? < CLUSTER_BITS_MIN_EXTENDED {
        return Err(Fault::Malformed("the size of its clusters"));
    }
    let compression = match length > COMPRESSION_TYPE {
        true => bytes.get(COMPRESSION_TYPE).copied().unwrap_or(0),
        false => 0,
    };
    // 0 is zlib and needs no feature, 1 is zstd.
    let is_zstd = incompatible & INCOMPATIBLE_COMPRESSION != 0;
    if compression > 1 || (compression == 1) != is_zstd {
        return Err(Fault::Malformed("the type of compression"));
    }
    if u32_at(bytes, 96)? > REFCOUNT_ORDER_MAX {
        return Err(Fault::Malformed("the width of its reference counts"));
    }
    Ok(())
}

/// Checks what both versions have: encryption, snapshots, and the sizes of the tables.
fn check_tables(bytes: &[u8], cluster: usize) -> Result<(), Fault> {
    if u32_at(bytes, 32)? != 0 {
        return Err(Fault::Encrypted);
    }
    let snapshots = u32_at(bytes, 60)?;
    if snapshots != 0 {
        return Err(Fault::Snapshots(snapshots));
    }
    if u64::from(u32_at(bytes, 36)?) * 8 > L1_TABLE_MAX {
        return Err(Fault::Malformed("the size of its L1 table"));
    }
    if u64::from(u32_at(bytes, 56)?).saturating_mul(cluster as u64) > REFCOUNT_TABLE_MAX {
        return Err(Fault::Malformed("the size of its refcount table"));
    }
    let is_aligned = |at| u64_at(bytes, at).map(|offset| offset.is_multiple_of(cluster as u64));
    if !is_aligned(40)? || !is_aligned(48)? {
        return Err(Fault::Malformed("the position of a table"));
    }
    Ok(())
}

/// Returns where the name of the backing file is, and the name.
fn backing_name(
    bytes: &[u8],
    header: usize,
    cluster: usize,
) -> Result<Option<(usize, Vec<u8>)>, Fault> {
    let offset = u64_at(bytes, 8)?;
    if offset == 0 {
        return Ok(None);
    }
    let malformed = Fault::Malformed("the position of the name of its backing file");
    let offset = usize::try_from(offset).map_err(|_| malformed)?;
    let length = usize::try_from(u32_at(bytes, 16)?).map_err(|_| malformed)?;
    if !(1..=NAME_MAX).contains(&length)
        || offset < header
        || offset > cluster - length.min(cluster)
    {
        return Err(malformed);
    }
    let name = bytes.get(offset..offset + length).ok_or(Fault::Truncated)?;
    Ok(Some((offset, name.to_vec())))
}

/// Walks the extensions up to `end`, as QEMU does, and returns the format of the backing file.
fn backing_format(bytes: &[u8], start: usize, end: usize) -> Result<Option<Vec<u8>>, Fault> {
    let (mut at, mut format) = (start, None);
    for _ in 0..EXTENSIONS_MAX {
        // QEMU takes one that is cut off by `end` for malformed too.
        if at >= end {
            return Ok(format);
        }
        let (kind, length) = (u32_at(bytes, at)?, u32_at(bytes, at + 4)?);
        at += 8;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if at > end || length > end - at {
            return Err(Fault::Malformed("the length of a header extension"));
        }
        match kind {
            EXTENSION_END => return Ok(format),
            EXTENSION_DATA_FILE => return Err(Fault::DataFile),
            EXTENSION_CRYPTO => return Err(Fault::Encrypted),
            EXTENSION_BACKING_FORMAT if format.is_some() => {
                return Err(Fault::Malformed("two formats of its backing file"));
            }
            EXTENSION_BACKING_FORMAT => {
                let stated = bytes.get(at..at + length).ok_or(Fault::Truncated)?;
                format = Some(stated.to_vec());
            }
            // Names of features, bitmaps, and what a later version of QEMU adds: none that names a file may be
            // read without an incompatible feature.
            _ => {}
        }
        at += length.next_multiple_of(8);
    }
    Err(Fault::Malformed("too many header extensions"))
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Fault> {
    let field = bytes.get(at..).and_then(<[u8]>::first_chunk);
    field
        .map(|four| u32::from_be_bytes(*four))
        .ok_or(Fault::Truncated)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, Fault> {
    let field = bytes.get(at..).and_then(<[u8]>::first_chunk);
    field
        .map(|eight| u64::from_be_bytes(*eight))
        .ok_or(Fault::Truncated)
}
