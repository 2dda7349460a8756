//! The thread that reads keys, until the program or the terminal ends.
//!
//! Not here: which keys mean something ([`key`](super::key)).
//!
//! Invariant: the program does not depend on the end of the thread. The library that parses keys reads the end
//! of a terminal that is gone again and again, and does not return.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ratatui::crossterm::event;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::mpsc;

use super::key::{self, Input};

/// How many keys wait to be taken.
const KEYS_MAX: usize = 64;
/// How long a key is waited for until it is looked whether the program ends.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long the end of the thread is waited for.
const END_PATIENCE: Duration = Duration::from_millis(500);

/// The keys of the terminal.
pub(super) struct Keyboard {
    /// What was pressed; closed when the terminal is gone.
    pub(super) received: mpsc::Receiver<Input>,
    is_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keyboard {
    /// Starts to read.
    pub(super) fn start() -> Self {
        let (sender, received) = mpsc::channel(KEYS_MAX);
        let is_ended = Arc::new(AtomicBool::new(false));
        let ended = is_ended.clone();
        let thread = thread::spawn(move || read(&sender, &ended));
        Self {
            received,
            is_ended,
            thread: Some(thread),
        }
    }
}

impl Drop for Keyboard {
    /// Waits for the thread, which must not take what is typed for the next program. Where the terminal is
    /// gone, the end of the process ends it.
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
        self.received.close();
        let Some(thread) = self.thread.take() else {
            return;
        };
        let until = Instant::now() + END_PATIENCE;
        while !thread.is_finished() && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        if thread.is_finished() {
            // A thread that panicked has nothing left to say.
            let _ = thread.join();
        }
    }
}

/// Returns whether the terminal is gone.
pub(super) fn is_gone() -> bool {
    let stdin = io::stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    let at_once = Timespec::default();
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().intersects(gone)
}

fn read(keys: &mpsc::Sender<Input>, is_ended: &AtomicBool) {
    while !is_ended.load(Ordering::Relaxed) {
        let event = match event::poll(PATIENCE) {
            Ok(false) => continue,
            Ok(true) => event::read(),
            Err(error) => Err(error),
        };
        let Ok(event) = event else { return };
        if let Some(input) = key::input(&event)
            && keys.blocking_send(input).is_err()
        {
            return;
        }
    }
}
