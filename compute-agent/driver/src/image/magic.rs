//! Recognizes the format of an image by its first bytes, for messages alone.
//!
//! Not a choice of how a file is opened: a file is opened in the format that it is declared to have. A guest
//! can write the first bytes of any format to its disk.

/// A format that QEMU would guess, or that one could mistake for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Known {
    /// QEMU's copy-on-write format, version 2 and later.
    Qcow2,
    /// Its first version.
    Qcow,
    /// QEMU's enhanced disk.
    Qed,
    /// VMware's, an extent or a descriptor that names extents.
    Vmdk,
    /// Microsoft's, of Hyper-V.
    Vhdx,
    /// Microsoft's, older.
    Vhd,
    /// VirtualBox's.
    Vdi,
    /// Parallels'.
    Parallels,
    /// Bochs's.
    Bochs,
    /// Compressed, of live systems.
    Cloop,
    /// An encrypted volume.
    Luks,
}

impl Known {
    /// All of them, for tables.
    pub const ALL: [Self; 11] = [
        Self::Qcow2,
        Self::Qcow,
        Self::Qed,
        Self::Vmdk,
        Self::Vhdx,
        Self::Vhd,
        Self::Vdi,
        Self::Parallels,
        Self::Bochs,
        Self::Cloop,
        Self::Luks,
    ];

    /// Returns its name, as `qemu-img -f` takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Qcow2 => "qcow2",
            Self::Qcow => "qcow",
            Self::Qed => "qed",
            Self::Vmdk => "vmdk",
            Self::Vhdx => "vhdx",
            Self::Vhd => "vpc",
            Self::Vdi => "vdi",
            Self::Parallels => "parallels",
            Self::Bochs => "bochs",
            Self::Cloop => "cloop",
            Self::Luks => "luks",
        }
    }

    /// Returns what a file of this format begins with, as (offset, bytes).
    fn signatures(self) -> &'static [(usize, &'static [u8])] {
        match self {
            Self::Qcow2 | Self::Qcow => &[(0, super::qcow2::MAGIC)],
            Self::Qed => &[(0, b"QED\0")],
            Self::Vmdk => &[(0, b"KDMV"), (0, b"COWD"), (0, b"# Disk DescriptorFile")],
            Self::Vhdx => &[(0, b"vhdxfile")],
            Self::Vhd => &[(0, b"conectix")],
            Self::Vdi => &[(0x40, b"\x7f\x10\xda\xbe")],
            Self::Parallels => &[(0, b"WithoutFreeSpace"), (0, b"WithouFreSpacExt")],
            Self::Bochs => &[(0, b"Bochs Virtual HD Image\0")],
            Self::Cloop => &[(0, b"#!/bin/sh\n#V2.0 Format\nmodprobe cloop")],
            Self::Luks => &[(0, b"LUKS\xba\xbe"), (0, b"SKUL\xba\xbe")],
        }
    }
}

/// Returns the format that a file seems to have; nothing for one that is plain bytes.
#[must_use]
pub fn recognize(head: &[u8]) -> Option<Known> {
    let begins = |(at, bytes): &(usize, &[u8])| {
        let there = head.get(*at..);
        there.is_some_and(|there| there.starts_with(bytes))
    };
    let matches = |known: &Known| known.signatures().iter().any(begins);
    let known = Known::ALL.into_iter().find(matches);
    match known {
        Some(Known::Qcow2) if head.get(4..8) == Some(&[0, 0, 0, 1]) => Some(Known::Qcow),
        None if is_descriptor(head) => Some(Known::Vmdk),
        other => other,
    }
}

/// Returns whether QEMU takes a text for the descriptor of extents: comments, then `version=`.
fn is_descriptor(head: &[u8]) -> bool {
    if head.first() != Some(&b'#') {
        return false;
    }
    let lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let mut content = lines.skip_while(|line| line.is_empty() || line.starts_with(b"#"));
    content
        .next()
        .is_some_and(|line| line.starts_with(b"version="))
}
