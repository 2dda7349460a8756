//! Goal: what is offered to guests is what the operator's rules name of what the kernel's files
//! tell, and never what the host lives on.
//!
//! Method: [`Tree`] writes the files of a machine as the kernel lays them out, links included. Its
//! cells are those of the recorded machine with four nodes on two sockets.

use std::path::{Path, PathBuf};

use berth_domain::pci::PciDevice;
use berth_host::description::Description;
use berth_host::pci::Rule;
use berth_host::sysfs::{self, discover};
use berth_host::{Discovery, Options};
use tempfile::TempDir;

/// A machine made of files.
struct Tree(TempDir);

impl Tree {
    /// Four nodes, a bridge, and no PCI function but that.
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        let recorded =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/four-nodes/sys/devices/system");
        std::fs::create_dir_all(tree.at("sys/devices")).unwrap();
        std::os::unix::fs::symlink(recorded, tree.at("sys/devices/system")).unwrap();
        tree.function("0000:80:01.0", "8086:2030", -1)
            .put_in("0000:80:01.0", "class", "0x060400")
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn put(&self, path: &str, content: &str) {
        let path = self.at(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{content}\n")).unwrap();
    }

    /// Makes a link, relative as the kernel's are.
    fn link(&self, path: &str, target: &str) {
        let up = "../".repeat(path.matches('/').count());
        let path = self.at(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(format!("{up}{target}"), path).unwrap();
    }

    fn folder(address: &str) -> String {
        match address {
            "0000:80:01.0" => "sys/devices/pci0000:80/0000:80:01.0".to_owned(),
            _ => format!("sys/devices/pci0000:80/0000:80:01.0/{address}"),
        }
    }

    fn put_in(self, address: &str, file: &str, content: &str) -> Self {
        self.put(&format!("{}/{file}", Self::folder(address)), content);
        self
    }

    fn link_in(self, address: &str, file: &str, target: &str) -> Self {
        self.link(&format!("{}/{file}", Self::folder(address)), target);
        self
    }

    /// An Ethernet controller in an IOMMU group of its own.
    fn function(self, address: &str, model: &str, node: i32) -> Self {
        let (vendor, device) = model.split_once(':').unwrap();
        let link = format!("sys/bus/pci/devices/{address}");
        self.link(&link, &Self::folder(address));
        let group = address
            .bytes()
            .fold(0, |sum, b| (sum * 7 + u32::from(b)) % 99_991)
            % 10_000;
        self.put_in(address, "vendor", &format!("0x{vendor}"))
            .put_in(address, "device", &format!("0x{device}"))
            .put_in(address, "class", "0x020000")
            .put_in(address, "numa_node", &node.to_string())
            .group(address, group)
    }

    fn group(self, address: &str, group: u32) -> Self {
        let link = self.at(&format!("{}/iommu_group", Self::folder(address)));
        let _ = std::fs::remove_file(link);
        self.link_in(
            address,
            "iommu_group",
            &format!("sys/kernel/iommu_groups/{group}"),
        )
    }

    fn virtual_function(self, address: &str, physical: &str, node: i32) -> Self {
        self.function(address, "8086:154c", node).link_in(
            address,
            "physfn",
            &Self::folder(physical),
        )
    }

    /// Gives a function a network device.
    fn net(self, address: &str, name: &str) -> Self {
        let folder = format!("{}/net/{name}", Self::folder(address));
        self.put(&format!("{folder}/mtu"), "1500");
        self.link(&format!("sys/class/net/{name}"), &folder);
        self
    }

    /// Gives a function a disk with one partition: `254:0` and `254:1`, or another number.
    fn disk(self, address: &str, name: &str, major: u32) -> Self {
        let disk = format!("{}/virtio1/block/{name}", Self::folder(address));
        self.put(&format!("{disk}/{name}1/partition"), "1");
        self.link(&format!("sys/dev/block/{major}:0"), &disk);
        self.link(&format!("sys/class/block/{name}"), &disk);
        self.link(
            &format!("sys/dev/block/{major}:1"),
            &format!("{disk}/{name}1"),
        );
        self.link(
            &format!("sys/class/block/{name}1"),
            &format!("{disk}/{name}1"),
        );
        self
    }

    fn mount(self, number: &str, point: &str, kind: &str, source: &str) -> Self {
        let line = format!("30 1 {number} / {point} rw,relatime shared:1 - {kind} {source} rw");
        self.put("proc/self/mountinfo", &line);
        self
    }

    fn default_route(self, name: &str) -> Self {
        let head = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU";
        let other = "ens9\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0";
        let route = format!("{name}\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0");
        self.put("proc/net/route", &format!("{head}\n{other}\n{route}"));
        self
    }

    fn discover(&self, rules: &[Rule]) -> Result<Discovery, sysfs::Error> {
        let options = Options {
            pci: rules.to_vec(),
            ..Options::default()
        };
        discover(self.0.path(), &options)
    }

    #[track_caller]
    fn check(&self, rules: &[Rule], expected: &[&str], warnings: &[&str]) {
        let found = self.discover(rules).unwrap();
        assert_eq!(lines(&found), expected);
        let said: Vec<_> = found.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(said, warnings);
    }

    #[track_caller]
    fn check_refused(&self, rules: &[Rule], expected: &str) {
        let refused = self.discover(rules).map(|found| lines(&found));
        assert_eq!(refused.unwrap_err().to_string(), expected);
    }
}

/// One line for each function: address, model, kind, cell, parent, tags.
fn lines(found: &Discovery) -> Vec<String> {
    let line = |d: &PciDevice| {
        let cell = d.cell.map_or("?".to_owned(), |cell| cell.to_string());
        let parent = d.parent.map_or(String::new(), |p| format!(" of {p}"));
        let tags = d.tags.iter().map(|(key, value)| format!(" {key}={value}"));
        let tags: String = tags.collect();
        let (vendor, product) = (d.vendor, d.product);
        format!(
            "{} {vendor}:{product} {:?} {cell}{parent}{tags}",
            d.address, d.kind
        )
    };
    found.topology.pci().iter().map(line).collect()
}

fn model(vendor: &str, product: &str) -> Rule {
    Rule {
        vendor_id: Some(vendor.parse().unwrap()),
        product_id: (!product.is_empty()).then(|| product.parse().unwrap()),
        ..Rule::default()
    }
}

fn address(pattern: &str) -> Rule {
    Rule {
        address: Some(pattern.parse().unwrap()),
        ..Rule::default()
    }
}

fn devname(name: &str) -> Rule {
    Rule {
        devname: Some(name.to_owned()),
        ..Rule::default()
    }
}

/// A network card with two ports and a virtual function on each, and an accelerator.
fn machine() -> Tree {
    Tree::new()
        .function("0000:81:00.0", "8086:1572", 1)
        .put_in("0000:81:00.0", "sriov_totalvfs", "64")
        .net("0000:81:00.0", "ens1f0")
        .function("0000:81:00.1", "8086:1572", 1)
        .put_in("0000:81:00.1", "sriov_totalvfs", "64")
        .net("0000:81:00.1", "ens1f1")
        .virtual_function("0000:81:02.0", "0000:81:00.0", 1)
        .virtual_function("0000:81:0a.0", "0000:81:00.1", 1)
        .function("0000:82:00.0", "10de:1eb8", -1)
        .put_in("0000:82:00.0", "class", "0x030200")
        .put_in("0000:82:00.0", "sriov_totalvfs", "0")
}

#[test]
fn nothing_is_offered_that_no_rule_names() {
    machine().check(&[], &[], &[]);
}

#[test]
fn functions_have_kind_cell_parent_and_the_tags_of_the_first_rule() {
    let blue = Rule {
        physical_network: Some("blue".to_owned()),
        tags: [("trusted".to_owned(), "true".to_owned())].into(),
        ..devname("ens1f0")
    };
    machine().check(
        &[blue, model("8086", "154c"), model("10de", "")],
        &[
            "0000:81:00.0 8086:1572 Physical 1 physical_network=blue trusted=true",
            "0000:81:02.0 8086:154c Virtual 1 of 0000:81:00.0 physical_network=blue trusted=true",
            "0000:81:0a.0 8086:154c Virtual 1 of 0000:81:00.1",
            "0000:82:00.0 10de:1eb8 Pci ?",
        ],
        &[],
    );
}

#[test]
fn a_pattern_takes_all_but_bridges_and_a_name_takes_the_virtual_functions_too() {
    let all = [
        "0000:81:00.0 8086:1572 Physical 1",
        "0000:81:00.1 8086:1572 Physical 1",
        "0000:81:02.0 8086:154c Virtual 1 of 0000:81:00.0",
        "0000:81:0a.0 8086:154c Virtual 1 of 0000:81:00.1",
        "0000:82:00.0 10de:1eb8 Pci ?",
    ];
    let tree = machine();
    tree.check(&[address("*:*:*.*")], &all, &[]);
    tree.check(&[address("0000:81:*.*")], &all[..4], &[]);
    tree.check(&[address("0000:81:00.0")], &[all[0], all[2]], &[]);
    let only_virtual = Rule {
        product_id: Some("154c".parse().unwrap()),
        ..address("0000:81:00.0")
    };
    tree.check(&[only_virtual], &[all[2]], &[]);
    tree.check(&[address("0000:81:0a.0")], &[all[3]], &[]);
}

#[test]
fn rules_that_decide_about_nothing_are_warned_of() {
    machine().check(
        &[
            model("8086", ""),
            address("0000:81:02.0"),
            model("15b3", ""),
            model("8086", "2030"),
        ],
        &[
            "0000:81:00.0 8086:1572 Physical 1",
            "0000:81:00.1 8086:1572 Physical 1",
            "0000:81:02.0 8086:154c Virtual 1 of 0000:81:00.0",
            "0000:81:0a.0 8086:154c Virtual 1 of 0000:81:00.1",
        ],
        &[
            "pci.device_spec[1] matches only PCI functions that are like an earlier rule",
            "pci.device_spec[2] matches no PCI function here",
            // A bridge is none.
            "pci.device_spec[3] matches no PCI function here",
        ],
    );
}

#[test]
fn names_of_what_is_not_there_or_cannot_be_given_are_refused_all_at_once() {
    let wrong_model = Rule {
        address: Some("0000:82:00.0".parse().unwrap()),
        ..model("10de", "ffff")
    };
    machine().check_refused(
        &[
            address("0000:83:00.0"),
            devname("ens2"),
            address("0000:80:01.0"),
            wrong_model,
        ],
        "pci.device_spec[0]: there is no PCI function 0000:83:00.0; \
         pci.device_spec[1]: no PCI function is the network device ens2; there are ens1f0, ens1f1; \
         pci.device_spec[2]: 0000:80:01.0 is a bridge: other functions are behind it; \
         pci.device_spec[3]: 0000:82:00.0 is 10de:1eb8",
    );
}

#[test]
fn the_disk_of_a_file_system_stays_with_the_host() {
    let tree = machine().disk("0000:82:00.0", "vda", 254);
    tree.check(&[model("10de", "")], &["0000:82:00.0 10de:1eb8 Pci ?"], &[]);
    let tree = tree.mount("254:1", "/", "ext4", "/dev/vda1");
    tree.check_refused(
        &[address("0000:82:00.0")],
        "pci.device_spec[0]: 0000:82:00.0 carries the file system /: the host needs it",
    );
    tree.check(
        &[model("10de", "")],
        &[],
        &[
            "pci.device_spec[0] matches 0000:82:00.0, which carries the file system /: it stays \
             with the host",
            "pci.device_spec[0] matches no PCI function here",
        ],
    );
}

#[test]
fn a_disk_is_found_below_volumes_mirrors_and_paths() {
    let held = |tree: &Tree, what: &str| {
        let expected =
            format!("pci.device_spec[0]: 0000:82:00.0 carries {what}: the host needs it");
        tree.check_refused(&[address("0000:82:00.0")], &expected);
    };
    let volume = |tree: Tree| {
        let lower = format!("{}/virtio1/block/vda/vda1", Tree::folder("0000:82:00.0"));
        tree.put("sys/devices/virtual/block/md0/size", "1");
        tree.link("sys/devices/virtual/block/md0/slaves/vda1", &lower);
        tree.put("sys/devices/virtual/block/dm-0/dm/name", "vg-root");
        let slave = "sys/devices/virtual/block/dm-0/slaves/md0";
        tree.link(slave, "sys/devices/virtual/block/md0");
        tree.link("sys/dev/block/253:0", "sys/devices/virtual/block/dm-0");
        tree.link("sys/class/block/dm-0", "sys/devices/virtual/block/dm-0");
        tree
    };
    let disk = || machine().disk("0000:82:00.0", "vda", 254);
    held(
        &volume(disk()).mount("253:0", "/home", "xfs", "/dev/mapper/vg-root"),
        "the file system /home",
    );
    // A file system with a number of its own tells its device by name.
    held(
        &disk().mount("0:35", "/", "btrfs", "/dev/vda1"),
        "the file system /",
    );
    held(
        &volume(disk()).mount("0:35", "/", "btrfs", "/dev/mapper/vg-root"),
        "the file system /",
    );
    let swap = disk();
    swap.put(
        "proc/swaps",
        "Filename Type Size Used Priority\n/dev/vda1 partition 1 0 -2",
    );
    held(&swap, "swap space");

    // A disk with several paths is nobody's child: its subsystem links to the controllers.
    let tree = machine();
    let system = "sys/devices/virtual/nvme-subsystem/nvme-subsys0";
    tree.put(&format!("{system}/nvme0n1/size"), "1");
    let controller = format!("{}/nvme/nvme0", Tree::folder("0000:82:00.0"));
    tree.put(&format!("{controller}/state"), "live");
    tree.link(&format!("{system}/nvme0"), &controller);
    tree.link("sys/dev/block/259:0", &format!("{system}/nvme0n1"));
    held(
        &tree.mount("259:0", "/", "ext4", "/dev/nvme0n1"),
        "the file system /",
    );
}

#[test]
fn the_device_of_the_default_route_stays_with_the_host() {
    let taken = "the host's network";
    let tree = machine().default_route("ens1f1");
    let first = "0000:81:00.0 8086:1572 Physical 1";
    let kept = format!(
        "pci.device_spec[0] matches 0000:81:00.1, which carries {taken} (ens1f1): it stays with \
         the host"
    );
    tree.check(&[model("8086", "1572")], &[first], &[&kept]);
    // Its virtual functions are for guests all the same.
    let others = ["0000:81:0a.0 8086:154c Virtual 1 of 0000:81:00.1"];
    tree.check(&[devname("ens1f1")], &others, &[&kept]);
    let only = Rule {
        product_id: Some("1572".parse().unwrap()),
        ..devname("ens1f1")
    };
    tree.check_refused(
        &[only],
        "pci.device_spec[0]: ens1f1 (0000:81:00.1) carries the host's network (ens1f1): the host \
         needs it",
    );

    // Both links of a bond below a bridge.
    let tree = machine();
    for (upper, lower) in [("br0", "bond0"), ("bond0", "ens1f0"), ("bond0", "ens1f1")] {
        let folder = format!("sys/devices/virtual/net/{upper}");
        tree.link(
            &format!("{folder}/lower_{lower}"),
            &format!("sys/class/net/{lower}"),
        );
        if upper == "br0" || lower == "ens1f0" {
            tree.link(&format!("sys/class/net/{upper}"), &folder);
        }
    }
    let found = tree
        .default_route("br0")
        .discover(&[model("8086", "1572")])
        .unwrap();
    assert_eq!(lines(&found), [""; 0]);
}

/// A virtual function goes with its physical one, so that one stays, too.
#[test]
fn a_physical_function_stays_for_what_its_virtual_ones_carry() {
    let tree = machine()
        .net("0000:81:02.0", "ens1f0v0")
        .default_route("ens1f0v0");
    tree.check_refused(
        &[address("0000:81:00.0")],
        "pci.device_spec[0]: 0000:81:00.0 carries the host's network (ens1f0v0) through its \
         virtual function 0000:81:02.0: the host needs it",
    );
}

#[test]
fn without_a_default_route_every_routed_device_stays() {
    let tree = machine();
    let route = "Iface\tDestination\nens1f0\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0";
    tree.put("proc/net/route", route);
    let zeros = "0".repeat(32);
    let sixth = format!(
        "fe80{z} 40 {zeros} 00 {zeros} 00000100 00000001 00000000 00000001 ens1f1\n\
         {zeros} 00 {zeros} 00 {zeros} ffffffff 00000001 00000000 00200200 lo",
        z = "0".repeat(28)
    );
    tree.put("proc/net/ipv6_route", &sixth);
    let found = tree.discover(&[model("8086", "1572")]).unwrap();
    assert_eq!(lines(&found), ["0000:81:00.1 8086:1572 Physical 1"]);
    // A default route of the sixth version counts as well.
    let default = format!(
        "{zeros} 00 {zeros} 00 fe80{z} 00000400 00000001 00000000 00000003 ens1f1",
        z = "0".repeat(28)
    );
    tree.put("proc/net/ipv6_route", &default);
    let found = tree.discover(&[model("8086", "1572")]).unwrap();
    assert_eq!(lines(&found), ["0000:81:00.0 8086:1572 Physical 1"]);
}

#[test]
fn a_node_that_is_left_out_is_not_a_cell() {
    machine().function("0000:83:00.0", "15b3:1017", 9).check(
        &[model("15b3", "")],
        &["0000:83:00.0 15b3:1017 Pci ?"],
        &[
            "PCI functions 0000:83:00.0 are attached to NUMA node 9, which is left out: their NUMA node is \
           taken for unknown",
        ],
    );
}

#[test]
fn functions_that_cannot_be_told_apart_are_warned_of() {
    let tree = machine().group("0000:81:02.0", 5).group("0000:81:0a.0", 5);
    let functions = [
        "0000:81:02.0 8086:154c Virtual 1 of 0000:81:00.0",
        "0000:81:0a.0 8086:154c Virtual 1 of 0000:81:00.1",
    ];
    tree.check(
        &[model("8086", "154c")],
        &functions,
        &[
            "PCI functions 0000:81:02.0, 0000:81:0a.0 are in one IOMMU group: only one guest at a \
           time can have any of them",
        ],
    );
    let tree = tree.group("0000:82:00.0", 5).link_in(
        "0000:82:00.0",
        "driver",
        "sys/bus/pci/drivers/nouveau",
    );
    tree.check(
        &[address("0000:81:02.0")],
        &functions[..1],
        &[
            "PCI functions 0000:81:02.0 are in one IOMMU group with 0000:82:00.0, which drivers of \
           the host have: guests cannot use them",
        ],
    );
    let tree = machine();
    std::fs::remove_file(tree.at(&format!("{}/iommu_group", Tree::folder("0000:82:00.0"))))
        .unwrap();
    tree.check(
        &[model("10de", "")],
        &["0000:82:00.0 10de:1eb8 Pci ?"],
        &["the IOMMU of this machine is off: guests cannot use PCI functions 0000:82:00.0"],
    );
}

/// Method: one good machine, in which one file at a time is spoilt.
#[test]
fn a_spoilt_file_is_named() {
    for (file, content) in [
        ("vendor", "8086"),
        ("device", "0x12345"),
        ("class", "network"),
        ("numa_node", "near"),
        ("sriov_totalvfs", "-1"),
    ] {
        let tree = machine().put_in("0000:82:00.0", file, content);
        let error = tree.discover(&[]).unwrap_err().to_string();
        let path = format!("0000:82:00.0/{file} holds");
        assert!(error.contains(&path), "{error}");
    }
    let tree = machine();
    tree.link(
        "sys/bus/pci/devices/elsewhere",
        &Tree::folder("0000:82:00.0"),
    );
    let error = tree.discover(&[]).unwrap_err().to_string();
    assert!(
        error.contains("instead of a PCI address as its name"),
        "{error}"
    );
}

const DESCRIBED: &str = r#"
    cpu_flags = ["avx2", "sse"]
    [[cells]]
    id = 0
    cpus = "0-3"
    cores = ["0-1", "2-3"]
    memory_mib = 64
    [[pci]]
    address = "0000:81:00.0"
    vendor = "8086"
    device = "1572"
    numa_node = 0
    sriov_totalvfs = 8
    net = "ens1f0"
    carries = "the host's network (ens1f0)"
    [[pci]]
    address = "0000:81:02.0"
    vendor = "8086"
    device = "154c"
    numa_node = 0
    physfn = "0000:81:00.0"
    [[pci]]
    address = "0000:80:01.0"
    vendor = "8086"
    device = "2030"
    class = "060400"
"#;

#[test]
fn described_functions_are_judged_like_others() {
    let described = Description::parse(DESCRIBED).unwrap();
    let discover = |rule| {
        let options = Options {
            pci: vec![rule],
            ..Options::default()
        };
        described.discover(&options)
    };
    let found = discover(devname("ens1f0")).unwrap();
    assert_eq!(
        lines(&found),
        ["0000:81:02.0 8086:154c Virtual 0 of 0000:81:00.0"]
    );
    assert_eq!(found.warnings.len(), 1, "{:?}", found.warnings);
    let traits: Vec<_> = found.traits.iter().map(ToString::to_string).collect();
    let expected = ["HW_CPU_HYPERTHREADING", "HW_CPU_X86_AVX2", "HW_CPU_X86_SSE"];
    assert_eq!(traits, expected);
    let bridge = discover(address("0000:80:01.0")).unwrap_err().to_string();
    assert!(bridge.contains("is a bridge"), "{bridge}");
}

#[test]
fn a_wrong_description_is_refused() {
    for (from, to, expected) in [
        (
            "numa_node = 0",
            "numa_node = 7",
            "0000:81:00.0 is on NUMA node 7, which is not there",
        ),
        (
            "class = \"060400\"",
            "class = \"6\"",
            "class of PCI function 0000:80:01.0",
        ),
        (
            "sriov_totalvfs = 8",
            "",
            "0000:81:02.0 is a virtual one of 0000:81:00.0, which",
        ),
        (
            "0000:80:01.0",
            "0000:81:00.0",
            "two PCI functions have one address",
        ),
    ] {
        let text = DESCRIBED.replacen(from, to, 1);
        let described = Description::parse(&text).unwrap();
        let error = described.discover(&Options::default()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}
