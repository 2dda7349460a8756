//! Reads from files of backups instead of schedulers: `berth --backup FILE… vm list`.
//!
//! ```text
//!   files ─▶ verified state at a moment ─▶ services that read, in this process ─▶ the same commands
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`commands`] | which commands are answered so, and why others are not |
//!
//! Invariant: no scheduler is called, whatever the addresses say; and standard error states which state is
//! shown before anything of it is printed.

pub(crate) mod commands;

use std::path::{Path, PathBuf};
use std::sync::Once;

use anyhow::Context as _;
use berth_domain::id::TimeMs;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::ServiceVersion;
use berth_proto::client::Dialer;
use berth_proto::consistency::{Consistency, ReadChannel};
use berth_proto::status::from_status;
use berth_scheduler::history::{self, History};
use berth_scheduler::moment::Moment;
use berth_scheduler::reader::{Origin, Reader};
use berth_tls::Expected;
use serde_json::json;
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::arguments::Global;
use crate::backup::{open, refusal};
use crate::migration::time;
use crate::output::{self, Format};

/// The address by which the services of this process are called. Every address leads there.
pub(crate) const ADDRESS: &str = "http://offline";

/// The services over the state of files.
#[derive(Debug)]
pub struct Offline {
    reader: Reader,
    channel: Channel,
    shown: Shown,
    reported: Once,
}

/// What is shown.
#[derive(Clone, Debug)]
struct Shown {
    files: Vec<PathBuf>,
    cluster_id: String,
    revision: u64,
    time: TimeMs,
}

/// Refuses what goes with `--backup` only, and what does not go with it.
///
/// # Errors
///
/// The combination that makes no sense.
pub fn check(global: &Global) -> Result<(), Refusal> {
    let refused = |message: &str, hint: &str| {
        let refusal = Refusal::new(Code::InvalidArgument, "OPTIONS_CONTRADICT", message);
        Err(refusal.with_hint(hint))
    };
    match (global.backup.is_empty(), &global.at, global.stale) {
        (true, Some(_), _) => refused("--at needs --backup", "name the files with --backup"),
        (false, _, true) => refused(
            "--stale and --backup contradict each other: no scheduler is called",
            "give one of the two",
        ),
        (true, None, _) | (false, _, false) => Ok(()),
    }
}

impl Offline {
    /// Loads the state at a moment, or at the end of the last file, and serves it in this process.
    ///
    /// # Errors
    ///
    /// Why a file is refused.
    pub fn load(files: &[PathBuf], at: Option<&Moment>) -> anyhow::Result<Self> {
        let mut history = History::new(ServiceVersion::CURRENT, at.cloned());
        let mut origin = None;
        for path in files {
            let reader = open(path)?;
            origin = Some(Origin::of(reader.header()));
            let added = history.add(reader);
            added.map_err(|error| of_history(path, &error))?;
        }
        let last = files.last().map_or(Path::new(""), PathBuf::as_path);
        let verified = history.finish();
        let verified = verified.map_err(|error| of_history(last, &error))?;
        let origin = origin.context("no file was named")?;
        let state = verified.machine.state();
        let shown = Shown {
            files: files.to_owned(),
            cluster_id: origin.cluster_id.clone(),
            revision: state.revision(),
            time: state.time(),
        };
        let reader = Reader::start(verified, &origin)?;
        let channel = reader.dialer().channel(ADDRESS, Expected::AnyServer)?;
        Ok(Self {
            reader,
            channel,
            shown,
            reported: Once::new(),
        })
    }

    /// Returns a dialer by which every address is this state.
    pub(crate) fn dialer(&self) -> Dialer {
        self.reader.dialer()
    }

    /// Reads from the state, after it was reported which one it is.
    ///
    /// # Errors
    ///
    /// The refusal of the services.
    pub(crate) async fn read<T, F>(
        &self,
        format: Format,
        call: &impl Fn(ReadChannel) -> F,
    ) -> Result<T, Refusal>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        self.reported.call_once(|| self.shown.report(format));
        let answered = call(Consistency::Stale.over(self.channel.clone())).await;
        let answered = answered.map(Response::into_inner);
        answered.map_err(|status| of_services(from_status(&status)))
    }
}

impl Shown {
    fn report(&self, format: Format) {
        match format {
            Format::Table => output::message(self.sentence()),
            Format::Json => output::program_message(&self.to_json().to_string()),
        }
    }

    fn sentence(&self) -> String {
        let files: Vec<String> = self.files.iter().map(|f| f.display().to_string()).collect();
        format!(
            "read from {}: the state at revision {} of {}; later changes are missing, and whether hosts \
             are up is unknown",
            files.join(", "),
            self.revision,
            time(self.time)
        )
    }

    fn to_json(&self) -> serde_json::Value {
        json!({"backup": {
            "files": self.files,
            "cluster_id": self.cluster_id,
            "revision": self.revision,
            "time_ms": self.time.0,
        }})
    }
}

/// Returns the refusal of files that give no state.
fn of_history(path: &Path, error: &history::Error) -> Refusal {
    match error {
        history::Error::Verify(error) => refusal::of_verify(path, error),
        history::Error::Later(_) | history::Error::NotReached(_) => {
            let message = format!("{} does not have that moment: {error}", path.display());
            let refusal = Refusal::new(Code::FailedPrecondition, "BACKUP_OUT_OF_RANGE", message);
            refusal.with("file", path.display()).with_hint(
                "name a moment between the full backup and the end of the last increment",
            )
        }
    }
}

/// Returns the refusal of a read that only a leader answers, in words of this command.
fn of_services(refusal: Refusal) -> Refusal {
    match &*refusal.reason {
        "NOT_LEADER" | "NO_LEADER" => {
            let message = "this is not in a backup: only the leader of a running cluster has it";
            Refusal::new(Code::FailedPrecondition, commands::NOT_IN_A_BACKUP, message)
                .with_hint("repeat the command without --backup")
        }
        _ => refusal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_states_files_revision_and_time() {
        let shown = Shown {
            files: vec!["a.backup".into(), "b.backup".into()],
            cluster_id: "c".to_owned(),
            revision: 1977,
            time: TimeMs(1_000),
        };
        assert_eq!(
            shown.sentence(),
            "read from a.backup, b.backup: the state at revision 1977 of 1970-01-01T00:00:01Z; later \
             changes are missing, and whether hosts are up is unknown"
        );
        let expected = json!({"backup": {"files": ["a.backup", "b.backup"], "cluster_id": "c",
            "revision": 1977, "time_ms": 1000}});
        assert_eq!(shown.to_json(), expected);
    }
}
