//! Copies an image to hosts that a user names, several at a time. Each one that has it is a source for the
//! next.

use std::sync::Arc;
use std::time::Duration;

use berth_domain::host::{Host, Liveness};
use berth_domain::name::{HostName, ImageName};
use berth_domain::refusal::Refusal;
use berth_proto::conductor::v1::{CopyImageRequest, CopyImageResponse};
use berth_proto::convert::{Invalid, ResourceName as _, field};
use berth_proto::status::to_status;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::add::no_host;
use super::{fetch, refusal_of};
use crate::driver::Tools;
use crate::scheduler::images::Which;

/// How many hosts one request names at most.
const HOSTS_MAX: usize = 1_000;

/// How long a user may take for the last message.
const LAST_MAX: Duration = Duration::from_secs(1);

/// How many hosts fetch it at a time.
const COPIES_MAX: usize = 8;

/// The results on their way to a user.
pub(crate) type Copies = ReceiverStream<Result<CopyImageResponse, Status>>;

/// Has hosts fetch an image, and sends each result when it is known.
///
/// # Errors
///
/// When the image or a host is not known.
pub(crate) async fn copy(
    tools: Tools,
    request: CopyImageRequest,
    stopping: CancellationToken,
) -> Result<Copies, Status> {
    let name: ImageName = field::name(&request.name, "name")?;
    if request.hosts.len() > HOSTS_MAX {
        let rule = format!("may name {HOSTS_MAX} hosts at most");
        return Err(Invalid::new("hosts", rule).into());
    }
    let granted = tools.scheduler.grant_image(Which::Name(&name)).await;
    let granted = granted.map_err(|refusal| to_status(&refusal))?;
    let image = granted.image;
    image.ready().map_err(|refusal| to_status(&refusal))?;
    let hosts = hosts(&tools, &request.hosts).await?;
    if hosts.is_empty() {
        return Err(no_host("no host that runs VMs reports".to_owned()));
    }
    let (sender, receiver) = mpsc::channel(COPIES_MAX);
    tokio::spawn(async move {
        let file = Arc::new(image.file());
        let turns = Arc::new(Semaphore::new(COPIES_MAX));
        let mut copying = JoinSet::new();
        for host in hosts {
            let (tools, file, turns) = (tools.clone(), file.clone(), turns.clone());
            let sender = sender.clone();
            copying.spawn(async move {
                // It is never closed.
                let _turn = turns.acquire().await;
                // A user who has gone wants no more copies; those that are under way are recorded.
                if sender.is_closed() {
                    return;
                }
                let address = &host.report.agent_address;
                let fetched = fetch(&tools, Which::File(&file), &host.name, address).await;
                let result = fetched.map_err(|failure| refusal_of(&host.name, failure));
                // A user who has gone needs no answer.
                let _ = sender.send(Ok(response(&host.name, &result))).await;
            });
        }
        let ended = tokio::select! {
            ended = all(&mut copying) => ended,
            () = sender.closed() => {
                copying.detach_all();
                return;
            }
            () = stopping.cancelled() => {
                let why = "the conductor stops; repeat the request at another one";
                Err(Status::unavailable(why))
            }
        };
        // Those that are under way have nothing more to say.
        copying.abort_all();
        if ended.is_err() {
            let _ = timeout(
                LAST_MAX,
                sender.send(ended.map(|()| CopyImageResponse::default())),
            )
            .await;
        }
    });
    Ok(ReceiverStream::new(receiver))
}

/// Waits for all of them.
async fn all(copying: &mut JoinSet<()>) -> Result<(), Status> {
    while let Some(ended) = copying.join_next().await {
        ended.map_err(|_| Status::internal("the conductor failed while it copied the image"))?;
    }
    Ok(())
}

/// Returns the named hosts, or all that run guests and report.
async fn hosts(tools: &Tools, names: &[String]) -> Result<Vec<Host>, Status> {
    if names.is_empty() {
        let is_up = |host: &Host| host.liveness == Liveness::Up && host.report.runs_guests();
        let hosts = tools.scheduler.hosts(is_up, usize::MAX).await;
        return hosts.map_err(|refusal| to_status(&refusal));
    }
    let mut hosts = Vec::new();
    for name in names {
        let name: HostName = field::name(name, "hosts")?;
        let host = tools.scheduler.host(&name).await;
        hosts.push(host.map_err(|refusal| to_status(&refusal))?);
    }
    Ok(hosts)
}

fn response(host: &HostName, result: &Result<bool, Refusal>) -> CopyImageResponse {
    CopyImageResponse {
        host: host.resource_name(),
        fetched: matches!(result, Ok(true)),
        refusal: result.as_ref().err().map(Into::into),
    }
}
