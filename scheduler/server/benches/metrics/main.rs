//! What metrics cost: a scrape of a member with a large state, and what a decision pays.
//!
//! Goal: with 10,000 hosts and 340,000 VMs, a scrape under 50 ms with fewer than 5,000 series; counting a
//! decision under one percent of it. Method: a generated state (`berth_testkit::state::scale`) is written as
//! the directory of a member of this process, which is scraped one after the other. Not a test: it passes no
//! judgement.
//!
//! ```text
//! cargo bench -p berth-scheduler --bench metrics -- [--hosts N] [--vms-per-host N]
//! ```

use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use berth_domain::version::ServiceVersion;
use berth_process::metrics::{Bounds, DurationsBy, Label as _, Pairs};
use berth_scheduler::{Config, Scheduler};
use berth_testkit::state::scale::{self, Size};
use clap::Parser;

#[path = "../common/member.rs"]
mod member;

/// How many scrapes are measured.
const SCRAPES: usize = 50;
/// How many decisions are counted.
const DECISIONS: u32 = 1_000_000;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// What to measure.
#[derive(Debug, Parser)]
struct Options {
    /// Number of hosts, each of 4 NUMA nodes
    #[arg(long, default_value_t = 10_000)]
    hosts: u64,
    /// Number of VMs that run on each host
    #[arg(long, default_value_t = 34)]
    vms_per_host: u64,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

berth_process::label! {
    enum Kind { One = "one", Two = "two", Three = "three", Four = "four" }
}

fn main() -> ExitCode {
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
    println!("counting a decision: {:.0} ns", counted_ns());
    let folder = tempfile::tempdir()?;
    let state = scale::state(Size {
        hosts: options.hosts,
        vms_per_host: options.vms_per_host,
        seed: 1,
        // Before the bound of VMs came.
        version: ServiceVersion(ServiceVersion::BOUNDED_RECORDS.0 - 1),
    });
    println!("{} hosts, {} VMs", state.hosts().len(), state.vms().len());
    let data_dir = folder.path().join("member");
    member::write(&data_dir, "127.0.0.1:1", &state)?;
    drop(state);
    let mut config = Config::new(&data_dir);
    config.listening.address = "127.0.0.1:0".to_owned();
    config.listening.metrics = Some("127.0.0.1:0".to_owned());
    config.liveness_limit_ms = 3_600_000;
    let member = Scheduler::start(config).await?;
    let address = member.metrics_address().ok_or("no address")?;
    let _member = tokio::spawn(member.run(std::future::pending::<()>()));
    // Until the objects of the state are counted.
    let text = loop {
        let (_, text) = tokio::task::spawn_blocking(move || scrape(address)).await??;
        if text.contains("\nberth_census_duration_seconds ") {
            break text;
        }
    };
    for line in text.lines() {
        let is_shown = [
            "berth_census_duration_seconds ",
            "berth_vms{state=\"active\"}",
        ];
        if is_shown.iter().any(|name| line.starts_with(name)) {
            println!("{line}");
        }
    }
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    println!("{series} series, {} bytes", text.len());
    let mut times = Vec::new();
    for _ in 0..SCRAPES {
        let (took, _) = tokio::task::spawn_blocking(move || scrape(address)).await??;
        times.push(took);
    }
    times.sort();
    println!(
        "scrapes: {:?} at best, {:?} at the median, {:?} at worst",
        times[0],
        times[SCRAPES / 2],
        times[SCRAPES - 1]
    );
    Ok(())
}

/// Returns the time of what a decision pays: two readings of the clock, and three additions.
fn counted_ns() -> f64 {
    let (ended, took) = (
        Pairs::<Kind, Kind>::default(),
        DurationsBy::<Kind>::new(Bounds::SHORT),
    );
    let begun = Instant::now();
    for number in 0..DECISIONS {
        let kind = black_box(Kind::ALL[number as usize % Kind::ALL.len()]);
        let decision = Instant::now();
        ended.of(kind, Kind::Two).increment();
        took.of(kind).observe(decision.elapsed());
    }
    begun.elapsed().as_secs_f64() / f64::from(DECISIONS) * 1e9
}

/// Scrapes, and returns how long it took from the connection to the last byte.
fn scrape(address: SocketAddr) -> std::io::Result<(Duration, String)> {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok((begun.elapsed(), text))
}
