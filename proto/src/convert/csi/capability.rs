//! How a volume is to be used: by whom at once, as a block device or as a file system.
//!
//! A volume is on one host, so one host at a time can use it. A cache volume has contents of its
//! own on each of its hosts, so that for it "several hosts" means one and one.

use std::fmt;

use crate::convert::field::{self, Invalid};
use crate::csi::v1::VolumeCapability;
use crate::csi::v1::volume_capability::access_mode::Mode;
use crate::csi::v1::volume_capability::{AccessType, MountVolume};

/// The most capabilities that one request may name.
pub const CAPABILITIES_MAX: usize = 64;
/// The most mount flags, and the most bytes of each.
const FLAGS_MAX: usize = 64;
const FLAG_LENGTH_MAX: usize = 256;

/// A file system that volumes can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileSystem {
    /// The one that is taken where none is named.
    #[default]
    Ext4,
    /// The other.
    Xfs,
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        })
    }
}

/// As what a volume is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// As a block device.
    Block,
    /// As a file system.
    Mount {
        /// Which.
        file_system: FileSystem,
        /// With what it is mounted, besides what makes it persistent memory; sorted, each once.
        flags: Vec<String>,
    },
}

/// How a volume is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// As what.
    pub access: Access,
    /// Whether it is read-only.
    pub readonly: bool,
    /// Whether one path alone may show it.
    pub single: bool,
}

/// What else decides what is possible with a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// Whether it is a cache volume.
    pub is_cache: bool,
    /// Whether its file system is in an image file for Kata Containers.
    pub is_kata: bool,
}

/// Reads how a volume is to be used.
///
/// # Errors
///
/// When something is missing, or not possible with this volume; the rule states what is.
pub fn usage(requested: VolumeCapability, volume: Volume) -> Result<Usage, Invalid> {
    let mode = requested
        .access_mode
        .ok_or_else(|| Invalid::new("access_mode", "is required"))?
        .mode;
    let mode = Mode::try_from(mode).unwrap_or(Mode::Unknown);
    let (readonly, single) = by_mode(mode, volume).map_err(|e| e.within("access_mode"))?;
    let access = match requested.access_type {
        None => return Err(Invalid::new("access_type", "must be block or mount")),
        Some(AccessType::Block(_)) if volume.is_kata => {
            let rule = "cannot be used with kataContainers: such a volume has a file system that a \
                        guest maps";
            return Err(Invalid::new("block", rule));
        }
        Some(AccessType::Block(_)) => Access::Block,
        Some(AccessType::Mount(mount)) => by_mount(mount).map_err(|e| e.within("mount"))?,
    };
    Ok(Usage {
        access,
        readonly,
        single,
    })
}

/// Reads how a volume is to be used, in each of these ways.
///
/// # Errors
///
/// As [`usage`], and when there are none or too many.
pub fn usages(requested: Vec<VolumeCapability>, volume: Volume) -> Result<Vec<Usage>, Invalid> {
    const FIELD: &str = "volume_capabilities";
    if requested.is_empty() {
        return Err(Invalid::new(FIELD, "is required"));
    }
    field::each_by(requested, FIELD, CAPABILITIES_MAX, |one| usage(one, volume))
}

/// Returns whether it is read only, and whether one path alone may show it.
fn by_mode(mode: Mode, volume: Volume) -> Result<(bool, bool), Invalid> {
    match mode {
        Mode::SingleNodeWriter | Mode::SingleNodeMultiWriter => Ok((false, false)),
        Mode::SingleNodeSingleWriter => Ok((false, true)),
        Mode::SingleNodeReaderOnly => Ok((true, false)),
        Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter if volume.is_cache => {
            Ok((false, false))
        }
        Mode::MultiNodeReaderOnly if volume.is_cache => Ok((true, false)),
        Mode::MultiNodeReaderOnly | Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter => {
            Err(Invalid::here(format!(
                "{} is not possible: a volume is on one host; use SINGLE_NODE_WRITER, or a volume \
                 with persistencyModel=cache",
                mode.as_str_name()
            )))
        }
        Mode::Unknown => Err(Invalid::here(
            "must be SINGLE_NODE_WRITER, SINGLE_NODE_SINGLE_WRITER, SINGLE_NODE_MULTI_WRITER or \
             SINGLE_NODE_READER_ONLY",
        )),
    }
}

fn by_mount(mount: MountVolume) -> Result<Access, Invalid> {
    let file_system = match mount.fs_type.as_str() {
        "" | "ext4" => FileSystem::Ext4,
        "xfs" => FileSystem::Xfs,
        other => {
            let rule = format!("must be ext4 or xfs, not {}", field::shown(other));
            return Err(Invalid::new("fs_type", rule));
        }
    };
    if !mount.volume_mount_group.is_empty() {
        let rule = "is not offered: the kubelet gives the files to the group itself";
        return Err(Invalid::new("volume_mount_group", rule));
    }
    let mut flags = field::each_by(mount.mount_flags, "mount_flags", FLAGS_MAX, flag)?;
    flags.sort_unstable();
    flags.dedup();
    Ok(Access::Mount { file_system, flags })
}

/// A flag goes into a list with commas, and to a program as its argument.
fn flag(flag: String) -> Result<String, Invalid> {
    let is_good = !flag.is_empty()
        && flag.len() <= FLAG_LENGTH_MAX
        && !flag.starts_with('-')
        && !flag.contains(|c: char| c == ',' || c.is_control() || c.is_whitespace());
    let shown = field::shown(&flag);
    is_good
        .then_some(flag)
        .ok_or_else(|| Invalid::here(format!("must be one mount option, not {shown}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csi::v1::volume_capability::{AccessMode, BlockVolume};

    const PLAIN: Volume = Volume {
        is_cache: false,
        is_kata: false,
    };

    fn requested(mode: Mode, access_type: AccessType) -> VolumeCapability {
        VolumeCapability {
            access_mode: Some(AccessMode { mode: mode.into() }),
            access_type: Some(access_type),
        }
    }

    fn mount(fs_type: &str, flags: &[&str]) -> AccessType {
        AccessType::Mount(MountVolume {
            fs_type: fs_type.to_owned(),
            mount_flags: flags.iter().map(ToString::to_string).collect(),
            volume_mount_group: String::new(),
        })
    }

    #[test]
    fn who_may_use_a_volume_at_once() {
        use Mode::*;
        let single = [
            (SingleNodeWriter, (false, false)),
            (SingleNodeMultiWriter, (false, false)),
            (SingleNodeSingleWriter, (false, true)),
            (SingleNodeReaderOnly, (true, false)),
        ];
        let several = [
            (MultiNodeReaderOnly, (true, false)),
            (MultiNodeSingleWriter, (false, false)),
            (MultiNodeMultiWriter, (false, false)),
        ];
        let cache = Volume {
            is_cache: true,
            ..PLAIN
        };
        let read = |mode, volume| usage(requested(mode, mount("", &[])), volume);
        for (mode, expected) in single {
            for volume in [PLAIN, cache] {
                let usage = read(mode, volume).unwrap();
                assert_eq!((usage.readonly, usage.single), expected, "{mode:?}");
            }
        }
        for (mode, expected) in several {
            let refused = read(mode, PLAIN).unwrap_err();
            assert_eq!(refused.path, "access_mode");
            assert!(refused.rule.contains(mode.as_str_name()), "{refused}");
            let usage = read(mode, cache).unwrap();
            assert_eq!((usage.readonly, usage.single), expected, "{mode:?}");
        }
        assert!(read(Unknown, cache).is_err());
    }

    #[test]
    fn what_a_volume_can_be() {
        let mode = Mode::SingleNodeWriter;
        let block = || AccessType::Block(BlockVolume {});
        let kata = Volume {
            is_kata: true,
            ..PLAIN
        };
        let read = |access, volume| usage(requested(mode, access), volume).map(|u| u.access);
        assert_eq!(read(block(), PLAIN), Ok(Access::Block));
        assert_eq!(read(block(), kata).unwrap_err().path, "block");
        for (fs_type, file_system) in [
            ("", FileSystem::Ext4),
            ("ext4", FileSystem::Ext4),
            ("xfs", FileSystem::Xfs),
        ] {
            let expected = Access::Mount {
                file_system,
                flags: vec!["noatime".to_owned(), "ro".to_owned()],
            };
            let asked = mount(fs_type, &["ro", "noatime", "ro"]);
            assert_eq!(read(asked, kata), Ok(expected));
        }
        for (access, path) in [
            (mount("ext3", &[]), "mount.fs_type"),
            (mount("xfs\n", &[]), "mount.fs_type"),
            (mount("", &["ro", "a,b"]), "mount.mount_flags[1]"),
            (mount("", &["-o"]), "mount.mount_flags[0]"),
            (mount("", &["a b"]), "mount.mount_flags[0]"),
            (mount("", &[""]), "mount.mount_flags[0]"),
            (mount("", &["x"; 65]), "mount.mount_flags"),
        ] {
            assert_eq!(read(access, PLAIN).unwrap_err().path, path);
        }
        let group = AccessType::Mount(MountVolume {
            volume_mount_group: "7".to_owned(),
            ..MountVolume::default()
        });
        assert_eq!(
            read(group, PLAIN).unwrap_err().path,
            "mount.volume_mount_group"
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        let path = |requested: Vec<VolumeCapability>| usages(requested, PLAIN).unwrap_err().path;
        let none = VolumeCapability::default();
        let half = VolumeCapability {
            access_type: None,
            ..requested(Mode::SingleNodeWriter, mount("", &[]))
        };
        assert_eq!(path(Vec::new()), "volume_capabilities");
        assert_eq!(
            path(vec![none.clone()]),
            "volume_capabilities[0].access_mode"
        );
        assert_eq!(path(vec![half]), "volume_capabilities[0].access_type");
        assert_eq!(path(vec![none; 65]), "volume_capabilities");
    }
}
