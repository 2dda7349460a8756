//! Why a command that makes a new group fails, and what helps.
//!
//! Not here: the reasons of a member that does not start, in [`stop`](crate::stop), of which those of a
//! directory are taken: what helps a member that serves does not help a command that writes a directory.

use std::io;

use berth_backup::{Access, Remedy as BackupRemedy};
use berth_process::{Failed, Remedy, error_chain};

use crate::history;
use crate::stop::{DOCUMENT, Reason};

/// The document with the reasons of backups.
const BACKUPS: &str = "docs/backup.md";

/// The document with the reasons of the commands that are of no file and no directory alone.
const COMMANDS: &str = "docs/restore.md";

/// A member is not given up while another one of its group answers.
pub(super) const MEMBER_ANSWERS: Remedy = Remedy {
    code: "member-answers",
    text: "Start this member again where it and those that answer are a majority together; otherwise stop \
           those first",
    document: COMMANDS,
};

/// The old directory is to stay as it is.
pub(super) const WITHIN_OLD_DIRECTORY: Remedy = Remedy {
    code: "within-old-directory",
    text: "Name a directory elsewhere with --into",
    document: COMMANDS,
};

/// The member had joined, and was lost before it had received the state.
pub(super) const NO_STATE: Remedy = Remedy {
    code: "no-state",
    text: "Use the directory of another member that is left, or restore a backup",
    document: COMMANDS,
};

/// What an error was caused by.
type Cause = dyn std::error::Error + 'static;

/// The flags or the configuration are wrong.
const WRONG_USE: u8 = 2;
/// The command cannot be carried out.
const CANNOT_RUN: u8 = 1;

/// Returns the failure of a command that was typed wrongly.
pub(super) fn wrong_use(why: String) -> Failed {
    Failed::new(WRONG_USE, why).with(Reason::Configuration.to_remedy())
}

/// Returns the failure of a command that cannot be carried out.
pub(super) fn cannot_run(why: String) -> Failed {
    Failed::new(CANNOT_RUN, why)
}

/// Returns the failure with a cause.
pub(super) fn failed(what: &str, cause: &Cause) -> Failed {
    cannot_run(format!("{what}: {}", error_chain(cause)))
}

/// Returns the failure of a state that breaks an invariant.
pub(super) fn unsound(why: String) -> Failed {
    let reason = Reason::InvariantBroken;
    cannot_run(why).with(remedy(&[], UNSOUND, reason))
}

/// Returns the failure of a file that does not open.
pub(super) fn of_file(what: &str, error: &io::Error) -> Failed {
    let remedy = BackupRemedy::of_file(Access::Read, error);
    failed(what, error).with(of_backup(remedy))
}

/// Returns the failure of files that cannot be restored.
pub(super) fn of_backups(what: &str, error: &history::Error) -> Failed {
    let remedy = match error {
        history::Error::Verify(error) => error.remedy(),
        history::Error::Later(_) | history::Error::NotReached(_) => BackupRemedy::OUT_OF_RANGE,
    };
    failed(what, error).with(of_backup(remedy))
}

/// Returns what helps against the refusal of a backup.
pub(super) fn of_backup(remedy: BackupRemedy) -> Remedy {
    Remedy {
        code: remedy.reason,
        text: remedy.hint,
        document: BACKUPS,
    }
}

/// What helps where the state is not sound.
const UNSOUND: &str = "Use an earlier backup, or the directory of another member that is left, and keep \
                       what was named: this is a fault in Berth";

/// What helps where the directory that is to be written cannot be.
const NEW_DIRECTORY: &[(Reason, &str)] = &[
    (
        Reason::DirectoryOccupied,
        "Name a directory that is empty or does not exist yet; what is there was not touched",
    ),
    (
        Reason::DirectoryInUse,
        "Name another directory: a process uses this one (`fuser -v DIRECTORY/MEMBER` lists it)",
    ),
    (
        Reason::DiskFull,
        "Make space on its disk, or name a directory on another one, and run the command again",
    ),
    (
        Reason::NotPermitted,
        "Run the command as the user that berth-scheduler runs as, with a directory of that user",
    ),
    (
        Reason::ReadOnly,
        "Name a directory of a file system that can be written",
    ),
    (
        Reason::FileInTheWay,
        "Name a directory, or a name that is free: what has this name is no directory",
    ),
];

/// What helps against every other reason.
const OTHER_DIRECTORY: &str = "Name a directory on another disk, and run the command again";

/// What helps where the directory of a member that is left cannot be read.
const SURVIVOR: &[(Reason, &str)] = &[
    (
        Reason::DirectoryInUse,
        "Stop the member that runs on it (`fuser -v DIRECTORY/MEMBER` lists it), and run the command \
         again",
    ),
    (
        Reason::NoMember,
        "Set `--data-dir` to the directory of a member that is left",
    ),
    (
        Reason::NotPermitted,
        "Run the command as the user that berth-scheduler runs as",
    ),
    (
        Reason::FileInTheWay,
        "Move away what is named, and run the command again: `table` is made again, and anything else \
         belongs back in its place",
    ),
    (Reason::FormatNewer, NEWER_PROGRAM),
    (Reason::NewerCommand, NEWER_PROGRAM),
    (Reason::StateUnreadable, NEWER_PROGRAM),
];

const NEWER_PROGRAM: &str = "Use the berth-scheduler of the version that ran on it, or a newer one";

/// What helps against every other reason.
const OTHER_SURVIVOR: &str = "Use the directory of another member that is left (`recover --inspect` shows \
                              what it has), or restore a backup: docs/restore.md";

/// Returns the failure of the directory that is to be written.
pub(super) fn of_new_directory(what: &str, cause: &Cause, reason: Reason) -> Failed {
    failed(what, cause).with(remedy(NEW_DIRECTORY, OTHER_DIRECTORY, reason))
}

/// Returns the failure of the directory of a member that is left.
pub(super) fn of_survivor(what: &str, cause: &Cause, reason: Reason) -> Failed {
    failed(what, cause).with(remedy(SURVIVOR, OTHER_SURVIVOR, reason))
}

fn remedy(table: &[(Reason, &'static str)], other: &'static str, reason: Reason) -> Remedy {
    let row = table.iter().find(|(of, _)| *of == reason);
    Remedy {
        code: reason.code(),
        text: row.map_or(other, |(_, text)| text),
        document: DOCUMENT,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Goal: an operator who reads a code finds it in the document, with what to do. Method: the rows of the
    /// table of codes.
    #[test]
    fn the_codes_of_the_commands_are_documented() {
        let document = include_str!("../../../../docs/restore.md");
        let table = document.lines().skip_while(|l| !l.starts_with("| code |"));
        let rows = table.skip(2).take_while(|line| line.starts_with('|'));
        let codes = rows.filter_map(|row| row.split('`').nth(1));
        let documented: BTreeSet<&str> = codes.collect();
        let all = [MEMBER_ANSWERS, WITHIN_OLD_DIRECTORY, NO_STATE];
        assert_eq!(documented, all.iter().map(|remedy| remedy.code).collect());
        assert!(all.iter().all(|remedy| remedy.document == COMMANDS));
    }
}
