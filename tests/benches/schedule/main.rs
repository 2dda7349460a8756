//! How many placement decisions Berth claims per second, durable, over gRPC; beside it, in the
//! same run, the raw append-and-sync rate of the same disk and etcd's puts.
//!
//! Goal: know what a whole decision costs compared with one plain etcd put, with as many members,
//! clients and bytes. Method: real processes on one machine, closed loops of unary calls, 1,000
//! simulated hosts of 8 cells loaded to 70 %. Not a test: it passes no judgement.
//!
//! ```text
//! cargo bench -p berth-tests --bench schedule -- [--seconds N] [--hosts N] [--clients 1,8,64] [--members 1,3] [--tls ROUNDS] [--observed ROUNDS]
//! ```

mod cluster;
mod disk;
mod load;
mod observers;
mod report;

use std::process::ExitCode;
use std::time::Duration;

use berth_tests::measure::etcd;
use berth_tests::processes::Collector;
use clap::Parser;

use crate::observers::Observed;

/// What to measure.
#[derive(Debug, Parser)]
struct Options {
    /// Seconds of each measured phase
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Simulated hosts
    #[arg(long, default_value_t = 1000)]
    hosts: usize,
    /// Client counts, one phase each
    #[arg(long, value_delimiter = ',', default_value = "1,8,64,256")]
    clients: Vec<usize>,
    /// Member counts
    #[arg(long, value_delimiter = ',', default_value = "1,3")]
    members: Vec<usize>,
    /// Leave etcd out
    #[arg(long)]
    without_etcd: bool,
    /// Measure with mutual TLS too, in so many rounds that change between both
    #[arg(long, default_value_t = 0)]
    tls: usize,
    /// Measure with metrics, traces and the page too, in so many rounds that change between all
    #[arg(long, default_value_t = 0)]
    observed: usize,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// The bytes of one etcd value and one raw record: about what one decision adds to the log.
const VALUE_BYTES: usize = 1000;

fn main() -> ExitCode {
    // The members are this program again: a benchmark has no binaries of other packages.
    if let Some(code) = cluster::become_member() {
        return code;
    }
    let options = Options::parse();
    // It has a runtime of its own.
    let collector = observers::collector();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    match runtime.block_on(measure(&options, &collector)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(options: &Options, collector: &Collector) -> anyhow::Result<()> {
    let time = Duration::from_secs(options.seconds);
    let with_etcd = !options.without_etcd && etcd::is_installed();
    if !with_etcd {
        println!("etcd is left out: it is not installed, or was not wanted");
    }
    let folder = tempfile::Builder::new()
        .prefix("berth-bench")
        .tempdir_in(build_folder()?)?;
    report::head();
    let raw = disk::append_and_sync(folder.path(), VALUE_BYTES, time)?;
    report::row("append + fdatasync", 1, 1, &raw, None);
    for &members in &options.members {
        let mut puts = Vec::new();
        if with_etcd {
            let peer = etcd::Etcd::start(folder.path(), members).await?;
            for &clients in &options.clients {
                let figures = peer.put(clients, VALUE_BYTES, time).await?;
                report::row("etcd put", members, clients, &figures, Some(figures.rate()));
                puts.push(figures.rate());
            }
        }
        let mut cluster = cluster::Cluster::start(folder.path(), members).await?;
        eprintln!("loading {} hosts, {members} members", options.hosts);
        let mut load = load::Load::prepare(&cluster, options.hosts).await?;
        let name = "berth schedule-and-claim";
        phases(options, (&cluster, &load), name, &puts).await?;
        // The same state in the same directories; only what is between the processes changes.
        for _ in 0..options.tls {
            cluster.restart(true).await?;
            load.reconnect(&cluster).await?;
            phases(options, (&cluster, &load), "the same with TLS", &puts).await?;
            cluster.restart(false).await?;
            load.reconnect(&cluster).await?;
            phases(options, (&cluster, &load), name, &puts).await?;
        }
        for _ in 0..options.observed {
            for observed in Observed::ALL {
                let ports = cluster.restart_observed(observed, collector).await?;
                load.reconnect(&cluster).await?;
                let _observers = observed.begin(&ports);
                phases(options, (&cluster, &load), observed.name(), &puts).await?;
            }
        }
    }
    Ok(())
}

/// Measures with each number of clients.
async fn phases(
    options: &Options,
    (cluster, load): (&cluster::Cluster, &load::Load),
    name: &str,
    puts: &[f64],
) -> anyhow::Result<()> {
    let time = Duration::from_secs(options.seconds);
    for (index, &clients) in options.clients.iter().enumerate() {
        eprintln!("measuring with {clients} clients");
        let before = used(cluster);
        let (figures, vms) = load.schedule(clients, time).await?;
        // How busy the machine is otherwise changes the rate, and hardly this.
        let each: Vec<f64> = used(cluster)
            .iter()
            .zip(before)
            .map(|(after, before)| (after - before) * 1000.0 / f64::max(1.0, vms.len() as f64))
            .collect();
        let members = cluster.len();
        report::row(name, members, clients, &figures, puts.get(index).copied());
        report::cpu(&each);
        load.release(vms).await?;
    }
    Ok(())
}

/// Returns the processor time that each member and then the clients have used, in milliseconds.
fn used(cluster: &cluster::Cluster) -> Vec<f64> {
    let mut used = cluster.cpu_ms();
    used.push(cluster::cpu_ms("self"));
    used
}

/// Returns the folder of the build: on the disk that is to be measured, not in memory.
fn build_folder() -> anyhow::Result<std::path::PathBuf> {
    let program = std::env::current_exe()?;
    Ok(program
        .parent()
        .map_or_else(std::env::temp_dir, std::path::Path::to_path_buf))
}
