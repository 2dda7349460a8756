//! Hosts and guests for tests and measurements.

#![allow(dead_code, missing_docs, unreachable_pub)]

use std::sync::Arc;

use berth_domain::claim::{Claim, Owner, State};
use berth_domain::constraint::Demand;
use berth_domain::cpu_set::{CpuId, CpuSet};
use berth_domain::flavor::Flavor;
use berth_domain::host::{Host, HostReport, Liveness};
use berth_domain::host_view::HostView;
use berth_domain::id::{ClaimId, Generation, Incarnation, ProviderId, TimeMs};
use berth_domain::name::{FlavorName, HostName, VmName};
use berth_domain::topology::{CellId, HostCell, HostTopology, PagePool, SocketId};
use berth_domain::version::ServiceVersion;
use berth_domain::vm::{BootSource, VmSpec};
use berth_selection::{Choice, Policy, Request};
use uuid::Uuid;

/// The shape of a host.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub cells: u32,
    pub cores: u32,
    pub threads: u32,
    pub shared_cores: u32,
    pub memory_gib: u64,
    pub pages_2m_gib: u64,
    pub pages_1g: u64,
}

/// Two sockets of four cells, eight cores of two threads each, two of the cores shared.
pub const LARGE: Shape = Shape {
    cells: 8,
    cores: 8,
    threads: 2,
    shared_cores: 2,
    memory_gib: 64,
    pages_2m_gib: 16,
    pages_1g: 16,
};

pub fn topology(shape: Shape) -> HostTopology {
    let per_cell = shape.cores * shape.threads;
    let near = |a: u32, b: u32| match (a == b, a / 4 == b / 4) {
        (true, _) => 10,
        (false, true) => 12,
        (false, false) => 21,
    };
    let cells = (0..shape.cells).map(|id| {
        let core = |number: u32| -> CpuSet {
            let first = id * per_cell + number * shape.threads;
            (first..first + shape.threads).map(CpuId).collect()
        };
        let cores: Vec<CpuSet> = (0..shape.cores).map(core).collect();
        let join = |cores: &[CpuSet]| cores.iter().fold(CpuSet::new(), |all, c| all.union(c));
        let (shared, dedicated) = cores.split_at(shape.shared_cores as usize);
        let small_gib = shape.memory_gib - shape.pages_2m_gib - shape.pages_1g;
        let pool = |size_kib, gib: u64| PagePool {
            size_kib,
            total: gib * 1024 * 1024 / size_kib,
            reserved: 0,
        };
        let pages = [
            pool(4, small_gib),
            pool(2048, shape.pages_2m_gib),
            pool(1_048_576, shape.pages_1g),
        ];
        HostCell {
            id: CellId(id),
            socket: Some(SocketId(id / 4)),
            shared: join(shared),
            dedicated: join(dedicated),
            memory_mib: shape.memory_gib * 1024,
            pages: pages.into_iter().filter(|p| p.total > 0).collect(),
            cores,
        }
    });
    let distances = (0..shape.cells)
        .map(|a| (0..shape.cells).map(|b| near(a, b)).collect())
        .collect();
    HostTopology::new(cells.collect(), distances).unwrap()
}

pub fn name(text: &str) -> HostName {
    HostName::new(text).unwrap()
}

pub fn host(text: &str, topology: &Arc<HostTopology>) -> Host {
    Host {
        name: name(text),
        provider: ProviderId(Uuid::nil()),
        report: HostReport {
            agent_address: "http://127.0.0.1:7300".to_owned(),
            incarnation: Incarnation(Uuid::nil()),
            service_version: ServiceVersion::CURRENT,
            driver: "sim".to_owned(),
            migration_uri: String::new(),
            topology: Arc::clone(topology),
            memory_reserved_mib: 0,
            disk_gib: 10_000,
            storage_id: "s".to_owned(),
        },
        liveness: Liveness::Up,
        cordoned: false,
        generation: Generation(1),
        created_at: TimeMs(0),
    }
}

pub fn view(text: &str, shape: Shape) -> HostView {
    HostView::new(Arc::new(host(text, &Arc::new(topology(shape)))), [])
}

/// Changes the record of a view's host.
pub fn change(view: &mut HostView, change: impl FnOnce(&mut Host)) {
    let mut host = (*view.host).clone();
    change(&mut host);
    view.set_host(Arc::new(host));
}

pub fn spec(vcpus: u32, memory_mib: u64, specs: &[(&str, &str)]) -> VmSpec {
    let flavor = Flavor {
        name: FlavorName::new("f").unwrap(),
        vcpus,
        memory_mib,
        disk_gib: 0,
        extra_specs: specs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
    };
    VmSpec {
        topology: flavor.validate().unwrap().topology,
        flavor,
        boot: BootSource::Kernel {
            kernel: "vmlinuz".to_owned(),
            initrd: "initrd".to_owned(),
            cmdline: String::new(),
        },
        disks: Vec::new(),
        nics: Vec::new(),
    }
}

pub fn request(spec: &VmSpec, seed: u128) -> Request {
    Request {
        demand: Demand::boot(spec).unwrap(),
        requested: None,
        excluded: Vec::new(),
        seed: Uuid::from_u128(seed),
        policy: Policy::default(),
    }
}

pub fn claim(choice: &Choice) -> Claim {
    Claim {
        id: ClaimId(Uuid::nil()),
        vm: VmName::new("v").unwrap(),
        owner: Owner::Vm,
        host: choice.host.clone(),
        state: State::Held,
        resources: choice.resources.clone(),
        assignment: choice.assignment.clone(),
    }
}

/// Flavors that are often asked for, with how often: vCPUs, MiB, extra specs.
pub type Mix = &'static [(u32, u32, u64, &'static [(&'static str, &'static str)])];

pub const MIX: Mix = &[
    (26, 1, 2048, &[]),
    (18, 2, 4096, &[]),
    (8, 4, 8192, &[("hw:numa_nodes", "1")]),
    (10, 2, 8192, &[("hw:cpu_policy", "dedicated")]),
    (9, 4, 16384, &[("hw:cpu_policy", "dedicated")]),
    (
        6,
        8,
        16384,
        &[("hw:cpu_policy", "dedicated"), ("hw:mem_page_size", "2MB")],
    ),
    (
        3,
        8,
        8192,
        &[("hw:cpu_policy", "dedicated"), ("hw:mem_page_size", "1GB")],
    ),
    (
        4,
        16,
        65536,
        &[("hw:cpu_policy", "dedicated"), ("hw:numa_nodes", "2")],
    ),
    (
        2,
        32,
        131_072,
        &[("hw:cpu_policy", "dedicated"), ("hw:numa_nodes", "4")],
    ),
    (
        3,
        6,
        12288,
        &[
            ("hw:cpu_policy", "dedicated"),
            ("hw:emulator_threads_policy", "isolate"),
        ],
    ),
];
