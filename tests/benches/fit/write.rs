//! Drawn cases as `berth fit` reads them.

use std::collections::BTreeSet;

use berth_domain::instance::{CpuPolicy, EmulatorThreads, InstanceCell, PageSize, ThreadPolicy};
use berth_domain::pci::{PciDevice, PciKind, PciMatch, PciNumaPolicy, PciRequest};
use berth_domain::topology::HostCell;
use berth_testkit::fit::draw::Case;
use serde_json::{Map, Value, json};

/// Returns the case; of its devices those that nobody has.
pub(crate) fn case(case: &Case) -> Value {
    let cells = case.topology.cells().iter().zip(&case.usage.cells);
    let cells: Vec<Value> = cells
        .map(|(cell, used)| {
            let mut written = host_cell(cell);
            written["pinned_cpus"] = json!(used.pinned.to_string());
            written["cpu_usage"] = json!(used.shared_vcpus);
            written["memory_usage"] = json!(used.memory_mib);
            for pool in written["mempages"].as_array_mut().expect("a list") {
                let size = pool["size_kb"].as_u64().expect("a number");
                pool["used"] = json!(used.pages.get(&size).copied().unwrap_or(0));
            }
            written
        })
        .collect();
    let guest: Vec<Value> = case.demand.cells.iter().map(guest_cell).collect();
    let emulator = match case.demand.emulator_threads {
        EmulatorThreads::Unspecified => None,
        EmulatorThreads::Isolate => Some("isolate"),
        EmulatorThreads::Share => Some("share"),
    };
    let limits = [case.limits.cpu_ratio, case.limits.ram_ratio].map(|ratio| {
        let milli = ratio.map(|ratio| ratio.to_string());
        milli.map(|text| text.parse::<f64>().expect("a ratio is a number"))
    });
    let mut written = json!({
        "host": {"cells": cells},
        "instance": {"cells": guest, "emulator_threads_policy": emulator},
        "pci_devices": free_devices(case).into_iter().map(device).collect::<Vec<_>>(),
        "pci_requests": case.pci.iter().map(request).collect::<Vec<_>>(),
    });
    if let [Some(cpu), Some(ram)] = limits {
        written["limits"] = json!({"cpu": cpu, "ram": ram});
    }
    written
}

fn host_cell(cell: &HostCell) -> Value {
    let cores: Vec<String> = cell.cores.iter().map(ToString::to_string).collect();
    let pool = |pool: &berth_domain::topology::PagePool| json!({"size_kb": pool.size_kib, "total": pool.total, "reserved": pool.reserved});
    json!({
        "id": cell.id.0,
        "socket": cell.socket.map(|socket| socket.0),
        "cpuset": cell.shared.to_string(),
        "pcpuset": cell.dedicated.to_string(),
        "siblings": cores,
        "memory_mb": cell.memory_mib,
        "mempages": cell.pages.iter().map(pool).collect::<Vec<_>>(),
    })
}

fn guest_cell(cell: &InstanceCell) -> Value {
    let numbers = |vcpus: &BTreeSet<berth_domain::instance::VcpuId>| -> Vec<u32> {
        vcpus.iter().map(|vcpu| vcpu.0).collect()
    };
    let policy = match cell.cpu_policy {
        CpuPolicy::Shared => "shared",
        CpuPolicy::Dedicated => "dedicated",
        CpuPolicy::Mixed => "mixed",
    };
    let threads = match (cell.cpu_policy, cell.thread_policy) {
        (CpuPolicy::Shared, _) => None,
        (CpuPolicy::Dedicated | CpuPolicy::Mixed, ThreadPolicy::Prefer) => Some("prefer"),
        (CpuPolicy::Dedicated | CpuPolicy::Mixed, ThreadPolicy::Isolate) => Some("isolate"),
        (CpuPolicy::Dedicated | CpuPolicy::Mixed, ThreadPolicy::Require) => Some("require"),
    };
    let pages = match cell.page_size {
        PageSize::Unspecified => Value::Null,
        PageSize::Small => json!("small"),
        PageSize::Large => json!("large"),
        PageSize::Any => json!("any"),
        PageSize::Kib(size) => json!(size),
    };
    json!({
        "cpuset": numbers(&cell.shared),
        "pcpuset": numbers(&cell.dedicated),
        "memory": cell.memory_mib,
        "pagesize": pages,
        "cpu_policy": policy,
        "cpu_thread_policy": threads,
    })
}

/// Returns the devices that can be given: nobody has them, nor their other side.
pub(crate) fn free_devices(case: &Case) -> Vec<&PciDevice> {
    let taken = &case.usage.pci;
    let has_taken_child = |device: &PciDevice| {
        let devices = case.topology.pci().iter();
        let mut children = devices.filter(|other| other.parent == Some(device.address));
        children.any(|child| taken.contains(&child.address))
    };
    let is_free = |device: &&PciDevice| {
        let parent_is_taken = device.parent.is_some_and(|parent| taken.contains(&parent));
        !taken.contains(&device.address) && !parent_is_taken && !has_taken_child(device)
    };
    case.topology.pci().iter().filter(is_free).collect()
}

fn kind(kind: PciKind) -> &'static str {
    match kind {
        PciKind::Pci => "type-PCI",
        PciKind::Virtual => "type-VF",
        PciKind::Physical => "type-PF",
    }
}

fn device(device: &PciDevice) -> Value {
    json!({
        "address": device.address.to_string(),
        "vendor_id": device.vendor.to_string(),
        "product_id": device.product.to_string(),
        "numa_node": device.cell.map(|cell| cell.0),
        "dev_type": kind(device.kind),
        "parent_addr": device.parent.map(|parent| parent.to_string()),
    })
}

fn request(request: &PciRequest) -> Value {
    let policy = match request.policy {
        PciNumaPolicy::Required => "required",
        PciNumaPolicy::Preferred => "preferred",
        PciNumaPolicy::Legacy => "legacy",
        PciNumaPolicy::Socket => "socket",
    };
    let spec: Vec<Value> = request.any_of.iter().map(matched).collect();
    json!({"count": request.count, "spec": spec, "numa_policy": policy})
}

fn matched(one: &PciMatch) -> Value {
    let fields = [
        ("vendor_id", one.vendor.map(|id| id.to_string())),
        ("product_id", one.product.map(|id| id.to_string())),
        ("dev_type", one.kind.map(|of| kind(of).to_owned())),
    ];
    let said = fields
        .into_iter()
        .filter_map(|(key, text)| Some((key.to_owned(), json!(text?))));
    Value::Object(said.collect::<Map<_, _>>())
}
