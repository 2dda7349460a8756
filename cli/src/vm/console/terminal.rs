//! The terminal while each key is for a guest, and as it was before.
//!
//! Invariant: whichever way the program ends - a key, a signal, an error, a panic - the mode of the input is
//! restored first.

use std::io::{self, IsTerminal as _, Read as _};
use std::panic;
use std::thread;
use std::time::Duration;

use berth_domain::refusal::{Code, Refusal};
use ratatui::crossterm::terminal::{disable_raw_mode, enable_raw_mode, size};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::output;
use crate::top::screen::TERMINAL_NEEDED;

/// How many reads wait to be taken.
const KEYS_MAX: usize = 64;

/// The longest read.
const READ_MAX: usize = 1024;

/// How long nothing has to arrive for the user to have ceased typing, and how long that is waited for.
const QUIET: Duration = Duration::from_millis(300);
const QUIET_TIME_MAX: Duration = Duration::from_secs(3);

/// A terminal that sends each key as it is; restored when it is dropped.
pub(super) struct Terminal {
    keys: mpsc::Receiver<Vec<u8>>,
    terminate: Signal,
    hangup: Signal,
}

impl Terminal {
    /// Takes the input over.
    pub(super) fn open() -> anyhow::Result<Self> {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            restore();
            before(info);
        }));
        let (sender, keys) = mpsc::channel(KEYS_MAX);
        // From here on every return restores it.
        let terminal = Self {
            keys,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        };
        enable_raw_mode()?;
        // It ends with the process: a read of a terminal cannot be interrupted.
        thread::spawn(move || read(&sender));
        Ok(terminal)
    }

    /// Returns what was pressed; nothing when the terminal is gone, or a signal ends the program. Without
    /// `takes_keys` only these are waited for.
    pub(super) async fn next(&mut self, takes_keys: bool) -> Option<Vec<u8>> {
        tokio::select! {
            keys = self.keys.recv(), if takes_keys => keys,
            _ = self.terminate.recv() => None,
            _ = self.hangup.recv() => None,
        }
    }

    /// Drops what is still typed, until nothing is.
    pub(super) async fn wait_for_quiet(&mut self) {
        let until = Instant::now() + QUIET_TIME_MAX;
        while let Ok(Some(_)) = timeout(QUIET, self.next(true)).await {
            if Instant::now() > until {
                return;
            }
        }
    }

    /// Returns how many rows and columns it has, as far as it says.
    pub(super) fn size(&self) -> Option<(u16, u16)> {
        let (columns, rows) = size().ok()?;
        (rows > 0 && columns > 0).then_some((rows, columns))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    // There is nothing to show an error on.
    let _ = disable_raw_mode();
}

fn read(keys: &mpsc::Sender<Vec<u8>>) {
    let mut stdin = io::stdin().lock();
    let mut read = [0; READ_MAX];
    loop {
        let bytes = match stdin.read(&mut read) {
            Ok(0) => return,
            Ok(length) => read[..length].to_vec(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        if keys.blocking_send(bytes).is_err() {
            return;
        }
    }
}

/// Checks that there is a terminal to type on.
pub(super) fn check() -> Result<(), Refusal> {
    let needed = |which: &str| {
        let message = format!("standard {which} is not a terminal, which --interactive needs");
        Refusal::new(Code::FailedPrecondition, TERMINAL_NEEDED, message)
            .with_hint("`berth vm console --follow` prints what the guest writes to anything")
    };
    match (io::stdin().is_terminal(), output::screen().is_some()) {
        (false, _) => Err(needed("input")),
        (true, false) => Err(needed("output")),
        (true, true) => Ok(()),
    }
}
