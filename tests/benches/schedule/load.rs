//! The load: 1,000 hosts of 8 cells, 70 % of their dedicated CPUs taken, and clients that ask for
//! one more guest each, one after another.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use berth_domain::cpu_set::{CpuId, CpuSet};
use berth_domain::topology::{CellId, HostCell, HostTopology, PagePool, SocketId};

use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::host::v1::{HostReport, RegisterHostRequest};
use berth_proto::operation::v1::mark::Kind as MarkKind;
use berth_proto::operation::v1::operation_service_client::OperationServiceClient;
use berth_proto::operation::v1::{
    AdvanceRequest, CompleteBoot, Effect, Mark, Operation, Step, effect,
};
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::scheduler::v1::{BeginDeleteRequest, CreateFlavorRequest, ScheduleVmRequest};
use berth_proto::types::v1 as wire;
use tokio::sync::mpsc;
use tonic::transport::Channel;
use uuid::Uuid;

use crate::cluster::Cluster;
use crate::figures::Figures;

/// Cells of a host.
const CELLS: u32 = 8;
/// Dedicated CPUs of a cell.
const CPUS: u32 = 16;
/// vCPUs of the guests that load the hosts: one a cell, so 11 of 16, about 70 %.
const LOAD_VCPUS: u32 = 11;
/// How many calls prepare and clear the hosts at once.
const BACKGROUND: usize = 64;

/// A cluster with loaded hosts.
pub(crate) struct Load {
    channels: Vec<Channel>,
}

/// A guest that was scheduled in a measured phase.
pub(crate) struct Scheduled {
    vm: String,
    operation: String,
    epoch: u64,
}

impl Load {
    /// Registers `hosts` hosts and fills 70 % of their dedicated CPUs with running guests.
    pub(crate) async fn prepare(cluster: &Cluster, hosts: usize) -> anyhow::Result<Self> {
        let mut channels = Vec::new();
        for _ in 0..8 {
            channels.push(cluster.leader().await?);
        }
        let load = Self { channels };
        let mut scheduler = SchedulerServiceClient::new(load.channels[0].clone());
        for (name, vcpus) in [("load", LOAD_VCPUS), ("one", 1)] {
            let flavor = wire::Flavor {
                name: format!("flavors/{name}"),
                vcpus,
                memory_mib: 128,
                disk_gib: 0,
                extra_specs: [("hw:cpu_policy".to_owned(), "dedicated".to_owned())].into(),
            };
            let request = CreateFlavorRequest {
                flavor: Some(flavor),
                request_id: String::new(),
            };
            scheduler.create_flavor(request).await?;
        }
        let names: Vec<usize> = (0..hosts).collect();
        load.each(names, |channel, number| async move {
            HostServiceClient::new(channel)
                .register_host(host(number))
                .await?;
            Ok(())
        })
        .await?;
        let guests: Vec<usize> = (0..hosts * CELLS as usize).collect();
        load.each(guests, |channel, number| async move {
            let vm = format!("vms/load-{number}");
            let wished = Some(format!("hosts/h{:04}", number / CELLS as usize));
            let guest = schedule(&channel, vm, "load", wished).await?;
            run(&channel, &guest).await
        })
        .await?;
        Ok(load)
    }

    /// Has `clients` clients schedule guests one after another for `time`.
    pub(crate) async fn schedule(
        &self,
        clients: usize,
        time: Duration,
    ) -> anyhow::Result<(Figures, Vec<Scheduled>)> {
        let phase = Uuid::new_v4().simple().to_string();
        let start = Instant::now();
        let mut tasks = Vec::new();
        for client in 0..clients {
            let channel = self.channels[client % self.channels.len()].clone();
            let phase = phase[..8].to_owned();
            tasks.push(tokio::spawn(async move {
                let mut figures = Figures::new();
                let mut guests = Vec::new();
                while start.elapsed() < time {
                    let vm = format!(
                        "vms/m-{phase}-{client}-{}",
                        guests.len() as u64 + figures.failures
                    );
                    let begun = Instant::now();
                    match schedule(&channel, vm, "one", None).await {
                        Ok(guest) => {
                            figures.note(begun.elapsed());
                            guests.push(guest);
                        }
                        Err(error) => {
                            if figures.failures == 0 {
                                eprintln!("a call failed: {error:#}");
                            }
                            figures.failures += 1;
                        }
                    }
                }
                (figures, guests)
            }));
        }
        let mut all = Figures::new();
        let mut guests = Vec::new();
        for task in tasks {
            let (figures, scheduled) = task.await?;
            all.add(&figures);
            guests.extend(scheduled);
        }
        all.end(start.elapsed());
        Ok((all, guests))
    }

    /// Gives back what a measured phase claimed, so that each phase meets the same load.
    pub(crate) async fn release(&self, guests: Vec<Scheduled>) -> anyhow::Result<()> {
        self.each(guests, |channel, guest| async move {
            let given_up = wire::Refusal {
                code: wire::refusal::Code::Cancelled.into(),
                reason: "CANCELLED".to_owned(),
                message: "the measurement is over".to_owned(),
                ..Default::default()
            };
            let effect = effect::Effect::FailBoot(given_up);
            advance(
                &channel,
                &guest,
                Step::Claim,
                MarkKind::Undone,
                Some(effect),
            )
            .await?;
            let request = BeginDeleteRequest {
                vm: guest.vm,
                ..lease_of_delete()
            };
            SchedulerServiceClient::new(channel)
                .begin_delete(request)
                .await?;
            Ok(())
        })
        .await
    }

    /// Does `work` for all `items`, [`BACKGROUND`] at a time.
    async fn each<T, F, W>(&self, items: Vec<T>, work: W) -> anyhow::Result<()>
    where
        T: Send + 'static,
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
        W: Fn(Channel, T) -> F + Send + Sync + 'static,
    {
        let work = Arc::new(work);
        let (sender, receiver) = mpsc::channel(BACKGROUND);
        let receiver = Arc::new(tokio::sync::Mutex::new(receiver));
        let mut workers = Vec::new();
        for number in 0..BACKGROUND {
            let channel = self.channels[number % self.channels.len()].clone();
            let (receiver, work) = (receiver.clone(), work.clone());
            workers.push(tokio::spawn(async move {
                loop {
                    let next = receiver.lock().await.recv().await;
                    let Some(item) = next else {
                        return anyhow::Ok(());
                    };
                    work(channel.clone(), item).await?;
                }
            }));
        }
        for item in items {
            if sender.send(item).await.is_err() {
                break;
            }
        }
        drop(sender);
        for worker in workers {
            worker.await??;
        }
        Ok(())
    }
}

async fn schedule(
    channel: &Channel,
    vm: String,
    flavor: &str,
    host: Option<String>,
) -> anyhow::Result<Scheduled> {
    let kernel = wire::KernelBoot {
        kernel: "vmlinuz".to_owned(),
        initrd: "initrd".to_owned(),
        cmdline: "console=ttyS0".to_owned(),
    };
    let request = ScheduleVmRequest {
        vm: vm.clone(),
        template: Some(wire::VmTemplate {
            flavor: format!("flavors/{flavor}"),
            boot: Some(wire::BootSource {
                source: Some(wire::boot_source::Source::Kernel(kernel)),
            }),
            ..Default::default()
        }),
        requested_host: host.unwrap_or_default(),
        conductor: "services/bench".to_owned(),
        lease_ttl: Some(prost_types::Duration {
            seconds: 600,
            nanos: 0,
        }),
        request_id: Uuid::now_v7().to_string(),
        ..Default::default()
    };
    let answer = SchedulerServiceClient::new(channel.clone())
        .schedule_vm(request)
        .await?;
    let Operation { name, lease, .. } = answer
        .into_inner()
        .operation
        .context("an answer has an operation")?;
    let epoch = lease.context("a running operation has a lease")?.epoch;
    Ok(Scheduled {
        vm,
        operation: name,
        epoch,
    })
}

/// Notes that the guest runs, as its conductor would.
async fn run(channel: &Channel, guest: &Scheduled) -> anyhow::Result<()> {
    advance(channel, guest, Step::Spawn, MarkKind::Started, None).await?;
    let effect = effect::Effect::CompleteBoot(CompleteBoot {});
    advance(
        channel,
        guest,
        Step::Spawn,
        MarkKind::Succeeded,
        Some(effect),
    )
    .await
}

async fn advance(
    channel: &Channel,
    guest: &Scheduled,
    step: Step,
    mark: MarkKind,
    effect: Option<effect::Effect>,
) -> anyhow::Result<()> {
    let request = AdvanceRequest {
        operation: guest.operation.clone(),
        epoch: guest.epoch,
        step: step.into(),
        mark: Some(Mark {
            kind: mark.into(),
            refusal: None,
        }),
        effect: effect.map(|effect| Effect {
            effect: Some(effect),
        }),
        request_id: String::new(),
    };
    OperationServiceClient::new(channel.clone())
        .advance(request)
        .await?;
    Ok(())
}

fn lease_of_delete() -> BeginDeleteRequest {
    BeginDeleteRequest {
        conductor: "services/bench".to_owned(),
        lease_ttl: Some(prost_types::Duration {
            seconds: 600,
            nanos: 0,
        }),
        request_id: Uuid::now_v7().to_string(),
        ..Default::default()
    }
}

fn host(number: usize) -> RegisterHostRequest {
    RegisterHostRequest {
        name: format!("hosts/h{number:04}"),
        report: Some(HostReport {
            agent_address: "http://127.0.0.1:1".to_owned(),
            incarnation: Uuid::new_v4().to_string(),
            service_version: berth_domain::version::ServiceVersion::CURRENT.0,
            driver: "sim".to_owned(),
            migration_uri: format!("sim+tcp://h{number}"),
            topology: Some((&topology()).into()),
            memory_reserved_mib: 0,
            disk_gib: 1000,
            storage_id: String::new(),
            traits: Vec::new(),
            ..Default::default()
        }),
        request_id: String::new(),
    }
}

fn topology() -> HostTopology {
    let cells = (0..CELLS).map(|id| {
        let first = id * CPUS;
        let pair = |low: u32| [CpuId(low), CpuId(low + 1)].into_iter().collect::<CpuSet>();
        HostCell {
            id: CellId(id),
            socket: Some(SocketId(id / 4)),
            shared: CpuSet::new(),
            dedicated: (first..first + CPUS).map(CpuId).collect(),
            cores: (first..first + CPUS).step_by(2).map(pair).collect(),
            memory_mib: 65_536,
            pages: vec![PagePool {
                size_kib: 4,
                total: 16_777_216,
                reserved: 0,
            }],
        }
    });
    let distance = |a: u32, b: u32| if a == b { 10 } else { 20 };
    let distances = (0..CELLS)
        .map(|a| (0..CELLS).map(|b| distance(a, b)).collect())
        .collect();
    HostTopology::new(cells.collect(), distances).expect("the cells are in order")
}
