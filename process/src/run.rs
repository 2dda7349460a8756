//! A server as a process: from the command line to the exit status.
//!
//! Exit status: 0 after a stop that was asked for, 1 when it cannot start or go on, 2 when flags
//! or configuration are wrong.

use std::error::Error;
use std::ffi::OsString;
use std::pin::Pin;
use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::configuration::Faults;
use crate::log::Log;

const WRONG_USE: u8 = 2;
const CANNOT_RUN: u8 = 1;

/// Is ready as soon as the process is told to stop.
pub type Shutdown = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs a server as the command line says; the first argument is the program's name.
///
/// `configure` makes the configuration out of the flags, `log` says where it speaks of log
/// lines, and `serve` does the work until it is told to stop.
pub fn main<F: Parser, C, E: Error + 'static, S: Future<Output = Result<(), E>>>(
    arguments: impl IntoIterator<Item = OsString>,
    configure: impl FnOnce(&F) -> Result<C, Faults>,
    log: impl FnOnce(&C) -> &Log,
    serve: impl FnOnce(C, Shutdown) -> S,
) -> ExitCode {
    let flags = match F::try_parse_from(arguments) {
        Ok(flags) => flags,
        Err(told) => {
            // Help and version are told this way too. Nobody is left to be told that the output
            // is closed.
            let _ = told.print();
            return if told.use_stderr() {
                ExitCode::from(WRONG_USE)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let config = match configure(&flags) {
        Ok(config) => config,
        Err(faults) => return fail(WRONG_USE, &faults),
    };
    if let Err(message) = log(&config).start() {
        eprintln!("error: {message}");
        return ExitCode::from(WRONG_USE);
    }
    match run(|shutdown| serve(config, shutdown)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(CANNOT_RUN, error.as_ref()),
    }
}

fn run<E: Error + 'static, S: Future<Output = Result<(), E>>>(
    serve: impl FnOnce(Shutdown) -> S,
) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let shutdown = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("told to stop");
        };
        Ok(serve(Box::pin(shutdown)).await?)
    })
}

/// Tells an error with all its causes.
fn fail(status: u8, error: &(dyn Error + 'static)) -> ExitCode {
    eprintln!("error: {}", chain(error));
    ExitCode::from(status)
}

/// Returns the message of an error with those of all its causes.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&e| e.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}
