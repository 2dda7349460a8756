//! Why a file is refused: a reason for programs, a sentence and a hint for people.

use std::io;
use std::path::Path;

use berth_backup::{Access, ReadError, Remedy, VerifyError};
use berth_domain::refusal::{Code, Refusal};
use berth_process::error_chain;

/// Returns the refusal of a file that the operating system does not give.
pub(crate) fn of_file(access: Access, path: &Path, error: &io::Error) -> Refusal {
    let remedy = Remedy::of_file(access, error);
    let code = match remedy.reason {
        Remedy::NOT_FOUND => Code::NotFound,
        Remedy::EXISTS => Code::AlreadyExists,
        _ => Code::FailedPrecondition,
    };
    let what = match access {
        Access::Read => "opened",
        Access::Write => "written",
    };
    let message = format!("{} could not be {what}: {error}", path.display());
    let refusal = Refusal::new(code, remedy.reason, message);
    refusal.with("file", path.display()).with_hint(remedy.hint)
}

/// Returns the refusal of a directory in place of a file.
pub(crate) fn of_directory(path: &Path) -> Refusal {
    let Remedy { reason, hint } = Remedy::DIRECTORY;
    let message = format!("{} is a directory", path.display());
    let refusal = Refusal::new(Code::FailedPrecondition, reason, message);
    refusal.with("file", path.display()).with_hint(hint)
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
