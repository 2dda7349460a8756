//! Conformance suite of [`VolumeManager`]: run against simulated memory in this crate and
//! against real namespaces and volume groups where there are any.
//!
//! Method: a host whose regions hold no volume yet, and foreign devices. Each check states in its name
//! what it checks, removes what it made, and panics with what was seen. Bytes are written and read past
//! the manager, as a user of the volume would. On a real host each device that is made takes
//! seconds, so that a check covers several properties of the same one.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use berth_domain::name::{RegionName, VolumeId};
use berth_domain::volume::{DeviceMode, Region, Taken, gross_bytes, net_bytes};

use super::manager::{BEGINNING_BYTES, Device, Error, VolumeManager, Watch, Wipe};

/// What the suite runs on.
pub struct Bench<'a> {
    /// Begins as an agent does that starts. It overwrites in pieces of an eighth of a region at most.
    pub start: &'a dyn Fn() -> Arc<dyn VolumeManager>,
    /// Writes a run of a byte into a device.
    pub write: &'a dyn Fn(&Device, u64, u64, u8),
    /// Reads from a device.
    pub read: &'a dyn Fn(&Device, u64, usize) -> Vec<u8>,
    /// Opens a device as a file system does that is mounted, until what is returned is dropped.
    pub hold: &'a dyn Fn(&Device) -> Box<dyn Any>,
    /// Lists the foreign devices on the host, with their contents.
    pub foreign: &'a dyn Fn() -> String,
}

/// Runs the whole suite.
///
/// # Panics
///
/// At the first thing that a manager does not hold.
pub fn run(bench: &Bench<'_>) {
    let foreign = (bench.foreign)();
    regions_are_reported_and_stay_so(bench);
    what_cannot_be_made_is_refused(bench);
    a_device_is_made_once_and_goes_when_unused(bench);
    the_largest_can_be_made_and_its_contents_go(bench);
    holes_are_used_as_the_domain_says(bench);
    assert_eq!((bench.foreign)(), foreign, "what others have is as it was");
}

/// How much is written and read back in one position: no more than is zeroed at the beginning.
const WITNESS: u64 = BEGINNING_BYTES;
const BYTE: u8 = 0xa5;

/// Returns the id of one of the suite's volumes.
fn id(number: u32) -> VolumeId {
    VolumeId::new(&format!("suite-{number:032x}")).expect("a volume's name")
}

fn start(bench: &Bench<'_>) -> Arc<dyn VolumeManager> {
    let manager = (bench.start)();
    manager.prepare().expect("it can be prepared");
    manager
}

/// Returns the largest region as it is now.
fn region(manager: &dyn VolumeManager) -> Region {
    let regions = manager.regions().expect("regions");
    let largest = regions.into_iter().max_by_key(|region| region.largest(&[]));
    largest.expect("a region")
}

fn remove(manager: &dyn VolumeManager, id: &VolumeId, wipe: Wipe) -> Result<(), Error> {
    let watch = Watch {
        stop: &AtomicBool::new(false),
        progress: &|_| {},
    };
    manager.delete(id, wipe, &watch)
}

/// Where a device is looked at: its beginning, its end, and some between.
fn places(device: &Device) -> Vec<u64> {
    let last = device.size_bytes - WITNESS;
    let between = (0..=16).map(|part| last / 16 * part / WITNESS * WITNESS);
    between.chain([last]).collect()
}

fn write_everywhere(bench: &Bench<'_>, device: &Device) {
    for place in places(device) {
        (bench.write)(device, place, WITNESS, BYTE);
    }
}

fn check_bytes(bench: &Bench<'_>, device: &Device, places: &[u64], byte: u8) {
    let length = usize::try_from(WITNESS).expect("a small number");
    for place in places {
        let bytes = (bench.read)(device, *place, length);
        assert!(
            bytes.len() == length && bytes.iter().all(|found| *found == byte),
            "{} at {place} is not {byte}",
            device.id
        );
    }
}

/// Compares a device with the request.
fn check_device(device: &Device, region: &Region, gross_bytes: u64) {
    assert_eq!(device.region, region.name);
    assert_eq!(device.mode, region.mode);
    assert_eq!(device.gross_bytes, gross_bytes);
    assert_eq!(device.size_bytes, net_bytes(region.mode, gross_bytes));
    assert_eq!(device.trouble, "");
    assert_ne!(device.uuid, "");
    assert!(device.path.starts_with("/dev"), "{device:?}");
    let extent = device.extent.map(|extent| extent.length_bytes);
    let expected = (region.mode == DeviceMode::Direct).then_some(gross_bytes);
    assert_eq!(extent, expected);
}

/// Holds that preparing again and starting again change nothing, and that regions can be used.
pub fn regions_are_reported_and_stay_so(bench: &Bench<'_>) {
    let manager = start(bench);
    let regions = manager.regions().expect("regions");
    assert!(!regions.is_empty());
    for region in &regions {
        assert_eq!(region.mode, manager.mode());
        assert!(region.align_bytes > 0);
    }
    // There may be others that are full of what is not ours.
    let usable = region(manager.as_ref());
    assert_eq!(usable.trouble, "", "{usable:?}");
    assert!(usable.largest(&[]) > 0, "{usable:?}");
    assert!(regions.is_sorted_by(|a, b| a.name < b.name));
    assert_eq!(start(bench).regions(), Ok(regions));
    assert_eq!(manager.devices(), Ok(Vec::new()));
}

/// Holds that odd names, sizes and regions are refused, and leave nothing behind.
pub fn what_cannot_be_made_is_refused(bench: &Bench<'_>) {
    let manager = start(bench);
    let region = region(manager.as_ref());
    let (name, align) = (&region.name, region.align_bytes);
    let refused = |id: &VolumeId, region: &RegionName, bytes: u64| {
        let refused = manager.create(id, region, bytes);
        refused.expect_err("what cannot be made")
    };
    for bytes in [0, 1, align - 1, align + 1, u64::MAX] {
        let error = refused(&id(1), name, bytes);
        assert!(matches!(error, Error::OddSize { .. }), "{bytes}: {error}");
    }
    let large = (1 << 63) / align * align;
    for bytes in [region.capacity_bytes / align * align + align, large] {
        let error = refused(&id(1), name, bytes);
        assert!(matches!(error, Error::NoSpace { .. }), "{bytes}: {error}");
    }
    for odd in ["pmem-csi", "a", "lvol0", "x..--", "1234567890"] {
        let odd = VolumeId::new(odd).expect("a name");
        let error = refused(&odd, name, align);
        assert!(matches!(error, Error::OddId { .. }), "{error}");
        // A device of such a name is foreign.
        assert_eq!(remove(manager.as_ref(), &odd, Wipe::Nothing), Ok(()));
    }
    let nowhere = RegionName::new("region4711").expect("a name");
    let error = refused(&id(1), &nowhere, align);
    assert!(matches!(error, Error::NoRegion { .. }), "{error}");
    assert_eq!(remove(manager.as_ref(), &id(1), Wipe::Nothing), Ok(()));
    assert_eq!(manager.devices(), Ok(Vec::new()));
}

/// Checks that making a device twice leaves it untouched, that it is not removed while a process has
/// it open, and that a removal that was stopped continues.
pub fn a_device_is_made_once_and_goes_when_unused(bench: &Bench<'_>) {
    let manager = start(bench);
    let region = region(manager.as_ref());
    let gross = region.capacity_bytes / 4 / region.align_bytes * region.align_bytes;
    let gross = gross.max(region.align_bytes);
    let made = manager.create(&id(1), &region.name, gross);
    let device = made.expect("room for it");
    check_device(&device, &region, gross);
    check_bytes(bench, &device, &[0], 0);
    assert_eq!(manager.users(&id(1)), Ok(Vec::new()));
    write_everywhere(bench, &device);
    // As an agent that has lost the reply.
    let again = start(bench);
    assert_eq!(
        again.create(&id(1), &region.name, gross).as_ref(),
        Ok(&device)
    );
    check_bytes(bench, &device, &places(&device), BYTE);
    let other = again.create(&id(1), &region.name, gross + region.align_bytes);
    let other = other.expect_err("another size");
    assert!(matches!(other, Error::Exists { .. }), "{other}");
    assert_eq!(again.devices(), Ok(vec![device.clone()]));

    let held = (bench.hold)(&device);
    let users = again.users(&id(1)).expect("it can be seen");
    assert!(!users.is_empty());
    for wipe in [
        Wipe::Nothing,
        Wipe::Beginning,
        Wipe::Everything { from_bytes: 0 },
    ] {
        let error = remove(again.as_ref(), &id(1), wipe).expect_err("it is in use");
        assert!(matches!(error, Error::Busy { .. }), "{error}");
    }
    check_bytes(bench, &device, &places(&device), BYTE);
    drop(held);

    let done = stop_after_one_piece(again.as_ref(), &device);
    let (before, after): (Vec<u64>, Vec<u64>) = places(&device)
        .into_iter()
        .partition(|place| place + WITNESS <= done);
    check_bytes(bench, &device, &before, 0);
    check_bytes(bench, &device, &after, BYTE);
    // What is overwritten is not overwritten again.
    (bench.write)(&device, 0, WITNESS, 1);
    let first = Cell::new(None);
    let progress = |bytes: u64| first.set(first.get().or(Some(bytes)));
    let watch = Watch {
        stop: &AtomicBool::new(false),
        progress: &progress,
    };
    let from = Wipe::Everything { from_bytes: done };
    assert_eq!(again.delete(&id(1), from, &watch), Ok(()));
    assert!(first.get() > Some(done), "{first:?} after {done}");
    assert_eq!(again.devices(), Ok(Vec::new()));
    assert_eq!(
        remove(again.as_ref(), &id(1), Wipe::Everything { from_bytes: 0 }),
        Ok(())
    );
}

/// Stops a removal after its first piece, and returns how far that was.
fn stop_after_one_piece(manager: &dyn VolumeManager, device: &Device) -> u64 {
    let stop = AtomicBool::new(false);
    let reported = RefCell::new(Vec::new());
    let progress = |bytes: u64| {
        reported.borrow_mut().push(bytes);
        stop.store(true, Ordering::Release);
    };
    let watch = Watch {
        stop: &stop,
        progress: &progress,
    };
    let wipe = Wipe::Everything { from_bytes: 0 };
    let stopped = manager.delete(&device.id, wipe, &watch);
    let id = device.id.clone();
    assert_eq!(stopped, Err(Error::Stopped { id }));
    let reported = reported.into_inner();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(
        0 < reported[0] && reported[0] < device.size_bytes,
        "{reported:?}"
    );
    reported[0]
}

/// Checks that the largest volume that a region reports can be made, that one step more cannot, and that
/// its contents are gone when the space is assigned to others.
pub fn the_largest_can_be_made_and_its_contents_go(bench: &Bench<'_>) {
    let manager = start(bench);
    let region = region(manager.as_ref());
    let largest = region.largest(&[]);
    let gross = gross_bytes(region.mode, largest, region.align_bytes).expect("a size");
    let more = manager.create(&id(2), &region.name, gross + region.align_bytes);
    let more = more.expect_err("more than there is");
    assert!(matches!(more, Error::NoSpace { .. }), "{more}");
    assert_eq!(manager.devices(), Ok(Vec::new()));
    let device = manager.create(&id(2), &region.name, gross);
    let device = device.expect("the largest volume");
    check_device(&device, &region, gross);
    assert_eq!(device.size_bytes, largest);
    let regions = manager.regions().expect("regions");
    assert!(
        regions.contains(&region),
        "a volume leaves its region as it is"
    );
    write_everywhere(bench, &device);
    let wipe = Wipe::Everything { from_bytes: 0 };
    assert_eq!(remove(manager.as_ref(), &id(2), wipe), Ok(()));
    let again = manager.create(&id(3), &region.name, gross);
    let again = again.expect("the same space");
    assert_ne!(again.uuid, device.uuid);
    check_bytes(bench, &again, &places(&again), 0);
    // Where it need not be overwritten, its beginning goes all the same.
    write_everywhere(bench, &again);
    assert_eq!(remove(manager.as_ref(), &id(3), Wipe::Beginning), Ok(()));
    let small = manager.create(&id(4), &region.name, region.align_bytes);
    let small = small.expect("room for it");
    check_bytes(bench, &small, &[0], 0);
    assert_eq!(remove(manager.as_ref(), &id(4), wipe), Ok(()));
}

/// Holds that a new device lies where the domain predicts, a hole between others included.
pub fn holes_are_used_as_the_domain_says(bench: &Bench<'_>) {
    let manager = start(bench);
    let region = region(manager.as_ref());
    let align = region.align_bytes;
    let mut devices: Vec<Device> = Vec::new();
    let make = |devices: &mut Vec<Device>, number: u32, gross: u64| {
        let taken: Vec<Taken> = devices.iter().map(taken).collect();
        let predicted = region.place(net_bytes(region.mode, gross), &taken);
        let device = manager.create(&id(number), &region.name, gross);
        let device = device.expect("room for it");
        assert_eq!(predicted.and_then(|taken| taken.extent), device.extent);
        devices.push(device);
    };
    make(&mut devices, 5, align);
    make(&mut devices, 6, align);
    make(&mut devices, 7, align);
    assert_eq!(remove(manager.as_ref(), &id(6), Wipe::Nothing), Ok(()));
    devices.remove(1);
    make(&mut devices, 8, 2 * align);
    make(&mut devices, 9, align);
    let found = manager.devices().expect("devices");
    let ids: Vec<&VolumeId> = found.iter().map(|device| &device.id).collect();
    assert_eq!(ids, [&id(5), &id(7), &id(8), &id(9)]);
    for device in &devices {
        assert!(found.contains(device), "{device:?}");
        assert_eq!(remove(manager.as_ref(), &device.id, Wipe::Nothing), Ok(()));
    }
    assert_eq!(manager.devices(), Ok(Vec::new()));
}

fn taken(device: &Device) -> Taken {
    Taken {
        gross_bytes: device.gross_bytes,
        extent: device.extent,
    }
}
