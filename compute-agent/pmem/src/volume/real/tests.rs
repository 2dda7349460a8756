//! The managers over programs that print what a test wants, and over a folder in the place of `/sys`.
//!
//! Goal: what cannot be understood is an error or a region's trouble, never free space; and no program
//! is ever asked to change what is somebody else's. Method: all that the managers have programs change
//! is written down.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use berth_domain::name::{RegionName, VolumeId};
use serde_json::{Value, json};

use super::*;
use crate::volume::manager::{VolumeManager, Watch, Wipe};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const OURS: &str = "data-0123456789abcdef0123456789abcdef";

/// A host in a folder.
struct Host {
    folder: tempfile::TempDir,
    regions: Vec<Value>,
    start: u64,
}

impl Host {
    fn new() -> Self {
        let host = Self {
            folder: tempfile::tempdir().unwrap(),
            regions: Vec::new(),
            start: 4 * GIB,
        };
        for program in ["ndctl", "lvm"] {
            let at = host.at(program);
            let place = host.folder.path().display();
            let script = format!(
                "#!/bin/sh\ncase $1 in list|pvs) exec cat {place}/$1.json;; esac\n\
                 echo {program} \"$@\" >>{place}/log\ncat {place}/said >&2\nexit $(cat {place}/status)\n"
            );
            fs::write(&at, script).unwrap();
            fs::set_permissions(&at, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(host.at("log"), "").unwrap();
        fs::create_dir(host.at("proc")).unwrap();
        host.program_ends("0", "");
        host.lvm(&json!([]), &json!([]));
        host.list();
        host
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn program_ends(&self, status: &str, said: &str) {
        fs::write(self.at("status"), status).unwrap();
        fs::write(self.at("said"), said).unwrap();
    }

    fn sys(&self, dev: &str, values: &[(&str, String)]) {
        let folder = self.at("sys/bus/nd/devices").join(dev);
        fs::create_dir_all(&folder).unwrap();
        for (name, value) in values {
            fs::write(folder.join(name), format!("{value}\n")).unwrap();
        }
    }

    fn region(&mut self, size: u64, ways: u64, free: u64) -> &mut Self {
        let dev = format!("region{}", self.regions.len());
        let values = [
            ("size", size.to_string()),
            ("resource", format!("{:#x}", self.start)),
            ("mappings", ways.to_string()),
            ("available_size", free.to_string()),
            ("max_available_extent", free.to_string()),
            ("numa_node", (self.regions.len() as i64 - 1).to_string()),
        ];
        self.sys(&dev, &values);
        self.regions
            .push(json!({"dev": dev, "type": "pmem", "namespaces": []}));
        self.list();
        self
    }

    /// Puts a namespace into the last region.
    fn namespace(&mut self, name: &str, mode: &str, offset: u64, length: u64) -> &mut Self {
        let number = self.regions.len() - 1;
        let list = self.regions[number]["namespaces"].as_array_mut().unwrap();
        let dev = format!("namespace{number}.{}", list.len());
        let block = format!("pmem{number}.{}", list.len());
        let mut entry =
            json!({"dev": dev, "mode": mode, "name": name, "uuid": format!("u{block}")});
        match mode {
            "fsdax" => entry["blockdev"] = json!(block),
            _ => entry["state"] = json!("disabled"),
        }
        list.push(entry);
        let values = [
            ("size", length.to_string()),
            ("resource", format!("{:#x}", self.start + offset)),
        ];
        self.sys(&dev, &values);
        let folder = self.at("sys/class/block").join(&block);
        fs::create_dir_all(&folder).unwrap();
        fs::write(
            folder.join("size"),
            (length / 512).saturating_sub(4096).to_string(),
        )
        .unwrap();
        fs::write(self.at(&block), "").unwrap();
        self.list();
        self
    }

    fn list(&self) {
        let listing = json!([{"provider": "ACPI.NFIT", "dev": "ndbus0", "regions": self.regions}]);
        fs::write(self.at("list.json"), listing.to_string()).unwrap();
    }

    fn lvm(&self, physical: &Value, logical: &Value) {
        let none = json!({"lv_name": "", "lv_uuid": "", "lv_size": "0", "lv_path": "/dev//"});
        let with = |physical: &Value, logical: &Value| {
            let mut row = physical.clone();
            let columns = logical.as_object().unwrap().clone();
            row.as_object_mut().unwrap().extend(columns);
            row
        };
        let mut rows = Vec::new();
        for one in physical.as_array().unwrap() {
            rows.push(with(one, &none));
            let logical = logical.as_array().unwrap().iter();
            let inside = logical.filter(|logical| logical["vg_uuid"] == one["vg_uuid"]);
            rows.extend(inside.map(|logical| with(one, logical)));
        }
        let report = json!({"report": [{"pv": rows}]});
        fs::write(self.at("pvs.json"), report.to_string()).unwrap();
    }

    fn physical(&self, block: &str, group: &str, free: u64) -> Value {
        json!({"pv_name": self.at(block), "vg_name": group, "vg_uuid": format!("of-{group}"),
            "vg_extent_size": "4194304", "vg_free": free.to_string()})
    }

    fn logical(&self, name: &str, group: &str, size: u64) -> Value {
        json!({"lv_name": name, "lv_uuid": format!("of-{name}"), "vg_name": group, "vg_uuid": format!("of-{group}"),
            "lv_size": size.to_string(), "lv_path": self.at("status")})
    }

    fn settings(&self) -> Settings {
        Settings {
            ndctl: self.at("ndctl"),
            lvm: self.at("lvm"),
            devices: self.folder.path().to_owned(),
            sys: self.at("sys"),
            // Nobody has anything open.
            proc: self.at("proc"),
            ..Settings::new(&self.at("managers"))
        }
    }

    fn direct(&self) -> DirectManager {
        DirectManager::new(self.settings())
    }

    fn group(&self) -> LvmManager {
        LvmManager::new(self.settings())
    }

    /// Returns what programs were asked to change.
    fn changes(&self) -> Vec<String> {
        let log = fs::read_to_string(self.at("log")).unwrap();
        log.lines().map(str::to_owned).collect()
    }
}

fn ours() -> VolumeId {
    VolumeId::new(OURS).unwrap()
}

fn region0() -> RegionName {
    RegionName::new("region0").unwrap()
}

fn delete(manager: &dyn VolumeManager, wipe: Wipe) -> Result<(), Error> {
    let watch = Watch {
        stop: &AtomicBool::new(false),
        progress: &|_| {},
    };
    manager.delete(&ours(), wipe, &watch)
}

#[test]
fn regions_and_devices_are_as_the_kernel_tells() {
    let mut host = Host::new();
    host.region(8 * GIB, 1, 4 * GIB)
        .namespace("fs0", "fsdax", GIB, GIB)
        .namespace(OURS, "fsdax", 2 * GIB, 2 * GIB)
        .namespace("", "raw", 6 * GIB, 0)
        .region(64 * GIB, 2, 0)
        .namespace(OURS, "raw", 0, 2 * GIB);
    let direct = host.direct();
    let regions = direct.regions().unwrap();
    let [one, two] = &regions[..] else {
        panic!("{regions:?}")
    };
    assert_eq!((one.cell, two.cell.map(|cell| cell.0)), (None, Some(0)));
    assert_eq!((one.align_bytes, two.align_bytes), (GIB, 2 * GIB));
    assert_eq!(
        (one.capacity_bytes, two.capacity_bytes),
        (8 * GIB, 64 * GIB)
    );
    let foreign: Vec<String> = one.foreign.iter().map(ToString::to_string).collect();
    assert_eq!(foreign, [format!("{GIB}+{GIB}")]);
    // Of two of that name the one that can be used counts.
    let devices = direct.devices().unwrap();
    assert_eq!(devices.len(), 1);
    assert_eq!(devices[0].region, region0());
    assert_eq!(devices[0].size_bytes, 2 * GIB - 2 * MIB);
    assert_eq!(devices[0].trouble, "");
    assert_eq!(direct.prepare(), Ok(()));
    assert_eq!(host.changes(), Vec::<String>::new());
}

#[test]
fn a_group_is_ours_only_if_all_of_it_is() {
    let mut host = Host::new();
    host.region(8 * GIB, 1, 0)
        .namespace(GROUP_NAMESPACE, "fsdax", 0, 4 * GIB)
        .namespace("fs0", "fsdax", 4 * GIB, 4 * GIB);
    let manager = host.group();
    let told = || {
        let region = manager.regions().unwrap().remove(0);
        (region.capacity_bytes, region.trouble)
    };
    let name = "ndbus0region0fsdax";
    assert_eq!(told(), (0, format!("it has no volume group {name}")));
    // On somebody else's namespace, even under that name.
    host.lvm(&json!([host.physical("pmem0.1", name, GIB)]), &json!([]));
    assert_eq!(told(), (0, format!("it has no volume group {name}")));
    let rows = |group: &str| {
        json!([
            host.logical(OURS, group, GIB),
            host.logical("x", group, GIB)
        ])
    };
    let mixed = [("pmem0.0", name), ("pmem0.1", name)].map(|(b, g)| host.physical(b, g, GIB));
    host.lvm(&json!(mixed), &rows(name));
    assert!(told().1.ends_with("pmem0.1, too, which is not ours"));
    assert_eq!(manager.devices(), Ok(Vec::new()));
    assert_eq!(delete(&manager, Wipe::Nothing), Ok(()));
    let made = manager.create(&ours(), &region0(), GIB).unwrap_err();
    assert!(matches!(made, Error::Trouble { .. }), "{made}");
    // Ours, beside one of others with the same logical volume.
    let both = [("pmem0.0", name), ("pmem0.1", "theirs")];
    let both = both.map(|(block, group)| host.physical(block, group, GIB));
    host.lvm(&json!(both), &rows("theirs"));
    assert_eq!(told(), (GIB, String::new()));
    assert_eq!(manager.devices(), Ok(Vec::new()));
    assert_eq!(delete(&manager, Wipe::Nothing), Ok(()));
    host.lvm(&json!(both), &rows(name));
    assert_eq!(told(), (2 * GIB, String::new()), "free, and what is ours");
    assert_eq!(manager.devices().unwrap().len(), 1);
    assert_eq!(host.changes(), Vec::<String>::new());
    delete(&manager, Wipe::Nothing).unwrap();
    assert_eq!(
        host.changes(),
        [format!("lvm lvremove --yes {name}/{OURS}")]
    );
}

/// What PMEM-CSI's tool makes of a region: a share, less what is ours already, no more than is free.
#[test]
fn namespaces_for_groups_are_made_up_to_a_share() {
    for (size, ways, free, percent, ours, expected) in [
        (8, 1, 8, 100, 0, Some(8)),
        (8, 1, 8, 50, 0, Some(4)),
        (8, 1, 8, 50, 2, Some(2)),
        (8, 1, 8, 50, 4, None),
        (8, 1, 3, 100, 0, Some(3)),
        (8, 1, 8, 13, 0, None),
        (8, 1, 8, 37, 0, Some(2)),
        (8, 1, 8, 0, 0, None),
        (7, 2, 7, 100, 0, Some(6)),
        (7, 4, 3, 100, 0, None),
    ] {
        let mut host = Host::new();
        host.region(size * GIB, ways, free * GIB);
        if ours > 0 {
            host.namespace(GROUP_NAMESPACE, "fsdax", 0, ours * GIB);
        }
        let manager = LvmManager::new(Settings {
            fsdax_percent: percent,
            ..host.settings()
        });
        manager.prepare().unwrap();
        let made: Vec<String> = host
            .changes()
            .into_iter()
            .filter(|change| change.contains("create-namespace"))
            .collect();
        let expected = expected.map(|size: u64| format!(" --size {} ", size * GIB));
        let is_as_expected = match (&made[..], &expected) {
            ([], None) => true,
            ([made, ..], Some(size)) => made.contains(size) && made.contains("--name pmem-csi"),
            _ => false,
        };
        assert!(
            is_as_expected,
            "{size} {ways} {free} {percent} {ours}: {made:?}"
        );
    }
}

#[test]
fn only_namespaces_of_ours_become_groups() {
    let mut host = Host::new();
    host.region(8 * GIB, 1, 0)
        .namespace(GROUP_NAMESPACE, "fsdax", 0, 2 * GIB)
        .namespace("fs0", "fsdax", 2 * GIB, 2 * GIB)
        .namespace(GROUP_NAMESPACE, "raw", 4 * GIB, 2 * GIB);
    host.group().prepare().unwrap();
    let mut changes = host.changes();
    // It is tried again while nothing comes of it.
    changes.dedup();
    let made = host.at("pmem0.0");
    let end = format!("ndbus0region0fsdax {}", made.display());
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert!(changes[0].starts_with("lvm vgcreate --yes") && changes[0].ends_with(&end));
    // One that is switched off is removed only if it was begun by us and not ended.
    // A mark without its end tells nothing.
    let mark = host.at("managers/making-region0");
    for torn in ["", "upmem0.0", "upmem0.0\nupmem0.1\n", "upmem0.0\nend"] {
        fs::write(&mark, torn).unwrap();
        host.group().prepare().unwrap();
        let changes = host.changes();
        assert!(
            changes.iter().all(|said| !said.contains("destroy")),
            "{torn:?}: {changes:?}"
        );
        assert!(!mark.exists());
    }
    fs::write(&mark, "upmem0.0\nupmem0.1\nend\n").unwrap();
    host.group().prepare().unwrap();
    let destroyed = "ndctl destroy-namespace --force namespace0.2".to_owned();
    assert!(host.changes().contains(&destroyed), "{:?}", host.changes());
    assert!(!host.at("managers/making-region0").exists());
    // A name that others took is not ours.
    let mut host = Host::new();
    host.region(4 * GIB, 1, 0)
        .namespace(GROUP_NAMESPACE, "fsdax", 0, 2 * GIB);
    let physical = host.physical("sda", "ndbus0region0fsdax", GIB);
    host.lvm(&json!([physical]), &json!([]));
    let manager = host.group();
    manager.prepare().unwrap();
    assert_eq!(host.changes(), Vec::<String>::new());
    let trouble = manager.regions().unwrap().remove(0).trouble;
    assert!(trouble.ends_with("already, which is not ours"), "{trouble}");
}

#[test]
fn what_programs_say_is_told() {
    let mut host = Host::new();
    host.region(4 * GIB, 1, 4 * GIB);
    let create = |bytes: u64| {
        host.direct()
            .create(&ours(), &region0(), bytes)
            .unwrap_err()
    };
    let vanished = create(GIB);
    assert!(matches!(vanished, Error::Vanished { .. }), "{vanished}");
    host.program_ends("1", "failed to create namespace: No space left on device");
    let full = create(GIB);
    assert!(matches!(full, Error::NoSpace { .. }), "{full}");
    host.program_ends("1", "region0: the label area is damaged");
    let failed = create(GIB).to_string();
    assert!(failed.ends_with("the label area is damaged"), "{failed}");
    // What cannot fit is not even tried.
    let before = host.changes().len();
    assert!(matches!(create(5 * GIB), Error::NoSpace { .. }));
    assert!(matches!(create(1 << 63), Error::NoSpace { .. }));
    assert!(matches!(create(MIB), Error::OddSize { .. }));
    assert_eq!(host.changes().len(), before);
    fs::remove_file(host.at("ndctl")).unwrap();
    let missing = host.direct().regions().unwrap_err().to_string();
    assert!(missing.ends_with("is it installed?"), "{missing}");
}

/// One that is switched off is not given, not wiped, and removed only where nobody was given it.
#[test]
fn what_is_switched_off_is_left_alone() {
    let mut host = Host::new();
    host.region(4 * GIB, 1, 0).namespace(OURS, "raw", 0, GIB);
    let manager = host.direct();
    let create = manager.create(&ours(), &region0(), GIB).unwrap_err();
    assert!(matches!(create, Error::Unusable { .. }), "{create}");
    assert_eq!(manager.users(&ours()), Ok(Vec::new()));
    let wipe = delete(&manager, Wipe::Everything { from_bytes: 0 }).unwrap_err();
    assert!(wipe.to_string().ends_with("it cannot be wiped"), "{wipe}");
    assert_eq!(host.changes(), Vec::<String>::new());
    delete(&manager, Wipe::Nothing).unwrap();
    assert_eq!(
        host.changes(),
        ["ndctl destroy-namespace --force namespace0.0"]
    );
}

#[test]
fn what_cannot_be_understood_is_not_free_space() {
    let mut host = Host::new();
    host.region(8 * GIB, 1, 0)
        .namespace(GROUP_NAMESPACE, "fsdax", 0, 4 * GIB)
        .namespace(OURS, "fsdax", 4 * GIB, GIB);
    let (direct, group) = (host.direct(), host.group());
    let listing = host.at("list.json");
    let good = fs::read_to_string(&listing).unwrap();
    for (from, to) in [
        (good.as_str(), "{"),
        (good.as_str(), "7"),
        (good.as_str(), "\u{0}\u{1}"),
        ("\"dev\":\"ndbus0\"", "\"dev\":\"ndbus/../0\""),
        ("\"dev\":\"ndbus0\"", "\"dev\":7"),
        ("\"dev\":\"region0\"", "\"dev\":\"region0/..\""),
        ("\"dev\":\"region0\"", "\"dev\":\"region4\""),
    ] {
        fs::write(&listing, good.replace(from, to)).unwrap();
        assert!(direct.regions().is_err(), "{to}");
        assert!(group.regions().is_err(), "{to}");
        assert!(group.prepare().is_err(), "{to}");
        assert!(delete(&direct, Wipe::Nothing).is_err(), "{to}");
    }
    for (from, to, why) in [
        ("namespace0.0", "namespace0.7", "cannot read"),
        ("namespace0.0", "../../x", "cannot be understood"),
        (
            "\"dev\":\"namespace0.0\"",
            "\"dev\":null",
            "cannot be understood",
        ),
        ("pmem0.0", "../sda", "odd block device"),
    ] {
        fs::write(&listing, good.replace(from, to)).unwrap();
        let region = direct.regions().unwrap().remove(0);
        assert!(region.trouble.contains(why), "{to}: {}", region.trouble);
        let made = direct.create(
            &VolumeId::new("b-0123456789abcdef0123456789abcdef").unwrap(),
            &region0(),
            GIB,
        );
        assert!(matches!(made, Err(Error::Trouble { .. })), "{made:?}");
    }
    fs::write(&listing, &good).unwrap();
    for (dev, name, value) in [
        ("namespace0.0", "resource", "0x10"),
        ("namespace0.0", "resource", "-1"),
        ("namespace0.0", "size", "18446744073709551615"),
        ("namespace0.0", "size", ""),
    ] {
        host.sys(dev, &[(name, value.to_owned())]);
        let region = direct.regions().unwrap().remove(0);
        assert_ne!(region.trouble, "", "{dev} {name} {value:?}");
    }
    for (name, value) in [("size", "x"), ("mappings", "99999999999999999999")] {
        host.sys("region0", &[(name, value.to_owned())]);
        assert!(direct.regions().is_err(), "{name} {value}");
    }
    assert_eq!(host.changes(), Vec::<String>::new());
}

proptest::proptest! {
    /// Goal: no output makes the readers panic, and a report that lacks something is no report.
    #[test]
    fn garbage_is_refused(at: proptest::sample::Index, bytes: Vec<u8>, length in 0_usize..40) {
        let pvs = r#"{"report":[{"pv":[{"pv_name":"/dev/pmem0","vg_name":"g","vg_uuid":"u",
            "vg_extent_size":"4194304","vg_free":"8388608","lv_name":"a","lv_uuid":"l",
            "lv_size":"4194304","lv_path":"/dev/g/a"}]}]}"#;
        let list = r#"[{"dev":"ndbus0","regions":[{"dev":"region0","type":"pmem","namespaces":[
            {"dev":"namespace0.0","mode":"fsdax","blockdev":"pmem0","name":"pmem-csi"}]}]}]"#;
        let nowhere = Path::new("/nowhere");
        for whole in [pvs, list] {
            let mut broken = whole.as_bytes().to_vec();
            let from = at.index(broken.len());
            let until = (from + length).min(broken.len());
            broken.splice(from..until, bytes.iter().copied());
            for output in [&broken, &bytes] {
                let _ = report::read(output);
                let _ = listing::read(output, nowhere, nowhere);
            }
        }
        proptest::prop_assert!(report::read(pvs.as_bytes()).is_ok());
        for (from, to) in [("8388608", "8.00m"), ("vg_free", "vg_fee"), ("\"4194304\"", "7")] {
            proptest::prop_assert!(report::read(pvs.replace(from, to).as_bytes()).is_err());
        }
    }
}
