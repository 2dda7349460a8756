//! Keys together: what contradicts, what is missing, and what an image may yet heal.

use super::{DEDICATED, MIXED, Pairs, REALTIME, SHARED, check_refused, flavor, requirements};

/// Goal: keys that contradict each other are refused, and the text says why.
#[test]
fn combinations_are_refused() {
    check_refused(&[
        (
            &[SHARED],
            &[("hw_cpu_policy", "dedicated")],
            &[(
                "image_properties.hw_cpu_policy",
                "contradicts the flavor's hw:cpu_policy=shared",
            )],
        ),
        (
            &[SHARED],
            &[("hw_cpu_policy", "mixed")],
            &[("image_properties.hw_cpu_policy", "contradicts")],
        ),
        (
            &[MIXED, ("hw:cpu_dedicated_mask", "0")],
            &[("hw_cpu_policy", "dedicated")],
            &[("image_properties.hw_cpu_policy", "contradicts")],
        ),
        (
            &[("hw:cpu_thread_policy", "prefer")],
            &[],
            &[("extra_specs.hw:cpu_thread_policy", "needs dedicated")],
        ),
        (
            &[DEDICATED, ("hw:cpu_thread_policy", "isolate")],
            &[("hw_cpu_thread_policy", "require")],
            &[("image_properties.hw_cpu_thread_policy", "contradicts")],
        ),
        (
            &[("hw:emulator_threads_policy", "isolate")],
            &[],
            &[(
                "extra_specs.hw:emulator_threads_policy",
                "hw:cpu_policy=dedicated",
            )],
        ),
        (
            &[("hw:cpu_model", "Nehalem")],
            &[("hw_cpu_model", "Westmere")],
            &[(
                "image_properties.hw_cpu_model",
                "contradicts the flavor's hw:cpu_model=Nehalem",
            )],
        ),
        (
            &[MIXED],
            &[],
            &[("extra_specs.hw:cpu_policy", "hw:cpu_dedicated_mask")],
        ),
        (
            &[DEDICATED, ("hw:cpu_dedicated_mask", "0")],
            &[],
            &[(
                "extra_specs.hw:cpu_dedicated_mask",
                "needs hw:cpu_policy=mixed",
            )],
        ),
        (
            &[MIXED, ("hw:cpu_dedicated_mask", "0-3")],
            &[],
            &[(
                "extra_specs.hw:cpu_dedicated_mask",
                "at least one vCPU shared",
            )],
        ),
        (
            &[MIXED, ("hw:cpu_dedicated_mask", "^0-3")],
            &[],
            &[("extra_specs.hw:cpu_dedicated_mask", "one dedicated")],
        ),
        (
            &[MIXED, ("hw:cpu_dedicated_mask", "2-5")],
            &[],
            &[(
                "extra_specs.hw:cpu_dedicated_mask",
                "0 to 3; 4-5 do not exist",
            )],
        ),
        (
            &[
                MIXED,
                ("hw:cpu_dedicated_mask", "0"),
                REALTIME,
                ("hw:cpu_realtime_mask", "0"),
            ],
            &[],
            &[("extra_specs.hw:cpu_dedicated_mask", "only one of the two")],
        ),
        (
            &[REALTIME, ("hw:cpu_realtime_mask", "^0")],
            &[],
            &[("extra_specs.hw:cpu_realtime", "needs hw:cpu_policy")],
        ),
        (
            &[DEDICATED, REALTIME],
            &[],
            &[("extra_specs.hw:cpu_realtime_mask", "leave one out")],
        ),
        (
            &[DEDICATED, REALTIME, ("hw:cpu_realtime_mask", "^0-3")],
            &[],
            &[("extra_specs.hw:cpu_realtime_mask", "at least one")],
        ),
        (
            &[DEDICATED, REALTIME],
            &[("hw_cpu_realtime_mask", "4")],
            &[
                ("image_properties.hw_cpu_realtime_mask", "4 do not exist"),
                ("image_properties.hw_cpu_realtime_mask", "at least one"),
            ],
        ),
        (
            &[DEDICATED, ("hw:cpu_realtime_mask", "^0")],
            &[],
            &[("extra_specs.hw:cpu_realtime_mask", "has no effect")],
        ),
        (
            &[],
            &[("hw_mem_page_size", "2MB")],
            &[("image_properties.hw_mem_page_size", "it says nothing")],
        ),
        (
            &[("hw:mem_page_size", "2MB")],
            &[("hw_mem_page_size", "2MB")],
            &[("image_properties.hw_mem_page_size", "any or large, not 2MB")],
        ),
        (
            &[("hw:mem_page_size", "2GB")],
            &[],
            &[("extra_specs.hw:mem_page_size", "multiple")],
        ),
        (
            &[("hw:locked_memory", "true")],
            &[],
            &[("extra_specs.hw:locked_memory", "needs hw:mem_page_size")],
        ),
        (
            &[("hw:mem_page_size", "any"), ("hw:locked_memory", "true")],
            &[("hw_locked_memory", "false")],
            &[("image_properties.hw_locked_memory", "contradicts")],
        ),
        (
            &[("hw:numa_nodes", "3")],
            &[],
            &[("extra_specs.hw:numa_nodes", "evenly")],
        ),
        (
            &[("hw:numa_nodes", "2")],
            &[("hw_numa_nodes", "2")],
            &[("image_properties.hw_numa_nodes", "may not say it too")],
        ),
        (
            &[("hw:numa_mem.0", "4")],
            &[],
            &[("extra_specs.hw:numa_mem.0", "without hw:numa_nodes")],
        ),
        (
            &[("hw:cpu_max_sockets", "2")],
            &[("hw_cpu_max_sockets", "3")],
            &[("image_properties.hw_cpu_max_sockets", "only lower")],
        ),
        (
            &[("hw:cpu_max_cores", "2")],
            &[("hw_cpu_cores", "4")],
            &[("image_properties.hw_cpu_cores", "more than the limit, 2")],
        ),
        (
            &[
                ("hw:cpu_max_sockets", "1"),
                ("hw:cpu_max_cores", "1"),
                ("hw:cpu_max_threads", "2"),
            ],
            &[],
            &[("extra_specs.hw:cpu_max_sockets", "4 vCPUs cannot be made")],
        ),
        (
            &[("hw:pci_numa_affinity_policy", "socket")],
            &[("hw_pci_numa_affinity_policy", "legacy")],
            &[(
                "image_properties.hw_pci_numa_affinity_policy",
                "contradicts",
            )],
        ),
        (
            &[DEDICATED, ("resources:PCPU", "4")],
            &[],
            &[(
                "extra_specs.resources:PCPU",
                "cannot be combined with hw:cpu_policy=dedicated",
            )],
        ),
        (
            &[("resources:VCPU", "4")],
            &[("hw_cpu_policy", "shared")],
            &[(
                "extra_specs.resources:VCPU",
                "cannot be combined with hw_cpu_policy=shared",
            )],
        ),
        (
            &[("resources:VCPU", "4"), ("resources1:PCPU", "4")],
            &[],
            &[(
                "extra_specs.resources1:PCPU",
                "cannot be combined with resources:VCPU",
            )],
        ),
        (
            &[("resources:PCPU", "3")],
            &[],
            &[("extra_specs.resources:PCPU", "must be 4")],
        ),
        (
            &[
                ("resources:PCPU", "4"),
                ("hw:emulator_threads_policy", "isolate"),
            ],
            &[],
            &[("extra_specs.resources:PCPU", "must be 5")],
        ),
        (
            &[("resources:MEMORY_MB", "1")],
            &[],
            &[("extra_specs.resources:MEMORY_MB", "must be 1024")],
        ),
        (
            &[("resources:CUSTOM_PMEM_NAMESPACE_A", "1")],
            &[],
            &[("extra_specs.resources:CUSTOM_PMEM_NAMESPACE_A", "hw:pmem")],
        ),
        (
            &[
                DEDICATED,
                ("hw:cpu_thread_policy", "isolate"),
                ("trait:HW_CPU_HYPERTHREADING", "forbidden"),
            ],
            &[],
            &[(
                "extra_specs.trait:HW_CPU_HYPERTHREADING",
                "cannot be combined with hw:cpu_thread_policy=isolate",
            )],
        ),
        (
            &[("trait1:CUSTOM_A", "required")],
            &[],
            &[("extra_specs.trait1:CUSTOM_A", "resources1:")],
        ),
        (
            &[("trait:CUSTOM_A", "forbidden")],
            &[("trait:CUSTOM_A", "required")],
            &[("image_properties.trait:CUSTOM_A", "both")],
        ),
        (
            &[("resources1:CUSTOM_A", "1"), ("resources2:CUSTOM_A", "1")],
            &[],
            &[("extra_specs.group_policy", "must be given")],
        ),
        (
            &[
                ("resources1:CUSTOM_A", "1"),
                ("resources2:CUSTOM_A", "1"),
                ("group_policy", "isolate"),
            ],
            &[],
            &[("extra_specs.group_policy", "own provider alone")],
        ),
    ]);
}

/// Goal: lists of cells that leave something open are refused.
#[test]
fn lists_of_cells_are_complete() {
    const TWO: (&str, &str) = ("hw:numa_nodes", "2");
    check_refused(&[
        (
            &[TWO, ("hw:numa_cpus.0", "0-3")],
            &[],
            &[
                ("extra_specs.hw:numa_cpus.1", "for every NUMA node"),
                ("extra_specs.hw:numa_mem.0", "for every NUMA node"),
                ("extra_specs.hw:numa_mem.1", "for every NUMA node"),
            ],
        ),
        (
            &[
                TWO,
                ("hw:numa_cpus.0", "0-1"),
                ("hw:numa_cpus.1", "1,7"),
                ("hw:numa_mem.0", "1"),
                ("hw:numa_mem.1", "1"),
            ],
            &[],
            &[
                ("extra_specs.hw:numa_mem.N", "1024"),
                ("extra_specs.hw:numa_cpus.1", "0 to 3; 7 do not exist"),
                ("extra_specs.hw:numa_cpus.1", "vCPUs 1 are listed twice"),
                ("extra_specs.hw:numa_cpus.N", "missing are 2, 3"),
            ],
        ),
        (
            &[
                ("hw:numa_nodes", "1"),
                ("hw:numa_cpus.0", "0-3"),
                ("hw:numa_mem.0", "1024"),
                ("hw:numa_mem.5", "1"),
            ],
            &[],
            &[("extra_specs.hw:numa_mem.5", "only 1 NUMA nodes")],
        ),
        (
            &[TWO, ("hw:numa_cpus.0", "0-3"), ("hw:numa_cpus.1", "^1")],
            &[
                ("hw_numa_cpus.0", "0"),
                ("hw_numa_mem.0", "512"),
                ("hw_numa_mem.1", "512"),
            ],
            &[
                ("image_properties.hw_numa_cpus.0", "may not say it too"),
                ("extra_specs.hw:numa_cpus.1", "at least one"),
            ],
        ),
    ]);
}

/// Goal: a flavor can be made if it is of use with some image, and only then.
#[test]
fn what_an_image_heals_does_not_keep_a_flavor_from_being_made() {
    let healed: &[(Pairs<'_>, Pairs<'_>)] = &[
        (
            &[("hw:cpu_thread_policy", "isolate")],
            &[("hw_cpu_policy", "dedicated")],
        ),
        (
            &[("hw:emulator_threads_policy", "isolate")],
            &[("hw_cpu_policy", "dedicated")],
        ),
        (
            &[("hw:cpu_dedicated_mask", "0")],
            &[("hw_cpu_policy", "mixed")],
        ),
        (&[DEDICATED, REALTIME], &[("hw_cpu_realtime_mask", "^0")]),
        (
            &[("trait:HW_CPU_HYPERTHREADING", "required")],
            &[("hw_cpu_policy", "dedicated")],
        ),
    ];
    for (specs, image) in healed {
        flavor(4, 1024, specs).validate().unwrap();
        assert!(requirements(specs, &[]).is_err(), "{specs:?}");
        requirements(specs, image).unwrap();
    }
    for hopeless in [
        &[SHARED, ("hw:cpu_thread_policy", "isolate")][..],
        &[MIXED],
        &[("hw:locked_memory", "true")],
        &[("hw:numa_nodes", "3")],
        &[("hw:numa_nodes", "1"), ("hw:numa_mem.0", "1024")],
        &[
            ("resources:VCPU", "4"),
            ("hw:emulator_threads_policy", "isolate"),
        ],
    ] {
        assert!(
            flavor(4, 1024, hopeless).validate().is_err(),
            "{hopeless:?}"
        );
    }
}
