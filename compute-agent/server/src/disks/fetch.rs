//! Fetches the disks of a guest from the agent of another host, each fetch on a thread of its own.
//!
//! Invariant: every fetch that is begun ends, with everything whole or with nothing: when it is stopped,
//! when its time is over, and when the source sends nothing for a while.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use berth_domain::agent::{Failure, Fence};
use berth_domain::id::{Epoch, OperationId, VmUid};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::transfer::{Amount, Phase, TransferProgress};
use berth_driver::disks::{DiskSize, PIECE_MAX, Piece};
use berth_driver::{Answer, Driver, Error, Fetch};
use berth_proto::agent::v1 as wire;
use berth_proto::agent::v1::compute_agent_service_client::ComputeAgentServiceClient;
use berth_proto::agent::v1::read_disks_response::Piece as Wire;
use berth_proto::agent::v1::{ReadDisksRequest, ReadDisksResponse};
use berth_proto::client::{self, Dialer};
use berth_proto::convert::ResourceName as _;
use berth_proto::operation::v1::SignedGrant;
use berth_tls::Expected;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

/// How many fetches go on at a time; others wait.
const FETCHES_MAX: usize = 4;

/// How long a source may send nothing. It sends pieces one after the other, and reads them from its disks
/// meanwhile.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Retry delay while a source serves as many fetches as it may.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// How far a fetch is.
#[derive(Clone, Copy, Debug)]
struct Progress {
    begun: Instant,
    total: u64,
    processed: u64,
}

#[derive(Default)]
struct All {
    underway: BTreeMap<VmUid, (CancellationToken, Option<Progress>)>,
    /// What the calls that are under way were granted, by the call.
    granted: BTreeMap<(VmUid, OperationId, Epoch), (SignedGrant, usize)>,
}

/// The grant of a call under way. Fetches of the call carry it as long as this lives.
pub(crate) struct Carried {
    fetches: Fetches,
    call: (VmUid, OperationId, Epoch),
}

impl Drop for Carried {
    fn drop(&mut self) {
        let mut all = self.fetches.lock();
        if let Some((_, calls)) = all.granted.get_mut(&self.call) {
            *calls -= 1;
            if *calls == 0 {
                all.granted.remove(&self.call);
            }
        }
    }
}

/// The fetches of one agent. Cheap to clone; clones share it.
#[derive(Clone)]
pub(crate) struct Fetches {
    all: Arc<Mutex<All>>,
    turns: Arc<Semaphore>,
    dialer: Dialer,
}

impl Fetches {
    /// Returns none so far; those to come are made over connections of this dialer's.
    pub(crate) fn new(dialer: Dialer) -> Self {
        Self {
            dialer,
            all: Arc::default(),
            turns: Arc::new(Semaphore::new(FETCHES_MAX)),
        }
    }
}

impl Fetches {
    fn lock(&self) -> MutexGuard<'_, All> {
        // Every change is one insertion, removal or assignment.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what a call was granted while it is under way.
    pub(crate) fn carry(&self, fence: &Fence, grant: Option<SignedGrant>) -> Option<Carried> {
        let call = (fence.vm, fence.operation, fence.epoch);
        let grant = grant?;
        let mut all = self.lock();
        let (known, calls) = all
            .granted
            .entry(call)
            .or_insert_with(|| (grant.clone(), 0));
        // The newest expires last.
        *known = grant;
        *calls += 1;
        Some(Carried {
            fetches: self.clone(),
            call,
        })
    }

    fn grant_of(&self, fence: &Fence) -> Option<SignedGrant> {
        let call = (fence.vm, fence.operation, fence.epoch);
        Some(self.lock().granted.get(&call)?.0.clone())
    }

    /// Records a fetch, before its thread begins.
    pub(crate) fn begin(&self, vm: VmUid) -> CancellationToken {
        let stop = CancellationToken::new();
        self.lock().underway.insert(vm, (stop.clone(), None));
        stop
    }

    /// Stops a fetch, if there is one.
    pub(crate) fn stop(&self, vm: VmUid) {
        if let Some((stop, _)) = self.lock().underway.get(&vm) {
            stop.cancel();
        }
    }

    /// Stops all of them.
    pub(crate) fn stop_all(&self) {
        for (stop, _) in self.lock().underway.values() {
            stop.cancel();
        }
    }

    /// Returns how far the fetch for a guest is, if there is one.
    pub(crate) fn progress(&self, vm: VmUid) -> Option<TransferProgress> {
        let (_, progress) = self.lock().underway.get(&vm).cloned()?;
        let elapsed = progress.map_or(Duration::ZERO, |p| p.begun.elapsed());
        let (total, processed) = progress.map_or((0, 0), |p| (p.total, p.processed));
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        Some(TransferProgress {
            phase: match progress {
                None => Phase::Setup,
                Some(_) => Phase::PreCopy,
            },
            memory: Amount::default(),
            disk: Amount {
                total,
                processed,
                remaining: total.saturating_sub(processed),
            },
            dirty_bytes_per_s: 0,
            bytes_per_s: processed.saturating_mul(1000) / elapsed_ms.max(1),
            elapsed_ms,
            downtime_ms: 0,
            iteration: 0,
        })
    }

    fn record_progress(&self, vm: VmUid, progress: Progress) {
        if let Some((_, known)) = self.lock().underway.get_mut(&vm) {
            *known = Some(progress);
        }
    }

    /// Fetches disks; blocks until all of them are here, or nothing.
    pub(crate) fn run(
        &self,
        driver: &dyn Driver,
        fetch: &Fetch,
        stop: &CancellationToken,
        runtime: &Handle,
    ) -> Result<Answer, Error> {
        let outcome = self.in_turn(driver, fetch, stop, runtime);
        self.lock().underway.remove(&fetch.domain.uid);
        outcome.map(|()| Answer::Done)
    }
}

impl Fetches {
    /// Fetches once it is its turn: its time begins then.
    fn in_turn(
        &self,
        driver: &dyn Driver,
        fetch: &Fetch,
        stop: &CancellationToken,
        runtime: &Handle,
    ) -> Result<(), Error> {
        let turn = runtime.block_on(async {
            tokio::select! {
                biased;
                () = stop.cancelled() => None,
                // It is never closed.
                turn = self.turns.acquire() => turn.ok(),
            }
        });
        let Some(_turn) = turn else {
            let vm = fetch.domain.uid;
            return Err(Error::Aborted { vm });
        };
        let fetching = Fetching {
            fetches: self,
            fetch,
            stop,
            deadline: Instant::now() + Duration::from_millis(fetch.timeout_ms),
            runtime,
        };
        fetching.run(driver)
    }
}

/// One fetch.
struct Fetching<'a> {
    fetches: &'a Fetches,
    fetch: &'a Fetch,
    stop: &'a CancellationToken,
    deadline: Instant,
    runtime: &'a Handle,
}

impl Fetching<'_> {
    /// Waits for something, but not for ever.
    fn wait<T>(&self, what: impl Future<Output = T>, time_max: Duration) -> Result<T, Error> {
        let vm = self.fetch.domain.uid;
        let left = self.deadline.saturating_duration_since(Instant::now());
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => Err(Error::Aborted { vm }),
                done = tokio::time::timeout(time_max.min(left), what) => match done {
                    Ok(done) => Ok(done),
                    Err(_) if left <= time_max => Err(Error::Overdue {
                        limit_ms: self.fetch.timeout_ms,
                    }),
                    Err(_) => Err(self.source_unreachable("it sends nothing")),
                },
            }
        })
    }

    fn source_unreachable(&self, message: &str) -> Error {
        Error::SourceGone {
            host: self.fetch.source.host.clone(),
            message: message.to_owned(),
        }
    }

    fn run(&self, driver: &dyn Driver) -> Result<(), Error> {
        let Fetch {
            domain, migration, ..
        } = self.fetch;
        let Some(mut writer) = driver.receive_disks(domain, *migration)? else {
            return Ok(());
        };
        let mut pieces = self.open()?;
        let sizes = match self.next(&mut pieces)? {
            Wire::Head(head) => head.disks,
            Wire::Data(_) | Wire::Hole(_) | Wire::End(_) => {
                return Err(self.source_unreachable("it does not begin with a head"));
            }
        };
        let sizes: Vec<DiskSize> = sizes
            .into_iter()
            .map(|size| DiskSize {
                length: size.length_bytes,
                allocated: size.allocated_bytes,
            })
            .collect();
        let mut progress = Progress {
            begun: Instant::now(),
            total: sizes
                .iter()
                .fold(0, |all: u64, size| all.saturating_add(size.allocated)),
            processed: 0,
        };
        writer.expect(sizes)?;
        self.fetches.record_progress(domain.uid, progress);
        loop {
            match self.next(&mut pieces)? {
                Wire::End(_) => break,
                Wire::Head(_) => return Err(self.source_unreachable("it begins twice")),
                Wire::Data(data) => {
                    let length = data.data.len();
                    if length > PIECE_MAX || crc32fast::hash(&data.data) != data.crc32 {
                        return Err(self.source_unreachable("a piece does not match its checksum"));
                    }
                    let piece = Piece::Data {
                        disk: number(data.disk),
                        offset: data.offset,
                        bytes: data.data.into(),
                    };
                    writer.write(&piece)?;
                    progress.processed += length as u64;
                    self.fetches.record_progress(domain.uid, progress);
                    self.hold_back(&progress)?;
                }
                Wire::Hole(hole) => {
                    let piece = Piece::Hole {
                        disk: number(hole.disk),
                        offset: hole.offset,
                        length: hole.length_bytes,
                    };
                    writer.write(&piece)?;
                }
            }
        }
        // Not in the middle of making them whole.
        if self.stop.is_cancelled() {
            let vm = domain.uid;
            return Err(Error::Aborted { vm });
        }
        writer.finish()
    }

    /// Waits where more has come than may have by now.
    fn hold_back(&self, progress: &Progress) -> Result<(), Error> {
        let Some(limit) = self.fetch.bandwidth_mib_per_s_max else {
            return Ok(());
        };
        let bytes_per_s = f64::from(limit) * f64::from(1 << 20);
        #[expect(clippy::cast_precision_loss, reason = "a rate, not an account")]
        let due = Duration::from_secs_f64(progress.processed as f64 / bytes_per_s);
        let ahead = due.saturating_sub(progress.begun.elapsed());
        if ahead.is_zero() {
            return Ok(());
        }
        self.wait(tokio::time::sleep(ahead), Duration::MAX)
    }

    fn open(&self) -> Result<Streaming<ReadDisksResponse>, Error> {
        let Fetch {
            domain,
            migration,
            source,
            fence,
            ..
        } = self.fetch;
        let channel = {
            // A channel belongs to a runtime.
            let _in = self.runtime.enter();
            let meant = Expected::Agent(source.host.to_string());
            let channel = self.fetches.dialer.channel(&source.address, meant);
            channel.map_err(|error| self.source_unreachable(&error.to_string()))?
        };
        let request = ReadDisksRequest {
            fence: Some(wire::Fence {
                grant: self.fetches.grant_of(fence),
                ..fence.into()
            }),
            migration: migration.resource_name(),
            disks: u32::try_from(domain.spec.disks.len()).unwrap_or(u32::MAX),
        };
        let mut agent = ComputeAgentServiceClient::new(channel);
        let opened = loop {
            let opened = self.wait(agent.read_disks(request.clone()), SILENCE_MAX)?;
            match &opened {
                Err(status) if is_busy(status) => {
                    self.wait(tokio::time::sleep(ASK_AGAIN), Duration::MAX)?;
                }
                Ok(_) | Err(_) => break opened,
            }
        };
        opened
            .map(tonic::Response::into_inner)
            .map_err(|status| self.source_error(&status))
    }

    fn next(&self, pieces: &mut Streaming<ReadDisksResponse>) -> Result<Wire, Error> {
        let next = self.wait(pieces.message(), SILENCE_MAX)?;
        let next = next.map_err(|status| self.source_error(&status))?;
        let next = next.ok_or_else(|| self.source_unreachable("it ended before its end"))?;
        next.piece.ok_or_else(|| {
            self.source_unreachable("it sent a message that this agent does not know")
        })
    }

    /// Returns the error of the source's agent.
    fn source_error(&self, status: &Status) -> Error {
        match client::agent::failure(status) {
            Failure::Unreachable { message } => self.source_unreachable(&message),
            Failure::Refused(refusal) if may_pass(&refusal) => {
                self.source_unreachable(&refusal.message)
            }
            Failure::Refused(refusal) if refusal.reason == "STORAGE_SHARED" => {
                let directory = self.fetch.domain.uid.to_string().into();
                Error::StorageShared { directory }
            }
            Failure::Refused(refusal) => {
                let host = &self.fetch.source.host;
                Error::refused(format!("host {host} refuses to send the disks: {refusal}"))
            }
        }
    }
}

/// Returns whether the source sends as many disks as it may, or is about to be done with the guest.
fn is_busy(status: &Status) -> bool {
    let refusal = berth_proto::status::refusal_of(status);
    refusal.is_some_and(|refusal| refusal.reason == "AGENT_BUSY")
}

/// Returns whether a retry is worthwhile, by what is known then of the source.
fn may_pass(refusal: &Refusal) -> bool {
    let passing = matches!(
        refusal.code,
        Code::Unavailable | Code::DeadlineExceeded | Code::Aborted
    );
    passing || refusal.reason == "STALE_INCARNATION"
}

fn number(disk: u32) -> usize {
    usize::try_from(disk).unwrap_or(usize::MAX)
}
