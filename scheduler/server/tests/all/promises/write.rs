//! One write: what it makes, the API and the member that it goes to, what the answer states, and
//! whether the state has it.
//!
//! Invariant: each write makes something of its own, which no other write makes or removes.

use std::time::Duration;

use berth_domain::id::{ConsumerId, ProviderId};
use berth_domain::resource::Trait;
use berth_proto::client::SchedulerChannel;
use berth_proto::for_cluster::MemberChannel;
use berth_proto::placement::v1::catalog_service_client::CatalogServiceClient;
use berth_proto::placement::v1::placement_service_client::PlacementServiceClient;
use berth_proto::placement::v1::{
    Allocation, ConsumerUpdate, CreateResourceProviderRequest, CreateTraitRequest,
    ReplaceAllocationsRequest,
};
use berth_proto::status::refusal_of;
use berth_state::State;
use serde_json::{Value, json};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::world::Addresses;
use crate::common::rest::{Answer, ask};

/// What a write makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Trait,
    Provider,
    /// A provider with the name of another one: refused by any leader that decides.
    Namesake,
    Allocation,
    /// More than the pool has: refused by any leader that decides.
    Excess,
}

impl Kind {
    pub const ALL: [Self; 5] = [
        Self::Trait,
        Self::Provider,
        Self::Namesake,
        Self::Allocation,
        Self::Excess,
    ];
}

/// How a write reaches a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Api {
    Rest,
    /// REST by a client that closes the connection early.
    RestDeadline,
    Grpc,
    /// gRPC with a deadline of the client's own, which the member knows.
    GrpcDeadline,
    /// gRPC by Berth's own client, which follows the leader and repeats under one request id.
    Following,
    /// As [`Self::Following`], with a deadline that only the client knows.
    FollowingDeadline,
}

impl Api {
    pub const ALL: [Self; 6] = [
        Self::Rest,
        Self::RestDeadline,
        Self::Grpc,
        Self::GrpcDeadline,
        Self::Following,
        Self::FollowingDeadline,
    ];

    /// Returns whether the client waits for the member's answer.
    pub fn is_patient(self) -> bool {
        match self {
            Self::Rest | Self::Grpc | Self::Following => true,
            Self::RestDeadline | Self::GrpcDeadline | Self::FollowingDeadline => false,
        }
    }
}

/// What an answer states about a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stated {
    Done,
    NotDone,
    Unknown,
}

/// The provider that allocations take from, and its name.
pub const POOL: Uuid = Uuid::from_u128(1);
pub const POOL_NAME: &str = "pool";
const POOL_CPUS: u64 = 1_000_000;
/// The deadline that clients set: within the time that the members have.
const CLIENT_DEADLINE: Duration = Duration::from_millis(200);
/// The time of a client that follows the leader through elections.
const FOLLOWING_MAX: Duration = Duration::from_secs(30);

/// One write.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    pub kind: Kind,
    pub api: Api,
    /// The position of the member that it goes to.
    pub member: usize,
    id: Uuid,
}

impl Write {
    pub fn new(kind: Kind, api: Api, member: usize) -> Self {
        let id = Uuid::new_v4();
        Self {
            kind,
            api,
            member,
            id,
        }
    }

    /// Returns whether the state has what it makes.
    pub fn is_in(&self, state: &State) -> bool {
        match self.kind {
            Kind::Trait => {
                let name = Trait::new(&self.trait_name()).expect("a trait's name");
                state.custom_trait(&name).is_some()
            }
            Kind::Provider | Kind::Namesake => state.provider(ProviderId(self.id)).is_some(),
            Kind::Allocation | Kind::Excess => state.consumer(ConsumerId(self.id)).is_some(),
        }
    }

    /// Sends it and returns what its answer states, with the answer.
    pub async fn send(self, to: &Addresses) -> (Stated, String) {
        match self.api {
            Api::Rest => self.send_rest(to).await,
            Api::RestDeadline => {
                let sent = tokio::time::timeout(CLIENT_DEADLINE, self.send_rest(to));
                sent.await.unwrap_or((Stated::Unknown, "none".to_owned()))
            }
            Api::Grpc => stated(self.send_grpc(to, None).await),
            Api::GrpcDeadline => stated(self.send_grpc(to, Some(CLIENT_DEADLINE)).await),
            Api::Following => stated(self.send_following(to, FOLLOWING_MAX).await),
            Api::FollowingDeadline => stated(self.send_following(to, CLIENT_DEADLINE).await),
        }
    }

    fn trait_name(&self) -> String {
        format!("CUSTOM_{}", self.id.simple()).to_uppercase()
    }

    fn name(&self) -> String {
        match self.kind {
            Kind::Namesake => POOL_NAME.to_owned(),
            Kind::Trait | Kind::Provider | Kind::Allocation | Kind::Excess => self.id.to_string(),
        }
    }

    fn cpus(&self) -> u64 {
        match self.kind {
            Kind::Excess => POOL_CPUS + 1,
            Kind::Trait | Kind::Provider | Kind::Namesake | Kind::Allocation => 1,
        }
    }

    async fn send_rest(self, to: &Addresses) -> (Stated, String) {
        let (method, path, body) = self.rest();
        let answer = ask(to.rest[self.member], method, &path, body).await;
        let stated = answer.as_ref().map_or(Stated::Unknown, stated_by_rest);
        (stated, format!("{answer:?}"))
    }

    fn rest(&self) -> (&'static str, String, Option<Value>) {
        match self.kind {
            Kind::Trait => ("PUT", format!("/traits/{}", self.trait_name()), None),
            Kind::Provider | Kind::Namesake => {
                let body = json!({"name": self.name(), "uuid": self.id});
                ("POST", "/resource_providers".to_owned(), Some(body))
            }
            Kind::Allocation | Kind::Excess => {
                let body = json!({
                    "allocations": {POOL.to_string(): {"resources": {"VCPU": self.cpus()}}},
                    "project_id": "p", "user_id": "u", "consumer_generation": null,
                    "consumer_type": "INSTANCE",
                });
                ("PUT", format!("/allocations/{}", self.id), Some(body))
            }
        }
    }

    async fn send_grpc(self, to: &Addresses, deadline: Option<Duration>) -> Result<(), Status> {
        let channel = to.channel(self.member);
        self.call(channel, "", deadline).await?;
        Ok(())
    }

    async fn send_following(self, to: &Addresses, deadline: Duration) -> Result<(), Status> {
        let mut addresses = to.grpc.clone();
        addresses.rotate_left(self.member);
        let urls = addresses.iter().map(|address| format!("http://{address}"));
        let scheduler = SchedulerChannel::new(urls).expect("addresses");
        let scheduler = scheduler.with_deadline(deadline);
        let request_id = Uuid::now_v7().to_string();
        let call = |channel| self.call(channel, &request_id, None);
        scheduler.call(call).await
    }

    async fn call(
        self,
        channel: impl Into<MemberChannel>,
        request_id: &str,
        deadline: Option<Duration>,
    ) -> Result<Response<()>, Status> {
        let channel = channel.into();
        let request_id = request_id.to_owned();
        match self.kind {
            Kind::Trait => {
                let request = CreateTraitRequest {
                    name: self.trait_name(),
                    request_id,
                };
                let mut client = CatalogServiceClient::new(channel);
                let answer = client.create_trait(timed(request, deadline)).await;
                answer.map(|answer| answer.map(drop))
            }
            Kind::Provider | Kind::Namesake => {
                let request = CreateResourceProviderRequest {
                    name: format!("resourceProviders/{}", self.id),
                    display_name: self.name(),
                    request_id,
                    ..CreateResourceProviderRequest::default()
                };
                let mut client = PlacementServiceClient::new(channel);
                let answer = client.create_resource_provider(timed(request, deadline));
                answer.await.map(|answer| answer.map(drop))
            }
            Kind::Allocation | Kind::Excess => {
                let request = ReplaceAllocationsRequest {
                    consumers: vec![self.consumer()],
                    request_id,
                };
                let mut client = PlacementServiceClient::new(channel);
                let answer = client.replace_allocations(timed(request, deadline)).await;
                answer.map(|answer| answer.map(drop))
            }
        }
    }

    fn consumer(&self) -> ConsumerUpdate {
        ConsumerUpdate {
            consumer: format!("consumers/{}", self.id),
            project: "p".to_owned(),
            user: "u".to_owned(),
            allocations: vec![Allocation {
                resource_provider: format!("resourceProviders/{POOL}"),
                resources: [("VCPU".to_owned(), self.cpus())].into(),
            }],
            consumer_type: "INSTANCE".to_owned(),
            ..ConsumerUpdate::default()
        }
    }
}

fn timed<T>(message: T, deadline: Option<Duration>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(deadline) = deadline {
        request.set_timeout(deadline);
    }
    request
}

/// Makes the pool.
pub async fn make_pool(to: &Addresses) {
    let body = json!({"name": POOL_NAME, "uuid": POOL});
    let made = ask(to.rest[0], "POST", "/resource_providers", Some(body)).await;
    assert_eq!(made.expect("an answer").status, 200);
    let body = json!({"resource_class": "VCPU", "total": POOL_CPUS});
    let path = format!("/resource_providers/{POOL}/inventories");
    let made = ask(to.rest[0], "POST", &path, Some(body)).await;
    assert_eq!(made.expect("an answer").status, 201);
}

/// Reads what docs/answers.md says of REST.
fn stated_by_rest(answer: &Answer) -> Stated {
    let is_unknown = answer.body.contains("\"berth.outcome_unknown\"");
    let words = answer.body.contains("may or may not");
    assert_eq!(is_unknown, words, "the code and the words: {answer:?}");
    match answer.status {
        200..300 => Stated::Done,
        500 => Stated::Unknown,
        503 if is_unknown => Stated::Unknown,
        _ => Stated::NotDone,
    }
}

/// Reads what docs/answers.md says of gRPC.
fn stated(answer: Result<(), Status>) -> (Stated, String) {
    let Err(status) = answer else {
        return (Stated::Done, "OK".to_owned());
    };
    let stated = match refusal_of(&status) {
        None => Stated::Unknown,
        Some(refusal) => match &*refusal.reason {
            "OUTCOME_UNKNOWN" | "REQUEST_ID_FORGOTTEN" | "CLUSTER_RESTORED" | "REPLY_MISMATCH" => {
                Stated::Unknown
            }
            _ => Stated::NotDone,
        },
    };
    (stated, format!("{status:?}"))
}
