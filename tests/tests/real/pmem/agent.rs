//! A scheduler, an agent and a controller of volumes as processes, with real namespaces and volume
//! groups below them; and the agent's end, at any step of its work.
//!
//! Each kill is the kernel's (signal 9), and comes while the agent waits at a known place: for a
//! program that is held at the [`Gate`], or for a scheduler that is stopped. What the agent has started
//! is ended with it, as a supervisor does that ends all of a service, or goes on while the next agent
//! starts, as where only the agent was ended.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::thread;

use berth_domain::name::VolumeId;
use berth_domain::volume::DeviceMode;
use berth_pmem::volume::filesystem::{Mount, Programs};
use berth_pmem::volume::manager::volume_id;
use berth_proto::csi::v1::CreateVolumeRequest;
use berth_proto::volume::v1::volume_service_client::VolumeServiceClient;
use berth_proto::volume::v1::{ListVolumesRequest, Volume};
use berth_tests::processes::{Cluster, Csi, Host};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tonic::Status;

use super::gate::{Gate, Held, Step};
use super::scenarios::run;
use crate::site::{self, eventually};

/// The host that the agent is on.
pub(crate) const HOST: &str = "h1";

/// What becomes of the program that the agent was waiting for when it was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Orphan {
    /// It is killed too.
    Killed,
    /// It goes on after the next agent was started.
    GoesOn,
}

/// All of it.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) controller: Csi,
    pub(crate) node: Csi,
    pub(crate) gate: Gate,
    /// How often the agent was killed.
    pub(crate) kills: u32,
}

impl World {
    /// Starts it, with an agent that makes volumes in this mode.
    pub(crate) fn start(mode: DeviceMode, conductors: u32) -> Self {
        let gate = Gate::make();
        let host = Host {
            volumes: Some(told(mode)),
            ..Host::new(HOST)
        };
        let builder = Cluster::builder(site::PROGRAMS).schedulers(1);
        let mut cluster = builder.conductors(conductors).host(host).start();
        // A host that does not answer in time counts as down, and this machine is slow.
        let controller = cluster.csi_controller_with("ask_timeout_ms = 600000\n");
        let controller = Csi::at(&controller);
        let node = cluster.csi_node(HOST);
        Self {
            cluster,
            controller,
            node,
            gate,
            kills: 0,
        }
    }

    /// Changes how the next agent makes volumes.
    pub(crate) fn change_mode(&mut self, from: DeviceMode, to: DeviceMode) {
        let file = self.cluster.folder().join(format!("{HOST}.toml"));
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(&told(from)), "{text}");
        fs::write(&file, text.replace(&told(from), &told(to))).unwrap();
    }

    pub(crate) fn start_agent(&mut self) {
        let programs = self.cluster.programs.clone();
        self.cluster.agent(HOST).start(&programs);
    }

    pub(crate) fn kill_agent(&mut self, step: &str) {
        self.cluster.agent(HOST).kill();
        self.kills += 1;
        println!("the agent was killed: {step}");
    }

    /// Waits until the agent answers controllers and the kubelet.
    #[track_caller]
    pub(crate) fn serves(&mut self) {
        let address = self.cluster.agent(HOST).address.clone();
        eventually("the agent to listen", || {
            let connected = TcpStream::connect(&address);
            connected.map(drop).map_err(|error| error.to_string())
        });
        self.node = self.cluster.csi_node(HOST);
    }

    /// Waits until the scheduler knows that new volumes are made in this mode.
    #[track_caller]
    pub(crate) fn offers(&self, mode: DeviceMode) {
        let mode = mode.to_string();
        eventually("the host to be in another mode", || {
            let told = self.cluster.json(&["volume", "capacity", HOST]);
            let regions = told["hosts"][0]["regions"].as_array();
            let modes: Vec<&Value> = regions.into_iter().flatten().map(|r| &r["mode"]).collect();
            let is_so = !modes.is_empty() && modes.iter().all(|told| **told == mode.as_str());
            is_so.then_some(()).ok_or_else(|| format!("{modes:?}"))
        });
    }

    /// Has the agent killed as soon as somebody is at the gate for each of these steps, and another one
    /// started, for which the gate is closed at the next ones.
    #[track_caller]
    pub(crate) fn killed(&mut self, steps: &[Step], orphan: Orphan, next: &[Step]) {
        let held = self.gate.wait(steps);
        let names: Vec<&str> = steps.iter().map(|step| step.step.as_str()).collect();
        self.kill_agent(&names.join(", "));
        if orphan == Orphan::Killed {
            held.iter().for_each(Held::kill);
        }
        self.gate.close(next);
        self.start_agent();
        if orphan == Orphan::GoesOn {
            held.iter().for_each(Held::release);
        }
    }

    /// Has the agent killed after what was held is done and written down, and before the scheduler could
    /// hear of it.
    #[track_caller]
    pub(crate) fn killed_unheard(&mut self, steps: &[Step], is_done: impl Fn(&Self) -> bool) {
        let held = self.gate.wait(steps);
        self.signal_scheduler(Signal::STOP);
        held.iter().for_each(Held::release);
        self.killed_when("nobody heard of it", is_done);
    }

    /// The same of what an agent does when it starts.
    #[track_caller]
    pub(crate) fn killed_unheard_at_start(
        &mut self,
        steps: &[Step],
        is_done: impl Fn(&Self) -> bool,
    ) {
        let held = self.gate.wait(steps);
        self.kill_agent(&steps[0].step);
        held.iter().for_each(Held::kill);
        self.signal_scheduler(Signal::STOP);
        self.start_agent();
        self.killed_when("nobody heard of it", is_done);
    }

    fn killed_when(&mut self, step: &str, is_done: impl Fn(&Self) -> bool) {
        eventually("it is written down", || match is_done(self) {
            true => Ok(()),
            false => Err(format!("{:?}", self.records())),
        });
        self.kill_agent(step);
        self.signal_scheduler(Signal::CONT);
        self.start_agent();
    }

    fn signal_scheduler(&mut self, signal: Signal) {
        let pid = self.cluster.schedulers[0].process().pid();
        send(pid, signal);
    }

    /// Begins a call of which nobody waits for the answer.
    pub(crate) fn call(&self, call: impl FnOnce(&Csi, &Csi) + Send + 'static) {
        let (controller, node) = (self.controller.clone(), self.node.clone());
        thread::spawn(move || call(&controller, &node));
    }

    /// Creates a volume, however often that has to be asked for.
    #[track_caller]
    pub(crate) fn create(&self, request: &CreateVolumeRequest) -> String {
        let made = done("a volume to be made", || self.controller.create(request));
        made.volume_id
    }

    /// Deletes a volume, and waits until nothing is left of any.
    #[track_caller]
    pub(crate) fn delete(&self, id: &str) {
        done("a volume to be deleted", || self.controller.delete(id));
    }

    /// Returns what is written down of volumes.
    pub(crate) fn records(&self) -> Vec<Value> {
        let folder = self.cluster.volume_dir(HOST).join("volumes");
        let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
        let files = entries.map(|entry| entry.path());
        let files = files.filter(|path| path.extension().is_some_and(|end| end == "json"));
        // One may go while it is read.
        let texts = files.filter_map(|path| fs::read_to_string(path).ok());
        let records = texts.map(|text| serde_json::from_str(&text).unwrap());
        let mut records: Vec<Value> = records.collect();
        records.sort_by_key(|record| record["id"].to_string());
        records
    }

    /// Returns in which phase a volume is, by what is written down.
    pub(crate) fn phase(&self, id: &str) -> Option<String> {
        let records = self.records();
        let mut of_it = records.iter().filter(|record| record["id"] == id);
        let phase = of_it.next()?["phase"].as_str().unwrap();
        Some(phase.to_owned())
    }

    /// Returns the volumes as the scheduler has them.
    fn known(&self) -> Vec<Volume> {
        let asked = self.cluster.at_scheduler(|channel| async move {
            let request = ListVolumesRequest {
                page_size: 1000,
                ..Default::default()
            };
            let mut scheduler = VolumeServiceClient::new(channel);
            scheduler.list_volumes(request).await
        });
        asked.unwrap().volumes
    }

    /// Holds that these volumes are all there are, for the scheduler, the agent and the host.
    #[track_caller]
    pub(crate) fn nothing_is_left_but(&self, ids: &[&str]) {
        eventually("what was deleted to be gone", || {
            let known = self.known().into_iter();
            let mut known: Vec<String> = known.map(|v| v.name.replace("volumes/", "")).collect();
            known.sort();
            match known == ids {
                true => Ok(()),
                false => Err(format!("{known:?}")),
            }
        });
        let records = self.records();
        let written: Vec<&str> = records.iter().map(|r| r["id"].as_str().unwrap()).collect();
        assert_eq!(written, ids);
        let devices = devices();
        let made: Vec<&str> = devices.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(made, ids);
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let folder = self.cluster.folder().to_str().unwrap().to_owned();
        assert!(!mounts.contains(&folder), "{mounts}");
    }

    /// Returns a staging path that is there, and a target path that is not.
    pub(crate) fn paths(&self, name: &str) -> (PathBuf, PathBuf) {
        let folder = self.cluster.folder().join("pods").join(name);
        let staging = folder.join("staging");
        fs::create_dir_all(&staging).unwrap();
        (staging, folder.join("target"))
    }

    /// Returns the process id of the agent.
    pub(crate) fn agent_pid(&mut self) -> u32 {
        self.cluster.agent(HOST).process().pid()
    }
}

/// What the agent is told of volumes: modules are small here.
pub(crate) fn told(mode: DeviceMode) -> String {
    format!("manager = \"{mode}\"\ndirect_align_mib = 32\n")
}

/// Sends a signal to a process.
pub(crate) fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Asks until it is done.
#[track_caller]
pub(crate) fn done<T>(what: &str, mut call: impl FnMut() -> Result<T, Status>) -> T {
    eventually(what, || call().map_err(|status| status.to_string()))
}

/// Returns what is mounted at a path.
pub(crate) fn mounted(path: &Path) -> Option<Mount> {
    Programs::default().mounted(path).unwrap()
}

/// Returns the devices of volumes of this machine by id, of either mode, and where they are.
pub(crate) fn devices() -> Vec<(VolumeId, PathBuf)> {
    let listed = run("ndctl", &["list", "--namespaces", "--idle"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let namespaces = listed.as_array().unwrap().iter().filter_map(|entry| {
        let id = volume_id(entry["name"].as_str()?)?;
        let device = entry["blockdev"].as_str().unwrap_or_default();
        Some((id, Path::new("/dev").join(device)))
    });
    let report = ["lvs", "--noheadings", "-o", "vg_name,lv_name"];
    let listed = run("lvm", &report);
    let logical = listed.lines().filter_map(|line| {
        let (group, name) = line.trim().split_once(' ')?;
        let path = Path::new("/dev").join(group).join(name.trim());
        Some((volume_id(name.trim())?, path)).filter(|_| group != "others")
    });
    let mut devices: Vec<_> = namespaces.chain(logical).collect();
    devices.sort();
    devices
}
