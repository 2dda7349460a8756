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

mod member;
mod restore;
mod survivor;

use berth_domain::version::ServiceVersion;

use crate::config::{Addresses, Config};
use crate::flags::{Command, Flags};

/// Why a command fails: the exit status, and a sentence.
type Failure = (u8, String);

/// What to do with the new directory.
const NEXT: &str = concat!(
    "next     start berth-scheduler on it, without --bootstrap and --join, and follow\n",
    "         `berth cluster recovery status`\n",
);

/// The flags or the configuration are wrong.
const WRONG_USE: u8 = 2;
/// The command cannot be carried out.
const CANNOT_RUN: u8 = 1;

/// Carries a command out, and returns what it prints.
pub(crate) fn execute(flags: &Flags, command: &Command) -> Result<String, Failure> {
    let config = flags.config();
    let config = config.map_err(|faults| (WRONG_USE, berth_process::error_chain(&faults)))?;
    let addresses = config.validate();
    let addresses = addresses.map_err(|faults| (WRONG_USE, berth_process::error_chain(&faults)))?;
    match command {
        Command::Restore { files, at } => {
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
fn address(config: &Config, addresses: &Addresses) -> Result<String, Failure> {
    let grpc = addresses.grpc;
    let advertised = config.listening.advertised(grpc);
    if advertised.ends_with(":0") {
        let why = "the address of the new member needs a port: set --listen or --advertise";
        return Err((WRONG_USE, why.to_owned()));
    }
    Ok(advertised)
}

fn level(config: &Config) -> ServiceVersion {
    ServiceVersion(config.service_version)
}

/// Returns the failure with a cause.
fn failed(what: &str, error: &(dyn std::error::Error + 'static)) -> Failure {
    let why = format!("{what}: {}", berth_process::error_chain(error));
    (CANNOT_RUN, why)
}
