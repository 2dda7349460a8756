//! A compute agent: the real core, on a hypervisor of the simulated world.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_agent_core::{Agent as Core, CallId, Effect, Event, Expectation, Facts};
use berth_decide::{Action, DecisionRequest};
use berth_domain::grant;
use berth_domain::host::HostReport;
use berth_domain::id::{Epoch, Incarnation, ProviderId, TimeMs, VmUid};
use berth_domain::migration_tls::TlsPolicy;
use berth_domain::name::HostName;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::topology::HostTopology;
use berth_domain::version::ServiceVersion;
use berth_driver::sim::World;
use berth_driver::{Answer, Error, Token};
use berth_state::command::Command;

use crate::asker::{Asker, Numbers, Out, Timer};
use crate::bug::Bug;
use crate::chance::Chance;
use crate::packet::{CallNumber, Node, Packet, Question, Told};
use crate::volumes::{Caretaker, Devices, with_regions};

/// A call that came in.
#[derive(Clone, Copy, Debug)]
struct Taken {
    from: Node,
    number: CallNumber,
    vm: VmUid,
    epoch: Epoch,
    /// The greatest epoch that this run had taken a call under when it came.
    newest: Epoch,
}

impl Taken {
    /// Says what is wrong if a call that was answered came under a lease that was over.
    fn violation(&self) -> Option<String> {
        let Self {
            vm, epoch, newest, ..
        } = self;
        (epoch < newest).then(|| {
            format!("a call for {vm} under epoch {epoch} was taken after one under epoch {newest}")
        })
    }
}

/// What a question of an agent is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// To be registered, and to know that it is.
    Registration,
    /// To know what to expect. What it is told may be older than what it knows.
    Expect,
    /// To tell how far erasures are.
    Tell,
    /// To know what is to be erased, after it was told.
    Due,
    /// To report which guests are there, or what differs from what was expected.
    Guests,
}

/// An agent, up or down. Its host's hypervisor goes on either way.
#[derive(Clone)]
pub struct Agent {
    /// Its host.
    pub host: HostName,
    topology: Arc<HostTopology>,
    /// What its program can do.
    pub version: ServiceVersion,
    /// Identifies the storage of its guests' disks.
    pub storage: String,
    provider: ProviderId,
    members: u64,
    /// Counts its starts; what belongs to an earlier life is dropped.
    pub life: u64,
    core: Option<Core>,
    report: Option<HostReport>,
    /// Whether the last heartbeat was answered.
    heard: bool,
    asker: Asker<Purpose>,
    /// What the scheduler expected at the last query and the one before.
    expected: [Expectation; 2],
    calls: BTreeMap<CallId, Taken>,
    /// The greatest epoch of each guest under which a call was taken by this run.
    epochs: BTreeMap<VmUid, Epoch>,
    /// The least epoch of calls that it carries out: of grants that the key of its cluster signed. It
    /// outlives the agent.
    trusted: Epoch,
    /// A call that should have been refused and was not.
    pub violation: Option<String>,
    last_call: u64,
    /// What its host has of volumes; it outlives the agent.
    pub devices: Devices,
    /// Takes care of volumes, where there are any.
    caretaker: Option<Caretaker>,
    has_volumes: bool,
    /// Whether this run is known to be registered: what an earlier one said is void from then on.
    is_registered: bool,
}

impl Agent {
    /// Returns an agent that is down.
    pub fn new(
        host: HostName,
        topology: Arc<HostTopology>,
        version: ServiceVersion,
        members: u64,
        chance: &mut Chance,
    ) -> Self {
        Self {
            host,
            topology,
            version,
            storage: "shared".to_owned(),
            provider: ProviderId(chance.uuid()),
            members,
            life: 0,
            core: None,
            report: None,
            heard: true,
            asker: Asker::new(members),
            expected: Default::default(),
            calls: BTreeMap::new(),
            epochs: BTreeMap::new(),
            trusted: Epoch::default(),
            violation: None,
            last_call: 0,
            devices: Devices::default(),
            caretaker: None,
            has_volumes: false,
            is_registered: false,
        }
    }

    /// Has its host have regions for volumes, if its program knows of them.
    pub fn give_volumes(&mut self) {
        self.has_volumes = self.version >= ServiceVersion::VOLUMES;
    }

    /// Returns whether it is up.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.core.is_some()
    }

    /// Starts it: it learns what runs from the hypervisor, and registers.
    pub fn start(
        &mut self,
        world: &mut World,
        chance: &mut Chance,
        numbers: &mut Numbers,
    ) -> Vec<Out> {
        self.life += 1;
        let incarnation = Incarnation(chance.uuid());
        world.forget_asker(&self.host);
        let topology = self.known_topology();
        let facts = Facts {
            host: self.host.clone(),
            incarnation,
            version: self.version,
            driver: "sim".to_owned(),
            migration_uri: World::migration_uri(&self.host),
            storage_id: self.storage.clone(),
            tls: TlsPolicy::Off,
            topology: topology.clone(),
            bridges: Vec::new(),
            transfer_ms_max: 60_000,
            compare_ms: 2_000,
        };
        let report = HostReport {
            agent_address: self.host.to_string(),
            incarnation,
            service_version: self.version,
            driver: facts.driver.clone(),
            migration_uri: facts.migration_uri.clone(),
            topology: topology.clone(),
            memory_reserved_mib: 0,
            disk_gib: 100,
            storage_id: facts.storage_id.clone(),
            traits: Default::default(),
            platform: Default::default(),
            self_fence_ms: 0,
            regions: Vec::new(),
            cpu: None,
            networks: Vec::new(),
        };
        self.core = Some(Core::new(facts, world.known(&self.host)));
        self.report = Some(match self.has_volumes {
            true => with_regions(report),
            false => report,
        });
        self.caretaker = self.has_volumes.then(|| Caretaker::new(self.members));
        self.is_registered = false;
        self.heard = true;
        self.register(numbers)
    }

    /// Returns the shape of the host as far as this version of the program knows of it.
    fn known_topology(&self) -> Arc<HostTopology> {
        if self.version >= ServiceVersion::PMEM {
            return self.topology.clone();
        }
        let without = (*self.topology).clone().with_pmem(Vec::new());
        Arc::new(without.expect("it needs none"))
    }

    /// Registers with the latest report.
    fn register(&mut self, numbers: &mut Numbers) -> Vec<Out> {
        let Some(report) = self.report.clone() else {
            return Vec::new();
        };
        let command = Command::RegisterHost {
            host: self.host.clone(),
            provider: self.provider,
            report,
        };
        let ask = DecisionRequest::new(self.host.as_str(), Action::Plain(command));
        let question = Question::Decide(ask);
        self.asker.ask(question, Purpose::Registration, numbers)
    }

    /// Ends it without a word.
    pub fn crash(&mut self) {
        self.core = None;
        self.caretaker = None;
        self.asker = Asker::new(self.members);
        self.calls.clear();
        self.epochs.clear();
    }

    /// Wakes it.
    pub fn timer(&mut self, timer: Timer, numbers: &mut Numbers) -> Vec<Out> {
        match timer {
            Timer::Unanswered(call) => {
                let mut outs = self.asker.unanswered(call, numbers);
                if let Some(caretaker) = &mut self.caretaker {
                    outs.extend(caretaker.asker().unanswered(call, numbers));
                }
                outs
            }
            Timer::Again(call) => {
                let mut outs = self.asker.again(call, numbers);
                if let Some(caretaker) = &mut self.caretaker {
                    outs.extend(caretaker.asker().again(call, numbers));
                }
                outs
            }
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

    /// Takes what another node sent.
    #[allow(
        clippy::too_many_arguments,
        reason = "each is a part of the world that it may use"
    )]
    pub fn take(
        &mut self,
        now: TimeMs,
        from: Node,
        packet: Packet,
        world: &mut World,
        chance: &mut Chance,
        numbers: &mut Numbers,
        bug: Option<Bug>,
    ) -> Vec<Out> {
        match packet {
            Packet::Told(call, told) => self.told(now, call, *told, world, chance, numbers),
            Packet::Call(number, mut fence, call) => {
                let newest = self.epochs.get(&fence.vm).copied().unwrap_or_default();
                let taken = Taken {
                    from,
                    number,
                    vm: fence.vm,
                    epoch: fence.epoch,
                    newest,
                };
                if bug == Some(Bug::StaleEpoch) {
                    fence.epoch = Epoch(u64::MAX);
                }
                if fence.epoch < self.trusted && bug == Some(Bug::CarryOutLostCalls) {
                    fence.epoch = self.trusted;
                }
                if fence.epoch < self.trusted {
                    return vec![refuse(from, number)];
                }
                self.last_call += 1;
                let id = CallId(self.last_call);
                self.calls.insert(id, taken);
                self.step(
                    now,
                    Event::Call {
                        id,
                        fence,
                        call: *call,
                    },
                    world,
                    numbers,
                )
            }
            Packet::Raft(..)
            | Packet::Snapshot(..)
            | Packet::Question(..)
            | Packet::Answer(..)
            | Packet::Write(..)
            | Packet::Wish(..)
            | Packet::Granted(..) => Vec::new(),
        }
    }

    fn told(
        &mut self,
        now: TimeMs,
        call: CallNumber,
        told: Told,
        world: &mut World,
        chance: &mut Chance,
        numbers: &mut Numbers,
    ) -> Vec<Out> {
        if let (Some(caretaker), Some(report)) = (&mut self.caretaker, &self.report)
            && caretaker.asker().asks(call)
        {
            let (host, incarnation) = (&self.host, report.incarnation);
            let devices = &mut self.devices;
            return caretaker.told(call, told, host, incarnation, devices, chance, numbers);
        }
        match self.asker.told(call, told, chance) {
            Ok((Purpose::Expect, Told::Expected(expectation))) => {
                self.expected.rotate_left(1);
                self.expected[1] = *expectation;
                // Now and then a member answers that has not applied everything.
                let newest = usize::from(chance.percent(70));
                let expectation = self.expected[newest].clone();
                self.trusted = self.trusted.max(expectation.recovery.unwrap_or_default());
                self.step(now, Event::Expected(expectation), world, numbers)
            }
            Ok((Purpose::Tell, Told::Decided(Ok(_)))) => {
                let question = Question::Erasures(self.host.clone());
                self.asker.ask(question, Purpose::Due, numbers)
            }
            Ok((Purpose::Due, Told::Erasures(erasures))) => {
                let due = erasures.into_iter();
                let due = due.map(|(claim, device)| (claim, device.name));
                self.step(now, Event::ErasuresDue(due.collect()), world, numbers)
            }
            Ok((Purpose::Registration, Told::Registered(known))) => {
                self.heard = true;
                // The late request of an earlier run may have come after this one's.
                if known == self.report.as_ref().map(|r| r.incarnation) {
                    self.is_registered = true;
                    Vec::new()
                } else {
                    self.register(numbers)
                }
            }
            Ok(_) => Vec::new(),
            Err(outs) => outs,
        }
    }

    /// Takes what its hypervisor did.
    pub fn driver_done(
        &mut self,
        now: TimeMs,
        token: Token,
        result: Result<Answer, Error>,
        world: &mut World,
        numbers: &mut Numbers,
    ) -> Vec<Out> {
        self.step(now, Event::DriverDone { token, result }, world, numbers)
    }

    /// Lets it see the time, and send its heartbeat.
    pub fn tick(&mut self, now: TimeMs, world: &mut World, numbers: &mut Numbers) -> Vec<Out> {
        let mut outs = self.step(now, Event::Tick { now }, world, numbers);
        if std::mem::take(&mut self.heard) {
            let question = Question::Registered(self.host.clone());
            outs.extend(self.asker.ask(question, Purpose::Registration, numbers));
        }
        if let Some(caretaker) = self.caretaker.as_mut().filter(|_| self.is_registered) {
            outs.extend(caretaker.look(&self.host, numbers));
        }
        outs
    }

    fn step(
        &mut self,
        now: TimeMs,
        event: Event,
        world: &mut World,
        numbers: &mut Numbers,
    ) -> Vec<Out> {
        let Some(core) = &mut self.core else {
            return Vec::new();
        };
        let mut outs = Vec::new();
        for effect in core.step(event) {
            match effect {
                Effect::Reply { id, result } => {
                    if let Some(taken) = self.calls.remove(&id) {
                        if result.is_ok() {
                            self.violation = taken.violation().or(self.violation.take());
                            let newest = self.epochs.entry(taken.vm).or_default();
                            *newest = taken.epoch.max(*newest);
                        }
                        let packet = Packet::Answer(taken.number, Box::new(result));
                        outs.push(Out::Send(taken.from, packet));
                    }
                }
                Effect::Expect => {
                    let question = Question::Expected(self.host.clone());
                    outs.extend(self.asker.ask(question, Purpose::Expect, numbers));
                }
                // No host has a watchdog.
                Effect::Watchdog(_) => {}
                // As long as no schedulers were lost, agents learn of no claims.
                Effect::Report(_) if self.trusted == Epoch::default() => {}
                Effect::Report(comparison) => {
                    let command = Command::NoteReality {
                        host: self.host.clone(),
                        incarnation: core.facts().incarnation,
                        comparison,
                    };
                    let ask = DecisionRequest::new(self.host.as_str(), Action::Plain(command));
                    let question = Question::Decide(ask);
                    outs.extend(self.asker.ask(question, Purpose::Guests, numbers));
                }
                Effect::ReportGuests(basis, guests) => {
                    let command = Command::ReportGuests {
                        host: self.host.clone(),
                        incarnation: core.facts().incarnation,
                        basis,
                        guests,
                    };
                    let ask = DecisionRequest::new(self.host.as_str(), Action::Plain(command));
                    let question = Question::Decide(ask);
                    outs.extend(self.asker.ask(question, Purpose::Guests, numbers));
                }
                Effect::ReportErasures(reports) => {
                    let command = Command::NoteErasures {
                        host: self.host.clone(),
                        incarnation: core.facts().incarnation,
                        reports,
                    };
                    let ask = DecisionRequest::new(self.host.as_str(), Action::Plain(command));
                    let question = Question::Decide(ask);
                    outs.extend(self.asker.ask(question, Purpose::Tell, numbers));
                }
                Effect::Driver { token, request } => world.begin(now, &self.host, token, request),
            }
        }
        outs
    }
}

/// Refuses a call whose grant another cluster signed.
fn refuse(from: Node, number: CallNumber) -> Out {
    let refusal = Refusal::new(
        Code::PermissionDenied,
        grant::INVALID,
        "the grant is of another cluster",
    );
    Out::Send(from, Packet::Answer(number, Box::new(Err(refusal))))
}
