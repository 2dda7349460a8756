//! The guest's side of a case: its cells, or the flavor that requests them, and its PCI requests.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::flavor::{EXTRA_SPECS_MAX, Flavor};
use berth_domain::image::{ImageProperties, PROPERTIES_MAX};
use berth_domain::instance::{
    CpuPolicy, EmulatorThreads, InstanceCell, InstanceTopology, PageSize, ThreadPolicy, VcpuId,
};
use berth_domain::name::FlavorName;
use berth_domain::ownership::Ownership;
use berth_domain::pci::{PCI_REQUESTS_MAX, PciAliases, PciMatch, PciNumaPolicy, PciRequest};
use berth_domain::topology::{MEMORY_MIB_MAX, PCI_DEVICES_MAX};
use serde_json::Value;

use super::host::{KINDS, parsed, tags};
use super::reader::{Field, Invalid};

/// The most cells of a guest.
const CELLS_MAX: usize = 64;
/// The most alternatives of a PCI request.
const ALTERNATIVES_MAX: usize = 256;

/// The guest of a case.
#[derive(Clone, Debug, Default)]
pub struct GuestSpec {
    /// Its cells; absent for one without requirements.
    pub topology: Option<InstanceTopology>,
    /// The PCI functions that it requests.
    pub pci: Vec<PciRequest>,
}

/// Reads the guest of a case; the inner error is why its flavor is refused.
///
/// # Errors
///
/// The first invalid field.
pub fn read(case: &Field<'_>) -> Result<Result<GuestSpec, String>, Invalid> {
    let mut pci = Vec::new();
    for request in case.get("pci_requests").list(PCI_REQUESTS_MAX)? {
        pci.push(read_request(&request)?);
    }
    let instance = case.get("instance");
    if instance.is_given() {
        let topology = Some(read_instance(&instance)?);
        return Ok(Ok(GuestSpec { topology, pci }));
    }
    let flavor = case.get("flavor");
    if !flavor.is_given() {
        return Err(case.invalid("has neither instance nor flavor"));
    }
    let image = ImageProperties(texts(&case.get("image"), PROPERTIES_MAX)?);
    let flavor = read_flavor(&flavor)?;
    // A case carries its PCI requests itself, so there are no names for such.
    Ok(match flavor.requirements(&image, &PciAliases::new()) {
        Ok(wishes) => {
            pci.extend(wishes.pci);
            Ok(GuestSpec {
                topology: wishes.topology,
                pci,
            })
        }
        Err(faults) => {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            Err(faults.join("; "))
        }
    })
}

fn read_flavor(field: &Field<'_>) -> Result<Flavor, Invalid> {
    let vcpus = field.get("vcpus").number(0, u32::MAX.into())?;
    Ok(Flavor {
        name: FlavorName::new("flavor").expect("a good name"),
        vcpus: u32::try_from(vcpus).expect("it is bounded"),
        memory_mib: field.get("memory_mb").number(0, u64::MAX)?,
        disk_gib: 0,
        extra_specs: texts(&field.get("extra_specs"), EXTRA_SPECS_MAX)?,
        ownership: Ownership::default(),
    })
}

/// Reads texts by their names; numbers and truth values are texts too.
fn texts(field: &Field<'_>, max: usize) -> Result<BTreeMap<String, String>, Invalid> {
    let text = |(key, value): (&str, Field<'_>)| match value.raw() {
        Some(Value::String(text)) => Ok((key.to_owned(), text.clone())),
        Some(other @ (Value::Bool(_) | Value::Number(_))) => {
            Ok((key.to_owned(), other.to_string()))
        }
        None | Some(Value::Null | Value::Array(_) | Value::Object(_)) => {
            Err(value.invalid("must be a text"))
        }
    };
    field.object(max)?.into_iter().map(text).collect()
}

fn read_instance(field: &Field<'_>) -> Result<InstanceTopology, Invalid> {
    let list = field.get("cells");
    let mut cells = Vec::new();
    let mut seen = BTreeSet::new();
    for (id, cell) in (0..).zip(list.list(CELLS_MAX)?) {
        let read = read_cell(&cell, id)?;
        for vcpu in read.shared.iter().chain(&read.dedicated) {
            if !seen.insert(*vcpu) {
                return Err(cell.invalid(format!("vCPU {vcpu} is there twice")));
            }
        }
        cells.push(read);
    }
    if cells.is_empty() {
        return Err(list.invalid("must have at least one cell"));
    }
    let emulator = field.get("emulator_threads_policy");
    let emulator = emulator.choice(&[
        ("isolate", EmulatorThreads::Isolate),
        ("share", EmulatorThreads::Share),
    ])?;
    Ok(InstanceTopology {
        cells,
        emulator_threads: emulator.unwrap_or_default(),
        ..InstanceTopology::default()
    })
}

fn read_cell(field: &Field<'_>, id: u32) -> Result<InstanceCell, Invalid> {
    let policy = field.get("cpu_policy").choice(&[
        ("shared", CpuPolicy::Shared),
        ("dedicated", CpuPolicy::Dedicated),
        ("mixed", CpuPolicy::Mixed),
    ])?;
    let threads = field.get("cpu_thread_policy").choice(&[
        ("prefer", ThreadPolicy::Prefer),
        ("isolate", ThreadPolicy::Isolate),
        ("require", ThreadPolicy::Require),
    ])?;
    let vcpus = |name| -> Result<BTreeSet<VcpuId>, Invalid> {
        let cpus = field.get(name).cpus()?;
        Ok(cpus.iter().map(|cpu| VcpuId(cpu.0)).collect())
    };
    let cell = InstanceCell {
        id,
        cpu_policy: policy.unwrap_or_default(),
        thread_policy: threads.unwrap_or_default(),
        shared: vcpus("cpuset")?,
        dedicated: vcpus("pcpuset")?,
        memory_mib: field.get("memory").number(1, MEMORY_MIB_MAX)?,
        page_size: read_page_size(&field.get("pagesize"))?,
    };
    let stray = match cell.cpu_policy {
        CpuPolicy::Shared => ("pcpuset", !cell.dedicated.is_empty()),
        CpuPolicy::Dedicated => ("cpuset", !cell.shared.is_empty()),
        CpuPolicy::Mixed => ("", false),
    };
    if let (name, true) = stray {
        let rule = "must be empty under this cpu_policy";
        return Err(field.get(name).invalid(rule));
    }
    Ok(cell)
}

fn read_page_size(field: &Field<'_>) -> Result<PageSize, Invalid> {
    match field.raw() {
        None => Ok(PageSize::Unspecified),
        Some(Value::String(_)) => {
            let class = field.choice(&[
                ("small", PageSize::Small),
                ("large", PageSize::Large),
                ("any", PageSize::Any),
            ])?;
            Ok(class.unwrap_or_default())
        }
        Some(_) => Ok(PageSize::Kib(field.number(1, u64::MAX)?)),
    }
}

fn read_request(field: &Field<'_>) -> Result<PciRequest, Invalid> {
    let policy = field.get("numa_policy").choice(&[
        ("required", PciNumaPolicy::Required),
        ("preferred", PciNumaPolicy::Preferred),
        ("legacy", PciNumaPolicy::Legacy),
        ("socket", PciNumaPolicy::Socket),
    ])?;
    let count = field.get("count").number(1, PCI_DEVICES_MAX as u64)?;
    let spec = field.get("spec");
    let mut any_of = Vec::new();
    for one in spec.list(ALTERNATIVES_MAX)? {
        any_of.push(PciMatch {
            vendor: parsed(&one.get("vendor_id"))?,
            product: parsed(&one.get("product_id"))?,
            kind: one.get("dev_type").choice(&KINDS)?,
            tags: tags(&one)?,
        });
    }
    if any_of.is_empty() {
        return Err(spec.invalid("must have at least one match"));
    }
    Ok(PciRequest {
        count: u32::try_from(count).expect("it is bounded"),
        any_of,
        policy: policy.unwrap_or_default(),
    })
}
