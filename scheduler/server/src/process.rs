//! A member as a process: reads its flags and configuration, runs until a signal stops it.
//!
//! Exit status: 0 after a requested stop, 1 when the member cannot start or continue, 2
//! when flags or configuration are wrong. The last lines say why, and what to do ([`stop`]).

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;

use crate::config::Config;
use crate::flags::Flags;
use crate::{new_group, server, stop};

/// Runs a member from its command line; the first argument is the program's name.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    berth_process::secrecy::hide_files();
    // A command line that cannot be parsed is reported below.
    if let Ok(flags) = Flags::try_parse_from(&arguments)
        && let Some(command) = &flags.command
    {
        return new_group::run(&flags, command);
    }
    berth_process::main(
        arguments,
        Flags::config,
        |config: &Config| &config.log,
        server::run,
        stop::explain,
    )
}
