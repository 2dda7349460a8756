//! How long backups, increments and restores of large clusters take, and what claims notice of them;
//! beside it, in the same run, etcd's snapshots of as many bytes.
//!
//! Goal: with 10,000 hosts and 340,000 VMs, a backup under 10 s with a p99 of 500 claims a second under
//! twice the usual, an increment of 1,000 decisions under 1 s, a restored group that serves under 30 s.
//! Method: a generated state (`berth_testkit::state::scale`) is written as the directory of a first
//! member; others join it. Members are processes. Backups follow each other at
//! the leader while claims are made at a steady rate; a claim's time counts from when it was due. Then
//! the group is ended, its backup restored, and the agents of all hosts report. Not a test: it passes no
//! judgement.
//!
//! ```text
//! cargo bench -p berth-scheduler --bench backup -- [--hosts N] [--vms-per-host N] [--members N]
//! ```
//!
//! With `BERTH_BENCH_LOG=FILE` what the schedulers log is appended to that file.

mod etcd;
#[path = "../common/fault.rs"]
mod fault;
mod figures;
mod files;
mod group;
mod load;
#[path = "../common/member.rs"]
mod member;
mod process;
mod reports;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use berth_domain::bound::vms_max;
use berth_domain::version::ServiceVersion;
use berth_state::State;
use berth_testkit::state::scale::{self, Size};
use clap::Parser;

use crate::fault::Outcome;
use crate::figures::Figures;
use crate::files::back_up;
use crate::group::{Group, Places};
use crate::load::Load;
use crate::process::{SCHEDULER, VERIFY, bytes_below, run_self};

/// How many decisions an increment holds.
const DECISIONS: u64 = 1_000;

/// How long a recovered group may take to make claims.
const CLAIMING_MAX: Duration = Duration::from_secs(300);

/// In how many rounds claims are made without and with backups.
const ROUNDS: u32 = 4;

/// What to measure.
#[derive(Debug, Parser)]
struct Options {
    /// Number of hosts, each of 4 NUMA nodes
    #[arg(long, default_value_t = 1_000)]
    hosts: u64,
    /// Number of VMs that run on each host
    #[arg(long, default_value_t = 34)]
    vms_per_host: u64,
    /// Number of schedulers
    #[arg(long, default_value_t = 3)]
    members: usize,
    /// Claims a second
    #[arg(long, default_value_t = 500)]
    rate: u32,
    /// How long claims are made without a backup, and how long with backups, in seconds
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Leave the recovery out: the generated state, from which hosts report, then needs no memory
    #[arg(long)]
    without_recovery: bool,
    /// Leave etcd out
    #[arg(long)]
    without_etcd: bool,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    /// Returns whether claims are refused, as there are as many VMs as there may be.
    fn is_beyond_bound(&self) -> bool {
        let claims = u64::from(self.rate) * self.seconds * 4 / u64::from(ROUNDS);
        self.hosts * self.vms_per_host + claims > self.vms_max()
    }

    /// Returns how many VMs the cluster may have.
    fn vms_max(&self) -> u64 {
        let hosts = usize::try_from(self.hosts).unwrap_or(usize::MAX);
        vms_max(hosts) as u64
    }

    /// Returns a cluster version at which the claims are made.
    fn version(&self) -> ServiceVersion {
        match self.is_beyond_bound() {
            true => ServiceVersion(ServiceVersion::BOUNDED_RECORDS.0 - 1),
            false => ServiceVersion::CURRENT,
        }
    }
}

fn main() -> ExitCode {
    if let Some(code) = process::become_another() {
        return code;
    }
    let options = Options::parse();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    match runtime.block_on(measure(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(options: &Options) -> Outcome<()> {
    let folder = tempfile::Builder::new()
        .prefix("berth-backup")
        .tempdir_in(build_folder()?)?;
    let begun = Instant::now();
    let state = scale::state(Size {
        hosts: options.hosts,
        vms_per_host: options.vms_per_host,
        seed: 1,
        version: options.version(),
    });
    let rows = state.rows().count() as u64;
    println!(
        "{} hosts, {} VMs, {rows} rows, {} members; {} claims/s; {}",
        state.hosts().len(),
        state.vms().len(),
        options.members,
        options.rate,
        load_average(),
    );
    if options.is_beyond_bound() {
        println!(
            "the cluster may have {} VMs: measured at cluster version {}, which has no such bound",
            options.vms_max(),
            options.version()
        );
    }
    line("state generated", begun.elapsed());
    let places = Places::new(folder.path(), "first", options.members)?;
    places.write_first(&state)?;
    let state = (!options.without_recovery).then_some(state);
    let begun = Instant::now();
    let mut group = Group::start(places).await?;
    line("first member started", begun.elapsed());
    let begun = Instant::now();
    group.complete().await?;
    line("others joined", begun.elapsed());
    let saved = back_ups(options, &mut group, rows).await?;
    line("all members started again", group.restart().await?);
    drop(group);
    let serving = restore(options, folder.path(), &saved.file, state.as_ref()).await?;
    drop(state);
    match !options.without_etcd && etcd::is_installed() {
        true => compare(folder.path(), &saved, &serving).await,
        false => {
            println!("etcd is left out: it is not installed, or was not requested");
            Ok(())
        }
    }
}

/// A full backup that was made without load.
struct Saved {
    file: PathBuf,
    bytes: u64,
    took: Duration,
}

async fn back_ups(options: &Options, group: &mut Group, rows: u64) -> Outcome<Saved> {
    let leader = group.url(group.leader().await?);
    let folder = group.places.folder.clone();
    let full = folder.join("full.backup");
    let increment = folder.join("increment.backup");
    let load = Load::new(group, options.rate).await?;
    let each = Duration::from_secs(options.seconds) / ROUNDS;
    let (mut without, mut with) = (Figures::default(), Figures::default());
    let mut times = Vec::new();
    // The first round warms everything up. How fast the disk is changes from one minute to the next,
    // so that both are measured in turns.
    for round in 0..=ROUNDS {
        let claimed = load.during(pause(each)).await?;
        load.release(claimed.guests).await?;
        let backed_up = load.during(repeat(&leader, &full, each)).await?;
        load.release(backed_up.guests).await?;
        if round > 0 {
            without.add(claimed.figures);
            with.add(backed_up.figures);
            times.extend(backed_up.meanwhile);
        }
    }
    let alone = back_up(&leader, &full, None).await?;
    let bytes = std::fs::metadata(&full)?.len();
    line("backup, without load", alone);
    times.sort_unstable();
    line("backup, under load, p50", times[times.len() / 2]);
    line("backup, under load, max", times[times.len() - 1]);
    println!("{:<34} {:>10.1} MiB", "size of a backup", mib(bytes));
    println!(
        "{:<34} {:>10.0} bytes",
        "  for each row",
        bytes as f64 / rows as f64
    );
    claims("without a backup", &without, None);
    claims("with backups", &with, Some(&without));
    let claimed = load.claim(DECISIONS).await?;
    let took = back_up(&leader, &increment, Some(&full)).await?;
    line("increment of 1,000 decisions", took);
    load.release(claimed.guests).await?;
    for (number, member) in group.members.iter().enumerate() {
        let (now, most) = (member.memory_mib("VmRSS"), member.memory_mib("VmHWM"));
        let each = (now << 20) as f64 / rows as f64;
        println!(
            "memory of member {} {now:>6} MiB, at most {most} MiB; {each:.0} bytes a row",
            number + 1
        );
    }
    let data = bytes_below(&group.places.data(0))?;
    println!(
        "{:<34} {:>10.1} MiB",
        "directory of the first member",
        mib(data)
    );
    Ok(Saved {
        file: full,
        bytes,
        took: alone,
    })
}

async fn pause(time: Duration) -> Outcome<()> {
    tokio::time::sleep(time).await;
    Ok(())
}

/// Makes full backups one after another for a while, and returns how long each took.
async fn repeat(from: &str, file: &Path, time: Duration) -> Outcome<Vec<Duration>> {
    let begun = Instant::now();
    let mut times = Vec::new();
    while begun.elapsed() < time {
        times.push(back_up(from, file, None).await?);
    }
    Ok(times)
}

/// How long a restored group took to serve.
struct Serving {
    command: Duration,
    start: Duration,
}

async fn restore(
    options: &Options,
    folder: &Path,
    file: &Path,
    state: Option<&State>,
) -> Outcome<Serving> {
    let verified = run_self(vec![VERIFY.into(), file.into()]).await?;
    line("backup verify", verified.took);
    let places = Places::new(folder, "restored", options.members)?;
    let mut arguments: Vec<OsString> = vec![SCHEDULER.into()];
    arguments.extend(["--data-dir".into(), places.data(0).into()]);
    arguments.extend(["--listen".into(), places.address(0).into()]);
    arguments.extend(["restore".into(), file.into()]);
    let restored = run_self(arguments).await?;
    line("restore: the command", restored.took);
    println!(
        "{:<34} {:>10} MiB",
        "  its memory at most", restored.memory_mib
    );
    let begun = Instant::now();
    let mut group = Group::start(places).await?;
    let start = begun.elapsed();
    line("restore: the first member serves", start);
    line("restore: both together", restored.took + start);
    group.complete().await?;
    line("restore: others joined", begun.elapsed() - start);
    let serving = Serving {
        command: restored.took,
        start,
    };
    let Some(state) = state else {
        return Ok(serving);
    };
    let recovered = reports::recover(&group, state).await?;
    line("recovery: all hosts registered", recovered.registered);
    line("recovery: first reports", recovered.first_reports);
    line("recovery: status meanwhile", recovered.status);
    line("recovery: second reports", recovered.second_reports);
    line("recovery: ended after the last", recovered.ended);
    // A restored group is at the newest cluster version.
    if !options.is_beyond_bound() {
        let load = claiming(&group, options.rate).await?;
        let claimed = load.claim(u64::from(options.rate) * 4).await?;
        claims("of the restored group", &claimed.figures, None);
    }
    Ok(serving)
}

/// Waits until a group that was recovered makes claims: its members still apply the end of the recovery.
async fn claiming(group: &Group, rate: u32) -> Outcome<Load> {
    let begun = Instant::now();
    loop {
        let load = Load::new(group, rate).await?;
        let first = load.claim(1).await?;
        if first.figures.failures == 0 {
            line("recovery: the first claim after its end", begun.elapsed());
            return Ok(load);
        }
        if begun.elapsed() > CLAIMING_MAX {
            return Err(fault::fault("the recovered group makes no claims"));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn compare(folder: &Path, saved: &Saved, serving: &Serving) -> Outcome<()> {
    let etcd = etcd::measure(folder, saved.bytes).await?;
    println!("{:<34} {:>10} {:>10} {:>8}", "", "berth", "etcd", "ratio");
    let size = [saved.bytes, etcd.bytes].map(mib);
    let ratio = size[0] / size[1];
    println!(
        "{:<34} {:>10.1} {:>10.1} {ratio:>8.2}",
        "size, MiB", size[0], size[1]
    );
    for (what, berth, etcd) in [
        ("backup or snapshot save, ms", saved.took, etcd.save),
        ("restore: the command, ms", serving.command, etcd.restore),
        ("restore: a member serves, ms", serving.start, etcd.serve),
        (
            "restore: both together, ms",
            serving.command + serving.start,
            etcd.restore + etcd.serve,
        ),
    ] {
        let [berth, etcd] = [berth, etcd].map(|time| time.as_secs_f64() * 1000.0);
        println!(
            "{what:<34} {berth:>10.0} {etcd:>10.0} {:>8.2}",
            berth / etcd
        );
    }
    Ok(())
}

fn line(what: &str, time: Duration) {
    println!("{what:<34} {:>10.0} ms", time.as_secs_f64() * 1000.0);
}

fn claims(what: &str, figures: &Figures, usual: Option<&Figures>) {
    let [p50, p99] = [50, 99].map(|percent| figures.percentile_ms(percent));
    let ratio = usual.map(|usual| p99 / usual.percentile_ms(99));
    let ratio = ratio.map(|ratio| format!(", {ratio:.2} times the usual p99"));
    println!(
        "claims {what:<27} {p50:>10.1} ms p50, {p99:.1} ms p99{}; {} claims, {:.0}/s, {} failed",
        ratio.unwrap_or_default(),
        figures.calls(),
        figures.rate(),
        figures.failures
    );
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Returns what else this machine does.
fn load_average() -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    format!("{processors} processors, load {load} before")
}

/// Returns the folder of the build: on a disk, not in memory.
fn build_folder() -> Outcome<PathBuf> {
    let program = std::env::current_exe()?;
    Ok(program
        .parent()
        .map_or_else(std::env::temp_dir, Path::to_path_buf))
}
