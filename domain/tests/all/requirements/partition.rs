//! Whatever is written, nothing panics, and a topology partitions the guest.
//!
//! More cases: `PROPTEST_CASES=1000000 cargo test --release -p berth-domain --test all requirements::`.

use berth_domain::image::ImageProperties;
use berth_domain::instance::{EmulatorThreads, VcpuId};
use proptest::prelude::*;

use super::{aliases, flavor};

/// A key that means something, or nearly.
fn key() -> impl Strategy<Value = String> {
    let names = prop::sample::select(vec![
        "numa_nodes",
        "numa_cpus.0",
        "numa_cpus.1",
        "numa_mem.0",
        "numa_mem.1",
        "cpu_policy",
        "cpu_dedicated_mask",
        "cpu_thread_policy",
        "cpu_realtime",
        "cpu_realtime_mask",
        "emulator_threads_policy",
        "mem_page_size",
        "locked_memory",
        "cpu_sockets",
        "cpu_max_cores",
        "cpu_threads",
        "pci_numa_affinity_policy",
        "pmem",
    ]);
    prop_oneof![
        8 => names.prop_map(|name| format!("hw:{name}")),
        1 => "(resources|trait)[1_]?:(PCPU|VCPU|CUSTOM_A|HW_CPU_HYPERTHREADING)",
        1 => "pci_passthrough:alias|group_policy",
        1 => any::<String>(),
    ]
}

fn value() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "shared",
        "dedicated",
        "mixed",
        "prefer",
        "isolate",
        "require",
        "share",
        "true",
        "false",
        "small",
        "large",
        "any",
        "2MB",
        "1GB",
        "required",
        "forbidden",
        "socket",
        "legacy",
        "none",
        "0-3",
        "^0",
        "^0-1",
        "0,2",
        "1,3",
        "0-1",
        "2-3",
        "1",
        "2",
        "4",
        "512",
        "1024",
        "gpu:1",
        "a,b",
        "0-8191",
        "99999999999999999999",
        "^8191",
        "18446744073709551615TB",
    ]);
    prop_oneof![9 => words.prop_map(str::to_owned), 1 => any::<String>()]
}

fn config() -> ProptestConfig {
    let said = std::env::var("PROPTEST_CASES").ok();
    ProptestConfig::with_cases(said.map_or(4096, |text| text.parse().unwrap()))
}

proptest! {
    #![proptest_config(config())]

    /// Goal: nothing that a person can write makes it panic; where a topology results, it
    /// partitions the vCPUs and sums to the memory; counted and exact agree; the flavor can then
    /// be made, if it asks for nothing that it leaves to the image.
    #[test]
    fn topologies_are_partitions(
        vcpus in 0_u32..8,
        memory_mib in prop_oneof![Just(1024_u64), Just(1023), 0_u64..3, any::<u64>()],
        specs in prop::collection::btree_map(key(), value(), 0..7),
        image in prop::collection::btree_map(key(), value(), 0..4),
    ) {
        let mut flavor = flavor(vcpus, memory_mib, &[]);
        flavor.extra_specs = specs;
        let image = image.into_iter().map(|(key, value)| (key.replacen("hw:", "hw_", 1), value));
        let text_max = 20_000;
        if let Err(faults) = flavor.validate() {
            let said: usize = faults.iter().map(|fault| fault.to_string().len()).sum();
            prop_assert!(said > 0 && said < text_max, "{} bytes are said", said);
        }
        let plain = flavor.requirements(&ImageProperties::default(), &aliases());
        if plain.is_ok() {
            prop_assert!(flavor.validate().is_ok());
        }
        let Ok(requirements) = flavor.requirements(&ImageProperties(image.collect()), &aliases()) else {
            return Ok(());
        };
        let amount = |class: &str| {
            let mut of_class = requirements.resources.iter().filter(|(c, _)| c.as_str() == class);
            of_class.next().map_or(0, |(_, amount)| *amount)
        };
        prop_assert_eq!(amount("MEMORY_MB"), memory_mib);
        if let Some(shape) = requirements.cpu_shape {
            prop_assert_eq!(shape.vcpus(), u64::from(vcpus));
        }
        let Some(topology) = requirements.topology else {
            prop_assert_eq!(amount("VCPU"), u64::from(vcpus));
            return Ok(());
        };
        let cells = &topology.cells;
        let mut all: Vec<_> = cells.iter().flat_map(|c| c.shared.iter().chain(&c.dedicated)).collect();
        all.sort();
        let every: Vec<_> = (0..vcpus).map(VcpuId).collect();
        prop_assert!(all.into_iter().eq(&every));
        prop_assert_eq!(cells.iter().map(|c| c.memory_mib).sum::<u64>(), memory_mib);
        let dedicated: usize = cells.iter().map(|c| c.dedicated.len()).sum();
        let emulator = usize::from(topology.emulator_threads == EmulatorThreads::Isolate);
        prop_assert_eq!(amount("PCPU"), (dedicated + emulator) as u64);
        prop_assert_eq!(amount("VCPU"), u64::from(vcpus) - dedicated as u64);
        let has = |vcpu: &VcpuId| cells.iter().any(|c| c.dedicated.contains(vcpu));
        prop_assert!(topology.realtime.iter().all(has));
    }
}
