//! An agent as a process.
//!
//! Exit status: 0 after a requested stop, 1 when it cannot start or continue, 2 when flags
//! or configuration are wrong.

use std::ffi::OsString;
use std::process::ExitCode;

use berth_process::{Cause, Remedy};

use crate::config::Config;
use crate::error::Error;
use crate::flags::Flags;
use crate::server;

/// Runs an agent as the command line states; the first argument is the program's name.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    berth_process::main(
        arguments,
        Flags::config,
        |flags| flags.common.check_config,
        |config: &Config| &config.log,
        server::run,
        explain,
    )
}

/// Returns what to do about an address that cannot be listened on. Other errors name it themselves.
fn explain(cause: &Cause<'_, Error>) -> Option<Remedy> {
    match cause {
        Cause::Program(Error::Listen(error)) => Some(error.remedy()),
        Cause::Program(_) | Cause::Configuration | Cause::System(_) | Cause::Panic => None,
    }
}
