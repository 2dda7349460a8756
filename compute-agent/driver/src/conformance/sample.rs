//! Hosts and guests for tests of drivers, of the agent and of whole clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::cpu_model::{GuestCpu, HostCpu};
use berth_domain::cpu_set::{CpuId, CpuSet};
use berth_domain::flavor::Flavor;
use berth_domain::id::{ClaimId, Epoch, VmUid};
use berth_domain::image::ImageProperties;
use berth_domain::instance::{CpuPolicy, InstanceCell, InstanceTopology, PageSize, VcpuId};
use berth_domain::name::{CpuFeature, CpuModelName, CpuVendor, FlavorName, VmName};
use berth_domain::numa::{Assignment, CellAssignment};
use berth_domain::ownership::Ownership;
use berth_domain::pci::PciAliases;
use berth_domain::topology::{CellId, HostCell, HostTopology, PagePool, SocketId};
use berth_domain::vm::{BootSource, VmSpec};
use uuid::Uuid;

use crate::domain::DomainSpec;

/// Returns a host of `cells` cells with four CPUs each, the first of them shared, 1024 MiB, and
/// 128 huge pages of 2 MiB in each.
///
/// # Panics
///
/// Never: the topology is valid by construction.
#[must_use]
pub fn host(cells: u32) -> Arc<HostTopology> {
    let cell = |id: u32| {
        let first = id * 4;
        HostCell {
            id: CellId(id),
            socket: Some(SocketId(id / 2)),
            shared: CpuSet::from_iter([CpuId(first)]),
            dedicated: (first + 1..first + 4).map(CpuId).collect(),
            cores: (first..first + 4)
                .map(|c| CpuSet::from_iter([CpuId(c)]))
                .collect(),
            memory_mib: 1024,
            pages: vec![pool(4, 196_608), pool(2048, 128)],
        }
    };
    let distances = (0..cells)
        .map(|a| (0..cells).map(|b| if a == b { 10 } else { 20 }).collect())
        .collect();
    let topology = HostTopology::new((0..cells).map(cell).collect(), distances);
    Arc::new(topology.expect("valid by construction"))
}

fn pool(size_kib: u64, total: u64) -> PagePool {
    PagePool {
        size_kib,
        total,
        reserved: 0,
    }
}

/// Returns what a host of Intel's offers as a CPU that has these features beyond those of a Nehalem.
///
/// # Panics
///
/// When a feature is not a valid name.
#[must_use]
pub fn cpu(features: &[&str]) -> HostCpu {
    let names = |names: &[&str]| -> BTreeSet<CpuFeature> {
        let names = names.iter();
        names
            .map(|name| CpuFeature::new(name).expect("a valid name"))
            .collect()
    };
    let model = |name| CpuModelName::new(name).expect("a valid name");
    let required = names(features);
    let lacking = |needed: &[&str]| names(needed).difference(&required).cloned().collect();
    let models = [
        (model("Nehalem"), BTreeSet::new()),
        (model("Westmere"), lacking(&["aes"])),
        (model("Haswell"), lacking(&["aes", "avx2", "rtm"])),
    ];
    HostCpu {
        host_model: Arc::new(GuestCpu {
            vendor: Some(CpuVendor::new("Intel").expect("a valid name")),
            required: required.clone(),
            ..GuestCpu::named(model("Nehalem"))
        }),
        features: required
            .union(&names(&["sse2", "sse4.2"]))
            .cloned()
            .collect(),
        models: models.into(),
    }
}

/// Returns a guest that does not care where it runs.
///
/// # Panics
///
/// Never: the names are valid.
#[must_use]
pub fn plain_spec(vcpus: u32) -> VmSpec {
    VmSpec {
        flavor: Flavor {
            name: FlavorName::new("sample").expect("a valid name"),
            vcpus,
            memory_mib: 128,
            disk_gib: 0,
            extra_specs: BTreeMap::new(),
            ownership: Ownership::default(),
        },
        boot: BootSource::Kernel {
            kernel: "kernel".to_owned(),
            initrd: "initrd".to_owned(),
            cmdline: "console=ttyS0".to_owned(),
        },
        disks: Vec::new(),
        nics: Vec::new(),
        topology: None,
        image_properties: ImageProperties::default(),
        pci_aliases: PciAliases::new(),
        cpu_shape: None,
        pci: Vec::new(),
        hints: berth_domain::vm::SchedulingHints::default(),
        volumes: Vec::new(),
    }
}

/// Returns a guest of one cell whose vCPUs are all pinned.
#[must_use]
pub fn pinned_spec(vcpus: u32, page_size: PageSize) -> VmSpec {
    let mut spec = plain_spec(vcpus);
    let wishes = [("hw:cpu_policy", "dedicated")];
    spec.flavor.extra_specs = wishes
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    spec.topology = Some(InstanceTopology {
        cells: vec![InstanceCell {
            id: 0,
            cpu_policy: CpuPolicy::Dedicated,
            dedicated: (0..vcpus).map(VcpuId).collect(),
            memory_mib: spec.flavor.memory_mib,
            page_size,
            ..InstanceCell::default()
        }],
        ..InstanceTopology::default()
    });
    spec
}

/// Returns an assignment of one guest cell: its vCPUs in order on those CPUs.
#[must_use]
pub fn pins(host_cell: u32, cpus: &[u32], page_size_kib: Option<u64>) -> Assignment {
    let pins = cpus
        .iter()
        .zip(0..)
        .map(|(cpu, vcpu)| (VcpuId(vcpu), CpuId(*cpu)))
        .collect();
    Assignment {
        cells: vec![CellAssignment {
            guest_cell: 0,
            host_cell: CellId(host_cell),
            pins,
            shared_vcpus: 0,
            floating: CpuSet::new(),
            memory_mib: 128,
            page_size_kib,
            ..CellAssignment::default()
        }],
        ..Assignment::default()
    }
}

/// Returns a domain with ids made from a number.
///
/// # Panics
///
/// When `name` is not a valid name.
#[must_use]
pub fn domain(name: &str, number: u128, spec: VmSpec, assignment: Assignment) -> DomainSpec {
    DomainSpec {
        vm: VmName::new(name).expect("a valid name"),
        uid: VmUid(Uuid::from_u128(number)),
        spec,
        claim: Some(ClaimId(Uuid::from_u128(number + 1_000_000))),
        epoch: Epoch(1),
        assignment,
        shared_cpus: CpuSet::new(),
        bridges: Vec::new(),
        volumes: Vec::new(),
        first_boot: None,
        cpu: None,
    }
}
