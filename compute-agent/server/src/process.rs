//! An agent as a process.
//!
//! Exit status: 0 after a stop that was asked for, 1 when it cannot start or go on, 2 when flags
//! or configuration are wrong.

use std::error::Error;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::Config;
use crate::flags::Flags;
use crate::telemetry;

const WRONG_USE: u8 = 2;
const CANNOT_RUN: u8 = 1;

/// Runs an agent as the command line says; the first argument is the program's name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let flags = match Flags::try_parse_from(arguments) {
        Ok(flags) => flags,
        Err(error) => {
            // Nobody is left to be told that the output is closed.
            let _ = error.print();
            return if error.use_stderr() {
                ExitCode::from(WRONG_USE)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let config = match flags.config() {
        Ok(config) => config,
        Err(faults) => return fail(WRONG_USE, &faults),
    };
    if let Err(message) = telemetry::start(config.log_format, &config.log_filter) {
        eprintln!("error: {message}");
        return ExitCode::from(WRONG_USE);
    }
    match serve(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(CANNOT_RUN, error.as_ref()),
    }
}

fn serve(config: Config) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let told = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("told to stop");
        };
        Ok(crate::server::run(config, told).await?)
    })
}

/// Tells an error with all its causes.
fn fail(status: u8, error: &(dyn Error + 'static)) -> ExitCode {
    let causes = std::iter::successors(Some(error), |&e| e.source());
    let text: Vec<String> = causes.map(ToString::to_string).collect();
    eprintln!("error: {}", text.join(": "));
    ExitCode::from(status)
}
