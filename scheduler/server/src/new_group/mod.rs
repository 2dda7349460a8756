//! A new group made of what is left of an old one: of backups, or of a member that has lost its quorum.
//!
//! ```text
//!   backups ──verify, replay──┐
//!                             ├─▶ state ─▶ recovering state ─▶ directory of the only member
//!   directory of a survivor ──┘
//! ```
//!
//! The program ends afterwards. Started on the directory, the member leads at once, and recovers; other
//! members join it.
//!
//! Invariant: the source is only read, and a directory that is not empty is never written.

mod failure;
mod member;
mod report;
mod restore;
mod survivor;

use std::process::ExitCode;

use berth_domain::version::ServiceVersion;
use berth_process::{Failed, error_chain};

use crate::config::{Addresses, Config};
use crate::flags::{Command, Flags, Format};
use failure::wrong_use;
use report::Report;

/// What to do with the new directory.
const NEXT: &str = concat!(
    "next     start berth-scheduler on it, without --bootstrap and --join, and follow\n",
    "         `berth cluster recovery status`\n",
);

/// Carries a command out, prints what came of it, and returns the exit status.
pub(crate) fn run(flags: &Flags, command: &Command) -> ExitCode {
    report::show(execute(flags, command), command.output())
}

/// Prints for programs what is wrong with the arguments of a command, and returns the exit status.
pub(crate) fn misused(why: String) -> ExitCode {
    report::show(Err(failure::wrong_use(why)), Format::Json)
}

fn execute(flags: &Flags, command: &Command) -> Result<Report, Failed> {
    let config = flags.config();
    let config = config.map_err(|faults| wrong_use(error_chain(&faults)))?;
    let addresses = config.validate();
    let addresses = addresses.map_err(|faults| wrong_use(error_chain(&faults)))?;
    match command {
        Command::Restore { files, at, .. } => {
            restore::run(&config, &address(&config, &addresses)?, files, at.as_ref())
        }
        Command::Recover {
            into: Some(into),
            force_new_group: true,
            ..
        } => survivor::recover(&config, &address(&config, &addresses)?, into),
        Command::Recover { .. } => survivor::inspect(&config),
    }
}

/// Returns where the other members dial the new one.
fn address(config: &Config, addresses: &Addresses) -> Result<String, Failed> {
    let grpc = addresses.grpc;
    let advertised = config.listening.advertised(grpc);
    if advertised.ends_with(":0") {
        let why = "the address of the new member needs a port: set --listen or --advertise";
        return Err(wrong_use(why.to_owned()));
    }
    Ok(advertised)
}

fn level(config: &Config) -> ServiceVersion {
    ServiceVersion(config.service_version)
}
