//! A session that types on a console, from the first key to the one that leaves it.
//!
//! A session that loses its conductor goes on over another one, from the place that was read last, and on
//! the same VM only. Keys are read all the while: the one that leaves works whatever is lost.

use std::collections::VecDeque;
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
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::escape::{Escape, Typed};
use super::terminal::{self, Terminal};
use crate::arguments::Console;
use crate::output::{self, Lines};
use crate::session::{Session, ended, resource, short};

/// How much of what the guest wrote before is shown at the beginning.
const LAST_BYTES: u32 = 2048;

/// How long another conductor is looked for.
const RECONNECT_TIME_MAX: Duration = Duration::from_secs(30);

/// How often.
const RECONNECT_PERIOD: Duration = Duration::from_secs(1);

/// How many messages may wait for the conductor: all that are not confirmed, and the first. So none waits
/// for room while what the guest writes is not read.
const AHEAD_MAX: usize = UNCONFIRMED_MAX + 1;

/// How much may be typed ahead of a guest that takes nothing. Beyond it the terminal waits.
const QUEUE_MAX: usize = 64 << 10;

/// How long the end of a session is waited for once the user has left.
const END_TIME_MAX: Duration = Duration::from_secs(2);

/// What may follow the escape key.
const COMMANDS: &str = "q leaves, s types the size of this terminal, the key again types it";

/// Types on the console until the user leaves it or the guest is off.
pub(super) async fn run(session: &Session, args: &Console) -> anyhow::Result<()> {
    if session.for_programs() {
        let message = "--interactive is for people and prints no JSON or YAML";
        let refusal = Refusal::new(Code::InvalidArgument, "OPTIONS_CONTRADICT", message);
        let hint = "leave -o out, or print the console with --follow";
        return Err(refusal.with_hint(hint).into());
    }
    terminal::check()?;
    let place = Place::default();
    let link = connect(session, &args.vm, place.clone(), args.take_over).await?;
    note(&format!(
        "{} and then q leaves the console of {}",
        args.escape, args.vm
    ));
    let mut terminal = Terminal::open()?;
    let mut attached = Attached {
        session,
        vm: &args.vm,
        place,
        host: None,
        is_away: false,
        keys: Keys {
            escape: Escape::new(args.escape),
            queue: VecDeque::new(),
            unconfirmed: Unconfirmed::default(),
        },
    };
    let done = attached.follow(link, &mut terminal).await;
    if !matches!(done, Ok(Ended::Left)) {
        // The rest of what is being typed or pasted was for the guest, and not for the shell.
        terminal.wait_for_quiet().await;
    }
    // The terminal is restored before anything else is printed.
    drop(terminal);
    output::message(attached.last_words(&done?));
    Ok(())
}

/// How a session ended without a fault.
enum Ended {
    /// The user has left it.
    Left,
    /// The guest is off.
    Off,
    /// The conductor has ended it.
    Over,
}

/// A session at one conductor.
struct Link {
    input: mpsc::Sender<AttachConsoleRequest>,
    output: Streaming<AttachConsoleResponse>,
}

/// Where a session goes on.
#[derive(Clone, Debug, Default)]
struct Place {
    /// The VM, a UUID. Empty before it is known.
    vm_uid: String,
    /// After what was shown last.
    position: Option<ConsolePosition>,
}

/// What was pressed.
struct Keys {
    escape: Escape,
    /// What was typed and not sent.
    queue: VecDeque<u8>,
    /// What was sent, and the host of the guest may not have.
    unconfirmed: Unconfirmed,
}

impl Keys {
    /// Takes what the terminal sent. Returns whether the user leaves.
    fn press(&mut self, keys: &[u8], terminal: &Terminal) -> bool {
        for typed in self.escape.take(keys) {
            match typed {
                Typed::Leave => return true,
                Typed::Escape => note(COMMANDS),
                Typed::Unknown => note(&format!("that was not typed: {COMMANDS}")),
                Typed::Size => match terminal.size() {
                    Some((rows, columns)) => {
                        let line = format!("stty rows {rows} cols {columns}\r");
                        self.queue.extend(line.bytes());
                    }
                    None => note("this terminal does not say how large it is"),
                },
                Typed::Bytes(bytes) => self.queue.extend(bytes),
            }
        }
        false
    }

    fn accept_more(&self) -> bool {
        self.queue.len() < QUEUE_MAX
    }

    /// Sends as much as may be unconfirmed.
    async fn send(&mut self, link: &Link) {
        while !self.queue.is_empty() && !self.unconfirmed.is_full() {
            let length = self.queue.len().min(INPUT_MAX);
            let piece: Bytes = self.queue.drain(..length).collect();
            self.unconfirmed.push(piece.clone());
            send(&link.input, Wire::Input(piece)).await;
        }
    }
}

struct Attached<'a> {
    session: &'a Session,
    vm: &'a str,
    place: Place,
    /// The host that the guest was on last.
    host: Option<String>,
    /// Whether the session waits for the guest.
    is_away: bool,
    keys: Keys,
}

impl Attached<'_> {
    /// Passes on what is typed and what the guest writes.
    async fn follow(&mut self, mut link: Link, terminal: &mut Terminal) -> anyhow::Result<Ended> {
        loop {
            self.keys.send(&link).await;
            tokio::select! {
                keys = terminal.next(self.keys.accept_more()) => match keys {
                    Some(keys) if !self.keys.press(&keys, terminal) => {}
                    Some(_) | None => return Ok(self.leave(link).await),
                },
                message = link.output.message() => match message {
                    Ok(Some(message)) => self.show(message)?,
                    Ok(None) => return Ok(Ended::Over),
                    Err(status) if client::is_unanswered(&status) => {
                        match self.reconnect(&status, terminal).await? {
                            Some(next) => link = next,
                            None => return Ok(Ended::Left),
                        }
                    }
                    Err(status) => return self.end(&status),
                },
            }
        }
    }

    /// Closes the session, so that the guest takes what was typed last, and shows what it still writes.
    async fn leave(&mut self, mut link: Link) -> Ended {
        self.keys.send(&link).await;
        drop(link.input);
        let until = Instant::now() + END_TIME_MAX;
        while let Ok(Ok(Some(message))) =
            tokio::time::timeout_at(until, link.output.message()).await
        {
            if self.show(message).is_err() {
                break;
            }
        }
        Ended::Left
    }

    fn show(&mut self, message: AttachConsoleResponse) -> anyhow::Result<()> {
        match message.response {
            Some(Answer::Output(part)) => {
                self.place.position = part.next;
                output::raw(&part.data)?;
            }
            Some(Answer::Attached(attached)) => {
                let host = short(&attached.host).to_owned();
                let is_elsewhere = self.host.as_ref().is_some_and(|before| *before != host);
                if is_elsewhere || self.is_away {
                    note(&format!("the guest is on {host} now"));
                }
                self.place.vm_uid = attached.vm_uid;
                self.host = Some(host);
                self.is_away = false;
            }
            Some(Answer::Typed(typed)) => {
                self.keys.unconfirmed.confirm(typed.typed_bytes);
            }
            Some(Answer::Away(away)) => {
                self.is_away = true;
                note(&format!("waiting for the guest: {}", away.reason));
            }
            None => {}
        }
        Ok(())
    }

    /// Returns how it ended where that is the guest's doing.
    fn end(&self, status: &Status) -> anyhow::Result<Ended> {
        let refusal = ended(status);
        match refusal.reason.as_str() {
            "NO_CONSOLE" if self.host.is_some() => Ok(Ended::Off),
            _ => Err(refusal.into()),
        }
    }

    /// Opens the session at another conductor; nothing where the user leaves meanwhile.
    async fn reconnect(
        &mut self,
        status: &Status,
        terminal: &mut Terminal,
    ) -> Result<Option<Link>, Refusal> {
        let why = ended(status);
        note(&format!(
            "the connection was lost ({}); connecting again",
            why.message
        ));
        self.is_away = true;
        let until = Instant::now() + RECONNECT_TIME_MAX;
        loop {
            let (session, vm, place) = (self.session, self.vm, self.place.clone());
            let attempt = async {
                sleep(RECONNECT_PERIOD).await;
                connect(session, vm, place, false).await
            };
            tokio::pin!(attempt);
            let connected = loop {
                tokio::select! {
                    connected = &mut attempt => break connected,
                    keys = terminal.next(self.keys.accept_more()) => match keys {
                        Some(keys) if !self.keys.press(&keys, terminal) => {}
                        Some(_) | None => return Ok(None),
                    },
                }
            };
            match connected {
                Ok(link) => {
                    for piece in self.keys.unconfirmed.restart() {
                        send(&link.input, Wire::Input(piece)).await;
                    }
                    return Ok(Some(link));
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

    fn last_words(&self, ended: &Ended) -> String {
        let vm = self.vm;
        let mut words = match ended {
            Ended::Left => format!("left the console of {vm}"),
            Ended::Off => format!("the guest of {vm} is off"),
            Ended::Over => format!("the console of {vm} has ended"),
        };
        if !(self.keys.queue.is_empty() && self.keys.unconfirmed.is_empty()) {
            words.push_str("; what was typed last may not have arrived");
        }
        words
    }
}

async fn connect(
    session: &Session,
    vm: &str,
    place: Place,
    take_over: bool,
) -> Result<Link, Refusal> {
    let from = match place.position {
        Some(position) => Begin::Position(position),
        None => Begin::LastBytes(LAST_BYTES),
    };
    let open = Open {
        vm: resource("vms", vm),
        take_over,
        vm_uid: place.vm_uid,
        from: Some(from),
    };
    let (input, requests) = mpsc::channel(AHEAD_MAX);
    send(&input, Wire::Open(open)).await;
    let mut conductor = session.conductor_for(Some(Feature::ConsoleInput)).await?;
    let called = conductor
        .attach_console(ReceiverStream::new(requests))
        .await;
    let output = called.map_err(|status| ended(&status))?.into_inner();
    Ok(Link { input, output })
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
