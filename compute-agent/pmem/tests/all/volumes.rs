//! The keeper of volumes over simulated memory.
//!
//! Goal: whatever ends the program or goes wrong, no volume that was ready is lost, nothing stays
//! behind that nobody was given, and every call can be repeated. Method: the conformance suite; tables
//! of faults; the "process" ended at every step by a panic in there, and started again.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;

use tempfile::TempDir;

use berth_domain::name::{RegionName, VolumeId};
use berth_domain::volume::{DeviceMode, Extent};
use berth_pmem::volume::conformance::{self, Bench};
use berth_pmem::volume::record::Words;
use berth_pmem::volume::simulated::{Delays, Fault, Operation, Pace, SimulatedRegion, Step};
use berth_pmem::volume::{
    Error, Order, Phase, SimulatedManager, SimulatedMemory, VolumeManager, VolumeStore, Watch,
};

const GIB: u64 = 1 << 30;
const MODES: [DeviceMode; 2] = [DeviceMode::Lvm, DeviceMode::Direct];

fn region0() -> RegionName {
    RegionName::new("region0").unwrap()
}

fn id(number: u32) -> VolumeId {
    VolumeId::new(&format!("test-{number:032x}")).unwrap()
}

/// A folder in memory where there is one: all files are synced, and hundreds of them take a while.
fn folder() -> TempDir {
    let in_memory = tempfile::tempdir_in("/dev/shm");
    in_memory.or_else(|_| tempfile::tempdir()).unwrap()
}

/// A host with two regions, and things of others in the first one.
fn memory() -> SimulatedMemory {
    let memory = SimulatedMemory::new([
        SimulatedRegion::new("region0", 64 * GIB),
        SimulatedRegion::new("region1", 16 * GIB),
    ]);
    let extent = Extent {
        offset_bytes: 3 * GIB,
        length_bytes: 2 * GIB,
    };
    memory.add_foreign(&region0(), extent);
    memory
}

/// Begins as an agent does, with both managers, the one of that mode first.
fn open_with(
    memory: &SimulatedMemory,
    folder: &Path,
    mode: DeviceMode,
    pace: &Pace,
) -> VolumeStore {
    let mut modes = MODES;
    modes.sort_by_key(|other| *other != mode);
    let manager = |mode| -> Arc<dyn VolumeManager> {
        Arc::new(SimulatedManager::new(memory, mode).with_pace(pace.clone()))
    };
    let volumes = VolumeStore::open(folder, modes.map(manager).to_vec()).unwrap();
    volumes.prepare().unwrap();
    volumes
}

fn open(memory: &SimulatedMemory, folder: &Path, mode: DeviceMode) -> VolumeStore {
    let pace: Pace = Arc::new(|_: &Step| {});
    open_with(memory, folder, mode, &pace)
}

fn order(number: u32, mode: DeviceMode, gross_bytes: u64) -> Order {
    Order {
        id: id(number),
        region: region0(),
        mode,
        gross_bytes,
        erase_after: true,
        parameters: Words::from([("kataContainers".to_owned(), "true".to_owned())]),
    }
}

fn delete(volumes: &VolumeStore, id: &VolumeId) -> Result<(), Error> {
    let watch = Watch {
        stop: &AtomicBool::new(false),
        progress: &|_| {},
    };
    volumes.delete(id, &watch)
}

fn files(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// Removes the users again when it is dropped.
struct Held(SimulatedMemory, VolumeId);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.set_users(&self.1, &[]);
    }
}

#[test]
fn both_modes_pass_the_suite() {
    for mode in MODES {
        let memory = memory();
        if mode == DeviceMode::Lvm {
            SimulatedManager::new(&memory, mode).prepare().unwrap();
            memory.add_foreign_in_group(&region0(), 5 * GIB);
        }
        let start = || -> Arc<dyn VolumeManager> {
            let delays = Delays {
                piece_bytes: GIB,
                ..Delays::default()
            };
            Arc::new(SimulatedManager::new(&memory, mode).with_delays(delays))
        };
        conformance::run(&Bench {
            start: &start,
            write: &|device, offset, length, byte| memory.fill(&device.id, offset, length, byte),
            read: &|device, offset, length| memory.read(&device.id, offset, length),
            hold: &|device| -> Box<dyn Any> {
                memory.set_users(&device.id, &["somebody"]);
                Box::new(Held(memory.clone(), device.id.clone()))
            },
            foreign: &|| format!("{:?}", start().regions()),
        });
    }
}

#[test]
fn a_volume_lives_through_restarts_and_goes() {
    for mode in MODES {
        let memory = memory();
        let folder = folder();
        let path = folder.path().join("volumes");
        let volumes = open(&memory, &path, mode);
        let made = volumes.create(&order(1, mode, 2 * GIB)).unwrap();
        assert_eq!(made.record.phase, Phase::Ready);
        let file = path.join(format!("{}.json", id(1)));
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let targets = |words: &mut Words| {
            words.insert("/staging".to_owned(), "ext4".to_owned());
        };
        let staged = volumes.set_targets(&id(1), targets).unwrap();
        memory.fill(&id(1), 0, 100, 7);
        drop(volumes);

        let volumes = open(&memory, &path, mode);
        assert_eq!(volumes.list(), std::slice::from_ref(&staged));
        assert_eq!(volumes.create(&order(1, mode, 2 * GIB)), Ok(staged));
        assert_eq!(memory.read(&id(1), 0, 2), [7, 7]);
        let busy = delete(&volumes, &id(1)).unwrap_err().to_string();
        assert!(busy.ends_with("is in use: target /staging"), "{busy}");
        volumes.set_targets(&id(1), Words::clear).unwrap();
        memory.set_users(&id(1), &["process 7 (cat)"]);
        let busy = volumes.begin_delete(&id(1)).unwrap_err().to_string();
        assert!(busy.ends_with("is in use: process 7 (cat)"), "{busy}");
        assert_eq!(volumes.get(&id(1)).unwrap().record.phase, Phase::Ready);
        memory.set_users(&id(1), &[]);
        volumes.begin_delete(&id(1)).unwrap();
        assert_eq!(volumes.unfinished(), [id(1)]);
        let deleting = volumes.create(&order(1, mode, 2 * GIB)).unwrap_err();
        assert_eq!(deleting, Error::Deleting { id: id(1) });
        drop(volumes);

        let volumes = open(&memory, &path, mode);
        assert_eq!(volumes.unfinished(), [id(1)]);
        assert_eq!(delete(&volumes, &id(1)), Ok(()));
        assert_eq!(delete(&volumes, &id(1)), Ok(()));
        assert_eq!(volumes.list(), []);
        assert!(files(&path).is_empty());
    }
}

#[test]
fn the_same_again_is_the_same_and_another_is_refused() {
    let memory = memory();
    let folder = folder();
    let volumes = open(&memory, folder.path(), DeviceMode::Direct);
    let first = order(1, DeviceMode::Direct, 2 * GIB);
    let made = volumes.create(&first).unwrap();
    assert_eq!(volumes.create(&first), Ok(made));
    for other in [
        order(1, DeviceMode::Direct, 3 * GIB),
        order(1, DeviceMode::Lvm, 2 * GIB),
        Order {
            region: RegionName::new("region1").unwrap(),
            ..first.clone()
        },
    ] {
        let error = volumes.create(&other).unwrap_err();
        assert!(matches!(error, Error::Exists { .. }), "{error}");
    }
    memory.vanish(&id(1));
    let gone = volumes.create(&first).unwrap_err();
    assert!(
        matches!(gone, Error::Vanished { .. }),
        "not an empty one: {gone}"
    );
    drop(volumes);
    // It stays known, and can be deleted.
    let volumes = open(&memory, folder.path(), DeviceMode::Direct);
    let kept = volumes.get(&id(1)).unwrap();
    assert_eq!((kept.record.phase, kept.device), (Phase::Ready, None));
    assert_eq!(delete(&volumes, &id(1)), Ok(()));
    assert_eq!(volumes.list(), []);
}

#[test]
fn what_cannot_be_made_leaves_nothing_behind() {
    for mode in MODES {
        let memory = memory();
        let folder = folder();
        let volumes = open(&memory, folder.path(), mode);
        let mut odd = order(1, mode, 2 * GIB);
        odd.id = VolumeId::new("pmem-csi").unwrap();
        let mut nowhere = order(1, mode, 2 * GIB);
        nowhere.region = RegionName::new("region7").unwrap();
        let mut wordy = order(1, mode, 2 * GIB);
        wordy.parameters.insert("a".to_owned(), "b".repeat(1 << 20));
        for order in [
            odd,
            nowhere,
            wordy,
            order(1, mode, 0),
            order(1, mode, 1),
            order(1, mode, 1 << 63),
            order(1, mode, u64::MAX),
        ] {
            assert!(volumes.create(&order).is_err(), "{order:?}");
            assert_eq!(volumes.list(), []);
            assert!(files(folder.path()).is_empty());
        }
        let mut made = 0;
        let full = loop {
            match volumes.create(&order(made + 1, mode, 8 * GIB)) {
                Ok(_) => made += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, Error::NoSpace { .. }), "{full}");
        assert_eq!(volumes.list().len(), usize::try_from(made).unwrap());
        memory.set_trouble(&region0(), "a module has failed");
        let trouble = volumes.create(&order(99, mode, 4 * GIB)).unwrap_err();
        let said = "no volume can be made in region0: a module has failed";
        assert_eq!(trouble.to_string(), said);
    }
}

#[test]
fn every_fault_can_be_tried_again() {
    let faults = [Fault::Refused, Fault::InTheMiddle, Fault::Done];
    let operations = [
        Operation::Look,
        Operation::Create,
        Operation::Wipe,
        Operation::Remove,
    ];
    for (mode, fault, operation) in MODES.into_iter().flat_map(|mode| {
        let pair = move |fault| operations.map(|operation| (mode, fault, operation));
        faults.into_iter().flat_map(pair)
    }) {
        let memory = memory();
        let folder = folder();
        let volumes = open(&memory, folder.path(), mode);
        memory.order(operation, fault("it broke".to_owned()));
        let what = format!("{mode} {operation:?}");
        let first = volumes.create(&order(1, mode, 4 * GIB));
        assert_eq!(first.is_err(), operation == Operation::Create, "{what}");
        if first.is_err() {
            assert!(files(folder.path()).is_empty(), "{what}");
            volumes.create(&order(1, mode, 4 * GIB)).unwrap();
        }
        memory.fill(&id(1), 0, GIB, 9);
        if let Err(error) = delete(&volumes, &id(1)) {
            assert!(error.to_string().contains("it broke"), "{what}: {error}");
            delete(&volumes, &id(1)).unwrap();
        }
        assert!(files(folder.path()).is_empty(), "{what}");
        let again = volumes.create(&order(2, mode, 4 * GIB)).unwrap();
        assert_eq!(memory.read(&again.record.id, 0, 9), [0; 9], "{what}");
    }
}

/// A create that fails and whose leftovers cannot be removed either is tried again later.
#[test]
fn what_cannot_be_removed_at_once_is_removed_later() {
    for restarts in [false, true] {
        let mode = DeviceMode::Direct;
        let memory = memory();
        let folder = folder();
        let mut volumes = open(&memory, folder.path(), mode);
        memory.order(Operation::Create, Fault::InTheMiddle("it broke".to_owned()));
        memory.order(Operation::Remove, Fault::Refused("still broken".to_owned()));
        volumes.create(&order(1, mode, 4 * GIB)).unwrap_err();
        assert_eq!(volumes.get(&id(1)).unwrap().record.phase, Phase::Creating);
        if restarts {
            drop(volumes);
            volumes = open(&memory, folder.path(), mode);
            assert_eq!(volumes.list(), []);
        }
        let made = volumes.create(&order(1, mode, 5 * GIB)).unwrap();
        assert_eq!(made.usable().unwrap().gross_bytes, 5 * GIB);
    }
}

struct Killed;

/// Goal: from an end at any step of a volume's life the next start goes on. Method: the whole life is
/// told again and again, each time ended one step later, until it gets to its end.
#[test]
fn an_end_at_any_step_loses_nothing() {
    for mode in MODES {
        let steps = (0..).take_while(|at| ends_at(mode, *at)).count();
        assert!(steps > 10, "{mode}: {steps} steps");
    }
}

/// Returns whether it ended at that step; otherwise it got through.
fn ends_at(mode: DeviceMode, at: usize) -> bool {
    let memory = memory();
    let folder = folder();
    let left = AtomicUsize::new(usize::MAX);
    let left: &'static AtomicUsize = Box::leak(Box::new(left));
    let pace: Pace = Arc::new(move |_| {
        let counted = |n: usize| Some(n.saturating_sub(usize::from(n < usize::MAX)));
        if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, counted) == Ok(0) {
            left.store(usize::MAX, Ordering::SeqCst);
            std::panic::resume_unwind(Box::new(Killed));
        }
    });
    // A neighbour, which has nothing to do with all this.
    let volumes = open(&memory, folder.path(), mode);
    volumes.create(&order(9, mode, GIB)).unwrap();
    memory.fill(&id(9), 5000, 10, 3);
    drop(volumes);
    let is_ready = Cell::new(false);
    let is_given_up = Cell::new(false);
    left.store(at, Ordering::SeqCst);
    let life = || {
        let volumes = open_with(&memory, folder.path(), mode, &pace);
        volumes.create(&order(1, mode, 3 * GIB)).unwrap();
        is_ready.set(true);
        memory.fill(&id(1), 0, 3 * GIB - (1 << 28), 5);
        is_given_up.set(true);
        delete(&volumes, &id(1)).unwrap();
    };
    let ended = catch_unwind(AssertUnwindSafe(life));
    if let Err(panic) = &ended {
        assert!(panic.is::<Killed>(), "{mode}: a panic of its own at {at}");
    }
    left.store(usize::MAX, Ordering::SeqCst);
    let volumes = open(&memory, folder.path(), mode);
    assert!(
        files(folder.path())
            .iter()
            .all(|file| file.ends_with(".json"))
    );
    match volumes.get(&id(1)) {
        None => assert!(!is_ready.get() || is_given_up.get(), "{mode}: lost at {at}"),
        Some(volume) => {
            assert!(
                is_ready.get() || volume.record.phase == Phase::Ready,
                "{mode} {at}"
            );
            delete(&volumes, &id(1)).unwrap();
        }
    }
    // All of the space is free again, and nothing is in it.
    let again = volumes.create(&order(1, mode, 3 * GIB)).unwrap();
    let size = again.usable().unwrap().size_bytes;
    for place in (0..16).map(|part| size / 16 * part) {
        assert_eq!(
            memory.read(&id(1), place, 100),
            [0; 100],
            "{mode} {at} {place}"
        );
    }
    assert_eq!(memory.read(&id(9), 5000, 10), [3; 10]);
    ended.is_err()
}

/// PMEM-CSI holds one lock while it overwrites.
#[test]
fn erasing_keeps_nobody_from_other_volumes() {
    let mode = DeviceMode::Direct;
    let memory = SimulatedMemory::new([SimulatedRegion::new("region0", 1024 * GIB)]);
    let folder = folder();
    let (told, is_erasing) = channel();
    let (go_on, may_go_on) = channel::<()>();
    let (told, may_go_on) = (Mutex::new(Some(told)), Mutex::new(may_go_on));
    let pace: Pace = Arc::new(move |step| {
        if step.operation == Operation::Wipe
            && step.wiped_bytes == 5 * GIB
            && let Some(told) = told.lock().unwrap().take()
        {
            told.send(()).unwrap();
            // Until the other side has gone.
            let _ = may_go_on.lock().unwrap().recv();
        }
    });
    let volumes = open_with(&memory, folder.path(), mode, &pace);
    volumes.create(&order(1, mode, 512 * GIB)).unwrap();
    volumes.create(&order(2, mode, GIB)).unwrap();
    thread::scope(|scope| {
        let erasing = scope.spawn(|| delete(&volumes, &id(1)));
        is_erasing.recv().unwrap();
        volumes.create(&order(3, mode, 2 * GIB)).unwrap();
        volumes
            .set_targets(&id(3), |words| drop(words.insert("a".into(), "b".into())))
            .unwrap();
        delete(&volumes, &id(2)).unwrap();
        assert_eq!(volumes.regions().unwrap().len(), 1);
        assert_eq!(volumes.look(&id(3)).unwrap().record.phase, Phase::Ready);
        let shown = volumes.get(&id(1)).unwrap().record;
        assert_eq!(
            (shown.phase, shown.erased_bytes),
            (Phase::Deleting, 5 * GIB)
        );
        assert_eq!(volumes.unfinished(), []);
        let underway = Error::Underway { id: id(1) };
        assert_eq!(delete(&volumes, &id(1)), Err(underway.clone()));
        assert_eq!(volumes.create(&order(1, mode, GIB)), Err(underway));
        drop(go_on);
        assert_eq!(erasing.join().unwrap(), Ok(()));
    });
}

#[test]
fn an_erase_goes_on_from_where_it_was() {
    let mode = DeviceMode::Direct;
    let memory = memory();
    let folder = folder();
    let volumes = open(&memory, folder.path(), mode);
    volumes.create(&order(1, mode, 16 * GIB)).unwrap();
    let stop = AtomicBool::new(false);
    let watch = Watch {
        stop: &stop,
        progress: &|bytes| stop.store(bytes >= 6 * GIB, Ordering::SeqCst),
    };
    let stopped = volumes.delete(&id(1), &watch);
    assert_eq!(stopped, Err(Error::Stopped { id: id(1) }));
    drop(volumes);
    let volumes = open(&memory, folder.path(), mode);
    let seen = Mutex::new(Vec::new());
    let watch = Watch {
        stop: &AtomicBool::new(false),
        progress: &|bytes| seen.lock().unwrap().push(bytes),
    };
    volumes.delete(&id(1), &watch).unwrap();
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen.first(), Some(&(7 * GIB)));
}

#[test]
fn torn_and_foreign_files_are_moved_aside_and_volumes_found_again() {
    for mode in MODES {
        let memory = memory();
        let folder = folder();
        let volumes = open(&memory, folder.path(), mode);
        for number in [1, 2] {
            volumes.create(&order(number, mode, GIB)).unwrap();
        }
        drop(volumes);
        let file = |number| folder.path().join(format!("{}.json", id(number)));
        let whole = fs::read(file(1)).unwrap();
        // Torn; lost; of a volume that was never made; of another volume; no volume's; a folder; being
        // written.
        fs::write(file(1), &whole[..whole.len() / 2]).unwrap();
        fs::remove_file(file(2)).unwrap();
        fs::write(file(3), b"").unwrap();
        fs::write(file(4), &whole).unwrap();
        fs::write(folder.path().join("README"), b"mine").unwrap();
        fs::create_dir(folder.path().join("folder.json")).unwrap();
        fs::write(folder.path().join(format!("{}.json.part", id(5))), b"{").unwrap();
        let volumes = open(&memory, folder.path(), mode);
        let known: Vec<(VolumeId, bool)> = volumes
            .list()
            .into_iter()
            .map(|volume| (volume.record.id, volume.record.is_recovered))
            .collect();
        assert_eq!(known, [(id(1), true), (id(2), true)]);
        let torn = |name: &str| format!("{name}.torn");
        let expected = BTreeSet::from([
            format!("{}.json", id(1)),
            format!("{}.json", id(2)),
            torn(&format!("{}.json", id(1))),
            torn(&format!("{}.json", id(3))),
            torn(&format!("{}.json", id(4))),
            torn("README"),
            torn("folder.json"),
        ]);
        assert_eq!(files(folder.path()), expected);
        // Torn again, the one that was moved aside before is not overwritten.
        fs::write(file(1), b"x").unwrap();
        drop(volumes);
        let volumes = open(&memory, folder.path(), mode);
        assert!(files(folder.path()).contains(&format!("{}.json.1.torn", id(1))));
        // Nothing keeps them from being made and removed.
        for number in [1, 2, 3, 4] {
            volumes.create(&order(number, mode, GIB)).unwrap();
            delete(&volumes, &id(number)).unwrap();
        }
        assert_eq!(
            fs::read(folder.path().join("README.torn")).unwrap(),
            b"mine"
        );
    }
}

/// A file of a newer program keeps this one from starting, and nothing is moved or removed.
#[test]
fn a_newer_format_moves_nothing() {
    let memory = memory();
    let folder = folder();
    let newer = folder.path().join(format!("{}.json", id(1)));
    fs::write(&newer, br#"{"format":2,"else":[]}"#).unwrap();
    fs::write(folder.path().join("README"), b"mine").unwrap();
    fs::write(folder.path().join(format!("{}.json.part", id(5))), b"{").unwrap();
    let before = files(folder.path());
    let manager = Arc::new(SimulatedManager::new(&memory, DeviceMode::Direct));
    let said = VolumeStore::open(folder.path(), vec![manager])
        .err()
        .unwrap();
    assert!(said.to_string().contains("its format is 2"), "{said}");
    assert_eq!(files(folder.path()), before);
}

/// A volume whose record was lost is not told as one that was made just now: its beginning is empty.
#[test]
fn a_recovered_volume_is_made_anew() {
    for mode in MODES {
        let memory = memory();
        let folder = folder();
        let volumes = open(&memory, folder.path(), mode);
        volumes.create(&order(1, mode, GIB)).unwrap();
        memory.fill(&id(1), 0, GIB / 2, 7);
        drop(volumes);
        fs::remove_file(folder.path().join(format!("{}.json", id(1)))).unwrap();
        let volumes = open(&memory, folder.path(), mode);
        memory.set_users(&id(1), &["process 7 (cat)"]);
        let busy = volumes.create(&order(1, mode, GIB)).unwrap_err();
        assert!(matches!(busy, Error::Busy { .. }), "{busy}");
        assert_eq!(memory.read(&id(1), 0, 1), [7]);
        memory.set_users(&id(1), &[]);
        let made = volumes.create(&order(1, mode, GIB)).unwrap();
        assert!(!made.record.is_recovered);
        assert_eq!(memory.read(&id(1), 0, 1 << 20), vec![0; 1 << 20]);
    }
}

/// What is merely out of sight is not forgotten, in no phase.
#[test]
fn what_was_made_in_part_and_is_out_of_sight_is_not_forgotten() {
    let mode = DeviceMode::Direct;
    let memory = memory();
    let folder = folder();
    let volumes = open(&memory, folder.path(), mode);
    let gone = || volumes.is_absent(&id(1), &region0(), mode);
    assert_eq!(gone(), Ok(true));
    memory.order(Operation::Create, Fault::InTheMiddle("it broke".to_owned()));
    memory.order(Operation::Remove, Fault::Refused("still broken".to_owned()));
    volumes.create(&order(1, mode, GIB)).unwrap_err();
    assert_eq!(gone(), Ok(false));
    memory.vanish(&id(1));
    memory.set_trouble(&region0(), "it cannot be seen");
    assert!(matches!(gone(), Err(Error::Vanished { .. })));
    delete(&volumes, &id(1)).unwrap_err();
    volumes.create(&order(1, mode, GIB)).unwrap_err();
    assert_eq!(volumes.get(&id(1)).unwrap().record.phase, Phase::Creating);
    memory.set_trouble(&region0(), "");
    assert_eq!(gone(), Ok(true));
    delete(&volumes, &id(1)).unwrap();
    assert!(files(folder.path()).is_empty());
}

#[test]
fn a_host_can_change_modes() {
    let memory = memory();
    memory.set_fsdax_percent(50);
    let folder = folder();
    let volumes = open(&memory, folder.path(), DeviceMode::Lvm);
    volumes.create(&order(1, DeviceMode::Lvm, GIB)).unwrap();
    drop(volumes);
    let volumes = open(&memory, folder.path(), DeviceMode::Direct);
    let regions = volumes.regions().unwrap();
    assert!(
        regions
            .iter()
            .all(|region| region.mode == DeviceMode::Direct)
    );
    // The volume group is in the way, and told as such.
    assert_eq!(regions[0].foreign.len(), 2);
    volumes
        .create(&order(2, DeviceMode::Direct, 2 * GIB))
        .unwrap();
    let old = volumes.look(&id(1)).unwrap();
    assert_eq!(old.usable().unwrap().mode, DeviceMode::Lvm);
    drop(volumes);
    let volumes = open(&memory, folder.path(), DeviceMode::Lvm);
    for number in [1, 2] {
        volumes.look(&id(number)).unwrap().usable().unwrap();
        delete(&volumes, &id(number)).unwrap();
    }
}

/// What is out of sight has not gone: a driver that is not loaded yet must not make us forget.
#[test]
fn what_is_out_of_sight_is_not_forgotten() {
    let mode = DeviceMode::Direct;
    let memory = memory();
    let folder = folder();
    let volumes = open(&memory, folder.path(), mode);
    volumes.create(&order(1, mode, GIB)).unwrap();
    volumes.begin_delete(&id(1)).unwrap();
    drop(volumes);
    for without_listing in [false, true] {
        // A host whose memory is not there, or cannot be listed.
        let empty = SimulatedMemory::new([]);
        if without_listing {
            for _ in 0..9 {
                let fault = Fault::Refused("no driver".to_owned());
                empty.order(Operation::Look, fault);
            }
        }
        let volumes = open(&empty, folder.path(), mode);
        assert_eq!(volumes.unfinished(), [id(1)]);
        assert!(delete(&volumes, &id(1)).is_err());
    }
    let volumes = open(&memory, folder.path(), mode);
    assert_eq!(volumes.unfinished(), [id(1)]);
    delete(&volumes, &id(1)).unwrap();
    assert!(files(folder.path()).is_empty());
}

#[test]
fn many_at_once_get_what_there_is() {
    let mode = DeviceMode::Direct;
    let memory = SimulatedMemory::new([SimulatedRegion::new("region0", 20 * GIB)]);
    let folder = folder();
    let volumes = open(&memory, folder.path(), mode);
    let made = AtomicUsize::new(0);
    thread::scope(|scope| {
        for number in 0..40 {
            let (volumes, made) = (&volumes, &made);
            scope.spawn(move || match volumes.create(&order(number, mode, GIB)) {
                Ok(_) => drop(made.fetch_add(1, Ordering::SeqCst)),
                Err(error) => assert!(matches!(error, Error::NoSpace { .. }), "{error}"),
            });
        }
    });
    assert_eq!(made.into_inner(), 20);
    assert_eq!(volumes.list().len(), 20);
    assert_eq!(files(folder.path()).len(), 20);
}
