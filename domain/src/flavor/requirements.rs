//! What a guest requires: the settings of its flavor and its image, evaluated together.

use std::collections::BTreeSet;

use super::faults::Faults;
use super::settings::Settings;
use super::{
    Flavor, cells, cpu_model, cpu_policy, emulator_threads, locked_memory, page_size, passthrough,
    pmem, realtime, shape, thread_policy,
};
use crate::aggregate::AggregateSpecs;
use crate::allocation::Resources;
use crate::cpu_model::CpuModelChoice;
use crate::cpu_shape::CpuShape;
use crate::image::ImageProperties;
use crate::instance::{
    CpuPolicy, EmulatorThreads, InstanceCell, InstanceTopology, PageSize, ThreadPolicy, VcpuId,
};
use crate::pci::{PciAliases, PciNumaPolicy, PciRequest};
use crate::platform::PlatformDemand;
use crate::pmem::PmemDemand;
use crate::resource::{ResourceClass, Trait};

/// What a guest requires.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    /// The guest's cells; absent for a guest that does not care.
    pub topology: Option<InstanceTopology>,
    /// Everything that is counted; classes of which it takes nothing are left out.
    pub resources: Resources,
    /// Qualities that the host must have.
    pub required_traits: BTreeSet<Trait>,
    /// Qualities that the host must not have.
    pub forbidden_traits: BTreeSet<Trait>,
    /// How the guest sees its vCPUs, where it is set.
    pub cpu_shape: Option<CpuShape>,
    /// The PCI functions that it requests.
    pub pci: Vec<PciRequest>,
    /// The persistent memory that it requests.
    pub pmem: PmemDemand,
    /// The metadata that the aggregates of the host must have.
    pub aggregate_specs: AggregateSpecs,
    /// What kind of machine the image requests.
    pub platform: PlatformDemand,
    /// Which CPU it is to have.
    pub cpu_model: CpuModelChoice,
}

/// How a guest's CPUs are to be.
struct Cpus {
    policy: CpuPolicy,
    threads: ThreadPolicy,
    emulator: EmulatorThreads,
    realtime: BTreeSet<VcpuId>,
    dedicated: BTreeSet<VcpuId>,
}

/// Returns the requirements of a guest whose flavor has valid sizes; faults are recorded. Without
/// `aliases` no PCI alias is looked up.
pub(super) fn evaluate(
    flavor: &Flavor,
    image: &ImageProperties,
    aliases: Option<&PciAliases>,
    faults: &mut Faults,
) -> Requirements {
    let settings = Settings::read(flavor, image, faults);
    // With a value that is not understood, what the others mean together cannot be evaluated.
    if !faults.is_empty() {
        return Requirements::default();
    }
    let settings = &settings;
    let cpus = cpus(flavor, settings, faults);
    let page_size = page_size::evaluate(settings, faults);
    let locked_memory = locked_memory::evaluate(settings, faults);
    let pmem = pmem::evaluate(settings, faults);
    let cells = guest_cells(flavor, settings, &cpus, page_size, faults);
    let topology = cells.map(|cells| InstanceTopology {
        cells,
        emulator_threads: cpus.emulator,
        realtime: cpus.realtime.clone(),
        locked_memory,
    });
    let pci_policy = passthrough::evaluate_policy(settings, faults);
    let (mut required_traits, forbidden_traits) = settings.groups.traits(faults);
    let pci = passthrough::evaluate(settings, pci_policy, aliases, faults);
    let by_alias = pci.iter().any(|r| r.policy == PciNumaPolicy::Socket);
    let by_socket = by_alias || pci_policy == Some(PciNumaPolicy::Socket);
    required_traits.extend(implied_traits(cpus.threads, by_socket));
    settings.groups.check(faults);
    Requirements {
        topology,
        resources: resources(flavor, settings, &cpus, &pmem, faults),
        required_traits,
        forbidden_traits,
        cpu_shape: shape::evaluate(flavor, settings, faults),
        pci,
        pmem,
        aggregate_specs: settings.aggregate_specs.clone(),
        platform: settings.platform.clone(),
        cpu_model: cpu_model::evaluate(settings, faults),
    }
}

fn cpus(flavor: &Flavor, settings: &Settings<'_>, faults: &mut Faults) -> Cpus {
    let policy = cpu_policy::evaluate(settings, faults);
    let emulator = emulator_threads::evaluate(settings, policy, faults);
    let realtime = realtime::evaluate(flavor, settings, policy, emulator, faults);
    Cpus {
        policy,
        threads: thread_policy::evaluate(settings, policy, faults),
        emulator,
        dedicated: cpu_policy::dedicated(flavor, settings, policy, realtime.as_ref(), faults),
        realtime: realtime.unwrap_or_default(),
    }
}

/// Returns the guest's cells, if it has any.
fn guest_cells(
    flavor: &Flavor,
    settings: &Settings<'_>,
    cpus: &Cpus,
    page_size: Option<PageSize>,
    faults: &mut Faults,
) -> Option<Vec<InstanceCell>> {
    let nodes = cells::nodes(settings, faults);
    let wants_cells = nodes.is_some()
        || settings.page_size.first().is_some()
        || settings.pmem.is_some()
        || cpus.policy != CpuPolicy::Shared;
    if !wants_cells {
        cells::refuse_lists(settings, faults);
        return None;
    }
    let cells = cells::evaluate(flavor, settings, nodes.unwrap_or(1), faults);
    let page_size = page_size.unwrap_or_default();
    let memory_mib: Vec<u64> = cells.iter().map(|cell| cell.memory_mib).collect();
    page_size::check_multiple(settings, page_size, &memory_mib, faults);
    let cells = (0..).zip(cells).map(|(id, cell)| InstanceCell {
        id,
        cpu_policy: cpus.policy,
        thread_policy: cpus.threads,
        shared: cell.vcpus.difference(&cpus.dedicated).copied().collect(),
        dedicated: cell.vcpus.intersection(&cpus.dedicated).copied().collect(),
        memory_mib: cell.memory_mib,
        page_size,
    });
    Some(cells.collect())
}

/// Returns the qualities that a policy requires of the host.
///
/// Policy isolate forbids none: where cores have several threads, whether it can be kept depends
/// on how the host's CPUs are set up, which the exact fit knows.
fn implied_traits(threads: ThreadPolicy, by_socket: bool) -> Vec<Trait> {
    let threads = match threads {
        ThreadPolicy::Prefer | ThreadPolicy::Isolate => None,
        ThreadPolicy::Require => Some(Trait::hyperthreading()),
    };
    let socket = by_socket.then(Trait::socket_pci_numa_affinity);
    threads.into_iter().chain(socket).collect()
}

/// Returns everything that is counted. What is requested by name of the classes that follow from
/// the flavor's sizes must be what the guest takes: a claim counts what it gives.
fn resources(
    flavor: &Flavor,
    settings: &Settings<'_>,
    cpus: &Cpus,
    pmem: &PmemDemand,
    faults: &mut Faults,
) -> Resources {
    let emulator = u64::from(cpus.emulator == EmulatorThreads::Isolate);
    let dedicated = cpus.dedicated.len() as u64;
    let pcpu = if cpus.policy == CpuPolicy::Shared {
        0
    } else {
        dedicated + emulator
    };
    let mut counted = pmem.counted();
    pmem::check_resources(settings, faults);
    for (_, class, amount) in settings.groups.resources() {
        *counted.entry(class.clone()).or_default() += amount;
    }
    for (class, amount, what) in [
        (
            ResourceClass::vcpu(),
            u64::from(flavor.vcpus) - dedicated,
            "its shared vCPUs",
        ),
        (
            ResourceClass::pcpu(),
            pcpu,
            "its dedicated vCPUs, and one more with hw:emulator_threads_policy=isolate",
        ),
        (
            ResourceClass::memory_mb(),
            flavor.memory_mib,
            "its memory_mib",
        ),
        (ResourceClass::disk_gb(), flavor.disk_gib, "its disk_gib"),
    ] {
        let name = class.as_str();
        let requested = settings.groups.amount(name);
        // Faults of the policies are recorded already.
        if settings.groups.names(name) && requested != amount && faults.is_empty() {
            let rule = format!("must be {amount}: {what}");
            faults.add(&settings.groups.field(name), requested, rule);
        }
        counted.insert(class, amount);
    }
    counted.retain(|_, amount| *amount > 0);
    counted
}
