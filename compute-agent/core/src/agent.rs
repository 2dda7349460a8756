//! [`Agent`]: events in, effects out; one queue per VM.
//!
//! Calls about one VM that change something are done one after the other, in the order in which
//! they came. Queries go past them, and a transfer leaves the queue as soon as it is started: it
//! may take long, and the conductor queries its progress meanwhile.
//!
//! Invariant: every call gets exactly one reply, unless the driver never replies; every token is
//! used once.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use berth_domain::agent::{Call, DestinationCheck, Fence, Reply};
use berth_domain::claim::ErasureReport;
use berth_domain::id::{ClaimId, Incarnation, MigrationId, OperationId, TimeMs, VmUid};
use berth_domain::migration::MigrateData;
use berth_domain::migration_tls::TlsPolicy;
use berth_domain::name::{HostName, PmemName};
use berth_domain::network::BridgeMapping;
use berth_domain::pmem::PmemNamespace;
use berth_domain::reality::Comparison;
use berth_domain::recovery::ReportedGuest;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::topology::HostTopology;
use berth_domain::transfer::TransferPolicy;
use berth_domain::version::ServiceVersion;
use berth_driver_api::{Answer, DomainSpec, Error, Known, Request, Token};

use super::erasing::Erasing;
use super::fences::Fences;
use super::guests::{self, Guests, Phase};
use super::overdue::{self, Order};
use super::power::Waits;
use super::reality::{Expectation, Reality};
use super::self_fence::{Feeding, SelfFence};

/// How many calls about one VM wait for each other.
const QUEUE_MAX: usize = 16;

/// What does not change while an agent runs.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The host.
    pub host: HostName,
    /// This run of the agent.
    pub incarnation: Incarnation,
    /// What it can do.
    pub version: ServiceVersion,
    /// The hypervisor driver.
    pub driver: String,
    /// Where other hypervisors send guests to.
    pub migration_uri: String,
    /// Identifies the storage of guest disks.
    pub storage_id: String,
    /// Whether guests are sent and received encrypted.
    pub tls: TlsPolicy,
    /// The shape of the host.
    pub topology: Arc<HostTopology>,
    /// With which bridges it reaches physical networks, as it is set up.
    pub bridges: Vec<BridgeMapping>,
    /// Time limit of a transfer whose policy sets none; see `overdue`.
    pub transfer_ms_max: u64,
    /// How often it compares what runs with what is expected; 0: never.
    pub compare_ms: u64,
}

/// Joins a call with its reply; chosen by the caller of [`Agent::step`], never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// What happens to an agent.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "events are moved once, not stored"
)]
pub enum Event {
    /// The conductor calls.
    Call {
        /// For the reply.
        id: CallId,
        /// Under which lease, for which VM, to which run of the agent.
        fence: Fence,
        /// What.
        call: Call,
    },
    /// The driver has done a request, or not.
    DriverDone {
        /// Of the request.
        token: Token,
        /// Its result.
        result: Result<Answer, Error>,
    },
    /// Time has passed. Comes now and then, never runs backwards.
    Tick {
        /// What time it is.
        now: TimeMs,
    },
    /// Another host's agent requests the disks of a guest.
    Read {
        /// For the reply.
        id: CallId,
        /// On behalf of whom.
        fence: Fence,
    },
    /// The scheduler's reply: what it expects of this host.
    Expected(Expectation),
    /// The scheduler acknowledged a heartbeat.
    HeartbeatAcknowledged {
        /// When the report was sent, by the clock of the ticks.
        sent_at: TimeMs,
        /// How long from then on the host counts as alive; 0: the scheduler does not state it.
        lease_ms: u64,
    },
    /// The namespaces of persistent memory that the leader wants erased here, by what it has
    /// just committed.
    ErasuresDue(Vec<(ClaimId, PmemName)>),
    /// The host's namespaces of persistent memory are these from now on.
    Namespaces(Vec<PmemNamespace>),
    /// Progress of the driver's erasures, in bytes of each namespace.
    ErasedBytes(BTreeMap<PmemName, u64>),
    /// The guests are to be stopped so long after the last acknowledged heartbeat.
    SelfFence {
        /// How long; 0: never.
        limit_ms: u64,
    },
}

/// What the agent's surroundings are to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "effects are moved once, not stored"
)]
pub enum Effect {
    /// Reply to a call.
    Reply {
        /// Of the call.
        id: CallId,
        /// The reply. [`Code::Unavailable`] and [`Code::DeadlineExceeded`] mean that the outcome
        /// is unknown; every other refusal means that nothing was changed.
        result: Result<Reply, Refusal>,
    },
    /// Have the driver do something.
    Driver {
        /// For the result.
        token: Token,
        /// What.
        request: Request,
    },
    /// Query the scheduler for what it expects of this host.
    Expect,
    /// Report the comparison with what the hypervisor has to the scheduler.
    Report(Comparison),
    /// Report all guests that Berth made, while the cluster recovers; and on which revision that rests.
    ReportGuests(u64, Vec<ReportedGuest>),
    /// Report the progress of erasures to the leader; it replies with [`Event::ErasuresDue`].
    ReportErasures(Vec<ErasureReport>),
    /// Arm the watchdog, feed it or leave it alone; of a host that has one, with every tick.
    Watchdog(Feeding),
}

/// A call that waits or is being done.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) id: CallId,
    pub(super) fence: Fence,
    pub(super) call: Call,
}

/// The purpose of a driver request.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Spawn,
    Destroy,
    /// A query, with the VM's count of changes when it was sent.
    Query {
        changes: u64,
    },
    CheckDestination,
    /// The first of two for a source's check.
    CheckSourceTls(DestinationCheck),
    /// The next one: whether the destination's hypervisor can be reached.
    CheckSourcePeer {
        destination: DestinationCheck,
        tls: bool,
    },
    /// The guest's state is queried; and whether it is to be sent encrypted.
    CheckSource {
        destination: DestinationCheck,
        tls: bool,
    },
    Fit(Box<MigrateData>),
    Prepare,
    Transfer,
    Rollback,
    Release,
    Start,
    /// The guest is requested to power off, or checked whether it has.
    PowerOff,
    Stop,
    Settle,
    /// An order to a transfer, by this agent itself.
    Order,
    /// An order to a transfer, by the conductor.
    ConductorOrder,
    /// A request whose reply carries no data.
    Disks,
    DropImage,
    /// The persistent memory of a guest whose disks are recreated: erased before that, for this
    /// operation.
    EraseFirst(OperationId, Box<DomainSpec>),
    /// Of a guest that the host lost; no call waits for it.
    Evict,
    /// Of a guest that may be started elsewhere; no call waits for it.
    FenceItself,
    /// What is being fetched is stopped; no call waits for it.
    StopFetch,
}

/// A request under way. Transfers and aborts have no caller to reply to.
#[derive(Clone, Debug)]
pub(super) struct InFlight {
    pub(super) vm: VmUid,
    pub(super) id: Option<CallId>,
    pub(super) work: Work,
}

#[derive(Clone, Debug, Default)]
pub(super) struct CallQueue {
    /// The call that is being done.
    pub(super) busy: Option<Token>,
    waiting: VecDeque<Pending>,
    /// Counts beginnings and ends of work, so that a reply about an older state is recognised.
    changes: u64,
}

/// The immediate result of one call.
#[expect(
    clippy::large_enum_variant,
    reason = "taken apart as soon as it is made"
)]
pub(super) enum Start {
    /// A reply.
    Reply(Result<Reply, Refusal>),
    /// Work for the driver; the queue is busy until it is done.
    Work(Work, Request),
    /// A transfer: replied to at once, and the queue is free.
    Transfer(TransferPolicy, Request),
}

/// The agent of one host.
#[derive(Clone, Debug)]
pub struct Agent {
    pub(super) facts: Facts,
    pub(super) guests: Guests,
    pub(super) fences: Fences,
    pub(super) now: TimeMs,
    pub(super) reality: Reality,
    pub(super) self_fence: SelfFence,
    pub(super) erasing: Erasing,
    /// Guests within their time to power off.
    pub(super) waits: Waits,
    pub(super) queues: BTreeMap<VmUid, CallQueue>,
    in_flight: BTreeMap<Token, InFlight>,
    next_token: u64,
}

impl Agent {
    /// Returns the agent of a host on which `known` is what the hypervisor has.
    #[must_use]
    pub fn new(facts: Facts, known: Vec<Known>) -> Self {
        Self {
            facts,
            guests: guests::adopt(known),
            fences: Fences::default(),
            now: TimeMs(0),
            waits: Waits::new(),
            reality: Reality::default(),
            self_fence: SelfFence::default(),
            erasing: Erasing::default(),
            queues: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            next_token: 0,
        }
    }

    /// Returns what does not change while it runs.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Returns the guests that hold something here, or may come to.
    pub fn domains(&self) -> impl Iterator<Item = &DomainSpec> {
        self.guests.values().map(|guest| &guest.domain)
    }

    /// Returns whether the guest is being sent away, as far as is known here.
    #[must_use]
    pub fn sends(&self, vm: VmUid) -> bool {
        self.guests
            .get(&vm)
            .is_some_and(|guest| guest.leaving.is_some() || guest.phase.is_sending())
    }

    /// Takes an event in and returns what is to be done.
    pub fn step(&mut self, event: Event) -> Vec<Effect> {
        match event {
            Event::Call { id, fence, call } => self.call(Pending { id, fence, call }),
            Event::DriverDone { token, result } => self.driver_done(token, result),
            Event::Read { id, fence } => self.readable(id, &fence),
            Event::Tick { now } => self.tick(now),
            Event::Expected(expectation) => self.expected(expectation),
            Event::HeartbeatAcknowledged { sent_at, lease_ms } => {
                self.record_heartbeat(sent_at, lease_ms);
                Vec::new()
            }
            Event::ErasuresDue(due) => self.erasures_due(&due),
            Event::Namespaces(namespaces) => {
                self.take_namespaces(namespaces);
                Vec::new()
            }
            Event::ErasedBytes(bytes) => {
                self.erased_bytes(&bytes);
                Vec::new()
            }
            Event::SelfFence { limit_ms } => self.set_self_fence_limit(limit_ms),
        }
    }

    fn call(&mut self, pending: Pending) -> Vec<Effect> {
        let (id, vm) = (pending.id, pending.fence.vm);
        // A raised epoch stops all earlier callers: only for a call that nothing refuses.
        if let Err(refusal) = self.may_come(&pending) {
            return vec![reply(id, Err(refusal))];
        }
        self.record(&pending.fence);
        if matches!(pending.call, Call::GetDomain) {
            self.fences.of(vm).queried_by = Some(pending.fence.operation);
            return vec![self.query_state(vm, id)];
        }
        self.reality.touch(vm);
        let queue = self.queues.entry(vm).or_default();
        let settles = matches!(pending.call, Call::SettleVm);
        let drops = matches!(pending.call, Call::DropDisks { .. }).then_some(pending.fence);
        queue.waiting.push_back(pending);
        let mut effects = match (settles, drops) {
            (true, _) => self.stop_waiting(vm),
            (false, Some(fence)) => self.stop_fetching(&fence),
            (false, None) => Vec::new(),
        };
        effects.extend(self.drain(vm));
        effects
    }

    /// Refuses a call before it has any effect.
    fn may_come(&self, Pending { fence, call, .. }: &Pending) -> Result<(), Refusal> {
        self.check(fence)?;
        if matches!(call, Call::GetDomain) {
            return Ok(());
        }
        self.may_start(fence.vm, call)?;
        let queue = self.queues.get(&fence.vm);
        if queue.is_some_and(|queue| queue.waiting.len() >= QUEUE_MAX) {
            return Err(Refusal::new(
                Code::Unavailable,
                "AGENT_BUSY",
                "too many calls about this VM wait for each other",
            ));
        }
        Ok(())
    }

    /// Refuses a call of an earlier lease, or for an earlier run of the agent. Stores nothing.
    pub(super) fn check(&self, fence: &Fence) -> Result<(), Refusal> {
        if fence.incarnation != self.facts.incarnation {
            // Which run it is, the scheduler and GetAgentInfo state to those who may know.
            let message = format!(
                "the call is meant for another run of the agent of host {}",
                self.facts.host
            );
            return Err(Refusal::new(
                Code::FailedPrecondition,
                "STALE_INCARNATION",
                message,
            ));
        }
        self.fences.check(fence)
    }

    /// Records the epoch of a call that nothing refuses.
    fn record(&mut self, fence: &Fence) {
        let (guests, queues) = (&self.guests, &self.queues);
        self.fences.record(fence, |vm| {
            guests.contains_key(&vm) || queues.contains_key(&vm)
        });
    }

    /// Begins waiting calls, until one makes the queue busy.
    fn drain(&mut self, vm: VmUid) -> Vec<Effect> {
        let mut effects = Vec::new();
        loop {
            let Some(queue) = self.queues.get_mut(&vm) else {
                return effects;
            };
            if queue.busy.is_some() {
                return effects;
            }
            let Some(pending) = queue.waiting.pop_front() else {
                if !self.is_queried(vm) {
                    self.queues.remove(&vm);
                    self.reality.release(vm);
                }
                return effects;
            };
            queue.changes += 1;
            let id = pending.id;
            let is_late = self.fences.recheck(&pending.fence);
            // It may have waited longer than this agent's heartbeats are valid.
            let start = match is_late.and_then(|()| self.may_start(vm, &pending.call)) {
                Ok(()) => self.start(pending),
                Err(refusal) => Start::Reply(Err(refusal)),
            };
            match start {
                Start::Reply(result) => effects.push(reply(id, result)),
                Start::Work(work, request) => {
                    let (token, effect) = self.driver(vm, Some(id), work, request);
                    self.queues.get_mut(&vm).expect("seen above").busy = Some(token);
                    effects.push(effect);
                }
                Start::Transfer(policy, request) => {
                    let (token, effect) = self.driver(vm, None, Work::Transfer, request);
                    self.mark_sending(vm, token, policy);
                    effects.push(effect);
                    effects.push(reply(id, Ok(Reply::Done)));
                }
            }
        }
    }

    /// Has the driver do something.
    pub(super) fn driver(
        &mut self,
        vm: VmUid,
        id: Option<CallId>,
        work: Work,
        request: Request,
    ) -> (Token, Effect) {
        let token = self.spare_token();
        self.in_flight.insert(token, InFlight { vm, id, work });
        (token, Effect::Driver { token, request })
    }

    /// Returns an unused token.
    pub(super) fn spare_token(&mut self) -> Token {
        self.next_token += 1;
        Token(self.next_token)
    }

    /// Has the driver do something for which no call waits; the queue is busy until it is done.
    pub(super) fn work(&mut self, vm: VmUid, work: Work, request: Request) -> Effect {
        let (token, effect) = self.driver(vm, None, work, request);
        self.reality.touch(vm);
        let queue = self.queues.entry(vm).or_default();
        queue.changes += 1;
        queue.busy = Some(token);
        effect
    }

    /// Returns whether something is being done about the VM, or waits.
    pub(super) fn is_worked_on(&self, vm: VmUid) -> bool {
        self.queues.contains_key(&vm)
    }

    /// Returns whether nothing is being done about any guest, and nothing waits.
    pub(super) fn is_quiet(&self) -> bool {
        let sending = self.guests.values().any(|guest| guest.phase.is_sending());
        self.queues.is_empty() && self.in_flight.is_empty() && !sending
    }

    /// Queries the driver for the state of a guest.
    pub(super) fn query_state(&mut self, vm: VmUid, id: CallId) -> Effect {
        let changes = self.queues.entry(vm).or_default().changes;
        let work = Work::Query { changes };
        self.driver(vm, Some(id), work, Request::Domain(vm)).1
    }

    fn is_queried(&self, vm: VmUid) -> bool {
        self.in_flight
            .values()
            .any(|f| f.vm == vm && matches!(f.work, Work::Query { .. }))
    }

    /// Returns whether something about the VM began or ended since.
    pub(super) fn has_changed(&self, vm: VmUid, changes: u64) -> bool {
        self.queues
            .get(&vm)
            .is_none_or(|queue| queue.changes != changes)
    }

    /// Returns whether the guest is being started right now.
    pub(super) fn is_spawning(&self, vm: VmUid) -> bool {
        let busy = self.queues.get(&vm).and_then(|queue| queue.busy);
        busy.and_then(|token| self.in_flight.get(&token))
            .is_some_and(|f| matches!(f.work, Work::Spawn | Work::Start))
    }

    fn driver_done(&mut self, token: Token, result: Result<Answer, Error>) -> Vec<Effect> {
        if let Some(effects) = self.comparison_result(token, &result) {
            return effects;
        }
        if let Some(effects) = self.erased(token, &result) {
            return effects;
        }
        if let Some(effects) = self.proof_result(token, &result) {
            return effects;
        }
        let Some(done) = self.in_flight.remove(&token) else {
            return Vec::new();
        };
        let vm = done.vm;
        if let Some(queue) = self.queues.get_mut(&vm) {
            let is_query = matches!(done.work, Work::Query { .. });
            queue.changes += u64::from(!is_query);
            if queue.busy == Some(token) {
                queue.busy = None;
            }
        }
        let mut effects = self.finish(done, token, result);
        effects.extend(self.drain(vm));
        effects
    }

    fn tick(&mut self, now: TimeMs) -> Vec<Effect> {
        self.now = self.now.max(now);
        let now = self.now;
        let mut orders = Vec::new();
        for (vm, guest) in &mut self.guests {
            if let Phase::Sending(transfer) = &mut guest.phase
                && !transfer.ordering
            {
                let policy = &transfer.policy;
                let limit_ms = policy.timeout_ms.unwrap_or(self.facts.transfer_ms_max);
                let (began_at, ordered_at) = (transfer.began_at, transfer.ordered_at);
                if let Some(order) = overdue::order(policy, began_at, ordered_at, now, limit_ms) {
                    transfer.ordering = true;
                    transfer.ordered_at.get_or_insert(now);
                    if order == Order::Abort {
                        transfer.overrun_ms = Some(limit_ms);
                    }
                    orders.push((*vm, order));
                }
            } else if let Some(leaving) = &mut guest.leaving
                && !leaving.ordering
            {
                // Its policy is not known any more: the default one.
                let (policy, limit_ms) = (TransferPolicy::default(), self.facts.transfer_ms_max);
                let since = *leaving.since.get_or_insert(now);
                if let Some(order) = overdue::order(&policy, since, None, now, limit_ms) {
                    leaving.ordering = true;
                    orders.push((*vm, order));
                }
            }
        }
        let request = |vm, order| match order {
            Order::Abort => Request::Abort(vm),
            Order::Force(how) => Request::Force(vm, how),
        };
        let orders = orders.into_iter();
        let mut effects: Vec<_> = orders
            .map(|(vm, order)| self.driver(vm, None, Work::Order, request(vm, order)).1)
            .collect();
        effects.extend(self.check_waits());
        effects.extend(self.tick_reality());
        effects.extend(self.tick_self_fence());
        effects.extend(self.tick_erasing());
        effects
    }

    /// Returns the migration that the VM was sent away with.
    pub(super) fn was_sent(&mut self, vm: VmUid, migration: MigrationId) -> bool {
        self.fences.of(vm).sent == Some(migration)
    }
}

/// Returns the effect that replies to a call.
pub(super) fn reply(id: CallId, result: Result<Reply, Refusal>) -> Effect {
    Effect::Reply { id, result }
}
