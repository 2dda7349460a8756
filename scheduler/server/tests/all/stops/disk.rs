//! A disk that fails.
//!
//! What the remedies do outside of the member (mount, free space, change limits) is here that the
//! faults end.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use berth_scheduler::stop::Reason;

use super::single::{Single, stops, write};
use crate::common::failing_disk::{begin, preload};
use crate::common::process::{PROGRAM, Process};

/// The numbers of `errno` on Linux.
const EIO: i32 = 5;
const EACCES: i32 = 13;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const EDQUOT: i32 = 122;

/// A member whose disk can be made to fail.
struct Failing(Single);

impl Failing {
    async fn used() -> Self {
        Self(Single::used().await)
    }

    fn faults(&self) -> PathBuf {
        self.0.path("faults")
    }

    fn begin(&self, call: &str, number: i32, path: &str) {
        begin(&self.faults(), call, number, path);
    }

    fn start(&self) -> Process {
        let mut command = Command::new(PROGRAM);
        preload(&mut command, &self.0.directory(), &self.faults());
        Process::run(command, &self.0.directory(), &self.0.address, &[])
    }

    /// The fault is there when the member starts.
    async fn at_the_start(call: &str, number: i32, path: &str, reason: Reason) {
        let failing = Self::used().await;
        failing.begin(call, number, path);
        let error = stops(reason, failing.start()).await;
        let words = std::io::Error::from_raw_os_error(number).to_string();
        assert!(error.contains(&words), "{error}");
        failing.ends().await;
    }

    /// The fault begins while the member serves.
    async fn while_running(call: &str, number: i32, path: &str, reason: Reason) {
        let mut failing = Self::used().await;
        let process = failing.start();
        failing.0.answers().await;
        failing.begin(call, number, path);
        // The member ends before it answers.
        let writes = tokio::spawn({
            let address = failing.0.address.clone();
            async move { write(&[address]).await }
        });
        stops(reason, process).await;
        writes.abort();
        failing.ends().await;
    }

    /// The fault ends, and the member serves with everything that it acknowledged.
    async fn ends(mut self) {
        fs::remove_file(self.faults()).expect("there was a fault");
        // Again after that: what the fault left on the disk is used by then.
        for _ in 0..2 {
            drop(self.0.serves(&[]).await);
        }
    }
}

pub(super) async fn not_permitted() {
    Failing::at_the_start("open", EACCES, "", Reason::NotPermitted).await;
}

pub(super) async fn read_only() {
    Failing::at_the_start("create", EROFS, "", Reason::ReadOnly).await;
}

pub(super) async fn full() {
    Failing::while_running("write", ENOSPC, "log/", Reason::DiskFull).await;
}

pub(super) async fn quota() {
    Failing::at_the_start("write", EDQUOT, "", Reason::DiskFull).await;
}

pub(super) async fn reading_fails() {
    Failing::at_the_start("read", EIO, "log/", Reason::DiskFailed).await;
}

pub(super) async fn writing_fails() {
    Failing::while_running("write", EIO, "log/", Reason::DiskFailed).await;
}

pub(super) async fn witness_not_synchronised() {
    Failing::while_running("sync", EIO, "WITNESS", Reason::DiskFailed).await;
}

pub(super) async fn log_not_synchronised() {
    Failing::while_running("sync", EIO, "log/", Reason::LogNotSynchronised).await;
}

/// As above, in the first write of a start.
pub(super) async fn log_not_synchronised_at_the_start() {
    let mut failing = Failing::used().await;
    // Killed, its file is cut off when it is opened, and that synchronised with an error; closed
    // it is not touched before the first write.
    let process = failing.0.serves(&[]).await;
    process.terminate().await;
    failing.begin("sync", EIO, "log/");
    stops(Reason::LogNotSynchronised, failing.start()).await;
    failing.ends().await;
}

pub(super) async fn log_not_cut_off() {
    let failing = Failing::used().await;
    failing.begin("sync", EIO, "log/");
    // raft-engine does not pass the number of the error on.
    let error = stops(Reason::DiskFailed, failing.start()).await;
    assert!(
        error.contains("the Raft log failed while opening"),
        "{error}"
    );
    failing.ends().await;
}

/// The class of the cases at a start: whichever file cannot be opened or read, for whatever reason, the
/// remedy is about that reason. It is never to give the directory up, which may be the only copy.
pub(super) async fn each_file_fails() {
    let failing = Failing::used().await;
    let parts = ["MEMBER", "FORMAT", "WITNESS", "checkpoints", "log/"];
    for part in parts {
        for call in ["open", "read"] {
            for (number, reason) in [
                (EIO, Reason::DiskFailed),
                (EACCES, Reason::NotPermitted),
                (EMFILE, Reason::NoResources),
            ] {
                failing.begin(call, number, part);
                let process = failing.start();
                let ended = tokio::task::spawn_blocking(|| process.ended()).await;
                let (status, said) = ended.expect("it ends");
                assert_eq!(status, Some(1), "{call} {number} {part}: {said}");
                // raft-engine does not pass the numbers of its errors on.
                let is_remedied = [reason, Reason::DiskFailed]
                    .iter()
                    .any(|reason| said.ends_with(&format!("hint: {}\n", reason.to_remedy())));
                assert!(is_remedied, "{call} {number} {part}: {said}");
            }
        }
    }
    failing.ends().await;
}
