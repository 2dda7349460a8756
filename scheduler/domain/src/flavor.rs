//! A flavor: the size and the wishes of a guest, named.

mod extra_specs;
mod page_size;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::allocation::Resources;
use crate::cpu_shape::CpuShape;
use crate::fault::Fault;
use crate::image::ImageProperties;
use crate::instance::{EmulatorThreads, InstanceTopology};
use crate::name::FlavorName;
use crate::pci::{PciAliases, PciRequest};
use crate::resource::{ResourceClass, Trait};

/// The most virtual CPUs of a guest.
pub const VCPUS_MAX: u32 = 512;
/// The most memory of a guest in MiB: 64 TiB.
pub const MEMORY_MIB_MAX: u64 = 64 * 1024 * 1024;
/// The most disk space of a guest in GiB: 1 PiB.
pub const DISK_GIB_MAX: u64 = 1024 * 1024;
/// The most NUMA cells of a guest.
pub const CELLS_MAX: u32 = 64;
/// The most extra specs of a flavor.
pub const EXTRA_SPECS_MAX: usize = 256;
/// The longest key or value of an extra spec.
pub const EXTRA_SPEC_LENGTH_MAX: usize = 255;

/// A flavor, as in OpenStack Nova.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Flavor {
    /// Who it is.
    pub name: FlavorName,
    /// The number of virtual CPUs, at least 1.
    pub vcpus: u32,
    /// Memory in MiB, at least 1.
    pub memory_mib: u64,
    /// Disk space in GiB that is counted for the VM; its disks may not be larger in sum.
    pub disk_gib: u64,
    /// Wishes, as `hw:cpu_policy` = `dedicated`; unknown `hw:` keys are refused.
    pub extra_specs: BTreeMap<String, String>,
}

/// What a flavor's extra specs wish for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// The guest's cells; absent for a guest that does not care.
    pub topology: Option<InstanceTopology>,
    /// Qualities that the host must have.
    pub required_traits: BTreeSet<Trait>,
    /// Qualities that the host must not have.
    pub forbidden_traits: BTreeSet<Trait>,
    /// How the guest sees its vCPUs, where it was said.
    pub cpu_shape: Option<CpuShape>,
    /// The PCI functions that it asks for.
    pub pci: Vec<PciRequest>,
}

impl Flavor {
    /// Returns what a guest of this flavor from an image wishes for. `aliases` are what the names
    /// in `pci_passthrough:alias` stand for.
    ///
    /// # Errors
    ///
    /// All faults at once: `extra_specs.KEY` of the flavor, `image_properties.KEY` of the image.
    pub fn wishes(
        &self,
        image: &ImageProperties,
        _aliases: &PciAliases,
    ) -> Result<Wishes, Vec<Fault>> {
        let wishes = self.validate()?;
        let not_yet = |(key, value): (&String, &String)| {
            let field = format!("image_properties.{key}");
            Fault::new(field, value, "image properties are not supported yet")
        };
        let faults: Vec<Fault> = image.0.iter().map(not_yet).collect();
        if faults.is_empty() {
            Ok(wishes)
        } else {
            Err(faults)
        }
    }

    /// Returns what the flavor wishes for.
    ///
    /// # Errors
    ///
    /// All faults at once.
    pub fn validate(&self) -> Result<Wishes, Vec<Fault>> {
        let mut faults = Vec::new();
        let mut bound = |field: &str, value: u64, min: u64, max: u64| {
            if !(min..=max).contains(&value) {
                faults.push(Fault::new(field, value, format!("must be {min} to {max}")));
            }
        };
        bound("vcpus", self.vcpus.into(), 1, VCPUS_MAX.into());
        bound("memory_mib", self.memory_mib, 1, MEMORY_MIB_MAX);
        bound("disk_gib", self.disk_gib, 0, DISK_GIB_MAX);
        if self.extra_specs.len() > EXTRA_SPECS_MAX {
            let rule = format!("at most {EXTRA_SPECS_MAX} are allowed");
            faults.push(Fault::new("extra_specs", self.extra_specs.len(), rule));
        }
        // With sizes out of bounds, what the extra specs say cannot be judged.
        if !faults.is_empty() {
            return Err(faults);
        }
        extra_specs::parse(self)
    }
}

/// Returns the counted amounts that a guest of this flavor takes; classes of which it takes
/// nothing are left out.
#[must_use]
pub fn resources(flavor: &Flavor, topology: Option<&InstanceTopology>) -> Resources {
    let (vcpu, pcpu) = match topology {
        None => (u64::from(flavor.vcpus), 0),
        Some(topology) => {
            let cells = &topology.cells;
            let shared: usize = cells.iter().map(|c| c.shared.len()).sum();
            let dedicated: usize = cells.iter().map(|c| c.dedicated.len()).sum();
            let emulator = usize::from(topology.emulator_threads == EmulatorThreads::Isolate);
            (shared as u64, (dedicated + emulator) as u64)
        }
    };
    [
        (ResourceClass::vcpu(), vcpu),
        (ResourceClass::pcpu(), pcpu),
        (ResourceClass::memory_mb(), flavor.memory_mib),
        (ResourceClass::disk_gb(), flavor.disk_gib),
    ]
    .into_iter()
    .filter(|(_, amount)| *amount > 0)
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::{PageSize, VcpuId};

    fn flavor(vcpus: u32, memory_mib: u64, specs: &[(&str, &str)]) -> Flavor {
        Flavor {
            name: FlavorName::new("f").unwrap(),
            vcpus,
            memory_mib,
            disk_gib: 3,
            extra_specs: specs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
        }
    }

    fn amounts(resources: &Resources) -> Vec<(String, u64)> {
        resources.iter().map(|(c, n)| (c.to_string(), *n)).collect()
    }

    fn check_faults(flavor: &Flavor, expected: &[(&str, &str)]) {
        let faults = flavor.validate().unwrap_err();
        let found: Vec<_> = faults.iter().map(|f| (&*f.field, &*f.rule)).collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for ((field, rule), (wanted_field, part)) in found.iter().zip(expected) {
            assert_eq!(field, wanted_field, "{found:?}");
            assert!(rule.contains(part), "{rule:?} does not say {part:?}");
        }
    }

    #[test]
    fn a_plain_flavor_has_no_topology() {
        let plain = flavor(4, 1024, &[("quota:disk_read_iops_sec", "5")]);
        let wishes = plain.validate().unwrap();
        assert_eq!(wishes, Wishes::default());
        assert_eq!(
            amounts(&resources(&plain, None)),
            [
                ("DISK_GB".to_owned(), 3),
                ("MEMORY_MB".to_owned(), 1024),
                ("VCPU".to_owned(), 4)
            ]
        );
    }

    #[test]
    fn dedicated_cpus_make_one_cell_and_are_counted_as_such() {
        let pinned = flavor(
            3,
            1024,
            &[
                ("hw:cpu_policy", "dedicated"),
                ("hw:emulator_threads_policy", "isolate"),
            ],
        );
        let topology = pinned.validate().unwrap().topology.unwrap();
        assert_eq!(topology.cells.len(), 1);
        assert_eq!(topology.cells[0].dedicated.len(), 3);
        assert!(topology.cells[0].shared.is_empty());
        assert_eq!(topology.cells[0].page_size, PageSize::Unspecified);
        let counted = resources(&pinned, Some(&topology));
        assert_eq!(counted.get(&ResourceClass::pcpu()), Some(&4));
        assert_eq!(counted.get(&ResourceClass::vcpu()), None);
    }

    #[test]
    fn cells_are_even_or_as_listed() {
        let even = flavor(4, 1024, &[("hw:numa_nodes", "2")]);
        let cells = even.validate().unwrap().topology.unwrap().cells;
        let shape: Vec<_> = cells
            .iter()
            .map(|c| (c.shared.len(), c.memory_mib))
            .collect();
        assert_eq!(shape, [(2, 512), (2, 512)]);

        let listed = flavor(
            4,
            1024,
            &[
                ("hw:numa_nodes", "2"),
                ("hw:numa_cpus.0", "0,2-3"),
                ("hw:numa_cpus.1", "1"),
                ("hw:numa_mem.0", "1000"),
                ("hw:numa_mem.1", "24"),
                ("hw:mem_page_size", "2MB"),
            ],
        );
        let cells = listed.validate().unwrap().topology.unwrap().cells;
        assert_eq!(cells[0].shared, [0, 2, 3].map(VcpuId).into());
        assert_eq!(cells[1].shared, [1].map(VcpuId).into());
        assert_eq!((cells[0].memory_mib, cells[1].memory_mib), (1000, 24));
        assert_eq!(cells[1].page_size, PageSize::Kib(2048));
    }

    #[test]
    fn traits_are_required_or_forbidden() {
        let wishes = flavor(1, 1, &[("trait:A", "required"), ("trait:B", "forbidden")])
            .validate()
            .unwrap();
        assert!(wishes.required_traits.contains(&Trait::new("A").unwrap()));
        assert!(wishes.forbidden_traits.contains(&Trait::new("B").unwrap()));
    }

    /// Goal: each rule refuses with its field and says what is allowed. Method: a table.
    #[test]
    fn faults_name_field_and_rule() {
        type Row<'a> = (u32, u64, &'a [(&'a str, &'a str)], &'a [(&'a str, &'a str)]);
        let table: &[Row<'_>] = &[
            (0, 0, &[], &[("vcpus", "1 to 512"), ("memory_mib", "1 to")]),
            (513, 1, &[], &[("vcpus", "1 to 512")]),
            (
                1,
                1,
                &[("hw:cpu_polcy", "shared")],
                &[("extra_specs.hw:cpu_polcy", "hw:cpu_policy")],
            ),
            (
                1,
                1,
                &[("cpu_policy", "shared")],
                &[("extra_specs.cpu_policy", "namespace")],
            ),
            (
                1,
                1,
                &[("hw:cpu_policy", "mixed")],
                &[("extra_specs.hw:cpu_policy", "not supported yet")],
            ),
            (
                1,
                1,
                &[("hw:cpu_policy", "x")],
                &[("extra_specs.hw:cpu_policy", "shared or dedicated")],
            ),
            (
                1,
                1,
                &[("pci_passthrough:alias", "a:1")],
                &[("extra_specs.pci_passthrough:alias", "not supported yet")],
            ),
            (
                1,
                1,
                &[("resources:VGPU", "1")],
                &[("extra_specs.resources:VGPU", "not supported yet")],
            ),
            (
                3,
                3,
                &[("hw:numa_nodes", "2")],
                &[("extra_specs.hw:numa_nodes", "evenly")],
            ),
            (
                1,
                1,
                &[("hw:numa_nodes", "0")],
                &[("extra_specs.hw:numa_nodes", "1 to 64")],
            ),
            (
                1,
                1,
                &[("hw:numa_nodes", "1e3")],
                &[("extra_specs.hw:numa_nodes", "1 to 64")],
            ),
            (
                1,
                1,
                &[("hw:emulator_threads_policy", "isolate")],
                &[(
                    "extra_specs.hw:emulator_threads_policy",
                    "hw:cpu_policy=dedicated",
                )],
            ),
            (
                1,
                1,
                &[("hw:cpu_policy", "dedicated"), ("hw:mem_page_size", "3")],
                &[("extra_specs.hw:mem_page_size", "small, large, any")],
            ),
            (
                1,
                1,
                &[("hw:mem_page_size", "1GB")],
                &[("extra_specs.hw:mem_page_size", "multiple")],
            ),
            (
                2,
                4,
                &[("hw:numa_nodes", "2"), ("hw:numa_cpus.0", "0-1")],
                &[
                    ("extra_specs.hw:numa_cpus.1", "for every cell"),
                    ("extra_specs.hw:numa_mem.0", "for every cell"),
                    ("extra_specs.hw:numa_mem.1", "for every cell"),
                ],
            ),
            (
                3,
                4,
                &[
                    ("hw:numa_nodes", "2"),
                    ("hw:numa_cpus.0", "0-1"),
                    ("hw:numa_cpus.1", "1,7"),
                    ("hw:numa_mem.0", "1"),
                    ("hw:numa_mem.1", "1"),
                ],
                &[
                    ("extra_specs.hw:numa_cpus.1", "twice"),
                    ("extra_specs.hw:numa_cpus.1", "0 to 2"),
                    ("extra_specs.hw:numa_cpus.N", "2"),
                    ("extra_specs.hw:numa_mem.N", "4"),
                ],
            ),
            (
                2,
                4,
                &[("hw:numa_nodes", "1"), ("hw:numa_cpus.5", "0-1")],
                &[("extra_specs.hw:numa_cpus.5", "hw:numa_nodes")],
            ),
            (
                2,
                4,
                &[("hw:numa_mem.0", "4")],
                &[("extra_specs.hw:numa_mem.0", "hw:numa_nodes")],
            ),
            (
                1,
                1,
                &[("trait_G:A", "required")],
                &[("extra_specs.trait_G:A", "not supported yet")],
            ),
            (
                1,
                1,
                &[("trait:CUSTOM_A", "maybe")],
                &[("extra_specs.trait:CUSTOM_A", "required or forbidden")],
            ),
            (
                1,
                1,
                &[("trait:a b", "required")],
                &[("extra_specs.trait:a b", "A-Z")],
            ),
        ];
        for (vcpus, memory_mib, specs, expected) in table {
            check_faults(&flavor(*vcpus, *memory_mib, specs), expected);
        }
    }
}
