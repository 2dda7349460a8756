//! Each key by itself: what it refuses, and what it says then.

use berth_domain::flavor::Flavor;

use super::{check_refused, flavor};

/// Goal: each key refuses what it does not understand, and says what it does.
#[test]
fn values_are_refused_by_key() {
    check_refused(&[
        (
            &[("hw:cpu_polcy", "shared")],
            &[],
            &[("extra_specs.hw:cpu_polcy", "hw:cpu_policy")],
        ),
        (
            &[("hw:watchdog_action", "reset")],
            &[],
            &[("extra_specs.hw:watchdog_action", "known")],
        ),
        (
            &[("cpu_policy", "shared")],
            &[],
            &[("extra_specs.cpu_policy", "namespace")],
        ),
        (&[(":x", "1")], &[], &[("extra_specs.:x", "namespace")]),
        (
            &[("hw:cpu_policy", "x")],
            &[],
            &[("extra_specs.hw:cpu_policy", "shared, dedicated or mixed")],
        ),
        (
            &[],
            &[("hw_cpu_policy", "x")],
            &[(
                "image_properties.hw_cpu_policy",
                "shared, dedicated or mixed",
            )],
        ),
        (
            &[("hw:cpu_thread_policy", "x")],
            &[],
            &[(
                "extra_specs.hw:cpu_thread_policy",
                "prefer, isolate or require",
            )],
        ),
        (
            &[("hw:emulator_threads_policy", "x")],
            &[],
            &[("extra_specs.hw:emulator_threads_policy", "isolate or share")],
        ),
        (
            &[],
            &[("hw_emulator_threads_policy", "share")],
            &[(
                "image_properties.hw_emulator_threads_policy",
                "only a flavor",
            )],
        ),
        (
            &[],
            &[("hw_pmem", "a")],
            &[("image_properties.hw_pmem", "only a flavor")],
        ),
        (
            &[],
            &[("hw_cpu_polcy", "a")],
            &[("image_properties.hw_cpu_polcy", "not a known property")],
        ),
        (
            &[],
            &[("hw_mem_encryption", "true")],
            &[("image_properties.hw_mem_encryption", "not supported")],
        ),
        (
            &[],
            &[("os_secure_boot", "required")],
            &[("image_properties.os_secure_boot", "not supported")],
        ),
        (
            &[("hw:cpu_realtime", "maybe")],
            &[],
            &[("extra_specs.hw:cpu_realtime", "true or false")],
        ),
        (
            &[("hw:cpu_dedicated_mask", "3-1")],
            &[],
            &[("extra_specs.hw:cpu_dedicated_mask", "backwards")],
        ),
        (
            &[("hw:mem_page_size", "3")],
            &[],
            &[("extra_specs.hw:mem_page_size", "small, large, any")],
        ),
        (
            &[("hw:cpu_model", "custom")],
            &[("hw_cpu_model", "baseline:")],
            &[
                ("extra_specs.hw:cpu_model", "host-passthrough"),
                ("image_properties.hw_cpu_model", "baseline:AGGREGATE"),
            ],
        ),
        (
            &[("hw:locked_memory", "2")],
            &[],
            &[("extra_specs.hw:locked_memory", "true or false")],
        ),
        (
            &[("hw:numa_nodes", "0")],
            &[],
            &[("extra_specs.hw:numa_nodes", "1 to 64")],
        ),
        (
            &[("hw:numa_nodes", "1e3")],
            &[],
            &[("extra_specs.hw:numa_nodes", "1 to 64")],
        ),
        (
            &[("hw:numa_cpus.64", "0")],
            &[],
            &[("extra_specs.hw:numa_cpus.64", "0 to 63")],
        ),
        (
            &[("hw:numa_mem.0", "0")],
            &[],
            &[("extra_specs.hw:numa_mem.0", "MiB")],
        ),
        (
            &[("hw:cpu_sockets", "0")],
            &[],
            &[("extra_specs.hw:cpu_sockets", "1 to 65536")],
        ),
        (
            &[("hw:pci_numa_affinity_policy", "near")],
            &[],
            &[(
                "extra_specs.hw:pci_numa_affinity_policy",
                "required, preferred, legacy or socket",
            )],
        ),
        (
            &[("hw:pmem", ",")],
            &[],
            &[("extra_specs.hw:pmem", "labels")],
        ),
        (
            &[("pci_passthrough:alias", "gpu")],
            &[],
            &[("extra_specs.pci_passthrough:alias", "gpu:2,nic:1")],
        ),
        (
            &[("pci_passthrough:alias", "gpu:0")],
            &[],
            &[("extra_specs.pci_passthrough:alias", "1 to 256")],
        ),
        (
            &[("pci_passthrough:x", "gpu:1")],
            &[],
            &[("extra_specs.pci_passthrough:x", "pci_passthrough:alias")],
        ),
        (
            &[("accel:device_profile", "x")],
            &[],
            &[("extra_specs.accel:device_profile", "not supported yet")],
        ),
        (
            &[("resources:VCPUS", "1")],
            &[],
            &[("extra_specs.resources:VCPUS", "CUSTOM_")],
        ),
        (
            &[("resources:VGPU", "-1")],
            &[],
            &[("extra_specs.resources:VGPU", "0 to 2147483647")],
        ),
        (
            &[("trait:CUSTOM_A", "maybe")],
            &[],
            &[("extra_specs.trait:CUSTOM_A", "required or forbidden")],
        ),
        (
            &[],
            &[("trait:CUSTOM_A", "forbidden")],
            &[("image_properties.trait:CUSTOM_A", "must be required")],
        ),
        (
            &[("trait:HW_CPU_AVX9", "required")],
            &[],
            &[("extra_specs.trait:HW_CPU_AVX9", "no standard trait")],
        ),
        (
            &[("trait:a b", "required")],
            &[],
            &[("extra_specs.trait:a b", "A-Z")],
        ),
        (
            &[("group_policy", "x")],
            &[],
            &[("extra_specs.group_policy", "none or isolate")],
        ),
    ]);
    let long = "x".repeat(256);
    check_refused(&[
        (
            &[("quota:x", &long)],
            &[],
            &[("extra_specs.quota:x", "255 bytes")],
        ),
        (&[], &[("x", &long)], &[("image_properties.x", "255 bytes")]),
    ]);
}

/// Goal: sizes are judged first, and counts of keys are bounded.
#[test]
fn sizes_are_bounded() {
    let fields = |flavor: Flavor| {
        let faults = flavor.validate().unwrap_err();
        faults.into_iter().map(|f| f.field).collect::<Vec<_>>()
    };
    assert_eq!(fields(flavor(0, 0, &[("x", "")])), ["vcpus", "memory_mib"]);
    assert_eq!(fields(flavor(513, 1, &[])), ["vcpus"]);
    let mut many = flavor(1, 1, &[]);
    many.extra_specs = (0..257)
        .map(|n| (format!("a:{n}"), String::new()))
        .collect();
    assert_eq!(fields(many), ["extra_specs"]);
}
