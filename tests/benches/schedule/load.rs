//! The load: 1,000 hosts of 8 cells, 70 % of their dedicated CPUs taken, and clients that ask for
//! one more guest each, one after another.

use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::operation::v1::mark::Kind as MarkKind;
use berth_proto::operation::v1::{CompleteBoot, Step, effect};
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_testkit::guests::{self, CELLS, Scheduled, advance, host};
use berth_tests::measure::figures::Figures;
use tokio::sync::mpsc;
use tonic::transport::Channel;
use uuid::Uuid;

use crate::cluster::Cluster;

/// vCPUs of the guests that load the hosts: one a cell, so 11 of 16, about 70 %.
const LOAD_VCPUS: u32 = 11;
/// How many calls prepare and clear the hosts at once.
const BACKGROUND: usize = 64;

/// A cluster with loaded hosts.
pub(crate) struct Load {
    channels: Vec<Channel>,
}

impl Load {
    /// Registers `hosts` hosts and fills 70 % of their dedicated CPUs with running guests.
    pub(crate) async fn prepare(cluster: &Cluster, hosts: usize) -> anyhow::Result<Self> {
        let mut load = Self {
            channels: Vec::new(),
        };
        load.reconnect(cluster).await?;
        let mut scheduler = SchedulerServiceClient::new(load.channels[0].clone());
        for (name, vcpus) in [("load", LOAD_VCPUS), ("one", 1)] {
            scheduler.create_flavor(guests::flavor(name, vcpus)).await?;
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

    /// Connects anew, after the members were started again.
    pub(crate) async fn reconnect(&mut self, cluster: &Cluster) -> anyhow::Result<()> {
        self.channels.clear();
        for _ in 0..8 {
            self.channels.push(cluster.leader().await?);
        }
        Ok(())
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
                            figures.record(begun.elapsed());
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
        self.each(guests, guests::release).await
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
    let request = guests::request(&vm, flavor, host);
    let answer = SchedulerServiceClient::new(channel.clone())
        .schedule_vm(request)
        .await?;
    guests::scheduled(vm, answer.into_inner())
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
