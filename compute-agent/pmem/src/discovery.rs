//! The configured namespaces beside those of the host: which can be used, and why the others
//! cannot. Pure; the type of a path in `/dev` is determined by a callback.
//!
//! Invariant: every configured name comes out once, usable or refused. No two usable ones have the
//! same device.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use berth_domain::pmem::Label;
use berth_domain::resource::ResourceClass;

use crate::config::Configured;
use crate::ndctl::{Entry, Mode, Namespace};

/// A namespace that guests can be assigned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its name.
    pub name: String,
    /// The label that it is configured with.
    pub label: Label,
    /// What distinguishes it from a later one of the same name, if it has such an identity.
    pub uuid: Option<String>,
    /// How much a guest sees of it.
    pub size_bytes: u64,
    /// What its size and its address in a guest are multiples of.
    pub align_bytes: u64,
    /// Its character device; another one after each start of the host.
    pub path: PathBuf,
    /// The node that it is near to, if the firmware reports it.
    pub numa_node: Option<u32>,
    /// The region of memory that it is cut out of.
    pub region: Option<String>,
}

impl Record {
    /// Returns the resource class that it counts for.
    #[must_use]
    pub fn class(&self) -> ResourceClass {
        self.label.class()
    }
}

/// Why a configured namespace cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The host has none of that name.
    Absent,
    /// It is the kernel's name of one that has no name.
    Nameless,
    /// The host has several of that name.
    Repeated {
        /// The kernel's names of them.
        devs: Vec<String>,
    },
    /// It is made for something else.
    Mode {
        /// For what.
        mode: Mode,
    },
    /// It is switched off; its mode is not reported then.
    Disabled,
    /// The output of ndctl about it cannot be parsed.
    Odd {
        /// What is odd.
        why: String,
    },
    /// It has no bytes.
    Empty,
    /// What its size has to be a multiple of is not reported.
    NoAlignment,
    /// Its size is no multiple of its alignment, or smaller.
    Misaligned {
        /// Its size.
        size_bytes: u64,
        /// Its alignment.
        align_bytes: u64,
    },
    /// It has no character device, or several.
    Devices {
        /// How many it has.
        count: usize,
    },
    /// Its character device is not there.
    DeviceMissing {
        /// Where it should be.
        path: PathBuf,
    },
    /// Another kind of file exists in place of its character device.
    NotADevice {
        /// Where.
        path: PathBuf,
    },
    /// It has the character device of another.
    Shared {
        /// The device.
        path: PathBuf,
    },
}

impl Reason {
    /// Returns whether an agent does not start with it: what is configured and what the host has
    /// are two things. The others may pass, or leave the other namespaces usable.
    #[must_use]
    pub fn stops_start(&self) -> bool {
        match self {
            Self::Absent | Self::Nameless | Self::Repeated { .. } | Self::Mode { .. } => true,
            Self::Disabled
            | Self::Odd { .. }
            | Self::Empty
            | Self::NoAlignment
            | Self::Misaligned { .. }
            | Self::Devices { .. }
            | Self::DeviceMissing { .. }
            | Self::NotADevice { .. }
            | Self::Shared { .. } => false,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("this host has no namespace of that name (ndctl list -Ni)"),
            Self::Nameless => f.write_str(
                "that is what the kernel calls a namespace without a name; recreate it with \
                 ndctl create-namespace --name, since the kernel may call it otherwise tomorrow",
            ),
            Self::Repeated { devs } => write!(
                f,
                "this host has {} namespaces of that name ({}); names must be unique",
                devs.len(),
                devs.join(", ")
            ),
            Self::Mode { mode } => write!(
                f,
                "it is in mode {mode}; guests can use namespaces in mode devdax only (ndctl \
                 create-namespace --mode=devdax)"
            ),
            Self::Disabled => {
                f.write_str("it is switched off; switch it on with ndctl enable-namespace")
            }
            Self::Odd { why } => write!(
                f,
                "the output of ndctl list about it cannot be parsed: {why}"
            ),
            Self::Empty => f.write_str("its size is 0"),
            Self::NoAlignment => f.write_str("ndctl list does not report its alignment"),
            Self::Misaligned {
                size_bytes,
                align_bytes,
            } => write!(
                f,
                "its size, {size_bytes} bytes, is no multiple of its alignment, {align_bytes} bytes"
            ),
            Self::Devices { count: 0 } => {
                f.write_str("it has no character device; is the kernel module device_dax loaded?")
            }
            Self::Devices { count } => write!(
                f,
                "it has {count} character devices, and a guest can use one (daxctl list)"
            ),
            Self::DeviceMissing { path } => {
                write!(f, "its character device {} is missing", path.display())
            }
            Self::NotADevice { path } => {
                write!(f, "{} is not a character device", path.display())
            }
            Self::Shared { path } => write!(
                f,
                "ndctl list reports {} for another namespace too",
                path.display()
            ),
        }
    }
}

/// A configured namespace that cannot be used now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its name.
    pub name: String,
    /// The label that it is configured with.
    pub label: Label,
    /// Why not.
    pub reason: Reason,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.label, self.name, self.reason)
    }
}

/// What became of the configured namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovery {
    /// Those that guests can be assigned, by name.
    pub usable: Vec<Record>,
    /// The others, by name.
    pub refused: Vec<Refused>,
}

/// Why an agent cannot start with its option `pmem_namespaces`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unstartable {
    /// The namespaces that stop it; at least one.
    pub refused: Vec<Refused>,
}

impl fmt::Display for Unstartable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, refused) in self.refused.iter().enumerate() {
            let between = if index == 0 { "" } else { "; " };
            write!(f, "{between}{refused}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Unstartable {}

impl Discovery {
    /// Holds that an agent may start with it.
    ///
    /// # Errors
    ///
    /// Names every entry of the option that the host does not have as it is configured.
    pub fn check_start(&self) -> Result<(), Unstartable> {
        let stopping = self.refused.iter().filter(|r| r.reason.stops_start());
        let refused: Vec<Refused> = stopping.cloned().collect();
        if refused.is_empty() {
            Ok(())
        } else {
            Err(Unstartable { refused })
        }
    }

    /// Returns the usable namespace of that name.
    #[must_use]
    pub fn record(&self, name: &str) -> Option<&Record> {
        self.usable.iter().find(|record| record.name == name)
    }

    /// Returns why the namespace of that name cannot be used.
    #[must_use]
    pub fn refusal(&self, name: &str) -> Option<&Refused> {
        self.refused.iter().find(|refused| refused.name == name)
    }
}

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// A character device.
    Device,
    /// Something else.
    Other,
    /// Nothing.
    Nothing,
}

/// Compares the configured namespaces with the host's. Devices are looked for in `directory`.
#[must_use]
pub fn compare(
    configured: &Configured,
    entries: &[Entry],
    directory: &Path,
    path_kind: &dyn Fn(&Path) -> PathKind,
) -> Discovery {
    let mut named: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        if let Some(name) = entry.name() {
            named.entry(name).or_default().push(entry);
        }
    }
    let nameless: BTreeSet<&str> = entries
        .iter()
        .filter(|entry| entry.name().is_none())
        .filter_map(Entry::dev)
        .collect();
    let mut discovery = Discovery::default();
    for (name, label) in configured.iter() {
        let found = named.get(name).map(Vec::as_slice).unwrap_or_default();
        match judge(found, nameless.contains(name), directory, path_kind) {
            Ok((namespace, align_bytes, path)) => discovery.usable.push(Record {
                name: name.to_owned(),
                label: label.clone(),
                uuid: namespace.uuid.clone(),
                size_bytes: namespace.size_bytes,
                align_bytes,
                path,
                numa_node: namespace.numa_node,
                region: namespace.region.clone(),
            }),
            Err(reason) => discovery.refused.push(Refused {
                name: name.to_owned(),
                label: label.clone(),
                reason,
            }),
        }
    }
    refuse_shared(&mut discovery, entries);
    discovery
}

/// Returns the one namespace among those of a name, with its alignment and its device.
fn judge<'a>(
    entries: &[&'a Entry],
    is_nameless: bool,
    directory: &Path,
    path_kind: &dyn Fn(&Path) -> PathKind,
) -> Result<(&'a Namespace, u64, PathBuf), Reason> {
    let namespace = match entries {
        [] if is_nameless => return Err(Reason::Nameless),
        [] => return Err(Reason::Absent),
        [Entry::Read(namespace)] => namespace,
        [Entry::Odd { why, .. }] => return Err(Reason::Odd { why: why.clone() }),
        several => {
            let dev = |entry: &&Entry| entry.dev().unwrap_or("?").to_owned();
            return Err(Reason::Repeated {
                devs: several.iter().map(dev).collect(),
            });
        }
    };
    // First: one that is switched off is listed in mode raw, whatever it was made for.
    if !namespace.is_enabled {
        return Err(Reason::Disabled);
    }
    if namespace.mode != Mode::Devdax {
        let mode = namespace.mode.clone();
        return Err(Reason::Mode { mode });
    }
    if namespace.size_bytes == 0 {
        return Err(Reason::Empty);
    }
    let align_bytes = namespace.align_bytes.filter(|align| *align > 0);
    let align_bytes = align_bytes.ok_or(Reason::NoAlignment)?;
    let size_bytes = namespace.size_bytes;
    if !size_bytes.is_multiple_of(align_bytes) {
        return Err(Reason::Misaligned {
            size_bytes,
            align_bytes,
        });
    }
    let [device] = namespace.devices.as_slice() else {
        let count = namespace.devices.len();
        return Err(Reason::Devices { count });
    };
    let path = directory.join(device);
    match path_kind(&path) {
        PathKind::Device => Ok((namespace, align_bytes, path)),
        PathKind::Other => Err(Reason::NotADevice { path }),
        PathKind::Nothing => Err(Reason::DeviceMissing { path }),
    }
}

/// Two guests on one device would write over each other, so that a listing that gives a device to
/// two namespaces is not believed, whether or not both of them are configured.
fn refuse_shared(discovery: &mut Discovery, entries: &[Entry]) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in entries {
        let Entry::Read(namespace) = entry else {
            continue;
        };
        for device in &namespace.devices {
            *counts.entry(device).or_default() += 1;
        }
    }
    let is_shared = |record: &Record| {
        let device = record.path.file_name().and_then(|name| name.to_str());
        device.is_some_and(|device| counts.get(device).is_some_and(|count| *count > 1))
    };
    let (shared, usable) = std::mem::take(&mut discovery.usable)
        .into_iter()
        .partition(is_shared);
    discovery.usable = usable;
    let refused = |record: Record| Refused {
        name: record.name,
        label: record.label,
        reason: Reason::Shared { path: record.path },
    };
    let shared: Vec<Record> = shared;
    discovery.refused.extend(shared.into_iter().map(refused));
    discovery.refused.sort_by(|a, b| a.name.cmp(&b.name));
}
