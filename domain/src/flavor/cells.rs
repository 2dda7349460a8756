//! `hw:numa_nodes`, `hw:numa_cpus.N` and `hw:numa_mem.N`: the guest's cells, which vCPUs and how
//! much memory each has.
//!
//! Invariant: every vCPU is in exactly one cell, and the memory of the cells sums to the guest's.

use std::collections::{BTreeMap, BTreeSet};

use super::faults::Faults;
use super::setting::{Both, SettingValue};
use super::settings::Settings;
use super::{Flavor, Side};
use crate::instance::VcpuId;

/// The name of the number of cells.
const NODES: &str = "numa_nodes";
/// The name of the lists of vCPUs.
const CPUS: &str = "numa_cpus";
/// The name of the amounts of memory.
const MEMORY: &str = "numa_mem";

/// The vCPUs and the memory of one cell.
pub(super) struct Cell {
    pub(super) vcpus: BTreeSet<VcpuId>,
    pub(super) memory_mib: u64,
}

/// One list for all cells, and who gives it.
type List<'s, 'a, T> = Option<(Side, &'s BTreeMap<u32, SettingValue<'a, T>>)>;

/// Returns the number of cells, if it is set.
pub(super) fn nodes(settings: &Settings<'_>, faults: &mut Faults) -> Option<u32> {
    if let (Some(flavor), Some(image)) = (settings.nodes.flavor, settings.nodes.image) {
        let rule = format!(
            "the flavor says hw:numa_nodes={}, and an image may not say it too",
            flavor.text
        );
        faults.add(&Side::Image.named(NODES), image.text, rule);
    }
    settings.nodes.value()
}

/// Records faults of lists that would have no effect: nothing makes the guest have cells.
pub(super) fn refuse_lists(settings: &Settings<'_>, faults: &mut Faults) {
    let named = |list: &str, side: Side, cell: u32| side.named(&format!("{list}.{cell}"));
    for side in [Side::Flavor, Side::Image] {
        let (cpus, memory) = match side {
            Side::Flavor => (&settings.cpus.flavor, &settings.memory_mib.flavor),
            Side::Image => (&settings.cpus.image, &settings.memory_mib.image),
        };
        let cpus = cpus
            .iter()
            .map(|(cell, setting)| (named(CPUS, side, *cell), setting.text));
        let memory = memory
            .iter()
            .map(|(cell, setting)| (named(MEMORY, side, *cell), setting.text));
        for (field, text) in cpus.chain(memory) {
            let rule = format!("has no effect without {}", side.key(NODES));
            faults.add(&field, text, rule);
        }
    }
}

/// Returns the guest's cells; without any where there are faults.
pub(super) fn evaluate(
    flavor: &Flavor,
    settings: &Settings<'_>,
    nodes: u32,
    faults: &mut Faults,
) -> Vec<Cell> {
    let cpus = list(CPUS, &settings.cpus, faults);
    let memory = list(MEMORY, &settings.memory_mib, faults);
    if cpus.is_none() && memory.is_none() {
        return even(flavor, settings, nodes, faults);
    }
    let mut is_complete = check_complete(CPUS, cpus, memory.map(|m| m.0), nodes, faults);
    is_complete &= check_complete(MEMORY, memory, cpus.map(|c| c.0), nodes, faults);
    let (Some((cpu_side, cpus)), Some((memory_side, memory)), true) = (cpus, memory, is_complete)
    else {
        return Vec::new();
    };
    let sum: u64 = memory.values().map(|setting| setting.value).sum();
    if sum != flavor.memory_mib {
        let rule = format!("must sum to the flavor's {} MiB", flavor.memory_mib);
        faults.add(&memory_side.named(&format!("{MEMORY}.N")), sum, rule);
    }
    let vcpus = vcpus(flavor, cpu_side, cpus, faults);
    let cells = vcpus.into_iter().zip(memory.values());
    let cells = cells.map(|(vcpus, memory)| Cell {
        vcpus,
        memory_mib: memory.value,
    });
    cells.collect()
}

/// Returns the list that one of both sides gives; both may not.
fn list<'s, 'a, T>(
    name: &str,
    both: &'s Both<BTreeMap<u32, SettingValue<'a, T>>>,
    faults: &mut Faults,
) -> List<'s, 'a, T> {
    let image = both.image.first_key_value();
    if let (false, Some((cell, setting))) = (both.flavor.is_empty(), image) {
        let rule = format!("the flavor says hw:{name}.N, and an image may not say it too");
        faults.add(
            &Side::Image.named(&format!("{name}.{cell}")),
            setting.text,
            rule,
        );
    }
    if !both.flavor.is_empty() {
        Some((Side::Flavor, &both.flavor))
    } else if !both.image.is_empty() {
        Some((Side::Image, &both.image))
    } else {
        None
    }
}

/// Records faults of cells that a list leaves out, and those that there are not; returns whether it
/// is good. `other` is who gives the other list, for the case that this one is missing.
fn check_complete<T>(
    name: &str,
    list: List<'_, '_, T>,
    other: Option<Side>,
    nodes: u32,
    faults: &mut Faults,
) -> bool {
    let side = list.map(|(side, _)| side).or(other).unwrap_or(Side::Flavor);
    let named = |cell: u32| side.named(&format!("{name}.{cell}"));
    let mut is_complete = true;
    let none = BTreeMap::new();
    let given = list.map_or(&none, |(_, given)| given);
    for (cell, setting) in given.range(nodes..) {
        let rule = format!("there are only {nodes} NUMA nodes, by hw:numa_nodes");
        faults.add(&named(*cell), setting.text, rule);
        is_complete = false;
    }
    for cell in (0..nodes).filter(|cell| !given.contains_key(cell)) {
        let rule = "hw:numa_cpus.N and hw:numa_mem.N must be given for every NUMA node, or none";
        faults.add(&named(cell), "", rule);
        is_complete = false;
    }
    is_complete
}

fn even(flavor: &Flavor, settings: &Settings<'_>, nodes: u32, faults: &mut Faults) -> Vec<Cell> {
    let memory_mib = flavor.memory_mib / u64::from(nodes);
    let each = flavor.vcpus / nodes;
    let divides =
        each * nodes == flavor.vcpus && memory_mib * u64::from(nodes) == flavor.memory_mib;
    if !divides {
        let rule = format!(
            "{} vCPUs and {} MiB cannot be divided evenly; list them with hw:numa_cpus.N and \
             hw:numa_mem.N",
            flavor.vcpus, flavor.memory_mib
        );
        if let Some((side, setting)) = settings.nodes.first() {
            faults.add(&side.named(NODES), setting.text, rule);
        }
        return Vec::new();
    }
    let cell = |node: u32| Cell {
        vcpus: (node * each..(node + 1) * each).map(VcpuId).collect(),
        memory_mib,
    };
    (0..nodes).map(cell).collect()
}

/// Returns the vCPUs of each cell, in order.
fn vcpus(
    flavor: &Flavor,
    side: Side,
    cpus: &BTreeMap<u32, SettingValue<'_, super::mask::Mask>>,
    faults: &mut Faults,
) -> Vec<BTreeSet<VcpuId>> {
    let mut seen = BTreeSet::new();
    let mut cells = Vec::new();
    for (cell, setting) in cpus {
        let field = side.named(&format!("{CPUS}.{cell}"));
        let named = setting.value.list(flavor.vcpus);
        if !named.unknown.is_empty() {
            let (last, unknown) = (flavor.vcpus - 1, &named.unknown);
            let rule = format!("vCPUs are 0 to {last}; {unknown} do not exist");
            faults.add(&field, setting.text, rule);
        } else if named.known.is_empty() {
            faults.add(&field, setting.text, "must name at least one vCPU");
        }
        let twice: Vec<_> = named
            .known
            .intersection(&seen)
            .map(VcpuId::to_string)
            .collect();
        if !twice.is_empty() {
            let rule = format!("vCPUs {} are listed twice", twice.join(", "));
            faults.add(&field, setting.text, rule);
        }
        seen.extend(named.known.iter().copied());
        cells.push(named.known);
    }
    let unlisted: Vec<_> = (0..flavor.vcpus)
        .filter(|vcpu| !seen.contains(&VcpuId(*vcpu)))
        .map(|vcpu| vcpu.to_string())
        .collect();
    if !unlisted.is_empty() {
        let rule = format!(
            "every vCPU must be listed; missing are {}",
            unlisted.join(", ")
        );
        faults.add(&side.named(&format!("{CPUS}.N")), "", rule);
    }
    cells
}
