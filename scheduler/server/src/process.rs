//! A member as a process: reads its flags and configuration, runs until it is told to stop.
//!
//! Exit status: 0 after a stop that was asked for, 1 when the member cannot start or go on, 2
//! when flags or configuration are wrong.

use std::error::Error;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::Config;
use crate::flags::Flags;
use crate::telemetry;

/// Runs a member as the command line says; the first argument is the program's name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let flags = match Flags::try_parse_from(arguments) {
        Ok(flags) => flags,
        Err(told) => {
            // Help and version are told this way too. A closed output is nobody's fault.
            let _ = told.print();
            return match told.use_stderr() {
                true => ExitCode::from(2),
                false => ExitCode::SUCCESS,
            };
        }
    };
    let config = match flags.config() {
        Ok(config) => config,
        Err(faults) => return fail(2, &faults),
    };
    if let Err(message) = telemetry::start(config.log_format, &config.log_filter) {
        eprintln!("error: {message}");
        return ExitCode::from(2);
    }
    match run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(1, error.as_ref()),
    }
}

fn run(config: Config) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let shutdown = async move {
            tokio::select! {
                _ = terminate.recv() => tracing::info!("told to terminate"),
                _ = interrupt.recv() => tracing::info!("interrupted"),
            }
        };
        Ok(crate::server::run(config, shutdown).await?)
    })
}

/// Tells the error with its whole chain of causes.
fn fail(status: u8, error: &dyn Error) -> ExitCode {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    eprintln!("error: {text}");
    ExitCode::from(status)
}
