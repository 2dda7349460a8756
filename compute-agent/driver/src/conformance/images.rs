//! Images that an attacker would make: by hand, so that no program is needed for them.
//!
//! Each names a secret file of the host, or would have a program read, allocate or write more than it should.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The size of the disk in each image where the attack is not about it.
pub const DISK_BYTES: u64 = 1 << 30;

/// An image, and what it attacks with.
#[derive(Clone, Debug)]
pub struct Attack {
    /// What it is.
    pub name: &'static str,
    /// The file.
    pub bytes: Vec<u8>,
    /// Whether QEMU opens the secret when it opens the file as qcow2.
    pub is_followed: bool,
}

const CLUSTER: usize = 1 << 16;
const HEADER_V2: usize = 72;
const HEADER_V3: usize = 112;
/// Where the name of a backing file is put.
const NAME_AT: usize = 0x1000;

const BACKING_FORMAT: u32 = 0xe279_2aca;
const DATA_FILE: u32 = 0x4441_5441;
const CRYPTO: u32 = 0x0537_be77;

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn with(mut bytes: Vec<u8>, fields: &[(usize, &[u8])]) -> Vec<u8> {
    for (at, value) in fields {
        put(&mut bytes, *at, value);
    }
    bytes
}

/// Returns an empty qcow2 image of [`DISK_BYTES`] that stands alone, and with which nothing is wrong.
#[must_use]
pub fn sound() -> Vec<u8> {
    let mut bytes = vec![0; 4 * CLUSTER];
    put(&mut bytes, 0, b"QFI\xfb\0\0\0\x03");
    put(&mut bytes, 20, &16_u32.to_be_bytes());
    put(&mut bytes, 24, &DISK_BYTES.to_be_bytes());
    // The L1 table, then the refcount table with its one block.
    put(&mut bytes, 36, &2_u32.to_be_bytes());
    put(&mut bytes, 40, &(3 * CLUSTER as u64).to_be_bytes());
    put(&mut bytes, 48, &(CLUSTER as u64).to_be_bytes());
    put(&mut bytes, 56, &1_u32.to_be_bytes());
    put(&mut bytes, 96, &4_u32.to_be_bytes());
    put(&mut bytes, 100, &112_u32.to_be_bytes());
    put(&mut bytes, CLUSTER, &(2 * CLUSTER as u64).to_be_bytes());
    for cluster in 0..4 {
        put(&mut bytes, 2 * CLUSTER + 2 * cluster, &1_u16.to_be_bytes());
    }
    bytes
}

/// Returns the image in version 2, which has neither features nor a length of its header.
fn version_2() -> Vec<u8> {
    with(
        sound(),
        &[(7, &[2]), (HEADER_V2, &[0; HEADER_V3 - HEADER_V2])],
    )
}

/// Writes header extensions.
fn extended(mut bytes: Vec<u8>, extensions: &[(u32, &[u8])]) -> Vec<u8> {
    let mut at = if bytes[7] == 2 { HEADER_V2 } else { HEADER_V3 };
    for (kind, value) in extensions {
        put(&mut bytes, at, &kind.to_be_bytes());
        let length = u32::try_from(value.len()).expect("a short one");
        put(&mut bytes, at + 4, &length.to_be_bytes());
        put(&mut bytes, at + 8, value);
        at += 8 + value.len().next_multiple_of(8);
    }
    bytes
}

/// Returns an image over a file.
#[must_use]
pub fn over(bytes: Vec<u8>, name: &[u8], format: Option<&str>) -> Vec<u8> {
    let length = u32::try_from(name.len()).expect("a short one");
    let fields: [(usize, &[u8]); 3] = [
        (8, &(NAME_AT as u64).to_be_bytes()),
        (16, &length.to_be_bytes()),
        (NAME_AT, name),
    ];
    let bytes = with(bytes, &fields);
    match format {
        Some(format) => extended(bytes, &[(BACKING_FORMAT, format.as_bytes())]),
        None => bytes,
    }
}

/// Returns an image with its data in a file.
fn data_in(name: &[u8], is_declared: bool) -> Vec<u8> {
    let bytes = extended(sound(), &[(DATA_FILE, name)]);
    match is_declared {
        true => with(bytes, &[(79, &[0b100])]),
        false => bytes,
    }
}

/// Returns images in which qcow2 is declared, and which must never be opened as that: they name the secret,
/// or a file below `base` in place of it.
#[must_use]
pub fn attacks(secret: &Path, base: &Path) -> Vec<Attack> {
    let (secret, base) = (secret.as_os_str().as_bytes(), base.as_os_str().as_bytes());
    let attack = |name, bytes, is_followed| Attack {
        name,
        bytes,
        is_followed,
    };
    let mut all = naming(secret, base);
    all.extend([
        attack("cut off", sound()[..60].to_vec(), false),
        attack("empty", Vec::new(), false),
        attack("no image", vec![b'x'; 4096], false),
        attack("version 1", with(sound(), &[(7, &[1])]), false),
        attack("version 4", with(sound(), &[(7, &[4])]), false),
        attack("AES", with(sound(), &[(35, &[1])]), false),
        attack(
            "LUKS",
            with(extended(sound(), &[(CRYPTO, &[0; 16])]), &[(35, &[2])]),
            false,
        ),
        attack("unknown feature", with(sound(), &[(72, &[0x80])]), false),
        attack("corrupt", with(sound(), &[(79, &[0b10])]), false),
        attack("snapshots", with(sound(), &[(63, &[1])]), false),
        attack("clusters of 2^63", with(sound(), &[(23, &[63])]), false),
        attack("clusters of 1", with(sound(), &[(23, &[0])]), false),
        attack("L1 table", with(sound(), &[(36, &[0xff; 4])]), false),
        attack("refcount table", with(sound(), &[(56, &[0xff; 4])]), false),
        attack("unaligned table", with(sound(), &[(47, &[1])]), false),
        attack("2^63 bytes", with(sound(), &[(24, &[0x7f; 8])]), false),
        attack("larger", with(sound(), &[(26, &[1])]), false),
        attack("header of 2^32", with(sound(), &[(100, &[0xff; 4])]), false),
        attack("header of 0", with(sound(), &[(100, &[0; 4])]), false),
        attack("compression", with(sound(), &[(104, &[9])]), false),
        attack(
            "long extension",
            with(sound(), &[(HEADER_V3, &[0x70; 8])]),
            false,
        ),
        attack(
            "many extensions",
            extended(sound(), &[(7, &[][..]); 100]),
            false,
        ),
    ]);
    all.extend(foreign(secret));
    all
}

/// Those in which a header names a file.
fn naming(secret: &[u8], base: &[u8]) -> Vec<Attack> {
    let attack = |name, bytes, is_followed| Attack {
        name,
        bytes,
        is_followed,
    };
    let json = [
        br#"json:{"driver":"raw","file":{"driver":"file","filename":""#,
        secret,
        br#""}}"#,
    ]
    .concat();
    let url = [b"file:", secret].concat();
    let relative = [&b"../".repeat(32), &secret[1..]].concat();
    // What reads the whole name sees another one than what stops at its first zero.
    let cut = [secret, b"\0", base].concat();
    let two: [(u32, &[u8]); 2] = [(BACKING_FORMAT, b"raw"), (BACKING_FORMAT, b"qcow2")];
    vec![
        attack("backing", over(sound(), secret, Some("raw")), true),
        attack("backing, guessed", over(sound(), secret, None), true),
        attack(
            "backing, version 2",
            over(version_2(), secret, Some("raw")),
            true,
        ),
        attack("backing, JSON", over(sound(), &json, None), true),
        attack("backing, URL", over(sound(), &url, Some("raw")), true),
        attack(
            "backing, relative",
            over(sound(), &relative, Some("raw")),
            true,
        ),
        attack("backing, cut", over(sound(), &cut, Some("raw")), true),
        attack(
            "backing, two formats",
            extended(over(sound(), secret, None), &two),
            false,
        ),
        attack(
            "backing, long",
            over(sound(), &[b'a'; 1024], Some("raw")),
            false,
        ),
        attack(
            "backing, far",
            with(over(sound(), secret, None), &[(8, &[0x7f; 8])]),
            false,
        ),
        attack(
            "backing, no name",
            with(over(sound(), secret, None), &[(16, &[0; 4])]),
            false,
        ),
        attack(
            "base of another format",
            over(sound(), base, Some("qed")),
            false,
        ),
        attack("data file", data_in(secret, true), true),
        attack("data file, undeclared", data_in(secret, false), false),
        attack(
            "data file, unnamed",
            with(sound(), &[(79, &[0b100])]),
            false,
        ),
        attack(
            "data file, raw",
            with(data_in(secret, false), &[(95, &[0b10])]),
            false,
        ),
    ]
}

/// Those of other formats.
fn foreign(secret: &[u8]) -> Vec<Attack> {
    let attack = |name, bytes| Attack {
        name,
        bytes,
        is_followed: false,
    };
    let padded = |begin: &[u8]| {
        let mut bytes = begin.to_vec();
        bytes.resize(4096.max(begin.len()), 0);
        bytes
    };
    let extents = [
        b"# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\n",
        &b"createType=\"monolithicFlat\"\nRW 2097152 FLAT \""[..],
        secret,
        b"\" 0\n",
    ]
    .concat();
    let commented = [b"# \n\nversion=1\nRW 1 FLAT \"", secret, b"\" 0\n"].concat();
    let mut qed = padded(b"QED\0");
    put(&mut qed, 64, secret);
    let qcow = over(with(sound(), &[(7, &[1])]), secret, None);
    let mut vdi = vec![0; 4096];
    put(&mut vdi, 0x40, b"\x7f\x10\xda\xbe");
    vec![
        attack("vmdk, descriptor", extents),
        attack("vmdk, comment", commented),
        attack("vmdk, sparse", padded(b"KDMV")),
        attack("vmdk, COWD", padded(b"COWD")),
        attack("qed", qed),
        attack("qcow", qcow),
        attack("vhdx", padded(b"vhdxfile")),
        attack("vhd", padded(b"conectix")),
        attack("vdi", vdi),
        attack("parallels", padded(b"WithoutFreeSpace")),
        attack("bochs", padded(b"Bochs Virtual HD Image\0")),
        attack("cloop", padded(b"#!/bin/sh\n#V2.0 Format\nmodprobe cloop")),
    ]
}
