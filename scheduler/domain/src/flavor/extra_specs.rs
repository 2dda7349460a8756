//! The extra specs of a flavor, as OpenStack Nova writes them.
//!
//! Keys in the `hw:` and `trait:` namespaces are ours: each is understood or refused. Namespaces
//! that ask for something of a host that Berth does not give yet are refused too: a wish that is
//! silently dropped would be a broken promise. Keys of other namespaces (`quota:`, a company's
//! own) belong to others and are kept as they are.

use std::collections::{BTreeMap, BTreeSet};

use super::{CELLS_MAX, EXTRA_SPEC_LENGTH_MAX, Flavor, MEMORY_MIB_MAX, Wishes, page_size};
use crate::cpu_set::CpuSet;
use crate::fault::Fault;
use crate::instance::{
    CpuPolicy, EmulatorThreads, InstanceCell, InstanceTopology, PageSize, ThreadPolicy, VcpuId,
};
use crate::resource::Trait;

const KNOWN: &str = "hw:numa_nodes, hw:numa_cpus.N, hw:numa_mem.N, hw:cpu_policy, \
     hw:mem_page_size, hw:emulator_threads_policy";

/// Namespaces that ask for what is not given yet.
const NOT_YET: [&str; 5] = [
    "resources",
    "pci_passthrough",
    "accel",
    "aggregate_instance_extra_specs",
    "capabilities",
];

/// What the keys say, before they are judged together.
#[derive(Default)]
struct Specs {
    nodes: Option<u32>,
    dedicated: bool,
    page_size: Option<PageSize>,
    emulator: EmulatorThreads,
    cpus: BTreeMap<u32, BTreeSet<u32>>,
    memory_mib: BTreeMap<u32, u64>,
    wishes: Wishes,
    faults: Vec<Fault>,
}

/// Returns what the extra specs of a flavor with valid sizes wish for.
pub(super) fn parse(flavor: &Flavor) -> Result<Wishes, Vec<Fault>> {
    let mut specs = Specs::default();
    for (key, value) in &flavor.extra_specs {
        specs.read(key, value);
    }
    if specs.emulator == EmulatorThreads::Isolate && !specs.dedicated {
        specs.fault(
            "hw:emulator_threads_policy",
            "isolate",
            "isolate needs hw:cpu_policy=dedicated",
        );
    }
    if !specs.faults.is_empty() {
        return Err(specs.faults);
    }
    let wants_cells = specs.nodes.is_some() || specs.page_size.is_some() || specs.dedicated;
    if wants_cells {
        let cells = specs.cells(flavor);
        specs.wishes.topology = Some(InstanceTopology {
            cells,
            emulator_threads: specs.emulator,
            ..InstanceTopology::default()
        });
    } else {
        let cpus = specs.cpus.keys().map(|n| format!("hw:numa_cpus.{n}"));
        let memory = specs.memory_mib.keys().map(|n| format!("hw:numa_mem.{n}"));
        for key in cpus.chain(memory).collect::<Vec<_>>() {
            specs.fault(&key, "", "has no effect without hw:numa_nodes");
        }
    }
    if specs.faults.is_empty() {
        Ok(specs.wishes)
    } else {
        Err(specs.faults)
    }
}

impl Specs {
    fn fault(&mut self, key: &str, value: &str, rule: impl Into<String>) {
        let key: String = key.chars().take(EXTRA_SPEC_LENGTH_MAX).collect();
        let field = format!("extra_specs.{key}");
        self.faults.push(Fault::new(field, value, rule));
    }

    fn read(&mut self, key: &str, value: &str) {
        if key.len() > EXTRA_SPEC_LENGTH_MAX || value.len() > EXTRA_SPEC_LENGTH_MAX {
            let rule = format!("keys and values have at most {EXTRA_SPEC_LENGTH_MAX} bytes");
            return self.fault(key, value, rule);
        }
        match key.split_once(':') {
            Some(("hw", name)) => self.read_hw(key, name, value),
            Some(("trait", name)) => self.read_trait(key, name, value),
            Some((namespace, _)) if is_not_yet(namespace) => {
                self.fault(key, value, format!("{namespace}: is not supported yet"));
            }
            Some(("", _)) | None => self.fault(
                key,
                value,
                "a key needs a namespace, as hw:cpu_policy; keys of namespaces other than hw and \
                 trait are kept and have no effect on placement",
            ),
            Some(_) => {}
        }
    }

    fn read_hw(&mut self, key: &str, name: &str, value: &str) {
        match name {
            "numa_nodes" => match value.parse() {
                Ok(nodes) if (1..=CELLS_MAX).contains(&nodes) => self.nodes = Some(nodes),
                _ => self.fault(key, value, format!("must be a number, 1 to {CELLS_MAX}")),
            },
            "cpu_policy" => match value {
                "shared" => {}
                "dedicated" => self.dedicated = true,
                "mixed" => {
                    self.fault(
                        key,
                        value,
                        "mixed is not supported yet; use shared or dedicated",
                    );
                }
                _ => self.fault(key, value, "must be shared or dedicated"),
            },
            "mem_page_size" => match page_size::parse(value) {
                Some(size) => self.page_size = Some(size),
                None => self.fault(key, value, page_size::RULE),
            },
            "emulator_threads_policy" => match value {
                "isolate" => self.emulator = EmulatorThreads::Isolate,
                "share" => self.emulator = EmulatorThreads::Share,
                _ => self.fault(key, value, "must be isolate or share"),
            },
            _ => self.read_list(key, name, value),
        }
    }

    fn read_list(&mut self, key: &str, name: &str, value: &str) {
        let number = |text: &str| text.parse::<u32>().ok().filter(|n| *n < CELLS_MAX);
        match name.split_once('.') {
            Some(("numa_cpus", cell)) => match (number(cell), value.parse::<CpuSet>()) {
                (Some(cell), Ok(cpus)) if !cpus.is_empty() => {
                    self.cpus.insert(cell, cpus.iter().map(|c| c.0).collect());
                }
                _ => self.fault(key, value, "must be a list of vCPUs, as 0-3,8"),
            },
            Some(("numa_mem", cell)) => match (number(cell), value.parse::<u64>()) {
                (Some(cell), Ok(mib)) if (1..=MEMORY_MIB_MAX).contains(&mib) => {
                    self.memory_mib.insert(cell, mib);
                }
                _ => self.fault(key, value, "must be memory in MiB, at least 1"),
            },
            _ => self.fault(
                key,
                value,
                format!("is not a known key; known are {KNOWN} and trait:NAME"),
            ),
        }
    }

    fn read_trait(&mut self, key: &str, name: &str, value: &str) {
        let quality = match Trait::new(name) {
            Ok(quality) => quality,
            Err(invalid) => return self.fault(key, value, invalid.to_string()),
        };
        let traits = match value {
            "required" => &mut self.wishes.required_traits,
            "forbidden" => &mut self.wishes.forbidden_traits,
            _ => return self.fault(key, value, "must be required or forbidden"),
        };
        traits.insert(quality);
    }

    /// Returns the guest's cells; faults are noted.
    fn cells(&mut self, flavor: &Flavor) -> Vec<InstanceCell> {
        let nodes = self.nodes.unwrap_or(1);
        let before = self.faults.len();
        let (cpus, memory_mib) = if self.cpus.is_empty() && self.memory_mib.is_empty() {
            self.even(flavor, nodes)
        } else {
            self.listed(flavor, nodes)
        };
        if self.faults.len() > before {
            return Vec::new();
        }
        let page_size = self.page_size.unwrap_or_default();
        if let PageSize::Kib(size) = page_size {
            for mib in &memory_mib {
                if !(mib * 1024).is_multiple_of(size) {
                    let rule = format!(
                        "the memory of every guest cell must be a multiple of it; one has {mib} MiB"
                    );
                    self.fault("hw:mem_page_size", &format!("{size} KiB"), rule);
                    return Vec::new();
                }
            }
        }
        let dedicated = self.dedicated;
        (0..)
            .zip(cpus.into_iter().zip(memory_mib))
            .map(|(id, (cpus, memory_mib))| {
                let (shared, dedicated) = if dedicated {
                    (BTreeSet::new(), cpus)
                } else {
                    (cpus, BTreeSet::new())
                };
                InstanceCell {
                    id,
                    cpu_policy: CpuPolicy::of(&shared, &dedicated),
                    thread_policy: ThreadPolicy::Prefer,
                    shared,
                    dedicated,
                    memory_mib,
                    page_size,
                }
            })
            .collect()
    }

    fn even(&mut self, flavor: &Flavor, nodes: u32) -> (Vec<BTreeSet<VcpuId>>, Vec<u64>) {
        let divides = flavor.vcpus.is_multiple_of(nodes)
            && flavor.memory_mib.is_multiple_of(u64::from(nodes));
        if !divides {
            let rule = format!(
                "{} vCPUs and {} MiB cannot be divided evenly; list them with hw:numa_cpus.N and \
                 hw:numa_mem.N",
                flavor.vcpus, flavor.memory_mib
            );
            self.fault("hw:numa_nodes", &nodes.to_string(), rule);
            return (Vec::new(), Vec::new());
        }
        let each = flavor.vcpus / nodes;
        let cpus = (0..nodes).map(|n| (n * each..(n + 1) * each).map(VcpuId).collect());
        let memory_mib = vec![flavor.memory_mib / u64::from(nodes); nodes as usize];
        (cpus.collect(), memory_mib)
    }

    fn listed(&mut self, flavor: &Flavor, nodes: u32) -> (Vec<BTreeSet<VcpuId>>, Vec<u64>) {
        let cpus = std::mem::take(&mut self.cpus);
        let memory_mib = std::mem::take(&mut self.memory_mib);
        let names = |kind: &str, number: u32| format!("hw:{kind}.{number}");
        for (kind, numbers) in [
            ("numa_cpus", cpus.keys().copied().collect::<BTreeSet<_>>()),
            ("numa_mem", memory_mib.keys().copied().collect()),
        ] {
            for number in numbers.range(nodes..) {
                let rule = format!("there are only {nodes} cells, by hw:numa_nodes");
                self.fault(&names(kind, *number), "", rule);
            }
        }
        if !self.faults.is_empty() {
            return (Vec::new(), Vec::new());
        }
        for number in 0..nodes {
            let rule = "hw:numa_cpus.N and hw:numa_mem.N must be given for every cell, or none";
            if !cpus.contains_key(&number) {
                self.fault(&names("numa_cpus", number), "", rule);
            }
            if !memory_mib.contains_key(&number) {
                self.fault(&names("numa_mem", number), "", rule);
            }
        }
        if !self.faults.is_empty() {
            self.faults.sort_by(|a, b| a.field.cmp(&b.field));
            return (Vec::new(), Vec::new());
        }
        self.check_cpus(flavor, &cpus);
        let sum: u128 = memory_mib.values().map(|m| u128::from(*m)).sum();
        if sum != u128::from(flavor.memory_mib) {
            let rule = format!("must sum to the flavor's {} MiB", flavor.memory_mib);
            self.fault("hw:numa_mem.N", &sum.to_string(), rule);
        }
        let cpus = cpus
            .into_values()
            .map(|c| c.into_iter().map(VcpuId).collect());
        (cpus.collect(), memory_mib.into_values().collect())
    }

    fn check_cpus(&mut self, flavor: &Flavor, cpus: &BTreeMap<u32, BTreeSet<u32>>) {
        let mut seen = BTreeSet::new();
        for (cell, listed) in cpus {
            let key = format!("hw:numa_cpus.{cell}");
            for vcpu in listed {
                if *vcpu >= flavor.vcpus {
                    let rule = format!("vCPUs are 0 to {}", flavor.vcpus - 1);
                    self.fault(&key, &vcpu.to_string(), rule);
                } else if !seen.insert(*vcpu) {
                    self.fault(&key, &vcpu.to_string(), "the vCPU is listed twice");
                }
            }
        }
        let unlisted: Vec<_> = (0..flavor.vcpus)
            .filter(|v| !seen.contains(v))
            .map(|v| v.to_string())
            .collect();
        if !unlisted.is_empty() {
            let rule = format!(
                "every vCPU must be listed; missing are {}",
                unlisted.join(", ")
            );
            self.fault("hw:numa_cpus.N", "", rule);
        }
    }
}

/// Returns whether a namespace asks for something that is not given yet: one of [`NOT_YET`], or a
/// numbered or named group (`resources1`, `trait_GPU`).
fn is_not_yet(namespace: &str) -> bool {
    let is_group = ["resources", "trait"].iter().any(|stem| {
        namespace
            .strip_prefix(stem)
            .and_then(|rest| rest.chars().next())
            .is_some_and(|c| c == '_' || c.is_ascii_digit())
    });
    is_group || NOT_YET.contains(&namespace)
}
