//! Files that are read instead of schedulers: `berth --backup FILE… vm list`, `berth --bundle FILE vm list`.
//!
//! ```text
//!   backups ─▶ verified state at a moment ─▶ services that read ───┐
//!   bundle ──▶ its state, if it has one ─────▶ services that read ─┼─▶ the same commands
//!          └─▶ what its schedulers answered ─▶ the same answers ───┘
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `commands` | which commands are answered so, and why others are not |
//!
//! Not here: the calls of a command ([`offline`](crate::offline)).
//!
//! Invariant: nothing of a file is served before all of it was verified.

pub(crate) mod commands;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use berth_backup::Verified;
use berth_domain::history::Subject;
use berth_domain::id::TimeMs;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::ServiceVersion;
use berth_scheduler::Machine;
use berth_scheduler::change_log::ChangeLog;
use berth_scheduler::history::{self, History};
use berth_scheduler::moment::Moment;
use berth_scheduler::reader::{Origin, Reader};

use crate::arguments::Global;
use crate::backup::{open, refusal};
use crate::offline::{Offline, Shown, SubjectHistory};
use crate::support;

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
    match &global.at {
        Some(_) if global.bundle.is_some() => {
            return refused(
                "--at contradicts --bundle: a bundle has one state at most",
                "leave --at out",
            );
        }
        Some(_) if global.stale => {
            return refused(
                "--at contradicts --stale: each names the state that is read",
                "give one of the two",
            );
        }
        Some(Moment::Time(..)) if global.backup.is_empty() => {
            return refused(
                "--at with a time needs --backup: schedulers read earlier states by revision",
                "name a revision, as `berth audit list` shows them, or files with --backup",
            );
        }
        Some(_) | None => {}
    }
    if global.bundle.is_some() && !global.backup.is_empty() {
        return refused(
            "--bundle and --backup contradict each other: one of them is read",
            "give one of the two",
        );
    }
    if global.stale && global.reads_files() {
        return refused(
            "--stale contradicts --backup and --bundle: no scheduler is called",
            "leave --stale out",
        );
    }
    Ok(())
}

/// Loads the state at a moment, or at the end of the last file, and serves it in this process. Of
/// `subject` it keeps what was done to it.
///
/// # Errors
///
/// Why a file is refused.
pub fn load(
    files: &[PathBuf],
    at: Option<&Moment>,
    subject: Option<Subject>,
) -> anyhow::Result<Offline> {
    let mut history = History::new(ServiceVersion::CURRENT, at.cloned());
    let mut origin = None;
    let mut changes = subject.map(ChangeLog::new);
    let mut first = 0;
    for path in files {
        let reader = open(path)?;
        origin = Some(Origin::of(reader.header()));
        let is_first = history.state().is_none();
        let added = match &mut changes {
            Some(changes) => history.add_observed(reader, changes),
            None => history.add(reader),
        };
        added.map_err(|error| of_history(path, &error))?;
        if let (true, Some(state)) = (is_first, history.state()) {
            first = state.revision();
        }
    }
    let last = files.last().map_or(Path::new(""), PathBuf::as_path);
    let verified = history.finish();
    let verified = verified.map_err(|error| of_history(last, &error))?;
    let origin = origin.context("no file was named")?;
    let last = verified.machine.state().revision();
    let offline = over(verified, &origin, files.to_owned(), None)?;
    let Some(mut changes) = changes else {
        return Ok(offline);
    };
    Ok(offline.with_history(SubjectHistory {
        first,
        last,
        entries: changes.take()?,
    }))
}

/// Reads a bundle and serves it in this process: its state where the command prefers that and there is
/// one, or else what its schedulers answered.
///
/// # Errors
///
/// Why the file is refused.
pub fn of_bundle(path: &Path, prefers_state: bool) -> anyhow::Result<Offline> {
    let bundle = support::open::open(path)?;
    let files = vec![path.to_owned()];
    let made = Some((bundle.created, bundle.names_hashed));
    if let Some(state) = bundle.state.as_ref().filter(|_| prefers_state) {
        let reader = berth_backup::Reader::new(&**state);
        let reader = reader.map_err(|error| refusal::of_read(path, &error))?;
        let origin = Origin::of(reader.header());
        let mut history = History::new(ServiceVersion::CURRENT, None);
        let added = history.add(reader);
        added.map_err(|error| of_history(path, &error))?;
        let verified = history.finish();
        let verified = verified.map_err(|error| of_history(path, &error))?;
        return over(verified, &origin, files, made);
    }
    let shown = Shown {
        files,
        cluster_id: bundle.cluster_id.clone(),
        at: None,
        bundle: made,
    };
    let recorded = bundle.recorded();
    Offline::new(recorded.dialer(), recorded, shown)
}

/// Serves a state.
fn over(
    verified: Verified<Machine>,
    origin: &Origin,
    files: Vec<PathBuf>,
    bundle: Option<(TimeMs, bool)>,
) -> anyhow::Result<Offline> {
    let state = verified.machine.state();
    let shown = Shown {
        files,
        cluster_id: origin.cluster_id.clone(),
        at: Some((state.revision(), state.time())),
        bundle,
    };
    let reader = Reader::start(verified, origin)?;
    Offline::new(reader.dialer(), reader, shown)
}

/// Returns the refusal of files that give no state.
fn of_history(path: &Path, error: &history::Error) -> Refusal {
    match error {
        history::Error::Verify(error) => refusal::of_verify(path, error),
        history::Error::Later(_) | history::Error::NotReached(_) => {
            refusal::out_of_range(path, error)
        }
    }
}
