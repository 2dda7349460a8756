//! Many live migrations at once, and where their time goes.
//!
//! Schedulers, a conductor and simulated hosts in this process, each with a port of its own; every
//! message goes over gRPC. All VMs are booted. Some are moved one after another, then all are asked to
//! move at the same moment. What each step took is read from the operations' logs, which are in the
//! replicated state; what the hypervisor's part was, from the conductor's own log. At the end it is
//! checked that nothing is used twice and nothing is left over.
//!
//! ```sh
//! cargo bench -p berth-tests --bench migrations                    # 1,000 VMs on 200 hosts
//! cargo bench -p berth-tests --bench migrations -- --vms 100 --hosts 20 --schedulers 3 --durable
//! ```

mod phases;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use berth_cli::dev;
use berth_cli::output::Format;
use berth_cli::session::Session;
use berth_domain::claim::{Claim, State as ClaimState};
use berth_domain::operation::{Mark, Operation, Outcome, Step};
use berth_domain::vm::{State as VmState, Vm};
use berth_proto::conductor::v1::{CreateVmRequest, MigrateVmRequest};
use berth_proto::operation::v1::GetOperationRequest;
use berth_proto::operation::v1::operation_service_client::OperationServiceClient;
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::scheduler::v1::{CreateFlavorRequest, ListClaimsRequest, ListVmsRequest};
use berth_proto::types::v1 as wire;
use clap::Parser;
use phases::Heard;
use tokio::task::JoinSet;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// How long a simulated transfer takes.
const TRANSFER_MS: u64 = 200;
/// When it is given up.
const PATIENCE: Duration = Duration::from_secs(600);

/// What to measure.
#[derive(Debug, Parser)]
struct Options {
    /// Guests, all of which move at once
    #[arg(long, default_value_t = 1000)]
    vms: u32,
    /// Simulated hosts
    #[arg(long, default_value_t = 200)]
    hosts: u16,
    /// Schedulers
    #[arg(long, default_value_t = 1)]
    schedulers: u16,
    /// How many guests are moved before that, one after another
    #[arg(long, default_value_t = 100)]
    alone: u32,
    /// Keep the data on the disk of the build, not in memory
    #[arg(long)]
    durable: bool,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let heard = Heard::default();
    let filter = Targets::new().with_target(phases::TARGET, tracing::Level::INFO);
    tracing_subscriber::registry()
        .with(heard.clone().with_filter(filter))
        .init();
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(run(&options, &heard))
}

/// Returns a folder beside this program, on the disk of the build.
fn folder() -> anyhow::Result<tempfile::TempDir> {
    let program = std::env::current_exe()?;
    let beside: PathBuf = program.parent().context("a folder")?.into();
    Ok(tempfile::Builder::new()
        .prefix("berth-migrations")
        .tempdir_in(beside)?)
}

async fn run(options: &Options, heard: &Heard) -> anyhow::Result<()> {
    let Options { vms, hosts, .. } = *options;
    let folder = options.durable.then(folder).transpose()?;
    let plan = dev::Plan {
        schedulers: options.schedulers,
        hosts,
        port: 0,
        data_dir: folder.as_ref().map(|folder| folder.path().to_owned()),
        transfer_ms: TRANSFER_MS,
        ephemeral: !options.durable,
        placement: None,
        page: None,
    };
    println!("{hosts} hosts are started");
    let cluster = dev::Cluster::start(&plan).await?;
    let session = cluster.session(Format::Json)?;
    flavor(&session, "pinned", ("hw:cpu_policy", "dedicated")).await?;
    flavor(&session, "floating", ("hw:numa_nodes", "1")).await?;

    let begin = Instant::now();
    let booted = boot(&session, vms).await?;
    follow(&session, &booted).await?;
    println!(
        "{vms} VMs were booted in {:.1} s",
        begin.elapsed().as_secs_f64()
    );

    for number in 0..options.alone.min(vms) {
        let (moving, _) = migrate(&session, number..number + 1).await?;
        follow(&session, &moving).await?;
    }
    println!("one migration after another:");
    heard.print();

    let begin = Instant::now();
    let (moving, refused) = migrate(&session, 0..vms).await?;
    let asked = begin.elapsed();
    let done = follow(&session, &moving).await?;
    println!(
        "{} migrations were begun in {:.1} s and had ended after {:.1} s; {refused} found no host",
        moving.len(),
        asked.as_secs_f64(),
        begin.elapsed().as_secs_f64()
    );
    report(&done);
    heard.print();
    check(&session, vms).await?;
    println!("nothing is used twice, nothing is left over");
    cluster.stop().await;
    Ok(())
}

async fn flavor(session: &Session, name: &str, spec: (&str, &str)) -> anyhow::Result<()> {
    let request = CreateFlavorRequest {
        flavor: Some(wire::Flavor {
            name: format!("flavors/{name}"),
            vcpus: 1,
            memory_mib: 64,
            extra_specs: [(spec.0.to_owned(), spec.1.to_owned())].into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let make = |channel| {
        let request = request.clone();
        async move {
            SchedulerServiceClient::new(channel)
                .create_flavor(request)
                .await
        }
    };
    session.scheduler(make).await?;
    Ok(())
}

/// Asks for all VMs, many at a time; returns their operations.
async fn boot(session: &Session, vms: u32) -> anyhow::Result<Vec<String>> {
    let client = session.conductor().await?;
    let mut asked = JoinSet::new();
    for number in 0..vms {
        let mut client = client.clone();
        asked.spawn(async move {
            let kernel = wire::KernelBoot {
                kernel: "vmlinuz".to_owned(),
                initrd: "initrd".to_owned(),
                cmdline: String::new(),
            };
            let template = wire::VmTemplate {
                // Half of them have a CPU of their own, so that there are enough for all to move.
                flavor: match number % 2 {
                    0 => "flavors/pinned".to_owned(),
                    _ => "flavors/floating".to_owned(),
                },
                boot: Some(wire::BootSource {
                    source: Some(wire::boot_source::Source::Kernel(kernel)),
                }),
                ..Default::default()
            };
            let request = CreateVmRequest {
                vm: format!("vms/vm{number}"),
                template: Some(template),
                ..Default::default()
            };
            client.create_vm(request).await
        });
    }
    let mut operations = Vec::new();
    while let Some(answer) = asked.join_next().await {
        let operation = answer??.into_inner().operation.context("an operation")?;
        operations.push(operation.name);
    }
    Ok(operations)
}

/// Asks for migrations at the same moment; returns their operations, and how many were refused.
async fn migrate(session: &Session, vms: Range<u32>) -> anyhow::Result<(Vec<String>, usize)> {
    let client = session.conductor().await?;
    let mut asked = JoinSet::new();
    for number in vms {
        let mut client = client.clone();
        asked.spawn(async move {
            let request = MigrateVmRequest {
                vm: format!("vms/vm{number}"),
                ..Default::default()
            };
            client.migrate_vm(request).await
        });
    }
    let (mut operations, mut refused) = (Vec::new(), 0);
    while let Some(answer) = asked.join_next().await {
        match answer? {
            Ok(answer) => {
                let operation = answer.into_inner().operation.context("an operation")?;
                operations.push(operation.name);
            }
            Err(status) if status.code() == tonic::Code::ResourceExhausted => refused += 1,
            Err(status) => return Err(status.into()),
        }
    }
    Ok((operations, refused))
}

/// Waits until operations have ended.
async fn follow(session: &Session, names: &[String]) -> anyhow::Result<Vec<Operation>> {
    let deadline = Instant::now() + PATIENCE;
    let mut done = Vec::new();
    for name in names {
        loop {
            let request = GetOperationRequest {
                name: name.clone(),
                ..Default::default()
            };
            let get = |channel| {
                let request = request.clone();
                async move {
                    OperationServiceClient::new(channel)
                        .get_operation(request)
                        .await
                }
            };
            let answer = session.scheduler(get).await?;
            let operation: Operation = answer.operation.context("an operation")?.try_into()?;
            if operation.is_done() {
                done.push(operation);
                break;
            }
            ensure!(Instant::now() < deadline, "{name} goes on and on");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(done)
}

/// Prints what each step took, from the entry before it in the log.
fn report(operations: &[Operation]) {
    let mut took: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    let mut failed = 0;
    for operation in operations {
        failed += usize::from(operation.outcome != Some(Outcome::Succeeded));
        let mut before = operation.created_at.0;
        for entry in &operation.log {
            let phase = phase(entry.step, &entry.mark);
            took.entry(phase).or_default().push(entry.at.0 - before);
            before = entry.at.0;
        }
        let ended = operation.ended_at.map_or(before, |at| at.0);
        took.entry("all")
            .or_default()
            .push(ended - operation.created_at.0);
    }
    println!("{failed} did not arrive");
    println!(
        "{:<36} {:>8} {:>8} {:>8}",
        "phase", "p50 ms", "p99 ms", "max ms"
    );
    for (phase, mut times) in took {
        times.sort_unstable();
        let at = |part: usize| times[(times.len() - 1) * part / 100];
        println!("{phase:<36} {:>8} {:>8} {:>8}", at(50), at(99), at(100));
    }
}

fn phase(step: Step, mark: &Mark) -> &'static str {
    match (step, mark) {
        (_, Mark::Failed(_) | Mark::UndoStarted | Mark::Undone) => "9 refused or undone",
        (Step::Claim, _) => "0 claim",
        (Step::CheckDestination, _) => "1 check destination",
        (Step::CheckSource, _) => "2 check source",
        (Step::FitDestination, _) => "3 fit destination",
        (Step::PreLiveMigration, Mark::Started) => "4 begin to prepare",
        (Step::PreLiveMigration, Mark::Succeeded) => "5 prepare destination",
        (Step::LiveMigration, Mark::Started) => "6 point of no return",
        (Step::LiveMigration, Mark::Succeeded) => "7 source has begun",
        (Step::Settle, _) => "8 transfer, and settle where it is",
        (
            Step::Spawn
            | Step::Destroy
            | Step::StopSource
            | Step::StartDestination
            | Step::StopDestination
            | Step::StartSource
            | Step::Stop
            | Step::Start
            | Step::MakeDisks
            | Step::CopyDisk
            | Step::PublishImage
            | Step::FetchDisks
            | Step::DropSource
            | Step::DropDestination,
            _,
        ) => "of another operation",
    }
}

/// Every VM runs on one claim, and no two claims share a CPU.
async fn check(session: &Session, number: u32) -> anyhow::Result<()> {
    let mut vms: Vec<Vm> = Vec::new();
    let mut claims: Vec<Claim> = Vec::new();
    let mut token = String::new();
    loop {
        let request = ListVmsRequest {
            page_token: token,
            ..Default::default()
        };
        let list = |channel| {
            let request = request.clone();
            async move { SchedulerServiceClient::new(channel).list_vms(request).await }
        };
        let answer = session.scheduler(list).await?;
        for vm in answer.vms {
            vms.push(vm.try_into()?);
        }
        token = answer.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    loop {
        let request = ListClaimsRequest {
            page_token: token,
            ..Default::default()
        };
        let list = |channel| {
            let request = request.clone();
            async move {
                SchedulerServiceClient::new(channel)
                    .list_claims(request)
                    .await
            }
        };
        let answer = session.scheduler(list).await?;
        for claim in answer.claims {
            claims.push(claim.try_into()?);
        }
        token = answer.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    ensure!(vms.len() == number as usize, "{} VMs are left", vms.len());
    ensure!(claims.len() == vms.len(), "{} claims", claims.len());
    let mut taken = BTreeSet::new();
    for claim in &claims {
        ensure!(
            claim.state == ClaimState::Active,
            "a claim is left: {claim:?}"
        );
        for cpu in claim.assignment.pins().values() {
            ensure!(
                taken.insert((claim.host.clone(), *cpu)),
                "{cpu:?} is used twice"
            );
        }
    }
    for vm in &vms {
        ensure!(
            vm.state == VmState::Active,
            "vm {} is {:?}",
            vm.name,
            vm.state
        );
    }
    Ok(())
}
