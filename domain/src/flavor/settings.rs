//! What the extra specs of a flavor and the properties of an image, key by key, before it is
//! evaluated together.
//!
//! Keys that affect placement are ours: each is understood or refused, since a requirement that
//! is silently dropped would be a broken promise. Namespaces that request what Berth does not give
//! yet are refused too. Other keys (`quota:`, `hw_disk_bus`, a company's own) are kept and have no
//! effect.

use std::collections::BTreeMap;

use super::faults::Faults;
use super::groups::{self, Groups};
use super::mask::Mask;
use super::passthrough::{self, AliasRequest};
use super::setting::{Both, Setting, SettingValue};
use super::{
    CELLS_MAX, EXTRA_SPEC_LENGTH_MAX, EXTRA_SPECS_MAX, Flavor, MEMORY_MIB_MAX, Side, auto_balance,
    cpu_policy, emulator_threads, page_size, pmem, shape, text, thread_policy,
};
use crate::aggregate::{self, AggregateSpecs};
use crate::cpu_model::CpuModelChoice;
use crate::image::{ImageProperties, PROPERTIES_MAX, PROPERTY_LENGTH_MAX};
use crate::instance::{CpuPolicy, EmulatorThreads, PageSize, ThreadPolicy};
use crate::pci::PciNumaPolicy;
use crate::platform::{Architecture, HypervisorType, PlatformDemand, VmMode};
use crate::pmem::PmemNumaPolicy;
use crate::resource::ResourceClass;

const KNOWN: &str = "hw:numa_nodes, hw:numa_cpus.N, hw:numa_mem.N, hw:cpu_model, hw:cpu_policy, \
     hw:cpu_dedicated_mask, hw:cpu_thread_policy, hw:cpu_realtime, hw:cpu_realtime_mask, \
     hw:emulator_threads_policy, hw:mem_page_size, hw:locked_memory, hw:cpu_sockets, hw:cpu_cores, \
     hw:cpu_threads, hw:cpu_max_sockets, hw:cpu_max_cores, hw:cpu_max_threads, \
     hw:pci_numa_affinity_policy, hw:pmem and hw:pmem_numa_policy";

/// Namespaces that request what is not given yet.
const NOT_YET: [&str; 2] = ["accel", "capabilities"];

/// What the names of image properties begin with that request what is not given, or do not exist.
const OURS: [&str; 8] = [
    "cpu_",
    "emulator_",
    "ephemeral_encryption",
    "mem_",
    "numa_",
    "pci_",
    "pmem",
    "tpm_",
];

/// The values of the keys.
#[derive(Default)]
pub(super) struct Settings<'a> {
    pub(super) nodes: Setting<'a, u32>,
    pub(super) cpus: Both<BTreeMap<u32, SettingValue<'a, Mask>>>,
    pub(super) memory_mib: Both<BTreeMap<u32, SettingValue<'a, u64>>>,
    pub(super) cpu_model: Setting<'a, CpuModelChoice>,
    pub(super) cpu_policy: Setting<'a, CpuPolicy>,
    pub(super) dedicated_mask: Option<SettingValue<'a, Mask>>,
    pub(super) thread_policy: Setting<'a, ThreadPolicy>,
    pub(super) emulator_threads: Option<SettingValue<'a, EmulatorThreads>>,
    pub(super) realtime: Option<SettingValue<'a, bool>>,
    pub(super) realtime_mask: Setting<'a, Mask>,
    pub(super) page_size: Setting<'a, PageSize>,
    pub(super) locked_memory: Setting<'a, bool>,
    /// Sockets, cores, threads.
    pub(super) shape: [Setting<'a, u32>; 3],
    /// The most of each.
    pub(super) shape_limits: [Setting<'a, u32>; 3],
    pub(super) pci_policy: Setting<'a, PciNumaPolicy>,
    pub(super) pci_aliases: Option<SettingValue<'a, Vec<AliasRequest>>>,
    pub(super) pmem: Option<SettingValue<'a, Vec<ResourceClass>>>,
    pub(super) pmem_policy: Option<SettingValue<'a, PmemNumaPolicy>>,
    pub(super) groups: Groups<'a>,
    pub(super) aggregate_specs: AggregateSpecs,
    pub(super) platform: PlatformDemand,
}

/// A key with its value, and whose it is.
#[derive(Clone, Copy)]
struct Entry<'a> {
    side: Side,
    key: &'a str,
    value: &'a str,
}

impl<'a> Settings<'a> {
    /// Reads all keys; what is wrong with one of them is recorded.
    pub(super) fn read(
        flavor: &'a Flavor,
        image: &'a ImageProperties,
        faults: &mut Faults,
    ) -> Self {
        let mut settings = Self::default();
        for (what, count, most) in [
            ("extra_specs", flavor.extra_specs.len(), EXTRA_SPECS_MAX),
            ("image_properties", image.0.len(), PROPERTIES_MAX),
        ] {
            if count > most {
                faults.add(what, count, format!("at most {most} are allowed"));
                return settings;
            }
        }
        for (key, value) in &flavor.extra_specs {
            let side = Side::Flavor;
            let entry = Entry { side, key, value };
            if entry.is_short(EXTRA_SPEC_LENGTH_MAX, faults) {
                settings.read_spec(entry, faults);
            }
        }
        for (key, value) in &image.0 {
            let side = Side::Image;
            let entry = Entry { side, key, value };
            if entry.is_short(PROPERTY_LENGTH_MAX, faults) {
                settings.read_property(entry, faults);
            }
        }
        settings
    }

    /// Returns whether an image may yet request dedicated CPUs.
    pub(super) fn may_tighten(&self) -> bool {
        self.cpu_policy.flavor.is_none() && self.groups.amount("VCPU") == 0
    }

    fn read_spec(&mut self, entry: Entry<'a>, faults: &mut Faults) {
        let Entry { key, value, .. } = entry;
        if key == groups::POLICY {
            let read = self.groups.read_policy(value);
            return entry.record(read, faults);
        }
        let Some((namespace, name)) = key.split_once(':').filter(|(n, _)| !n.is_empty()) else {
            let rule = "a key needs a namespace, as hw:cpu_policy; keys of other namespaces than \
                        hw, pci_passthrough, resources and trait are kept and have no effect on \
                        placement";
            return entry.fault(rule, faults);
        };
        if let Some(group) = groups::namespace(namespace) {
            let read = self.groups.read(group, key, name, value);
            return entry.record(read, faults);
        }
        match (namespace, name) {
            ("hw", name) if self.read_hw(name, entry, faults) => {}
            ("hw", name) if self.read_flavors(name, entry, faults) => {}
            ("hw", _) => {
                entry.fault(format!("is not a known key; known are {KNOWN}"), faults);
            }
            ("aggregate_instance_extra_specs", "") => {
                entry.fault("needs a key behind the colon", faults);
            }
            ("aggregate_instance_extra_specs", name) => {
                let read = aggregate::parse_spec(value);
                let read =
                    read.map(|requested| self.aggregate_specs.insert(name.to_owned(), requested));
                entry.record(read.map(drop), faults);
            }
            ("pci_passthrough", "alias") => {
                let aliases = passthrough::parse_aliases(value);
                entry.put(&mut self.pci_aliases, aliases, faults);
            }
            ("pci_passthrough", _) => {
                entry.fault("is not a known key; known is pci_passthrough:alias", faults);
            }
            ("berth", "auto_balance") => {
                entry.record(text::boolean(value).map(drop), faults);
            }
            ("berth", _) => {
                let rule = format!("is not a known key; known is {}", auto_balance::KEY);
                entry.fault(rule, faults);
            }
            (namespace, _) if NOT_YET.contains(&namespace) => {
                entry.fault(format!("{namespace}: is not supported yet"), faults);
            }
            _ => {}
        }
    }

    fn read_property(&mut self, entry: Entry<'a>, faults: &mut Faults) {
        let Entry { side, key, value } = entry;
        if let Some(name) = key.strip_prefix("trait:") {
            let read = self.groups.read_trait(side, key, name, value);
            return entry.record(read, faults);
        }
        if key == "os_secure_boot" && value == "required" {
            return entry.fault("is not supported yet", faults);
        }
        if self.read_platform(entry, faults) {
            return;
        }
        let Some(name) = key.strip_prefix("hw_") else {
            return;
        };
        if self.read_hw(name, entry, faults) {
            return;
        }
        let mut flavors = Settings::default();
        if flavors.read_flavors(name, entry, &mut Faults::default()) {
            entry.fault(format!("only a flavor says this, as hw:{name}"), faults);
        } else if OURS.iter().any(|ours| name.starts_with(ours)) {
            entry.fault("is not a known property, or not supported yet", faults);
        }
    }

    /// Reads what kind of machine an image requests, by its names of today and of old; returns
    /// whether it is that.
    fn read_platform(&mut self, entry: Entry<'a>, faults: &mut Faults) -> bool {
        let value = entry.value;
        let platform = &mut self.platform;
        let read = match entry.key {
            "hw_architecture" | "architecture" => {
                Architecture::parse(value).map(|a| platform.architecture = Some(a))
            }
            "img_hv_type" | "hypervisor_type" => {
                HypervisorType::parse(value).map(|h| platform.hypervisor = Some(h))
            }
            "hw_vm_mode" | "vm_mode" => VmMode::parse(value).map(|m| platform.mode = Some(m)),
            _ => return false,
        };
        entry.record(read, faults);
        true
    }

    /// Reads a setting that both flavors and images make; returns whether it is one.
    fn read_hw(&mut self, name: &str, entry: Entry<'a>, faults: &mut Faults) -> bool {
        let Entry { side, value, .. } = entry;
        let count = || text::small(value, shape::COUNT_MAX);
        match name {
            "numa_nodes" => {
                let nodes = text::small(value, CELLS_MAX);
                entry.put(self.nodes.of(side), nodes, faults);
            }
            "cpu_model" => {
                let choice = CpuModelChoice::parse(value);
                entry.put(self.cpu_model.of(side), choice, faults);
            }
            "cpu_policy" => {
                entry.put(self.cpu_policy.of(side), cpu_policy::parse(value), faults);
            }
            "cpu_thread_policy" => {
                let policy = thread_policy::parse(value);
                entry.put(self.thread_policy.of(side), policy, faults);
            }
            "cpu_realtime_mask" => {
                entry.put(self.realtime_mask.of(side), Mask::parse(value), faults);
            }
            "mem_page_size" => {
                entry.put(self.page_size.of(side), page_size::parse(value), faults);
            }
            "locked_memory" => {
                entry.put(self.locked_memory.of(side), text::boolean(value), faults);
            }
            "cpu_sockets" => entry.put(self.shape[0].of(side), count(), faults),
            "cpu_cores" => entry.put(self.shape[1].of(side), count(), faults),
            "cpu_threads" => entry.put(self.shape[2].of(side), count(), faults),
            "cpu_max_sockets" => entry.put(self.shape_limits[0].of(side), count(), faults),
            "cpu_max_cores" => entry.put(self.shape_limits[1].of(side), count(), faults),
            "cpu_max_threads" => entry.put(self.shape_limits[2].of(side), count(), faults),
            "pci_numa_affinity_policy" => {
                let policy = passthrough::parse_policy(value);
                entry.put(self.pci_policy.of(side), policy, faults);
            }
            _ => return self.read_cell(name, entry, faults),
        }
        true
    }

    /// Reads `numa_cpus.N` or `numa_mem.N`; returns whether it is one.
    fn read_cell(&mut self, name: &str, entry: Entry<'a>, faults: &mut Faults) -> bool {
        let Some((list, cell)) = name.split_once('.') else {
            return false;
        };
        if !["numa_cpus", "numa_mem"].contains(&list) {
            return false;
        }
        let Entry { side, value, .. } = entry;
        let cell = match text::number(cell, &(0..=u64::from(CELLS_MAX) - 1)) {
            Ok(cell) => u32::try_from(cell).expect("less than CELLS_MAX"),
            Err(rule) => {
                entry.fault(format!("the number of a guest NUMA node {rule}"), faults);
                return true;
            }
        };
        if list == "numa_cpus" {
            let mut cpus = None;
            entry.put(&mut cpus, Mask::parse(value), faults);
            self.cpus.of(side).extend(cpus.map(|cpus| (cell, cpus)));
        } else {
            let mut memory = None;
            let mib = text::number(value, &(1..=MEMORY_MIB_MAX));
            let mib = mib.map_err(|rule| format!("{rule}, of MiB"));
            entry.put(&mut memory, mib, faults);
            self.memory_mib
                .of(side)
                .extend(memory.map(|mib| (cell, mib)));
        }
        true
    }

    /// Reads a setting that only flavors make; returns whether it is one.
    fn read_flavors(&mut self, name: &str, entry: Entry<'a>, faults: &mut Faults) -> bool {
        let value = entry.value;
        match name {
            "cpu_dedicated_mask" => {
                entry.put(&mut self.dedicated_mask, Mask::parse(value), faults);
            }
            "cpu_realtime" => entry.put(&mut self.realtime, text::boolean(value), faults),
            "emulator_threads_policy" => {
                let policy = emulator_threads::parse(value);
                entry.put(&mut self.emulator_threads, policy, faults);
            }
            "pmem" => entry.put(&mut self.pmem, pmem::parse(value), faults),
            "pmem_numa_policy" => {
                entry.put(&mut self.pmem_policy, pmem::parse_policy(value), faults);
            }
            _ => return false,
        }
        true
    }
}

impl<'a> Entry<'a> {
    fn is_short(self, most: usize, faults: &mut Faults) -> bool {
        let is_short = self.key.len() <= most && self.value.len() <= most;
        if !is_short {
            let rule = format!("keys and values have at most {most} bytes");
            self.fault(rule, faults);
        }
        is_short
    }

    fn put<T>(
        self,
        slot: &mut Option<SettingValue<'a, T>>,
        parsed: Result<T, String>,
        faults: &mut Faults,
    ) {
        match parsed {
            Ok(value) => {
                let text = self.value;
                *slot = Some(SettingValue { value, text });
            }
            Err(rule) => self.fault(rule, faults),
        }
    }

    fn record(self, read: Result<(), String>, faults: &mut Faults) {
        if let Err(rule) = read {
            self.fault(rule, faults);
        }
    }

    fn fault(self, rule: impl Into<String>, faults: &mut Faults) {
        faults.add(&self.side.field(self.key), self.value, rule);
    }
}
