//! An operator as a process.
//!
//! Exit status: 0 after a requested stop or with manifests printed, 1 when it cannot start or go on, 2
//! when flags or configuration are wrong.

use std::ffi::OsString;
use std::process::ExitCode;

use berth_process::Failed;
use berth_process::configuration::Faults;
use clap::Parser as _;

use crate::config::Config;
use crate::flags::{Command, Flags};
use crate::{manifests, server};

/// Runs an operator from its command line; the first argument is the program's name.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    // A command line that cannot be parsed is reported below.
    let flags = Flags::try_parse_from(&arguments);
    if let Ok(flags) = flags
        && let Some(command) = &flags.command
    {
        return berth_process::print(execute(&flags, command));
    }
    berth_process::main(
        arguments,
        Flags::config,
        |flags| flags.check_config,
        |config: &Config| &config.log,
        server::run,
        berth_process::unexplained,
    )
}

/// Returns what a command prints.
fn execute(flags: &Flags, command: &Command) -> Result<String, Failed> {
    let wrong_use = |faults: Faults| Failed::new(2, faults.to_string());
    let config = flags.config().map_err(wrong_use)?;
    match command {
        Command::Manifests {
            directory: Some(directory),
            resource,
        } => {
            let written = manifests::write(&config, resource.as_deref(), directory);
            written.map(|()| String::new())
        }
        Command::Manifests {
            directory: None,
            resource,
        } => manifests::print(&config, resource.as_deref()),
    }
    .map_err(|why| Failed::new(1, why))
}
