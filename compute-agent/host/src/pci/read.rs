//! Reads PCI functions from `sys/bus/pci/devices` of a given root.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use berth_domain::pci::{PciAddress, PciId, PciKind};

use super::function::{Function, Iommu, inherit_use};
use super::host_use::{self, HostUse};
use crate::sysfs::{Error, number, optional, read_error, text, value_error};

/// Returns the functions of the machine, in ascending order of address; a machine without PCI has
/// none.
pub(crate) fn functions(root: &Path) -> Result<Vec<Function>, Error> {
    let folder = root.join("sys/bus/pci/devices");
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(read_error(&folder, source)),
    };
    let mut functions = Vec::new();
    for entry in entries {
        let path = entry.map_err(|source| read_error(&folder, source))?.path();
        match function(&path) {
            Ok(function) => functions.push(function),
            // It went while it was read: virtual functions come and go.
            Err(_) if !path.exists() => {}
            Err(error) => return Err(error),
        }
    }
    functions.sort_by_key(|f| f.address);
    let HostUse {
        mut devnames,
        mut carries,
    } = host_use::find(root);
    for function in &mut functions {
        function.devnames = devnames.remove(&function.address).unwrap_or_default();
        function.carries = carries.remove(&function.address).unwrap_or_default();
    }
    inherit_use(&mut functions);
    Ok(functions)
}

fn function(path: &Path) -> Result<Function, Error> {
    let parent = address_behind(&path.join("physfn"))?;
    let totalvfs = path.join("sriov_totalvfs");
    let virtual_functions = match optional(&totalvfs)? {
        Some(text) => number::<u64>(&totalvfs, &text, "a number of virtual functions")?,
        None => 0,
    };
    let kind = match (parent, virtual_functions) {
        (Some(_), _) => PciKind::Virtual,
        (None, 1..) => PciKind::Physical,
        (None, 0) => PciKind::Pci,
    };
    Ok(Function {
        address: address(path, path)?,
        vendor: id(&path.join("vendor"))?,
        product: id(&path.join("device"))?,
        class: hexadecimal(&path.join("class"), "a class as 0x020000")?,
        node: node(&path.join("numa_node"))?,
        kind,
        parent,
        driver: name_behind(&path.join("driver"))?,
        iommu: iommu(&path.join("iommu_group"))?,
        devnames: BTreeSet::new(),
        carries: BTreeSet::new(),
    })
}

/// Returns the address that is the last part of `path`; `named` is where that was found.
fn address(path: &Path, named: &Path) -> Result<PciAddress, Error> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let expected = "a PCI address as its name";
    name.parse()
        .map_err(|_| value_error(named, &name, expected))
}

/// Returns the last part of where a link leads, if there is one.
fn name_behind(link: &Path) -> Result<Option<String>, Error> {
    match fs::read_link(link) {
        Ok(target) => Ok(target
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(read_error(link, source)),
    }
}

fn address_behind(link: &Path) -> Result<Option<PciAddress>, Error> {
    let name = name_behind(link)?;
    name.map(|name| address(Path::new(&name), link)).transpose()
}

fn iommu(link: &Path) -> Result<Iommu, Error> {
    let Some(name) = name_behind(link)? else {
        return Ok(Iommu::Off);
    };
    number(link, &name, "the number of a group").map(Iommu::Group)
}

/// The kernel writes -1 for "not known", and has no such file if it was built without nodes.
fn node(path: &Path) -> Result<Option<u32>, Error> {
    let Some(content) = optional(path)? else {
        return Ok(None);
    };
    let node: i64 = number(path, &content, "the number of a node")?;
    Ok(u32::try_from(node).ok())
}

fn id(path: &Path) -> Result<PciId, Error> {
    let expected = "a PCI number as 0x8086";
    let id = hexadecimal(path, expected)?;
    let content = id.to_string();
    u16::try_from(id)
        .map(PciId)
        .map_err(|_| value_error(path, &content, expected))
}

fn hexadecimal(path: &Path, expected: &'static str) -> Result<u32, Error> {
    let content = text(path)?;
    let digits = content.trim().strip_prefix("0x");
    digits
        .and_then(|digits| u32::from_str_radix(digits, 16).ok())
        .ok_or_else(|| value_error(path, &content, expected))
}

/// The functions by address, as what is found of each of them is collected.
pub(super) type ByAddress<T> = BTreeMap<PciAddress, BTreeSet<T>>;
