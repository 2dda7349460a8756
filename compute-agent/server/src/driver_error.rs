//! What a client is answered when the driver fails.

use berth_domain::refusal::{Code, Refusal};
use berth_driver::Error;

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
