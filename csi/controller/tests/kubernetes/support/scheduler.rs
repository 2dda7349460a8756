//! A scheduler that has regions and answers FitVolumes over gRPC: the largest volume first, each
//! into the first region that has room.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use berth_proto::volume::v1::volume_service_server::{VolumeService, VolumeServiceServer};
use berth_proto::volume::v1::*;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

pub(crate) struct Scheduler {
    pub(crate) address: SocketAddr,
    held: Held,
    running: JoinHandle<()>,
}

#[derive(Clone)]
struct Held {
    hosts: Arc<BTreeMap<String, Vec<u64>>>,
    asked: Arc<Mutex<Vec<FitVolumesRequest>>>,
}

impl Scheduler {
    pub(crate) async fn start(hosts: &[(&str, &[u64])]) -> Self {
        let hosts = hosts
            .iter()
            .map(|(name, free)| (format!("hosts/{name}"), free.to_vec()));
        let held = Held {
            hosts: Arc::new(hosts.collect()),
            asked: Arc::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tonic::transport::Server::builder()
            .add_service(VolumeServiceServer::new(held.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        let running = tokio::spawn(async { server.await.unwrap() });
        Self {
            address,
            held,
            running,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends it, as if it had died.
    pub(crate) async fn die(&mut self) {
        self.running.abort();
        let _ = (&mut self.running).await;
    }

    /// Returns what was asked so far, and forgets it.
    pub(crate) fn asked(&self) -> Vec<FitVolumesRequest> {
        std::mem::take(&mut *self.held.asked.lock().unwrap())
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// Writes a size as Kubernetes does.
fn size(bytes: u64) -> String {
    let units = ["", "Ki", "Mi", "Gi", "Ti"];
    let power = (1..units.len())
        .rev()
        .find(|p| bytes > 0 && bytes.is_multiple_of(1 << (10 * p)));
    let power = power.unwrap_or(0);
    format!("{}{}B", bytes >> (10 * power), units[power])
}

fn fit(host: &str, free: Option<&Vec<u64>>, sizes: &[u64]) -> VolumeFit {
    let refused = |reason: String| VolumeFit {
        host: host.to_owned(),
        reason,
        ..VolumeFit::default()
    };
    let Some(free) = free else {
        return refused("the host has no persistent memory for volumes".to_owned());
    };
    let (all, needed) = (free.iter().sum(), sizes.iter().map(|s| (*s).max(1)).sum());
    if all < needed {
        return refused(format!(
            "only {} of PMEM available, need {}",
            size(all),
            size(needed)
        ));
    }
    let mut left = free.clone();
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    for &one in &sizes {
        match left.iter_mut().find(|region| **region >= one) {
            Some(region) => *region -= one,
            None => return refused(format!("no region has {} left", size(one))),
        }
    }
    let left_bytes: u64 = left.iter().sum();
    VolumeFit {
        host: host.to_owned(),
        fits: true,
        reason: String::new(),
        left_bytes,
        score: u32::try_from((all - left_bytes) * 100 / all.max(1)).unwrap(),
    }
}

type Answer<T> = Result<Response<T>, Status>;

fn nobody_asks<T>() -> Answer<T> {
    Err(Status::unimplemented("an extender does not ask this"))
}

#[tonic::async_trait]
impl VolumeService for Held {
    async fn fit_volumes(&self, request: Request<FitVolumesRequest>) -> Answer<FitVolumesResponse> {
        let request = request.into_inner();
        let of = |host: &String| fit(host, self.hosts.get(host), &request.required_bytes);
        let hosts = request.hosts.iter().map(of).collect();
        self.asked.lock().unwrap().push(request);
        Ok(Response::new(FitVolumesResponse { hosts }))
    }

    async fn create_volume(&self, _: Request<CreateVolumeRequest>) -> Answer<CreateVolumeResponse> {
        nobody_asks()
    }
    async fn delete_volume(&self, _: Request<DeleteVolumeRequest>) -> Answer<DeleteVolumeResponse> {
        nobody_asks()
    }
    async fn get_volume(&self, _: Request<GetVolumeRequest>) -> Answer<GetVolumeResponse> {
        nobody_asks()
    }
    async fn list_volumes(&self, _: Request<ListVolumesRequest>) -> Answer<ListVolumesResponse> {
        nobody_asks()
    }
    async fn get_volume_capacity(
        &self,
        _: Request<GetVolumeCapacityRequest>,
    ) -> Answer<GetVolumeCapacityResponse> {
        nobody_asks()
    }
    async fn plan_volume_room(
        &self,
        _: Request<PlanVolumeRoomRequest>,
    ) -> Answer<PlanVolumeRoomResponse> {
        nobody_asks()
    }
    async fn report_volumes(
        &self,
        _: Request<ReportVolumesRequest>,
    ) -> Answer<ReportVolumesResponse> {
        nobody_asks()
    }
}
