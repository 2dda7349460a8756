//! Berth's own scheduler, a single member, with hosts that report regions.

use std::path::PathBuf;

use berth_process::Listening;
use berth_proto::client::SchedulerChannel;
use berth_proto::for_cluster::MemberChannel;
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::host::v1::{HostReport, RegisterHostRequest};
use berth_proto::types::v1::{CellDistances, HostCell, HostTopology, PagePool};
use berth_proto::volume::v1::{DeviceMode, Region};
use berth_scheduler::{Config, Scheduler, Start};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) struct RealScheduler {
    pub(crate) channel: SchedulerChannel,
    url: String,
    end: oneshot::Sender<()>,
    running: JoinHandle<()>,
    _folder: TempDir,
}

impl RealScheduler {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data: PathBuf = folder.path().join("data");
        let config = Config {
            listening: Listening::new("127.0.0.1:0"),
            start: Start::Bootstrap,
            raft_tick_ms: 20,
            // Nobody reports here, and nobody is to count as down for that.
            liveness_limit_ms: 600_000,
            ..Config::new(data)
        };
        let scheduler = Scheduler::start(config).await.unwrap();
        let url = format!("http://{}", scheduler.address());
        let (end, ended) = oneshot::channel::<()>();
        let running = scheduler.run(async move { drop(ended.await) });
        let running = tokio::spawn(async move { running.await.unwrap() });
        Self {
            channel: SchedulerChannel::new([&url]).unwrap(),
            url,
            end,
            running,
            _folder: folder,
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) async fn end(self) {
        self.end.send(()).unwrap();
        self.running.await.unwrap();
    }

    /// Registers a host with regions for logical volumes, each of so many bytes.
    pub(crate) async fn register(&self, name: &str, regions: &[u64]) {
        let request = host(name, regions);
        let call = |channel: MemberChannel| {
            let request = request.clone();
            async move { HostServiceClient::new(channel).register_host(request).await }
        };
        self.channel.call(call).await.unwrap();
    }
}

fn host(name: &str, regions: &[u64]) -> RegisterHostRequest {
    let cell = HostCell {
        id: 0,
        socket: Some(0),
        shared_cpus: "0".into(),
        dedicated_cpus: String::new(),
        cores: vec!["0".into()],
        memory_mib: 1024,
        pages: vec![PagePool {
            size_kib: 4,
            total: 1024 * 256,
            reserved: 0,
        }],
    };
    let regions = regions.iter().enumerate().map(|(at, bytes)| Region {
        name: format!("region{at}"),
        mode: DeviceMode::Lvm.into(),
        capacity_bytes: *bytes,
        align_bytes: 4 << 20,
        ..Region::default()
    });
    RegisterHostRequest {
        name: format!("hosts/{name}"),
        report: Some(HostReport {
            agent_address: "http://127.0.0.1:1".into(),
            incarnation: uuid::Uuid::new_v4().to_string(),
            service_version: 2,
            driver: "sim".into(),
            topology: Some(HostTopology {
                cells: vec![cell],
                distances: vec![CellDistances {
                    distances: vec![10],
                }],
                ..HostTopology::default()
            }),
            regions: regions.collect(),
            ..HostReport::default()
        }),
        request_id: String::new(),
    }
}
