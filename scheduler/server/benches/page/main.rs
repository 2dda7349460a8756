//! What the page costs: the time and the size of each view of a member with a large state, what a browser needs
//! for it, and how long an open view takes until it shows a change.
//!
//! Goals: a change is shown within 250 ms of its commit (p99, `--hosts 3 --vms-per-host 4`); at 10,000 hosts a
//! view is painted within a second, needs less than 150 MB, and follows 100 decisions a second. Method: a
//! generated state (`berth_testkit::state::scale`) is written as the directory of a member of this process;
//! Debian's Chromium shows its page. Member, clients and browser share the machine. Not a test: it passes no
//! judgement.
//!
//! ```text
//! cargo bench -p berth-scheduler --bench page -- [--hosts N] [--vms-per-host N] [--seconds N]
//! ```

mod changes;
#[path = "../common/fault.rs"]
mod fault;
#[path = "../common/member.rs"]
mod member;
mod painted;
mod times;
mod views;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use berth_domain::version::ServiceVersion;
use berth_scheduler::{Config, Scheduler};
use berth_testkit::browser::Browser;
use berth_testkit::state::scale::{self, Size};
use clap::Parser;
use tonic::transport::Endpoint;

use crate::fault::{Outcome, fault};

/// What to measure.
#[derive(Debug, Parser)]
struct Options {
    /// Number of hosts, each of 4 NUMA nodes
    #[arg(long, default_value_t = 10_000)]
    hosts: u64,
    /// Number of VMs that run on each host
    #[arg(long, default_value_t = 34)]
    vms_per_host: u64,
    /// For how many seconds 100 decisions each are made while a view is open; 0 for none
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Leave the browser out
    #[arg(long)]
    without_browser: bool,
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
    let host = state
        .hosts()
        .keys()
        .next()
        .ok_or_else(|| fault("no host"))?;
    let host = host.to_string();
    let data_dir = folder.path().join("member");
    member::write(&data_dir, "127.0.0.1:1", &state)?;
    drop(state);
    let mut config = Config::new(&data_dir);
    config.listening.address = "127.0.0.1:0".to_owned();
    config.page_listen = Some("127.0.0.1:0".to_owned());
    config.liveness_limit_ms = 3_600_000;
    let member = Scheduler::start(config).await?;
    let page = member.page_address().ok_or_else(|| fault("no page"))?;
    let grpc = member.address();
    let _member = tokio::spawn(member.run(std::future::pending::<()>()));
    tokio::task::spawn_blocking(move || until_leader(page)).await??;
    let views = host.clone();
    tokio::task::spawn_blocking(move || views::measure(page, &views)).await??;
    if options.without_browser {
        return Ok(());
    }
    let endpoint = Endpoint::from_shared(format!("http://{grpc}"))?;
    let channel = endpoint.tcp_nodelay(true).connect().await?;
    let profile = folder.path().join("profile");
    std::fs::create_dir(&profile)?;
    // Calls of the driver block; the member is served by the other threads meanwhile.
    tokio::task::block_in_place(|| {
        let browser = Browser::start(&profile);
        painted::measure(&browser, page, &host)?;
        let handle = tokio::runtime::Handle::current();
        println!();
        handle.block_on(changes::alone(&browser, page, &channel, &host))?;
        let paths = ["/", "/hosts"].iter().filter(|_| options.seconds > 0);
        for path in paths {
            let time = Duration::from_secs(options.seconds);
            handle.block_on(changes::loaded(&browser, page, &channel, path, time))?;
        }
        Ok(())
    })
}

/// Waits until the member leads.
fn until_leader(page: SocketAddr) -> Outcome<()> {
    while !views::get(page, "/vms")?.1.contains("from the leader") {}
    Ok(())
}
