//! What becomes of a volume that one call releases while another has it made, and what is said of one that
//! is not there.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use berth_domain::refusal::{Code, Refusal};
use berth_proto::client::SchedulerChannel;
use berth_proto::csi::v1::DeleteVolumeRequest as Deletion;
use berth_proto::status::to_status;
use berth_proto::volume::v1::volume_service_server::{VolumeService, VolumeServiceServer};
use berth_proto::volume::v1::*;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use super::{ControllerApi, Settings};

type Answer<T> = Result<Response<T>, Status>;

/// A scheduler with one volume that is being made. As soon as it was read, another call
/// has it made.
#[derive(Clone)]
struct Racing(Arc<Mutex<State>>);

struct State {
    /// None: it was deleted.
    volume: Option<Volume>,
    /// What it becomes after it was looked at, one after the other.
    becomes: Vec<ReplicaPhase>,
}

fn volume(phase: ReplicaPhase) -> Volume {
    Volume {
        name: "volumes/data-0123456789abcdef0123456789abcdef".to_owned(),
        replicas: vec![Replica {
            host: "hosts/h1".to_owned(),
            phase: phase.into(),
            ..Replica::default()
        }],
        generation: 1,
        ..Volume::default()
    }
}

fn not_called<T>() -> Answer<T> {
    Err(Status::unimplemented("this is not called here"))
}

#[tonic::async_trait]
impl VolumeService for Racing {
    async fn get_volume(&self, _: Request<GetVolumeRequest>) -> Answer<GetVolumeResponse> {
        let mut state = self.0.lock().unwrap();
        let seen = state.volume.clone();
        let seen = seen.ok_or_else(|| Status::not_found("it was deleted"))?;
        if let Some(phase) = state.becomes.pop() {
            state.volume = Some(Volume {
                generation: seen.generation + 1,
                ..volume(phase)
            });
        }
        let volume = Some(seen);
        Ok(Response::new(GetVolumeResponse { volume }))
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Answer<DeleteVolumeResponse> {
        let mut state = self.0.lock().unwrap();
        let expected = request.into_inner().generation;
        let is = state.volume.as_ref().map(|volume| volume.generation);
        if expected != 0 && is.is_some_and(|is| is != expected) {
            let changed = Refusal::new(Code::Aborted, "VOLUME_CHANGED", "it has changed");
            return Err(to_status(&changed));
        }
        state.volume = None;
        Ok(Response::new(DeleteVolumeResponse::default()))
    }

    async fn create_volume(&self, _: Request<CreateVolumeRequest>) -> Answer<CreateVolumeResponse> {
        not_called()
    }
    async fn list_volumes(&self, _: Request<ListVolumesRequest>) -> Answer<ListVolumesResponse> {
        not_called()
    }
    async fn get_volume_capacity(
        &self,
        _: Request<GetVolumeCapacityRequest>,
    ) -> Answer<GetVolumeCapacityResponse> {
        not_called()
    }
    async fn fit_volumes(&self, _: Request<FitVolumesRequest>) -> Answer<FitVolumesResponse> {
        not_called()
    }
    async fn plan_volume_room(
        &self,
        _: Request<PlanVolumeRoomRequest>,
    ) -> Answer<PlanVolumeRoomResponse> {
        not_called()
    }
    async fn report_volumes(
        &self,
        _: Request<ReportVolumesRequest>,
    ) -> Answer<ReportVolumesResponse> {
        not_called()
    }
}

/// Starts a scheduler; returns its task and a controller.
async fn start(racing: &Racing) -> (JoinHandle<()>, ControllerApi) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let server = tonic::transport::Server::builder()
        .add_service(VolumeServiceServer::new(racing.clone()))
        .serve_with_incoming(TcpListenerStream::new(listener));
    let server = tokio::spawn(async move { server.await.expect("it serves") });
    let settings = Settings {
        driver: "d".to_owned(),
        create_timeout: Duration::from_secs(60),
        usage_timeout: Duration::from_secs(60),
        publishes: false,
    };
    let controller = ControllerApi::new(SchedulerChannel::new([address]).unwrap(), settings);
    (server, controller)
}

/// Has a controller release a volume, and returns its answer and what is left.
async fn released(
    becomes: &[ReplicaPhase],
) -> (Result<Result<Volume, Status>, Status>, Option<Volume>) {
    let racing = Racing(Arc::new(Mutex::new(State {
        volume: Some(volume(ReplicaPhase::Creating)),
        becomes: becomes.iter().rev().copied().collect(),
    })));
    let (server, controller) = start(&racing).await;
    let claimed = volume(ReplicaPhase::Creating);
    let why = Status::resource_exhausted("there is no space");
    let answer = controller.released(&claimed, why).await;
    server.abort();
    let left = racing.0.lock().unwrap().volume.clone();
    (answer, left)
}

/// Goal: a volume that another call had made between the look and the deletion stays, and is answered.
#[tokio::test]
async fn what_another_call_has_made_is_not_released() {
    let (answer, left) = released(&[ReplicaPhase::Ready]).await;
    let left = left.expect("it exists, and the other caller knows it");
    assert_eq!(answer.unwrap().unwrap(), left);
}

/// Goal: one that merely changed, as its host failed again, goes all the same.
#[tokio::test]
async fn what_cannot_be_made_is_released() {
    for changes in 0..3 {
        let (answer, left) = released(&vec![ReplicaPhase::Creating; changes]).await;
        let why = answer.unwrap().unwrap_err();
        assert_eq!(why.code(), tonic::Code::ResourceExhausted, "{changes}");
        assert!(left.is_none(), "{changes}");
    }
}

/// Goal: it is not read for ever; a repeated call goes on.
#[tokio::test]
async fn what_keeps_changing_is_left_to_a_repeated_call() {
    let (answer, left) = released(&[ReplicaPhase::Creating; 99]).await;
    assert_eq!(answer.unwrap_err().code(), tonic::Code::Aborted);
    assert!(left.is_some());
}

/// Goal: a volume of PMEM-CSI is never called deleted, for its contents are on its node; any other volume that
/// is not there is.
#[tokio::test]
async fn a_volume_of_pmem_csi_is_not_called_deleted() {
    let racing = Racing(Arc::new(Mutex::new(State {
        volume: None,
        becomes: Vec::new(),
    })));
    let (server, controller) = start(&racing).await;
    let delete = |id: &str| {
        controller.delete(Deletion {
            volume_id: id.to_owned(),
            ..Deletion::default()
        })
    };
    let digits = "0123456789abcdef0123456789ab".repeat(2);
    for id in [format!("pvc-fa-{digits}"), format!("a-{digits}")] {
        let refused = delete(&id).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
        assert!(refused.message().contains(&id) && refused.message().contains("hint: "));
    }
    for id in ["nothing", "data-0123456789abcdef0123456789abcdef", &digits] {
        delete(id).await.unwrap();
    }
    server.abort();
}
