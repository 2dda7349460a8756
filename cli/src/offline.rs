//! Reads from a server of this process, which has what files hold.
//!
//! Not here: which files, and what serves them ([`files`](crate::files)).
//!
//! Invariant: no scheduler is called, whatever the addresses say; and standard error states what is shown
//! before anything of it is printed.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Once;

use berth_domain::history::Entry;
use berth_domain::id::TimeMs;
use berth_domain::refusal::{Code, Refusal};
use berth_proto::client::Dialer;
use berth_proto::consistency::{Consistency, ReadChannel};
use berth_proto::for_cluster::MemberChannel;
use berth_proto::status::from_status;
use berth_tls::Expected;
use prost_types::Timestamp;
use serde_json::json;
use tonic::{Response, Status};

use crate::output::{self, Format};

/// The address by which the services of this process are called. Every address leads there.
pub(crate) const ADDRESS: &str = "http://offline";
/// The reason of what only a running cluster has.
pub(crate) const NOT_IN_A_BACKUP: &str = "NOT_IN_A_BACKUP";
/// The reason of what would change something.
const NOT_A_READ: &str = "BACKUP_NOT_A_READ";

/// Services over files, in this process.
#[derive(Debug)]
pub struct Offline {
    dialer: Dialer,
    channel: MemberChannel,
    shown: Shown,
    /// What was done to the VM or host that it was loaded for.
    history: Option<SubjectHistory>,
    reported: Once,
    /// What serves, as long as this is kept.
    _served: Box<dyn Any + Send + Sync>,
}

/// The history of a VM or a host as far as it is kept.
#[derive(Debug)]
pub(crate) struct SubjectHistory {
    /// It has everything that was done after this revision.
    pub(crate) first: u64,
    /// And up to this one.
    pub(crate) last: u64,
    pub(crate) entries: Vec<Entry>,
}

/// What is shown.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) cluster_id: String,
    /// The revision and time of the state, if a state is shown.
    pub(crate) at: Option<(u64, TimeMs)>,
    /// When the bundle was made, and whether hashes stand for names, if it is one.
    pub(crate) bundle: Option<(TimeMs, bool)>,
}

/// Returns the refusal of a command that would change something.
pub(crate) fn not_a_read() -> Refusal {
    let message = "--backup and --bundle are for commands that only read: files are never changed";
    Refusal::new(Code::InvalidArgument, NOT_A_READ, message)
        .with_hint("repeat the command without the option; nothing was changed")
}

impl Offline {
    /// Returns the services that this dialer reaches, which `served` keeps running.
    ///
    /// # Errors
    ///
    /// None that is to be expected.
    pub(crate) fn new(
        dialer: Dialer,
        served: impl Any + Send + Sync,
        shown: Shown,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            channel: dialer.channel(ADDRESS, Expected::AnyServer)?.into(),
            dialer,
            shown,
            history: None,
            reported: Once::new(),
            _served: Box::new(served),
        })
    }

    /// Returns the same with what was done to a VM or host.
    #[must_use]
    pub(crate) fn with_history(mut self, history: SubjectHistory) -> Self {
        self.history = Some(history);
        self
    }

    /// Returns what was done to the VM or host that it was loaded for, after it was reported what is shown.
    pub(crate) fn history(&self, format: Format) -> Option<&SubjectHistory> {
        let history = self.history.as_ref()?;
        self.reported.call_once(|| self.shown.report(format));
        Some(history)
    }

    /// Returns whether a state answers, which has only what is replicated.
    pub(crate) fn is_state(&self) -> bool {
        self.shown.at.is_some()
    }

    /// Returns a dialer by which every address is this process.
    pub(crate) fn dialer(&self) -> Dialer {
        self.dialer.clone()
    }

    /// Reads from the files, after it was reported what they show.
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
        output::note(format, self.sentence(), &self.to_json());
    }

    fn sentence(&self) -> String {
        let files: Vec<String> = self.files.iter().map(|f| f.display().to_string()).collect();
        let files = files.join(", ");
        let made = self.bundle.map_or_else(String::new, |(at, is_hashed)| {
            let hashed = if is_hashed {
                ", with hashes for names"
            } else {
                ""
            };
            format!(", a support bundle of {}{hashed}", time(at))
        });
        match self.at {
            Some((revision, at)) => format!(
                "read from {files}{made}: the state at revision {revision} of {}; later changes are \
                 missing, and whether hosts are up is unknown",
                time(at)
            ),
            None => format!("read from {files}{made}: what the schedulers answered then"),
        }
    }

    fn to_json(&self) -> serde_json::Value {
        let revision = self.at.map(|(revision, _)| revision);
        let time_ms = self.at.map(|(_, at)| at.0);
        match self.bundle {
            None => json!({"backup": {"files": self.files, "cluster_id": self.cluster_id,
                "revision": revision, "time_ms": time_ms}}),
            Some((created, is_hashed)) => json!({"bundle": {"file": self.files.first(),
                "cluster_id": self.cluster_id, "created_ms": created.0, "names_hashed": is_hashed,
                "revision": revision, "time_ms": time_ms}}),
        }
    }
}

/// Returns the refusal of a read that only a leader answers, in words of this command.
fn of_services(refusal: Refusal) -> Refusal {
    match &*refusal.reason {
        "NOT_LEADER" | "NO_LEADER" => {
            let message = "this is in no state: only the leader of a running cluster has it";
            Refusal::new(Code::FailedPrecondition, NOT_IN_A_BACKUP, message)
                .with_hint("repeat the command at a running cluster")
        }
        _ => refusal,
    }
}

/// Returns a time for people.
fn time(at: TimeMs) -> String {
    let seconds = i64::try_from(at.0 / 1000).unwrap_or(i64::MAX);
    Timestamp { seconds, nanos: 0 }.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_states_files_revision_and_time() {
        let shown = Shown {
            files: vec!["a.backup".into(), "b.backup".into()],
            cluster_id: "c".to_owned(),
            at: Some((1977, TimeMs(1_000))),
            bundle: None,
        };
        assert_eq!(
            shown.sentence(),
            "read from a.backup, b.backup: the state at revision 1977 of 1970-01-01T00:00:01Z; later \
             changes are missing, and whether hosts are up is unknown"
        );
        let expected = json!({"backup": {"files": ["a.backup", "b.backup"], "cluster_id": "c",
            "revision": 1977, "time_ms": 1000}});
        assert_eq!(shown.to_json(), expected);
        let bundle = Shown {
            files: vec!["x.tar".into()],
            at: None,
            bundle: Some((TimeMs(2_000), true)),
            ..shown
        };
        assert_eq!(
            bundle.sentence(),
            "read from x.tar, a support bundle of 1970-01-01T00:00:02Z, with hashes for names: what the \
             schedulers answered then"
        );
    }
}
