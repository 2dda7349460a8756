//! Regions and namespaces of a host: what `ndctl list` prints, combined with the kernel's files.
//!
//! ndctl reports bus, region and mode; sizes and offsets are the kernel's, from `/sys`: the size of
//! ndctl is the usable one, and it does not report where a namespace lies.
//!
//! Invariant: a namespace whose offset cannot be read makes its region unusable: it is
//! not guessed that its space is free.

use std::fs;
use std::path::{Path, PathBuf};

use berth_domain::name::RegionName;
use berth_domain::topology::CellId;
use berth_domain::volume::{Extent, FOREIGN_MAX, REGIONS_MAX};
use serde_json::{Map, Value};

use super::super::manager::Error;
use super::report::{begin, parse};

/// Arguments of the program.
pub(super) const ARGUMENTS: [&str; 6] = [
    "list",
    "--buses",
    "--regions",
    "--namespaces",
    "--idle",
    "--verbose",
];

/// The most namespaces of a region that are read.
const NAMESPACES_MAX: usize = FOREIGN_MAX;

/// A region of persistent memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NdRegion {
    /// The kernel's name of the bus that it is on.
    pub(super) bus: String,
    pub(super) name: RegionName,
    pub(super) cell: Option<CellId>,
    pub(super) size_bytes: u64,
    /// How many modules it is interleaved over.
    pub(super) ways: u64,
    /// How much of it namespaces can be made of, and how long the longest free piece is.
    pub(super) available_bytes: u64,
    pub(super) longest_bytes: u64,
    pub(super) namespaces: Vec<Namespace>,
    /// Why it cannot be used.
    pub(super) trouble: String,
}

/// A namespace that takes space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Namespace {
    /// The kernel's name.
    pub(super) dev: String,
    /// Its name; empty: none.
    pub(super) name: String,
    /// What distinguishes it from others, also from a later one of the same name.
    pub(super) uuid: String,
    /// Where it lies in its region.
    pub(super) extent: Extent,
    /// Its block device and how much of it can be used, where it is switched on in mode fsdax.
    pub(super) block: Option<(PathBuf, u64)>,
}

/// The regions, by name.
pub(super) type Listing = Vec<NdRegion>;

/// Reads what the program printed.
pub(super) fn read(output: &[u8], sys: &Path, devices: &Path) -> Result<Listing, Error> {
    let value = parse("ndctl list", output)?;
    let mut reader = Reader {
        kernel: sys.join("bus/nd/devices"),
        blocks: sys.join("class/block"),
        devices,
        regions: Vec::new(),
    };
    reader.collect(&value, None)?;
    let mut regions = reader.regions;
    regions.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(regions)
}

struct Reader<'a> {
    kernel: PathBuf,
    blocks: PathBuf,
    devices: &'a Path,
    regions: Listing,
}

impl Reader<'_> {
    /// Goes through lists and buses to the regions. The depth is bounded by the reader of JSON.
    fn collect(&mut self, value: &Value, bus: Option<&str>) -> Result<(), Error> {
        let odd = |why: &str| Error::Listing {
            program: "ndctl list",
            why: why.to_owned(),
            begin: begin(&value.to_string()),
        };
        match value {
            Value::Null => Ok(()),
            Value::Array(values) => values.iter().try_for_each(|v| self.collect(v, bus)),
            Value::Object(object) => {
                let dev = object.get("dev").and_then(Value::as_str);
                let dev = dev.unwrap_or_default();
                if dev.starts_with("region") {
                    let bus = bus.ok_or_else(|| odd("a region on no bus"))?;
                    if self.regions.len() == REGIONS_MAX {
                        return Err(odd("more regions than any host has"));
                    }
                    // Others are of volatile memory, or of blocks behind a window.
                    if object.get("type").and_then(Value::as_str) == Some("pmem") {
                        let region = self.region(object, dev, bus).map_err(|why| odd(&why))?;
                        self.regions.push(region);
                    }
                    return Ok(());
                }
                let bus = match dev.starts_with("ndbus") {
                    true if is_plain(dev) => Some(dev),
                    true => return Err(odd("a bus with an odd name")),
                    false => bus,
                };
                let inner = ["buses", "regions"];
                let mut inner = inner.iter().filter_map(|key| object.get(*key));
                inner.try_for_each(|value| self.collect(value, bus))
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) => Err(odd("no list of regions")),
        }
    }

    fn region(
        &self,
        object: &Map<String, Value>,
        dev: &str,
        bus: &str,
    ) -> Result<NdRegion, String> {
        if !is_plain(dev) {
            return Err("a region with an odd name".to_owned());
        }
        let at = self.kernel.join(dev);
        let size_bytes = number(&at.join("size"))?;
        let start = number(&at.join("resource"))?;
        let node = fs::read_to_string(at.join("numa_node")).unwrap_or_default();
        let mut region = NdRegion {
            bus: bus.to_owned(),
            name: RegionName::new(dev).map_err(|error| error.to_string())?,
            // -1 where the firmware does not report it.
            cell: node.trim().parse().ok().map(CellId),
            size_bytes,
            ways: number(&at.join("mappings"))?.max(1),
            available_bytes: number(&at.join("available_size"))?,
            longest_bytes: number(&at.join("max_available_extent"))?,
            namespaces: Vec::new(),
            trouble: String::new(),
        };
        let entries = object.get("namespaces");
        let entries = entries
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        for entry in entries {
            match self.namespace(entry, start, size_bytes) {
                Ok(Some(namespace)) if region.namespaces.len() < NAMESPACES_MAX => {
                    region.namespaces.push(namespace);
                }
                Ok(Some(_)) => region.trouble = format!("more than {NAMESPACES_MAX} namespaces"),
                Ok(None) => {}
                Err(why) => region.trouble = why,
            }
        }
        region.namespaces.sort_by_key(|namespace| namespace.extent);
        Ok(region)
    }

    /// Returns a namespace; none for one that takes no space, as the next one that can be made.
    fn namespace(&self, entry: &Value, start: u64, size: u64) -> Result<Option<Namespace>, String> {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        let dev = text("dev");
        if !(dev.starts_with("namespace") && is_plain(dev)) {
            let said = begin(&entry.to_string());
            return Err(format!(
                "it has a namespace that cannot be understood: {said}"
            ));
        }
        let at = self.kernel.join(dev);
        let length_bytes = number(&at.join("size"))?;
        if length_bytes == 0 {
            return Ok(None);
        }
        let resource = number(&at.join("resource"))?;
        let offset_bytes = resource
            .checked_sub(start)
            .filter(|offset| {
                offset
                    .checked_add(length_bytes)
                    .is_some_and(|end| end <= size)
            })
            .ok_or_else(|| format!("{dev} does not lie in it"))?;
        let is_usable = text("mode") == "fsdax" && text("state") != "disabled";
        let block = match text("blockdev") {
            "" => None,
            block if !is_plain(block) => return Err(format!("{dev} has an odd block device")),
            block if is_usable => {
                let sectors = number(&self.blocks.join(block).join("size"))?;
                Some((self.devices.join(block), sectors.saturating_mul(512)))
            }
            _ => None,
        };
        Ok(Some(Namespace {
            dev: dev.to_owned(),
            name: text("name").to_owned(),
            uuid: text("uuid").to_owned(),
            extent: Extent {
                offset_bytes,
                length_bytes,
            },
            block,
        }))
    }
}

/// What goes into paths is looked at closely.
fn is_plain(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'.' || b == b'_';
    (1..=32).contains(&name.len()) && name.bytes().all(is_plain) && !name.contains("..")
}

/// Reads a number from a file of the kernel, decimal or with `0x`.
fn number(path: &Path) -> Result<u64, String> {
    let text =
        fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    let text = text.trim();
    let read = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    read.map_err(|_| format!("{} holds {:?}, not a number", path.display(), begin(text)))
}
