//! Goal: no file of the host is opened because of bytes in an image or on the disk of a guest, and what such
//! a file holds is in no result.
//!
//! Method: images as an attacker makes them, by hand and with `qemu-img`, in the place of every file that the
//! driver opens. The kernel reports each open of the secret by any process; that it does is shown first, with
//! a `qemu-img` that Berth does not call. libvirt's test hypervisor stands in for QEMU, except in the last
//! test.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::Command;

use berth_domain::agent::Side;
use berth_domain::id::{MigrationId, OperationId};
use berth_domain::numa::Assignment;
use berth_domain::transfer::DiskCopy;
use berth_domain::vm::{Disk, DiskFormat};
use berth_driver::conformance::images::{Attack, DISK_BYTES, attacks, sound};
use berth_driver::conformance::sample;
use berth_driver::disks::{DiskReader, DiskSize, PIECE_MAX, Piece, Place};
use berth_driver::libvirt::LibvirtDriver;
use berth_driver::libvirt::driver::{Config, HostSources};
use berth_driver::xml::{Settings, VirtType};
use berth_driver::{DomainSpec, Draft, Driver, Error, NoPmem};
use berth_tests::lab::{Lab, images};
use rustix::fd::OwnedFd;
use rustix::fs::inotify;
use uuid::Uuid;

/// What no result may hold.
const MARK: &[u8] = b"a secret of the host ";

/// A file of the host that no guest may read.
struct Secret {
    path: PathBuf,
    watch: OwnedFd,
}

impl Secret {
    fn write(path: PathBuf) -> Self {
        fs::write(&path, MARK.repeat(4096)).unwrap();
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, &path, inotify::WatchFlags::OPEN).unwrap();
        Self { path, watch }
    }

    /// Returns whether a process has opened it since the last call.
    fn was_opened(&self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.watch, &mut buffer);
        let mut opened = false;
        loop {
            match events.next() {
                Ok(_) => opened = true,
                Err(rustix::io::Errno::WOULDBLOCK) => return opened,
                Err(error) => panic!("the watch is broken: {error}"),
            }
        }
    }
}

/// A host with an image, guests and a secret.
struct World {
    directory: tempfile::TempDir,
    driver: LibvirtDriver,
    secret: Secret,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let place = |name: &str| directory.path().join(name);
        fs::create_dir(place("images")).unwrap();
        for name in ["kernel", "initrd", "base"] {
            fs::write(place("images").join(name), vec![b'x'; 4096]).unwrap();
        }
        let config = Config {
            uri: "test:///default".to_owned(),
            migration_uri: "test:///default".to_owned(),
            settings: Settings {
                virt_type: VirtType::Qemu,
                machine: "q35".to_owned(),
                emulator: None,
                image_dir: place("images"),
                instance_dir: place("instances"),
                runtime_dir: place("run"),
                disk_cache: "none".to_owned(),
            },
            qemu_img: PathBuf::from("qemu-img"),
            network_devices: PathBuf::from("/sys/class/net"),
            proc: PathBuf::from("/proc"),
            log_dir: place("log"),
            bandwidth_mib_per_s_max: None,
        };
        let host = HostSources {
            free_pages: Box::new(|| Err(Error::refused("no pages are needed"))),
            tls: Box::new(|| Err(Error::refused("nothing is sent"))),
        };
        let driver = LibvirtDriver::new(config, host, Box::new(NoPmem)).unwrap();
        let secret = Secret::write(place("secret"));
        Self {
            directory,
            driver,
            secret,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn image(&self, name: &str) -> PathBuf {
        self.path("images").join(name)
    }

    fn disk(&self, guest: &DomainSpec) -> PathBuf {
        let instance = self.path("instances").join(guest.uid.to_string());
        instance.join("disk0.qcow2")
    }

    /// Gives a guest this file as its disk.
    fn give(&self, guest: &DomainSpec, bytes: &[u8]) {
        let disk = self.disk(guest);
        fs::create_dir_all(disk.parent().expect("a directory")).unwrap();
        fs::write(disk, bytes).unwrap();
    }

    /// Checks that the secret was not opened, and that nothing of it is in any file of the driver's.
    #[track_caller]
    fn assert_secret(&self, what: &str) {
        assert!(!self.secret.was_opened(), "{what}: it was opened");
        let mut files = Vec::new();
        for directory in ["images", "instances"] {
            list(&self.path(directory), &mut files);
        }
        for path in files {
            assert!(!holds_mark(&path), "{what}: it is in {}", path.display());
        }
    }
}

fn list(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => list(&path, files),
            false => files.push(path),
        }
    }
}

/// Looks for the mark where a file has data.
fn holds_mark(path: &Path) -> bool {
    let place = Place {
        directory: path.parent().expect("a file").to_owned(),
        files: vec![path.to_owned()],
    };
    let (vm, migration) = (berth_domain::id::VmUid(Uuid::nil()), migration());
    let mut disk = DiskReader::open(vm, &place, migration).unwrap();
    std::iter::from_fn(|| disk.next_piece().unwrap()).any(|piece| match piece {
        Piece::Data { bytes, .. } => bytes.windows(MARK.len()).any(|part| part == MARK),
        Piece::Hole { .. } => false,
    })
}

fn migration() -> MigrationId {
    MigrationId(Uuid::from_u128(7))
}

/// Returns a guest with one disk.
fn guest(number: u128, image: Option<&str>, format: DiskFormat) -> DomainSpec {
    let mut spec = sample::plain_spec(1);
    spec.disks = vec![Disk {
        image: image.map(str::to_owned),
        format,
        size_gib: DISK_BYTES >> 30,
        seed: false,
    }];
    sample::domain("attacker", number, spec, Assignment::default())
}

fn draft(number: u128, image: &str) -> Draft {
    Draft {
        operation: OperationId(Uuid::from_u128(number)),
        image: image.to_owned(),
    }
}

/// Runs `qemu-img` as Berth does not.
fn qemu_img(arguments: &[&str]) -> bool {
    let done = Command::new("qemu-img").args(arguments).output();
    done.expect("qemu-img").status.success()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// Returns images that the system's `qemu-img` makes.
fn made(world: &World) -> Vec<Attack> {
    let secret = &world.secret.path;
    let data = world.path("data-f");
    assert_eq!(text(&data).len(), text(secret).len());
    let data_file = format!("data_file={}", text(&data));
    let secret = text(secret);
    let inner = world.path("inner");
    let over = |name, format, file| (name, true, vec!["-f", format, "-F", "raw", "-b", file]);
    let plain = |name, format| (name, false, vec!["-f", format]);
    assert!(qemu_img(&[
        "create",
        "-f",
        "qcow2",
        "-F",
        "raw",
        "-b",
        secret,
        text(&inner),
        "1G"
    ]));
    let recipes = [
        over("made: qcow2 over the secret", "qcow2", secret),
        (
            "made: version 2 over the secret",
            true,
            vec![
                "-f",
                "qcow2",
                "-o",
                "compat=0.10",
                "-F",
                "raw",
                "-b",
                secret,
            ],
        ),
        (
            "made: over an image over the secret",
            true,
            vec!["-f", "qcow2", "-F", "qcow2", "-b", text(&inner)],
        ),
        (
            "made: data file",
            true,
            vec!["-f", "qcow2", "-o", &data_file],
        ),
        plain("made: snapshot", "qcow2"),
        over("made: qed over the secret", "qed", secret),
        over("made: qcow over the secret", "qcow", secret),
        plain("made: vdi", "vdi"),
        plain("made: vhdx", "vhdx"),
        plain("made: vhd", "vpc"),
        (
            "made: vmdk with an extent",
            false,
            vec!["-f", "vmdk", "-o", "subformat=monolithicFlat"],
        ),
        plain("made: vmdk", "vmdk"),
    ];
    let make = |(name, is_followed, options): (&'static str, bool, Vec<&str>)| {
        let file = world.path("made");
        let _ = fs::remove_file(&file);
        let path = text(&file);
        assert!(
            qemu_img(&[&["create", "-q"], &options[..], &[path, "1G"]].concat()),
            "{name}"
        );
        if name == "made: snapshot" {
            assert!(qemu_img(&["snapshot", "-c", "one", path]));
        }
        let mut bytes = fs::read(&file).unwrap();
        if let Some(at) = position(&bytes, text(&data).as_bytes()) {
            bytes[at..at + secret.len()].copy_from_slice(secret.as_bytes());
        }
        Attack {
            name,
            bytes,
            is_followed: is_followed && options[1] == "qcow2",
        }
    };
    recipes.into_iter().map(make).collect()
}

fn position(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

/// Returns all attacks, and checks that those that name the secret are followed where no check is made.
fn all_attacks(world: &World) -> Vec<Attack> {
    let mut all = made(world);
    all.extend(attacks(&world.secret.path, &world.image("base")));
    // Making them opens it.
    world.secret.was_opened();
    let (unchecked, out) = (world.path("unchecked"), world.path("out"));
    for attack in all.iter().filter(|attack| attack.is_followed) {
        fs::write(&unchecked, &attack.bytes).unwrap();
        qemu_img(&[
            "convert",
            "-f",
            "qcow2",
            "-O",
            "raw",
            text(&unchecked),
            text(&out),
        ]);
        assert!(world.secret.was_opened(), "{} is no attack", attack.name);
    }
    all
}

#[track_caller]
fn assert_refused(result: Result<(), Error>, what: &str) {
    assert!(
        matches!(result, Err(Error::ImageRefused { .. })),
        "{what}: {result:?}"
    );
}

/// Every attack, as every file that is used.
pub(crate) fn no_use_of_an_image_opens_another_file() {
    let world = World::new();
    let all = all_attacks(&world);
    let followed = all.iter().filter(|attack| attack.is_followed).count();
    println!(
        "{} images, of which {followed} open the secret without checks",
        all.len()
    );
    assert!(followed >= 10 && all.len() >= 60);
    for attack in &all {
        let driver = &world.driver;
        let what = |what: &str| format!("{what}, {}", attack.name);
        fs::write(world.image("evil"), &attack.bytes).unwrap();
        let over_evil = guest(1, Some("evil"), DiskFormat::Qcow2);
        let copy = [DiskCopy {
            index: 0,
            virtual_bytes: DISK_BYTES,
        }];
        assert_refused(driver.create(&over_evil), &what("boot"));
        assert_refused(driver.make_disks(&over_evil), &what("rebuild"));
        // A guest that has a disk smaller than its image already may be moved.
        if attack.name != "larger" {
            let moved = driver.prepare_incoming(&over_evil, &copy);
            assert_refused(moved, &what("live copy"));
            let fetched = driver.receive_disks(&over_evil, migration()).map(drop);
            assert_refused(fetched, &what("fetch below"));
        }
        world.assert_secret(&what("as an image"));

        for image in [Some("base"), None] {
            let victim = guest(2, image, DiskFormat::Raw);
            world.give(&victim, &attack.bytes);
            assert_refused(driver.start(&victim), &what("start"));
            assert_refused(
                driver.copy_disk(&victim, 0, &draft(1, "new")),
                &what("copy"),
            );
            assert_refused(driver.prepare_incoming(&victim, &[]), &what("live move"));
            driver.destroy(victim.uid).unwrap();
            fetch(&world, &victim, attack);
        }
        world.assert_secret(&what("as a disk"));
        let left = fs::read_dir(world.path("images")).unwrap().count();
        assert_eq!(left, 4, "{}: a draft is left", attack.name);
    }
    // Nothing is wrong with the uses themselves.
    fs::write(world.image("evil"), sound()).unwrap();
    let good = guest(3, Some("evil"), DiskFormat::Qcow2);
    world.driver.make_disks(&good).unwrap();
    world.driver.copy_disk(&good, 0, &draft(1, "new")).unwrap();
    world.driver.publish_image(&draft(1, "new")).unwrap();
    let over_new = guest(4, Some("new"), DiskFormat::Qcow2);
    world.driver.make_disks(&over_new).unwrap();
}

/// Another host sends an attack as the disk of a guest.
fn fetch(world: &World, guest: &DomainSpec, attack: &Attack) {
    let driver = &world.driver;
    let length = attack.bytes.len() as u64;
    let mut writer = driver
        .receive_disks(guest, migration())
        .unwrap()
        .expect("nothing is there");
    let size = DiskSize {
        length,
        allocated: length,
    };
    let mut done = writer.expect(vec![size]);
    for (index, piece) in attack.bytes.chunks(PIECE_MAX).enumerate() {
        let piece = Piece::Data {
            disk: 0,
            offset: (index * PIECE_MAX) as u64,
            bytes: piece.to_vec(),
        };
        done = done.and_then(|()| writer.write(&piece));
    }
    let done = done.and_then(|()| writer.finish());
    let has_image = guest.spec.disks[0].image.is_some();
    match done {
        // Its base was replaced, and nothing else was wrong with it.
        Ok(()) => {
            assert!(has_image, "{}", attack.name);
            let copied = driver.copy_disk(guest, 0, &draft(1, "new"));
            copied.expect(attack.name);
            driver.drop_image(&draft(1, "new")).unwrap();
        }
        Err(refused) => {
            let is_right = matches!(refused, Error::ImageRefused { .. });
            assert!(is_right, "{}: {refused}", attack.name);
            assert!(!world.disk(guest).exists());
        }
    }
    let dropped = driver.drop_disks(guest.uid, migration(), Side::Destination);
    dropped.unwrap();
    assert!(!world.disk(guest).parent().expect("a directory").exists());
}

/// Makes an image of the disk of a guest that wrote an attack to it.
fn snapshot(world: &World, bytes: &[u8], image: &str) -> PathBuf {
    let writer = guest(5, None, DiskFormat::Raw);
    let content = world.path("content");
    let mut file = File::create(&content).unwrap();
    file.write_all(bytes).unwrap();
    file.set_len(DISK_BYTES).unwrap();
    world.give(&writer, &[]);
    let disk = world.disk(&writer);
    assert!(qemu_img(&[
        "convert",
        "-f",
        "raw",
        "-O",
        "qcow2",
        text(&content),
        text(&disk)
    ]));
    world
        .driver
        .copy_disk(&writer, 0, &draft(1, image))
        .unwrap();
    world.driver.publish_image(&draft(1, image)).unwrap();
    world.driver.destroy(writer.uid).unwrap();
    world.image(image)
}

fn begins_with(path: &Path, bytes: &[u8]) -> bool {
    let mut read = vec![0; bytes.len()];
    let mut file = File::open(path).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_exact(&mut read).unwrap();
    read == bytes
}

/// A guest writes an attack to its raw disk; its image is named as a qcow2 image, and is one nowhere.
pub(crate) fn an_image_of_a_raw_disk_stays_raw() {
    let world = World::new();
    let all = all_attacks(&world);
    let driver = &world.driver;
    let named = all
        .iter()
        .filter(|attack| attack.is_followed || attack.name.starts_with("made"));
    for attack in named {
        let name = attack.name;
        let golden = snapshot(&world, &attack.bytes, "golden.qcow2");
        assert!(begins_with(&golden, &attack.bytes), "{name}: plain bytes");
        let as_qcow2 = guest(6, Some("golden.qcow2"), DiskFormat::Qcow2);
        let Err(Error::ImageRefused { why, hint, .. }) = driver.make_disks(&as_qcow2) else {
            panic!("{name}: it is used as qcow2");
        };
        assert!(why.contains("wrote it as raw"), "{name}: {why}");
        assert!(hint.contains("golden.qcow2:GIB:raw"), "{name}: {hint}");

        let as_raw = guest(6, Some("golden.qcow2"), DiskFormat::Raw);
        driver.make_disks(&as_raw).expect(name);
        driver.copy_disk(&as_raw, 0, &draft(2, "copy")).expect(name);
        driver.publish_image(&draft(2, "copy")).expect(name);
        assert!(
            begins_with(&world.image("copy"), &attack.bytes),
            "{name}: as it was"
        );
        driver.destroy(as_raw.uid).unwrap();
        world.assert_secret(name);

        // Copied to another host by hand, without the record.
        fs::rename(&golden, world.image("other.qcow2")).unwrap();
        for format in [DiskFormat::Qcow2, DiskFormat::Raw] {
            let other = guest(6, Some("other.qcow2"), format);
            assert_refused(driver.make_disks(&other), name);
        }
        world.assert_secret(name);
        for image in ["other.qcow2", "copy"] {
            fs::remove_file(world.image(image)).unwrap();
        }
    }
}

/// QEMU itself reads the image as it is declared, and so does the copy of a disk of a guest that runs.
pub(crate) fn qemu_does_not_look_into_a_raw_disk() {
    let lab = Lab::hypervisors(1).unwrap();
    let boot = images().unwrap();
    let shared = lab.directory().join("shared");
    let driver = super::driver::driver(&lab.machines()[0], &shared, &boot);
    let secret = Secret::write(lab.directory().join("secret"));
    let image_dir = shared.join("images");
    let all = attacks(&secret.path, &image_dir.join("base"));
    let attack = all.iter().find(|attack| attack.name == "backing, guessed");
    let attack = attack.expect("it is in the list");
    let mut file = File::create(image_dir.join("golden.qcow2")).unwrap();
    file.write_all(&attack.bytes).unwrap();
    file.set_len(DISK_BYTES).unwrap();
    let (raw, writer) = (DiskFormat::Raw, Uuid::from_u128(1));
    berth_driver::image::record::write(&image_dir, "golden.qcow2", raw, writer).unwrap();

    let mut guest = super::driver::guest(1, &boot);
    guest.spec.disks = vec![Disk {
        image: Some("golden.qcow2".to_owned()),
        format: raw,
        size_gib: 1,
        seed: false,
    }];
    driver.create(&guest).unwrap();
    driver
        .copy_disk(&guest, 0, &draft(2, "live.qcow2"))
        .unwrap();
    driver.publish_image(&draft(2, "live.qcow2")).unwrap();
    assert!(begins_with(&image_dir.join("live.qcow2"), &attack.bytes));
    driver.destroy(guest.uid).unwrap();
    assert!(!secret.was_opened());

    guest.spec.disks[0].image = Some("live.qcow2".to_owned());
    guest.spec.disks[0].format = DiskFormat::Qcow2;
    assert_refused(driver.create(&guest), "the copy of a running guest's disk");
    assert!(!secret.was_opened());
    assert!(
        File::open(&secret.path).is_ok() && secret.was_opened(),
        "it is watched"
    );
    super::driver::remove_sockets(&shared);
}
