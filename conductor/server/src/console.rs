//! A guest's serial console: what the agent of its host has of it, passed on.
//!
//! Not here: sessions that type and follow a guest that moves (`attach`).
//!
//! Invariant: bounded. A reader that does not read slows the agent down and takes no memory here.

mod attach;

use berth_domain::agent::Failure;
use berth_domain::id::VmUid;
use berth_domain::name::{HostName, VmName};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::vm::Vm;
use berth_proto::agent::v1 as agent;
use berth_proto::agent::v1::compute_agent_service_client::ComputeAgentServiceClient;
use berth_proto::conductor::v1::{ReadConsoleRequest, ReadConsoleResponse};
use berth_proto::{client, status};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::driver::Tools;

pub(crate) use attach::{Session, attach};

/// How many messages may be on their way to a reader.
const AHEAD_MAX: usize = 16;

/// A console on its way to a reader.
pub(crate) type Console = ReceiverStream<Result<ReadConsoleResponse, Status>>;

/// Opens a VM's console on the host that holds it now. The stream ends when the guest leaves
/// that host, or `stopping` is cancelled.
pub(crate) async fn open(
    tools: &Tools,
    vm: &VmName,
    request: ReadConsoleRequest,
    stopping: CancellationToken,
) -> Result<Console, Status> {
    let holder = holder(tools, vm).await?;
    let mut agent = holder.client(tools)?;
    let request = agent::ReadConsoleRequest {
        vm_uid: holder.uid.to_string(),
        offset: request.offset,
        follow: request.follow,
    };
    let stream = match agent.read_console(request).await {
        Ok(response) => response.into_inner(),
        Err(status) if client::is_unanswered(&status) => {
            return Err(holder.unreachable(status.message()));
        }
        Err(status) => return Err(to_status(status::from_status(&status))),
    };
    let (sender, receiver) = mpsc::channel(AHEAD_MAX);
    tokio::spawn(async move {
        tokio::select! {
            () = pass_on(stream, &sender) => {}
            () = sender.closed() => {}
            () = stopping.cancelled() => {}
        }
    });
    Ok(ReceiverStream::new(receiver))
}

/// Where a VM is.
pub(crate) struct Holder {
    uid: VmUid,
    host: HostName,
    agent_address: String,
}

/// Returns where a VM is now.
///
/// # Errors
///
/// When it is nowhere.
async fn holder(tools: &Tools, vm: &VmName) -> Result<Holder, Status> {
    let (record, _) = tools.scheduler.vm(vm).await.map_err(to_status)?;
    holder_of(tools, record).await
}

/// Returns where a VM is by this record.
async fn holder_of(tools: &Tools, vm: Vm) -> Result<Holder, Status> {
    let Some(host) = vm.host else {
        let name = &vm.name;
        return Err(to_status(
            Refusal::new(
                Code::FailedPrecondition,
                "VM_WITHOUT_HOST",
                format!("vm {name} is on no host, so it has no console"),
            )
            .with("vm", name),
        ));
    };
    let report = tools.scheduler.host(&host).await.map_err(to_status)?.report;
    Ok(Holder {
        uid: vm.uid,
        host,
        agent_address: report.agent_address.clone(),
    })
}

impl Holder {
    /// Returns a client of its host's agent.
    fn client(&self, tools: &Tools) -> Result<ComputeAgentServiceClient<Channel>, Status> {
        let channel = tools.agents.channel(&self.host, &self.agent_address);
        let channel = channel.map_err(|failure| match failure {
            Failure::Unreachable { message } => self.unreachable(&message),
            Failure::Refused(refusal) => to_status(refusal),
        })?;
        Ok(ComputeAgentServiceClient::new(channel))
    }

    fn unreachable(&self, message: &str) -> Status {
        let host = &self.host;
        let message = format!("the agent of host {host} does not answer: {message}");
        let refusal = Refusal::new(Code::Unavailable, "HOST_UNREACHABLE", message);
        to_status(refusal.with("host", host))
    }
}

async fn pass_on(
    mut stream: Streaming<agent::ReadConsoleResponse>,
    sender: &mpsc::Sender<Result<ReadConsoleResponse, Status>>,
) {
    loop {
        let message = match stream.message().await {
            Ok(None) => return,
            Ok(Some(read)) => Ok(ReadConsoleResponse {
                data: read.data,
                next_offset: read.next_offset,
            }),
            Err(status) => Err(to_status(status::from_status(&status))),
        };
        let is_last = message.is_err();
        if sender.send(message).await.is_err() || is_last {
            return;
        }
    }
}

fn to_status(refusal: Refusal) -> Status {
    status::to_status(&refusal)
}
