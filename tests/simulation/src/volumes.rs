//! Volumes: what hosts really have of them, the agents that make and remove them, and a user who
//! creates, publishes and deletes them.
//!
//! ```text
//!   user ──create, delete──▶ member          agent ──which are there?──▶ member
//!     └─publish, unpublish─▶ devices ◀─make, remove─┘ └──made, removed───▶ member
//! ```
//!
//! Devices and what is published outlive the agent. It asks one question at a time, as the real one
//! makes the volumes of a region under a lock: between an answer and what is made by it nothing is
//! removed. A kernel puts a namespace into the first hole that is large enough.
//!
//! Invariant: what is published is not removed.

use std::collections::{BTreeMap, BTreeSet};

use berth_decide::{Action, CreateVolume, DecisionRequest};
use berth_domain::host::HostReport;
use berth_domain::id::{Generation, Incarnation};
use berth_domain::name::{HostName, RegionName, VolumeId};
use berth_domain::volume::{
    DeviceMode, DisplayName, Extent, Kind, Outcome, Parameters, Phase, Region, Replica, Report,
    Volume, first_fit, holes, net_bytes,
};
use berth_state::command::Command;
use berth_state::{Reply, State};

use crate::asker::{Asker, Numbers, Out, Timer};
use crate::chance::Chance;
use crate::packet::{CallNumber, Question, Told};

/// What sizes are multiples of.
const STEP: u64 = 16 << 20;
/// How many steps a region has.
const STEPS: u64 = 12;
/// How many names there are.
const NAMES: usize = 6;

/// Returns the regions of every host: one in each mode, with a piece of somebody else's.
#[must_use]
pub fn regions() -> Vec<Region> {
    let region = |name: &str, mode| Region {
        name: RegionName::new(name).expect("a good name"),
        cell: None,
        mode,
        capacity_bytes: STEPS * STEP,
        align_bytes: STEP,
        foreign: match mode {
            DeviceMode::Lvm => Vec::new(),
            DeviceMode::Direct => vec![Extent {
                offset_bytes: 5 * STEP,
                length_bytes: STEP,
            }],
        },
        trouble: String::new(),
    };
    vec![
        region("lvm0", DeviceMode::Lvm),
        region("pmem0", DeviceMode::Direct),
    ]
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Device {
    region: RegionName,
    gross_bytes: u64,
    extent: Option<Extent>,
}

/// What a host has of volumes.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    devices: BTreeMap<VolumeId, Device>,
    published: BTreeSet<VolumeId>,
}

impl Devices {
    /// Makes a device, or finds the one that is there.
    fn make(&mut self, id: &VolumeId, replica: &Replica) -> Outcome {
        let regions = regions();
        let region = regions.iter().find(|r| r.name == replica.region);
        let region = region.expect("no region ever goes");
        if !self.devices.contains_key(id) {
            let here = self.devices.values().filter(|d| d.region == region.name);
            let extent = match region.mode {
                DeviceMode::Lvm => {
                    let used: u64 = here.map(|device| device.gross_bytes).sum();
                    (used + replica.gross_bytes <= region.capacity_bytes).then_some(None)
                }
                DeviceMode::Direct => {
                    let taken = here.filter_map(|device| device.extent);
                    let taken = taken.chain(region.foreign.iter().copied());
                    let free = holes(region.capacity_bytes, taken);
                    first_fit(&free, replica.gross_bytes).map(Some)
                }
            };
            let Some(extent) = extent else {
                return Outcome::Failed {
                    why: "there is no room".to_owned(),
                };
            };
            let device = Device {
                region: region.name.clone(),
                gross_bytes: replica.gross_bytes,
                extent,
            };
            self.devices.insert(id.clone(), device);
        }
        Outcome::Created {
            size_bytes: net_bytes(region.mode, replica.gross_bytes),
            extent: self.devices[id].extent,
        }
    }

    /// Makes the leader's word so; returns what is to be told of it.
    fn settle(&mut self, host: &HostName, volumes: &[Volume], chance: &mut Chance) -> Vec<Report> {
        let mut volumes: Vec<(&Volume, &Replica)> = volumes
            .iter()
            .filter_map(|volume| Some((volume, volume.on(host)?)))
            .collect();
        volumes.sort_by_key(|(volume, replica)| (replica.sequence, &volume.id));
        let mut reports = Vec::new();
        for (volume, replica) in volumes {
            let id = &volume.id;
            let outcome = match replica.phase {
                Phase::Ready => continue,
                // Some programs fail; what is there is there.
                Phase::Creating if !self.devices.contains_key(id) && chance.percent(10) => {
                    Outcome::Failed {
                        why: "told to fail".to_owned(),
                    }
                }
                Phase::Creating => self.make(id, replica),
                Phase::Deleting if self.published.contains(id) => Outcome::Delayed {
                    why: "it is published".to_owned(),
                },
                Phase::Deleting if chance.percent(30) => Outcome::Erasing { erased_bytes: 1 },
                Phase::Deleting => {
                    self.devices.remove(id);
                    Outcome::Deleted
                }
            };
            reports.push(Report {
                volume: id.clone(),
                outcome,
            });
        }
        reports
    }

    /// Publishes a volume that is there, or takes that back.
    fn toggle(&mut self, id: &VolumeId) {
        if !self.published.remove(id) && self.devices.contains_key(id) {
            self.published.insert(id.clone());
        }
    }

    /// Takes everything back that is published.
    pub fn unpublish_all(&mut self) {
        self.published.clear();
    }

    /// Holds what is there against what the state says of it.
    ///
    /// # Errors
    ///
    /// What is missing, left over, or lies elsewhere.
    pub fn compare(&self, state: &State, host: &HostName) -> Result<(), String> {
        let replica = |volume: &Volume| {
            let replica = volume.on(host).expect("it is listed for this host");
            let device = Device {
                region: replica.region.clone(),
                gross_bytes: replica.gross_bytes,
                extent: replica.extent,
            };
            (volume.id.clone(), device)
        };
        let known = state.volumes_of_host(host).map(|volume| replica(volume));
        let known: BTreeMap<VolumeId, Device> = known.collect();
        if known == self.devices {
            return Ok(());
        }
        let there = &self.devices;
        Err(format!(
            "volumes of {host}: known {known:?}, there {there:?}"
        ))
    }
}

/// The part of an agent that takes care of volumes.
#[derive(Clone, Debug)]
pub struct Caretaker {
    asker: Asker<()>,
    is_asking: bool,
}

impl Caretaker {
    /// Returns one that has asked nothing.
    #[must_use]
    pub fn new(members: u64) -> Self {
        Self {
            asker: Asker::new(members),
            is_asking: false,
        }
    }

    /// Returns the asker, for what it is woken for.
    pub fn asker(&mut self) -> &mut Asker<()> {
        &mut self.asker
    }

    /// Asks which volumes there are, unless it does already.
    pub fn look(&mut self, host: &HostName, numbers: &mut Numbers) -> Vec<Out> {
        if std::mem::replace(&mut self.is_asking, true) {
            return Vec::new();
        }
        let question = Question::Volumes(host.clone());
        self.asker.ask(question, (), numbers)
    }

    /// Takes an answer, if it is one to its own question; makes it so, and tells what came of it.
    #[allow(clippy::too_many_arguments, reason = "each is a part of the world")]
    pub fn told(
        &mut self,
        call: CallNumber,
        told: Told,
        host: &HostName,
        incarnation: Incarnation,
        devices: &mut Devices,
        chance: &mut Chance,
        numbers: &mut Numbers,
    ) -> Vec<Out> {
        match self.asker.told(call, told, chance) {
            Ok(((), Told::Volumes(volumes))) => {
                let reports = devices.settle(host, &volumes, chance);
                if reports.is_empty() {
                    self.is_asking = false;
                    return Vec::new();
                }
                let command = Command::NoteVolumes {
                    host: host.clone(),
                    incarnation,
                    reports,
                };
                let ask = DecisionRequest::new(host.as_str(), Action::Plain(command));
                self.asker.ask(Question::Decide(ask), (), numbers)
            }
            Ok(_) => {
                self.is_asking = false;
                Vec::new()
            }
            Err(outs) => outs,
        }
    }
}

/// Has every host report its regions.
pub fn with_regions(report: HostReport) -> HostReport {
    HostReport {
        regions: regions(),
        ..report
    }
}

/// The user of volumes.
#[derive(Debug)]
pub struct VolumeUser {
    asker: Asker<()>,
    chance: Chance,
    /// Volumes that it was told of, with the generations that it saw.
    seen: BTreeMap<VolumeId, Generation>,
    /// How many were created, published and deleted.
    pub done: [usize; 3],
    open: usize,
}

impl VolumeUser {
    /// Returns a user with a chance of its own: who has none of volumes does as ever.
    #[must_use]
    pub fn new(members: u64, seed: u64) -> Self {
        Self {
            asker: Asker::new(members),
            chance: Chance::new(!seed),
            seen: BTreeMap::new(),
            done: [0; 3],
            open: 0,
        }
    }

    /// Returns whether everything that was asked for was answered.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.open == 0
    }

    /// Returns whether this is a question of its own that is under way.
    #[must_use]
    pub fn asks(&self, call: CallNumber) -> bool {
        self.asker.asks(call)
    }

    /// Wishes for something.
    pub fn wish(&mut self, devices: &mut [&mut Devices], numbers: &mut Numbers) -> Vec<Out> {
        let ids: Vec<VolumeId> = self.seen.keys().cloned().collect();
        let id = self.chance.pick(&ids).cloned();
        let request = match (self.chance.between(0, 9), id) {
            (0..=3, _) | (_, None) => Action::CreateVolume(Box::new(self.create())),
            (4..=6, Some(id)) => {
                devices.iter_mut().for_each(|devices| devices.toggle(&id));
                self.done[1] += 1;
                return Vec::new();
            }
            (_, Some(id)) => {
                // Some only if it is as it was seen; most of these are refused.
                let generation = self.seen.get(&id).copied();
                let generation = generation.filter(|_| self.chance.percent(40));
                Action::Plain(Command::DeleteVolume {
                    volume: id,
                    generation,
                    forget: false,
                })
            }
        };
        self.open += 1;
        let ask = DecisionRequest::new("volumes", request);
        self.asker.ask(Question::Decide(ask), (), numbers)
    }

    fn create(&mut self) -> CreateVolume {
        let chance = &mut self.chance;
        let kind = match chance.between(0, 4) {
            0 => Kind::Cache,
            _ => Kind::Persistent,
        };
        let name = format!("v{}", chance.index(NAMES));
        CreateVolume {
            number: chance.uuid(),
            display_name: DisplayName::new(&name).expect("a good name"),
            kind,
            parameters: Parameters::default(),
            required_bytes: chance.between(0, 4) * STEP,
            limit_bytes: 0,
            replicas: match kind {
                Kind::Cache => 2,
                Kind::Persistent | Kind::Ephemeral => 1,
            },
            preferred: Vec::new(),
            requisite: BTreeSet::new(),
            preferred_cell: None,
            project: None,
        }
    }

    /// Wakes it.
    pub fn timer(&mut self, timer: Timer, numbers: &mut Numbers) -> Vec<Out> {
        match timer {
            Timer::Unanswered(call) => self.asker.unanswered(call, numbers),
            Timer::Again(call) => self.asker.again(call, numbers),
            Timer::AgentSilent(_)
            | Timer::Elapsed(..)
            | Timer::TransferEnded(..)
            | Timer::Renew
            | Timer::Look
            | Timer::Write
            | Timer::Join
            | Timer::Wish(_) => Vec::new(),
        }
    }

    /// Takes an answer, if it is one to its own question.
    pub fn told(&mut self, call: CallNumber, told: Told) -> Vec<Out> {
        match self.asker.told(call, told, &mut self.chance) {
            Ok(((), told)) => {
                self.open -= 1;
                if let Told::Decided(Ok(Reply::Volume(volume))) = told {
                    let at = if volume.is_deleting() { 2 } else { 0 };
                    self.done[at] += 1;
                    self.seen.insert(volume.id.clone(), volume.generation);
                }
                Vec::new()
            }
            Err(outs) => outs,
        }
    }
}
