//! Measures durable commits per second of one and of three members in one process.
//!
//! Real disks, real gRPC on loopback between the members, a toy machine with 100-byte values, and
//! a closed loop: each client has one command in flight. It prints one line per case.
//!
//! ```text
//! cargo run --release -p berth-replication --example commits [seconds] [folder]
//! ```

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use berth_replication::Config;
use berth_replication::runtime::Settings;
use berth_testkit::replication::group::Group;
use berth_testkit::replication::set;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds: f64 = arguments.next().map_or(Ok(3.0), |text| text.parse())?;
    let base = arguments
        .next()
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    println!("members clients  commits/s    p50 us    p99 us  cpu us/commit");
    for members in [1, 3] {
        for clients in [1, 8, 64, 256] {
            let folder = tempfile::tempdir_in(&base)?;
            let duration = Duration::from_secs_f64(seconds);
            runtime.block_on(measure(folder.path(), members, clients, duration));
        }
    }
    Ok(())
}

async fn measure(folder: &Path, members: u64, clients: usize, duration: Duration) {
    let settings = Settings {
        replica: Config::new(0, ""),
        ..Settings::default()
    };
    let group = Group::start_with(folder, members, settings).await;
    let handle = group.leader().await;
    let started = Instant::now();
    let cpu_before = cpu();
    let tasks: Vec<_> = (0..clients)
        .map(|client| {
            let handle = handle.clone();
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                for n in 0_u64.. {
                    let asked = Instant::now();
                    if asked.duration_since(started) > duration {
                        break;
                    }
                    let command = set(format!("client{client}-{}", n % 1000), format!("{n:0100}"));
                    handle.propose(command).await.expect("a lasting leader");
                    latencies.push(asked.elapsed());
                }
                latencies
            })
        })
        .collect();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await.expect("no panic"));
    }
    let elapsed = started.elapsed();
    let cpu_used = cpu() - cpu_before;
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize].as_micros();
    println!(
        "{members:7} {clients:7} {:10.0} {:9} {:9} {:14.1}",
        latencies.len() as f64 / elapsed.as_secs_f64(),
        at(0.5),
        at(0.99),
        cpu_used.as_micros() as f64 / latencies.len() as f64,
    );
    group.stop().await;
}

/// Returns the processor time that this process has used.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split(' ').collect();
    let ticks: u64 = [12, 13]
        .iter()
        .filter_map(|at| fields.get(*at)?.parse::<u64>().ok())
        .sum();
    // Linux counts in hundredths of a second here.
    Duration::from_millis(ticks * 10)
}
