//! How long an open view takes until it shows a change: one after the other, and a hundred each second.
//!
//! A change is a claim. Its time counts from its request, so the decision and its commit are in it; it ends when
//! the document of the view has a revision that is no older.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use berth_proto::scheduler::v1::ListFlavorsRequest;
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_testkit::browser::Browser;
use berth_testkit::guests::{self, Scheduled};
use tokio::task::JoinSet;
use tonic::transport::Channel;
use uuid::Uuid;

use crate::fault::{Outcome, fault};
use crate::times::Times;

/// The flavor of the claims: two CPUs of their own.
const FLAVOR: &str = "d2";
/// How many changes are made one after the other.
const ALONE: usize = 200;
/// The time between two of them: the page is at rest when the next one comes.
const REST: Duration = Duration::from_millis(600);
/// The time between two changes under load.
const INTERVAL: Duration = Duration::from_millis(10);
/// Every so many changes under load one is followed until it is shown.
const FOLLOWED: usize = 10;
/// How long a view has to show the last change.
const SHOWN_MAX: Duration = Duration::from_secs(60);

/// Has the document keep when it came to each revision.
const KEEP: &str = "
    window.shown = [];
    const keep = () => {
        const revision = Number(document.getElementById('revision').textContent);
        const last = window.shown[window.shown.length - 1];
        if (!last || last[1] < revision) {
            window.shown.push([performance.timeOrigin + performance.now(), revision]);
        }
    };
    new MutationObserver(keep).observe(document.body, {childList: true, subtree: true});
    keep();";

/// A change whose showing is waited for.
struct Change {
    /// When it was requested.
    begun: f64,
    /// A revision of the state that has it.
    revision: u64,
}

/// The time since the epoch in milliseconds, as browsers count it.
fn now_ms() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs_f64() * 1e3
}

async fn claim(channel: Channel, vm: String, host: Option<String>) -> Outcome<Scheduled> {
    let request = guests::request(&vm, FLAVOR, host);
    let response = SchedulerServiceClient::new(channel)
        .schedule_vm(request)
        .await?;
    Ok(guests::scheduled(vm, response.into_inner())?)
}

/// Returns a revision that is no older than whatever was answered before.
async fn revision(channel: Channel) -> Outcome<u64> {
    let request = ListFlavorsRequest {
        page_size: 1,
        ..Default::default()
    };
    let response = SchedulerServiceClient::new(channel)
        .list_flavors(request)
        .await?;
    Ok(response.into_inner().revision)
}

/// Changes a host whose view is open, one change after the other, and prints the figures.
pub(crate) async fn alone(
    browser: &Browser,
    address: SocketAddr,
    channel: &Channel,
    host: &str,
) -> Outcome<()> {
    follow(browser, &format!("http://{address}/hosts/{host}"));
    let mut changes = Vec::new();
    for number in 0..ALONE {
        let begun = now_ms();
        let vm = format!("vms/alone-{number}");
        let guest = claim(channel.clone(), vm, Some(format!("hosts/{host}"))).await?;
        let revision = revision(channel.clone()).await?;
        changes.push(Change { begun, revision });
        tokio::time::sleep(REST).await;
        guests::release(channel.clone(), guest).await?;
        tokio::time::sleep(REST).await;
    }
    let shown = shown(browser, &changes).await?;
    print_delays(&format!("{ALONE} changes, each alone"), &changes, &shown)
}

/// Changes hosts at a steady rate while a view is open, and prints the figures.
pub(crate) async fn loaded(
    browser: &Browser,
    address: SocketAddr,
    channel: &Channel,
    path: &str,
    time: Duration,
) -> Outcome<()> {
    follow(browser, &format!("http://{address}{path}"));
    let before = browser.page_memory()?;
    let phase = Uuid::new_v4().simple().to_string();
    let mut ticks = tokio::time::interval(INTERVAL);
    let mut waiting = JoinSet::new();
    let count = time.as_millis() / INTERVAL.as_millis();
    for number in 0..usize::try_from(count)? {
        ticks.tick().await;
        let channel = channel.clone();
        let vm = format!("vms/{phase}-{number}");
        waiting.spawn(async move {
            let begun = now_ms();
            let guest = claim(channel.clone(), vm, None).await?;
            let change = match number % FOLLOWED {
                0 => Some(Change {
                    begun,
                    revision: revision(channel).await?,
                }),
                _ => None,
            };
            Outcome::Ok((guest, change))
        });
    }
    let (mut guests, mut changes) = (Vec::new(), Vec::new());
    while let Some(done) = waiting.join_next().await {
        let (guest, change) = done??;
        guests.push(guest);
        changes.extend(change);
    }
    changes.sort_by(|a, b| a.begun.total_cmp(&b.begun));
    let shown = shown(browser, &changes).await?;
    print_delays(&format!("{path}, {count} changes"), &changes, &shown)?;
    let times: Vec<f64> = shown.values().copied().collect();
    let gap = times
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .fold(0.0, f64::max);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "  {} times shown again, {gap:.0} ms apart at most; {:.0} MiB before, {:.0} MiB after",
        times.len(),
        mib(before),
        mib(browser.page_memory()?)
    );
    for guest in guests {
        guests::release(channel.clone(), guest).await?;
    }
    Ok(())
}

fn follow(browser: &Browser, url: &str) {
    browser.open(url);
    browser.shows("Changes are shown as they happen");
    let _ = browser.run(KEEP);
}

/// Waits until the last change is shown; returns when the view came to each revision.
async fn shown(browser: &Browser, changes: &[Change]) -> Outcome<BTreeMap<u64, f64>> {
    let last = changes.iter().map(|change| change.revision).max();
    let begun = tokio::time::Instant::now();
    loop {
        let kept = browser.run("return window.shown");
        let kept = kept
            .as_array()
            .ok_or_else(|| fault("the document was loaded again"))?;
        let pairs = kept
            .iter()
            .map(|pair| Some((pair[1].as_u64()?, pair[0].as_f64()?)));
        let shown: BTreeMap<u64, f64> = pairs.flatten().collect();
        if shown.keys().next_back().copied() >= last {
            return Ok(shown);
        }
        if begun.elapsed() > SHOWN_MAX {
            return Err(fault("the last change is not shown"));
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

fn print_delays(what: &str, changes: &[Change], shown: &BTreeMap<u64, f64>) -> Outcome<()> {
    let mut delays = Times::default();
    for change in changes {
        let at = shown.range(change.revision..).next();
        let (_, at) = at.ok_or_else(|| fault("a change is not shown"))?;
        delays.record(Duration::from_secs_f64((at - change.begun).max(0.0) / 1e3));
    }
    println!(
        "{what}: shown after p50 {:.0} ms, p99 {:.0} ms, max {:.0} ms",
        delays.percentile_ms(50),
        delays.percentile_ms(99),
        delays.percentile_ms(100)
    );
    Ok(())
}
