//! Volumes as Kubernetes has them, on real namespaces and volume groups, whatever ends the agent.
//!
//! Goal: a volume is claimed, made, formatted, mounted with dax, written, unmounted, erased and removed
//! by the real programs, through the sockets of the Container Storage Interface. At each step the agent
//! is killed and another one started: whoever asks again is answered, nothing that was written is lost,
//! nothing is left of what was deleted, and what others have is bit by bit as it was.
//!
//! Method of the long story, which is told by hand: a volume of each mode on one host, which changes
//! its mode between them. What is the same in both (file systems, mounts) is done with both at once, so
//! that one kill is one in each mode.
//!
//! ```text
//!   mode direct    xfs; volume d is made
//!   mode lvm       volume groups are made; volume l is made
//!                  d and l are formatted, mounted, written, unmounted; d and l are erased and removed
//!                  raw in the place of l; xfs; the memory of a guest
//!   mode direct    raw in the place of d
//! ```
//!
//! The short story is one volume in mode direct, and one kill, in the middle of its erase.
//!
//! What is held where: see `agent.rs`.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use berth_domain::volume::DeviceMode;
use berth_pmem::volume::filesystem::{Contents, detect};
use berth_proto::csi::v1::CreateVolumeRequest;
use berth_tests::processes::csi::{block, mount, volume_request};
use berth_tests::processes::{Cluster, Csi};
use rustix::process::Signal;

use super::SECRET;
use super::agent::{Orphan, World, devices, done, mounted, send};
use super::device::MIB;
use super::gate::Step;
use super::scenarios::{make_namespaces, run};
use super::volumes::{Others, without_udev};
use crate::site::eventually;

/// What is asked for; in mode direct it takes 96 MiB.
const VOLUME_BYTES: u64 = 64 * MIB;

/// xfs takes 300 MiB at least.
const XFS_BYTES: u64 = 304 * MIB;

const BYE: Orphan = Orphan::Killed;
const ON: Orphan = Orphan::GoesOn;

/// Tells the short story.
pub(crate) fn play() {
    let mut clock = Clock(Instant::now());
    make_namespaces();
    without_udev();
    let others = Others::make();
    let before = others.everything();
    clock.told("namespaces and things of others");
    let world = &mut World::start(DeviceMode::Direct, 0);
    clock.told("a scheduler, an agent and a controller");
    let id = world.create(&request("d"));
    let volume = Kept::of(world, "d", id);
    volume.is_staged(&world.node);
    let publish = || {
        world
            .node
            .publish(&volume.id, &volume.staging, &volume.target)
    };
    done("it to be published", publish);
    is_written(world, &volume);
    let unpublish = || world.node.unpublish(&volume.id, &volume.target);
    done("it to be unpublished", unpublish);
    volume.is_unstaged(&world.node);
    is_whole(&world.node, &volume);
    clock.told("made, formatted, mounted, written, unmounted");
    is_killed_in_the_middle_of_its_erase(world, &volume, &[]);
    world.nothing_is_left_but(&[]);
    clock.told("erased and removed");
    let id = world.create(&request("raw"));
    let device = device_of(&id);
    assert_eq!(place_of(&id), volume.place);
    assert!(!holds_secret(&device), "somebody else reads it");
    world.delete(&id);
    world.nothing_is_left_but(&[]);
    clock.told("its space in other hands");
    assert_eq!(others.everything(), before, "what others have");
}

/// Tells the long story.
pub(crate) fn play_at_each_step() {
    let mut clock = Clock(Instant::now());
    make_namespaces();
    without_udev();
    let others = Others::make();
    let before = others.everything();
    clock.told("namespaces and things of others");
    let world = &mut World::start(DeviceMode::Direct, 1);
    clock.told("a scheduler, a conductor, an agent and a controller");
    has_xfs(world);
    clock.told("xfs in mode direct");
    let d = Kept::made(world, "d", DIRECT);
    clock.told("made in mode direct");
    makes_volume_groups(world, &d);
    clock.told("volume groups are made");
    let l = Kept::made(world, "l", LVM);
    clock.told("made in mode lvm");
    both_are_used(world, &[d.clone(), l.clone()]);
    clock.told("formatted, mounted, written, unmounted");
    is_removed(world, &d, DIRECT);
    is_removed(world, &l, LVM);
    world.nothing_is_left_but(&[]);
    clock.told("erased and removed");
    raw_in_its_place(world, &l, LVM);
    clock.told("raw in mode lvm");
    has_xfs(world);
    clock.told("xfs in mode lvm");
    a_guest_has_it_as_memory(world);
    clock.told("the memory of a guest");
    world.kill_agent("to change modes");
    world.change_mode(DeviceMode::Lvm, DeviceMode::Direct);
    world.start_agent();
    world.offers(DeviceMode::Direct);
    raw_in_its_place(world, &d, DIRECT);
    clock.told("raw in mode direct");
    assert_eq!(others.everything(), before, "what others have");
    println!("the agent was killed {} times", world.kills);
}

/// Tells how long each part took.
struct Clock(Instant);

impl Clock {
    fn told(&mut self, part: &str) {
        println!("{:6.1} s: {part}", self.0.elapsed().as_secs_f64());
        self.0 = Instant::now();
    }
}

/// The programs that make and remove a device.
#[derive(Clone, Copy, Debug)]
struct Makes {
    makes: &'static str,
    removes: &'static str,
}

const DIRECT: Makes = Makes {
    makes: "ndctl create-namespace",
    removes: "ndctl destroy-namespace",
};

const LVM: Makes = Makes {
    makes: "lvm lvcreate",
    removes: "lvm lvremove",
};

/// The step before a program, and that after it.
fn steps(program: &str, about: &str) -> ([Step; 1], [Step; 1]) {
    let step = |when: &str| Step {
        step: format!("{when} {program}"),
        about: about.to_owned(),
    };
    ([step("before")], [step("after")])
}

/// Returns a request for a volume.
fn request(name: &str) -> CreateVolumeRequest {
    volume_request(name, i64::try_from(VOLUME_BYTES).unwrap())
}

/// A volume with a file system.
#[derive(Clone, Debug)]
struct Kept {
    id: String,
    device: PathBuf,
    /// Where it lies.
    place: String,
    staging: PathBuf,
    target: PathBuf,
}

impl Kept {
    /// Creates it; the agent is killed before its device is made, after that, and after that was written
    /// down.
    fn made(world: &mut World, name: &'static str, mode: Makes) -> Self {
        let (before, after) = steps(mode.makes, "");
        world.gate.close(&before);
        world.call(move |controller, _| drop(controller.create(&request(name))));
        world.killed(&before, BYE, &after);
        world.killed(&after, BYE, &after);
        world.killed_unheard(&after, |world| {
            let mut records = world.records().into_iter();
            records.all(|record| record["phase"] == "ready")
        });
        let id = world.create(&request(name));
        assert_eq!(world.create(&request(name)), id);
        Self::of(world, name, id)
    }

    fn of(world: &World, name: &str, id: String) -> Self {
        let (staging, target) = world.paths(name);
        Self {
            device: device_of(&id),
            place: place_of(&id),
            id,
            staging,
            target,
        }
    }

    fn is_staged(&self, node: &Csi) {
        done("it to be staged", || node.stage(&self.id, &self.staging));
    }

    fn is_unstaged(&self, node: &Csi) {
        let unstage = || node.unstage(&self.id, &self.staging);
        done("it to be unstaged", unstage);
    }
}

/// Starts an agent that makes volumes in mode lvm; it is killed before and after each program that makes
/// a volume group.
fn makes_volume_groups(world: &mut World, d: &Kept) {
    world.kill_agent("to change modes");
    world.change_mode(DeviceMode::Direct, DeviceMode::Lvm);
    let namespace = steps("ndctl create-namespace", "");
    let group = steps("lvm vgcreate", "");
    world.gate.close(&namespace.0);
    world.start_agent();
    world.killed(&namespace.0, BYE, &namespace.1);
    world.killed(&namespace.1, ON, &group.0);
    world.killed(&group.0, BYE, &group.1);
    world.killed(&group.1, BYE, &[]);
    world.serves();
    world.nothing_is_left_but(&[&d.id]);
    let groups = run("lvm", &["vgs", "--noheadings", "-o", "vg_name,pv_count"]);
    let counts: Vec<&str> = groups
        .lines()
        .filter_map(|line| line.split(' ').next_back())
        .collect();
    assert_eq!(counts, ["1", "1"], "{groups}");
}

/// What a call does with a volume.
type Call = fn(&Csi, &Kept) -> Result<(), tonic::Status>;

/// Has a call for each volume held at a step, and the agent killed then.
#[track_caller]
fn killed(
    world: &mut World,
    both: &[Kept; 2],
    (step, orphan): (&str, Orphan),
    call: Call,
    about: fn(&Kept) -> &Path,
) {
    let steps = both.each_ref().map(|volume| Step {
        step: step.to_owned(),
        about: about(volume).display().to_string(),
    });
    world.serves();
    world.gate.close(&steps);
    for volume in both {
        let volume = volume.clone();
        world.call(move |_, node| drop(call(node, &volume)));
    }
    world.killed(&steps, orphan, &[]);
}

/// Stages, publishes, writes, and takes all of it back; the agent is killed before and after each
/// program that this takes.
fn both_are_used(world: &mut World, both: &[Kept; 2]) {
    let stage: Call = |node, volume| node.stage(&volume.id, &volume.staging);
    let publish: Call = |node, volume| node.publish(&volume.id, &volume.staging, &volume.target);
    let unpublish: Call = |node, volume| node.unpublish(&volume.id, &volume.target);
    let unstage: Call = |node, volume| node.unstage(&volume.id, &volume.staging);
    let all = |world: &mut World, call: Call| {
        world.serves();
        for volume in both {
            done("a call", || call(&world.node, volume));
        }
    };
    for step in [("before mkfs.ext4", BYE), ("after mkfs.ext4", BYE)] {
        killed(world, both, step, stage, |volume| &volume.device);
    }
    for step in [("before mount -t", BYE), ("after mount -t", ON)] {
        killed(world, both, step, stage, |volume| &volume.staging);
    }
    all(world, stage);
    for step in [("before mount --bind", BYE), ("after mount --bind", ON)] {
        killed(world, both, step, publish, |volume| &volume.target);
    }
    all(world, publish);
    both.iter().for_each(|volume| is_written(world, volume));
    for step in [("before umount", BYE), ("after umount", BYE)] {
        killed(world, both, step, unpublish, |volume| &volume.target);
    }
    all(world, unpublish);
    for step in [("before umount", BYE), ("after umount", BYE)] {
        killed(world, both, step, unstage, |volume| &volume.staging);
    }
    all(world, unstage);
    both.iter().for_each(|volume| is_whole(&world.node, volume));
    let mut ids = both.each_ref().map(|volume| volume.id.as_str());
    ids.sort_unstable();
    world.nothing_is_left_but(&ids);
}

/// Writes into a volume that is published.
fn is_written(world: &World, volume: &Kept) {
    assert!(mounted(&volume.target).is_some_and(|mount| mount.is_dax()));
    write_secret(&volume.target);
    is_in_use(world, &volume.id);
}

/// Holds that nothing was lost of a volume that is mounted nowhere.
fn is_whole(node: &Csi, volume: &Kept) {
    assert!(!volume.target.exists());
    volume.is_staged(node);
    assert_eq!(fs::read(volume.staging.join("one")).unwrap(), one());
    volume.is_unstaged(node);
    assert!(holds_secret(&volume.device));
}

/// Deletes a volume; the agent is killed in the middle of its erase, and another one started, for which
/// the gate is closed at these steps.
fn is_killed_in_the_middle_of_its_erase(world: &mut World, volume: &Kept, next: &[Step]) {
    // What lies in the file system's free space: the end of an erase is told from its beginning.
    write_at(&volume.device, &[0, VOLUME_BYTES - MIB]);
    let id = volume.id.clone();
    world.call(move |controller, _| drop(controller.delete(&id)));
    is_stopped_in_the_middle(world, &volume.device);
    world.kill_agent("in the middle of an erase");
    world.gate.close(next);
    world.start_agent();
}

/// Deletes a volume; the agent is killed in the middle of its erase, when it is erased and its device is
/// there, when that is gone, and when that was written down and nobody heard of it.
fn is_removed(world: &mut World, volume: &Kept, mode: Makes) {
    world.serves();
    let (before, after) = steps(mode.removes, "");
    is_killed_in_the_middle_of_its_erase(world, volume, &before);
    world.killed(&before, BYE, &after);
    assert_eq!(world.phase(&volume.id).as_deref(), Some("deleting"));
    assert!(!holds_secret(&volume.device));
    world.killed_unheard_at_start(&after, |world| world.phase(&volume.id).is_none());
    world.serves();
    done("it to be deleted", || world.controller.delete(&volume.id));
}

/// Stops the agent in the middle of an erase. The device is looked at only while it is stopped: it would
/// wait for whoever has it open.
fn is_stopped_in_the_middle(world: &mut World, device: &Path) {
    let pid = world.agent_pid();
    eventually("an erase to begin", || {
        let records = world.records();
        let mut phases = records.iter().map(|record| &record["phase"]);
        let begun = phases.any(|phase| phase == "deleting");
        begun.then_some(()).ok_or_else(|| format!("{records:?}"))
    });
    loop {
        send(pid, Signal::STOP);
        eventually("the agent to stand still", || is_stopped(pid));
        let file = File::open(device).unwrap();
        let is_there = |offset| {
            let mut bytes = vec![0; SECRET.len()];
            file.read_exact_at(&mut bytes, offset).unwrap();
            bytes == SECRET
        };
        if !is_there(0) {
            assert!(is_there(VOLUME_BYTES - MIB), "the erase was over too soon");
            return;
        }
        drop(file);
        send(pid, Signal::CONT);
        thread::yield_now();
    }
}

fn is_stopped(pid: u32) -> Result<(), String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    for task in tasks {
        let state = fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
        let state = state.rsplit_once(") ").map_or("", |(_, rest)| rest);
        if !(state.starts_with('T') || state.is_empty()) {
            return Err(state.to_owned());
        }
    }
    Ok(())
}

/// A raw volume where another one was, with nothing of that in it. The agent is killed while it is made,
/// and what makes it goes on beside the next agent; and when it was published.
fn raw_in_its_place(world: &mut World, old: &Kept, mode: Makes) {
    let (before, _) = steps(mode.makes, "");
    world.gate.close(&before);
    world.call(|controller, _| drop(controller.create(&request("raw"))));
    world.killed(&before, ON, &[]);
    let id = world.create(&request("raw"));
    let device = device_of(&id);
    assert_eq!(place_of(&id), old.place);
    assert!(!holds_secret(&device), "somebody else reads it");
    assert_eq!(detect(&device), Ok(Contents::Nothing));
    world.serves();
    let (staging, target) = world.paths("raw");
    let stage = |node: &Csi| node.stage_as(&id, &staging, block());
    done("it to be staged", || stage(&world.node));
    let (_, after) = steps("mount --bind", "");
    world.gate.close(&after);
    let asked = (id.clone(), staging.clone(), target.clone());
    world.call(move |_, node| drop(node.publish_as(&asked.0, &asked.1, &asked.2, block())));
    world.killed(&after, ON, &[]);
    world.serves();
    let publish = || world.node.publish_as(&id, &staging, &target, block());
    done("it to be published", publish);
    write_at(&target, &[0, VOLUME_BYTES / 2, VOLUME_BYTES - MIB]);
    assert!(holds_secret(&device));
    is_in_use(world, &id);
    done("it to be unpublished", || {
        world.node.unpublish(&id, &target)
    });
    done("it to be unstaged", || world.node.unstage(&id, &staging));
    world.delete(&id);
    world.nothing_is_left_but(&[]);
}

/// A volume with xfs that need not be erased: its beginning goes all the same.
fn has_xfs(world: &mut World) {
    world.serves();
    let eraseafter = [("eraseafter".to_owned(), "false".to_owned())];
    let request = CreateVolumeRequest {
        volume_capabilities: vec![mount("xfs")],
        parameters: eraseafter.into(),
        ..volume_request("x", i64::try_from(XFS_BYTES).unwrap())
    };
    let id = world.create(&request);
    let (staging, target) = world.paths("x");
    let node = world.node.clone();
    let stage = || node.stage_as(&id, &staging, mount("xfs"));
    done("it to be staged", stage);
    let publish = || node.publish_as(&id, &staging, &target, mount("xfs"));
    done("it to be published", publish);
    let there = mounted(&target).unwrap();
    assert!(there.is_dax() && there.kind == "xfs", "{there:?}");
    fs::write(target.join("file"), "what is in it").unwrap();
    done("it to be unpublished", || node.unpublish(&id, &target));
    done("it to be unstaged", || node.unstage(&id, &staging));
    world.delete(&id);
    world.nothing_is_left_but(&[]);
}

/// A guest's nvdimm is a file that takes up the volume's file system, mounted with dax.
fn a_guest_has_it_as_memory(world: &mut World) {
    let id = world.create(&request("memory"));
    world.cluster.pinned_flavor("small", 1);
    let words = Cluster::create("guest", "small");
    let attached = ["--volume", "memory:nvdimm"];
    world.cluster.run(&[&words[..], &attached].concat());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let place = mounts.lines().find(|line| line.contains(&id));
    let place = place.and_then(|line| line.split(' ').nth(1));
    let place = PathBuf::from(place.unwrap_or_else(|| panic!("{id} is not mounted: {mounts}")));
    assert!(mounted(&place).is_some_and(|mount| mount.is_dax()));
    let file = fs::metadata(place.join("berth-vm.img")).unwrap();
    assert!(file.len() > VOLUME_BYTES / 2 && file.blocks() * 512 >= file.len());
    is_in_use(world, &id);
    world.cluster.run(&["vm", "delete", "guest"]);
    assert!(mounted(&place).is_none());
    world.delete(&id);
    world.nothing_is_left_but(&[]);
}

#[track_caller]
fn is_in_use(world: &World, id: &str) {
    let refused = eventually("an answer", || {
        let status = world.controller.delete(id).unwrap_err();
        if status.code() == tonic::Code::Unavailable {
            return Err(status.to_string());
        }
        Ok(status)
    });
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition, "{refused}");
}

fn one() -> Vec<u8> {
    SECRET.repeat(1 << 14)
}

/// Writes what is told by its pages from all else.
fn write_secret(folder: &Path) {
    fs::write(folder.join("one"), one()).unwrap();
    let mut page = SECRET.to_vec();
    page.resize(4096, 1);
    let two = folder.join("two");
    fs::write(&two, page.repeat(16)).unwrap();
    File::open(&two).unwrap().sync_all().unwrap();
}

/// Writes into a device.
fn write_at(device: &Path, places: &[u64]) {
    let file = OpenOptions::new().write(true).open(device).unwrap();
    for place in places {
        file.write_all_at(SECRET, *place).unwrap();
    }
    file.sync_all().unwrap();
}

fn device_of(id: &str) -> PathBuf {
    let mut devices = devices().into_iter();
    let found = devices.find(|(device, _)| device.as_str() == id);
    found.expect("its device").1
}

/// Tells where a volume lies.
fn place_of(id: &str) -> String {
    let device = device_of(id);
    let name = device.file_name().unwrap().to_str().unwrap();
    let told = Path::new("/sys/class/block").join(name);
    fs::read_to_string(told.join("device/resource")).unwrap_or_else(|_| {
        let which = format!("lv_name={id}");
        run(
            "lvm",
            &["lvs", "--noheadings", "-o", "devices", "-S", &which],
        )
    })
}

/// Returns whether any page of a device begins with what was written into a volume.
fn holds_secret(device: &Path) -> bool {
    let bytes = fs::read(device).unwrap();
    assert!(bytes.len() as u64 >= VOLUME_BYTES);
    bytes.chunks(4096).any(|page| page.starts_with(SECRET))
}
