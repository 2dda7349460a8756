//! Goal: an agent whose configuration contradicts itself or the machine does not start, and says
//! everything that is wrong at once, with the file and the line of each.
//!
//! Method: a described machine, and a file for each fault; the whole text is compared.

use std::path::Path;

use berth_compute_agent::config::{Config, DriverKind};
use berth_process::Faults;

/// Two cells of two cores with two threads each, a card with a virtual function, and a bridge.
const MACHINE: &str = r#"
[[cells]]
id = 0
cpus = "0-3"
cores = ["0-1", "2-3"]
memory_mib = 1024
huge_pages = [{ size_kib = 2048, total = 128 }]
[[cells]]
id = 1
cpus = "4-7"
cores = ["4-5", "6-7"]
memory_mib = 1024
[[pci]]
address = "0000:81:00.0"
vendor = "8086"
device = "1572"
numa_node = 1
sriov_totalvfs = 8
net = "ens1f0"
[[pci]]
address = "0000:81:02.0"
vendor = "8086"
device = "154c"
numa_node = 1
physfn = "0000:81:00.0"
[[pci]]
address = "0000:00:01.0"
vendor = "8086"
device = "2030"
class = "060400"
[[pci]]
address = "0000:00:02.0"
vendor = "1af4"
device = "1042"
class = "010000"
carries = "the file system /"
"#;

fn load(text: &str, flags: impl FnOnce(&mut Config)) -> Result<Config, Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let machine = folder.path().join("machine.toml");
    std::fs::write(&machine, MACHINE).unwrap();
    let file = folder.path().join("agent.toml");
    std::fs::write(&file, text).unwrap();
    let loaded = Config::load(Some(&file), |config| {
        config.name = Some("h1".to_owned());
        config.driver = DriverKind::Sim;
        config.machine_file = Some(machine);
        flags(config);
    });
    let folder = format!("{}/", folder.path().display());
    loaded.map_err(|Faults(faults)| faults.into_iter().map(|f| f.replace(&folder, "")).collect())
}

/// Checks that the text, which begins in line 2, is refused with exactly this.
#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let refused = load(&format!("# a configuration\n{text}\n"), |_| ());
    assert_eq!(refused.unwrap_err(), expected);
}

#[test]
fn a_good_configuration_is_taken() {
    let text = "cpu_dedicated_set = \"2-3\"\ncpu_shared_set = \"0-1\"\ntraits = [\"CUSTOM_A\"]\n\
                reserved_pages = [{ cell = 0, size_kib = 2048, count = 128 }]\n\
                [[pci.device_spec]]\ndevname = \"ens1f0\"\n";
    let config = load(text, |_| ()).unwrap();
    assert_eq!((config.pci.len(), config.traits.len()), (1, 1));
}

#[test]
fn cpu_sets() {
    check(
        "cpu_dedicated_set = \"2-9\"",
        &["agent.toml:2: cpu_dedicated_set names CPUs 8-9, which are not online; online are 0-7"],
    );
    check(
        "disk_gib = 1\n\ncpu_shared_set = \"1,99\"",
        &["agent.toml:4: cpu_shared_set names CPUs 99, which are not online; online are 0-7"],
    );
    check(
        "cpu_dedicated_set = \"2-5\"\ncpu_shared_set = \"0-2\"",
        &["agent.toml:2 and 3: CPUs 2 are in cpu_dedicated_set and in cpu_shared_set"],
    );
    check(
        "cpu_dedicated_set = \"\"",
        &["agent.toml:2: cpu_dedicated_set and cpu_shared_set are both empty"],
    );
    check(
        "vcpu_pin_set = \"0-9\"\ncpu_shared_set = \"0-1\"",
        &[
            "agent.toml:2: vcpu_pin_set names CPUs 8-9, which are not online; online are 0-7",
            "agent.toml:2: vcpu_pin_set cannot be combined with cpu_dedicated_set and \
             cpu_shared_set",
        ],
    );
    check(
        "cpu_dedicated_set = \"2-a\"",
        &[
            "agent.toml:2: cpu_dedicated_set = \"2-a\" is wrong: \"2-a\" in CPU list \"2-a\" is \
           neither a number nor a range like 0-3",
        ],
    );
    check(
        "cpu_shared_set = \"3-1\"",
        &[
            "agent.toml:2: cpu_shared_set = \"3-1\" is wrong: range \"3-1\" in CPU list \"3-1\" runs \
           backwards",
        ],
    );
}

#[test]
fn memory_and_pages() {
    check(
        "memory_reserved_mib = 2049",
        &["agent.toml:2: memory_reserved_mib = 2049 is more than this machine has: 2048 MiB"],
    );
    check(
        "reserved_pages = [\n  { cell = 0, size_kib = 2048, count = 129 },\n  \
         { cell = 2, size_kib = 2048, count = 1 },\n  { cell = 1, size_kib = 2048, count = 1 },\n  \
         { cell = 1, size = 4 },\n]",
        &[
            "agent.toml:6: reserved_pages[3] = { cell = 1, size = 4 } is wrong: unknown field \
             `size`, expected one of `cell`, `size_kib`, `count`",
            "agent.toml:3: reserved_pages[0] requests 129 pages of 2048 KiB in NUMA node 0, which has 128",
            "agent.toml:4: reserved_pages[1] names NUMA node 2, which this machine does not have; its \
             NUMA nodes are 0-1",
            "agent.toml:5: reserved_pages[2] names pages of 2048 KiB, of which NUMA node 1 has none; it \
             has pages of 4 KiB",
        ],
    );
}

#[test]
fn rules_about_pci_functions_that_are_no_rules() {
    check(
        "[[pci.device_spec]]\nvendor_id = \"808\"\nproduct_id = 5\ncolour = \"red\"\n\
         [[pci.device_spec]]\naddress = \"81:00\"",
        &[
            "agent.toml:3: pci.device_spec[0].vendor_id = \"808\" is wrong: \"808\" is not a PCI \
             number of four hexadecimal digits",
            "agent.toml:4: pci.device_spec[0].product_id = 5 is wrong: invalid type: integer `5`, \
             expected a string",
            "agent.toml:5: unknown key pci.device_spec[0].colour; the keys are vendor_id, \
             product_id, address, devname, physical_network, live_migratable, tags",
            "agent.toml:7: pci.device_spec[1].address = \"81:00\" is wrong: it is not a PCI address \
             as 0000:81:00.1, of which any part may be *",
            "agent.toml:2: pci.device_spec[0] names no function: give it vendor_id, product_id, \
             address or devname",
            "agent.toml:6: pci.device_spec[1] names no function: give it vendor_id, product_id, \
             address or devname",
        ],
    );
    check(
        "[pci]\ndevice_spec = [\n  { address = \"*:81:*.*\", devname = \"ens1f0\" },\n  \
         { vendor_id = \"8086\", physical_network = \"a\", tags = { physical_network = \"b\" } },\n  \
         { vendor_id = \"8086\", tags = { live_migratable = \"yes\" } },\n]",
        &[
            "agent.toml:4: pci.device_spec[0] has an address and a devname: one of them is enough",
            "agent.toml:5: pci.device_spec[1] has physical_network twice, once among its tags",
            "agent.toml:6: pci.device_spec[2] has live_migratable among its tags: it is a key of \
             its own, true or false",
        ],
    );
}

#[test]
fn pci_functions_that_cannot_be_given() {
    check(
        "[pci]\ndevice_spec = [\n  { address = \"0000:99:00.0\" },\n  { devname = \"ens9\" },\n  \
         { address = \"0000:00:01.0\" },\n  { address = \"0000:00:02.0\" },\n  \
         { address = \"0000:81:02.0\", product_id = \"1572\" },\n]",
        &[
            "agent.toml:4: pci.device_spec[0]: there is no PCI function 0000:99:00.0",
            "agent.toml:5: pci.device_spec[1]: no PCI function is the network device ens9; there \
             are ens1f0",
            "agent.toml:6: pci.device_spec[2]: 0000:00:01.0 is a bridge: other functions are behind \
             it",
            "agent.toml:7: pci.device_spec[3]: 0000:00:02.0 carries the file system /: the host \
             needs it",
            "agent.toml:8: pci.device_spec[4]: 0000:81:02.0 is 8086:154c",
        ],
    );
}

#[test]
fn traits_that_the_agent_finds_itself() {
    check(
        "traits = [\n  \"CUSTOM_A\",\n  \"HW_CPU_X86_AVX2\",\n  \"fast\",\n]",
        &[
            "agent.toml:5: traits[2] = \"fast\" is wrong: \"fast\" is not a valid trait: 1 to 255 \
             characters out of A-Z, 0-9 and _",
            "agent.toml:4: traits[1] = \"HW_CPU_X86_AVX2\" does not begin with CUSTOM_: the agent \
             finds out itself which standard traits a host has",
        ],
    );
}

/// Goal: what is wrong with the file itself, with single values and with the machine is told
/// together.
#[test]
fn all_kinds_of_faults_are_told_at_once() {
    check(
        "colour = 1\ndisk_gib = 9999999999\ncpu_dedicated_set = \"9\"\n[libvirt]\ndisk_cache = \"big\"",
        &[
            "agent.toml:2: unknown key colour; the keys are name, listen, advertise, \
             insecure_listen, metrics_listen, tls, schedulers, data_dir, service_version, driver, cpu_dedicated_set, \
             cpu_shared_set, vcpu_pin_set, reserved_pages, traits, physical_networks, memory_reserved_mib, disk_gib, storage_id, \
             transfer_timeout_ms, compare_interval_ms, image_retention_ms, signals_interval_ms, pmem_namespaces, pmem, root, machine_file, log_format, log_filter, traces, libvirt, migration, sim, watchdog, images, volumes, pci",
            "agent.toml:3: disk_gib = 9999999999 is not within 0 to 1073741824",
            "agent.toml:6: libvirt.disk_cache = \"big\" is none of none, writeback, writethrough, \
             directsync, unsafe",
            "agent.toml:4: cpu_dedicated_set names CPUs 9, which are not online; online are 0-7",
        ],
    );
}

#[test]
fn a_flag_is_named_instead_of_the_line_that_it_replaced() {
    let refused = load("cpu_dedicated_set = \"2\"\n", |config| {
        config.cpu_dedicated_set = Some("12".parse().unwrap());
        config
            .locations
            .set_by_flag("cpu_dedicated_set", "--cpu-dedicated-set");
    });
    assert_eq!(
        refused.unwrap_err(),
        [
            "--cpu-dedicated-set: cpu_dedicated_set names CPUs 12, which are not online; online are \
          0-7"
        ]
    );
}

/// A machine that cannot be read is told when the agent starts, not as a fault of the file.
#[test]
fn a_machine_that_cannot_be_read_is_no_contradiction() {
    let config = load("", |c| c.machine_file = Some("/nonexistent".into())).unwrap();
    assert_eq!(
        config.machine_file.as_deref(),
        Some(Path::new("/nonexistent"))
    );
}
