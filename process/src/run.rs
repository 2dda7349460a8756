//! A server as a process: from the command line to the exit status.
//!
//! Exit status: 0 after a requested stop, 1 when it cannot start or go on, 2 when flags or
//! configuration are wrong.

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

/// A future behind a pointer.
///
/// What an `async fn` does is compiled by the crate that polls it, together with everything that
/// only it reaches: for a server this is nearly all of gRPC. Entry points therefore return this,
/// so that the crate that defines a server compiles it, once.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Completes when the process receives SIGTERM or SIGINT.
pub type Shutdown = BoxFuture<'static, ()>;

/// Runs a server from its command line; the first argument is the program's name.
///
/// `configure` derives the configuration from the flags, `log` returns its logging section, and
/// `serve` does the work until the shutdown completes.
pub fn main<F: Parser, C, E: Error + 'static>(
    arguments: Vec<OsString>,
    configure: fn(&F) -> Result<C, Faults>,
    log: fn(&C) -> &Log,
    serve: fn(C, Shutdown) -> BoxFuture<'static, Result<(), E>>,
) -> ExitCode {
    let flags = match F::try_parse_from(arguments) {
        Ok(flags) => flags,
        Err(message) => {
            // Help and version are printed this way too. A failure means that the output is
            // closed, so it cannot be reported either.
            let _ = message.print();
            return if message.use_stderr() {
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

fn run<E: Error + 'static>(
    serve: impl FnOnce(Shutdown) -> BoxFuture<'static, Result<(), E>>,
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
            tracing::info!("stop signal received");
        };
        Ok(serve(Box::pin(shutdown)).await?)
    })
}

/// Prints an error with all its causes.
fn fail(status: u8, error: &(dyn Error + 'static)) -> ExitCode {
    eprintln!("error: {}", error_chain(error));
    ExitCode::from(status)
}

/// Returns the message of an error with those of all its causes. Some libraries repeat the message of
/// a cause in the error that wraps it; it is shown once.
#[must_use]
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&e| e.source());
    let mut texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.dedup();
    texts.join(": ")
}
