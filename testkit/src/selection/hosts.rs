//! Hosts of any shape.

use berth_domain::cpu_set::{CpuId, CpuSet};
use berth_domain::host::{Host, HostReport, Liveness};
use berth_domain::id::{Generation, Incarnation, ProviderId, TimeMs};
use berth_domain::name::HostName;
use berth_domain::topology::{CellId, HostCell, HostTopology, PagePool, SocketId};
use berth_domain::version::ServiceVersion;
use std::sync::Arc;
use uuid::Uuid;

/// The shape of a host.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// NUMA nodes; four of them are one socket.
    pub cells: u32,
    /// Cores of each NUMA node.
    pub cores: u32,
    /// Threads of each core.
    pub threads: u32,
    /// Cores of each NUMA node whose CPUs are shared.
    pub shared_cores: u32,
    /// Memory of each NUMA node.
    pub memory_gib: u64,
    /// The part of it in pages of 2 MiB.
    pub pages_2m_gib: u64,
    /// The part of it in pages of 1 GiB.
    pub pages_1g: u64,
}

/// Returns a machine of this shape.
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

/// Returns the name of a host.
pub fn name(text: &str) -> HostName {
    HostName::new(text).unwrap()
}

/// Returns a host that is up and holds nothing.
pub fn host(text: &str, topology: &Arc<HostTopology>) -> Host {
    Host {
        name: name(text),
        provider: ProviderId(Uuid::nil()),
        report: HostReport {
            networks: Vec::new(),
            agent_address: "http://127.0.0.1:7300".to_owned(),
            incarnation: Incarnation(Uuid::nil()),
            service_version: ServiceVersion::CURRENT,
            driver: "sim".to_owned(),
            migration_uri: String::new(),
            topology: Arc::clone(topology),
            memory_reserved_mib: 0,
            disk_gib: 10_000,
            storage_id: "s".to_owned(),
            traits: Default::default(),
            platform: Default::default(),
            self_fence_ms: 0,
            regions: Vec::new(),
            cpu: None,
        },
        liveness: Liveness::Up,
        cordoned: false,
        cordoned_by: None,
        shape_refused: None,
        generation: Generation(1),
        created_at: TimeMs(0),
        fenced: None,
        unknown: Vec::new(),
        compared: 0,
        hit: Default::default(),
        failed_volumes: Vec::new(),
        unreported: false,
        orphans: Default::default(),
        registered_version: ServiceVersion::OLDEST,
    }
}
