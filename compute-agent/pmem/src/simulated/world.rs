//! A host's memory as it is simulated: its namespaces, their contents, and what goes wrong.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::Configured;
use crate::discovery::{self, Discovery, PathKind};
use crate::memory::Error;
use crate::ndctl::{self, Entry, Mode, Namespace};
use crate::versions::{Part, Versions};

use super::contents::Contents;

/// Where simulated devices seem to be.
const DEVICES: &str = "/dev";

/// Default speed of erases.
const SPEED_DEFAULT: u64 = 4 << 30;

/// A namespace to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Its name; none for one that has no name.
    pub name: Option<String>,
    /// What it is made for.
    pub mode: Mode,
    /// Its size.
    pub size_bytes: u64,
    /// What its size is a multiple of.
    pub align_bytes: u64,
    /// The node that it is near to.
    pub numa_node: Option<u32>,
}

impl Memory {
    /// Returns one that guests can be assigned, with the usual alignment.
    #[must_use]
    pub fn new(name: &str, size_bytes: u64, numa_node: Option<u32>) -> Self {
        Self {
            name: Some(name.to_owned()),
            mode: Mode::Devdax,
            size_bytes,
            align_bytes: 2 << 20,
            numa_node,
        }
    }
}

/// A host's memory. Clones are of the same one.
#[derive(Clone, Debug)]
pub struct World(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    /// By what the kernel calls them.
    namespaces: BTreeMap<String, Placed>,
    /// How many were made: no two get the same device.
    made: u32,
    listing: Option<Error>,
    versions: Versions,
    speed: u64,
}

#[derive(Debug)]
struct Placed {
    listed: Namespace,
    device: PathKind,
    contents: Contents,
    faults: Faults,
}

/// What goes wrong with the erase of a namespace.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    /// The program fails at that byte.
    pub(super) fails_at: Option<u64>,
    /// The program hangs at that byte.
    pub(super) hangs_at: Option<u64>,
    /// A process has the device open.
    pub(super) holder: Option<u32>,
}

impl Default for World {
    fn default() -> Self {
        let versions = Part::ALL.into_iter().fold(Versions::default(), |v, part| {
            v.with(part, Ok(part.floor().to_string()))
        });
        Self(Arc::new(Mutex::new(Inner {
            namespaces: BTreeMap::new(),
            made: 0,
            listing: None,
            versions,
            speed: SPEED_DEFAULT,
        })))
    }
}

impl World {
    /// Makes a namespace, which is empty of contents.
    pub fn make(&self, memory: &Memory) {
        let mut inner = self.inner();
        let number = inner.made;
        inner.made += 1;
        let region = memory.numa_node.unwrap_or(0);
        let dev = format!("namespace{region}.{number}");
        let is_device = matches!(memory.mode, Mode::Devdax | Mode::SystemRam);
        let devices = is_device.then(|| format!("dax{region}.{number}"));
        let listed = Namespace {
            dev: dev.clone(),
            name: memory.name.clone(),
            uuid: Some(format!("00000000-0000-4000-8000-{number:012x}")),
            mode: memory.mode.clone(),
            is_enabled: true,
            size_bytes: memory.size_bytes,
            align_bytes: Some(memory.align_bytes),
            devices: devices.into_iter().collect(),
            numa_node: memory.numa_node,
            region: Some(format!("region{region}")),
        };
        let placed = Placed {
            listed,
            device: PathKind::Device,
            contents: Contents::default(),
            faults: Faults::default(),
        };
        inner.namespaces.insert(dev, placed);
    }

    /// Takes a namespace away. An unknown one: no effect.
    pub fn take_away(&self, name: &str) {
        let named = |placed: &Placed| placed.listed.name.as_deref() == Some(name);
        self.inner().namespaces.retain(|_, placed| !named(placed));
    }

    /// Makes a namespace's device present, another type of file, or missing.
    pub fn set_device(&self, name: &str, kind: PathKind) {
        self.with(name, |placed| placed.device = kind);
    }

    /// Lets a namespace be switched on or off.
    pub fn set_enabled(&self, name: &str, is_enabled: bool) {
        self.with(name, |placed| placed.listed.is_enabled = is_enabled);
    }

    /// Lets every listing fail so, or work again.
    pub fn set_listing(&self, error: Option<Error>) {
        self.inner().listing = error;
    }

    /// Makes every listing unreadable.
    pub fn list_garbage(&self) {
        let error = ndctl::read(b"Segmentation fault\n").err();
        self.set_listing(error.map(Error::Listing));
    }

    /// Sets the versions that the kernel and the programs report.
    pub fn set_versions(&self, versions: Versions) {
        self.inner().versions = versions;
    }

    /// Sets how many bytes of a namespace are erased in a second.
    pub fn set_speed(&self, bytes_per_s: u64) {
        self.inner().speed = bytes_per_s;
    }

    /// Makes the program that erases a namespace fail at that byte, or no longer.
    pub fn fail_erase(&self, name: &str, at: Option<u64>) {
        self.with(name, |placed| placed.faults.fails_at = at);
    }

    /// Makes the program that erases a namespace hang at that byte, or no longer.
    pub fn hang_erase(&self, name: &str, at: Option<u64>) {
        self.with(name, |placed| placed.faults.hangs_at = at);
    }

    /// Lets a process have a namespace's device open, or no longer.
    pub fn hold(&self, name: &str, pid: Option<u32>) {
        self.with(name, |placed| placed.faults.holder = pid);
    }

    /// Writes a run of a byte, as a guest would.
    pub fn write(&self, name: &str, offset: u64, length: u64, byte: u8) {
        self.with(name, |placed| placed.contents.fill(offset, length, byte));
    }

    /// Reads; what does not exist reads as nothing.
    #[must_use]
    pub fn read(&self, name: &str, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.with(name, |placed| bytes = placed.contents.read(offset, length));
        bytes
    }

    /// Returns whether a namespace is there and holds zeros only.
    #[must_use]
    pub fn is_zero(&self, name: &str) -> bool {
        let mut is_zero = false;
        self.with(name, |placed| is_zero = placed.contents.is_zero());
        is_zero
    }

    pub(super) fn versions(&self) -> Versions {
        self.inner().versions.clone()
    }

    pub(super) fn speed(&self) -> u64 {
        self.inner().speed
    }

    pub(super) fn faults(&self, name: &str) -> Option<Faults> {
        let mut faults = None;
        self.with(name, |placed| faults = Some(placed.faults.clone()));
        faults
    }

    pub(super) fn discover(&self, configured: &Configured) -> Result<Discovery, Error> {
        let inner = self.inner();
        if configured.is_empty() {
            return Ok(Discovery::default());
        }
        if let Some(error) = &inner.listing {
            return Err(error.clone());
        }
        let entry = |placed: &Placed| Entry::Read(placed.listed.clone());
        let entries: Vec<Entry> = inner.namespaces.values().map(entry).collect();
        let device = |placed: &Placed| {
            let paths = placed.listed.devices.iter();
            let found = placed.device;
            paths
                .map(move |device| (Path::new(DEVICES).join(device), found))
                .collect::<Vec<_>>()
        };
        let devices: BTreeMap<PathBuf, PathKind> =
            inner.namespaces.values().flat_map(device).collect();
        let path_kind = |path: &Path| devices.get(path).copied().unwrap_or(PathKind::Nothing);
        Ok(discovery::compare(
            configured,
            &entries,
            Path::new(DEVICES),
            &path_kind,
        ))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with(&self, name: &str, act: impl FnOnce(&mut Placed)) {
        let mut inner = self.inner();
        let mut all = inner.namespaces.values_mut();
        let named = all.find(|placed| placed.listed.name.as_deref() == Some(name));
        if let Some(placed) = named {
            act(placed);
        }
    }
}
