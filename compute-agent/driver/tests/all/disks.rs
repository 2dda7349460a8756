//! Goal: a simulated hypervisor holds what every driver is held to when disks travel; the bytes come as
//! they were, holes stay holes, and what does not fit, is out of order or is shared is refused.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;

use berth_domain::agent::Side;
use berth_domain::id::{MigrationId, VmUid};
use berth_domain::vm::{Disk, DiskFormat};
use berth_driver::conformance::disks::{self as conformance, Travel};
use berth_driver::conformance::sample;
use berth_driver::disks::{DiskReader, DiskWriter, Hooks, PIECE_MAX, Piece, Place, drop_disks};
use berth_driver::sim::SimDriver;
use berth_driver::sim::driver::Config;
use berth_driver::{DomainSpec, Driver as _, Error};
use tempfile::TempDir;
use uuid::Uuid;

const MIGRATION: MigrationId = MigrationId(Uuid::from_u128(7));
const VM: VmUid = VmUid(Uuid::from_u128(8));

fn driver(disks: &Path) -> SimDriver {
    SimDriver::start(Config {
        disk_dir: Some(disks.to_owned()),
        ..Config::new(sample::host(1))
    })
    .unwrap()
}

fn guest(number: u32) -> DomainSpec {
    let mut spec = sample::plain_spec(1);
    let disk = |image: Option<&str>| Disk {
        image: image.map(str::to_owned),
        format: DiskFormat::Qcow2,
        size_gib: 1,
        seed: false,
    };
    spec.disks = vec![disk(Some("disk.qcow2")), disk(None)];
    let assignment = berth_domain::numa::Assignment::default();
    sample::domain("a", number.into(), spec, assignment)
}

#[test]
fn it_conforms() {
    let (here, there) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    conformance::run(&Travel {
        source: &driver(here.path()),
        destination: &driver(there.path()),
        guest: &guest,
        moved: &Clone::clone,
    });
}

fn place(directory: &Path, disks: usize) -> Place {
    let files = (0..disks).map(|n| directory.join(format!("disk{n}")));
    Place {
        directory: directory.to_owned(),
        files: files.collect(),
    }
}

fn open(place: &Place) -> DiskReader {
    DiskReader::open(VM, place, MIGRATION).unwrap()
}

fn begin(place: &Place, hooks: Hooks) -> DiskWriter {
    let lengths_max = vec![64 << 20; place.files.len()];
    DiskWriter::begin(place.clone(), MIGRATION, lengths_max, hooks)
        .unwrap()
        .unwrap()
}

fn pieces(place: &Place) -> Vec<Piece> {
    let mut disks = open(place);
    std::iter::from_fn(|| disks.next_piece().unwrap()).collect()
}

/// Two disks: one with data at odd places and zeros that are not holes, and one that is empty.
fn source(directory: &Path) -> Place {
    let place = place(directory, 3);
    let first = fs::File::create(&place.files[0]).unwrap();
    first.set_len(64 << 20).unwrap();
    first.write_all_at(b"head", 0).unwrap();
    first.write_all_at(&[9; 3 << 20], (5 << 20) + 77).unwrap();
    first.write_all_at(&[0; 2 << 20], 20 << 20).unwrap();
    first.write_all_at(b"tail", (64 << 20) - 4).unwrap();
    fs::File::create(&place.files[1]).unwrap();
    let third = fs::File::create(&place.files[2]).unwrap();
    third.set_len(10_000).unwrap();
    place
}

#[test]
fn bytes_come_as_they_were_and_holes_stay_holes() {
    let (here, there) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let from = source(here.path());
    let to = place(&there.path().join("guest"), 3);
    let all = pieces(&from);
    let sent: usize = all
        .iter()
        .map(|piece| match piece {
            Piece::Data { bytes, .. } => bytes.len(),
            Piece::Hole { .. } => 0,
        })
        .sum();
    assert!(sent < 6 << 20, "zeros are not sent: {sent}");
    let is_small =
        |piece: &Piece| !matches!(piece, Piece::Data { bytes, .. } if bytes.len() > PIECE_MAX);
    assert!(all.iter().all(is_small));
    let mut writer = begin(&to, Hooks::default());
    writer.expect(open(&from).sizes()).unwrap();
    for piece in &all {
        writer.write(piece).unwrap();
        assert!(
            to.files.iter().all(|file| !file.exists()),
            "it is not whole"
        );
    }
    writer.finish().unwrap();
    for (old, new) in from.files.iter().zip(&to.files) {
        assert_eq!(fs::read(old).unwrap(), fs::read(new).unwrap());
        let (old, new) = (fs::metadata(old).unwrap(), fs::metadata(new).unwrap());
        assert!(new.blocks() <= old.blocks());
        assert_eq!(new.mode() & 0o077, 0, "others may read it");
    }
    let mut left: Vec<_> = fs::read_dir(&to.directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["disk0", "disk1", "disk2", "fetched"]);
}

#[test]
fn what_is_lost_twice_or_too_much_is_refused() {
    let (here, there) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let from = source(here.path());
    let all = pieces(&from);
    for broken in 0..all.len() {
        let mut lost = all.clone();
        lost.remove(broken);
        let mut twice = all.clone();
        twice.insert(broken, all[broken].clone());
        for told in [lost, twice] {
            let to = place(&there.path().join("guest"), 3);
            let mut writer = begin(&to, Hooks::default());
            writer.expect(open(&from).sizes()).unwrap();
            let written = told.iter().try_for_each(|piece| writer.write(piece));
            let done = written.and_then(|()| writer.finish());
            assert!(matches!(done, Err(Error::Refused { .. })), "{done:?}");
            assert!(to.files.iter().all(|file| !file.exists()));
        }
    }
    let to = place(&there.path().join("guest"), 2);
    let mut writer = begin(&to, Hooks::default());
    let other = writer.expect(open(&from).sizes());
    assert!(matches!(other, Err(Error::Refused { .. })), "{other:?}");
    drop_disks(&to.directory, MIGRATION, Side::Destination).unwrap();
    assert!(!to.directory.exists(), "nothing is left");
}

#[test]
fn there_has_to_be_room_before_anything_is_written() {
    let (here, there) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let from = source(here.path());
    let to = place(&there.path().join("guest"), 3);
    let hooks = Hooks {
        free_space: Box::new(|_| Ok(17 << 20)),
        ..Hooks::default()
    };
    let refused = begin(&to, hooks).expect(open(&from).sizes()).unwrap_err();
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    let said = refused.to_string();
    assert!(
        said.contains("need") && said.contains("1 MiB free"),
        "{said}"
    );
    let parts = fs::read_dir(&to.directory).unwrap().count();
    assert_eq!(parts, 1, "the mark alone");
}

/// Goal: of what an untrusted host sends no more is written than it announced, than a disk can have, and than
/// there is space for at that moment; and nothing of it stays. Method: every lie about every number.
#[test]
fn no_more_is_written_than_is_announced_allowed_and_free() {
    let (here, there) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let from = source(here.path());
    let to = place(&there.path().join("guest"), 3);
    let all = pieces(&from);
    let right = open(&from).sizes();
    let sent = |piece: &Piece| match piece {
        Piece::Data { bytes, .. } => bytes.len() as u64,
        Piece::Hole { .. } => 0,
    };
    let total: u64 = all.iter().map(sent).sum();
    let announced: u64 = right.iter().map(|size| size.allocated).sum();
    assert!(total <= announced, "{total} of {announced}");
    let written = || {
        let files = fs::read_dir(&to.directory).unwrap();
        let blocks = files.map(|file| file.unwrap().metadata().unwrap().blocks());
        blocks.sum::<u64>() * 512
    };
    // What the marks of a fetch and the rounding to blocks take.
    let slack = 64 * 1024;
    let receive = |sizes: Vec<_>, hooks| {
        let mut writer = begin(&to, hooks);
        let mut done = writer.expect(sizes);
        for piece in &all {
            done = done.and_then(|()| writer.write(piece));
        }
        let most = written();
        let done = done.and_then(|()| writer.finish());
        (done, most)
    };

    for lie in [0, 1, total / 2, total - 1] {
        let mut sizes = right.clone();
        for (index, size) in sizes.iter_mut().enumerate() {
            size.allocated = if index == 0 { lie } else { 0 };
        }
        let (refused, most) = receive(sizes, Hooks::default());
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("were announced"), "{message}");
        assert!(most <= lie + slack, "{most} bytes of {lie}");
        assert_eq!(fs::read_dir(&to.directory).unwrap().count(), 1, "the mark");
    }

    // The space goes while the disks come: the first call is that before anything is made.
    for enough_for in 0..3 {
        let calls = std::sync::atomic::AtomicUsize::new(0);
        let free_space = move |_: &Path| {
            let call = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(if call > enough_for { 16 << 20 } else { 1 << 30 })
        };
        let hooks = Hooks {
            free_space: Box::new(free_space),
            ..Hooks::default()
        };
        let (refused, most) = receive(right.clone(), hooks);
        let refused = refused.unwrap_err();
        assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
        let allowed = enough_for as u64 * PIECE_MAX as u64 + slack;
        assert!(most <= allowed, "{most} bytes of {allowed}");
        assert_eq!(fs::read_dir(&to.directory).unwrap().count(), 1, "the mark");
    }

    for disk in 0..3 {
        for length in [(64 << 20) + 1, u64::MAX] {
            let mut sizes = right.clone();
            sizes[disk].length = length;
            let (refused, most) = receive(sizes, Hooks::default());
            let message = refused.unwrap_err().to_string();
            assert!(message.contains("at most"), "{message}");
            assert!(most <= slack, "nothing is made: {most}");
        }
    }

    let (done, _) = receive(right, Hooks::default());
    done.unwrap();
}

/// A sender of nothing would send it for ever.
#[test]
fn pieces_of_nothing_are_refused() {
    let (here, there) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let from = source(here.path());
    let (disk, offset) = (0, 0);
    let nothing = [
        Piece::Hole {
            disk,
            offset,
            length: 0,
        },
        Piece::Data {
            disk,
            offset,
            bytes: Vec::new(),
        },
    ];
    for piece in nothing {
        let mut writer = begin(&place(&there.path().join("guest"), 3), Hooks::default());
        writer.expect(open(&from).sizes()).unwrap();
        let refused = writer.write(&piece);
        assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    }
}

/// The two hosts say that they have storages of their own, and have one: nothing of it is overwritten or
/// deleted.
#[test]
fn a_directory_that_is_shared_after_all_is_noticed() {
    let shared = TempDir::new().unwrap();
    let place = source(shared.path());
    let read = || place.files.iter().map(|file| fs::read(file).unwrap());
    let before: Vec<Vec<u8>> = read().collect();
    let refused = DiskWriter::begin(place.clone(), MIGRATION, Vec::new(), Hooks::default());
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("is there already"), "{said}");
    // Where the disks were fetched to once, the source says it.
    fs::write(place.directory.join("fetched"), Uuid::nil().to_string()).unwrap();
    let writer = begin(&place, Hooks::default());
    let refused = DiskReader::open(VM, &place, MIGRATION).unwrap_err();
    assert!(matches!(refused, Error::StorageShared { .. }), "{refused}");
    drop(writer);
    for side in [Side::Source, Side::Destination] {
        drop_disks(&place.directory, MIGRATION, side).unwrap();
        assert_eq!(read().collect::<Vec<_>>(), before);
    }
}

/// A machine that loses its power between two names has begun, and does so anew.
#[test]
fn disks_of_which_some_have_their_names_are_fetched_anew() {
    let (here, there) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let from = source(here.path());
    let to = place(&there.path().join("guest"), 3);
    let fetch = || {
        let mut writer = begin(&to, Hooks::default());
        writer.expect(open(&from).sizes()).unwrap();
        for piece in pieces(&from) {
            writer.write(&piece).unwrap();
        }
        writer.finish().unwrap();
    };
    fetch();
    fs::write(to.directory.join("fetching"), MIGRATION.0.to_string()).unwrap();
    fs::remove_file(&to.files[2]).unwrap();
    fetch();
    let again = DiskWriter::begin(to.clone(), MIGRATION, Vec::new(), Hooks::default());
    assert!(matches!(again, Ok(None)), "{again:?}");
    fs::write(to.directory.join("fetching"), MIGRATION.0.to_string()).unwrap();
    drop_disks(&to.directory, MIGRATION, Side::Destination).unwrap();
    assert!(
        !to.directory.exists(),
        "half of the names are the migration's too"
    );
}

/// Goal: a seed that is lost is reported as such, by a start and by a rebuild, which cannot make it again;
/// other disks can be made again.
#[test]
fn a_lost_seed_stays_lost() {
    let folder = TempDir::new().unwrap();
    let driver = driver(folder.path());
    let mut guest = guest(9);
    guest.spec.disks.push(Disk::SEED);
    guest.first_boot = Some(Arc::default());
    driver.create(&guest).unwrap();
    driver.stop(guest.uid).unwrap();
    guest.first_boot = None;
    let file = |n: usize| {
        folder
            .path()
            .join(guest.uid.to_string())
            .join(format!("disk{n}.raw"))
    };
    fs::remove_file(file(0)).unwrap();
    let missing = driver.start(&guest);
    assert!(matches!(missing, Err(Error::DiskMissing { index: 0, .. })));
    driver.make_disks(&guest).unwrap();
    let seed = fs::read(file(2)).unwrap();
    assert!(seed.windows(6).any(|part| part == b"CIDATA"), "it is kept");
    fs::remove_file(file(2)).unwrap();
    for refused in [driver.make_disks(&guest), driver.start(&guest)] {
        assert!(
            matches!(refused, Err(Error::SeedMissing { .. })),
            "{refused:?}"
        );
    }
}
