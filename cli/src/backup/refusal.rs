//! Why a file is refused: a reason for programs, a sentence and a hint for people.

use std::io;
use std::path::Path;

use berth_backup::{ReadError, Remedy, VerifyError};
use berth_domain::refusal::{Code, Refusal};
use berth_process::error_chain;

/// Returns the refusal of a file that the operating system does not give; `what` was done to it, as
/// `opened`.
pub(crate) fn of_file(what: &str, path: &Path, error: &io::Error) -> Refusal {
    let is = |kind| error.kind() == kind;
    let (code, reason, hint) = if is(io::ErrorKind::NotFound) {
        let hint = match what {
            "opened" => "check the path; for standard input, name /dev/stdin",
            _ => "make its directory first, or name a file in another one",
        };
        (Code::NotFound, "FILE_NOT_FOUND", Some(hint))
    } else if is(io::ErrorKind::AlreadyExists) {
        let hint = "name another file, or remove this one";
        (Code::AlreadyExists, "FILE_EXISTS", Some(hint))
    } else {
        let hint = if is(io::ErrorKind::PermissionDenied) {
            Some("run the command as the user to whom the file belongs")
        } else if is(io::ErrorKind::StorageFull) {
            Some("make space on its disk, or name a file on another one")
        } else if is(io::ErrorKind::InvalidInput) {
            Some("name a regular file, or one that is not there yet")
        } else {
            None
        };
        (Code::FailedPrecondition, "FILE_UNUSABLE", hint)
    };
    let message = format!("{} could not be {what}: {error}", path.display());
    let refusal = Refusal::new(code, reason, message).with("file", path.display());
    match hint {
        Some(hint) => refusal.with_hint(hint),
        None => refusal,
    }
}

/// Returns the refusal of a directory in place of a file.
pub(crate) fn of_directory(path: &Path) -> Refusal {
    let message = format!("{} is a directory", path.display());
    let refusal = Refusal::new(Code::FailedPrecondition, "FILE_UNUSABLE", message);
    refusal
        .with("file", path.display())
        .with_hint("name the files in it, each full backup before its increments")
}

/// Returns the refusal of a file that is no sound backup.
pub(crate) fn of_read(path: &Path, error: &ReadError) -> Refusal {
    refused(path, error.remedy(), error)
}

/// Returns the refusal of a file that does not verify.
pub(crate) fn of_verify(path: &Path, error: &VerifyError) -> Refusal {
    match error.remedy() {
        Remedy::OUT_OF_RANGE => out_of_range(path, error),
        remedy => refused(path, remedy, error),
    }
}

/// Returns the refusal of sound files that do not have the moment whose state is requested.
pub(crate) fn out_of_range(path: &Path, why: &dyn std::error::Error) -> Refusal {
    let Remedy { reason, hint } = Remedy::OUT_OF_RANGE;
    let message = format!("{} does not have that moment: {why}", path.display());
    let refusal = Refusal::new(Code::FailedPrecondition, reason, message);
    refusal.with("file", path.display()).with_hint(hint)
}

fn refused(path: &Path, remedy: Remedy, error: &(dyn std::error::Error + 'static)) -> Refusal {
    let Remedy { reason, hint } = remedy;
    let message = format!("{} does not verify: {}", path.display(), error_chain(error));
    let refusal = Refusal::new(Code::FailedPrecondition, reason, message);
    refusal.with("file", path.display()).with_hint(hint)
}
