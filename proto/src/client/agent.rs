//! The calls of a conductor to a compute agent.

use std::time::Duration;

use berth_domain::agent::{Failure, Reply};
use berth_traces::client::Traced;
use tonic::Status;
use tonic::transport::Channel;

use super::is_unanswered;
use crate::agent::v1::compute_agent_service_client::ComputeAgentServiceClient;
use crate::convert::Invalid;
use crate::convert::agent::{FencedCall, Request};
use crate::status;

/// Makes one call to an agent, once; repeating it is up to the conductor's saga.
///
/// # Errors
///
/// [`Failure::Refused`] when the agent refused. [`Failure::Unreachable`] when no answer came
/// within `timeout`, or none that can be read: the call may have had its effects.
pub async fn call(
    channel: Channel,
    call: &FencedCall,
    timeout: Duration,
) -> Result<Reply, Failure> {
    let unreachable = |message: String| Failure::Unreachable { message };
    let answer = tokio::time::timeout(timeout, send(channel, call.into()))
        .await
        .map_err(|_| unreachable(format!("no answer within {} ms", timeout.as_millis())))?;
    match answer {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(invalid)) => Err(unreachable(format!("unreadable answer: {invalid}"))),
        Err(status) => Err(failure(&status)),
    }
}

/// Returns what a failed call to an agent means.
#[must_use]
pub fn failure(status: &Status) -> Failure {
    // Without a refusal of ours inside, an internal error is a stream that broke, or a handler
    // that panicked half-way.
    let broken = matches!(
        status.code(),
        tonic::Code::Unknown
            | tonic::Code::Internal
            | tonic::Code::Cancelled
            | tonic::Code::DeadlineExceeded
            | tonic::Code::DataLoss
    ) && status::refusal_of(status).is_none();
    if broken || is_unanswered(status) {
        let text = status.message();
        return Failure::Unreachable {
            message: match std::error::Error::source(status) {
                Some(source) => format!("{text}: {}", root(source)),
                None => text.to_owned(),
            },
        };
    }
    Failure::Refused(status::from_status(status))
}

/// The innermost cause: what surrounds it is only "transport error".
fn root<'a>(mut error: &'a (dyn std::error::Error + 'static)) -> &'a dyn std::error::Error {
    while let Some(source) = error.source() {
        error = source;
    }
    error
}

async fn send(channel: Channel, request: Request) -> Result<Result<Reply, Invalid>, Status> {
    let mut client = ComputeAgentServiceClient::new(Traced::new(channel));
    macro_rules! send {
        ($method:ident, $message:expr) => {
            Reply::try_from(client.$method($message).await?.into_inner())
        };
    }
    Ok(match request {
        Request::SpawnVm(message) => send!(spawn_vm, *message),
        Request::DestroyVm(message) => send!(destroy_vm, message),
        Request::GetDomain(message) => send!(get_domain, message),
        Request::CheckCanLiveMigrateDestination(message) => {
            send!(check_can_live_migrate_destination, *message)
        }
        Request::CheckCanLiveMigrateSource(message) => {
            send!(check_can_live_migrate_source, message)
        }
        Request::FitLiveMigration(message) => send!(fit_live_migration, *message),
        Request::PreLiveMigration(message) => send!(pre_live_migration, *message),
        Request::LiveMigration(message) => send!(live_migration, *message),
        Request::RollbackLiveMigrationAtDestination(message) => {
            send!(rollback_live_migration_at_destination, message)
        }
        Request::PostLiveMigrationAtSource(message) => {
            send!(post_live_migration_at_source, message)
        }
        Request::StopVm(message) => send!(stop_vm, message),
        Request::StartVm(message) => send!(start_vm, *message),
        Request::SettleVm(message) => send!(settle_vm, message),
        Request::AbortLiveMigration(message) => send!(abort_live_migration, message),
        Request::ForceCompleteLiveMigration(message) => {
            send!(force_complete_live_migration, message)
        }
        Request::MakeDisks(message) => send!(make_disks, *message),
        Request::CopyDisk(message) => send!(copy_disk, *message),
        Request::PublishImage(message) => send!(publish_image, message),
        Request::DropImage(message) => send!(drop_image, message),
        Request::FetchDisks(message) => send!(fetch_disks, *message),
        Request::DropDisks(message) => send!(drop_disks, message),
    })
}

#[cfg(test)]
mod tests {
    use berth_domain::refusal::{Code, Refusal};

    use super::*;

    #[test]
    fn what_the_agent_said_is_told_from_silence() {
        let refusal = Refusal::new(Code::Internal, "HYPERVISOR", "libvirt said no");
        let said = failure(&status::to_status(&refusal));
        assert_eq!(said, Failure::Refused(refusal));
        let busy = Refusal::new(Code::Unavailable, "AGENT_BUSY", "busy");
        let said = failure(&status::to_status(&busy));
        assert_eq!(said, Failure::Refused(busy));

        let old = failure(&Status::unimplemented("no such method"));
        let Failure::Refused(old) = old else {
            panic!("{old:?}");
        };
        assert_eq!(old.code, Code::Unimplemented);

        for silent in [
            Status::unavailable("connection refused"),
            Status::internal("h2 protocol error"),
            Status::deadline_exceeded("timeout"),
            Status::unknown("transport error"),
        ] {
            let failure = failure(&silent);
            assert!(
                matches!(failure, Failure::Unreachable { .. }),
                "{silent:?} -> {failure:?}"
            );
        }
    }
}
