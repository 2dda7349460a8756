//! Claims at a steady rate, however long each takes: its time counts from when it was due.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_testkit::guests::{self, Scheduled};
use tokio::task::JoinSet;
use tonic::transport::Channel;
use uuid::Uuid;

use crate::fault::Outcome;
use crate::figures::Figures;
use crate::group::Group;

/// How many claims wait for a response at most; others fail.
const WAITING_MAX: usize = 5_000;
/// How many claims are given back at once.
const RELEASED_AT_ONCE: usize = 64;
/// The flavor of the claims: two CPUs of their own.
const FLAVOR: &str = "d2";
const CHANNELS: usize = 8;

/// Clients of the leader.
pub(crate) struct Load {
    channels: Vec<Channel>,
    /// Claims a second.
    rate: u32,
}

/// What was claimed while something else went on.
pub(crate) struct Claimed<T> {
    pub(crate) figures: Figures,
    pub(crate) meanwhile: T,
    pub(crate) guests: Vec<Scheduled>,
}

impl Load {
    pub(crate) async fn new(group: &Group, rate: u32) -> Outcome<Self> {
        let leader = group.leader().await?;
        let mut channels = Vec::new();
        for _ in 0..CHANNELS {
            channels.push(group.connect(leader).await?);
        }
        Ok(Self { channels, rate })
    }

    /// Claims at the rate until `work` has ended.
    pub(crate) async fn during<T>(
        &self,
        work: impl Future<Output = Outcome<T>>,
    ) -> Outcome<Claimed<T>> {
        let ended = Arc::new(AtomicBool::new(false));
        let claims = Claims {
            channels: self.channels.clone(),
            interval: Duration::from_secs(1) / self.rate,
            ended: ended.clone(),
            count_max: u64::MAX,
        };
        let claims = tokio::spawn(claims.run());
        let meanwhile = work.await;
        ended.store(true, Ordering::Relaxed);
        let (figures, guests) = claims.await?;
        Ok(Claimed {
            figures,
            meanwhile: meanwhile?,
            guests,
        })
    }

    /// Makes so many claims at the rate.
    pub(crate) async fn claim(&self, count: u64) -> Outcome<Claimed<()>> {
        let claims = Claims {
            channels: self.channels.clone(),
            interval: Duration::from_secs(1) / self.rate,
            ended: Arc::default(),
            count_max: count,
        };
        let (figures, guests) = tokio::spawn(claims.run()).await?;
        Ok(Claimed {
            figures,
            meanwhile: (),
            guests,
        })
    }

    /// Gives claims back, so that each phase meets the same hosts.
    pub(crate) async fn release(&self, guests: Vec<Scheduled>) -> Outcome<()> {
        let mut releasing = JoinSet::new();
        for (number, guest) in guests.into_iter().enumerate() {
            if releasing.len() >= RELEASED_AT_ONCE
                && let Some(released) = releasing.join_next().await
            {
                released??;
            }
            let channel = self.channels[number % CHANNELS].clone();
            releasing.spawn(guests::release(channel, guest));
        }
        while let Some(released) = releasing.join_next().await {
            released??;
        }
        Ok(())
    }
}

/// Claims that are made one after another, without waiting for those before.
struct Claims {
    channels: Vec<Channel>,
    interval: Duration,
    ended: Arc<AtomicBool>,
    count_max: u64,
}

impl Claims {
    async fn run(self) -> (Figures, Vec<Scheduled>) {
        let phase = Uuid::new_v4().simple().to_string();
        let mut all = (Figures::default(), Vec::new());
        let mut waiting = JoinSet::new();
        let begun = tokio::time::Instant::now();
        let mut ticks = tokio::time::interval_at(begun, self.interval);
        for number in 0..self.count_max {
            let due = ticks.tick().await.into_std();
            if self.ended.load(Ordering::Relaxed) {
                break;
            }
            while let Some(done) = waiting.try_join_next() {
                count(&mut all, done.expect("a claim does not panic"));
            }
            if waiting.len() >= WAITING_MAX {
                all.0.failures += 1;
                continue;
            }
            let channel = self.channels[usize::try_from(number).unwrap_or(0) % CHANNELS].clone();
            waiting.spawn(claim(channel, format!("vms/m-{phase}-{number}"), due));
        }
        while let Some(done) = waiting.join_next().await {
            count(&mut all, done.expect("a claim does not panic"));
        }
        all.0.end(begun.elapsed());
        all
    }
}

type Claim = Outcome<(Duration, Scheduled)>;

fn count((figures, guests): &mut (Figures, Vec<Scheduled>), outcome: Claim) {
    match outcome {
        Ok((took, guest)) => {
            figures.record(took);
            guests.push(guest);
        }
        Err(error) => {
            if figures.failures == 0 {
                eprintln!("a claim failed: {error}");
            }
            figures.failures += 1;
        }
    }
}

async fn claim(channel: Channel, vm: String, due: Instant) -> Claim {
    let request = guests::request(&vm, FLAVOR, None);
    let response = SchedulerServiceClient::new(channel)
        .schedule_vm(request)
        .await?;
    let guest = guests::scheduled(vm, response.into_inner())?;
    Ok((due.elapsed(), guest))
}
