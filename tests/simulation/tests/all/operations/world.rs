//! A cluster for one operation at a time: the replicated state without its replication, agents on
//! simulated hypervisors, a conductor that carries effects out, and what goes wrong between them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_decide::{Action, Decision, DecisionRequest, ScheduleMove, decide};
use berth_domain::agent::{Failure, Reply as AgentReply};
use berth_domain::id::{ClaimId, ClusterId, MigrationId, OperationId, TimeMs};
use berth_domain::name::{FlavorName, HostName, ServiceName, VmName};
use berth_domain::operation::{Kind, LeaseRequest, Operation};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::ServiceVersion;
use berth_driver::sim::{Settings, World as Hypervisors};
use berth_saga::{AgentCall, Effect, Ended, Event, Saga};
use berth_simulation::agent::Agent;
use berth_simulation::asker::{Numbers, Out};
use berth_simulation::chance::Chance;
use berth_simulation::packet::{CallNumber, Node, Packet, Question, Told};
use berth_simulation::{member, scene, verdict, wish};
use berth_state::command::{Command, Envelope};
use berth_state::{Reply, State};

use super::faults::{Fault, Script, Site};
use super::stories::{Act, Story};

/// No story is longer than this.
const EFFECTS_MAX: usize = 2000;
/// How long a conductor waits for an agent.
const PATIENCE_MS: u64 = 90_000;
/// How often an agent looks at its clock.
const TICK_MS: u64 = 500;
/// How long a lease holds.
const LEASE_MS: u64 = 10_000;

/// When a conductor dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// Before it carries the effect of this number out.
    Before(usize),
    /// After it, and before it sees the answer.
    After(usize),
}

/// How far a conductor has come with the operation.
#[derive(Clone)]
pub(crate) struct Conductor {
    saga: Saga,
    /// The answer to the last effect.
    event: Event,
    effects: usize,
}

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) state: State,
    index: u64,
    pub(crate) now: u64,
    pub(crate) agents: BTreeMap<HostName, Agent>,
    pub(crate) hypervisors: Hypervisors,
    hosts: Vec<HostName>,
    pub(crate) chance: Chance,
    numbers: Numbers,
    pub(crate) operation: OperationId,
    /// What agents answered, by call.
    answers: BTreeMap<CallNumber, Result<AgentReply, Refusal>>,
    scripts: Vec<Script>,
    happened: Vec<Script>,
    late: Vec<(u32, AgentCall)>,
    /// Hosts that cannot be called, and for how many more calls.
    cut: BTreeMap<HostName, u32>,
    /// Agents that are down, and for how many more calls.
    pub(crate) down: BTreeMap<HostName, u32>,
    /// How many further commits are carried out without an answer.
    mute: u32,
    /// How many further commits are not even carried out.
    leaderless: u32,
    /// Where the operation asked an agent, in order.
    pub(crate) visited: Vec<Site>,
    /// How many effects there were.
    pub(crate) effects: usize,
    /// Hosts that died and were fenced.
    pub(crate) dead: BTreeSet<HostName>,
    /// Whether each host has a storage of its own.
    pub(crate) apart: bool,
}

pub(crate) fn vm() -> VmName {
    VmName::new("a").expect("a name")
}

fn flavor(name: &str) -> FlavorName {
    FlavorName::new(name).expect("a name")
}

pub(crate) fn lease() -> LeaseRequest {
    LeaseRequest {
        conductor: ServiceName::new("c1").expect("a name"),
        ttl_ms: LEASE_MS,
    }
}

fn no_answer() -> Failure {
    Failure::Unreachable {
        message: "connection refused".to_owned(),
    }
}

impl World {
    /// Returns the world in which the story's operation has just begun.
    pub(crate) fn at(story: &Story) -> Self {
        let mut world = Self::with_hosts_of(3, 1, story.apart);
        for act in story.before {
            world.begin(*act);
            world.run(None);
            world.check_end();
        }
        world.begin(story.act);
        world.visited.clear();
        story.act.check(&world.kind());
        world
    }

    /// Returns a cluster of so many hosts, and chance of this seed.
    pub(crate) fn with_hosts(number: usize, seed: u64) -> Self {
        Self::with_hosts_of(number, seed, false)
    }

    fn with_hosts_of(number: usize, seed: u64, apart: bool) -> Self {
        let mut chance = Chance::new(seed);
        let hosts: Vec<HostName> = (1..=number)
            .map(|n| HostName::new(&format!("h{n}")).expect("a name"))
            .collect();
        let mut hypervisors = Hypervisors::new(Settings {
            transfer_ms: 300,
            ..Settings::default()
        });
        let topology = scene::topology(&mut chance);
        let topology = Arc::new(scene::with_plenty_of_pmem(topology));
        let mut agents = BTreeMap::new();
        for host in &hosts {
            hypervisors.add_host(host.clone(), topology.clone());
            let version = ServiceVersion::CURRENT;
            let mut agent = Agent::new(host.clone(), topology.clone(), version, 1, &mut chance);
            if apart {
                agent.storage = host.to_string();
                hypervisors.set_storage(host, host.as_str());
            }
            agents.insert(host.clone(), agent);
        }
        let mut world = Self {
            state: State::default(),
            index: 0,
            now: 1_790_000_000_000,
            agents,
            hypervisors,
            hosts,
            operation: OperationId(chance.uuid()),
            chance,
            numbers: Numbers::default(),
            answers: BTreeMap::new(),
            scripts: Vec::new(),
            happened: Vec::new(),
            late: Vec::new(),
            cut: BTreeMap::new(),
            down: BTreeMap::new(),
            mute: 0,
            leaderless: 0,
            visited: Vec::new(),
            effects: 0,
            dead: BTreeSet::new(),
            apart,
        };
        let cluster = ClusterId(world.chance.uuid());
        world
            .command(Command::Bootstrap { cluster })
            .expect("a cluster");
        world
            .command(Command::FinalizeUpgrade {
                version: ServiceVersion::CURRENT,
                gone: BTreeSet::new(),
            })
            .expect("a version");
        for mut flavor in scene::flavors() {
            // What leaves a guest here is erased whatever happens.
            let spec = ("hw:pmem".to_owned(), "SMALL".to_owned());
            flavor.extra_specs.extend([spec]);
            if ["one", "two"].contains(&flavor.name.as_str()) {
                world
                    .command(Command::CreateFlavor(flavor))
                    .expect("a flavor");
            }
        }
        for host in world.hosts.clone() {
            world.start_agent(&host);
        }
        world
    }

    pub(crate) fn script(&mut self, scripts: &[Script]) {
        self.scripts = scripts.to_vec();
    }

    pub(crate) fn kind(&self) -> Kind {
        self.record().kind.clone()
    }

    /// Lets nothing go wrong from now on.
    pub(crate) fn be_whole(&mut self) {
        self.scripts.clear();
        self.cut.clear();
        self.mute = 0;
        self.leaderless = 0;
    }

    fn record(&self) -> &Operation {
        self.state.operation(self.operation).expect("the operation")
    }

    // ---- the scheduler ---------------------------------------------------------------------

    pub(crate) fn ask(&mut self, request: Action) -> Result<Reply, Refusal> {
        let ask = DecisionRequest::new("test", request);
        match decide(&self.state, berth_codec::admit, TimeMs(self.now), &ask) {
            Decision::Command(proposal) => self.apply(&proposal.envelope),
            Decision::Answer(answer) => Ok(answer.reply),
            Decision::Refuse(refusal) => Err(*refusal),
            Decision::Explain(unexplained) => Err(unexplained.explain()),
        }
    }

    pub(crate) fn command(&mut self, command: Command) -> Result<Reply, Refusal> {
        self.ask(Action::Plain(command))
    }

    fn apply(&mut self, envelope: &Envelope) -> Result<Reply, Refusal> {
        self.index += 1;
        let applied = self.state.apply(self.index, envelope);
        if let Err(violation) = self.state.check() {
            panic!("{violation}\nafter {envelope:?}");
        }
        applied.outcome
    }

    /// Asks for something about the VM; what is begun is the operation from now on.
    pub(crate) fn begin(&mut self, act: Act) {
        let wish = act.wish(vm(), flavor("one"), flavor("two"));
        let request = match wish {
            Some(wish) => wish::request(&wish, lease(), &mut self.chance).1,
            None if act == Act::MoveToVerify => Action::ScheduleMove(self.cold_move(true, false)),
            None => self.evacuation(),
        };
        let begun = self.ask(request);
        self.attend(begun);
    }

    /// From now on the operation is the one that has just begun.
    pub(crate) fn attend(&mut self, begun: Result<Reply, Refusal>) {
        match begun {
            Ok(Reply::Operation(operation)) => self.operation = operation.id,
            other => panic!("nothing has begun: {other:?}"),
        }
        self.effects = 0;
    }

    /// The VM's host dies and is fenced.
    fn evacuation(&mut self) -> Action {
        let host = self.state.vm(&vm()).and_then(|vm| vm.host.clone());
        self.die(&host.expect("the vm is on a host"));
        Action::ScheduleMove(self.cold_move(false, true))
    }

    pub(crate) fn cold_move(&mut self, verify: bool, evacuate: bool) -> ScheduleMove {
        ScheduleMove {
            operation: OperationId(self.chance.uuid()),
            migration: MigrationId(self.chance.uuid()),
            vm: vm(),
            claim: ClaimId(self.chance.uuid()),
            flavor: None,
            host: None,
            preferred: None,
            verify,
            evacuate,
            lease: lease(),
        }
    }

    // ---- the agents ------------------------------------------------------------------------

    fn start_agent(&mut self, host: &HostName) {
        let agent = self.agents.get_mut(host).expect("an agent");
        let outs = agent.start(&mut self.hypervisors, &mut self.chance, &mut self.numbers);
        self.out(host, outs);
    }

    /// Carries out what an agent wants; its questions are answered at once.
    fn out(&mut self, host: &HostName, outs: Vec<Out>) {
        for out in outs {
            let Out::Send(_, packet) = out else { continue };
            match packet {
                Packet::Question(call, question) => {
                    let told = match *question {
                        Question::Decide(ask) => Told::Decided(self.ask(ask.action)),
                        Question::Registered(name) => {
                            let view = self.state.host(&name);
                            Told::Registered(view.map(|v| v.host.report.incarnation))
                        }
                        Question::Expected(name) => {
                            Told::Expected(Box::new(member::expected(&self.state, &name)))
                        }
                        Question::Erasures(name) => Told::Erasures(self.state.erasures_of(&name)),
                        // No host has regions here.
                        Question::Facts(_)
                        | Question::Drain(_)
                        | Question::Expired
                        | Question::Service(_)
                        | Question::Volumes(_)
                        | Question::Members(_) => Told::Lost,
                    };
                    let packet = Packet::Told(call, Box::new(told));
                    let outs = self.agent_takes(host, packet);
                    self.out(host, outs);
                }
                Packet::Answer(number, result) => {
                    self.answers.insert(number, *result);
                }
                Packet::Raft(..)
                | Packet::Write(..)
                | Packet::Snapshot(..)
                | Packet::Told(..)
                | Packet::Call(..)
                | Packet::Wish(..)
                | Packet::Granted(..) => unreachable!("an agent does not send this"),
            }
        }
    }

    fn agent_takes(&mut self, host: &HostName, packet: Packet) -> Vec<Out> {
        let agent = self.agents.get_mut(host).expect("an agent");
        if !agent.is_up() {
            return Vec::new();
        }
        agent.take(
            TimeMs(self.now),
            Node::Conductor(0),
            packet,
            &mut self.hypervisors,
            &mut self.chance,
            &mut self.numbers,
            None,
        )
    }

    fn send(&mut self, call: &AgentCall) -> CallNumber {
        let number = self.numbers.fresh();
        let packet = Packet::Call(number, call.fence, Box::new(call.call.clone()));
        let outs = self.agent_takes(&call.host, packet);
        self.out(&call.host, outs);
        number
    }

    /// Lets time pass, with what hypervisors and agents do meanwhile.
    pub(crate) fn pass(&mut self, ms: u64) {
        let until = self.now + ms;
        while self.now < until {
            let due = self.hypervisors.next_at().map_or(until, |at| at.0);
            self.now = due.clamp(self.now + 1, self.now + TICK_MS).min(until);
            for done in self.hypervisors.advance(TimeMs(self.now)) {
                let agent = self.agents.get_mut(&done.host).expect("an agent");
                let now = TimeMs(self.now);
                let (world, numbers) = (&mut self.hypervisors, &mut self.numbers);
                let outs = agent.driver_done(now, done.token, done.result, world, numbers);
                self.out(&done.host, outs);
            }
            for host in self.hosts.clone() {
                let agent = self.agents.get_mut(&host).expect("an agent");
                let now = TimeMs(self.now);
                let outs = agent.tick(now, &mut self.hypervisors, &mut self.numbers);
                self.out(&host, outs);
            }
        }
    }

    /// Calls an agent and waits for its answer.
    fn deliver(&mut self, call: &AgentCall) -> Result<AgentReply, Failure> {
        let number = self.send(call);
        let until = self.now + PATIENCE_MS;
        while self.now < until && self.agents[&call.host].is_up() {
            if let Some(result) = self.answers.remove(&number) {
                return result.map_err(Failure::Refused);
            }
            self.pass(5);
        }
        Err(no_answer())
    }

    // ---- what goes wrong -------------------------------------------------------------------

    fn call(&mut self, call: &AgentCall, site: Option<Site>) -> Result<AgentReply, Failure> {
        self.visited.extend(site);
        self.revive(&call.host);
        if let Some(left) = self.cut.get_mut(&call.host)
            && *left > 0
        {
            *left -= 1;
            return Err(no_answer());
        }
        let found = self.scripts.iter().position(|s| Some(s.site) == site);
        let Some(found) = found else {
            return self.deliver(call);
        };
        let script = self.scripts.remove(found);
        self.happened.push(script);
        match script.fault {
            Fault::Refuse => Err(Failure::Refused(Refusal::new(
                Code::ResourceExhausted,
                "SCRIPTED",
                "the script says no",
            ))),
            Fault::Cut(calls) => {
                self.cut.insert(call.host.clone(), calls - 1);
                Err(no_answer())
            }
            Fault::LostAnswer => {
                let _ = self.deliver(call);
                Err(no_answer())
            }
            Fault::Late(effects) => {
                self.late.push((effects, call.clone()));
                Err(no_answer())
            }
            Fault::AgentDies(calls) => {
                self.kill_agent(&call.host, calls);
                Err(no_answer())
            }
            Fault::AgentDiesAfter => {
                self.send(call);
                self.kill_agent(&call.host, 0);
                Err(no_answer())
            }
            Fault::Cancel => {
                let operation = self.operation;
                // It may be too late, or of no use to an operation that is never given up.
                let _ = self.command(Command::CancelOperation { operation });
                self.deliver(call)
            }
            Fault::LeaderChanges => {
                self.mute = 3;
                self.deliver(call)
            }
            Fault::NobodyLeads => {
                self.leaderless = 3;
                self.deliver(call)
            }
            Fault::HostDies | Fault::OtherHostDies | Fault::BothHostsDie => {
                for host in self.dying(script.fault, &call.host) {
                    self.die(&host);
                }
                self.deliver(call)
            }
            Fault::HostsCut => {
                for (a, b) in self.pairs() {
                    self.hypervisors.cut(&a, &b);
                }
                let answer = self.deliver(call);
                self.pass(2_000);
                for (a, b) in self.pairs() {
                    self.hypervisors.heal(&a, &b);
                }
                answer
            }
        }
    }

    fn pairs(&self) -> Vec<(HostName, HostName)> {
        let all = |a: &HostName| self.hosts.iter().map(|b| (a.clone(), b.clone())).collect();
        let pairs: Vec<Vec<(HostName, HostName)>> = self.hosts.iter().map(all).collect();
        pairs.into_iter().flatten().filter(|(a, b)| a < b).collect()
    }

    fn kill_agent(&mut self, host: &HostName, calls: u32) {
        self.agents.get_mut(host).expect("an agent").crash();
        self.down.insert(host.clone(), calls);
    }

    /// Starts an agent again that was down for long enough.
    fn revive(&mut self, host: &HostName) {
        match self.down.get_mut(host) {
            Some(0) => {
                self.down.remove(host);
                self.start_agent(host);
            }
            Some(left) => *left -= 1,
            None => {}
        }
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
            self.send(&call);
        }
    }

    // ---- the conductor ---------------------------------------------------------------------

    pub(crate) fn take_over(&mut self) -> Saga {
        let operation = self.operation;
        let request = Command::TakeLease {
            operation,
            lease: lease(),
        };
        // One that is done is not taken; its saga says so.
        let _ = self.command(request);
        match member::facts(&self.state, operation) {
            Some((operation, facts)) => Saga::resume(operation, facts),
            None => panic!("the operation is forgotten"),
        }
    }

    /// Returns whether there is anything left to be carried out.
    fn is_over(&self) -> bool {
        self.record().is_done()
    }

    /// Carries an effect out; `None` when it was the last one.
    pub(crate) fn perform(&mut self, effect: &Effect, site: Option<Site>) -> Option<Event> {
        self.effects += 1;
        self.deliver_late(false);
        let event = match effect {
            Effect::Commit(record) => Event::Committed(self.commit(record)),
            Effect::ScheduleNext { operation, epoch } => {
                let request = Action::ScheduleNext {
                    operation: *operation,
                    epoch: *epoch,
                    claim: ClaimId(self.chance.uuid()),
                };
                Event::Scheduled(self.ask(request).map(drop))
            }
            Effect::Refresh => Event::Refreshed(self.read()),
            Effect::Call(call) => Event::Answered(self.call(call, site).map(Box::new)),
            Effect::Wait { ms } => {
                self.pass(*ms);
                Event::Elapsed
            }
            Effect::Watch(watch) => {
                self.pass(watch.blind_ms);
                // Now the agent is heard, now it is not; and it may tell of an end that is none.
                match self.effects % 2 {
                    0 => Event::TransferEnded,
                    _ => Event::Elapsed,
                }
            }
            Effect::Done(_) => return None,
        };
        self.check_guests();
        Some(event)
    }

    fn read(&self) -> Result<Box<(Operation, berth_saga::Facts)>, Refusal> {
        let read = member::facts(&self.state, self.operation);
        let gone = || Refusal::not_found("operation", self.operation);
        read.map(Box::new).ok_or_else(gone)
    }

    fn commit(&mut self, record: &berth_saga::StepRecord) -> Result<Box<Operation>, Refusal> {
        let nobody = || Refusal::new(Code::Unavailable, "NO_LEADER", "nobody leads");
        if self.leaderless > 0 {
            self.leaderless -= 1;
            return Err(nobody());
        }
        let command = Command::Advance {
            operation: record.operation,
            epoch: record.epoch,
            step: record.step,
            mark: record.mark.clone(),
            effect: record.effect.clone(),
        };
        let outcome = self.command(command);
        if self.mute > 0 {
            self.mute -= 1;
            return Err(nobody());
        }
        let reply = outcome?;
        let Reply::Operation(operation) = reply else {
            panic!("an operation was advanced: {reply:?}");
        };
        Ok(Box::new((*operation).clone()))
    }

    /// Drives the operation to its end, with a death on the way and a successor after it.
    pub(crate) fn run(&mut self, death: Option<Death>) {
        let begun = self.conductor();
        self.finish(begun, death);
    }

    /// Returns a conductor that has just taken the operation over.
    pub(crate) fn conductor(&mut self) -> Conductor {
        Conductor {
            saga: self.take_over(),
            event: Event::Begin,
            effects: 0,
        }
    }

    /// Lets this conductor go on to the end of the operation, or to its death and a successor to it.
    pub(crate) fn finish(&mut self, mut conductor: Conductor, death: Option<Death>) {
        while self.goes_on(&mut conductor, death) {
            let is_bounded = conductor.effects < EFFECTS_MAX;
            assert!(is_bounded, "no end: {:#?}", self.record());
        }
    }

    /// Carries the next effect out, unless a death prevents it; returns whether there is a further one.
    pub(crate) fn goes_on(&mut self, conductor: &mut Conductor, death: Option<Death>) -> bool {
        conductor.effects += 1;
        let number = conductor.effects;
        // A user's wish to cancel reaches the conductor by itself.
        if self.record().cancelled && !self.is_over() {
            let _ = conductor.saga.step(Event::CancelRequested);
        }
        let event = std::mem::replace(&mut conductor.event, Event::Begin);
        let effect = conductor.saga.step(event).expect("an effect");
        let called = conductor.saga.called_step();
        let site = called.map(|(step, undo)| Site { step, undo });
        if death != Some(Death::Before(number)) {
            let Some(answer) = self.perform(&effect, site) else {
                let finished = Effect::Done(Ended::Finished);
                assert_eq!(effect, finished, "{:#?}", self.record());
                return false;
            };
            conductor.event = answer;
            if death != Some(Death::After(number)) {
                return true;
            }
        }
        if self.is_over() {
            return false;
        }
        conductor.saga = self.take_over();
        conductor.event = Event::Begin;
        true
    }

    // ---- what must hold --------------------------------------------------------------------

    pub(crate) fn assert_happened(&self) {
        let left = &self.scripts;
        assert!(
            left.is_empty(),
            "{left:?} did not happen: {:#?}",
            self.record().log
        );
    }

    /// No guest runs twice, and none without a claim.
    fn check_guests(&self) {
        if let Err(what) = self.hypervisors.check() {
            panic!("{what}\n{:#?}", self.record());
        }
        for name in &self.hosts {
            let Some(host) = self.hypervisors.host(name) else {
                continue;
            };
            for (uid, domain) in host.domains() {
                let claimed = self
                    .state
                    .claims_of_host(name)
                    .any(|c| c.is_in_use() && c.vm == domain.spec.vm);
                assert!(
                    claimed || !domain.holds_memory(),
                    "guest {uid} is on {name} in phase {:?} without a claim: {:#?}",
                    domain.phase,
                    self.record().log
                );
            }
        }
    }

    /// Lets what is still under way arrive, then checks that nothing is left over.
    pub(crate) fn check_end(&mut self) {
        self.deliver_late(true);
        for host in self.down.keys().cloned().collect::<Vec<_>>() {
            self.down.insert(host.clone(), 0);
            self.revive(&host);
        }
        self.pass(5_000);
        self.await_erasures();
        self.check_rest();
    }

    /// Lets agents erase what guests have left; one that failed is tried again after a while.
    pub(crate) fn await_erasures(&mut self) {
        let waits = |world: &Self| {
            let mut claims = world.state.claims().values();
            let claim = claims.find(|c| !c.is_in_use() && world.agents[&c.host].is_up());
            claim.cloned()
        };
        for _ in 0..60 {
            if waits(self).is_none() {
                return;
            }
            self.pass(1_000);
        }
        panic!("it is not erased: {:#?}\n{:#?}", waits(self), self.record());
    }

    pub(crate) fn check_rest(&self) {
        self.check_guests();
        if let Err(what) = verdict::at_rest(&self.state, &self.hypervisors, &self.hosts) {
            panic!("{what}\n{:#?}", self.record());
        }
        if self.apart {
            self.check_disks();
        }
    }

    /// Where hosts share nothing, the disks of every VM are where it is, and on the source of a move that
    /// waits to be verified; nowhere else, but on hosts that are dead.
    fn check_disks(&self) {
        let log = &self.record().log;
        let mut wanted: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
        for vm in self.state.vms().values() {
            let hosts = wanted.entry(vm.uid).or_default();
            hosts.extend(vm.host.iter().map(ToString::to_string));
            hosts.extend(vm.remains_on.iter().map(ToString::to_string));
            let claims = self.state.claims_of_vm(&vm.name);
            hosts.extend(claims.map(|claim| claim.host.to_string()));
            for host in hosts.iter() {
                let there = self.hypervisors.disks_of(vm.uid).contains(&host.as_str());
                assert!(there, "{} has no disks on {host}: {log:#?}", vm.name);
            }
        }
        for uid in self.hypervisors.guests_with_disks() {
            for host in self.hypervisors.disks_of(uid) {
                let is_wanted = wanted.get(&uid).is_some_and(|hosts| hosts.contains(host));
                let is_dead = self.dead.iter().any(|dead| dead.as_str() == host);
                assert!(is_wanted || is_dead, "disks are left on {host}: {log:#?}");
            }
        }
    }
}
