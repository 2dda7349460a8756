//! A controller as a process.
//!
//! Exit status: 0 after a stop that was asked for, 1 when it cannot start or go on, 2 when flags
//! or configuration are wrong.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::config::Config;
use crate::flags::Flags;
use crate::server;

/// Runs a controller as the command line says; the first argument is the program's name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    berth_process::main(
        arguments,
        Flags::config,
        |config: &Config| &config.log,
        server::run,
    )
}
