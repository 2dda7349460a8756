//! Goal: a guest's volumes are its own from before it starts until it is gone, whatever fails, and
//! are nobody's afterwards. Method: a simulated hypervisor, and marks in memory.

use berth_domain::numa::Assignment;
use berth_domain::vm::AttachedAs;
use berth_driver::conformance::sample;
use berth_driver::sim::SimDriver;
use berth_driver::sim::driver::Config;

use super::*;

/// Marks in memory. A volume whose id begins with `no` cannot be used.
#[derive(Default)]
struct Memory(Mutex<BTreeMap<VolumeId, VmUid>>);

impl HostVolumes for Memory {
    fn attach(&self, guest: Guest<'_>, wanted: &VolumeAttachment) -> Result<VolumeDevice, Error> {
        let vm = guest.uid;
        let volume = wanted.volume.clone();
        if volume.as_str().starts_with("no") {
            let why = "its device has gone".to_owned();
            return Err(Error::VolumeUnusable { volume, why });
        }
        let mut marks = lock(&self.0);
        if let Some(other) = marks.get(&volume).filter(|other| **other != vm) {
            let users = vec![format!("guest {other}")];
            return Err(Error::VolumeInUse { volume, users });
        }
        marks.insert(volume.clone(), vm);
        Ok(VolumeDevice {
            path: format!("/dev/{volume}").into(),
            volume,
            attached_as: wanted.attached_as,
            size_bytes: 1 << 22,
            read_only: wanted.read_only,
        })
    }

    fn detach(&self, vm: VmUid, volume: &VolumeId) -> Result<(), Error> {
        let mut marks = lock(&self.0);
        if marks.get(volume) == Some(&vm) {
            marks.remove(volume);
        }
        Ok(())
    }

    fn marks(&self) -> BTreeMap<VmUid, BTreeSet<VolumeId>> {
        let mut marks: BTreeMap<VmUid, BTreeSet<VolumeId>> = BTreeMap::new();
        for (volume, vm) in lock(&self.0).iter() {
            marks.entry(*vm).or_default().insert(volume.clone());
        }
        marks
    }
}

struct World {
    driver: SimDriver,
    memory: Arc<Memory>,
    volumes: GuestVolumes,
}

impl World {
    fn new() -> Self {
        let memory = Arc::new(Memory::default());
        Self {
            driver: SimDriver::start(Config::new(sample::host(2))).unwrap(),
            volumes: GuestVolumes::new(memory.clone()),
            memory,
        }
    }

    fn perform(&self, request: Request) -> Result<Answer, Error> {
        self.volumes.perform(&self.driver, request)
    }

    fn marked(&self) -> Vec<String> {
        let marks = lock(&self.memory.0);
        marks.keys().map(ToString::to_string).collect()
    }
}

fn guest(number: u128, volumes: &[&str]) -> Box<DomainSpec> {
    let mut spec = sample::plain_spec(1);
    let wanted = volumes.iter().map(|volume| VolumeAttachment {
        volume: VolumeId::new(volume).unwrap(),
        attached_as: AttachedAs::Disk,
        read_only: false,
    });
    spec.volumes = wanted.collect();
    let name = format!("vm{number}");
    Box::new(sample::domain(&name, number, spec, Assignment::default()))
}

#[test]
fn a_volume_has_one_guest_until_that_is_gone() {
    let world = World::new();
    let (a, b) = (guest(1, &["v1", "v2"]), guest(2, &["v2"]));
    assert_eq!(world.perform(Request::Create(a.clone())), Ok(Answer::Done));
    // The driver was given the devices, and keeps them with the guest.
    let known = world.driver.domains().unwrap();
    let paths: Vec<_> = known[0].domain.volumes.iter().map(|v| &v.path).collect();
    assert_eq!(
        paths,
        ["/dev/v1".as_ref() as &std::path::Path, "/dev/v2".as_ref()]
    );
    let refused = world.perform(Request::Create(b.clone()));
    assert!(
        matches!(&refused, Err(Error::VolumeInUse { volume, .. }) if volume.as_str() == "v2"),
        "{refused:?}"
    );
    // Repeated, it has no effect, and what was refused took nothing away.
    assert_eq!(world.perform(Request::Create(a.clone())), Ok(Answer::Done));
    assert_eq!(world.marked(), ["v1", "v2"]);
    assert_eq!(world.perform(Request::Destroy(a.uid)), Ok(Answer::Done));
    assert!(world.marked().is_empty());
    assert_eq!(world.perform(Request::Create(b)), Ok(Answer::Done));
}

#[test]
fn a_guest_that_cannot_start_leaves_no_marks() {
    let world = World::new();
    let refused = world.perform(Request::Create(guest(1, &["v1", "no2"])));
    assert!(
        matches!(refused, Err(Error::VolumeUnusable { .. })),
        "{refused:?}"
    );
    assert!(world.marked().is_empty());
    // The hypervisor says no, with all volumes there.
    let mut impossible = guest(2, &["v1"]);
    impossible.shared_cpus = "900".parse().unwrap();
    let refused = world.perform(Request::Start(impossible));
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    assert!(world.marked().is_empty());
}

#[test]
fn a_guest_that_ended_by_itself_is_noticed() {
    let world = World::new();
    let a = guest(1, &["v1"]);
    world.perform(Request::Create(a.clone())).unwrap();
    assert!(world.perform(Request::Everything).is_ok());
    assert_eq!(world.marked(), ["v1"]);
    world.driver.crash(a.uid);
    assert!(world.perform(Request::Everything).is_ok());
    assert!(world.marked().is_empty());
    assert_eq!(world.perform(Request::Start(a)), Ok(Answer::Done));
    assert_eq!(world.marked(), ["v1"]);
}

/// Goal: an agent that was killed at any point finds marks and guests in agreement again.
#[test]
fn marks_follow_what_runs_at_the_start() {
    let world = World::new();
    let (runs, gone) = (guest(1, &["v1", "v2"]), guest(2, &["v3"]));
    world.perform(Request::Create(runs.clone())).unwrap();
    // One mark was lost with its file, another is of a guest that never started, a third of one that
    // has no such volume.
    let id = |text: &str| VolumeId::new(text).unwrap();
    lock(&world.memory.0).remove(&id("v1"));
    lock(&world.memory.0).insert(id("v3"), gone.uid);
    lock(&world.memory.0).insert(id("v4"), runs.uid);
    world.volumes.adopt(&world.driver.domains().unwrap());
    assert_eq!(world.marked(), ["v1", "v2"]);
}

#[test]
fn a_host_without_volumes_says_so() {
    let driver = SimDriver::start(Config::new(sample::host(2))).unwrap();
    let volumes = GuestVolumes::new(Arc::new(NoVolumes));
    let refused = volumes.perform(&driver, Request::Create(guest(1, &["v1"])));
    let told = refused.unwrap_err().to_string();
    assert!(told.contains("volumes.manager"), "{told}");
    assert_eq!(
        volumes.perform(&driver, Request::Create(guest(1, &[]))),
        Ok(Answer::Done)
    );
}
