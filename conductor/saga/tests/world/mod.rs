//! A small world for one operation: a scheduler that keeps the log by its rules, agents with
//! hypervisors, scripted faults, and the driver that carries effects out.
//!
//! Invariant, checked after every effect: a guest that may run somewhere has a claim there, and
//! no two hosts run it.

mod agent;
mod dead;
mod fixtures;
mod scheduler;

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::agent::{Call, DomainState, Failure, Reply};
use berth_domain::name::HostName;
use berth_domain::operation::{Kind, Mark, Operation, Outcome, Step};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::{migration, vm};
use berth_saga::{AgentCall, Effect, Ended, Event, Facts, HostFacts, Saga};

pub(crate) use agent::Agent;
pub(crate) use fixtures::{assignment, host};
pub(crate) use scheduler::Scheduler;

/// No story is longer than this.
pub(crate) const EFFECTS_MAX: usize = 3000;

/// What goes wrong with one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The agent says no.
    Refuse,
    /// The call is lost, this often.
    NoAnswer(u32),
    /// The call is carried out and its answer is lost, so that it is made again.
    LostAnswer,
    /// There is no answer, and the call arrives this many effects later.
    Late(u32),
    /// The agent is started anew just before, and has told the scheduler.
    Restart,
    /// The agent is started anew just before, and tells the scheduler only when asked thrice.
    RestartUntold,
    /// A user cancels just before.
    Cancel,
    /// The answer does not belong to the question.
    WrongAnswer,
}

/// A fault at the first call of a step, or of its undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) step: Step,
    pub(crate) undo: bool,
    pub(crate) fault: Fault,
}

/// How a transfer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transfer {
    Arrives,
    Fails,
    Loses,
    /// In the middle of a post-copy.
    Breaks,
}

/// How the source's agent tells that a transfer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// As it is.
    Truly,
    /// Not at all.
    Never,
    /// At once, whether it has or not.
    AtOnce,
}

/// When a conductor dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// Before it carries the effect of this number out.
    Before(usize),
    /// After it, and before it sees the answer.
    After(usize),
}

pub(crate) struct World {
    pub(crate) scheduler: Scheduler,
    pub(crate) agents: BTreeMap<HostName, Agent>,
    pub(crate) transfer_ends: Transfer,
    pub(crate) end_is_told: Told,
    transfer_left: Option<(HostName, HostName, u32)>,
    /// For how many waits a transfer goes on.
    pub(crate) transfer_takes: u32,
    scripts: Vec<(Script, u32)>,
    pub(crate) happened: Vec<Script>,
    late: Vec<(u32, AgentCall)>,
    /// Hosts that answer nothing, and for how many more calls.
    pub(crate) silent: BTreeMap<HostName, u32>,
    /// Hosts that are proven to be dead: they answer nothing.
    pub(crate) dead: BTreeSet<HostName>,
    untold: Option<(HostName, u32)>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) waited_ms: u64,
}

impl World {
    pub(crate) fn new(kind: &str) -> Self {
        let scheduler = Scheduler::new(kind);
        let mut agents: BTreeMap<HostName, Agent> = ["h1", "h2", "h3", "h4"]
            .into_iter()
            .enumerate()
            .map(|(n, name)| (host(name), Agent::new(n as u128 + 1)))
            .collect();
        if kind != "boot" {
            let held = scheduler.vm.as_ref().and_then(|v| v.claim);
            let claim = held.and_then(|id| scheduler.claims.get(&id)).cloned();
            let agent = agents.get_mut(&host("h1")).unwrap();
            let off = scheduler::is_off(kind) || kind == "rebuild_broken";
            agent.state = match kind {
                _ if off => DomainState::Absent,
                "start_active" => DomainState::Stopped,
                _ => DomainState::Running,
            };
            agent.claim = claim;
            agent.disks_are_whole = kind != "rebuild_broken";
        }
        Self {
            scheduler,
            agents,
            transfer_ends: Transfer::Arrives,
            end_is_told: Told::Truly,
            transfer_left: None,
            transfer_takes: 3,
            scripts: Vec::new(),
            happened: Vec::new(),
            late: Vec::new(),
            silent: BTreeMap::new(),
            dead: BTreeSet::new(),
            untold: None,
            effects: Vec::new(),
            waited_ms: 0,
        }
    }

    pub(crate) fn with(mut self, scripts: &[Script]) -> Self {
        for script in scripts {
            let times = if let Fault::NoAnswer(times) = script.fault {
                times
            } else {
                1
            };
            self.scripts.push((*script, times));
        }
        self
    }

    pub(crate) fn facts(&self) -> Facts {
        let scheduler = &self.scheduler;
        let hosts = self.agents.iter().map(|(name, agent)| {
            let facts = HostFacts {
                address: format!("http://{name}:7300"),
                incarnation: agent.told,
                service_version: agent.version,
                dead: self.dead.contains(name),
                storage_id: agent.storage_id.clone(),
            };
            (name.clone(), facts)
        });
        let claim = scheduler.operation.claim;
        Facts {
            vm: scheduler.vm.clone().unwrap_or_else(fixtures::gone),
            migration: scheduler.migration.clone(),
            claim: claim.and_then(|id| scheduler.claims.get(&id)).cloned(),
            claims: scheduler.claims.clone(),
            hosts: hosts.collect(),
        }
    }

    /// Returns a conductor that takes the operation over, wherever it is.
    pub(crate) fn take_over(&mut self) -> Saga {
        self.scheduler.take_lease();
        Saga::resume(self.scheduler.operation.clone(), self.facts())
    }

    /// Carries an effect out; `None` when it was the last one.
    pub(crate) fn perform(&mut self, effect: &Effect) -> Option<Event> {
        self.effects.push(effect.clone());
        self.deliver_late(false);
        let event = match effect {
            Effect::Commit(record) => Event::Committed(self.scheduler.commit(record).map(Box::new)),
            Effect::ScheduleNext { epoch, .. } => {
                Event::Scheduled(self.scheduler.schedule_next(*epoch))
            }
            Effect::Refresh => {
                self.tell();
                let read = (self.scheduler.operation.clone(), self.facts());
                Event::Refreshed(Ok(Box::new(read)))
            }
            Effect::Call(call) => Event::Answered(self.call(call).map(Box::new)),
            Effect::Wait { ms } => {
                self.waited_ms += ms;
                self.pass();
                Event::Elapsed
            }
            Effect::Watch(watch) => {
                if self.end_is_told != Told::AtOnce {
                    self.waited_ms += watch.blind_ms;
                    self.pass();
                }
                let sends = self.agents[&watch.host].state == DomainState::MigratingOut;
                match self.end_is_told {
                    Told::Truly if sends => Event::Elapsed,
                    Told::Truly | Told::AtOnce => Event::TransferEnded,
                    Told::Never => Event::Elapsed,
                }
            }
            Effect::Done(_) => return None,
        };
        self.check_always();
        Some(event)
    }

    /// The agent that was started anew may tell the scheduler.
    fn tell(&mut self) {
        if let Some((host, left)) = self.untold.take() {
            if left == 0 {
                let agent = self.agents.get_mut(&host).unwrap();
                agent.told = agent.incarnation;
            } else {
                self.untold = Some((host, left - 1));
            }
        }
    }

    fn site(&self, call: &Call) -> (Step, bool) {
        let boot = self.scheduler.operation.kind == Kind::Boot;
        match call {
            Call::SpawnVm { .. } => (Step::Spawn, false),
            Call::DestroyVm if boot => (Step::Spawn, true),
            Call::DestroyVm => (Step::Destroy, false),
            Call::CheckCanLiveMigrateDestination { .. } => (Step::CheckDestination, false),
            Call::CheckCanLiveMigrateSource { .. } => (Step::CheckSource, false),
            Call::FitLiveMigration { .. } => (Step::FitDestination, false),
            Call::PreLiveMigration { .. } => (Step::PreLiveMigration, false),
            Call::RollbackLiveMigrationAtDestination { .. } => {
                let begun = |e: &berth_domain::operation::Entry| {
                    e.step == Step::LiveMigration && e.mark == Mark::Started
                };
                if self.scheduler.operation.log.iter().any(begun) {
                    (Step::Settle, true)
                } else {
                    (Step::PreLiveMigration, true)
                }
            }
            Call::LiveMigration { .. } => (Step::LiveMigration, false),
            Call::GetDomain
            | Call::PostLiveMigrationAtSource { .. }
            | Call::AbortLiveMigration { .. }
            | Call::ForceCompleteLiveMigration { .. } => (Step::Settle, false),
            Call::StopVm { .. } => (Step::Stop, false),
            Call::StartVm { .. } => (Step::Start, false),
            Call::MakeDisks { .. } => (Step::MakeDisks, false),
            Call::CopyDisk { .. } => (Step::CopyDisk, false),
            Call::PublishImage { .. } => (Step::PublishImage, false),
            Call::FetchDisks(_) => (Step::FetchDisks, false),
            Call::DropDisks { .. } => (Step::DropSource, false),
            Call::SettleVm | Call::DropImage { .. } => {
                let log = &self.scheduler.operation.log;
                let undone = log.iter().rev().find(|e| e.mark == Mark::UndoStarted);
                (undone.expect("an undo that was begun").step, true)
            }
        }
    }

    fn call(&mut self, call: &AgentCall) -> Result<Reply, Failure> {
        let unreachable = Err(Failure::Unreachable {
            message: "connection refused".to_owned(),
        });
        if self.dead.contains(&call.host) {
            return unreachable;
        }
        if let Some(left) = self.silent.get_mut(&call.host)
            && *left > 0
        {
            *left -= 1;
            return unreachable;
        }
        let (step, undo) = self.site(&call.call);
        let found = self
            .scripts
            .iter()
            .position(|(s, left)| s.step == step && s.undo == undo && *left > 0);
        let Some(found) = found else {
            return self.deliver(call);
        };
        self.scripts[found].1 -= 1;
        let script = self.scripts[found].0;
        self.happened.push(script);
        match script.fault {
            Fault::Refuse => Err(Failure::Refused(Refusal::new(
                Code::ResourceExhausted,
                "SCRIPTED",
                "the script says no",
            ))),
            Fault::NoAnswer(_) => unreachable,
            Fault::LostAnswer => {
                let _ = self.deliver(call);
                unreachable
            }
            Fault::Late(effects) => {
                self.late.push((effects, call.clone()));
                unreachable
            }
            Fault::Restart | Fault::RestartUntold => {
                let agent = self.agents.get_mut(&call.host).unwrap();
                agent.restart();
                if script.fault == Fault::Restart {
                    agent.told = agent.incarnation;
                } else {
                    self.untold = Some((call.host.clone(), 2));
                }
                self.deliver(call)
            }
            Fault::Cancel => {
                self.scheduler.operation.cancelled = true;
                self.deliver(call)
            }
            Fault::WrongAnswer => {
                let _ = self.deliver(call);
                Ok(Reply::Done)
            }
        }
    }

    fn deliver(&mut self, call: &AgentCall) -> Result<Reply, Failure> {
        let agent = self.agents.get_mut(&call.host).unwrap();
        let reply = agent.handle(call).map_err(Failure::Refused)?;
        if agent.began_transfer {
            agent.began_transfer = false;
            self.begin_transfer(&call.host);
        }
        let ordered = self.agents.get_mut(&call.host).unwrap().ordered.take();
        if let Some(order) = ordered
            && let Some((source, _, left)) = &mut self.transfer_left
            && *source == call.host
        {
            *left = 0;
            if matches!(order, Call::AbortLiveMigration { .. }) {
                self.transfer_ends = Transfer::Fails;
            }
            self.pass();
        }
        Ok(reply)
    }

    fn begin_transfer(&mut self, source: &HostName) {
        let migration = self.scheduler.migration.as_ref().unwrap();
        let destination = migration.destination.clone().unwrap();
        let receiver = self.agents.get_mut(&destination).unwrap();
        if receiver.state == DomainState::Prepared {
            receiver.state = DomainState::MigratingIn;
            self.transfer_left = Some((source.clone(), destination, self.transfer_takes));
        } else {
            let sender = self.agents.get_mut(source).unwrap();
            sender.state = DomainState::Running;
            sender.error = Some("the destination is not prepared".to_owned());
        }
    }

    /// Time passes: a transfer goes on.
    fn pass(&mut self) {
        let Some((source, destination, left)) = self.transfer_left.take() else {
            return;
        };
        if left > 0 {
            self.transfer_left = Some((source, destination, left - 1));
            return;
        }
        let (at_source, at_destination) = match self.transfer_ends {
            Transfer::Arrives => (DomainState::Absent, DomainState::Running),
            Transfer::Fails => (DomainState::Running, DomainState::Absent),
            Transfer::Loses => (DomainState::Absent, DomainState::Absent),
            Transfer::Breaks => (DomainState::PostCopyBroken, DomainState::PostCopyBroken),
        };
        let sender = self.agents.get_mut(&source).unwrap();
        sender.state = at_source;
        if self.transfer_ends == Transfer::Fails {
            sender.error = Some("the stream broke".to_owned());
        }
        self.agents.get_mut(&destination).unwrap().state = at_destination;
    }

    fn deliver_late(&mut self, all: bool) {
        let mut due = Vec::new();
        self.late.retain_mut(|(left, call)| {
            if *left == 0 || all {
                due.push(call.clone());
                return false;
            }
            *left -= 1;
            true
        });
        for call in due {
            let _ = self.deliver(&call);
        }
    }

    fn check_always(&self) {
        let mut running = Vec::new();
        for (name, agent) in &self.agents {
            let may_run = !matches!(agent.state, DomainState::Absent | DomainState::Prepared);
            let claimed = self.scheduler.claims.values().any(|c| c.host == *name);
            assert!(
                !may_run || claimed,
                "{name} runs a guest ({:?}) without a claim: {:#?}",
                agent.state,
                self.scheduler.operation.log
            );
            if matches!(
                agent.state,
                DomainState::Running | DomainState::MigratingOut
            ) {
                running.push(name.clone());
            }
        }
        assert!(running.len() <= 1, "the guest runs on {running:?}");
    }

    /// Drives the saga to its end, with a death on the way and a successor after it.
    pub(crate) fn run(&mut self, death: Option<Death>) -> Ended {
        let mut saga = self.take_over();
        let mut event = Event::Begin;
        let mut number = 0;
        loop {
            number += 1;
            assert!(
                number < EFFECTS_MAX,
                "no end: {:#?}",
                self.scheduler.operation.log
            );
            let effect = saga.step(event).expect("an effect");
            if death == Some(Death::Before(number)) {
                saga = self.take_over();
                event = Event::Begin;
                continue;
            }
            let Some(answer) = self.perform(&effect) else {
                let Effect::Done(ended) = effect else {
                    unreachable!("only Done has no answer")
                };
                return ended;
            };
            event = answer;
            if death == Some(Death::After(number)) {
                saga = self.take_over();
                event = Event::Begin;
            }
        }
    }

    /// Drives the saga to its end; `before` sees and may change things before each effect.
    pub(crate) fn watch(&mut self, mut before: impl FnMut(&mut Self, &mut Saga, &Effect)) {
        let mut saga = self.take_over();
        let mut event = Event::Begin;
        for _ in 0..EFFECTS_MAX {
            let effect = saga.step(event).expect("an effect");
            before(self, &mut saga, &effect);
            match self.perform(&effect) {
                Some(next) => event = next,
                None => return,
            }
        }
        panic!("no end: {:#?}", self.scheduler.operation.log);
    }

    /// Lets what is still under way arrive, then checks how things ended.
    pub(crate) fn check_end(&mut self) {
        self.deliver_late(true);
        self.check_always();
        check_log(&self.scheduler.operation);
        let scheduler = &self.scheduler;
        let outcome = scheduler.operation.outcome.as_ref();
        let outcome = outcome.unwrap_or_else(|| panic!("not done: {:?}", scheduler.operation.log));
        let hosts: Vec<&HostName> = self
            .agents
            .iter()
            .filter(|(_, a)| a.state != DomainState::Absent)
            .map(|(name, _)| name)
            .collect();
        let claims: Vec<_> = scheduler.claims.values().collect();
        let Some(record) = &scheduler.vm else {
            assert_eq!(scheduler.operation.kind, Kind::Delete);
            assert!(
                hosts.is_empty() && claims.is_empty(),
                "{hosts:?} {claims:?}"
            );
            return;
        };
        if scheduler.operation.kind.is_power() {
            self.check_power();
            return;
        }
        if record.state == vm::State::Error {
            assert!(hosts.is_empty(), "{hosts:?}");
            assert!(claims.is_empty(), "{claims:?}");
            assert!(matches!(outcome, Outcome::Failed(_)));
            return;
        }
        assert_eq!(record.state, vm::State::Active);
        if matches!(outcome, Outcome::Failed(refusal) if refusal.reason == "GUEST_ENDED") {
            assert!(hosts.is_empty(), "{hosts:?}");
            assert_eq!(claims.len(), 1, "{claims:#?}");
            assert_eq!(Some(claims[0].id), record.claim);
            return;
        }
        assert_eq!(hosts, [record.host.as_ref().unwrap()]);
        assert_eq!(claims.len(), 1, "{claims:#?}");
        assert_eq!(Some(claims[0].id), record.claim);
        assert_eq!(claims[0].host, *hosts[0]);
        assert_eq!(claims[0].state, berth_domain::claim::State::Active);
        let guest = self.agents[hosts[0]].claim.as_ref();
        assert_eq!(guest.map(|c| &c.assignment), Some(&claims[0].assignment));
        if let Some(record) = &scheduler.migration {
            let moved = record.state == migration::State::Completed;
            assert_eq!(moved, matches!(outcome, Outcome::Succeeded));
            let there = record.destination.as_ref() == Some(hosts[0]);
            assert_eq!(moved, there, "{record:?}");
        }
    }

    /// What the VM is called is what its guest is, and its claim is as it was.
    fn check_power(&self) {
        let scheduler = &self.scheduler;
        let record = scheduler.vm.as_ref().unwrap();
        let claims: Vec<_> = scheduler.claims.values().collect();
        assert_eq!(claims.len(), 1, "{claims:#?}");
        assert_eq!(Some(claims[0].id), record.claim);
        assert_eq!(claims[0].state, berth_domain::claim::State::Active);
        let agent = &self.agents[record.host.as_ref().unwrap()];
        let runs = agent.state == DomainState::Running;
        let log = &scheduler.operation.log;
        let expected = match (runs, agent.disks_are_whole) {
            (true, _) => vec![vm::State::Active],
            (false, true) => vec![vm::State::Stopped],
            (false, false) => vec![vm::State::Error],
        };
        let mut expected = expected;
        // A draft is copied of a guest that nobody looked at, and where nothing was begun nobody
        // asked: then an ACTIVE one may be off.
        let asked = log.iter().any(|e| e.mark == Mark::Started);
        let is_snapshot = matches!(scheduler.operation.kind, Kind::Snapshot { .. });
        if is_snapshot || !asked {
            expected = vec![record.state];
        }
        // Disks that were made while no answer came count as broken: nobody said that they are whole.
        if agent.disks_are_whole && !runs {
            let made = |mark: &Mark| {
                log.iter()
                    .any(|e| e.step == Step::MakeDisks && e.mark == *mark)
            };
            if made(&Mark::Started) && !made(&Mark::Succeeded) {
                expected.push(vm::State::Error);
            }
        }
        assert!(
            expected.contains(&record.state),
            "{:?} {log:#?}",
            record.state
        );
        assert!(agent.drafts.is_empty(), "a draft is left: {log:#?}");
        let published = matches!(self.outcome(), Outcome::Succeeded);
        assert_eq!(agent.published, is_snapshot && published, "{log:#?}");
    }

    pub(crate) fn outcome(&self) -> &Outcome {
        self.scheduler.operation.outcome.as_ref().expect("an end")
    }

    pub(crate) fn refusal(&self) -> &Refusal {
        match self.outcome() {
            Outcome::Failed(refusal) => refusal,
            Outcome::Succeeded => panic!("it succeeded"),
        }
    }
}

/// Holds a finished log against what a log may say.
fn check_log(operation: &Operation) {
    let plan = berth_saga::steps(&operation.kind);
    let position = |step: Step| plan.iter().position(|p| p.step == step).expect("a step");
    let log = &operation.log;
    let starts: Vec<usize> = (0..log.len())
        .filter(|i| log[*i].step == Step::Claim && log[*i].mark == Mark::Succeeded)
        .chain([log.len()])
        .collect();
    let claims = plan.iter().any(|p| p.step == Step::Claim);
    let first = if !claims { 0 } else { starts[0] };
    assert_eq!(first, 0, "{log:#?}");
    let bounds: Vec<usize> = std::iter::once(0)
        .chain(starts.into_iter().skip(1))
        .collect();
    for attempt in bounds.windows(2) {
        let entries = &log[attempt[0]..attempt[1]];
        let marks =
            |step: Step, mark: &Mark| entries.iter().any(|e| e.step == step && e.mark == *mark);
        let mut reached = 0;
        for entry in entries {
            if matches!(entry.mark, Mark::Started | Mark::Succeeded) {
                assert!(position(entry.step) >= reached, "backwards: {entries:#?}");
                reached = position(entry.step);
            }
        }
        let returned = marks(Step::Claim, &Mark::Undone)
            || entries
                .iter()
                .any(|e| e.step == Step::Claim && matches!(e.mark, Mark::Failed(_)));
        for planned in plan {
            let step = planned.step;
            if marks(step, &Mark::Undone) && step != Step::Claim {
                assert!(marks(step, &Mark::UndoStarted), "{entries:#?}");
            }
            if returned && planned.undo == berth_saga::plan::Undo::CallAgent {
                assert_eq!(
                    marks(step, &Mark::Started),
                    marks(step, &Mark::Undone),
                    "{step:?} is left behind: {entries:#?}"
                );
            }
        }
    }
}
