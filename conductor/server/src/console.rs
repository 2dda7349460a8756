//! A guest's serial console: what the agent of its host has of it, passed on.
//!
//! Invariant: bounded. A reader that does not read slows the agent down and takes no memory here.

use berth_domain::agent::Failure;
use berth_domain::name::VmName;
use berth_domain::refusal::{Code, Refusal};
use berth_proto::agent::v1 as agent;
use berth_proto::agent::v1::compute_agent_service_client::ComputeAgentServiceClient;
use berth_proto::conductor::v1::{ReadConsoleRequest, ReadConsoleResponse};
use berth_proto::{client, status};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use crate::driver::Tools;

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
    let (record, _) = tools.scheduler.vm(vm).await.map_err(to_status)?;
    let Some(host) = record.host else {
        return Err(to_status(
            Refusal::new(
                Code::FailedPrecondition,
                "VM_WITHOUT_HOST",
                format!("vm {vm} is on no host, so it has no console"),
            )
            .with("vm", vm),
        ));
    };
    let report = tools.scheduler.host(&host).await.map_err(to_status)?.report;
    let unreachable = |message: String| {
        to_status(
            Refusal::new(
                Code::Unavailable,
                "HOST_UNREACHABLE",
                format!("the agent of host {host} does not answer: {message}"),
            )
            .with("host", &host),
        )
    };
    let channel = tools.agents.channel(&host, &report.agent_address);
    let channel = channel.map_err(|failure| match failure {
        Failure::Unreachable { message } => unreachable(message),
        Failure::Refused(refusal) => to_status(refusal),
    })?;
    let request = agent::ReadConsoleRequest {
        vm_uid: record.uid.to_string(),
        offset: request.offset,
        follow: request.follow,
    };
    let mut agent = ComputeAgentServiceClient::new(channel);
    let stream = match agent.read_console(request).await {
        Ok(response) => response.into_inner(),
        Err(status) if client::is_unanswered(&status) => {
            return Err(unreachable(status.message().to_owned()));
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
