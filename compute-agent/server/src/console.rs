//! The serial consoles of guests: what they write, and one session a guest that types.
//!
//! ```text
//!   client ──input──▶ type_on ──▶ ConsoleInput ──▶ guest ──▶ its log ──▶ Output ──data──▶ client
//! ```
//!
//! Not here: how a hypervisor has its consoles, which is the driver's.
//!
//! Invariant: bounded. A client that does not read slows its own session down; one that types faster than
//! the guest takes it waits.

mod sessions;

use std::sync::Arc;
use std::time::Duration;

use berth_agent_core::Facts;
use berth_domain::id::{TimeMs, VmUid};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::Feature;
use berth_driver::{
    CONSOLE_CHUNK_MAX, CONSOLE_INPUT_MAX, Chunk, ConsoleInput, ConsoleLog, Driver, Error,
};
use berth_process::access::{self, audit};
use berth_process::wall_clock_ms;
use berth_proto::agent::v1::attach_console_request::open::From as Begin;
use berth_proto::agent::v1::attach_console_request::{Open, Request as Wire};
use berth_proto::agent::v1::{
    AttachConsoleRequest, AttachConsoleResponse, ReadConsoleRequest, ReadConsoleResponse,
};
use berth_proto::client::typed::INPUT_MAX;
use berth_proto::convert::{Invalid, field};
use berth_proto::status::to_status;
use berth_tls::Identity;
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinError;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status, Streaming};

use self::sessions::{Session, Sessions};
use crate::driver_call::{self, refusal};
use crate::feature;
use crate::grants::Grants;

/// How often a console that is followed is looked at.
const FOLLOW_PERIOD: Duration = Duration::from_millis(100);

/// The same while a user types, who waits for each character.
const TYPING_PERIOD: Duration = Duration::from_millis(20);

/// How many pieces of a console may be on their way to a reader.
const AHEAD_MAX: usize = 4;

/// How long a client may take for its first message.
const OPEN_TIME_MAX: Duration = Duration::from_secs(10);

/// What clients send at once is what drivers take at once.
const _: () = assert!(INPUT_MAX == CONSOLE_INPUT_MAX);

type Messages<T> = ReceiverStream<Result<T, Status>>;

/// The consoles of this host's guests.
pub(crate) struct Consoles {
    facts: Facts,
    driver: Arc<dyn Driver>,
    grants: Grants,
    stopping: CancellationToken,
    sessions: Sessions,
}

impl Consoles {
    pub(crate) fn new(
        facts: Facts,
        driver: Arc<dyn Driver>,
        grants: Grants,
        stopping: CancellationToken,
    ) -> Self {
        Self {
            facts,
            driver,
            grants,
            stopping,
            sessions: Sessions::default(),
        }
    }

    /// Sends a console piece by piece.
    ///
    /// # Errors
    ///
    /// When the host has nothing of the guest.
    pub(crate) async fn read(
        &self,
        request: ReadConsoleRequest,
    ) -> Result<Messages<ReadConsoleResponse>, Status> {
        let vm: VmUid = field::uuid(&request.vm_uid, "vm_uid")?;
        // Queried once before the stream begins, so that an unknown guest is an error of the call.
        driver_call::call(&self.driver, move |driver| {
            driver.console_read(vm, request.offset)
        })
        .await?;
        let (sender, receiver) = mpsc::channel(AHEAD_MAX);
        let (driver, stopping) = (self.driver.clone(), self.stopping.clone());
        let is_last = CancellationToken::new();
        if !request.follow {
            is_last.cancel();
        }
        let output = Output {
            driver,
            vm,
            period: FOLLOW_PERIOD,
            is_last,
            log: None,
        };
        tokio::spawn(async move {
            let message = |data, next_offset| ReadConsoleResponse { data, next_offset };
            tokio::select! {
                () = output.send(request.offset, &sender, message) => {}
                () = stopping.cancelled() => {}
            }
        });
        Ok(ReceiverStream::new(receiver))
    }

    /// Opens a session that types on a console and reads it.
    ///
    /// # Errors
    ///
    /// When it is not granted, another session types, or there is no such guest.
    pub(crate) async fn attach(
        &self,
        request: Request<Streaming<AttachConsoleRequest>>,
    ) -> Result<Messages<AttachConsoleResponse>, Status> {
        let caller = access::caller(request.extensions()).cloned();
        let mut inbound = request.into_inner();
        let open = first(&mut inbound).await?;
        let vm: VmUid = field::uuid(&open.vm_uid, "open.vm_uid")?;
        feature::gate(&self.facts, Feature::ConsoleInput)?;
        let user = self.granted(caller.as_deref(), vm, &open)?;
        let session = self.sessions.enter(vm, user.clone(), open.take_over);
        let session = session.map_err(|refusal| to_status(&refusal))?;
        let opening = move |driver: &dyn Driver| {
            let log = driver.console_log(vm)?;
            Ok((log, driver.console_open(vm)?))
        };
        let (ConsoleLog { id, end }, input) = driver_call::call(&self.driver, opening).await?;
        let log = log_id(&self.facts, &id);
        let offset = match open.from {
            Some(Begin::Position(position)) if position.log == log => position.offset,
            // What was written there is new to the client.
            Some(Begin::Position(_)) => 0,
            Some(Begin::LastBytes(bytes)) => {
                let bytes = u64::from(bytes).min(CONSOLE_CHUNK_MAX as u64);
                end.saturating_sub(bytes)
            }
            None => end,
        };
        tracing::info!(%vm, user, "a session types on the console of a guest");
        let (sender, receiver) = mpsc::channel(AHEAD_MAX);
        let running = Attached {
            session,
            log: id,
            driver: self.driver.clone(),
            stopping: self.stopping.clone(),
        };
        tokio::spawn(async move {
            let opened = AttachConsoleResponse {
                next_offset: offset,
                log,
                ..AttachConsoleResponse::default()
            };
            running.run(opened, input, inbound, sender).await;
            tracing::info!(%vm, user, "the session on the console has ended");
        });
        Ok(ReceiverStream::new(receiver))
    }

    /// Returns the user for whom the caller may type.
    fn granted(&self, caller: Option<&Identity>, vm: VmUid, open: &Open) -> Result<String, Status> {
        let line = audit::Line {
            vm: vm.to_string(),
            ..audit::Line::of("AttachConsole", caller)
        };
        let now = TimeMs(wall_clock_ms());
        match self
            .grants
            .check_console(vm, open.grant.as_ref(), caller, now)
        {
            Ok(user) => {
                audit::done(&line, "begun");
                Ok(user.unwrap_or_else(|| open.user.clone()))
            }
            Err(refusal) => {
                audit::refused(&line, &refusal.reason);
                Err(to_status(&refusal))
            }
        }
    }
}

/// Returns which console log it is among all of the cluster. A simulated guest takes its own along.
fn log_id(facts: &Facts, id: &str) -> String {
    match (facts.driver.as_str(), facts.storage_id.as_str()) {
        ("sim", _) => format!("simulated, {id}"),
        (_, "") => format!("host {}, {id}", facts.host),
        (_, storage) => format!("storage {storage}, {id}"),
    }
}

/// Returns what opens a session.
async fn first(inbound: &mut Streaming<AttachConsoleRequest>) -> Result<Open, Status> {
    let message = timeout(OPEN_TIME_MAX, inbound.message()).await;
    let message = message.map_err(|_| Status::deadline_exceeded("no message opens the session"))?;
    match message?.and_then(|message| message.request) {
        Some(Wire::Open(open)) => Ok(open),
        Some(Wire::Input(_)) | None => {
            Err(Invalid::new("request", "has to be `open` in the first message").into())
        }
    }
}

/// What a guest writes.
struct Output {
    driver: Arc<dyn Driver>,
    vm: VmUid,
    period: Duration,
    /// Whether it ends at the end of what was written by then.
    is_last: CancellationToken,
    /// The log that it ends with; none for a reader of whatever there is.
    log: Option<String>,
}

impl Output {
    /// Reads a piece; nothing where the log is another one by now.
    async fn read(&self, offset: u64) -> Result<Result<Option<Chunk>, Error>, JoinError> {
        let (driver, vm, log) = (self.driver.clone(), self.vm, self.log.clone());
        let read = move || {
            let chunk = driver.console_read(vm, offset)?;
            let is_same = match log {
                Some(log) => driver.console_log(vm)?.id == log,
                None => true,
            };
            Ok(is_same.then_some(chunk))
        };
        tokio::task::spawn_blocking(read).await
    }

    /// Sends it from `offset` on, until its end or, when it is followed, until the guest is gone or the
    /// client has disconnected.
    async fn send<T>(
        &self,
        mut offset: u64,
        reader: &mpsc::Sender<Result<T, Status>>,
        message: impl Fn(Bytes, u64) -> T,
    ) {
        loop {
            let is_last = self.is_last.is_cancelled();
            let chunk = match self.read(offset).await {
                Ok(Ok(Some(chunk))) => chunk,
                Ok(Ok(None) | Err(Error::Absent { .. })) | Err(_) => return,
                Ok(Err(error)) => {
                    let _ = reader.send(Err(to_status(&refusal(&error)))).await;
                    return;
                }
            };
            let is_end = chunk.bytes.is_empty();
            // An offset beyond the end stays: the rest is yet to be written.
            if !is_end {
                offset = chunk.offset + chunk.bytes.len() as u64;
                let piece = message(chunk.bytes.into(), offset);
                if reader.send(Ok(piece)).await.is_err() {
                    return;
                }
            } else if is_last || reader.is_closed() {
                return;
            } else {
                tokio::select! {
                    () = tokio::time::sleep(self.period) => {}
                    () = self.is_last.cancelled() => {}
                }
            }
        }
    }
}

/// A session that goes on.
struct Attached {
    session: Session,
    /// As the driver knows it.
    log: String,
    driver: Arc<dyn Driver>,
    stopping: CancellationToken,
}

impl Attached {
    async fn run(
        self,
        opened: AttachConsoleResponse,
        input: Box<dyn ConsoleInput>,
        inbound: Streaming<AttachConsoleRequest>,
        sender: mpsc::Sender<Result<AttachConsoleResponse, Status>>,
    ) {
        // It says that the session is open, before the guest writes anything.
        let offset = opened.next_offset;
        if sender.send(Ok(opened)).await.is_err() {
            return;
        }
        let typed_all = CancellationToken::new();
        let output = Output {
            driver: self.driver.clone(),
            vm: self.session.vm,
            period: TYPING_PERIOD,
            is_last: typed_all.clone(),
            log: Some(self.log),
        };
        let ended = CancellationToken::new();
        let typing = tokio::spawn({
            let keyboard = Keyboard {
                sender: sender.clone(),
                ended: ended.clone(),
            };
            async move {
                keyboard.type_on(input, inbound).await;
                typed_all.cancel();
            }
        });
        let message = |data, next_offset| response(data, next_offset, 0);
        tokio::select! {
            () = output.send(offset, &sender, message) => {}
            () = self.session.taken_over.cancelled() => {
                let by = self.session.sessions.user(self.session.vm).unwrap_or_default();
                let message = format!("{by} took the console over");
                let refusal = Refusal::new(Code::Aborted, "CONSOLE_TAKEN_OVER", message);
                let refusal = refusal.with("user", by);
                // A client that does not read is not waited for: its stream ends in any case.
                let _ = sender.try_send(Err(to_status(&refusal)));
            }
            () = self.stopping.cancelled() => {}
        }
        ended.cancel();
        // A panic of the task was reported when it happened.
        let _ = typing.await;
    }
}

fn response(data: Bytes, next_offset: u64, typed_bytes: u64) -> AttachConsoleResponse {
    AttachConsoleResponse {
        data,
        next_offset,
        typed_bytes,
        log: String::new(),
    }
}

/// The typing part of a session.
struct Keyboard {
    sender: mpsc::Sender<Result<AttachConsoleResponse, Status>>,
    /// Cancelled when the session has ended otherwise.
    ended: CancellationToken,
}

impl Keyboard {
    /// Types what arrives until the client closes its side or the session has ended, and then lets the
    /// guest take it.
    async fn type_on(
        &self,
        mut input: Box<dyn ConsoleInput>,
        mut inbound: Streaming<AttachConsoleRequest>,
    ) {
        let mut typed_bytes = 0;
        while let Some(bytes) = self.next(&mut inbound, &*input).await {
            let length = bytes.len() as u64;
            let write = move || {
                let written = input.write(&bytes);
                (input, written)
            };
            let Ok((returned, written)) = tokio::task::spawn_blocking(write).await else {
                return;
            };
            input = returned;
            if let Err(error) = written {
                // A guest that has left, or was started again, is looked for by the client.
                if input.is_open() {
                    self.answer(Err(to_status(&refusal(&error)))).await;
                }
                break;
            }
            typed_bytes += length;
            self.answer(Ok(response(Bytes::new(), 0, typed_bytes)))
                .await;
        }
        // It waits for the guest, which an async thread must not.
        let _ = tokio::task::spawn_blocking(move || drop(input)).await;
    }

    /// Returns what is typed next; nothing at the end.
    async fn next(
        &self,
        inbound: &mut Streaming<AttachConsoleRequest>,
        input: &dyn ConsoleInput,
    ) -> Option<Bytes> {
        let message = loop {
            tokio::select! {
                message = inbound.message() => break message,
                () = self.ended.cancelled() => return None,
                () = tokio::time::sleep(FOLLOW_PERIOD) => {
                    if !input.is_open() {
                        return None;
                    }
                }
            }
        };
        let why = match message.ok()??.request? {
            Wire::Input(bytes) if bytes.len() <= CONSOLE_INPUT_MAX => return Some(bytes),
            Wire::Input(_) => {
                Invalid::new("input", format!("may be {CONSOLE_INPUT_MAX} bytes at most"))
            }
            Wire::Open(_) => {
                Invalid::new("request", "has to be `input`: the session is open already")
            }
        };
        self.answer(Err(why.into())).await;
        None
    }

    async fn answer(&self, message: Result<AttachConsoleResponse, Status>) {
        tokio::select! {
            // One that has disconnected needs no answer.
            _ = self.sender.send(message) => {}
            () = self.ended.cancelled() => {}
        }
    }
}
