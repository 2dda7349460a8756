//! The operator's and user's command, one noun per file.
//!
//! | module | contents |
//! |---|---|
//! | [`arguments`] | the command line |
//! | [`session`] | where the scheduler and the conductor are |
//! | `host`, `flavor`, `image`, `network`, `pci_alias`, `vm`, `migration`, `operation`, `server_group`, `aggregate`, `policy`, `cluster`, `volume` | one noun each |
//! | `provider`, `class`, `traits` (traits), `candidates` | the nouns of counted placement |
//! | [`stale`], [`reading`] | reads that one scheduler answers alone, and which commands make them |
//! | [`files`], [`offline`] | backups and support bundles that are read instead of schedulers |
//! | [`support`] | support bundles |
//! | [`records`] | words for states, and records as JSON |
//! | [`sides`] | which end of a migration each claim is on |
//! | [`placement`] | taking over what another Placement holds |
//! | [`planner`] | what would be survived, balanced, and what still fits; for Ganeti's files too |
//! | [`backup`] | what files of backups hold, and whether they verify |
//! | [`replay`] | recorded decisions made again, also under another policy or fleet |
//! | [`explain`] | what resources and their fields mean |
//! | [`completion`] | completing commands in a shell |
//! | [`usage`] | what is typed and cannot be carried out |
//! | [`certs`] | making the certificates by which the parts know each other |
//! | [`watch`], [`audit`] | changes as they happen; which principal requested them |
//! | [`top`] | the cluster on the whole screen, as it changes |
//! | [`history`] | what became of a VM or a host |
//! | [`log_level`] | which log lines programs write |
//! | [`doctor`] | what is wrong between the command and the guests |
//! | [`apply`] | making the cluster have what files declare |
//! | [`progress`], [`failure`] | what is shown while an operation runs, and that it has failed |
//! | [`mod@fit`] | would it fit? without any cluster |
//! | [`draw`] | pictures of topologies |
//! | [`output`] | tables, values, refusals |
//! | `subject` | what each command shows: names of resources, columns of lists |
//! | `remedies` | what helps against refusals without a hint |
//! | [`dev`], [`demo`] | the whole system in one process, and a demonstration of it |
//!
//! Invariant: this crate decides nothing; it sends requests, waits and shows.

mod address;
pub mod aggregate;
pub mod apply;
pub mod arguments;
pub mod audit;
pub mod backup;
pub mod bar;
mod beginning;
pub mod candidates;
pub mod certs;
mod change;
pub mod class;
pub mod cluster;
pub mod completion;
mod confirmation;
pub mod cpu;
pub mod cpu_model;
pub mod demo;
pub mod dev;
pub mod doctor;
pub mod drained;
pub mod draw;
pub mod explain;
pub mod failure;
pub mod files;
pub mod fit;
pub mod flavor;
pub mod history;
pub mod host;
pub mod image;
pub mod log_level;
pub mod memory;
pub mod migration;
pub mod network;
pub mod offline;
pub mod operation;
mod other_clusters;
pub mod output;
pub mod pci_alias;
mod pci_match;
pub mod placement;
pub mod planner;
pub mod policy;
pub mod progress;
pub mod provider;
pub mod reading;
pub mod records;
mod remedies;
pub mod replay;
mod revocation;
mod selection;
pub mod server_group;
pub mod session;
pub mod sides;
pub mod stale;
mod subject;
pub mod support;
pub mod top;
pub mod trace_parent;
pub mod traits;
pub mod usage;
pub mod vm;
pub mod volume;
mod volume_argument;
pub mod watch;
mod web;

use std::ffi::OsString;
use std::pin::Pin;
use std::process::ExitCode;

use berth_domain::refusal::{Code, Refusal};
use clap::{CommandFactory as _, FromArgMatches as _};

use crate::arguments::{Arguments, Command};
use crate::output::Format;
use crate::session::Session;
use crate::usage::Usage;

/// The exit status when a request was refused or failed.
pub const EXIT_REFUSED: u8 = 1;
/// The exit status of wrong usage, as clap has it.
pub const EXIT_USAGE: u8 = 2;
/// The exit status when no server could be reached.
pub const EXIT_UNREACHABLE: u8 = 3;
/// The exit status when what was compared is not the same.
pub const EXIT_DIFFERENT: u8 = 4;
/// The exit status when there are no allocation candidates.
pub const EXIT_NO_CANDIDATES: u8 = 4;
/// The exit status when no leader answers `cluster status`.
pub const EXIT_WITHOUT_LEADER: u8 = 4;
/// The exit status when a failure would not be survived, or memory is given away beyond its ratio.
pub const EXIT_UNHEALTHY: u8 = 4;

/// Runs the command with these arguments, the program's name first.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let command = arguments::names::with_rules(Arguments::command());
    let parsed = command.try_get_matches_from(&arguments);
    let parsed = parsed.and_then(|matches| {
        let words = subject::words(&matches);
        Ok((Arguments::from_arg_matches(&matches)?, words))
    });
    let (arguments, words) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            let error = usage::without_defaults(error, Arguments::command());
            let requested = berth_process::usage::output_format(&arguments);
            return misused(&error, Format::of_refused(requested));
        }
    };
    let format = arguments.global.format();
    let choice = arguments.global.output.choice(subject::of(&words));
    if let Err(misuse) = choice.apply(&words) {
        return fail(&misuse.into(), format);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            output::message(format!("error: failed to start the runtime: {error}"));
            return ExitCode::from(EXIT_REFUSED);
        }
    };
    // Behind a pointer, since the runtime would instantiate the whole tree three times.
    let command: Pin<Box<dyn Future<Output = anyhow::Result<()>>>> = Box::pin(run(arguments));
    let result = runtime.block_on(command);
    // What still runs in the background must not hold the program up.
    runtime.shutdown_timeout(std::time::Duration::from_secs(5));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, format),
    }
}

/// Ends the program whose arguments clap did not take, or that only shows its help.
fn misused(error: &clap::Error, format: Format) -> ExitCode {
    // Help and version are errors to clap, and go to standard output.
    if matches!(format, Format::Json | Format::Yaml) && error.use_stderr() {
        output::refused(format, &usage::refusal(error));
    } else {
        // The output may be closed.
        let _ = error.print();
    }
    match error.use_stderr() {
        true => ExitCode::from(EXIT_USAGE),
        false => ExitCode::SUCCESS,
    }
}

async fn run(arguments: Arguments) -> anyhow::Result<()> {
    files::check(&arguments.global)?;
    if arguments.global.reads_files() {
        // Before a file is opened.
        files::commands::check(&arguments.command, &arguments.global)?;
    }
    if arguments.global.revision().is_some() {
        files::commands::check_revision(&arguments.command)?;
    }
    if let Command::Certs(command) = arguments.command {
        // `berth certs` makes certificates, so there may be none yet.
        return certs::run(command, arguments.global.format());
    }
    if let Command::Completion(args) = arguments.command {
        completion::run(&args);
        return Ok(());
    }
    if let Command::Explain(args) = &arguments.command {
        return explain::run(args, arguments.global.format());
    }
    if matches!(arguments.command, Command::Doctor) {
        // What is wrong with its own certificate is one of its findings.
        return doctor::run(&arguments).await;
    }
    let mut session = session(&arguments)?;
    match arguments.command {
        Command::Doctor => doctor::run(&arguments).await,
        Command::Host(command) => host::run(&session, command).await,
        Command::Apply(args) => apply::run(&session, args).await,
        Command::Flavor(command) => flavor::run(&session, command).await,
        Command::Image(command) => image::run(&session, command).await,
        Command::Network(command) => network::run(&session, command).await,
        Command::PciAlias(command) => pci_alias::run(&session, command).await,
        Command::Vm(command) => vm::run(&session, command).await,
        Command::Migration(command) => migration::run(&session, command).await,
        Command::Aggregate(command) => aggregate::run(&session, command).await,
        Command::AvailabilityZone(command) => aggregate::zones(&session, command).await,
        Command::Cpu(command) => cpu_model::run(&session, command).await,
        Command::ServerGroup(command) => server_group::run(&session, command).await,
        Command::Policy(command) => policy::run(&session, command).await,
        Command::Operation(command) => operation::run(&session, command).await,
        Command::Cluster(command) => cluster::run(&mut session, command).await,
        Command::Provider(command) => provider::run(&session, command).await,
        Command::Placement(command) => placement::run(&session, command).await,
        Command::Candidates(args) => candidates::run(&session, *args).await,
        Command::Class(command) => class::run(&session, command).await,
        Command::Trait(command) => traits::run(&session, command).await,
        Command::Fit(options) => fit::run_stdin(options),
        Command::Dev(options) => dev::run_until_interrupted(options).await,
        Command::Demo(options) => demo::run(options, session.output).await,
        Command::Watch(args) => watch::run(&session, args).await,
        Command::Top(_) => top::run(&session, arguments.global.stale).await,
        Command::Web(command) => web::run(&session, command).await,
        Command::Audit(command) => audit::run(&session, command).await,
        Command::Verify(args) => planner::verify::run(&session, args).await,
        Command::Score(args) => planner::score::run(&session, args).await,
        Command::Balance(args) => planner::balance::run(&session, args).await,
        Command::Capacity(args) => planner::capacity::run(&session, args).await,
        Command::Iallocator(args) => planner::text::iallocator(args),
        Command::Backup(command) => backup::run(command, session.output),
        Command::Replay(args) => replay::run(&args, session.output),
        Command::LogLevel(command) => log_level::run(&session, command).await,
        Command::Support(command) => support::run(&session, command).await,
        Command::Certs(command) => certs::run(command, session.output),
        Command::Explain(args) => explain::run(&args, session.output),
        Command::Completion(args) => {
            completion::run(&args);
            Ok(())
        }
        Command::Volume(command) => volume::run(&session, command).await,
    }
}

/// Returns the connections of a command: to schedulers, or to the state of files.
fn session(arguments: &Arguments) -> anyhow::Result<Session> {
    let global = &arguments.global;
    if !global.backup.is_empty() {
        let subject = history::subject(&arguments.command)?;
        let offline = files::load(&global.backup, global.at.as_ref(), subject)?;
        return Session::of_files(offline, global.format());
    }
    if let Some(bundle) = &global.bundle {
        let prefers_state = files::commands::prefers_state(&arguments.command);
        let offline = files::of_bundle(bundle, prefers_state)?;
        return Session::of_files(offline, global.format());
    }
    let alone = matches!(
        arguments.command,
        Command::Backup(_)
            | Command::Replay(_)
            | Command::Fit(_)
            | Command::Completion(_)
            | Command::Dev(_)
            | Command::Demo(_)
            | Command::Iallocator(_)
    );
    // A command that calls no server needs no certificates, whatever the environment sets.
    let tls = if alone { None } else { global.certificates()? };
    let mut session = Session::with_certificates(&global.scheduler, global.format(), tls)?;
    if matches!(arguments.command, Command::Watch(_) | Command::Top(_)) {
        session.follow_recoveries();
    }
    Ok(session.with_reading(reading::reading(
        &arguments.command,
        global.stale,
        global.revision(),
    )))
}

fn fail(error: &anyhow::Error, format: Format) -> ExitCode {
    if error.is::<candidates::NoCandidates>() {
        // The output explains why.
        return ExitCode::from(EXIT_NO_CANDIDATES);
    }
    if error.is::<planner::Unhealthy>() {
        // The output explains why.
        return ExitCode::from(EXIT_UNHEALTHY);
    }
    if error.is::<replay::Differs>() {
        // The output names the decisions.
        return ExitCode::from(EXIT_DIFFERENT);
    }
    if error.is::<apply::Drift>() {
        // The output names the differences.
        return ExitCode::from(EXIT_DIFFERENT);
    }
    if error.is::<cluster::WithoutLeader>() {
        // The output shows what is known without one.
        return ExitCode::from(EXIT_WITHOUT_LEADER);
    }
    if error.is::<host::check::Failed>() || error.is::<doctor::Failed>() {
        // The output explains why.
        return ExitCode::from(EXIT_REFUSED);
    }
    let misuse = error.downcast_ref::<Usage>().map(Usage::refusal);
    let refusal = misuse.as_ref().or_else(|| error.downcast_ref::<Refusal>());
    match refusal {
        _ if error.is::<failure::Reported>() => {}
        Some(refusal) => output::refused(format, refusal),
        // No server was called: the command itself could not go on.
        None => {
            let refusal = failure::refusal(error);
            let value = output::refusal_value(&refusal);
            output::note(format, format!("error: {}", refusal.message), &value);
        }
    }
    ExitCode::from(match refusal {
        Some(_) if error.is::<failure::Failed>() => EXIT_REFUSED,
        Some(refusal) if refusal.code == Code::Unavailable => EXIT_UNREACHABLE,
        Some(refusal) if refusal.reason == placement::SIDES_DIFFER => EXIT_DIFFERENT,
        Some(_) if misuse.is_some() => EXIT_USAGE,
        Some(_) | None => EXIT_REFUSED,
    })
}
