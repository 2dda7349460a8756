//! What is accepted means what it means in Nova.

use std::fmt::Write as _;

use berth_domain::instance::{InstanceTopology, VcpuId};
use berth_domain::name::PciAliasName;
use berth_domain::pci::PciNumaPolicy;

use super::{Pairs, flavor, requirements};

fn list(vcpus: impl IntoIterator<Item = VcpuId>) -> String {
    let numbers: Vec<_> = vcpus.into_iter().map(|v| v.to_string()).collect();
    if numbers.is_empty() {
        "-".to_owned()
    } else {
        numbers.join(",")
    }
}

/// Writes cells as `shared/dedicated memory page policy threads`, and what all have in common.
fn text(topology: Option<&InstanceTopology>) -> String {
    let Some(topology) = topology else {
        return "none".to_owned();
    };
    let mut text = String::new();
    for cell in &topology.cells {
        let (shared, dedicated) = (list(cell.shared.clone()), list(cell.dedicated.clone()));
        let _ = write!(
            text,
            "{shared}/{dedicated} {} {:?} {:?} {:?}; ",
            cell.memory_mib, cell.page_size, cell.cpu_policy, cell.thread_policy
        );
    }
    let realtime = list(topology.realtime.clone());
    let _ = write!(text, "{:?} rt {realtime}", topology.emulator_threads);
    if topology.locked_memory {
        text += " locked";
    }
    text
}

/// Goal: the topology is Nova's.
#[test]
fn topologies() {
    let table: &[(Pairs<'_>, Pairs<'_>, &str)] = &[
        (&[], &[], "none"),
        (&[("hw:cpu_policy", "shared")], &[], "none"),
        (&[("hw:emulator_threads_policy", "share")], &[], "none"),
        (
            &[("hw:cpu_policy", "dedicated")],
            &[],
            "-/0,1,2,3 1024 Unspecified Dedicated Prefer; Unspecified rt -",
        ),
        (
            &[],
            &[
                ("hw_cpu_policy", "dedicated"),
                ("hw_cpu_thread_policy", "require"),
            ],
            "-/0,1,2,3 1024 Unspecified Dedicated Require; Unspecified rt -",
        ),
        (
            &[
                ("hw:cpu_policy", "dedicated"),
                ("hw:cpu_thread_policy", "prefer"),
            ],
            &[("hw_cpu_thread_policy", "isolate")],
            "-/0,1,2,3 1024 Unspecified Dedicated Isolate; Unspecified rt -",
        ),
        (
            &[
                ("hw:cpu_policy", "mixed"),
                ("hw:cpu_dedicated_mask", "^0-1"),
                ("hw:numa_nodes", "2"),
            ],
            &[("hw_cpu_policy", "shared")],
            "0,1/- 512 Unspecified Mixed Prefer; -/2,3 512 Unspecified Mixed Prefer; Unspecified rt -",
        ),
        (
            &[
                ("hw:cpu_policy", "mixed"),
                ("hw:cpu_realtime", "yes"),
                ("hw:cpu_realtime_mask", "2-3"),
            ],
            &[],
            "0,1/2,3 1024 Unspecified Mixed Prefer; Unspecified rt 2,3",
        ),
        (
            &[
                ("hw:cpu_policy", "dedicated"),
                ("hw:cpu_realtime", "true"),
                ("hw:cpu_realtime_mask", "^0"),
            ],
            &[("hw_cpu_realtime_mask", "^0-1")],
            "-/0,1,2,3 1024 Unspecified Dedicated Prefer; Unspecified rt 2,3",
        ),
        (
            &[
                ("hw:cpu_policy", "dedicated"),
                ("hw:cpu_realtime", "true"),
                ("hw:emulator_threads_policy", "isolate"),
            ],
            &[],
            "-/0,1,2,3 1024 Unspecified Dedicated Prefer; Isolate rt 0,1,2,3",
        ),
        (
            &[
                ("hw:cpu_policy", "dedicated"),
                ("hw:cpu_realtime", "no"),
                ("hw:cpu_realtime_mask", "0"),
            ],
            &[("hw_cpu_realtime_mask", "1")],
            "-/0,1,2,3 1024 Unspecified Dedicated Prefer; Unspecified rt -",
        ),
        (
            &[("hw:mem_page_size", "large"), ("hw:locked_memory", "true")],
            &[("hw_mem_page_size", "2MB")],
            "0,1,2,3/- 1024 Kib(2048) Shared Prefer; Unspecified rt - locked",
        ),
        (
            &[("hw:mem_page_size", "any"), ("hw:locked_memory", "off")],
            &[("hw_locked_memory", "0")],
            "0,1,2,3/- 1024 Any Shared Prefer; Unspecified rt -",
        ),
        (
            &[("hw:pmem", "128G, 128G")],
            &[],
            "0,1,2,3/- 1024 Unspecified Shared Prefer; Unspecified rt -",
        ),
        (
            &[
                ("resources:PCPU", "4"),
                ("trait:HW_CPU_HYPERTHREADING", "forbidden"),
            ],
            &[],
            "-/0,1,2,3 1024 Unspecified Dedicated Isolate; Unspecified rt -",
        ),
        (
            &[
                ("resources:PCPU", "5"),
                ("hw:emulator_threads_policy", "isolate"),
            ],
            &[("trait:HW_CPU_HYPERTHREADING", "required")],
            "-/0,1,2,3 1024 Unspecified Dedicated Require; Isolate rt -",
        ),
        (
            &[
                ("hw:numa_nodes", "2"),
                ("hw:numa_mem.0", "1000"),
                ("hw:numa_mem.1", "24"),
            ],
            &[("hw_numa_cpus.0", "0-3,^1"), ("hw_numa_cpus.1", "1")],
            "0,2,3/- 1000 Unspecified Shared Prefer; 1/- 24 Unspecified Shared Prefer; \
             Unspecified rt -",
        ),
        (
            &[],
            &[
                ("hw_numa_nodes", "2"),
                ("hw_disk_bus", "scsi"),
                ("os_type", "linux"),
            ],
            "0,1/- 512 Unspecified Shared Prefer; 2,3/- 512 Unspecified Shared Prefer; \
             Unspecified rt -",
        ),
    ];
    for (specs, image, expected) in table {
        let found =
            requirements(specs, image).unwrap_or_else(|f| panic!("{specs:?} {image:?}: {f:?}"));
        assert_eq!(
            text(found.topology.as_ref()),
            *expected,
            "{specs:?} {image:?}"
        );
    }
}

/// Goal: what is counted, and which qualities are asked for, is what Nova asks Placement for.
#[test]
fn counted_resources_and_qualities() {
    let table: &[(Pairs<'_>, Pairs<'_>, &str)] = &[
        (
            &[("quota:cpu_shares", "5")],
            &[],
            "DISK_GB:3 MEMORY_MB:1024 VCPU:4",
        ),
        (
            &[
                ("hw:cpu_policy", "dedicated"),
                ("hw:cpu_thread_policy", "require"),
                ("hw:emulator_threads_policy", "isolate"),
            ],
            &[],
            "DISK_GB:3 MEMORY_MB:1024 PCPU:5 +HW_CPU_HYPERTHREADING",
        ),
        (
            &[
                ("hw:cpu_policy", "dedicated"),
                ("hw:cpu_thread_policy", "isolate"),
            ],
            &[],
            "DISK_GB:3 MEMORY_MB:1024 PCPU:4",
        ),
        (
            &[("hw:cpu_policy", "mixed"), ("hw:cpu_dedicated_mask", "0")],
            &[],
            "DISK_GB:3 MEMORY_MB:1024 PCPU:1 VCPU:3",
        ),
        (
            &[("hw:pmem", "128GB,128GB,small")],
            &[],
            "CUSTOM_PMEM_NAMESPACE_128GB:2 CUSTOM_PMEM_NAMESPACE_SMALL:1 DISK_GB:3 MEMORY_MB:1024 \
             VCPU:4",
        ),
        (
            &[("hw:pci_numa_affinity_policy", "socket")],
            &[("hw_pci_numa_affinity_policy", "socket")],
            "DISK_GB:3 MEMORY_MB:1024 VCPU:4 +COMPUTE_SOCKET_PCI_NUMA_AFFINITY",
        ),
        (
            &[
                ("resources:VCPU", "4"),
                ("resources:MEMORY_MB", "1024"),
                ("resources1:CUSTOM_A", "2"),
                ("resources_GPU:CUSTOM_A", "1"),
                ("trait_GPU:CUSTOM_FAST", "required"),
                ("trait:HW_CPU_X86_AVX2", "forbidden"),
                ("group_policy", "none"),
            ],
            &[("trait:HW_CPU_X86_SSE", "required")],
            "CUSTOM_A:3 DISK_GB:3 MEMORY_MB:1024 VCPU:4 +CUSTOM_FAST +HW_CPU_X86_SSE \
             -HW_CPU_X86_AVX2",
        ),
    ];
    for (specs, image, expected) in table {
        let found =
            requirements(specs, image).unwrap_or_else(|f| panic!("{specs:?} {image:?}: {f:?}"));
        let mut words: Vec<_> = found
            .resources
            .iter()
            .map(|(c, n)| format!("{c}:{n}"))
            .collect();
        words.extend(found.required_traits.iter().map(|t| format!("+{t}")));
        words.extend(found.forbidden_traits.iter().map(|t| format!("-{t}")));
        assert_eq!(words.join(" "), *expected, "{specs:?} {image:?}");
    }
}

/// Goal: shapes obey flavor and image. Method: a table, checked with Nova.
#[test]
fn shapes() {
    type Shape = Option<(u32, u32, u32)>;
    let table: &[(Pairs<'_>, Pairs<'_>, Shape)] = &[
        (&[], &[], None),
        (&[("hw:cpu_sockets", "1")], &[], Some((1, 4, 1))),
        (&[("hw:cpu_threads", "2")], &[], Some((2, 1, 2))),
        (
            &[("hw:cpu_sockets", "1")],
            &[("hw_cpu_threads", "2")],
            Some((2, 1, 2)),
        ),
        (
            &[("hw:cpu_max_sockets", "2")],
            &[("hw_cpu_max_cores", "1")],
            Some((2, 1, 2)),
        ),
        (
            &[("hw:cpu_sockets", "4")],
            &[("hw_cpu_max_sockets", "2")],
            Some((2, 2, 1)),
        ),
        (&[("hw:cpu_sockets", "3")], &[], Some((4, 1, 1))),
    ];
    for (specs, image, expected) in table {
        let shape = requirements(specs, image).unwrap().cpu_shape;
        let shape = shape.map(|s| (s.sockets, s.cores, s.threads));
        assert_eq!(shape, *expected, "{specs:?} {image:?}");
    }
}

#[test]
fn aliases_become_requests() {
    let key = "pci_passthrough:alias";
    let found = |policy: Pairs<'_>| {
        let mut specs = vec![(key, "gpu:2, nic:1,gpu:1")];
        specs.extend(policy);
        let pci = requirements(&specs, &[]).unwrap().pci;
        pci.iter().map(|r| (r.count, r.policy)).collect::<Vec<_>>()
    };
    use PciNumaPolicy::{Legacy, Preferred, Required};
    assert_eq!(found(&[]), [(2, Legacy), (1, Required), (1, Legacy)]);
    let preferred = [("hw:pci_numa_affinity_policy", "preferred")];
    assert_eq!(
        found(&preferred),
        [(2, Preferred), (1, Preferred), (1, Preferred)]
    );

    let unknown = requirements(&[(key, "fpga:1")], &[]).unwrap_err();
    assert_eq!(
        unknown[0].to_string(),
        "extra_specs.pci_passthrough:alias = \"fpga\": is not a PCI alias of this cluster"
    );
    let named = flavor(4, 1024, &[(key, "gpu:2, nic:1,gpu:1")]).pci_aliases();
    assert!(named.iter().map(PciAliasName::as_str).eq(["gpu", "nic"]));
    assert!(flavor(4, 1024, &[(key, "gpu")]).pci_aliases().is_empty());
    // The alias may be made after the flavor.
    flavor(4, 1024, &[(key, "fpga:1")]).validate().unwrap();
}

/// Goal: either side chooses the CPU, and both may say the same.
#[test]
fn cpu_models() {
    let table: &[(Pairs<'_>, Pairs<'_>, &str)] = &[
        (&[], &[], "default"),
        (&[("hw:cpu_model", "host-model")], &[], "host-model"),
        (
            &[],
            &[("hw_cpu_model", "host-passthrough")],
            "host-passthrough",
        ),
        (
            &[("hw:cpu_model", "baseline:rack1")],
            &[("hw_cpu_model", "baseline:rack1")],
            "baseline:rack1",
        ),
        (&[("hw:cpu_model", "EPYC-Rome")], &[], "EPYC-Rome"),
    ];
    for (specs, image, expected) in table {
        let chosen = requirements(specs, image).unwrap().cpu_model;
        assert_eq!(chosen.to_string(), *expected, "{specs:?} {image:?}");
    }
}
