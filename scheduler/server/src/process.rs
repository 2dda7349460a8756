//! A member as a process: reads its flags and configuration, runs until a signal stops it.
//!
//! Exit status: 0 after a requested stop, 1 when the member cannot start or continue, 2
//! when flags or configuration are wrong. The last lines say why, and what to do ([`stop`]).

use std::ffi::OsString;
use std::process::ExitCode;

use berth_process::usage;
use clap::Parser as _;

use crate::config::Config;
use crate::flags::Flags;
use crate::{new_group, server, stop};

/// Runs a member from its command line; the first argument is the program's name.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    berth_process::secrecy::hide_files();
    match Flags::try_parse_from(&arguments) {
        Ok(flags) => {
            if let Some(command) = &flags.command {
                return new_group::run(&flags, command);
            }
        }
        // Only the commands print for programs.
        Err(error) if error.use_stderr() && usage::wants_json(&arguments) => {
            return new_group::misused(usage::message(&error));
        }
        // It is reported below.
        Err(_) => {}
    }
    berth_process::main(
        arguments,
        Flags::config,
        |flags| flags.common.check_config,
        |config: &Config| &config.log,
        server::run,
        stop::explain,
    )
}
