//! A server as a process: from the command line to the exit status.
//!
//! Exit status: 0 after a requested stop, 1 when it cannot start or go on, 2 when flags or
//! configuration are wrong.
//!
//! Invariant: a process that ends by itself says why in its last lines: `error:` with all causes,
//! and `hint:` with what to do, where the program has a [`Remedy`].

use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write as _};
use std::pin::Pin;
use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::bounds::open_files;
use crate::configuration::Faults;
use crate::log::Log;
use crate::{secrecy, terminal};

const WRONG_USE: u8 = 2;
const CANNOT_RUN: u8 = 1;

/// Why a process ends by itself, as far as all programs have it in common.
#[derive(Debug)]
pub enum Cause<'a, E> {
    /// The configuration is wrong.
    Configuration,
    /// The operating system gave no threads or no signals.
    System(&'a io::Error),
    /// A part of it panicked, in a build in which a panic ends the process.
    Panic,
    /// The program's own error.
    Program(&'a E),
}

/// What to do about a process that ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// The stable name of the reason, for scripts and alerts.
    pub code: &'static str,
    /// What to do, in the imperative.
    pub text: &'static str,
    /// The document with the table of all reasons.
    pub document: &'static str,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (code {}, see {})",
            self.text, self.code, self.document
        )
    }
}

/// Finds the remedy for what ended a process.
pub type Explain<E> = fn(&Cause<'_, E>) -> Option<Remedy>;

/// A program without a table of reasons: its errors speak for themselves.
pub fn unexplained<E>(_: &Cause<'_, E>) -> Option<Remedy> {
    None
}

/// A future behind a pointer.
///
/// What an `async fn` does is compiled by the crate that polls it, together with everything that
/// only it reaches: for a server this is nearly all of gRPC. Entry points therefore return this,
/// so that the crate that defines a server compiles it, once.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Completes when the process receives SIGTERM, SIGINT or, unless it was started with that ignored, SIGHUP.
pub type Shutdown = BoxFuture<'static, ()>;

/// Runs a server from its command line; the first argument is the program's name.
///
/// `configure` derives the configuration from the flags, `only_checks` returns whether that is all that
/// is requested, `log` returns the logging section, `serve` does the work until the shutdown completes,
/// and `explain` knows what to do about the error that ends it.
pub fn main<F: Parser, C, E: Error + 'static>(
    arguments: Vec<OsString>,
    configure: fn(&F) -> Result<C, Faults>,
    only_checks: fn(&F) -> bool,
    log: fn(&C) -> &Log,
    serve: fn(C, Shutdown) -> BoxFuture<'static, Result<(), E>>,
    explain: Explain<E>,
) -> ExitCode {
    let flags = match F::try_parse_from(arguments) {
        Ok(flags) => flags,
        Err(message) => {
            // Help and version are printed this way too. A failure means that the output is
            // closed, so it cannot be reported either.
            let _ = message.print();
            if !message.use_stderr() {
                return ExitCode::SUCCESS;
            }
            hint(explain(&Cause::Configuration));
            return ExitCode::from(WRONG_USE);
        }
    };
    let wrong = |message: &str| {
        report(message, explain(&Cause::Configuration));
        ExitCode::from(WRONG_USE)
    };
    let config = match configure(&flags) {
        Ok(config) => config,
        Err(faults) => return wrong(&error_chain(&faults)),
    };
    if let Err(message) = log(&config).start() {
        return wrong(&message);
    }
    // After the log, whose filter is part of the configuration.
    if only_checks(&flags) {
        return print(Ok("the configuration is valid\n".to_owned()));
    }
    report_aborting_panics(explain(&Cause::Panic));
    let open_files = open_files::raise();
    tracing::debug!(open_files, "limit of open files");
    if let Err(error) = secrecy::hide_memory() {
        tracing::warn!(%error, "core dumps of this process are possible and would hold its keys");
    }
    let ended = match run(|shutdown| serve(config, shutdown)) {
        Ok(ended) => ended,
        Err(error) => {
            let message = format!("the operating system refuses what a start needs: {error}");
            report(&message, explain(&Cause::System(&error)));
            return ExitCode::from(CANNOT_RUN);
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error_chain(&error), explain(&Cause::Program(&error)));
            ExitCode::from(CANNOT_RUN)
        }
    }
}

/// Why a command of a server's program fails.
#[derive(Debug)]
pub struct Failed {
    status: u8,
    why: String,
    remedy: Option<Remedy>,
}

impl Failed {
    /// A failure without a remedy, or whose sentence has it.
    #[must_use]
    pub fn new(status: u8, why: String) -> Self {
        Self {
            status,
            why,
            remedy: None,
        }
    }

    /// Returns whether the command was typed or configured wrongly.
    #[must_use]
    pub fn is_wrong_use(&self) -> bool {
        self.status == WRONG_USE
    }

    /// Returns why it failed, with all causes.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Returns what helps.
    #[must_use]
    pub fn remedy(&self) -> Option<Remedy> {
        self.remedy
    }

    /// Adds what helps.
    #[must_use]
    pub fn with(self, remedy: Remedy) -> Self {
        Self {
            remedy: Some(remedy),
            ..self
        }
    }
}

/// Ends a command of a server's program that prints data instead of serving: the data goes to standard
/// output as it is, and why there is none, and what helps, to standard error, with the exit status that
/// it has.
#[must_use]
pub fn print(data: Result<String, Failed>) -> ExitCode {
    end(data, |failed| report(&failed.why, failed.remedy))
}

/// As [`print()`], for programs: a failure is the line that `render` makes of it.
#[must_use]
pub fn print_rendered(data: Result<String, Failed>, render: fn(&Failed) -> String) -> ExitCode {
    end(data, |failed| eprintln!("{}", render(failed)))
}

fn end(data: Result<String, Failed>, report: impl FnOnce(&Failed)) -> ExitCode {
    match data {
        Ok(text) => {
            // A failure means that the output is closed, so it cannot be reported either.
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(failed) => {
            report(&failed);
            ExitCode::from(failed.status)
        }
    }
}

fn run<E>(
    serve: impl FnOnce(Shutdown) -> BoxFuture<'static, Result<(), E>>,
) -> io::Result<Result<(), E>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        // Its terminal was closed. By default that ends a process without a word.
        let mut hangup = match ignores_hangup() {
            true => None,
            false => Some(signal(SignalKind::hangup())?),
        };
        let shutdown = async move {
            let signal = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
                () = received(&mut hangup) => "SIGHUP",
            };
            tracing::info!(signal, "stop signal received");
        };
        Ok(serve(Box::pin(shutdown)).await)
    })
}

/// Completes with the signal; never without one.
async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Returns whether the process was started with SIGHUP ignored, as by `nohup`: then it is to outlive its
/// terminal, and a handler would end that.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The first bit is of signal 1.
    mask.is_some_and(|mask| mask & 1 == 1)
}

/// Prints why the process ends, and what to do about it.
fn report(message: &str, remedy: Option<Remedy>) {
    // Of several faults of a configuration each has its line.
    eprintln!("error: {}", terminal::escape_lines(message));
    hint(remedy);
}

fn hint(remedy: Option<Remedy>) {
    if let Some(remedy) = remedy {
        eprintln!("hint: {remedy}");
    }
}

/// Where a panic ends the process at once, its message is the last that can be said. Elsewhere the
/// task that panicked is joined and its owner reports it.
fn report_aborting_panics(remedy: Option<Remedy>) {
    if cfg!(panic = "abort")
        && let Some(remedy) = remedy
    {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            before(panic);
            eprintln!("hint: {remedy}");
        }));
    }
}

/// Returns the message of a panic.
#[must_use]
pub fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}

/// Returns the message of an error with those of all its causes. Some libraries repeat the message of
/// a cause in the error that wraps it, as the whole or at its end; it is shown once.
#[must_use]
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&e| e.source());
    let mut texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.dedup_by(|cause, wrapper| wrapper.ends_with(&**cause));
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Failed {
        #[error("the file cannot be read")]
        Plain(#[source] io::Error),
        #[error(transparent)]
        Same(io::Error),
        #[error("the file cannot be read: {0}")]
        Repeated(#[source] io::Error),
    }

    #[test]
    fn no_cause_is_shown_twice() {
        let full = || io::Error::other("the disk is full");
        let expected = "the file cannot be read: the disk is full";
        assert_eq!(error_chain(&Failed::Plain(full())), expected);
        assert_eq!(error_chain(&Failed::Repeated(full())), expected);
        assert_eq!(error_chain(&Failed::Same(full())), "the disk is full");
    }
}
