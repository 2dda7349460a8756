//! `berth replay`: recorded decisions made again, and under another policy, flavors or fleet. Calls no
//! server.
//!
//! | module | contents |
//! |---|---|
//! | `show` | the report for people |
//! | `json` | the report for programs |
//!
//! Not here: what is decided and counted, which is in `berth-replay`.
//!
//! Invariant: nothing is reported before all files are verified.

mod json;
mod show;

use std::collections::BTreeMap;
use std::path::Path;

use berth_backup::Chain;
use berth_codec::admit;
use berth_domain::fault;
use berth_domain::policy::Setting;
use berth_domain::refusal::{Code, Refusal};
use berth_replay::{Changes, Replayer, Report};
use berth_replication::Applied;
use berth_replication::replay::Observer;
use berth_scheduler::Machine;
use berth_scheduler::machine::Level;
use berth_state::Reply;
use berth_state::command::Envelope;

use crate::arguments::Replay;
use crate::backup::{open, refusal};
use crate::output::{self, Format};

/// After how many commands progress is shown, on a terminal and elsewhere.
const SHOWN_EVERY: (u64, u64) = (1_000, 50_000);

/// A recorded decision differs for no known cause. The output names it.
#[derive(Debug, thiserror::Error)]
#[error("recorded decisions are not the same again")]
pub struct Differs;

/// Runs the command.
///
/// # Errors
///
/// Why a file or a change is refused; [`Differs`].
pub fn run(args: &Replay, format: Format) -> anyhow::Result<()> {
    let changes = changes(args)?;
    let report = replay(args, changes.as_ref())?;
    match format.is_of_value() {
        true => output::value(&json::report(&report))?,
        false => show::print(&report),
    }
    match report.check.unexplained() {
        0 => Ok(()),
        _ => Err(Differs.into()),
    }
}

/// Returns the requested changes; nothing if there are none.
fn changes(args: &Replay) -> Result<Option<Changes>, Refusal> {
    let mut settings = BTreeMap::new();
    for (key, value) in &args.policy {
        if settings.insert(key.clone(), value.clone()).is_some() {
            let message = format!("--policy {key} is given twice");
            let refusal = Refusal::new(Code::InvalidArgument, "INVALID_POLICY", message);
            return Err(refusal.with_hint("give each setting once"));
        }
    }
    let parsed = Setting::parse_all(&settings);
    let changes = Changes {
        settings: parsed.map_err(|faults| fault::refusal("policy", &faults))?,
        flavors: args.flavors(),
        without: args.without.iter().cloned().collect(),
        like: args.add_like.iter().cloned().collect(),
    };
    Ok((changes != Changes::default()).then_some(changes))
}

fn replay(args: &Replay, changes: Option<&Changes>) -> Result<Report, Refusal> {
    let mut chain = Chain::<Machine>::new(Level::default());
    let mut watcher = None;
    for path in &args.files {
        let reader = open(path)?;
        let end = reader.header().end.index;
        let added = match &mut watcher {
            None => chain.add(reader),
            Some(watcher) => {
                Watcher::begin(watcher, path, end);
                chain.add_observed(reader, watcher)
            }
        };
        added.map_err(|error| refusal::of_verify(path, &error))?;
        if let (None, Some(machine)) = (&watcher, chain.machine()) {
            let state = machine.state();
            let replayer = Replayer::new(state, changes.cloned(), admit, args.examples)?;
            watcher = Some(Watcher::new(replayer));
        }
    }
    let last = args
        .files
        .last()
        .map_or(Path::new(""), |path| path.as_path());
    let verified = chain.finish();
    let verified = verified.map_err(|error| refusal::of_verify(last, &error))?;
    let Some(watcher) = watcher else {
        let message = "there is no backup to replay";
        return Err(Refusal::new(
            Code::InvalidArgument,
            "BACKUP_WITHOUT_FULL",
            message,
        ));
    };
    watcher.progress.clear();
    watcher.replayer.finish(verified.machine.state())
}

/// Passes the commands of a chain to the replay, and shows how far it is.
struct Watcher {
    replayer: Replayer,
    progress: Progress,
}

impl Watcher {
    fn new(replayer: Replayer) -> Self {
        Self {
            replayer,
            progress: Progress::default(),
        }
    }

    fn begin(&mut self, path: &Path, end: u64) {
        self.progress.file = path.display().to_string();
        self.progress.end = end;
    }
}

impl Observer<Machine> for Watcher {
    fn before(&mut self, machine: &Machine, index: u64, command: &Envelope) {
        self.progress.advance(index);
        self.replayer.before(machine.state(), index, command);
    }

    fn after(
        &mut self,
        machine: &Machine,
        index: u64,
        command: &Envelope,
        applied: &Applied<Result<Reply, Refusal>>,
    ) {
        let (state, is_done) = (machine.state(), applied.outcome.is_ok());
        self.replayer.after(state, index, command, is_done);
    }
}

/// How far a replay is, on standard error.
#[derive(Default)]
struct Progress {
    file: String,
    end: u64,
    commands: u64,
}

impl Progress {
    fn advance(&mut self, index: u64) {
        self.commands += 1;
        let (file, end) = (&self.file, self.end);
        let line = || format!("{file}: entry {index} of {end}");
        if output::can_redraw() {
            if self.commands.is_multiple_of(SHOWN_EVERY.0) {
                output::redraw(&line());
            }
        } else if self.commands.is_multiple_of(SHOWN_EVERY.1) {
            output::message(line());
        }
    }

    fn clear(&self) {
        if output::can_redraw() && self.commands >= SHOWN_EVERY.0 {
            output::redraw("");
        }
    }
}
