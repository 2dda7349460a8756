//! What erasing a host's persistent memory costs everybody else: the time of a boot without any, of
//! one that claims another namespace, and of a look at the host, before and while its large namespaces
//! are being erased.
//!
//! A scheduler, a conductor and a simulated host as processes, asked over gRPC one after another. The
//! erasing itself is simulated, so what is measured is what is told and written down about it.
//!
//! ```sh
//! cargo bench -p berth-tests --bench erasing                 # 100 namespaces of 512 GiB
//! cargo bench -p berth-tests --bench erasing -- --namespaces 200 --rounds 100
//! ```

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use berth_cli::output::Format;
use berth_cli::session::Session;
use berth_proto::conductor::v1::{CreateVmRequest, DeleteVmRequest};
use berth_proto::host::v1::GetHostRequest;
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::operation::v1::GetOperationRequest;
use berth_proto::operation::v1::operation_service_client::OperationServiceClient;
use berth_proto::types::v1 as wire;
use berth_tests::processes::{Cluster, Host};
use clap::Parser;

/// The program that is all programs of Berth.
const PROGRAMS: &str = env!("CARGO_BIN_EXE_berth-programs");

/// The size of a namespace in MiB.
const NAMESPACE_MIB: u64 = 512 * 1024;

/// The size in MiB of those that are claimed meanwhile; there is one for each round.
const OTHER_MIB: u64 = 16;

/// How fast one is erased: so slowly that none is done while it is measured.
const ERASE_MIB_PER_S: u64 = 256;

/// How long one operation may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to measure.
#[derive(Debug, Parser)]
struct Options {
    /// Namespaces that are erased
    #[arg(long, default_value_t = 100)]
    namespaces: u32,
    /// How often each thing is measured
    #[arg(long, default_value_t = 150)]
    rounds: u32,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let cluster = cluster(&options);
    let flavors = [
        ("plain", "hw:numa_nodes=1"),
        ("large", "hw:pmem=LARGE"),
        ("other", "hw:pmem=OTHER"),
    ];
    for (name, spec) in flavors {
        let words = [
            "flavor",
            "create",
            name,
            "--vcpus",
            "1",
            "--memory-mib",
            "64",
        ];
        cluster.run(&[&words[..], &["--spec", spec]].concat());
    }
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(measure(&options, &cluster.addresses()))
}

fn cluster(options: &Options) -> Cluster {
    let (large, mut described) = namespaces("large", options.namespaces, NAMESPACE_MIB);
    let (other, more) = namespaces("other", options.rounds, OTHER_MIB);
    described.push_str(&more);
    let machine = "[[cells]]\nid = 0\nsocket = 0\ncpus = \"0-255\"\nmemory_mib = 1048576\n";
    let mut host = Host::described("h1", machine, "", "0-255").with_pmem(&[], "");
    host.machine_more = described;
    host.pmem_namespaces = format!("LARGE:{large},OTHER:{other}");
    host.erase_mib_per_s = ERASE_MIB_PER_S;
    let builder = Cluster::builder(PROGRAMS).schedulers(1).conductors(1);
    builder.host(host).start()
}

/// Returns the names of namespaces as a label lists them, and their description.
fn namespaces(name: &str, count: u32, size_mib: u64) -> (String, String) {
    let mut names = Vec::new();
    let mut described = String::new();
    for number in 0..count {
        let name = format!("{name}{number}");
        write!(
            described,
            "[[pmem]]\nname = {name:?}\nsize_mib = {size_mib}\nnuma_node = 0\n"
        )
        .expect("a string takes all");
        names.push(name);
    }
    (names.join("|"), described)
}

async fn measure(options: &Options, schedulers: &str) -> anyhow::Result<()> {
    let session = Session::new(&[schedulers.to_owned()], Format::Json)?;
    let rounds = options.rounds;
    for number in 0..options.namespaces {
        boot(&session, &format!("p{number}"), "large").await?;
    }
    println!("{} namespaces of 512 GiB are in use", options.namespaces);
    let before = figures(&session, rounds).await?;
    until(&session, "all are erased", |all, _| all == 0).await?;
    for number in 0..options.namespaces {
        delete(&session, &format!("p{number}")).await?;
    }
    until(&session, "erasing has begun", |_, begun| begun > 0).await?;
    let meanwhile = figures(&session, rounds).await?;
    let (left, _) = erasures(&session).await?;
    println!("{left} namespaces, the others among them, are being erased or wait for it");
    println!("| what | before: p50, p99 ms | while they are erased: p50, p99 ms | ratio of p99 |");
    println!("|---|---|---|---|");
    for (what, (before, meanwhile)) in ["boot", "boot with a namespace", "look at the host"]
        .iter()
        .zip(before.iter().zip(&meanwhile))
    {
        let ratio = percentile(meanwhile, 99) / percentile(before, 99);
        println!(
            "| {what} | {:.1}, {:.1} | {:.1}, {:.1} | {ratio:.2} |",
            percentile(before, 50),
            percentile(before, 99),
            percentile(meanwhile, 50),
            percentile(meanwhile, 99),
        );
    }
    Ok(())
}

/// Returns how long boots took, and looks at the host, in milliseconds.
async fn figures(session: &Session, rounds: u32) -> anyhow::Result<[Vec<f64>; 3]> {
    let mut figures = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (at, flavor) in ["plain", "other"].into_iter().enumerate() {
            let begin = Instant::now();
            boot(session, "vm", flavor).await?;
            figures[at].push(begin.elapsed().as_secs_f64() * 1000.0);
            delete(session, "vm").await?;
        }
        let begin = Instant::now();
        host(session).await?;
        figures[2].push(begin.elapsed().as_secs_f64() * 1000.0);
    }
    for figures in &mut figures {
        figures.sort_by(f64::total_cmp);
    }
    Ok(figures)
}

fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

async fn boot(session: &Session, vm: &str, flavor: &str) -> anyhow::Result<()> {
    let kernel = wire::KernelBoot {
        kernel: "vmlinuz".to_owned(),
        initrd: "initrd".to_owned(),
        cmdline: String::new(),
    };
    let request = CreateVmRequest {
        vm: format!("vms/{vm}"),
        template: Some(wire::VmTemplate {
            flavor: format!("flavors/{flavor}"),
            boot: Some(wire::BootSource {
                source: Some(wire::boot_source::Source::Kernel(kernel)),
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let mut conductor = session.conductor().await?;
    let answer = conductor.create_vm(request).await?.into_inner();
    ended(session, &answer.operation.context("an operation")?.name).await
}

async fn delete(session: &Session, vm: &str) -> anyhow::Result<()> {
    let request = DeleteVmRequest {
        vm: format!("vms/{vm}"),
        ..Default::default()
    };
    let mut conductor = session.conductor().await?;
    let answer = conductor.delete_vm(request).await?.into_inner();
    ended(session, &answer.operation.context("an operation")?.name).await
}

async fn ended(session: &Session, operation: &str) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let get = |channel| {
            let request = GetOperationRequest {
                name: operation.to_owned(),
                ..Default::default()
            };
            async move {
                OperationServiceClient::new(channel)
                    .get_operation(request)
                    .await
            }
        };
        let answer = session.scheduler(get).await?;
        let found = answer.operation.context("an operation")?;
        if found.done {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{operation} goes on and on");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn host(session: &Session) -> anyhow::Result<Vec<wire::Claim>> {
    let get = |channel| async move {
        let request = GetHostRequest {
            name: "hosts/h1".to_owned(),
            ..Default::default()
        };
        HostServiceClient::new(channel).get_host(request).await
    };
    Ok(session.scheduler(get).await?.claims)
}

/// Returns how many namespaces are not erased yet, and how many of those are known to be on the way.
async fn erasures(session: &Session) -> anyhow::Result<(usize, usize)> {
    let claims = host(session).await?;
    let all: Vec<_> = claims.iter().flat_map(|claim| &claim.erasures).collect();
    let begun = all.iter().filter(|erasure| erasure.erased_bytes > 0);
    Ok((all.len(), begun.count()))
}

/// Waits until `reached` holds of them.
async fn until(
    session: &Session,
    what: &str,
    reached: fn(usize, usize) -> bool,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (all, begun) = erasures(session).await?;
        if reached(all, begun) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
