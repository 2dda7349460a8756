//! A session that types on a console, from the first key to the one that leaves it.
//!
//! A session that loses its conductor goes on over another one, from the place that was read last.

use std::time::Duration;

use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::Feature;
use berth_proto::client;
use berth_proto::client::typed::{INPUT_MAX, UNCONFIRMED_MAX, Unconfirmed};
use berth_proto::conductor::v1::attach_console_request::open::From as Begin;
use berth_proto::conductor::v1::attach_console_request::{Open, Request as Wire};
use berth_proto::conductor::v1::attach_console_response::Response as Answer;
use berth_proto::conductor::v1::{AttachConsoleRequest, AttachConsoleResponse, ConsolePosition};
use bytes::Bytes;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::escape::{Escape, Typed};
use super::terminal::{self, READ_MAX, Terminal};
use crate::arguments::Console;
use crate::output::{self, Lines};
use crate::session::{Session, ended, resource, short};

/// How much of what the guest wrote before is shown at the beginning.
const LAST_BYTES: u32 = 2048;

/// How long another conductor is looked for.
const RECONNECT_TIME_MAX: Duration = Duration::from_secs(30);

/// How often.
const RECONNECT_PERIOD: Duration = Duration::from_secs(1);

/// How many messages may wait for the conductor: all that are not confirmed, the first, and what one read of
/// the terminal may give. So none waits for room while what the guest writes is not read.
const AHEAD_MAX: usize = UNCONFIRMED_MAX + 1 + READ_MAX;

/// How long the end of a session is waited for once the user has left.
const END_TIME_MAX: Duration = Duration::from_secs(2);

/// Types on the console until the user leaves it or the guest is off.
pub(super) async fn run(session: &Session, args: &Console) -> anyhow::Result<()> {
    if session.for_programs() {
        let message = "--interactive is for people and prints no JSON or YAML";
        let refusal = Refusal::new(Code::InvalidArgument, "OPTIONS_CONTRADICT", message);
        let hint = "leave -o out, or print the console with --follow";
        return Err(refusal.with_hint(hint).into());
    }
    terminal::check()?;
    let mut attached = Attached {
        session,
        vm: &args.vm,
        position: None,
        host: None,
        unconfirmed: Unconfirmed::default(),
    };
    let link = attached.connect(args.take_over).await?;
    note(&format!(
        "{} and then q leaves the console of {}; {0} and then ? shows what else there is",
        args.escape, args.vm
    ));
    let mut terminal = Terminal::open()?;
    let done = attached.follow(link, &mut terminal, args).await;
    // The terminal is restored before anything else is printed.
    drop(terminal);
    let left = done?;
    output::message(left);
    Ok(())
}

/// A session at one conductor.
struct Link {
    input: mpsc::Sender<AttachConsoleRequest>,
    output: Streaming<AttachConsoleResponse>,
}

struct Attached<'a> {
    session: &'a Session,
    vm: &'a str,
    /// Where to go on.
    position: Option<ConsolePosition>,
    /// The host that the guest was on last.
    host: Option<String>,
    /// What the host of the guest may not have.
    unconfirmed: Unconfirmed,
}

impl Attached<'_> {
    async fn connect(&self, take_over: bool) -> Result<Link, Refusal> {
        let from = match &self.position {
            Some(position) => Begin::Position(position.clone()),
            None => Begin::LastBytes(LAST_BYTES),
        };
        let open = Open {
            vm: resource("vms", self.vm),
            take_over,
            from: Some(from),
        };
        let (input, requests) = mpsc::channel(AHEAD_MAX);
        send(&input, Wire::Open(open)).await;
        let mut conductor = (self.session)
            .conductor_for(Some(Feature::ConsoleInput))
            .await?;
        let called = conductor
            .attach_console(ReceiverStream::new(requests))
            .await;
        let output = called.map_err(|status| ended(&status))?.into_inner();
        Ok(Link { input, output })
    }

    /// Passes on what is typed and what the guest writes. Returns how it ended, for people.
    async fn follow(
        &mut self,
        mut link: Link,
        terminal: &mut Terminal,
        args: &Console,
    ) -> anyhow::Result<String> {
        let mut escape = Escape::new(args.escape);
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        loop {
            let takes_keys = !self.unconfirmed.is_full();
            tokio::select! {
                keys = terminal.keys.recv(), if takes_keys => {
                    let Some(keys) = keys else {
                        return Ok(self.left(link).await);
                    };
                    for typed in escape.take(&keys) {
                        match typed {
                            Typed::Leave => return Ok(self.left(link).await),
                            Typed::Escape => note(
                                "q leaves, s types the size of this terminal, the key again types it",
                            ),
                            Typed::Unknown => note("that is none of them, and was not typed"),
                            Typed::Size => match terminal.size() {
                                Some((rows, columns)) => {
                                    let line = format!("stty rows {rows} cols {columns}\r");
                                    self.type_on(&link, line.as_bytes()).await;
                                }
                                None => note("this terminal does not say how large it is"),
                            },
                            Typed::Bytes(bytes) => self.type_on(&link, &bytes).await,
                        }
                    }
                }
                message = link.output.message() => match message {
                    Ok(Some(message)) => self.show(message)?,
                    Ok(None) => return Ok(format!("the console of {} has ended", self.vm)),
                    Err(status) if is_lost(&status) => link = self.reconnect(&status).await?,
                    Err(status) => return self.end(&status),
                },
                _ = terminate.recv() => return Ok(self.left(link).await),
                _ = hangup.recv() => return Ok(self.left(link).await),
            }
        }
    }

    async fn type_on(&mut self, link: &Link, bytes: &[u8]) {
        for piece in bytes.chunks(INPUT_MAX) {
            let piece = Bytes::copy_from_slice(piece);
            self.unconfirmed.push(piece.clone());
            send(&link.input, Wire::Input(piece)).await;
        }
    }

    /// Closes the session, so that the guest takes what was typed last, and shows what it still writes.
    async fn left(&mut self, mut link: Link) -> String {
        drop(link.input);
        let until = Instant::now() + END_TIME_MAX;
        while let Ok(Ok(Some(message))) =
            tokio::time::timeout_at(until, link.output.message()).await
        {
            if self.show(message).is_err() {
                break;
            }
        }
        format!("left the console of {}", self.vm)
    }

    fn show(&mut self, message: AttachConsoleResponse) -> anyhow::Result<()> {
        match message.response {
            Some(Answer::Output(part)) => {
                self.position = part.next;
                output::raw(&part.data)?;
            }
            Some(Answer::Attached(attached)) => {
                let host = short(&attached.host).to_owned();
                let is_elsewhere = self.host.as_ref().is_some_and(|before| *before != host);
                if is_elsewhere {
                    note(&format!("the guest is on {host} now"));
                }
                self.host = Some(host);
            }
            Some(Answer::Typed(typed)) => {
                self.unconfirmed.confirm(typed.typed_bytes);
            }
            Some(Answer::Away(away)) => note(&format!("waiting for the guest: {}", away.reason)),
            None => {}
        }
        Ok(())
    }

    /// Returns how it ended where that is the guest's doing.
    fn end(&self, status: &Status) -> anyhow::Result<String> {
        let refusal = ended(status);
        match refusal.reason.as_str() {
            "NO_CONSOLE" if self.host.is_some() => Ok(format!("the guest of {} is off", self.vm)),
            _ => Err(refusal.into()),
        }
    }

    /// Opens the session at another conductor.
    async fn reconnect(&mut self, status: &Status) -> Result<Link, Refusal> {
        let why = ended(status);
        note(&format!(
            "the connection was lost ({}); connecting again",
            why.message
        ));
        let until = Instant::now() + RECONNECT_TIME_MAX;
        loop {
            sleep(RECONNECT_PERIOD).await;
            match self.connect(false).await {
                Ok(link) => {
                    for piece in self.unconfirmed.restart() {
                        send(&link.input, Wire::Input(piece)).await;
                    }
                    return Ok(link);
                }
                // The agent may not have noticed yet that the session before is gone.
                Err(refusal)
                    if Instant::now() > until
                        || !(refusal.code == Code::Unavailable
                            || refusal.reason == "CONSOLE_IN_USE") =>
                {
                    return Err(refusal);
                }
                Err(_) => {}
            }
        }
    }
}

/// Returns whether a session may go on over another conductor.
fn is_lost(status: &Status) -> bool {
    client::is_unanswered(status)
}

/// Sends to the conductor. One that is gone is noticed where its messages are read.
async fn send(input: &mpsc::Sender<AttachConsoleRequest>, request: Wire) {
    let request = Some(request);
    let _ = input.send(AttachConsoleRequest { request }).await;
}

/// Shows a line that is not the guest's. It ends with a carriage return, which the terminal does not add
/// while each key is for the guest.
fn note(text: &str) {
    let mut lines = Lines::new();
    lines.push(text);
    for line in lines.iter() {
        // Where the terminal is gone, the loop ends by that.
        let _ = output::raw(format!("\r\n[berth: {line}]\r\n").as_bytes());
    }
}
