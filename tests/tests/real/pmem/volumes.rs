//! Volumes for real: namespaces made by ndctl, logical volumes made by LVM, file systems with dax.
//!
//! Goal: both managers hold what simulated ones hold; a volume survives the end of its agent at every
//! step, and what was in it is gone after it. Method: the suite, on what is left of the NVDIMMs beside
//! things of others; then a worker, this program in another role, is killed by the kernel at one step
//! after the other and started again. Nobody says that it should stop, and what it has started goes on.
//!
//! What this is not: the agent itself; see `life.rs`.
//!
//! Modules are small here: sizes in mode direct are multiples of 32 MiB by configuration.

use std::any::Any;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use berth_domain::name::VolumeId;
use berth_domain::volume::DeviceMode;
use berth_pmem::volume::conformance::{self, Bench};
use berth_pmem::volume::filesystem::{Contents, Dax, FileSystem, Programs, detect};
use berth_pmem::volume::real::Settings;
use berth_pmem::volume::record::Words;
use berth_pmem::volume::{
    Device, DirectManager, LvmManager, Order, Phase, VolumeManager, VolumeStore, Watch, kata,
};

use super::device::{Device as MappedDevice, MIB};
use super::scenarios::run;
use super::{SECRET, VOLUME_WORKER};
use crate::harness::ROLE;

/// The mode that a worker is to work in, and what it is to get at.
const MODE: &str = "BERTH_TEST_MODE";
const GOAL: &str = "BERTH_TEST_GOAL";

/// Where volumes are mounted.
const TARGET: &str = "/tmp/target";

/// How large a worker's volume is.
const VOLUME_BYTES: u64 = 96 * MIB;

/// What a guest is to find in the image.
const GREETING: &str = "greeting";

/// Plays the scenarios.
pub(crate) fn play() {
    fs::create_dir_all(TARGET).unwrap();
    without_udev();
    a_guest_sees_the_image();
    let others = Others::make();
    for mode in [DeviceMode::Direct, DeviceMode::Lvm] {
        passes_the_suite(mode, &others);
        println!("the suite is passed in mode {mode}");
        lives_whatever_ends_it(mode);
        println!("a volume in mode {mode} has lived");
    }
    other_file_systems();
    println!("volumes are told");
}

/// Nobody else makes the nodes of devices in this machine.
pub(crate) fn without_udev() {
    fs::create_dir_all("/etc/lvm").unwrap();
    let without_udev = "activation { udev_sync=0 udev_rules=0 }\n\
                        devices { obtain_device_list_from_udev=0 }\n";
    fs::write("/etc/lvm/lvm.conf", without_udev).unwrap();
}

fn settings() -> Settings {
    Settings {
        align_bytes: 32 * MIB,
        fsdax_least_bytes: 32 * MIB,
        piece_bytes: 16 * MIB,
        ..Settings::new(Path::new("/tmp/managers"))
    }
}

fn manager(mode: DeviceMode) -> Arc<dyn VolumeManager> {
    match mode {
        DeviceMode::Direct => Arc::new(DirectManager::new(settings())),
        DeviceMode::Lvm => Arc::new(LvmManager::new(settings())),
    }
}

/// Makes the image as it stands in a volume for Kata Containers, with a file in its file system.
pub(crate) fn make_image(path: &Path) {
    // An odd multiple of 2 MiB, as volumes have room for.
    let size = 30 * MIB;
    kata::make_sized(path, size).unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(GREETING), GREETING).unwrap();
    let blocks = ((size - kata::DATA_BYTES) / 4096).to_string();
    let offset = format!("offset={}", kata::DATA_BYTES);
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-E", &offset, "-d"])
        .args([folder.path(), path])
        .arg(blocks)
        .status();
    assert!(made.unwrap().success());
}

/// The machine's kernel has read the block of information: what begins at 2 MiB is a device.
fn a_guest_sees_the_image() {
    let programs = Programs::default();
    let devices = fs::read_dir("/dev").unwrap();
    let devices = devices.map(|entry| entry.unwrap().path());
    let is_pmem = |path: &PathBuf| path.to_str().unwrap().starts_with("/dev/pmem");
    let ext4 = Ok(Contents::FileSystem(FileSystem::Ext4));
    let device = devices.filter(is_pmem).find(|path| detect(path) == ext4);
    let device = device.expect("the image's file system on a device of its own");
    let (target, kind) = (Path::new(TARGET), FileSystem::Ext4);
    let mounted = programs.mount(&device, target, kind, Dax::Required, &["ro"]);
    assert_eq!(mounted, Ok(true));
    let read = fs::read_to_string(target.join(GREETING)).unwrap();
    assert_eq!(read, GREETING);
    programs.unmount(target).unwrap();
    println!("a guest sees the image as {}", device.display());
}

/// What others have: namespaces, and a volume group with a logical volume that is called like a
/// volume of ours.
pub(crate) struct Others {
    logical: PathBuf,
    /// The namespace that the volume group is made of.
    device: PathBuf,
}

impl Others {
    pub(crate) fn make() -> Self {
        let listed = run("ndctl", &["list", "--namespaces", "--mode", "fsdax"]);
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        let mut entries = listed.as_array().unwrap().iter();
        let foreign = entries.find(|entry| entry["name"] == "fs0").unwrap();
        let device = format!("/dev/{}", foreign["blockdev"].as_str().unwrap());
        run("lvm", &["vgcreate", "--yes", "others", &device]);
        let name = "ours-0123456789abcdef0123456789abcdef";
        run(
            "lvm",
            &["lvcreate", "--yes", "-L", "4m", "-n", name, "others"],
        );
        let logical = Path::new("/dev/others").join(name);
        let file = OpenOptions::new().write(true).open(&logical).unwrap();
        file.write_all_at(b"what others wrote", 0).unwrap();
        file.sync_all().unwrap();
        Self {
            logical,
            device: device.into(),
        }
    }

    /// Tells what they have, and every bit of the namespace that they have a volume group on and of
    /// those that are for guests.
    pub(crate) fn everything(&self) -> (String, Vec<u64>) {
        let hash = |bytes: Vec<u8>| {
            let mut hasher = DefaultHasher::new();
            bytes.hash(&mut hasher);
            hasher.finish()
        };
        let devices = run("ndctl", &["list", "--namespaces", "--mode", "devdax"]);
        let devices: serde_json::Value = serde_json::from_str(&devices).unwrap();
        let mapped = devices.as_array().unwrap().iter().map(|entry| {
            let path = Path::new("/dev").join(entry["chardev"].as_str().unwrap());
            let size = entry["size"].as_u64().unwrap();
            MappedDevice::map(&path, size).read(0, usize::try_from(size).unwrap())
        });
        let group = fs::read(&self.device).unwrap();
        let hashes = std::iter::once(group).chain(mapped).map(hash).collect();
        (self.tell(), hashes)
    }

    /// Tells what they have, and what is in it.
    fn tell(&self) -> String {
        let mut bytes = [0; 17];
        File::open(&self.logical)
            .unwrap()
            .read_exact_at(&mut bytes, 0)
            .unwrap();
        let listed = run("ndctl", &["list", "--namespaces", "--idle"]);
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        let is_others = |name: &str| ["ns0", "ns1", "ns2", "fs0"].contains(&name);
        let mut namespaces: Vec<String> = listed
            .as_array()
            .unwrap()
            .iter()
            .filter(|entry| entry["name"].as_str().is_some_and(is_others))
            .map(ToString::to_string)
            .collect();
        assert_eq!(namespaces.len(), 4);
        namespaces.sort();
        let logical = run("lvm", &["lvs", "-o", "lv_name,lv_uuid,lv_size", "others"]);
        format!("{bytes:?} {namespaces:?} {logical}")
    }
}

fn passes_the_suite(mode: DeviceMode, others: &Others) {
    conformance::run(&Bench {
        start: &|| manager(mode),
        write: &|device, offset, length, byte| {
            let file = OpenOptions::new().write(true).open(&device.path).unwrap();
            let bytes = vec![byte; usize::try_from(length).unwrap()];
            file.write_all_at(&bytes, offset).unwrap();
            file.sync_all().unwrap();
        },
        read: &|device, offset, length| {
            let mut bytes = vec![0; length];
            let file = File::open(&device.path).unwrap();
            file.read_exact_at(&mut bytes, offset).unwrap();
            bytes
        },
        hold: &|device| -> Box<dyn Any> {
            let exclusive = rustix::fs::OFlags::EXCL.bits().try_into().unwrap();
            let mut options = OpenOptions::new();
            let options = options.read(true).custom_flags(exclusive);
            Box::new(options.open(&device.path).unwrap())
        },
        foreign: &|| others.tell(),
    });
}

fn id(mode: DeviceMode) -> VolumeId {
    let word = match mode {
        DeviceMode::Direct => "direct",
        DeviceMode::Lvm => "lvm",
    };
    VolumeId::new(&format!("{word}-0123456789abcdef0123456789abcdef")).unwrap()
}

fn open(mode: DeviceMode) -> VolumeStore {
    let volumes = VolumeStore::open(Path::new("/tmp/volumes"), vec![manager(mode)]).unwrap();
    println!("step opened");
    volumes.prepare().unwrap();
    println!("step prepared");
    volumes
}

fn order(volumes: &VolumeStore, mode: DeviceMode, gross_bytes: u64) -> Order {
    let regions = volumes.regions().unwrap();
    let region = regions.iter().max_by_key(|region| region.largest(&[]));
    Order {
        id: id(mode),
        region: region.unwrap().name.clone(),
        mode,
        gross_bytes,
        erase_after: true,
        parameters: Words::new(),
    }
}

fn delete(volumes: &VolumeStore, id: &VolumeId) {
    let watch = Watch {
        stop: &AtomicBool::new(false),
        progress: &|bytes| println!("step erased {bytes}"),
    };
    volumes.delete(id, &watch).unwrap();
}

/// What the worker does: gets at its goal from wherever it was left.
pub(crate) fn work() {
    let mode = match std::env::var(MODE).unwrap().as_str() {
        "lvm" => DeviceMode::Lvm,
        _ => DeviceMode::Direct,
    };
    let volumes = open(mode);
    let (programs, target) = (Programs::default(), Path::new(TARGET));
    if std::env::var(GOAL).unwrap() == "gone" {
        programs.unmount(target).unwrap();
        println!("step deleting");
        delete(&volumes, &id(mode));
        println!("step gone");
        return;
    }
    println!("step creating");
    let made = volumes
        .create(&order(&volumes, mode, VOLUME_BYTES))
        .unwrap();
    println!("step created");
    let device = made.usable().unwrap().path.clone();
    println!("step formatting");
    programs.format(&device, FileSystem::Ext4).unwrap();
    println!("step formatted");
    if programs.mounted(target).unwrap().is_none() {
        let mounted = programs.mount(&device, target, FileSystem::Ext4, Dax::Required, &[]);
        assert_eq!(mounted, Ok(true));
    }
    println!("step mounted");
    fs::write(target.join("one"), SECRET.repeat(1 << 14)).unwrap();
    let mut file = File::create(target.join("two")).unwrap();
    for _ in 0..16 {
        let mut page = SECRET.to_vec();
        page.resize(4096, 1);
        file.write_all(&page).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    println!("step written");
    programs.unmount(target).unwrap();
    println!("step unmounted");
}

/// Has a worker work until it says that it is at that step, and kills it there. Without a step it is
/// to get to its end.
fn worker(mode: DeviceMode, goal: &str, until: Option<&str>) {
    let mut worker = Command::new(std::env::current_exe().unwrap())
        .env(ROLE, VOLUME_WORKER)
        .env(MODE, mode.to_string())
        .env(GOAL, goal)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(worker.stdout.take().unwrap()).lines();
    let mut steps = lines.map_while(Result::ok);
    let step = until.map(|until| format!("step {until}"));
    let came = steps.find(|line| step.as_ref().is_some_and(|step| line.starts_with(step)));
    if step.is_some() {
        // By the kernel, at once.
        worker.kill().unwrap();
        println!("a worker was killed at {came:?}");
        assert!(came.is_some(), "it did not come to {until:?}");
    }
    let status = worker.wait().unwrap();
    assert!(
        until.is_some() || status.success(),
        "the worker's own words are above"
    );
}

fn lives_whatever_ends_it(mode: DeviceMode) {
    // Each step in one mode at least: what follows the device's making is the same in both.
    let (before, after): (&[&str], &[&str]) = match mode {
        DeviceMode::Direct => (&["creating", "formatting", "written"], &["erased"]),
        DeviceMode::Lvm => (
            &["prepared", "creating", "mounted"],
            &["deleting", "erased"],
        ),
    };
    for step in before {
        worker(mode, "written", Some(step));
    }
    worker(mode, "written", None);
    let volumes = open(mode);
    let volume = volumes.look(&id(mode)).unwrap();
    assert_eq!(volume.record.phase, Phase::Ready);
    let device = volume.usable().unwrap().clone();
    let (programs, target) = (Programs::default(), Path::new(TARGET));
    let mounted = programs.mount(&device.path, target, FileSystem::Ext4, Dax::Required, &[]);
    assert_eq!(mounted, Ok(true));
    let users = volumes.users(&id(mode)).unwrap();
    assert_eq!(users, [format!("mounted at {TARGET}")]);
    let busy = volumes.begin_delete(&id(mode)).unwrap_err().to_string();
    assert!(
        busy.ends_with(&format!("is in use: mounted at {TARGET}")),
        "{busy}"
    );
    let written = fs::read(target.join("one")).unwrap();
    assert!(written == SECRET.repeat(1 << 14));
    let statistics = programs.statistics(target).unwrap();
    assert!(statistics.used_bytes > 0 && statistics.total_bytes < device.size_bytes);
    programs.unmount(target).unwrap();
    assert!(holds_secret(&device));
    drop(volumes);
    for step in after {
        worker(mode, "gone", Some(step));
    }
    worker(mode, "gone", None);
    let volumes = open(mode);
    assert_eq!(volumes.list(), []);
    // The same space in other hands.
    let again = volumes
        .create(&order(&volumes, mode, VOLUME_BYTES))
        .unwrap();
    let again = again.usable().unwrap().clone();
    assert_eq!(again.extent, device.extent);
    assert!(!holds_secret(&again));
    assert_eq!(detect(&again.path), Ok(Contents::Nothing));
    delete(&volumes, &id(mode));
}

/// Returns whether any page of a device begins with what was written into the volume.
fn holds_secret(device: &Device) -> bool {
    let bytes = fs::read(&device.path).unwrap();
    assert_eq!(bytes.len() as u64, device.size_bytes);
    bytes.chunks(4096).any(|page| page.starts_with(SECRET))
}

/// xfs with dax, and the image for Kata Containers with a file system on a loop device.
fn other_file_systems() {
    let mode = DeviceMode::Lvm;
    let volumes = open(mode);
    let mut order = order(&volumes, mode, 304 * MIB);
    order.erase_after = false;
    let made = volumes.create(&order).unwrap();
    let device = made.usable().unwrap().path.clone();
    let (programs, target) = (Programs::default(), Path::new(TARGET));
    programs.format(&device, FileSystem::Xfs).unwrap();
    assert!(programs.format(&device, FileSystem::Ext4).is_err());
    let mounted = programs.mount(
        &device,
        target,
        FileSystem::Xfs,
        Dax::Required,
        &["noatime"],
    );
    assert_eq!(mounted, Ok(true));

    let image = kata::make(target, &programs).unwrap();
    let size = fs::metadata(&image).unwrap().len();
    assert!(size > 200 * MIB, "{size}");
    assert_eq!(kata::make(target, &programs), Ok(image.clone()));
    let inner = kata::attach(&image, &programs).unwrap();
    assert_eq!(kata::attach(&image, &programs), Ok(inner.clone()));
    programs.format(&inner, FileSystem::Ext4).unwrap();
    let place = Path::new("/tmp/inner");
    fs::create_dir_all(place).unwrap();
    let mounted = programs.mount(&inner, place, FileSystem::Ext4, Dax::Preferred, &[]);
    assert_eq!(mounted, Ok(false), "a loop device has no dax");
    fs::write(place.join(GREETING), GREETING).unwrap();
    programs.unmount(place).unwrap();
    kata::detach(&image, &programs).unwrap();
    kata::detach(&image, &programs).unwrap();

    let node = Path::new("/tmp/node");
    File::create(node).unwrap();
    programs.unmount(target).unwrap();
    programs.bind(&device, node, false).unwrap();
    assert_eq!(detect(node), Ok(Contents::FileSystem(FileSystem::Xfs)));
    programs.unmount(node).unwrap();
    delete(&volumes, &order.id);
    println!("xfs, the image and a raw device have been used");
}
