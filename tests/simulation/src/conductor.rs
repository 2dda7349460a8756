//! A conductor: drives the real sagas, keeps its leases, takes over what others left.

use std::collections::{BTreeMap, BTreeSet};

use berth_decide::{Action, DecisionRequest, MoveDrained};
use berth_domain::agent::{Call, DomainStatus, Failure, Reply as AgentReply};
use berth_domain::id::{ClaimId, MigrationId, OperationId, RequestId, TimeMs};
use berth_domain::name::{HostName, ServiceName, VmName};
use berth_domain::operation::Operation;
use berth_domain::refusal::Refusal;
use berth_domain::service::Service;
use berth_domain::version::ServiceVersion;
use berth_saga::{DrainEffect, Drainer, Effect, Ended, Event, Facts, Saga};
use berth_state::Reply;
use berth_state::command::{Command, LeaseRequest, RequestKey};

use crate::asker::{Asker, Numbers, Out, Timer};
use crate::bug::Bug;
use crate::chance::Chance;
use crate::packet::{CallNumber, Node, Packet, Question, Told, Wish};
use crate::wish;

/// How long a lease holds.
const LEASE_MS: u64 = 10_000;
/// How often leases are prolonged.
const RENEW_MS: u64 = 3_000;
/// How often orphaned operations are looked for.
const LOOK_MS: u64 = 4_000;
/// How long to wait for an agent.
const AGENT_PATIENCE_MS: u64 = 5_000;

/// What an answer of a member is for.
#[derive(Debug)]
enum Purpose {
    /// Tell the user, and begin.
    Granted(Node, CallNumber),
    /// Begin what was taken or granted.
    Begin,
    /// A saga's record.
    Commit(OperationId, u64),
    /// A saga's next host.
    Next(OperationId, u64),
    /// A drain, and which of its moves have ended.
    Drain(OperationId, u64),
    /// The begin of a move of a drain.
    Move(OperationId, u64, VmName),
    /// A record of a drain.
    Record(OperationId, u64),
    /// A saga's facts.
    Refresh(OperationId, u64),
    /// Take these over.
    Look,
    /// Begin what was taken over.
    Take,
    /// Drop what is no longer held.
    Renew,
    /// See whether its registration stands.
    Registered,
}

/// A saga under way.
struct Driven {
    saga: Saga,
    /// Changes with every effect; what answers an earlier one is dropped.
    turn: u64,
    /// Where the guest was when a migration began.
    source: Option<HostName>,
}

/// A drain under way.
struct Draining {
    drainer: Drainer,
    /// Changes with every effect; what answers an earlier one is dropped.
    turn: u64,
}

/// A conductor, up or down.
pub struct Conductor {
    name: ServiceName,
    /// What its program can do.
    pub version: ServiceVersion,
    hosts: Vec<HostName>,
    members: u64,
    /// Counts its starts; what belongs to an earlier life is dropped.
    pub life: u64,
    /// Whether it is up.
    pub up: bool,
    asker: Asker<Purpose>,
    sagas: BTreeMap<OperationId, Driven>,
    drains: BTreeMap<OperationId, Draining>,
    calls: BTreeMap<CallNumber, (OperationId, u64)>,
}

/// What a conductor may use of the world.
pub struct Context<'a> {
    /// What time it is.
    pub now: TimeMs,
    /// For fresh ids.
    pub chance: &'a mut Chance,
    /// For calls.
    pub numbers: &'a mut Numbers,
    /// What is planted.
    pub bug: Option<Bug>,
}

impl Conductor {
    /// Returns a conductor that is down.
    #[must_use]
    pub fn new(index: usize, hosts: Vec<HostName>, members: u64) -> Self {
        Self {
            name: ServiceName::new(&format!("conductor-{index}")).expect("a good name"),
            version: ServiceVersion::CURRENT,
            hosts,
            members,
            life: 0,
            up: false,
            asker: Asker::new(members),
            sagas: BTreeMap::new(),
            drains: BTreeMap::new(),
            calls: BTreeMap::new(),
        }
    }

    /// Starts it, and has it registered.
    pub fn start(&mut self, numbers: &mut Numbers) -> Vec<Out> {
        self.life += 1;
        self.up = true;
        let mut outs = self.register(numbers);
        outs.push(Out::Timer(LOOK_MS, Timer::Look));
        outs.push(Out::Timer(RENEW_MS, Timer::Renew));
        outs
    }

    fn register(&mut self, numbers: &mut Numbers) -> Vec<Out> {
        let service = Service {
            name: self.name.clone(),
            address: self.name.to_string(),
            version: self.version,
            registered_at: TimeMs(0),
        };
        let request = Action::Plain(Command::RegisterService(service));
        let question = Question::Decide(DecisionRequest::new(self.name.as_str(), request));
        self.asker.ask(question, Purpose::Registered, numbers)
    }

    /// Ends it without a word.
    pub fn crash(&mut self) {
        self.up = false;
        self.asker = Asker::new(self.members);
        self.sagas.clear();
        self.drains.clear();
        self.calls.clear();
    }

    /// Wakes it.
    pub fn timer(&mut self, timer: Timer, context: &mut Context<'_>) -> Vec<Out> {
        match timer {
            Timer::Unanswered(call) => self.asker.unanswered(call, context.numbers),
            Timer::Again(call) => self.asker.again(call, context.numbers),
            Timer::AgentSilent(call) => match self.calls.remove(&call) {
                Some((operation, turn)) => {
                    let failure = Failure::Unreachable {
                        message: "no answer".to_owned(),
                    };
                    self.answered(operation, turn, Err(failure), context)
                }
                None => Vec::new(),
            },
            Timer::Elapsed(operation, turn) if self.drains.contains_key(&operation) => {
                self.read_drain(operation, turn, context)
            }
            Timer::Elapsed(operation, turn) => self.step(operation, turn, Event::Elapsed, context),
            Timer::TransferEnded(operation, turn) => {
                self.step(operation, turn, Event::TransferEnded, context)
            }
            Timer::Renew => {
                let mut outs = vec![Out::Timer(RENEW_MS, Timer::Renew)];
                outs.extend(self.renew(context));
                outs
            }
            Timer::Look => {
                let mut outs = vec![Out::Timer(LOOK_MS, Timer::Look)];
                outs.extend(
                    self.asker
                        .ask(Question::Expired, Purpose::Look, context.numbers),
                );
                let known = Question::Service(self.name.clone());
                outs.extend(self.asker.ask(known, Purpose::Registered, context.numbers));
                outs
            }
            Timer::Write | Timer::Join | Timer::Wish(_) => Vec::new(),
        }
    }

    /// Takes what another node sent.
    pub fn take(&mut self, from: Node, packet: Packet, context: &mut Context<'_>) -> Vec<Out> {
        match packet {
            Packet::Told(call, told) => match self.asker.told(call, *told, context.chance) {
                Ok((purpose, told)) => self.told(purpose, told, context),
                Err(outs) => outs,
            },
            Packet::Answer(call, result) => match self.calls.remove(&call) {
                Some((operation, turn)) => {
                    let result = result.map_err(Failure::Refused);
                    self.answered(operation, turn, result, context)
                }
                None => Vec::new(),
            },
            Packet::Wish(call, request, wish) => self.wish(from, call, request, &wish, context),
            Packet::Raft(..)
            | Packet::Snapshot(..)
            | Packet::Question(..)
            | Packet::Call(..)
            | Packet::Write(..)
            | Packet::Granted(..) => Vec::new(),
        }
    }

    fn told(&mut self, purpose: Purpose, told: Told, context: &mut Context<'_>) -> Vec<Out> {
        match (purpose, told) {
            (Purpose::Granted(user, call), Told::Decided(decided)) => {
                self.granted(user, call, decided, context)
            }
            (Purpose::Commit(operation, turn), Told::Decided(decided)) => {
                let committed = decided.and_then(operation_of).map(Box::new);
                self.step(operation, turn, Event::Committed(committed), context)
            }
            (Purpose::Next(operation, turn), Told::Decided(decided)) => {
                let scheduled = decided.map(|_| ());
                self.step(operation, turn, Event::Scheduled(scheduled), context)
            }
            (Purpose::Refresh(operation, turn), Told::Facts(facts)) => {
                let gone = || Refusal::not_found("operation", operation);
                let facts = facts.map(|(operation, mut facts)| {
                    self.limit(&mut facts);
                    (operation, facts)
                });
                let refreshed = facts.map(Box::new).ok_or_else(gone);
                self.step(operation, turn, Event::Refreshed(refreshed), context)
            }
            (Purpose::Drain(id, turn), Told::Drain(read)) => self.drain(id, turn, read, context),
            (Purpose::Move(id, turn, vm), Told::Decided(decided)) => {
                self.moved(id, turn, vm, decided, context)
            }
            (Purpose::Record(id, turn), Told::Decided(decided)) => {
                if let Some(draining) = self.drains.get_mut(&id).filter(|d| d.turn == turn) {
                    draining.drainer.recorded(decided.as_ref().map(|_| ()));
                }
                self.read_drain(id, turn, context)
            }
            (Purpose::Begin, Told::Facts(Some((operation, facts)))) => {
                self.begin(operation, facts, context)
            }
            (Purpose::Look, Told::Expired(operations)) => {
                let mut outs = Vec::new();
                for operation in operations {
                    let command = Command::TakeLease {
                        operation,
                        lease: self.lease(),
                    };
                    outs.extend(self.ask(Action::Plain(command), None, Purpose::Take, context));
                }
                outs
            }
            (Purpose::Take, Told::Decided(Ok(Reply::Operation(operation)))) => {
                // A retry of a lease that was taken may find it running here already.
                self.sagas.remove(&operation.id);
                if operation.drain().is_some() {
                    self.drains.remove(&operation.id);
                    return self.begin_drain(&operation, context);
                }
                let question = Question::Facts(operation.id);
                self.asker.ask(question, Purpose::Begin, context.numbers)
            }
            (Purpose::Registered, Told::Service(known)) if known != Some(self.version) => {
                self.register(context.numbers)
            }
            (Purpose::Renew, Told::Decided(Ok(Reply::Leases(held)))) => {
                if context.bug != Some(Bug::StaleEpoch) {
                    self.sagas.retain(|id, _| held.contains(id));
                    self.drains.retain(|id, _| held.contains(id));
                }
                Vec::new()
            }
            // Refused or forgotten: another conductor has it.
            _ => Vec::new(),
        }
    }

    fn begin(
        &mut self,
        operation: Operation,
        mut facts: Facts,
        context: &mut Context<'_>,
    ) -> Vec<Out> {
        self.limit(&mut facts);
        let mine = operation
            .lease
            .as_ref()
            .is_some_and(|l| l.conductor == self.name);
        if operation.is_done() || !mine || self.sagas.contains_key(&operation.id) {
            return Vec::new();
        }
        let id = operation.id;
        let source = facts.migration.as_ref().map(|m| m.source.clone());
        let saga = Saga::resume(operation, facts);
        let turn = context.numbers.fresh().0;
        self.sagas.insert(id, Driven { saga, turn, source });
        self.step(id, turn, Event::Begin, context)
    }

    fn begin_drain(&mut self, operation: &Operation, context: &mut Context<'_>) -> Vec<Out> {
        let lease = operation.lease.as_ref();
        let mine = lease.is_some_and(|lease| lease.conductor == self.name);
        let id = operation.id;
        if operation.is_done() || !mine || self.drains.contains_key(&id) {
            return Vec::new();
        }
        let turn = context.numbers.fresh().0;
        let drainer = Drainer::new(operation);
        self.drains.insert(id, Draining { drainer, turn });
        self.read_drain(id, turn, context)
    }

    /// Reads a drain again, unless that turn is over.
    fn read_drain(&mut self, id: OperationId, turn: u64, context: &mut Context<'_>) -> Vec<Out> {
        let Some(draining) = self.drains.get_mut(&id).filter(|d| d.turn == turn) else {
            return Vec::new();
        };
        draining.turn = context.numbers.fresh().0;
        let purpose = Purpose::Drain(id, draining.turn);
        self.asker
            .ask(Question::Drain(id), purpose, context.numbers)
    }

    /// Does what is next for a drain.
    fn drain(
        &mut self,
        id: OperationId,
        turn: u64,
        read: Option<(Operation, BTreeSet<OperationId>)>,
        context: &mut Context<'_>,
    ) -> Vec<Out> {
        let Some(draining) = self.drains.get_mut(&id).filter(|d| d.turn == turn) else {
            return Vec::new();
        };
        let Some((operation, ended)) = read else {
            self.drains.remove(&id);
            return Vec::new();
        };
        draining.turn = context.numbers.fresh().0;
        let turn = draining.turn;
        let epoch = draining.drainer.epoch();
        match draining.drainer.next(&operation, &ended, context.now) {
            DrainEffect::Done(_) => {
                self.drains.remove(&id);
                Vec::new()
            }
            DrainEffect::Await { ms, .. } => {
                vec![Out::Timer(ms.max(1), Timer::Elapsed(id, turn))]
            }
            DrainEffect::Record { vm, refusal } => {
                let command = Command::RecordDrained {
                    drain: id,
                    epoch,
                    vm,
                    refusal,
                };
                let purpose = Purpose::Record(id, turn);
                self.ask(Action::Plain(command), None, purpose, context)
            }
            DrainEffect::Move(vm) => {
                let params = MoveDrained {
                    drain: id,
                    epoch,
                    vm: vm.clone(),
                    operation: OperationId(context.chance.uuid()),
                    migration: MigrationId(context.chance.uuid()),
                    claim: ClaimId(context.chance.uuid()),
                    lease: self.lease(),
                };
                let purpose = Purpose::Move(id, turn, vm);
                self.ask(Action::MoveDrained(params), None, purpose, context)
            }
        }
    }

    /// Takes the answer to the begin of a move of a drain.
    fn moved(
        &mut self,
        id: OperationId,
        turn: u64,
        vm: VmName,
        decided: Result<Reply, Refusal>,
        context: &mut Context<'_>,
    ) -> Vec<Out> {
        let Some(draining) = self.drains.get_mut(&id).filter(|d| d.turn == turn) else {
            return Vec::new();
        };
        let mut outs = Vec::new();
        match decided.and_then(operation_of) {
            Ok(begun) => {
                let question = Question::Facts(begun.id);
                outs.extend(self.asker.ask(question, Purpose::Begin, context.numbers));
            }
            Err(refusal) => draining.drainer.refused(vm, refusal, context.now),
        }
        outs.extend(self.read_drain(id, turn, context));
        outs
    }

    /// A conductor can do no more through agents than it knows itself.
    fn limit(&self, facts: &mut Facts) {
        for host in facts.hosts.values_mut() {
            host.service_version = host.service_version.min(self.version);
        }
    }

    fn answered(
        &mut self,
        operation: OperationId,
        turn: u64,
        result: Result<AgentReply, Failure>,
        context: &mut Context<'_>,
    ) -> Vec<Out> {
        self.step(
            operation,
            turn,
            Event::Answered(result.map(Box::new)),
            context,
        )
    }

    /// Feeds a saga and carries out what it wants.
    fn step(
        &mut self,
        id: OperationId,
        turn: u64,
        event: Event,
        context: &mut Context<'_>,
    ) -> Vec<Out> {
        let Some(driven) = self.sagas.get_mut(&id).filter(|d| d.turn == turn) else {
            return Vec::new();
        };
        // Never a turn of an earlier saga of the same operation.
        driven.turn = context.numbers.fresh().0;
        let turn = driven.turn;
        let Some(effect) = driven.saga.step(event) else {
            return Vec::new();
        };
        match effect {
            Effect::Commit(record) => {
                let command = Command::Advance {
                    operation: record.operation,
                    epoch: record.epoch,
                    step: record.step,
                    mark: record.mark,
                    effect: record.effect,
                };
                self.ask(
                    Action::Plain(command),
                    None,
                    Purpose::Commit(id, turn),
                    context,
                )
            }
            Effect::ScheduleNext { operation, epoch } => {
                let claim = ClaimId(context.chance.uuid());
                let request = Action::ScheduleNext {
                    operation,
                    epoch,
                    claim,
                };
                let key = key("ScheduleNext", RequestId(context.chance.uuid()), 0);
                self.ask(request, Some(key), Purpose::Next(id, turn), context)
            }
            Effect::Refresh => self.asker.ask(
                Question::Facts(id),
                Purpose::Refresh(id, turn),
                context.numbers,
            ),
            Effect::Call(call) => self.call(id, turn, *call, context),
            Effect::Wait { ms } => vec![Out::Timer(ms, Timer::Elapsed(id, turn))],
            // Now the agent is heard, now it is not; and it may tell of an end that is none.
            Effect::Watch(watch) if turn % 2 == 0 => {
                vec![Out::Timer(watch.blind_ms, Timer::TransferEnded(id, turn))]
            }
            Effect::Watch(watch) => vec![Out::Timer(watch.ms, Timer::Elapsed(id, turn))],
            Effect::Done(Ended::Finished | Ended::LeaseLost) => {
                self.sagas.remove(&id);
                Vec::new()
            }
        }
    }

    fn call(
        &mut self,
        id: OperationId,
        turn: u64,
        call: berth_saga::AgentCall,
        context: &mut Context<'_>,
    ) -> Vec<Out> {
        let source = self.sagas.get(&id).and_then(|d| d.source.as_ref());
        let at_destination = source.is_some_and(|source| *source != call.host);
        if context.bug == Some(Bug::ReleaseEarly)
            && at_destination
            && let Some(lie) = nothing_there(&call.call)
        {
            return self.answered(id, turn, Ok(lie), context);
        }
        let number = context.numbers.fresh();
        self.calls.insert(number, (id, turn));
        let at = self
            .hosts
            .iter()
            .position(|h| *h == call.host)
            .expect("a host of the cluster");
        let packet = Packet::Call(number, call.fence, Box::new(call.call));
        vec![
            Out::Send(Node::Agent(at), packet),
            Out::Timer(AGENT_PATIENCE_MS, Timer::AgentSilent(number)),
        ]
    }

    fn renew(&mut self, context: &mut Context<'_>) -> Vec<Out> {
        let lease = |d: &Driven| d.saga.operation().lease.as_ref().map(|l| l.epoch);
        let sagas = self
            .sagas
            .iter()
            .filter_map(|(id, d)| Some((*id, lease(d)?)));
        let drains = self.drains.iter().map(|(id, d)| (*id, d.drainer.epoch()));
        let leases: Vec<_> = sagas.chain(drains).collect();
        if leases.is_empty() {
            return Vec::new();
        }
        let command = Command::RenewLeases {
            conductor: self.name.clone(),
            leases,
            ttl_ms: LEASE_MS,
        };
        self.ask(Action::Plain(command), None, Purpose::Renew, context)
    }

    fn lease(&self) -> LeaseRequest {
        LeaseRequest {
            conductor: self.name.clone(),
            ttl_ms: LEASE_MS,
        }
    }

    fn ask(
        &mut self,
        request: Action,
        key: Option<RequestKey>,
        purpose: Purpose,
        context: &mut Context<'_>,
    ) -> Vec<Out> {
        let mut ask = DecisionRequest::new(self.name.as_str(), request);
        if let Some(key) = key {
            // A retry comes through any conductor.
            ask.principal = "user".to_owned();
            ask.key = Some(key);
        }
        self.asker
            .ask(Question::Decide(ask), purpose, context.numbers)
    }

    fn wish(
        &mut self,
        from: Node,
        call: CallNumber,
        request: RequestId,
        wish: &Wish,
        context: &mut Context<'_>,
    ) -> Vec<Out> {
        let (method, request_now) = wish::request(wish, self.lease(), context.chance);
        let key = key(method, request, 7);
        self.ask(
            request_now,
            Some(key),
            Purpose::Granted(from, call),
            context,
        )
    }

    fn granted(
        &mut self,
        user: Node,
        call: CallNumber,
        decided: Result<Reply, Refusal>,
        context: &mut Context<'_>,
    ) -> Vec<Out> {
        // A confirmed resize and a cordon are done when they are answered; nothing is carried out for
        // them.
        if let Ok(Reply::None | Reply::Host(_)) = decided {
            let told = Packet::Granted(call, Box::new(Ok(None)));
            return vec![Out::Send(user, told)];
        }
        let granted = decided.and_then(operation_of);
        let mut outs = vec![Out::Send(
            user,
            Packet::Granted(call, Box::new(granted.clone().map(Some))),
        )];
        if let Ok(operation) = granted {
            if operation.drain().is_some() {
                outs.extend(self.begin_drain(&operation, context));
                return outs;
            }
            let question = Question::Facts(operation.id);
            let purpose = Purpose::Begin;
            outs.extend(self.asker.ask(question, purpose, context.numbers));
            if operation.cancelled
                && let Some(driven) = self.sagas.get(&operation.id)
            {
                let turn = driven.turn;
                outs.extend(self.cancel(operation.id, turn));
            }
        }
        outs
    }

    /// Tells a saga that it was cancelled; it answers nothing and goes on by itself.
    fn cancel(&mut self, id: OperationId, turn: u64) -> Vec<Out> {
        if let Some(driven) = self.sagas.get_mut(&id).filter(|d| d.turn == turn) {
            let effect = driven.saga.step(Event::CancelRequested);
            assert!(
                effect.is_none(),
                "a request to cancel is heeded at the next step"
            );
        }
        Vec::new()
    }
}

fn key(method: &str, id: RequestId, payload_hash: u128) -> RequestKey {
    RequestKey {
        method: method.to_owned(),
        id,
        payload_hash,
    }
}

fn operation_of(reply: Reply) -> Result<Operation, Refusal> {
    match reply {
        Reply::Operation(operation) => Ok((*operation).clone()),
        Reply::None
        | Reply::Host(_)
        | Reply::Service(_)
        | Reply::Flavor(_)
        | Reply::Aggregate(_)
        | Reply::ServerGroup(_)
        | Reply::Policy(_)
        | Reply::PciAlias(_)
        | Reply::Image(_)
        | Reply::Network(_)
        | Reply::Provider(_)
        | Reply::Consumers(_)
        | Reply::Batch { .. }
        | Reply::Class { .. }
        | Reply::Trait { .. }
        | Reply::Volume(_)
        | Reply::Leases(_) => unreachable!("an operation was asked for"),
    }
}

/// Returns what a host without the guest would answer, for [`Bug::ReleaseEarly`].
fn nothing_there(call: &Call) -> Option<AgentReply> {
    match call {
        Call::GetDomain | Call::SettleVm => Some(AgentReply::Domain(DomainStatus::absent())),
        Call::RollbackLiveMigrationAtDestination { .. } => Some(AgentReply::Done),
        Call::SpawnVm { .. }
        | Call::DestroyVm
        | Call::CheckCanLiveMigrateDestination { .. }
        | Call::CheckCanLiveMigrateSource { .. }
        | Call::FitLiveMigration { .. }
        | Call::PreLiveMigration { .. }
        | Call::LiveMigration { .. }
        | Call::PostLiveMigrationAtSource { .. }
        | Call::StopVm { .. }
        | Call::StartVm { .. }
        | Call::AbortLiveMigration { .. }
        | Call::ForceCompleteLiveMigration { .. } => None,
        Call::MakeDisks { .. }
        | Call::CopyDisk { .. }
        | Call::PublishImage { .. }
        | Call::DropImage { .. }
        | Call::FetchDisks(_)
        | Call::DropDisks { .. } => None,
    }
}
