//! Request ids: from a message to the key under which its answer is remembered.
//!
//! The key holds a hash of the message without its id, so that one id used for two different
//! requests is noticed.

use std::net::IpAddr;

use berth_proto::convert::{Invalid, field};
use berth_proto::{cluster, host, operation, placement, scheduler};
use berth_state::command::RequestKey;
use prost::Message;
use tonic::Request;
use xxhash_rust::xxh3::xxh3_128;

/// A message that may carry a request id.
pub(crate) trait Keyed: Message {
    /// The method, as `ScheduleVm`.
    const METHOD: &'static str;

    /// Takes the request id out.
    fn take_request_id(&mut self) -> String;
}

macro_rules! keyed {
    ($($method:literal: $message:ty;)*) => {$(
        impl Keyed for $message {
            const METHOD: &'static str = $method;

            fn take_request_id(&mut self) -> String {
                std::mem::take(&mut self.request_id)
            }
        }
    )*};
}

keyed! {
    "RegisterHost": host::v1::RegisterHostRequest;
    "CordonHost": host::v1::CordonHostRequest;
    "UncordonHost": host::v1::UncordonHostRequest;
    "RemoveHost": host::v1::RemoveHostRequest;
    "CreateResourceProvider": placement::v1::CreateResourceProviderRequest;
    "DeleteResourceProvider": placement::v1::DeleteResourceProviderRequest;
    "ReplaceInventories": placement::v1::ReplaceInventoriesRequest;
    "ReplaceTraits": placement::v1::ReplaceTraitsRequest;
    "ReplaceAllocations": placement::v1::ReplaceAllocationsRequest;
    "CreateFlavor": scheduler::v1::CreateFlavorRequest;
    "DeleteFlavor": scheduler::v1::DeleteFlavorRequest;
    "ScheduleVm": scheduler::v1::ScheduleVmRequest;
    "ScheduleMigration": scheduler::v1::ScheduleMigrationRequest;
    "ScheduleNext": scheduler::v1::ScheduleNextRequest;
    "BeginDelete": scheduler::v1::BeginDeleteRequest;
    "CancelOperation": operation::v1::CancelOperationRequest;
    "Advance": operation::v1::AdvanceRequest;
    "TakeLease": operation::v1::TakeLeaseRequest;
    "RenewLeases": operation::v1::RenewLeasesRequest;
    "RegisterService": cluster::v1::RegisterServiceRequest;
}

/// Who asked, and under which key the answer is remembered.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) principal: String,
    pub(crate) key: Option<RequestKey>,
}

/// Takes a request apart into its message and who asked.
pub(crate) fn open<T: Keyed>(request: Request<T>) -> Result<(T, Caller), Invalid> {
    let principal = principal(request.remote_addr().map(|address| address.ip()));
    let mut message = request.into_inner();
    let id = message.take_request_id();
    let id = field::optional_uuid(&id, "request_id")?;
    let key = id.map(|id| RequestKey {
        method: T::METHOD.to_owned(),
        id,
        payload_hash: xxh3_128(&message.encode_to_vec()),
    });
    Ok((message, Caller { principal, key }))
}

/// Returns on whose behalf a request is made. Nobody proves who they are yet.
fn principal(peer: Option<IpAddr>) -> String {
    match peer {
        Some(peer) => format!("unverified:{peer}"),
        None => "unverified:".into(),
    }
}
