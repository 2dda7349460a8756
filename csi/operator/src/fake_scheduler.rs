//! A scheduler for tests: lists hosts and volumes, on loopback.

use std::sync::{Arc, Mutex};

use berth_process::BoxFuture;
use berth_proto::host::v1::host::Liveness;
use berth_proto::host::v1::host_service_server::{HostService, HostServiceServer};
use berth_proto::host::v1::*;
use berth_proto::volume::v1::volume_service_server::{VolumeService, VolumeServiceServer};
use berth_proto::volume::v1::*;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

type Answer<T> = Result<Response<T>, Status>;
type Called<'a, T> = BoxFuture<'a, Answer<T>>;

/// What it returns.
#[derive(Default)]
pub(crate) struct Lists {
    pub(crate) hosts: Vec<HostSummary>,
    pub(crate) volumes: Vec<Volume>,
    /// How often the volumes were listed.
    pub(crate) reads: usize,
}

pub(crate) type Shared = Arc<Mutex<Lists>>;

/// A host of which an agent reports.
pub(crate) fn host(name: &str) -> HostSummary {
    HostSummary {
        host: Some(Host {
            name: format!("hosts/{name}"),
            liveness: Liveness::Up.into(),
            ..Host::default()
        }),
        ..HostSummary::default()
    }
}

/// A volume on one host.
pub(crate) fn volume(name: &str, host: &str, phase: ReplicaPhase) -> Volume {
    Volume {
        display_name: name.to_owned(),
        replicas: vec![Replica {
            host: format!("hosts/{host}"),
            phase: phase.into(),
            ..Replica::default()
        }],
        ..Volume::default()
    }
}

/// Starts it; returns what it returns, and its address. Its task ends with the test's runtime.
pub(crate) async fn start() -> (Shared, String) {
    let lists = Shared::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let server = tonic::transport::Server::builder()
        .add_service(HostServiceServer::new(Scheduler(lists.clone())))
        .add_service(VolumeServiceServer::new(Scheduler(lists.clone())))
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(server);
    (lists, address)
}

struct Scheduler(Shared);

/// The methods that the operator does not call, in the form that `async_trait` gives them.
macro_rules! not_called {
    ($($name:ident $request:ident $response:ident)*) => {
        $(fn $name<'life0, 'async_trait>(
            &'life0 self,
            _: Request<$request>,
        ) -> Called<'async_trait, $response>
        where
            'life0: 'async_trait,
            Self: 'async_trait,
        {
            Box::pin(async { Err(Status::unimplemented("it is not called here")) })
        })*
    };
}

#[tonic::async_trait]
impl HostService for Scheduler {
    async fn list_hosts(&self, _: Request<ListHostsRequest>) -> Answer<ListHostsResponse> {
        let lists = self.0.lock().expect("not poisoned");
        Ok(Response::new(ListHostsResponse {
            hosts: lists.hosts.clone(),
            ..ListHostsResponse::default()
        }))
    }

    not_called! {
        register_host RegisterHostRequest RegisterHostResponse
        report_host ReportHostRequest ReportHostResponse
        expect_domains ExpectDomainsRequest ExpectDomainsResponse
        compare_domains CompareDomainsRequest CompareDomainsResponse
        report_guests ReportGuestsRequest ReportGuestsResponse
        report_erasures ReportErasuresRequest ReportErasuresResponse
        fence_host FenceHostRequest FenceHostResponse
        get_host GetHostRequest GetHostResponse
        get_cpu_baseline GetCpuBaselineRequest GetCpuBaselineResponse
        list_memory_signals ListMemorySignalsRequest ListMemorySignalsResponse
        cordon_host CordonHostRequest CordonHostResponse
        verify_fence VerifyFenceRequest VerifyFenceResponse
        uncordon_host UncordonHostRequest UncordonHostResponse
        write_off_pmem WriteOffPmemRequest WriteOffPmemResponse
        remove_host RemoveHostRequest RemoveHostResponse
    }
}

#[tonic::async_trait]
impl VolumeService for Scheduler {
    async fn list_volumes(&self, _: Request<ListVolumesRequest>) -> Answer<ListVolumesResponse> {
        let mut lists = self.0.lock().expect("not poisoned");
        lists.reads += 1;
        Ok(Response::new(ListVolumesResponse {
            volumes: lists.volumes.clone(),
            ..ListVolumesResponse::default()
        }))
    }

    not_called! {
        create_volume CreateVolumeRequest CreateVolumeResponse
        delete_volume DeleteVolumeRequest DeleteVolumeResponse
        get_volume GetVolumeRequest GetVolumeResponse
        get_volume_capacity GetVolumeCapacityRequest GetVolumeCapacityResponse
        fit_volumes FitVolumesRequest FitVolumesResponse
        plan_volume_room PlanVolumeRoomRequest PlanVolumeRoomResponse
        report_volumes ReportVolumesRequest ReportVolumesResponse
    }
}
