//! What the page costs: the time and the size of each view of a member with a large state.
//!
//! Goal: at 10,000 hosts the view of all hosts comes in well under a second. Method: a generated state
//! (`berth_testkit::state::scale`) is written as the directory of a member of this process, of which views are
//! requested one after the other. Not a test: it passes no judgement. Not here: what a browser does with them.
//!
//! ```text
//! cargo bench -p berth-scheduler --bench page -- [--hosts N] [--vms-per-host N]
//! ```

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use berth_domain::version::ServiceVersion;
use berth_scheduler::{Config, Scheduler};
use berth_testkit::state::scale::{self, Size};
use clap::Parser;

#[path = "../common/member.rs"]
mod member;

/// How often each view is requested.
const REQUESTS: usize = 20;

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
    let folder = tempfile::tempdir()?;
    let state = scale::state(Size {
        hosts: options.hosts,
        vms_per_host: options.vms_per_host,
        seed: 1,
        // Before the bound of VMs came.
        version: ServiceVersion(ServiceVersion::BOUNDED_RECORDS.0 - 1),
    });
    println!("{} hosts, {} VMs", state.hosts().len(), state.vms().len());
    let host = state.hosts().keys().next().ok_or("no host")?.to_string();
    let data_dir = folder.path().join("member");
    member::write(&data_dir, "127.0.0.1:1", &state)?;
    drop(state);
    let mut config = Config::new(&data_dir);
    config.listening.address = "127.0.0.1:0".to_owned();
    config.page_listen = Some("127.0.0.1:0".to_owned());
    config.liveness_limit_ms = 3_600_000;
    let member = Scheduler::start(config).await?;
    let address = member.page_address().ok_or("no address")?;
    let _member = tokio::spawn(member.run(std::future::pending::<()>()));
    // Until it leads.
    let request = |path: String| tokio::task::spawn_blocking(move || get(address, &path));
    while !request("/vms".to_owned())
        .await??
        .1
        .contains("from the leader")
    {}
    println!(
        "{:<28} {:>9} {:>9} {:>9} {:>9}",
        "view", "bytes", "best", "median", "worst"
    );
    for path in [
        "/".to_owned(),
        "/hosts".to_owned(),
        "/hosts?by=aggregate".to_owned(),
        "/hosts?q=h00012".to_owned(),
        format!("/hosts/{host}"),
        "/vms".to_owned(),
    ] {
        let mut times = Vec::new();
        let mut bytes = 0;
        for _ in 0..REQUESTS {
            let (took, text) = request(path.clone()).await??;
            if !text.starts_with("HTTP/1.1 200 ") {
                return Err(text.into());
            }
            bytes = text.len();
            times.push(took);
        }
        times.sort();
        let ms = |at: usize| format!("{:.1} ms", times[at].as_secs_f64() * 1e3);
        println!(
            "{path:<28} {bytes:>9} {:>9} {:>9} {:>9}",
            ms(0),
            ms(REQUESTS / 2),
            ms(REQUESTS - 1)
        );
    }
    Ok(())
}

/// Requests a view; returns how long it took from the connection to the last byte.
fn get(address: SocketAddr, path: &str) -> std::io::Result<(Duration, String)> {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok((begun.elapsed(), text))
}
