//! `berth top`: the cluster on the whole screen, as it changes.
//!
//! ```text
//!   source (watch) ─┐                        ┌─▶ frame: draws App into a buffer
//!   status (calls) ─┼─▶ Update ─▶ App ◀─ Key │
//!   transfers ──────┘            └───────────┘
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`model`], [`usage`] | the cluster's records, and what claims take of hosts |
//! | [`feed`], [`update`] | what arrives, applied to the model |
//! | [`app`], [`key`], [`cursor`] | what is shown, and what keys change |
//! | [`overview`], [`hosts`], [`numa`], [`operations`], [`details`] | the views |
//! | [`frame`], [`table`], [`paint`], [`moment`] | how they are drawn |
//! | [`source`], [`status`], [`transfers`] | the calls |
//! | [`screen`], `keyboard` | the terminal |
//!
//! Invariant: all but the calls, the screen and the loop here are functions of their arguments. At most ten
//! pictures are drawn in a second, and none unless something has changed. The queues are bounded: who is
//! slower makes the other wait.

pub mod app;
pub mod cursor;
pub mod details;
pub mod feed;
pub mod frame;
pub mod hosts;
pub mod key;
mod keyboard;
pub mod model;
pub mod moment;
pub mod numa;
pub mod operations;
pub mod overview;
pub mod paint;
pub mod screen;
pub mod source;
pub mod status;
pub mod table;
pub mod transfers;
pub mod update;
pub mod usage;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use berth_domain::id::{MigrationId, TimeMs};
use berth_domain::refusal::{Code, Refusal};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use self::app::{App, Effect};
use self::key::Input;
use self::keyboard::Keyboard;
use self::moment::Now;
use self::paint::Terminal;
use self::screen::Screen;
use self::update::Update;
use crate::session::Session;

/// The least time between two pictures.
const FRAME: Duration = Duration::from_millis(100);
/// How often a picture is drawn that shows how time passes.
const TICK: Duration = Duration::from_secs(1);
/// How many updates wait at most.
const UPDATES_MAX: usize = 64;

/// Shows the cluster until a key or a signal ends it.
///
/// # Errors
///
/// There is no terminal to draw on; no scheduler could be reached at the beginning; or one refused for good.
pub async fn run(session: &Session, is_stale: bool) -> anyhow::Result<()> {
    if session.for_programs() {
        let message = "berth top draws on a terminal and prints no JSON";
        let hint = "`berth watch -o json` prints the changes";
        return Err(contradiction(message, hint).into());
    }
    if is_stale {
        let message = "--stale has no meaning for berth top: it follows the state of one scheduler, and \
                       says when that may be outdated";
        return Err(contradiction(message, "leave --stale out").into());
    }
    let terminal = screen::check()?;
    // As long as nothing was drawn, a cluster that cannot be reached is an error like any other.
    let stream = source::open(session, 0).await?;
    session.learn_schedulers().await;
    let (updates, received) = mpsc::channel(UPDATES_MAX);
    let (verify, requests) = mpsc::channel(1);
    let (running, ids) = watch::channel(Vec::new());
    let mut show = Show {
        app: App::default(),
        terminal,
        screen: Screen::open()?,
        began: Instant::now(),
        verify,
        running,
    };
    let shown = tokio::select! {
        biased;
        shown = show.run(received) => shown,
        ended = source::follow(session, stream, updates.clone()) => ended.map(|never| match never {}),
        ended = status::follow(session, updates.clone()) => ended.map(|never| match never {}),
        ended = status::verify(session, requests, updates.clone()) => ended.map(|never| match never {}),
        ended = transfers::follow(session, ids, updates) => ended.map(|never| match never {}),
    };
    // The screen is restored before an error is printed.
    drop(show);
    shown
}

fn contradiction(message: &str, hint: &str) -> Refusal {
    Refusal::new(Code::InvalidArgument, "OPTIONS_CONTRADICT", message).with_hint(hint)
}

/// The picture, and what it requests.
struct Show {
    app: App,
    terminal: Terminal,
    screen: Screen,
    began: Instant,
    verify: mpsc::Sender<()>,
    running: watch::Sender<Vec<MigrationId>>,
}

impl Show {
    fn now(&self) -> Now {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH);
        let clock = clock.unwrap_or_default().as_millis();
        Now {
            running: self.began.elapsed(),
            clock: TimeMs(u64::try_from(clock).unwrap_or(u64::MAX)),
        }
    }

    async fn run(&mut self, mut updates: mpsc::Receiver<Update>) -> anyhow::Result<()> {
        let mut keyboard = Keyboard::start();
        let mut signals = Signals::new()?;
        let mut looks = tokio::time::interval(TICK);
        let mut is_changed = true;
        let mut next_frame = Instant::now();
        loop {
            let frame = match (is_changed, self.app.shows_time()) {
                (true, _) => Some(next_frame),
                (false, true) => Some(next_frame + TICK - FRAME),
                (false, false) => None,
            };
            tokio::select! {
                biased;
                () = signals.any() => return Ok(()),
                // The signal of that does not reach a program outside of the terminal's session.
                _ = looks.tick() => match keyboard::is_gone() {
                    true => return Ok(()),
                    false => continue,
                },
                input = keyboard.received.recv() => match input {
                    Some(Input::Key(key)) => match self.app.key(key) {
                        Effect::Quit => return Ok(()),
                        Effect::Verify => self.verify(),
                        Effect::None => {}
                    },
                    Some(Input::Resized) => self.screen.clear()?,
                    // The terminal is gone.
                    None => return Ok(()),
                },
                () = until(frame) => {
                    self.draw()?;
                    is_changed = false;
                    next_frame = Instant::now() + FRAME;
                    continue;
                }
                Some(update) = updates.recv() => self.take(update)?,
            }
            is_changed = true;
        }
    }

    /// Takes what arrived, and requests what follows from it.
    fn take(&mut self, update: Update) -> anyhow::Result<()> {
        let now = self.began.elapsed();
        self.app.update(update, now)?;
        self.app.refresh();
        if self.app.is_verification_due(now) {
            self.verify();
        }
        let running = self.app.transferring(transfers::TRANSFERS_MAX);
        self.running.send_if_modified(|before| {
            let is_other = *before != running;
            *before = running;
            is_other
        });
        Ok(())
    }

    fn verify(&mut self) {
        // A request that waits already is as good as another one.
        self.app.overview.is_verifying = true;
        let _ = self.verify.try_send(());
    }

    fn draw(&mut self) -> anyhow::Result<()> {
        let (now, terminal) = (self.now(), self.terminal);
        let Self { app, screen, .. } = self;
        app.drawn = screen.draw(|buffer| frame::draw(app, now, terminal, buffer))?;
        Ok(())
    }
}

/// Waits until a moment; for ever without one.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// The signals that end the program.
struct Signals([Signal; 3]);

impl Signals {
    fn new() -> anyhow::Result<Self> {
        Ok(Self([
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ]))
    }

    async fn any(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
