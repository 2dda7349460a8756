//! The task that owns the core: it takes calls in, performs driver requests on threads, and sends
//! the replies.
//!
//! Driver calls block, a transfer for as long as it takes, so each runs on a thread of its own
//! and not on the async runtime, which would wait for it at the end.
//!
//! Invariant: bounded. At most [`THREADS_MAX`] requests are performed at a time, transfers, their
//! aborts and copies of disks not counted, of which each guest has at most one; the rest wait in order.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_agent_core::{Agent, CallId, Effect, Event};
use berth_domain::agent::{Fence, Reply};
use berth_domain::claim::ErasureReport;
use berth_domain::id::{TimeMs, VmUid};
use berth_domain::reality::Comparison;
use berth_domain::recovery::ReportedGuest;
use berth_domain::refusal::{Code, Refusal};
use berth_driver::{Answer, Driver, Error, Fetch, Kind, Request, Token};
use berth_proto::convert::agent::FencedCall;
use berth_traces::{Active, current};
use tokio::runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::disks::{Fetches, Readers};
use crate::guest_volumes::GuestVolumes;
use crate::metrics::Metrics;
use crate::spans::{self, CallSpans};
use crate::transfers::{End, TransferWaiter, Transfers};
use crate::watchdog::Watchdog;

/// How many requests are performed at a time.
const THREADS_MAX: usize = 32;

/// How many calls wait to be taken in.
const CALLS_MAX: usize = 256;

/// How many requests to the scheduler may be queued.
const SCHEDULER_REQUESTS_MAX: usize = 16;

/// Interval of the core's ticks.
const TICK: Duration = Duration::from_secs(1);

/// A call and the channel for its reply.
struct IncomingCall {
    call: FencedCall,
    /// The span of the request, if it has one.
    span: Option<Arc<Active>>,
    answer: oneshot::Sender<Result<Reply, Refusal>>,
}

/// A request of another host's agent to read disks, and the channel for the reply.
struct ReadRequest {
    fence: Fence,
    answer: oneshot::Sender<Result<Reply, Refusal>>,
}

/// What comes from the service.
#[expect(
    clippy::large_enum_variant,
    reason = "most are calls, and they are few at a time"
)]
enum Incoming {
    Call(IncomingCall),
    Wait(TransferWaiter),
    Read(ReadRequest),
}

/// What a thread reports.
struct Performed {
    token: Token,
    counted: bool,
    result: Result<Answer, Error>,
}

/// Brings calls to the core.
#[derive(Clone)]
pub(crate) struct Handle {
    calls: mpsc::Sender<Incoming>,
}

impl Handle {
    /// Makes a call.
    pub(crate) async fn call(&self, call: FencedCall) -> Result<Reply, Refusal> {
        let stopping = || Refusal::new(Code::Unavailable, "STOPPING", "the agent is stopping");
        let (answer, answered) = oneshot::channel();
        let span = current();
        let incoming = Incoming::Call(IncomingCall { call, span, answer });
        self.calls.send(incoming).await.map_err(|_| stopping())?;
        answered.await.map_err(|_| stopping())?
    }

    /// Checks whether the disks of a guest may be sent to another host.
    pub(crate) async fn read(&self, fence: Fence) -> Result<Reply, Refusal> {
        let stopping = || Refusal::new(Code::Unavailable, "STOPPING", "the agent is stopping");
        let (answer, answered) = oneshot::channel();
        let request = Incoming::Read(ReadRequest { fence, answer });
        self.calls.send(request).await.map_err(|_| stopping())?;
        answered.await.map_err(|_| stopping())?
    }

    /// Waits until a guest is not being sent away any more. Returns what is known of its last
    /// transfer.
    pub(crate) async fn transfer_ended(&self, vm: VmUid) -> Result<Option<End>, Refusal> {
        let (answer, answered) = oneshot::channel();
        let waiting = Incoming::Wait(TransferWaiter { vm, answer });
        let busy = |_| {
            let message = "too many callers wait for transfers to end, or the agent is stopping";
            Refusal::new(Code::Unavailable, "AGENT_BUSY", message)
        };
        self.calls.send(waiting).await.map_err(|_| busy(()))?;
        answered.await.map_err(|_| busy(()))
    }
}

/// A request of the core to the scheduler.
#[derive(Debug)]
pub(crate) enum SchedulerRequest {
    /// To know what is expected of this host.
    Expect,
    /// Reports what was discovered.
    Report(Comparison),
    /// Reports all guests, resting on this revision.
    ReportGuests(u64, Vec<ReportedGuest>),
    /// Reports the progress of erasures; the reply lists what is to be erased.
    ReportErasures(Vec<ErasureReport>),
}

/// The ends of the shell towards the scheduler.
pub(crate) struct SchedulerLink {
    /// Requests to be sent.
    pub(crate) scheduler_requests: mpsc::Receiver<SchedulerRequest>,
    /// Events from the scheduler: replies and acknowledged heartbeats.
    pub(crate) events: mpsc::Sender<Event>,
}

/// Owns the core.
pub(crate) struct Shell {
    agent: Agent,
    driver: Arc<dyn Driver>,
    volumes: Arc<GuestVolumes>,
    calls: mpsc::Receiver<Incoming>,
    transfers: Transfers,
    waiting: BTreeMap<CallId, oneshot::Sender<Result<Reply, Refusal>>>,
    spans: CallSpans,
    next_call: u64,
    running: usize,
    backlog: VecDeque<(Token, Request)>,
    performed: mpsc::UnboundedReceiver<Performed>,
    /// Unbounded as a channel, but each message belongs to a request that was counted.
    report: mpsc::UnboundedSender<Performed>,
    scheduler_requests: mpsc::Sender<SchedulerRequest>,
    events: mpsc::Receiver<Event>,
    /// Fed by this task alone, and by nothing but the core's word: a core that is stuck feeds nothing.
    watchdog: Option<Watchdog>,
    fetches: Fetches,
    readers: Readers,
    metrics: Arc<Metrics>,
}

/// Returns the shell of a core, the handle to it, and its ends towards the scheduler.
pub(crate) fn new(
    agent: Agent,
    (driver, volumes): (Arc<dyn Driver>, GuestVolumes),
    watchdog: Option<Watchdog>,
    (fetches, readers): (Fetches, Readers),
    metrics: Arc<Metrics>,
) -> (Handle, Shell, SchedulerLink) {
    let (sender, calls) = mpsc::channel(CALLS_MAX);
    let (report, performed) = mpsc::unbounded_channel();
    let (requests_sender, scheduler_requests) = mpsc::channel(SCHEDULER_REQUESTS_MAX);
    let (events_sender, events) = mpsc::channel(SCHEDULER_REQUESTS_MAX);
    let shell = Shell {
        agent,
        driver,
        volumes: Arc::new(volumes),
        calls,
        transfers: Transfers::default(),
        waiting: BTreeMap::new(),
        spans: CallSpans::default(),
        next_call: 0,
        running: 0,
        backlog: VecDeque::new(),
        performed,
        report,
        scheduler_requests: requests_sender,
        events,
        watchdog,
        fetches,
        readers,
        metrics,
    };
    let link = SchedulerLink {
        scheduler_requests,
        events: events_sender,
    };
    (Handle { calls: sender }, shell, link)
}

impl Shell {
    /// Runs until cancelled. The hypervisor's work goes on without the agent.
    pub(crate) async fn run(mut self, stopping: CancellationToken) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Before the first call: its time limits begin now.
        for effect in self.agent.step(Event::Tick { now: now() }) {
            self.perform_effect(effect);
        }
        self.perform_backlog();
        loop {
            let event = tokio::select! {
                biased;
                () = stopping.cancelled() => {
                    self.fetches.stop_all();
                    break;
                }
                // Before all that may come one after the other: a busy agent must not forget the time.
                _ = ticks.tick() => {
                    self.metrics.ticked();
                    self.update_erasure_progress();
                    Event::Tick { now: now() }
                }
                // It cannot end: the shell holds a sender.
                Some(performed) = self.performed.recv() => {
                    self.running -= usize::from(performed.counted);
                    self.transfers.end(performed.token, Instant::now());
                    Event::DriverDone { token: performed.token, result: performed.result }
                }
                Some(events) = self.events.recv() => events,
                Some(incoming) = self.calls.recv() => match incoming {
                    Incoming::Call(call) => self.accept_call(call),
                    Incoming::Read(ReadRequest { fence, answer }) => Event::Read {
                        id: self.add_waiting_call(answer),
                        fence,
                    },
                    Incoming::Wait(waiting) => {
                        self.transfers.wait(waiting);
                        self.notify_transfer_waiters();
                        continue;
                    }
                },
            };
            for effect in self.agent.step(event) {
                self.perform_effect(effect);
            }
            self.perform_backlog();
            self.notify_transfer_waiters();
        }
        self.end();
    }

    /// Processes the events sent before the stop, such as the withdrawal of a promise.
    fn end(mut self) {
        while let Ok(events) = self.events.try_recv() {
            for effect in self.agent.step(events) {
                self.perform_effect(effect);
            }
        }
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.end(self.agent.runs_nothing());
        }
    }

    fn update_erasure_progress(&mut self) {
        if self.agent.erases() {
            let bytes = self.driver.erased_bytes();
            // It changes no effects.
            let _ = self.agent.step(Event::ErasedBytes(bytes));
        }
    }

    fn notify_transfer_waiters(&mut self) {
        let agent = &self.agent;
        self.transfers.notify(|vm| agent.sends(vm));
    }

    fn add_waiting_call(&mut self, answer: oneshot::Sender<Result<Reply, Refusal>>) -> CallId {
        self.next_call += 1;
        let id = CallId(self.next_call);
        self.waiting.insert(id, answer);
        id
    }

    fn accept_call(&mut self, incoming: IncomingCall) -> Event {
        let id = self.add_waiting_call(incoming.answer);
        if let Some(span) = incoming.span {
            self.spans.begin(id, incoming.call.fence.vm, span);
        }
        Event::Call {
            id,
            fence: incoming.call.fence,
            call: incoming.call.call,
        }
    }

    fn perform_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Reply { id, result } => {
                if let Err(refusal) = &result {
                    tracing::info!(%refusal, reason = refusal.reason, "call refused");
                }
                self.spans.end(id);
                // The caller may have disconnected: then it retries.
                if let Some(answer) = self.waiting.remove(&id) {
                    let _ = answer.send(result);
                }
            }
            Effect::Expect => self.send_to_scheduler(SchedulerRequest::Expect),
            Effect::Report(comparison) => {
                self.send_to_scheduler(SchedulerRequest::Report(comparison))
            }
            Effect::ReportGuests(basis, guests) => {
                self.send_to_scheduler(SchedulerRequest::ReportGuests(basis, guests))
            }
            Effect::ReportErasures(reports) => {
                self.send_to_scheduler(SchedulerRequest::ReportErasures(reports))
            }
            Effect::Watchdog(feeding) => {
                if let Some(watchdog) = &mut self.watchdog {
                    watchdog.order(feeding);
                }
            }
            Effect::Driver { token, request } => match request {
                // An order to a transfer must not wait behind anything.
                // Nor must others wait behind what may take an hour.
                Request::Migrate { .. }
                | Request::Abort(_)
                | Request::Force(..)
                | Request::CopyDisk { .. }
                | Request::Erase(_) => {
                    self.perform(token, request, false);
                }
                Request::Create(_)
                | Request::Destroy(_)
                | Request::Domain(_)
                | Request::Domains
                | Request::Prepare { .. }
                | Request::Cancel(_)
                | Request::Forget(_)
                | Request::Release(_)
                | Request::CheckTls(_)
                | Request::CheckPeer(..)
                | Request::FreePages
                | Request::Shutdown(_)
                | Request::Stop(_)
                | Request::Start(_)
                | Request::MakeDisks(_)
                | Request::PublishImage(_)
                | Request::DropImage(_) => self.backlog.push_back((token, request)),
                Request::Everything | Request::Evict(..) | Request::DropDisks(..) => {
                    self.backlog.push_back((token, request))
                }
                Request::FetchDisks(fetch) => self.fetch(token, *fetch),
                Request::StopFetch(vm) => {
                    self.fetches.stop(vm);
                    self.report(token, false, Ok(Answer::Done));
                }
            },
        }
    }

    /// A dropped request is sent again with the next comparison.
    fn send_to_scheduler(&self, request: SchedulerRequest) {
        if self.scheduler_requests.try_send(request).is_err() {
            tracing::debug!("request to the scheduler dropped, others are queued");
        }
    }

    fn perform_backlog(&mut self) {
        while self.running < THREADS_MAX
            && let Some((token, request)) = self.backlog.pop_front()
        {
            self.running += 1;
            self.perform(token, request, true);
        }
    }

    fn perform(&mut self, token: Token, request: Request, counted: bool) {
        if let Request::Migrate { vm, .. } = &request {
            self.transfers.begin(token, *vm, Instant::now());
        }
        if let Some(vm) = uses_disks(&request) {
            self.readers.revoke(vm);
        }
        let (driver, volumes) = (self.driver.clone(), self.volumes.clone());
        let report = self.report.clone();
        let (kind, metrics) = (request.kind(), self.metrics.clone());
        let mut span = self.spans.of_driver(&request);
        let work = move || {
            let begun = Instant::now();
            let perform = || volumes.perform(&*driver, request);
            let performed = catch_unwind(AssertUnwindSafe(perform));
            let result = performed.unwrap_or_else(|_| {
                Err(Error::Unreachable {
                    message: "the driver panicked".to_owned(),
                })
            });
            spans::end_driver(span.take(), &result);
            metrics.called(kind, begun.elapsed(), &result);
            metrics.count_arrivals(&*driver);
            // The receiver is gone once the agent has stopped.
            let _ = report.send(Performed {
                token,
                counted,
                result,
            });
        };
        let named = std::thread::Builder::new().name(format!("driver-{kind:?}"));
        if let Err(error) = named.spawn(work) {
            let message = format!("no thread can be started: {error}");
            self.report(token, counted, Err(Error::Refused { message }));
        }
    }

    /// Fetches disks on a thread of its own: what comes waits for the disks here.
    fn fetch(&self, token: Token, fetch: Fetch) {
        let (driver, fetches) = (self.driver.clone(), self.fetches.clone());
        let (report, runtime) = (self.report.clone(), runtime::Handle::current());
        let stop = self.fetches.begin(fetch.domain.uid);
        let metrics = self.metrics.clone();
        let mut span = self.spans.of(fetch.domain.uid, Kind::FetchDisks);
        let work = move || {
            let begun = Instant::now();
            let run = || fetches.run(&*driver, &fetch, &stop, &runtime);
            let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
                Err(Error::Unreachable {
                    message: "the driver panicked".to_owned(),
                })
            });
            spans::end_driver(span.take(), &result);
            metrics.called(Kind::FetchDisks, begun.elapsed(), &result);
            // The receiver is gone once the agent has stopped.
            let _ = report.send(Performed {
                token,
                counted: false,
                result,
            });
        };
        let named = std::thread::Builder::new().name("fetch-disks".to_owned());
        if let Err(error) = named.spawn(work) {
            let message = format!("no thread can be started: {error}");
            self.report(token, false, Err(Error::Refused { message }));
        }
    }

    fn report(&self, token: Token, counted: bool, result: Result<Answer, Error>) {
        // The shell holds the other end.
        let _ = self.report.send(Performed {
            token,
            counted,
            result,
        });
    }
}

/// Returns the guest that is about to use its disks, or to lose them.
fn uses_disks(request: &Request) -> Option<VmUid> {
    match request {
        Request::Create(domain) | Request::Start(domain) | Request::MakeDisks(domain) => {
            Some(domain.uid)
        }
        Request::Prepare { domain, .. } => Some(domain.uid),
        Request::Destroy(vm) | Request::DropDisks(vm, ..) => Some(*vm),
        Request::Domain(_)
        | Request::Domains
        | Request::Cancel(_)
        | Request::Migrate { .. }
        | Request::Abort(_)
        | Request::Release(_)
        | Request::CheckTls(_)
        | Request::CheckPeer(..)
        | Request::FreePages
        | Request::Shutdown(_)
        | Request::Stop(_)
        | Request::Force(..)
        | Request::Forget(_)
        | Request::CopyDisk { .. }
        | Request::PublishImage(_)
        | Request::DropImage(_)
        | Request::Everything
        | Request::Evict(..)
        | Request::FetchDisks(_)
        | Request::StopFetch(_)
        | Request::Erase(_) => None,
    }
}

/// Returns the time since the machine was started, sleep included: how long no heartbeat was
/// acknowledged must not depend on a wall clock that is set, nor stand still while the
/// machine sleeps.
pub(crate) fn now() -> TimeMs {
    let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(since.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(since.tv_nsec).unwrap_or(0);
    TimeMs(seconds * 1000 + nanos / 1_000_000)
}
