//! What Berth's schedulers know: registered hosts, and the volumes on them.
//!
//! Status needs it often and may use what was read some seconds ago; a check that protects volumes
//! needs it as it is now. So there is [`Schedulers::read`], and [`Cache`] with what it last returned.
//!
//! Invariant: nothing here writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use berth_process::schedulers::urls;
use berth_proto::client::{Dialer, SchedulerChannel};
use berth_proto::host::v1::host::Liveness;
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::host::v1::{HostSummary, ListHostsRequest};
use berth_proto::volume::v1::volume_service_client::VolumeServiceClient;
use berth_proto::volume::v1::{ListVolumesRequest, ReplicaPhase, Volume as ProtoVolume};
use berth_tls::Tls;

use crate::safety::Volume;
use crate::upgrade::Hosts;

/// How long all attempts of one call may take.
const DEADLINE: Duration = Duration::from_secs(5);
const PAGE: i32 = 1000;

/// What the schedulers returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The hosts of which an agent reports, and the volumes that they make or erase.
    pub hosts: Hosts,
    /// All volumes, those that are being made or erased included.
    pub volumes: Vec<Volume>,
}

impl Inventory {
    /// Returns the volumes that are on at least one of the nodes.
    #[must_use]
    pub fn volumes_on(&self, nodes: &BTreeSet<String>) -> Vec<Volume> {
        let is_on = |volume: &&Volume| volume.nodes.iter().any(|node| nodes.contains(node));
        self.volumes.iter().filter(is_on).cloned().collect()
    }
}

/// Reads from schedulers.
#[derive(Debug)]
pub struct Schedulers {
    tls: Option<Tls>,
    /// One for each list of addresses, so that each keeps its connections and its leader.
    channels: Mutex<BTreeMap<Vec<String>, SchedulerChannel>>,
}

impl Schedulers {
    /// Returns a reader with these certificates; without, connections are plain text.
    #[must_use]
    pub fn new(tls: Option<Tls>) -> Self {
        Self {
            tls,
            channels: Mutex::default(),
        }
    }

    /// Reads hosts and volumes from the schedulers with these addresses.
    ///
    /// # Errors
    ///
    /// Why none of them responded as required, in a sentence.
    pub async fn read(&self, addresses: &[String]) -> Result<Inventory, String> {
        let channel = self.channel(addresses)?;
        let failed =
            |status: tonic::Status| format!("the schedulers cannot be read: {}", status.message());
        let hosts = hosts(&channel).await.map_err(failed)?;
        let volumes = volumes(&channel).await.map_err(failed)?;
        Ok(Inventory {
            hosts: Hosts {
                up: hosts.iter().filter_map(name_if_up).collect(),
                busy: busy(&volumes),
            },
            volumes: volumes.into_iter().map(to_volume).collect(),
        })
    }

    fn channel(&self, addresses: &[String]) -> Result<SchedulerChannel, String> {
        let mut channels = lock(&self.channels);
        if let Some(channel) = channels.get(addresses) {
            return Ok(channel.clone());
        }
        let channel = SchedulerChannel::new(urls(addresses, self.tls.as_ref()))
            .map_err(|error| format!("an address of a scheduler is invalid: {error}"))?
            .with_dialer(Dialer::new(self.tls.clone()))
            .with_deadline(DEADLINE);
        channels.insert(addresses.to_vec(), channel.clone());
        Ok(channel)
    }
}

async fn hosts(channel: &SchedulerChannel) -> Result<Vec<HostSummary>, tonic::Status> {
    let mut all = Vec::new();
    let mut request = ListHostsRequest {
        page_size: PAGE,
        ..ListHostsRequest::default()
    };
    loop {
        let page = channel.call(|channel| {
            let request = request.clone();
            async move { HostServiceClient::new(channel).list_hosts(request).await }
        });
        let page = page.await?;
        all.extend(page.hosts);
        if page.next_page_token.is_empty() {
            return Ok(all);
        }
        request.page_token = page.next_page_token;
    }
}

async fn volumes(channel: &SchedulerChannel) -> Result<Vec<ProtoVolume>, tonic::Status> {
    let mut all = Vec::new();
    let mut request = ListVolumesRequest {
        page_size: PAGE,
        ..ListVolumesRequest::default()
    };
    loop {
        let page = channel.call(|channel| {
            let request = request.clone();
            async move {
                VolumeServiceClient::new(channel)
                    .list_volumes(request)
                    .await
            }
        });
        let page = page.await?;
        all.extend(page.volumes);
        if page.next_page_token.is_empty() {
            return Ok(all);
        }
        request.page_token = page.next_page_token;
    }
}

fn bare(name: &str) -> String {
    name.strip_prefix("hosts/").unwrap_or(name).to_owned()
}

fn name_if_up(summary: &HostSummary) -> Option<String> {
    let host = summary.host.as_ref()?;
    (host.liveness() == Liveness::Up).then(|| bare(&host.name))
}

/// The volumes that are being made or erased, by their hosts. Those of which the phase is unknown count.
fn busy(volumes: &[ProtoVolume]) -> BTreeMap<String, Vec<String>> {
    let mut busy: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for volume in volumes {
        for replica in &volume.replicas {
            match replica.phase() {
                ReplicaPhase::Ready => {}
                ReplicaPhase::Unspecified | ReplicaPhase::Creating | ReplicaPhase::Deleting => {
                    let on_host = busy.entry(bare(&replica.host)).or_default();
                    on_host.push(volume.display_name.clone());
                }
            }
        }
    }
    busy
}

fn to_volume(volume: ProtoVolume) -> Volume {
    let nodes = volume.replicas.iter().map(|replica| bare(&replica.host));
    Volume {
        nodes: nodes.collect(),
        name: volume.display_name,
    }
}

/// What was last read, by the addresses of the schedulers.
#[derive(Debug, Default)]
pub struct Cache {
    entries: Mutex<BTreeMap<Vec<String>, Entry>>,
}

#[derive(Debug)]
struct Entry {
    /// `None` if nothing was read yet.
    read: Option<Result<Inventory, String>>,
    /// When it was last used.
    used: Instant,
}

impl Cache {
    /// Returns what was last read; `None` if nothing was yet. From now on these schedulers are read.
    pub fn get(&self, addresses: &[String]) -> Option<Result<Inventory, String>> {
        let used = Instant::now();
        let mut entries = lock(&self.entries);
        let entry = entries.entry(addresses.to_vec());
        let entry = entry.or_insert(Entry { read: None, used });
        entry.used = used;
        entry.read.clone()
    }

    /// Drops what was not used for so long; returns the schedulers that are read, and those of them of
    /// which nothing was read yet.
    pub fn addresses(&self, unused_max: Duration) -> (Vec<Vec<String>>, Vec<Vec<String>>) {
        let mut entries = lock(&self.entries);
        entries.retain(|_, entry| entry.used.elapsed() <= unused_max);
        let unread = entries.iter().filter(|(_, entry)| entry.read.is_none());
        let unread = unread.map(|(addresses, _)| addresses.clone()).collect();
        (entries.keys().cloned().collect(), unread)
    }

    /// Stores what was read; returns whether it differs.
    pub fn put(&self, addresses: &[String], read: Result<Inventory, String>) -> bool {
        let mut entries = lock(&self.entries);
        let Some(entry) = entries.get_mut(addresses) else {
            return false;
        };
        let read = Some(read);
        let is_other = entry.read != read;
        entry.read = read;
        is_other
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use berth_proto::host::v1::Host;
    use berth_proto::volume::v1::Replica;

    use super::*;

    #[test]
    fn hosts_that_report_are_registered() {
        let host = |liveness: Liveness| HostSummary {
            host: Some(Host {
                name: "hosts/n1".to_owned(),
                liveness: liveness.into(),
                ..Host::default()
            }),
            ..HostSummary::default()
        };
        assert_eq!(name_if_up(&host(Liveness::Up)).as_deref(), Some("n1"));
        assert_eq!(name_if_up(&host(Liveness::Down)), None);
        assert_eq!(name_if_up(&HostSummary::default()), None);
    }

    #[test]
    fn volumes_are_found_by_their_nodes() {
        let replica = |host: &str| Replica {
            host: host.to_owned(),
            ..Replica::default()
        };
        let volume = to_volume(ProtoVolume {
            display_name: "data".to_owned(),
            replicas: vec![replica("hosts/n1"), replica("hosts/n2")],
            ..ProtoVolume::default()
        });
        assert_eq!(volume.nodes, ["n1", "n2"]);
        let inventory = Inventory {
            volumes: vec![volume.clone()],
            ..Inventory::default()
        };
        let on = |node: &str| inventory.volumes_on(&BTreeSet::from([node.to_owned()]));
        assert_eq!(on("n2"), [volume]);
        assert_eq!(on("n3"), []);
    }

    /// Goal: everything but a volume that is there counts as work of its host.
    #[test]
    fn volumes_that_are_made_or_erased_are_found_by_their_hosts() {
        let replica = |host: &str, phase: i32| Replica {
            host: format!("hosts/{host}"),
            phase,
            ..Replica::default()
        };
        let volume = |name: &str, replicas| ProtoVolume {
            display_name: name.to_owned(),
            replicas,
            ..ProtoVolume::default()
        };
        let ready = ReplicaPhase::Ready as i32;
        let volumes = [
            volume(
                "a",
                vec![
                    replica("n1", ReplicaPhase::Creating as i32),
                    replica("n2", ready),
                ],
            ),
            volume("b", vec![replica("n1", ReplicaPhase::Deleting as i32)]),
            volume("c", vec![replica("n3", 0), replica("n4", 99)]),
            volume("d", vec![replica("n5", ready)]),
        ];
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let expected = [("n1", &["a", "b"][..]), ("n3", &["c"]), ("n4", &["c"])];
        let expected = expected.map(|(node, volumes)| (node.to_owned(), names(volumes)));
        assert_eq!(busy(&volumes), BTreeMap::from(expected));
    }

    #[tokio::test]
    async fn hosts_and_volumes_are_read() {
        let (lists, address) = crate::fake_scheduler::start().await;
        {
            let mut lists = lists.lock().expect("not poisoned");
            lists.hosts.push(crate::fake_scheduler::host("n1"));
            let creating = crate::fake_scheduler::volume("a", "n1", ReplicaPhase::Creating);
            lists.volumes.push(creating);
        }
        let inventory = Schedulers::new(None).read(&[address]).await.expect("lists");
        let up: Vec<String> = inventory.hosts.up.into_iter().collect();
        assert_eq!((up, inventory.volumes.len()), (vec!["n1".to_owned()], 1));
        assert_eq!(inventory.hosts.busy["n1"], ["a"]);
    }

    /// Goal: a change is noticed, and what is the same is none.
    #[test]
    fn only_changes_are_reported() {
        let cache = Cache::default();
        let addresses = ["s1:7100".to_owned()];
        assert_eq!(cache.get(&addresses), None);
        let (all, unread) = cache.addresses(Duration::from_secs(60));
        assert_eq!((&all, &unread), (&vec![addresses.to_vec()], &all));
        let failed = || Err("no response".to_owned());
        assert!(cache.put(&addresses, failed()));
        assert!(!cache.put(&addresses, failed()));
        assert!(cache.put(&addresses, Ok(Inventory::default())));
        assert_eq!(cache.get(&addresses), Some(Ok(Inventory::default())));
        let (all, unread) = cache.addresses(Duration::from_secs(60));
        assert_eq!((all.len(), unread.len()), (1, 0));
        assert_eq!(cache.addresses(Duration::ZERO).0.len(), 0);
        assert!(!cache.put(&addresses, failed()));
    }

    #[tokio::test]
    async fn an_address_that_is_none_is_a_fault() {
        let schedulers = Schedulers::new(None);
        let error = schedulers.read(&[" ".to_owned()]).await;
        assert!(error.is_err_and(|error| error.contains("an address of a scheduler")));
    }
}
