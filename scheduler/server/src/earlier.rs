//! Why this member does not give an earlier state, or what was done since one: the refusals of histories and
//! of reads at a revision.
//!
//! Not here: making such a state ([`berth_replication::runtime::Archive`]).

use berth_domain::refusal::{Code, Refusal};
use berth_process::error_chain;
use berth_replication::runtime::ArchiveError;

/// The cluster has not come to a revision.
pub(crate) fn not_reached(revision: u64, last: u64) -> Refusal {
    let message = format!("the cluster has not reached revision {revision}: it is at {last}");
    Refusal::new(Code::OutOfRange, "REVISION_NOT_REACHED", message)
        .with("last_revision", last)
        .with_hint(
            "name a revision up to that; a later one is of another cluster, or of before a restore",
        )
}

/// Others wait for their turn too.
pub(crate) fn busy() -> Refusal {
    let message =
        "this member is making another earlier state, which takes as much memory as its own";
    Refusal::new(Code::ResourceExhausted, "HISTORY_BUSY", message)
        .with_hint("repeat the request in a few seconds, or send it to another scheduler")
}

/// The checkpoints and the log do not give it.
pub(crate) fn not_kept(error: &ArchiveError) -> Refusal {
    let message = format!(
        "this member cannot make that earlier state: {}",
        error_chain(error)
    );
    let (code, reason) = match error {
        ArchiveError::Forgotten { .. } => (Code::OutOfRange, "REVISION_NOT_KEPT"),
        ArchiveError::Nothing
        | ArchiveError::Checkpoints(_)
        | ArchiveError::Checkpoint { .. }
        | ArchiveError::Log(_) => (Code::FailedPrecondition, "HISTORY_NOT_KEPT"),
    };
    Refusal::new(code, reason, message)
        .with_hint("name another scheduler, whose log may begin earlier, or read backups")
}

/// The log cannot be applied again, which is a fault of the program or of the disk.
pub(crate) fn broken(error: &(dyn std::error::Error + 'static)) -> Refusal {
    let message = format!("the log cannot be applied again: {}", error_chain(error));
    Refusal::new(Code::Internal, "HISTORY_BROKEN", message)
        .with_hint("send the request to another scheduler, and report this with its log")
}
