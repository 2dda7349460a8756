//! The host's side of a case: its shape, what is taken from it, its PCI functions.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::numa::{CellUsage, HostUsage, Limits};
use berth_domain::overcommit::AllocationRatio;
use berth_domain::pci::{PciDevice, PciKind};
use berth_domain::topology::{
    CELLS_MAX, CellId, HostCell, HostTopology, MEMORY_MIB_MAX, PCI_DEVICES_MAX, PagePool, SocketId,
};

use super::Options;
use super::reader::{Field, Invalid};

/// The most cores of a cell.
const CORES_MAX: usize = 8192;
/// The most page sizes of a cell.
const PAGE_SIZES_MAX: usize = 16;
/// The most pages of a cell that are used: no more than the smallest of the largest cell.
const PAGES_USED_MAX: u64 = MEMORY_MIB_MAX * 1024;
/// The most vCPUs that float in a cell.
const VCPUS_USED_MAX: u64 = 1 << 24;
/// The most fields of a device.
const FIELDS_MAX: usize = 64;

/// The kinds of PCI function, as they are called in a case.
pub(super) const KINDS: [(&str, PciKind); 3] = [
    ("type-PCI", PciKind::Pci),
    ("type-VF", PciKind::Virtual),
    ("type-PF", PciKind::Physical),
];

/// The host of a case.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its shape.
    pub topology: HostTopology,
    /// What is taken from it.
    pub usage: HostUsage,
    /// Up to which ratios it is given away.
    pub limits: Limits,
}

/// Reads the host of a case.
///
/// # Errors
///
/// The first invalid field.
pub fn read(case: &Field<'_>, options: Options) -> Result<Host, Invalid> {
    let field = case.get("host").get("cells");
    let mut cells = Vec::new();
    for cell in field.list(CELLS_MAX)? {
        cells.push(read_cell(&cell)?);
    }
    cells.sort_by_key(|(cell, _)| cell.id);
    let (cells, used): (Vec<HostCell>, Vec<CellUsage>) = cells.into_iter().unzip();
    let distance = |a: usize, b: usize| if a == b { 10 } else { 20 };
    let count = cells.len();
    let row = |a| (0..count).map(|b| distance(a, b)).collect();
    let topology = HostTopology::new(cells, (0..count).map(row).collect());
    let topology = topology.map_err(|error| field.invalid(error))?;
    let devices = case.get("pci_devices");
    let topology = topology
        .with_pci(read_devices(&devices)?)
        .map_err(|error| devices.invalid(error))?;
    let limits = case.get("limits");
    let ratio = |name| -> Result<Option<AllocationRatio>, Invalid> {
        let field = limits.get(name);
        let ratio = field.fraction()?.map(AllocationRatio::new).transpose();
        ratio.map_err(|error| field.invalid(error))
    };
    Ok(Host {
        topology,
        usage: HostUsage {
            cells: used,
            pci: BTreeSet::new(),
            pmem: BTreeSet::new(),
        },
        limits: Limits {
            cpu_ratio: ratio("cpu")?,
            ram_ratio: ratio("ram")?,
            exact_memory: options.exact_memory,
            threads: options.threads,
        },
    })
}

fn read_cell(field: &Field<'_>) -> Result<(HostCell, CellUsage), Invalid> {
    let small = |name, max| -> Result<Option<u32>, Invalid> {
        let number = field.get(name).optional_number(0, max)?;
        Ok(number.map(|n| u32::try_from(n).expect("it is bounded")))
    };
    let Some(id) = small("id", u32::MAX.into())? else {
        return Err(field.get("id").invalid("is required"));
    };
    let mut cores = Vec::new();
    for core in field.get("siblings").list(CORES_MAX)? {
        // Of a core that is neither shared nor dedicated nothing is left.
        cores.extend(Some(core.cpus()?).filter(|core| !core.is_empty()));
    }
    let mut pages = Vec::new();
    let mut used = BTreeMap::new();
    for pool in field.get("mempages").list(PAGE_SIZES_MAX)? {
        let count = |name| -> Result<u64, Invalid> {
            let number = pool.get(name).optional_number(0, PAGES_USED_MAX)?;
            Ok(number.unwrap_or(0))
        };
        let size_kib = pool.get("size_kb").number(1, u64::MAX)?;
        pages.push(PagePool {
            size_kib,
            total: pool.get("total").number(0, u64::MAX)?,
            reserved: count("reserved")?,
        });
        used.insert(size_kib, count("used")?);
    }
    pages.sort_by_key(|pool| pool.size_kib);
    let cell = HostCell {
        id: CellId(id),
        socket: small("socket", u32::MAX.into())?.map(SocketId),
        shared: field.get("cpuset").cpus()?,
        dedicated: field.get("pcpuset").cpus()?,
        cores,
        memory_mib: field.get("memory_mb").number(0, MEMORY_MIB_MAX)?,
        pages,
    };
    // A CPU that is pinned though it is not dedicated, or not here, cannot be assigned.
    let pinned = field.get("pinned_cpus").cpus()?;
    let usage = CellUsage {
        pinned: pinned.intersection(&cell.dedicated),
        shared_vcpus: small("cpu_usage", VCPUS_USED_MAX)?.unwrap_or(0),
        memory_mib: field
            .get("memory_usage")
            .optional_number(0, MEMORY_MIB_MAX)?
            .unwrap_or(0),
        pages: used,
        locked_mib: 0,
    };
    Ok((cell, usage))
}

fn read_devices(field: &Field<'_>) -> Result<Vec<PciDevice>, Invalid> {
    let devices = field.list(PCI_DEVICES_MAX)?;
    devices.iter().map(read_device).collect()
}

fn read_device(field: &Field<'_>) -> Result<PciDevice, Invalid> {
    let cell = field.get("numa_node").optional_number(0, u32::MAX.into())?;
    Ok(PciDevice {
        address: required(&field.get("address"))?,
        vendor: required(&field.get("vendor_id"))?,
        product: required(&field.get("product_id"))?,
        cell: cell.map(|id| CellId(u32::try_from(id).expect("it is bounded"))),
        kind: field.get("dev_type").choice(&KINDS)?.unwrap_or_default(),
        parent: parsed(&field.get("parent_addr"))?,
        tags: tags(field)?,
    })
}

/// Returns all properties of a device, or all requirements of a request, beside those with a field
/// of their own.
pub(super) fn tags(field: &Field<'_>) -> Result<BTreeMap<String, String>, Invalid> {
    let mut tags = BTreeMap::new();
    for (name, value) in field.object(FIELDS_MAX)? {
        if !["vendor_id", "product_id", "dev_type"].contains(&name)
            && let Some(raw) = value.raw()
        {
            let text = raw.as_str().map_or_else(|| raw.to_string(), str::to_owned);
            tags.insert(name.to_owned(), text.to_lowercase());
        }
    }
    Ok(tags)
}

/// Reads a text that has a meaning, if it is given.
pub(super) fn parsed<T>(field: &Field<'_>) -> Result<Option<T>, Invalid>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    let text = field.text()?;
    let value = text.map(str::parse).transpose();
    value.map_err(|error: T::Err| field.invalid(error))
}

fn required<T>(field: &Field<'_>) -> Result<T, Invalid>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    parsed(field)?.ok_or_else(|| field.invalid("is required"))
}
