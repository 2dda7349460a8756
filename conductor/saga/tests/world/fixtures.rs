//! Names, ids and records for the world.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::cpu_set::CpuId;
use berth_domain::flavor::Flavor;
use berth_domain::id::{Generation, TimeMs, VmUid};
use berth_domain::image::ImageProperties;
use berth_domain::instance::{CpuPolicy, InstanceCell, InstanceTopology, VcpuId};
use berth_domain::name::{FlavorName, HostName, VmName};
use berth_domain::numa::{Assignment, CellAssignment};
use berth_domain::ownership::Ownership;
use berth_domain::pci::PciAliases;
use berth_domain::topology::CellId;
use berth_domain::vm::{self, BootSource, Vm, VmSpec};
use uuid::Uuid;

pub(crate) fn host(name: &str) -> HostName {
    HostName::new(name).unwrap()
}

pub(crate) fn vm_name() -> VmName {
    VmName::new("a").unwrap()
}

pub(crate) fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

/// One guest cell with one vCPU, pinned to `cpu`.
pub(crate) fn assignment(cpu: u32) -> Assignment {
    Assignment {
        cells: vec![CellAssignment {
            guest_cell: 0,
            host_cell: CellId(0),
            pins: BTreeMap::from([(VcpuId(0), CpuId(cpu))]),
            memory_mib: 256,
            ..CellAssignment::default()
        }],
        ..Assignment::default()
    }
}

pub(crate) fn wish() -> InstanceTopology {
    InstanceTopology {
        cells: vec![InstanceCell {
            id: 0,
            cpu_policy: CpuPolicy::Dedicated,
            dedicated: BTreeSet::from([VcpuId(0)]),
            memory_mib: 256,
            ..InstanceCell::default()
        }],
        ..InstanceTopology::default()
    }
}

pub(crate) fn spec() -> VmSpec {
    VmSpec {
        flavor: Flavor {
            name: FlavorName::new("small").unwrap(),
            vcpus: 1,
            memory_mib: 256,
            disk_gib: 0,
            extra_specs: BTreeMap::new(),
            ownership: Ownership::default(),
        },
        boot: BootSource::Disk,
        disks: Vec::new(),
        nics: Vec::new(),
        topology: Some(wish()),
        image_properties: ImageProperties::default(),
        pci_aliases: PciAliases::new(),
        cpu_shape: None,
        pci: Vec::new(),
        hints: berth_domain::vm::SchedulingHints::default(),
        volumes: Vec::new(),
    }
}

pub(crate) fn vm(state: vm::State) -> Vm {
    Vm {
        name: vm_name(),
        uid: VmUid(id(1000)),
        spec: spec(),
        state,
        host: None,
        claim: None,
        remains_on: None,
        trouble: None,
        restarts: vm::Restarts::default(),
        first_boot: None,
        metadata: Default::default(),
        operation: None,
        error: None,
        generation: Generation(1),
        created_at: TimeMs(1),
        ownership: Ownership::default(),
    }
}

/// What a reader keeps of a VM that is forgotten.
pub(crate) fn gone() -> Vm {
    vm(vm::State::Deleting)
}
