//! A new group of backups.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use berth_backup::{Reader, Remedy, Verified, VerifyError};
use berth_domain::recovery::Cause;
use berth_process::Failed;

use super::failure::{cannot_run, of_backup, of_backups, of_file};
use super::member::{NewGroup, create, prepare};
use super::report::{self, Report};
use super::{NEXT, level};
use crate::config::Config;
use crate::history::History;
use crate::machine::Machine;
use crate::moment::Moment;

/// Why the state of a support bundle is refused.
const REDACTED: &str =
    "it is of a support bundle, without secrets, and no cluster can go on with it";

/// Verifies backups, and returns the state at a moment, or at their end. Its invariants are checked in
/// the state that is written, which is made of it.
fn load(
    config: &Config,
    files: &[PathBuf],
    at: Option<&Moment>,
) -> Result<Verified<Machine>, Failed> {
    let mut history = History::new(level(config), at.cloned());
    for path in files {
        let what = format!("{} cannot be restored", path.display());
        let file = File::open(path).map_err(|error| of_file(&what, &error))?;
        let reader = Reader::new(BufReader::new(file));
        let reader = reader.map_err(|error| of_backups(&what, &VerifyError::from(error).into()))?;
        if reader.header().redacted {
            let failed = cannot_run(format!("{what}: {REDACTED}"));
            return Err(failed.with(of_backup(Remedy::REDACTED)));
        }
        let added = history.add(reader);
        added.map_err(|error| of_backups(&what, &error))?;
    }
    let verified = history.finish_unchecked();
    verified.map_err(|error| of_backups("the backups cannot be restored", &error))
}

/// Verifies backups and makes the first member of a new group of their state.
pub(super) fn run(
    config: &Config,
    address: &str,
    files: &[PathBuf],
    at: Option<&Moment>,
) -> Result<Report, Failed> {
    // Before a long verification.
    let directory = prepare(&config.data_dir)?;
    let verified = load(config, files, at)?;
    let state = verified.machine.state().clone();
    let (hosts, vms) = (state.hosts().len(), state.vms().len());
    let revision = state.revision();
    let group = NewGroup {
        directory: &config.data_dir,
        address,
        cause: Cause::Restored,
        level: level(config),
    };
    let created = create(&group, state, verified.position)?;
    directory.keep();
    let first = created.recovery.first_revision;
    let text = format!(
        "restored revision {revision} with {hosts} hosts and {vms} VMs to {}\n\
         cluster  {}\n\
         member   1 at {address}\n\
         begins   at revision {first}\n\
         {NEXT}",
        config.data_dir.display(),
        created.cluster
    );
    let mut value = report::created(&created, &config.data_dir, address);
    value["hosts"] = hosts.into();
    value["vms"] = vms.into();
    Ok(Report { text, value })
}
