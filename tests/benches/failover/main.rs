//! How long nobody can claim after the leader was killed; beside it, in the same run, etcd's puts.
//!
//! Goal: no worse than etcd. Method: three members of each as processes with the same heartbeats
//! and election timeouts; clients write without a pause; the leader gets SIGKILL. It is measured
//! when the first client, and when each client, is acknowledged a write that it sent after the
//! kill. The killed member is started again and has caught up before the next round; the rounds of
//! both alternate. Not a test: it passes no judgement.
//!
//! ```text
//! cargo bench -p berth-tests --bench failover -- [--rounds N] [--clients N]
//! ```

mod berth;
mod etcd;
mod group;
mod settings;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use group::{Group, Round};

/// What to measure.
#[derive(Debug, Parser)]
struct Options {
    /// How often each side loses its leader
    #[arg(long, default_value_t = 50)]
    rounds: usize,
    /// How many clients write
    #[arg(long, default_value_t = 8)]
    clients: usize,
    /// Leave etcd out
    #[arg(long)]
    without_etcd: bool,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    // The members are this program again: a benchmark has no binaries of other packages.
    if let Some(code) = berth::become_member() {
        return code;
    }
    let options = Options::parse();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    match runtime.block_on(measure(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(options: &Options) -> anyhow::Result<()> {
    let folder = tempfile::Builder::new()
        .prefix("berth-failover")
        .tempdir_in(build_folder()?)?;
    let mut peer = match !options.without_etcd && etcd::is_installed() {
        true => Some(etcd::Etcd::start(folder.path())?),
        false => {
            println!("etcd is left out: it is not installed, or was not wanted");
            None
        }
    };
    let mut berth = berth::Berth::start(folder.path()).await?;
    let (mut of_etcd, mut of_berth) = (Vec::new(), Vec::new());
    for number in 0..options.rounds {
        if let Some(etcd) = &mut peer {
            of_etcd.push(lose(etcd, number, options.clients).await?);
        }
        of_berth.push(lose(&mut berth, number, options.clients).await?);
    }
    report(options, &of_etcd, &of_berth);
    Ok(())
}

async fn lose<G: Group>(group: &mut G, number: usize, clients: usize) -> anyhow::Result<Round> {
    let round = group::round(group, clients).await?;
    let first = round.written.iter().min().copied().unwrap_or_default();
    eprintln!(
        "round {}: {}: elected after {} ms, written after {} ms",
        number + 1,
        G::NAME,
        round.elected.as_millis(),
        first.as_millis()
    );
    Ok(round)
}

fn report(options: &Options, of_etcd: &[Round], of_berth: &[Round]) {
    println!(
        "{} rounds, {} clients, 3 members, heartbeat {} ms, election {} ms",
        options.rounds,
        options.clients,
        settings::HEARTBEAT_MS,
        settings::ELECTION_MS
    );
    println!(
        "{:<34} {:>8} {:>8} {:>8}   to etcd: p50 p99 max",
        "ms after the kill", "p50", "p99", "max"
    );
    type Taken = fn(&Round) -> Vec<Duration>;
    let rows: [(&str, Taken); 3] = [
        ("another leader is known", |r| vec![r.elected]),
        ("first client has written", |r| {
            r.written.iter().min().copied().into_iter().collect()
        }),
        ("each client has written", |r| r.written.clone()),
    ];
    for (what, taken) in rows {
        let etcd = Spread::of(of_etcd.iter().flat_map(taken));
        let berth = Spread::of(of_berth.iter().flat_map(taken));
        if let Some(etcd) = &etcd {
            etcd.print(&format!("etcd: {what}"), None);
        }
        if let Some(berth) = &berth {
            berth.print(&format!("berth: {what}"), etcd.as_ref());
        }
    }
}

/// Median, 99th part of a hundred and greatest, in milliseconds.
struct Spread([f64; 3]);

impl Spread {
    fn of(times: impl Iterator<Item = Duration>) -> Option<Self> {
        let mut times: Vec<Duration> = times.collect();
        times.sort_unstable();
        let last = times.len().checked_sub(1)?;
        let at = |part: usize| times[(last * part).div_ceil(100)].as_secs_f64() * 1000.0;
        Some(Self([at(50), at(99), at(100)]))
    }

    fn print(&self, what: &str, to: Option<&Self>) {
        let [p50, p99, max] = self.0;
        let ratios = to.map(|to| {
            let ratio = |i: usize| self.0[i] / to.0[i];
            format!("{:.2} {:.2} {:.2}", ratio(0), ratio(1), ratio(2))
        });
        println!(
            "{what:<34} {p50:>8.0} {p99:>8.0} {max:>8.0}   {}",
            ratios.unwrap_or_default()
        );
    }
}

/// Returns the folder of the build: on a disk, not in memory.
fn build_folder() -> anyhow::Result<std::path::PathBuf> {
    let program = std::env::current_exe()?;
    Ok(program
        .parent()
        .map_or_else(std::env::temp_dir, std::path::Path::to_path_buf))
}
