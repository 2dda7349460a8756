//! What becomes of a volume that one call gives back while another has it made.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use berth_domain::refusal::{Code, Refusal};
use berth_proto::client::SchedulerChannel;
use berth_proto::status::to_status;
use berth_proto::volume::v1::volume_service_server::{VolumeService, VolumeServiceServer};
use berth_proto::volume::v1::*;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use super::{ControllerApi, Settings};

type Answer<T> = Result<Response<T>, Status>;

/// A scheduler with one volume that is being made. As soon as somebody has looked at it, another call
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

fn nobody_asks<T>() -> Answer<T> {
    Err(Status::unimplemented("this is not asked here"))
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
        let asked = request.into_inner().generation;
        let is = state.volume.as_ref().map(|volume| volume.generation);
        if asked != 0 && is.is_some_and(|is| is != asked) {
            let changed = Refusal::new(Code::Aborted, "VOLUME_CHANGED", "it has changed");
            return Err(to_status(&changed));
        }
        state.volume = None;
        Ok(Response::new(DeleteVolumeResponse::default()))
    }

    async fn create_volume(&self, _: Request<CreateVolumeRequest>) -> Answer<CreateVolumeResponse> {
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
    async fn fit_volumes(&self, _: Request<FitVolumesRequest>) -> Answer<FitVolumesResponse> {
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

/// Has a controller give a volume back, and returns what it answers and what is left.
async fn given_back(
    becomes: &[ReplicaPhase],
) -> (Result<Result<Volume, Status>, Status>, Option<Volume>) {
    let racing = Racing(Arc::new(Mutex::new(State {
        volume: Some(volume(ReplicaPhase::Creating)),
        becomes: becomes.iter().rev().copied().collect(),
    })));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let server = tonic::transport::Server::builder()
        .add_service(VolumeServiceServer::new(racing.clone()))
        .serve_with_incoming(TcpListenerStream::new(listener));
    let server = tokio::spawn(server);
    let settings = Settings {
        driver: "d".to_owned(),
        create_timeout: Duration::from_secs(60),
        ask_timeout: Duration::from_secs(60),
        publishes: false,
    };
    let controller = ControllerApi::new(SchedulerChannel::new([address]).unwrap(), settings);
    let claimed = volume(ReplicaPhase::Creating);
    let why = Status::resource_exhausted("there is no room");
    let answer = controller.given_back(&claimed, why).await;
    server.abort();
    let left = racing.0.lock().unwrap().volume.clone();
    (answer, left)
}

/// Goal: a volume that another call had made between the look and the deletion stays, and is answered.
#[tokio::test]
async fn what_another_call_has_made_is_not_given_back() {
    let (answer, left) = given_back(&[ReplicaPhase::Ready]).await;
    let left = left.expect("it is there, and the other caller was told so");
    assert_eq!(answer.unwrap().unwrap(), left);
}

/// Goal: one that merely changed, as its host failed again, goes all the same.
#[tokio::test]
async fn what_cannot_be_made_is_given_back() {
    for changes in 0..3 {
        let (answer, left) = given_back(&vec![ReplicaPhase::Creating; changes]).await;
        let why = answer.unwrap().unwrap_err();
        assert_eq!(why.code(), tonic::Code::ResourceExhausted, "{changes}");
        assert!(left.is_none(), "{changes}");
    }
}

/// Goal: it is not looked at for ever; whoever asks again goes on.
#[tokio::test]
async fn what_never_stays_as_it_was_is_left_and_asked_for_again() {
    let (answer, left) = given_back(&[ReplicaPhase::Creating; 99]).await;
    assert_eq!(answer.unwrap_err().code(), tonic::Code::Aborted);
    assert!(left.is_some());
}
