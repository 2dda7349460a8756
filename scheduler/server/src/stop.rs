//! Why a member does not start, or stops by itself, and what to do about it: one table.
//!
//! Each error that can end the process belongs to one [`Reason`]. A reason has a stable code, a
//! sentence for the table in `docs/stops.md`, and a remedy, which the process prints after the
//! error. The errors themselves name the object and the cause and no remedy, so that there is one
//! place for each.
//!
//! Not here: errors that a client gets, and what a member repairs by itself.
//!
//! Invariant: every variant of every error below [`Error`] is matched here by name, so that a new
//! one does not compile without a reason.

use std::io;

use berth_process::{Cause, Remedy};
use berth_replication::Fatal;
use berth_replication::runtime::{LogError, OpenError, StopError};
use berth_store::{
    MigrationError, checkpoints, disk, identity, log, recover, space, table, witness,
};

use crate::error::Error;

/// The document with the table.
pub const DOCUMENT: &str = "docs/stops.md";

/// Declares the table: name, code, sentence, remedy.
macro_rules! reasons {
    ($($name:ident $code:literal $sentence:literal $remedy:expr;)*) => {
        /// Why a member does not start, or stops by itself.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Reason {
            $(#[doc = $sentence] $name,)*
        }

        impl Reason {
            /// All reasons, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Returns its stable name.
            #[must_use]
            pub fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// Returns what happened, in one sentence.
            #[must_use]
            pub fn sentence(self) -> &'static str {
                match self { $(Self::$name => $sentence,)* }
            }

            /// Returns what to do, in the imperative.
            #[must_use]
            pub fn remedy(self) -> &'static str {
                match self { $(Self::$name => $remedy,)* }
            }
        }
    };
}

/// The remedy for a disk that lost, or may have lost, what this member acknowledged.
const REPLACE: &str = "Remove this member from the cluster and join again with an empty directory: \
                       run `berth cluster remove-member N` at a running member, move the data \
                       directory away, and start with `--join` and the address of a running member";

/// The remedy where two histories exist.
const CHOOSE: &str = "Stop all members and keep their directories: acknowledged writes are missing \
                      in one of two histories. Decide which one the hosts followed, start the \
                      members that have it, and let each other one be removed and join again with \
                      an empty directory";

reasons! {
    Configuration "configuration"
        "The command line or the configuration file is wrong; each fault is named."
        "Correct what is named; `berth-scheduler --help` lists the flags, and \
         `deploy/scheduler.toml` all keys with their defaults";
    Certificates "certificates"
        "The files under `tls` cannot be read, do not belong together, are not valid now, or are \
         those of another role or host."
        "Correct the paths, or issue a certificate for this host: `berth certs issue DIR --role \
         scheduler --name NAME --dns HOST`";
    Tokens "tokens"
        "The file with the tokens of the REST API's callers cannot be used."
        "Correct what is named in the file of `placement_tokens`";
    AddressInUse "address-in-use"
        "Another process listens on the address."
        "Stop that process (`ss -ltnp` lists it), or start with another `--listen`, \
         `--placement-listen`, `--metrics-listen` or `--page-listen`";
    AddressUnusable "address-unusable"
        "The address to listen on is not one of this machine, or needs privileges."
        "Start with `--listen`, `--placement-listen`, `--metrics-listen` and `--page-listen` set to \
         addresses of this machine (`ip address`) and ports above 1023";
    NoMember "no-member"
        "The data directory is empty or missing, and the command line does not say how to begin."
        "If a member was here before, mount its disk. Otherwise start once with `--bootstrap` to \
         make a new cluster, or with `--join` to become a member of a running one; if the disk of \
         a member is lost, remove that member first with `berth cluster remove-member N`";
    AlreadyMember "already-member"
        "A new cluster was requested in the directory of a member."
        "To restart that member, start without --bootstrap; for a new cluster, set `--data-dir` to \
         an empty directory";
    OtherCluster "other-cluster"
        "The data directory, `--cluster-id` and the members under `--join` are not of one cluster."
        "Set `--data-dir` to the directory of that cluster's member; or, if the directory is the \
         right one, or empty, correct or omit `--cluster-id` and `--join`";
    DirectoryOccupied "directory-occupied"
        "There are files in the directory in which a new member is to begin."
        "Set `--data-dir` to a directory that is empty or does not exist, or move the files away";
    DirectoryInUse "directory-in-use"
        "Another process uses the data directory."
        "Stop that process (`fuser -v DIRECTORY/MEMBER` lists it) and start again, or set \
         `--data-dir` to a directory of its own";
    FileInTheWay "file-in-the-way"
        "A file has the name of a folder, a folder that of a file, or something else, as a FIFO, the \
         name of either."
        "Move what is named away. Put back in its place what was there before, if it exists, and \
         start again: `table` is rebuilt by itself, and a start without another one ends with the \
         reason for that";
    NotPermitted "not-permitted"
        "The user of the process may not read or write the data directory."
        "Give the directory and everything in it to that user (`chown -R USER DIRECTORY`, `chmod -R \
         u+rwX DIRECTORY`) and start again";
    ReadOnly "disk-read-only"
        "The file system of the data directory is mounted read-only."
        "Look for the cause in the kernel's log (`dmesg`): Linux does this after errors of the \
         disk. Mount the file system writable (`mount -o remount,rw`) and start again";
    DiskFull "disk-full"
        "The file system of the data directory is full, or a quota is reached."
        "Free at least 64 MiB (`df -h DIRECTORY`) and start again; nothing that was acknowledged \
         is lost";
    DiskFailed "disk-failed"
        "The disk, or the kernel, returned an error while the data directory was read or written."
        "Look for the cause in the kernel's log (`dmesg`) and correct it. Unmount and mount the \
         file system, so that nothing is read that only the page cache has, and start again. \
         If the disk does not work any more, remove this member from the cluster and join again \
         with an empty directory on another one";
    LogNotSynchronised "log-not-synchronised"
        "raft-engine gave up while the Raft log was written, as it does when a synchronisation \
         fails."
        "Look for the cause in the kernel's log (`dmesg`) and correct it. Unmount and mount the \
         file system, so that nothing is read that only the page cache has, and start again. \
         If the disk does not work any more, remove this member from the cluster and join again \
         with an empty directory on another one";
    NoResources "no-resources"
        "The operating system refused a thread, a file descriptor or a signal handler."
        "Raise the limits of the process (`ulimit -n`, `ulimit -u`; systemd: `LimitNOFILE`, \
         `TasksMax`) and start again";
    MarkerDamaged "marker-damaged"
        "The file `MEMBER`, which says which member owns the directory, is damaged."
        REPLACE;
    FormatNewer "format-newer"
        "A newer program changed the layout of the data directory."
        "Start that program or a newer one. If there was none, the file `FORMAT` is damaged: \
         remove this member from the cluster and join again with an empty directory";
    FormatDamaged "format-damaged"
        "The file `FORMAT`, which lists the changes of the layout, is damaged."
        REPLACE;
    LogDamaged "log-damaged"
        "The Raft log is damaged, or a part of it is missing."
        REPLACE;
    LogBehind "log-behind"
        "The Raft log ends before what was synchronised: it is damaged at its end, was deleted, or \
         is an older copy."
        REPLACE;
    WitnessContradicts "witness-contradicts"
        "The Raft log and its witness do not belong together."
        REPLACE;
    WitnessLost "witness-lost"
        "The witness of the Raft log is missing or has no record that can be read, so that nothing \
         shows whether the log is whole."
        REPLACE;
    CheckpointsLost "checkpoints-lost"
        "The checkpoints are missing or damaged, and the Raft log alone does not hold the state."
        REPLACE;
    MixedDirectory "mixed-directory"
        "A checkpoint in the data directory belongs to another cluster."
        REPLACE;
    StateUnreadable "state-unreadable"
        "The stored state holds what this program does not know."
        "Start the newest program that ran in this cluster, with its `--service-version` or none. \
         If this was the newest, remove this member from the cluster and join again with an empty \
         directory";
    NewerCommand "newer-command"
        "A committed command cannot be read: a newer program proposed it."
        "Start the newest program that runs in this cluster, with its `--service-version` or none; \
         the data directory is as it was";
    Outdated "outdated"
        "The cluster version was raised beyond this member's service version."
        "Start it with a program of that version or newer, without `--service-version`; the data \
         directory is as it was";
    RolledBack "rolled-back"
        "This member lacks entries that it acknowledged: its directory was restored from a copy, or \
         its disk was rolled back."
        REPLACE;
    TwoHistories "two-histories"
        "Members follow two histories: a quorum lost entries that it acknowledged and went on."
        CHOOSE;
    Diverged "diverged"
        "The state of this member is not that of the leader at the same index."
        REPLACE;
    InvariantBroken "invariant-broken"
        "The state breaks an invariant, or a command did something else than was predicted."
        "Start again: the state is read from the disk and the log, and is compared with the \
         leader's. If it ends again, report the message and keep the directory; if other members \
         work, remove this member from the cluster and join again with an empty directory. If all \
         members end with it, start them with `invariant_check_interval_ms = 0` in the \
         configuration file, which serves the state as it is";
    RaftFailed "raft-failed"
        "The Raft library refused what the log, the membership or a message holds."
        REPLACE;
    Panicked "panicked"
        "A part of the program panicked: an invariant of it or of a library does not hold."
        "Start again: nothing that was acknowledged is lost. The place of the panic is in the log \
         above. If it ends again, report it and keep the directory; if other members work, remove \
         this member from the cluster and join again with an empty directory";
    Removed "removed"
        "This member was removed from its cluster."
        "Delete its data directory. To use this machine again, start with an empty directory and \
         `--join`";
    JoinFailed "join-failed"
        "None of the members under `--join` let this one join."
        "Set `--join` to addresses of members that run (`berth cluster status` lists them), correct \
         what they answered, and start again; certificates have to be of one authority";
    ServerFailed "server-failed"
        "The gRPC server ended by itself."
        "Start again; if it ends again, report the message";
}

impl Reason {
    /// Returns why this error ends the process.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        match error {
            Error::Config(_) => Self::Configuration,
            Error::Certificates(_) => Self::Certificates,
            Error::Tokens(_) => Self::Tokens,
            Error::Listen(error) if error.is_in_use() => Self::AddressInUse,
            Error::Listen(_) => Self::AddressUnusable,
            Error::Disk(error) => of_disk(error),
            Error::NoMember { .. } => Self::NoMember,
            Error::AlreadyMember { .. } => Self::AlreadyMember,
            Error::OtherCluster { .. } | Error::PeerOfOtherCluster { .. } => Self::OtherCluster,
            Error::Join { .. } => Self::JoinFailed,
            Error::Open(error) => of_open(error),
            Error::Stop(error) => of_stop(error),
            Error::Removed => Self::Removed,
            Error::Outdated { .. } => Self::Outdated,
            Error::Unsound { .. } => Self::InvariantBroken,
            Error::Serve(_) | Error::Ended(_) => Self::ServerFailed,
            Error::Panicked { .. } => Self::Panicked,
        }
    }

    /// Returns the remedy as the process prints it.
    #[must_use]
    pub fn to_remedy(self) -> Remedy {
        Remedy {
            code: self.code(),
            text: self.remedy(),
            document: DOCUMENT,
        }
    }
}

/// Finds the remedy for what ended the process.
pub(crate) fn explain(cause: &Cause<'_, Error>) -> Option<Remedy> {
    let reason = match cause {
        Cause::Configuration => Reason::Configuration,
        Cause::System(_) => Reason::NoResources,
        Cause::Panic => Reason::Panicked,
        Cause::Program(error) => Reason::of(error),
    };
    Some(reason.to_remedy())
}

pub(crate) fn of_disk(error: &disk::Error) -> Reason {
    match error {
        disk::Error::Identity(error) => of_identity(error),
        disk::Error::NotAFolder { .. } | disk::Error::NotAFile { .. } => Reason::FileInTheWay,
        disk::Error::Space(error) => of_space(error),
        disk::Error::Migration(error) => of_migration(error),
        disk::Error::Log(error) => of_log(error),
        disk::Error::Checkpoints(error) => of_checkpoints(error),
        disk::Error::Table(error) => of_table(error),
    }
}

pub(crate) fn of_space(error: &space::Error) -> Reason {
    match error {
        space::Error::Full { .. } => Reason::DiskFull,
        space::Error::Io { source, .. } => of_io(source),
    }
}

pub(crate) fn of_identity(error: &identity::Error) -> Reason {
    match error {
        identity::Error::Missing { .. } => Reason::NoMember,
        identity::Error::Occupied { .. } => Reason::DirectoryOccupied,
        identity::Error::InUse { .. } => Reason::DirectoryInUse,
        identity::Error::OtherCluster { .. } => Reason::OtherCluster,
        identity::Error::Damaged { .. } => Reason::MarkerDamaged,
        identity::Error::NotPrivate { source, .. } | identity::Error::Io { source, .. } => {
            of_io(source)
        }
    }
}

fn of_migration(error: &MigrationError) -> Reason {
    match error {
        MigrationError::Newer { .. } => Reason::FormatNewer,
        MigrationError::Damaged { .. } => Reason::FormatDamaged,
        MigrationError::Step { source, .. } | MigrationError::Ledger { source, .. } => {
            of_io(source)
        }
    }
}

pub(crate) fn of_log(error: &log::Error) -> Reason {
    match error {
        log::Error::Full => Reason::DiskFull,
        log::Error::Witness(witness::Error::Missing { .. }) => Reason::WitnessLost,
        log::Error::Witness(witness::Error::Foreign { .. }) => Reason::WitnessContradicts,
        log::Error::Witness(witness::Error::Io { source, .. })
        | log::Error::Io(source)
        | log::Error::Failed { source, .. } => of_io(source),
        log::Error::GaveUp { .. } => Reason::LogNotSynchronised,
        log::Error::Panicked(_)
        | log::Error::Corrupted { .. }
        | log::Error::Header { .. }
        | log::Error::Damaged(_) => Reason::LogDamaged,
        log::Error::Engine { .. } => Reason::DiskFailed,
    }
}

pub(crate) fn of_checkpoints(error: &checkpoints::Error) -> Reason {
    match error {
        checkpoints::Error::Full => Reason::DiskFull,
        checkpoints::Error::Missing { .. } => Reason::CheckpointsLost,
        checkpoints::Error::Io { source, .. } => of_io(source),
    }
}

pub(crate) fn of_table(error: &table::Error) -> Reason {
    match error {
        table::Error::Full => Reason::DiskFull,
        table::Error::InUse => Reason::DirectoryInUse,
        table::Error::Io { source, .. } => of_io(source),
        // It was deleted and made again before this is reported, so that it cannot be damage.
        table::Error::Sled { .. } | table::Error::Damaged(_) => Reason::DiskFailed,
    }
}

fn of_open(error: &OpenError) -> Reason {
    match error {
        OpenError::Recover(error) => of_recover(error),
        OpenError::AlreadyStarted { .. } => Reason::AlreadyMember,
        OpenError::Checkpoint(error) => of_checkpoints(error),
        OpenError::Replica(fatal) => of_fatal(fatal),
        OpenError::Thread(_) => Reason::NoResources,
    }
}

pub(crate) fn of_recover(error: &recover::Error) -> Reason {
    match error {
        recover::Error::Log(error) => of_log(error),
        recover::Error::Checkpoints(error) => of_checkpoints(error),
        recover::Error::Gap { .. } | recover::Error::Incomplete { .. } => Reason::LogDamaged,
        recover::Error::Behind { .. } | recover::Error::LogLost { .. } => Reason::LogBehind,
        recover::Error::Contradicted { .. } => Reason::WitnessContradicts,
        recover::Error::Unwitnessed { .. } => Reason::WitnessLost,
        recover::Error::NoCheckpoint { .. } => Reason::CheckpointsLost,
        recover::Error::OtherCluster { .. } => Reason::MixedDirectory,
        recover::Error::State { .. } => Reason::StateUnreadable,
    }
}

fn of_stop(error: &StopError) -> Reason {
    match error {
        StopError::Replica(fatal) => of_fatal(fatal),
        StopError::Log(LogError::Log(error)) => of_log(error),
        StopError::Log(LogError::Install(error)) | StopError::Checkpoint(error) => {
            of_checkpoints(error)
        }
        StopError::Log(LogError::Panicked(_)) => Reason::LogNotSynchronised,
        StopError::Table(error) => of_table(error),
        StopError::Panicked { .. } => Reason::Panicked,
        StopError::Thread(_) => Reason::DiskFailed,
    }
}

fn of_fatal(fatal: &Fatal) -> Reason {
    match fatal {
        Fatal::Command { .. } | Fatal::Entry { .. } => Reason::NewerCommand,
        Fatal::Diverged { .. } => Reason::Diverged,
        Fatal::Prediction { .. } | Fatal::Invariant { .. } => Reason::InvariantBroken,
        Fatal::LogLost { .. } | Fatal::LeaderBehind { .. } => Reason::RolledBack,
        Fatal::TwoLeaders { .. }
        | Fatal::LedTwice { .. }
        | Fatal::OtherContent { .. }
        | Fatal::OtherHistory { .. } => Reason::TwoHistories,
        Fatal::Raft(_) => Reason::RaftFailed,
    }
}

/// Returns what an error of the operating system means.
fn of_io(error: &io::Error) -> Reason {
    const ANY: &[(io::ErrorKind, Reason)] = &[
        (io::ErrorKind::StorageFull, Reason::DiskFull),
        (io::ErrorKind::QuotaExceeded, Reason::DiskFull),
        (io::ErrorKind::ReadOnlyFilesystem, Reason::ReadOnly),
        (io::ErrorKind::PermissionDenied, Reason::NotPermitted),
        (io::ErrorKind::NotADirectory, Reason::FileInTheWay),
        (io::ErrorKind::IsADirectory, Reason::FileInTheWay),
        (io::ErrorKind::AlreadyExists, Reason::FileInTheWay),
    ];
    /// EMFILE and ENFILE, for which the standard library has no kinds.
    const DESCRIPTORS: [i32; 2] = [24, 23];
    if error
        .raw_os_error()
        .is_some_and(|n| DESCRIPTORS.contains(&n))
    {
        return Reason::NoResources;
    }
    let row = ANY.iter().find(|(kind, _)| *kind == error.kind());
    row.map_or(Reason::DiskFailed, |(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Returns the table as it stands in the document.
    fn document_table() -> String {
        let row = |reason: &Reason| {
            let (code, sentence) = (reason.code(), reason.sentence());
            format!("| `{code}` | {sentence} | {}. |\n", reason.remedy())
        };
        let rows: String = Reason::ALL.iter().map(row).collect();
        format!("| code | what happened | remedy |\n|---|---|---|\n{rows}")
    }

    #[test]
    fn the_document_has_the_table() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(DOCUMENT);
        let text = std::fs::read_to_string(path).expect("the document is read");
        let table = document_table();
        assert!(text.contains(&table), "{DOCUMENT} must hold:\n{table}");
        // A row that is in the document alone promises a code that does not exist.
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        assert_eq!(rows.count(), Reason::ALL.len());
    }

    #[test]
    fn codes_are_unique_and_texts_are_sentences() {
        let codes: BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.code()).collect();
        assert_eq!(codes.len(), Reason::ALL.len());
        for reason in Reason::ALL {
            let code = reason.code();
            assert!(
                code.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'),
                "{code}"
            );
            assert!(reason.sentence().ends_with('.'), "{code}");
            assert!(!reason.remedy().ends_with('.'), "{code}");
            assert!(!reason.remedy().contains('|'), "{code}");
        }
    }

    #[test]
    fn errors_of_the_operating_system_have_reasons_of_their_own() {
        let cases = [
            (5, Reason::DiskFailed),
            (13, Reason::NotPermitted),
            (1, Reason::NotPermitted),
            (17, Reason::FileInTheWay),
            (20, Reason::FileInTheWay),
            (21, Reason::FileInTheWay),
            (23, Reason::NoResources),
            (24, Reason::NoResources),
            (28, Reason::DiskFull),
            (30, Reason::ReadOnly),
            (122, Reason::DiskFull),
        ];
        for (number, reason) in cases {
            let error = io::Error::from_raw_os_error(number);
            assert_eq!(of_io(&error), reason, "{error}");
            assert_eq!(of_log(&log::Error::Io(error)), reason, "{number}");
        }
    }
}
