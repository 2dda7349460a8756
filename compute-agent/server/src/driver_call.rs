//! Calls of the driver for clients, and what they are answered when it fails.

use std::sync::Arc;

use berth_domain::refusal::{Code, Refusal};
use berth_driver::{Driver, Error};
use berth_proto::status::to_status;
use tonic::Status;

/// Calls the driver on a thread on which it may block.
pub(crate) async fn call<T: Send + 'static>(
    driver: &Arc<dyn Driver>,
    question: impl FnOnce(&dyn Driver) -> Result<T, Error> + Send + 'static,
) -> Result<T, Status> {
    let driver = driver.clone();
    let result = tokio::task::spawn_blocking(move || question(&*driver)).await;
    result
        .map_err(|_| Status::internal("the driver panicked"))?
        .map_err(|error| to_status(&refusal(&error)))
}

/// Returns the refusal for an error of the driver.
pub(crate) fn refusal(error: &Error) -> Refusal {
    let (code, reason) = match error {
        Error::Absent { .. } => (Code::NotFound, "GUEST_NOT_FOUND"),
        Error::StorageShared { .. } => (Code::FailedPrecondition, "STORAGE_SHARED"),
        Error::SourceGone { .. } => (Code::Unavailable, "DISK_SOURCE_UNREACHABLE"),
        Error::Unreachable { .. } => (Code::Unavailable, "HYPERVISOR_UNREACHABLE"),
        Error::TimedOut { .. } => (Code::DeadlineExceeded, "HYPERVISOR_TIMED_OUT"),
        Error::Exists { .. }
        | Error::WrongState { .. }
        | Error::Refused { .. }
        | Error::DiskMissing { .. }
        | Error::SeedMissing { .. }
        | Error::ImageExists { .. }
        | Error::ImageRefused { .. }
        | Error::NoSpace { .. }
        | Error::Overdue { .. }
        | Error::VolumeInUse { .. }
        | Error::VolumeUnusable { .. }
        | Error::Aborted { .. } => (Code::Internal, "HYPERVISOR_REFUSED"),
    };
    Refusal::new(code, reason, error.to_string())
}
