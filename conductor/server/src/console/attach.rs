//! Sessions that type on the console of a guest, and go where the guest goes.
//!
//! ```text
//!             ┌──────────── guest gone ────────────┐
//!             ▼                                    │
//!   open ─▶ wait for the guest ─▶ attach at its agent ─▶ pass on ─▶ the user has closed: end
//! ```
//!
//! What was typed and not confirmed by an agent is typed again at the next one: an agent confirms what its
//! hypervisor took.
//!
//! Invariant: bounded. While too much is not confirmed nothing more is read from the user.

use std::time::Duration;

use berth_domain::id::VmUid;
use berth_domain::name::{HostName, VmName};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::TOO_OLD;
use berth_proto::agent::v1 as agent;
use berth_proto::agent::v1::attach_console_request::open::From as AgentBegin;
use berth_proto::agent::v1::attach_console_request::{Open as AgentOpen, Request as AgentWire};
use berth_proto::client::typed::{INPUT_MAX, UNCONFIRMED_MAX, Unconfirmed};
use berth_proto::conductor::v1::attach_console_request::open::From as Begin;
use berth_proto::conductor::v1::attach_console_request::{Open, Request as Wire};
use berth_proto::conductor::v1::attach_console_response::{
    Attached, Away, Output, Response as Answer, Typed,
};
use berth_proto::conductor::v1::{AttachConsoleRequest, AttachConsoleResponse, ConsolePosition};
use berth_proto::convert::{Invalid, ResourceName as _, field};
use berth_proto::operation::v1::SignedGrant;
use berth_proto::{client, status};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::{AHEAD_MAX, Holder, holder, holder_of, to_status};
use crate::driver::Tools;

/// A session on its way to a user.
pub(crate) type Session = ReceiverStream<Result<AttachConsoleResponse, Status>>;

/// How long a user may take for the first message.
const OPEN_TIME_MAX: Duration = Duration::from_secs(10);

/// How long an agent may take to open a session.
const ATTACH_TIME_MAX: Duration = Duration::from_secs(10);

/// How long a guest is waited for that has left its host.
const AWAY_TIME_MAX: Duration = Duration::from_secs(60);

/// How often it is looked for.
const LOOK_PERIOD: Duration = Duration::from_millis(200);

/// The reason of an agent at which another session types.
const IN_USE: &str = "CONSOLE_IN_USE";

/// Opens a session for `user`, and returns what the guest writes.
///
/// # Errors
///
/// When the user may not type on it now.
pub(crate) async fn attach(
    tools: Tools,
    user: String,
    mut inbound: Streaming<AttachConsoleRequest>,
    stopping: CancellationToken,
) -> Result<Session, Status> {
    let open = first(&mut inbound).await?;
    let vm: VmName = field::name(&open.vm, "open.vm")?;
    let former: Option<VmUid> = field::optional_uuid(&open.vm_uid, "open.vm_uid")?.map(VmUid);
    let granted = tools.scheduler.open_console(&vm, open.take_over);
    let (uid, grant) = granted.await.map_err(to_status)?;
    if former.is_some_and(|former| former != uid) {
        return Err(to_status(Refusal::not_found("vm", &vm)));
    }
    let (position, last_bytes) = match open.from {
        Some(Begin::Position(position)) => (Some(position), 0),
        Some(Begin::LastBytes(bytes)) => (None, bytes),
        None => (None, 0),
    };
    let (sender, receiver) = mpsc::channel(AHEAD_MAX);
    let mut session = Attachment {
        tools,
        vm,
        uid,
        user,
        grant,
        position,
        unconfirmed: Unconfirmed::default(),
        is_closed: false,
        sender,
    };
    let link = match session.link(open.take_over, last_bytes).await {
        // It is being started, or moved.
        Err(status) if status.code() == tonic::Code::NotFound => None,
        link => Some(link?),
    };
    tokio::spawn(async move {
        let user = session.sender.clone();
        tokio::select! {
            () = session.run(link, inbound) => {}
            () = user.closed() => {}
            () = stopping.cancelled() => {
                let why = "the conductor stops; another one goes on";
                let _ = user.try_send(Err(Status::unavailable(why)));
            }
        }
    });
    Ok(ReceiverStream::new(receiver))
}

/// Returns what opens a session.
async fn first(inbound: &mut Streaming<AttachConsoleRequest>) -> Result<Open, Status> {
    let message = timeout(OPEN_TIME_MAX, inbound.message()).await;
    let message = message.map_err(|_| Status::deadline_exceeded("no message opens the session"))?;
    match message?.and_then(|message| message.request) {
        Some(Wire::Open(open)) => Ok(open),
        Some(Wire::Input(_)) | None => Err(first_is_open()),
    }
}

/// A session at one agent.
struct Link {
    /// Dropped to close this side.
    input: Option<mpsc::Sender<agent::AttachConsoleRequest>>,
    output: Streaming<agent::AttachConsoleResponse>,
    log: String,
    host: HostName,
}

/// Why the guest cannot be typed to at this moment.
enum Absence {
    /// It may come back.
    Away(String),
    /// It does not, or not for this session.
    Over(Status),
}

/// How passing on ended.
enum Passed {
    /// The user has closed the session.
    Closed,
    /// The guest, or its agent, is gone.
    Gone(String),
    /// For good.
    Failed(Status),
}

/// A session of a user.
struct Attachment {
    tools: Tools,
    vm: VmName,
    /// Another VM of this name is not the one that was granted.
    uid: VmUid,
    user: String,
    grant: Option<SignedGrant>,
    /// Where to go on; absent before anything was read.
    position: Option<ConsolePosition>,
    unconfirmed: Unconfirmed,
    /// Whether the user has closed the input.
    is_closed: bool,
    sender: mpsc::Sender<Result<AttachConsoleResponse, Status>>,
}

impl Attachment {
    async fn run(&mut self, link: Option<Link>, mut inbound: Streaming<AttachConsoleRequest>) {
        let mut link = link.ok_or_else(|| "it is not on its host yet".to_owned());
        let ended = loop {
            link = match link {
                Ok(mut link) => match self.pass(&mut link, &mut inbound).await {
                    Passed::Closed => return,
                    Passed::Gone(why) => Err(why),
                    Passed::Failed(status) => break status,
                },
                Err(reason) => {
                    self.answer(Answer::Away(Away { reason })).await;
                    match self.wait().await {
                        Ok(link) => Ok(link),
                        Err(status) => break status,
                    }
                }
            };
        };
        // A user who has gone needs no answer.
        let _ = self.sender.send(Err(ended)).await;
    }

    async fn answer(&self, response: Answer) {
        let response = Some(response);
        // A user who has gone ends the session otherwise.
        let _ = (self.sender)
            .send(Ok(AttachConsoleResponse { response }))
            .await;
    }

    /// Passes on what is typed and what the guest writes.
    async fn pass(
        &mut self,
        link: &mut Link,
        inbound: &mut Streaming<AttachConsoleRequest>,
    ) -> Passed {
        let host = link.host.resource_name();
        let vm_uid = self.uid.to_string();
        self.answer(Answer::Attached(Attached { host, vm_uid }))
            .await;
        for bytes in self.unconfirmed.restart() {
            send_input(link.input.as_ref(), bytes).await;
        }
        if self.is_closed {
            link.input = None;
        }
        loop {
            let takes_input = !self.is_closed && !self.unconfirmed.is_full();
            tokio::select! {
                message = inbound.message(), if takes_input => match message.map(|m| m.map(|m| m.request)) {
                    Ok(Some(Some(Wire::Input(bytes)))) if bytes.is_empty() => {}
                    Ok(Some(Some(Wire::Input(bytes)))) if bytes.len() > INPUT_MAX => {
                        return Passed::Failed(too_much());
                    }
                    Ok(Some(Some(Wire::Input(bytes)))) => {
                        self.unconfirmed.push(bytes.clone());
                        send_input(link.input.as_ref(), bytes).await;
                    }
                    Ok(Some(Some(Wire::Open(_)) | None)) => {
                        return Passed::Failed(open_already());
                    }
                    Ok(None) | Err(_) => {
                        self.is_closed = true;
                        link.input = None;
                    }
                },
                message = link.output.message() => match message {
                    Ok(Some(message)) => self.take(&link.log, message).await,
                    Ok(None) if self.is_closed => return Passed::Closed,
                    Ok(None) => return Passed::Gone("it has left its host, or was started again".to_owned()),
                    Err(status) if client::is_unanswered(&status) => {
                        let host = &link.host;
                        return Passed::Gone(format!("the agent of host {host} does not answer"));
                    }
                    Err(status) => return Passed::Failed(to_status(status::from_status(&status))),
                },
            }
        }
    }

    /// Takes a message of the agent.
    async fn take(&mut self, log: &str, message: agent::AttachConsoleResponse) {
        let agent::AttachConsoleResponse {
            data,
            next_offset,
            typed_bytes,
            log: _,
        } = message;
        if typed_bytes > 0 {
            let typed_bytes = self.unconfirmed.confirm(typed_bytes);
            self.answer(Answer::Typed(Typed { typed_bytes })).await;
        }
        if data.is_empty() {
            return;
        }
        let next = ConsolePosition {
            log: log.to_owned(),
            offset: next_offset,
        };
        self.position = Some(next.clone());
        let next = Some(next);
        self.answer(Answer::Output(Output { data, next })).await;
    }

    /// Waits for the guest and opens a session at its agent.
    async fn wait(&mut self) -> Result<Link, Status> {
        let end = Instant::now() + AWAY_TIME_MAX;
        loop {
            sleep(LOOK_PERIOD).await;
            let why = match self.look().await {
                Ok(link) => return Ok(link),
                Err(Absence::Over(status)) => return Err(status),
                Err(Absence::Away(why)) => why,
            };
            if Instant::now() > end {
                let seconds = AWAY_TIME_MAX.as_secs();
                let message = format!("the guest is not back after {seconds} s: {why}");
                let refusal = Refusal::new(Code::FailedPrecondition, "GUEST_AWAY", message);
                return Err(to_status(refusal.with("vm", &self.vm)));
            }
        }
    }

    async fn look(&mut self) -> Result<Link, Absence> {
        let away = |status: Status| Absence::Away(status.message().to_owned());
        let vm = match self.tools.scheduler.vm(&self.vm).await {
            Ok((vm, _)) => vm,
            Err(refusal) if refusal.code == Code::NotFound => {
                return Err(Absence::Over(to_status(refusal)));
            }
            Err(refusal) => return Err(Absence::Away(refusal.message)),
        };
        if self.uid != vm.uid {
            let gone = Refusal::not_found("vm", &self.vm);
            return Err(Absence::Over(to_status(gone)));
        }
        if !vm.state.may_have_guest() {
            return Err(Absence::Over(to_status(vm.no_console())));
        }
        let holder = holder_of(&self.tools, vm).await.map_err(away)?;
        let attached = self.link_to(&holder, false, 0).await;
        attached.map_err(|status| match is_final(&status, &self.user) {
            true => Absence::Over(status),
            // Its record may be behind it, or its agent may have just been started.
            false => away(status),
        })
    }

    /// Opens the session at the agent that has the guest now.
    async fn link(&mut self, take_over: bool, last_bytes: u32) -> Result<Link, Status> {
        let holder = holder(&self.tools, &self.vm).await?;
        self.link_to(&holder, take_over, last_bytes).await
    }

    async fn link_to(
        &mut self,
        holder: &Holder,
        take_over: bool,
        last_bytes: u32,
    ) -> Result<Link, Status> {
        let from = match &self.position {
            Some(ConsolePosition { log, offset }) => AgentBegin::Position(agent::ConsolePosition {
                log: log.clone(),
                offset: *offset,
            }),
            None => AgentBegin::LastBytes(last_bytes),
        };
        let open = AgentOpen {
            vm_uid: holder.uid.to_string(),
            grant: self.grant.clone(),
            user: self.user.clone(),
            take_over,
            from: Some(from),
        };
        let (input, requests) = mpsc::channel(UNCONFIRMED_MAX + 1);
        send(&input, AgentWire::Open(open)).await;
        let mut client = holder.client(&self.tools)?;
        let call = client.attach_console(ReceiverStream::new(requests));
        let answered = timeout(ATTACH_TIME_MAX, async {
            let mut output = call.await?.into_inner();
            // It says that the session is open.
            let first = output.message().await?;
            Ok::<_, Status>((first, output))
        });
        let (first, output) = match answered.await {
            Ok(Ok((Some(first), output))) => (first, output),
            Ok(Ok((None, _))) => return Err(holder.unreachable("the session ended at once")),
            Ok(Err(status)) if status.code() == tonic::Code::Unimplemented => {
                return Err(too_old(holder));
            }
            Ok(Err(status)) if client::is_unanswered(&status) => {
                return Err(holder.unreachable(status.message()));
            }
            Ok(Err(status)) => return Err(to_status(status::from_status(&status))),
            Err(_) => return Err(holder.unreachable("it opens no session")),
        };
        let log = first.log;
        self.position = Some(ConsolePosition {
            log: log.clone(),
            offset: first.next_offset,
        });
        Ok(Link {
            input: Some(input),
            output,
            log,
            host: holder.host.clone(),
        })
    }
}

/// Returns whether a refusal of an agent ends a session of this user.
fn is_final(status: &Status, user: &str) -> bool {
    let refusal = status::from_status(status);
    match refusal.reason.as_str() {
        TOO_OLD => true,
        // What is left of this session at an agent that has not noticed its end is not waited for by
        // another user.
        IN_USE => refusal.metadata.get("user").is_none_or(|by| by != user),
        _ => matches!(
            refusal.code,
            Code::PermissionDenied | Code::Unimplemented | Code::InvalidArgument
        ),
    }
}

async fn send_input(input: Option<&mpsc::Sender<agent::AttachConsoleRequest>>, bytes: Bytes) {
    if let Some(input) = input {
        send(input, AgentWire::Input(bytes)).await;
    }
}

/// Sends to an agent. One that is gone is noticed where its messages are read.
async fn send(input: &mpsc::Sender<agent::AttachConsoleRequest>, request: AgentWire) {
    let request = Some(request);
    let _ = input.send(agent::AttachConsoleRequest { request }).await;
}

fn first_is_open() -> Status {
    Invalid::new("request", "has to be `open` in the first message").into()
}

fn open_already() -> Status {
    Invalid::new("request", "has to be `input`: the session is open already").into()
}

fn too_much() -> Status {
    Invalid::new("input", format!("may be {INPUT_MAX} bytes at most")).into()
}

fn too_old(holder: &Holder) -> Status {
    let host = &holder.host;
    let message = format!("the agent of host {host} is too old to type on consoles");
    let refusal = Refusal::new(Code::FailedPrecondition, TOO_OLD, message);
    let hint = format!("upgrade the compute agent of host {host}");
    to_status(refusal.with_hint(hint).with("host", host))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a session ends where waiting leads to nothing, and waits where it may. Method: each code that
    /// an agent may refuse with, and the reasons that count more than it.
    #[test]
    fn what_can_pass_is_waited_for() {
        let refused = |code, reason: &str| Refusal::new(code, reason, "no");
        let ends = |refusal: Refusal| is_final(&to_status(refusal), "operator:ann");
        for code in [
            Code::PermissionDenied,
            Code::Unimplemented,
            Code::InvalidArgument,
        ] {
            assert!(ends(refused(code, "ANY")), "{code:?}");
        }
        for code in [
            Code::NotFound,
            Code::FailedPrecondition,
            Code::Aborted,
            Code::Internal,
            Code::Unavailable,
            Code::DeadlineExceeded,
            Code::ResourceExhausted,
        ] {
            assert!(!ends(refused(code, "ANY")), "{code:?}");
        }
        assert!(ends(refused(Code::FailedPrecondition, TOO_OLD)));
        let in_use = || refused(Code::FailedPrecondition, IN_USE);
        assert!(ends(in_use().with("user", "operator:bob")));
        assert!(ends(in_use()));
        // The one of before, of which the agent has not noticed the end.
        assert!(!ends(in_use().with("user", "operator:ann")));
    }
}
