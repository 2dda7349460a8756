//! Real processes that are killed, and disks whose power is cut.
//!
//! Goal: whatever a client was told is there afterwards. Method: this test binary starts itself
//! as a writer (see `writer_process`), which runs one or three members with real disks and real
//! connections and notes each acknowledged command in a file outside of those disks. Then it is
//! killed, or the disk is cut off under it, and its directories are opened again.
//!
//! It is a test binary of its own, since it starts itself again, and the power cut needs root.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use berth_store::{FileDisk, recover};
use berth_testkit::power;
use berth_testkit::replication::group::Group;
use berth_testkit::replication::{Registers, Unknown, set};

const WRITER: &str = "BERTH_TEST_WRITER";
const CLIENTS: u64 = 16;

/// Not a test by itself: the writer that the others start and kill.
#[test]
fn writer_process() {
    let Ok(task) = std::env::var(WRITER) else {
        return;
    };
    let (members, paths) = task.split_once(' ').expect("members and paths");
    let (folder, notes) = paths.split_once(' ').expect("a folder and a file");
    let members: u64 = members.parse().expect("a number");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(write(members, Path::new(folder), Path::new(notes)));
}

async fn write(members: u64, folder: &Path, notes: &Path) {
    let group = Group::start(folder, members).await;
    let handle = group.leader().await;
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let handle = handle.clone();
        let mut notes = File::options().append(true).open(notes).expect("open");
        clients.push(tokio::spawn(async move {
            for n in 1.. {
                let command = set(format!("c{client}"), n);
                handle.propose(command).await.expect("a lasting leader");
                // One write per line, so that a line is there whole or not at all.
                let line = format!("{client} {n}\n");
                notes.write_all(line.as_bytes()).expect("note");
            }
        }));
    }
    for client in clients {
        client.await.expect("it runs until it is killed");
    }
}

struct Writer {
    process: Child,
    notes: PathBuf,
}

impl Writer {
    fn start(members: u64, folder: &Path, notes: PathBuf) -> Self {
        File::create(&notes).expect("create");
        let task = format!("{members} {} {}", folder.display(), notes.display());
        let process = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "writer_process", "--nocapture"])
            .env(WRITER, task)
            .stdout(Stdio::null())
            .spawn()
            .expect("start the writer");
        Self { process, notes }
    }

    /// Returns what each client was told last.
    fn acknowledged(&self) -> Vec<u64> {
        acknowledged(&self.notes)
    }

    fn wait_for(&mut self, commands: u64) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.acknowledged().iter().sum::<u64>() < commands {
            assert!(Instant::now() < deadline, "the writer does not write");
            let ended = self.process.try_wait().expect("look at it");
            assert_eq!(ended, None, "the writer ended by itself");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // It may have been killed already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn acknowledged(notes: &Path) -> Vec<u64> {
    let mut last = vec![0; CLIENTS as usize];
    for line in fs::read_to_string(notes).expect("read").lines() {
        if let Some((client, n)) = line.split_once(' ') {
            let client: usize = client.parse().expect("a client");
            last[client] = n.parse().expect("a number");
        }
    }
    last
}

/// Starts the members again and compares what they hold with what was acknowledged.
fn verify(members: u64, folder: &Path, acknowledged: &[u64]) {
    for id in 1..=members {
        // Every member must be able to start by itself.
        let disk = FileDisk::open(&folder.join(format!("m{id}"))).expect("open");
        let mut parts = berth_store::Disk::split(disk);
        let recovered = recover(&mut parts, &|rows, index| {
            berth_replication::Machine::from_rows((), rows, index)
                .map_err(|e: Unknown| e.to_string())
        });
        let recovered: berth_store::Recovered<Registers> = recovered.expect("recover");
        assert!(recovered.state.is_some());
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let group = Group::start(folder, members).await;
        let state = group.leader().await.state().await.expect("read");
        for (client, told) in acknowledged.iter().enumerate() {
            let found = state.get(&format!("c{client}")).unwrap_or("0");
            let found: u64 = found.parse().expect("a number");
            // One command may have been on its way.
            assert!(
                found == *told || found == told + 1,
                "client {client} was told {told}, found is {found}"
            );
        }
        group.stop().await;
    });
}

fn kill_and_verify(members: u64) {
    let folder = tempfile::tempdir().expect("temporary folder");
    for round in 1..=3 {
        let data = folder.path().join(format!("round-{round}"));
        let notes = folder.path().join(format!("notes-{round}"));
        let mut writer = Writer::start(members, &data, notes);
        writer.wait_for(300 * round);
        writer.process.kill().expect("kill");
        writer.process.wait().expect("it was killed");
        verify(members, &data, &writer.acknowledged());
    }
}

#[test]
fn one_member_is_killed() {
    kill_and_verify(1);
}

#[test]
fn three_members_are_killed() {
    kill_and_verify(3);
}

fn cut_and_verify(test: &str, members: u64, rounds: u64) {
    for round in 1..=rounds {
        let mut disk = match power::Disk::new(1024) {
            Ok(disk) => disk,
            Err(why) => return power::skipped(test, &why),
        };
        let outside = tempfile::tempdir().expect("temporary folder");
        let notes = outside.path().join("notes");
        let mut writer = Writer::start(members, &disk.path().join("data"), notes.clone());
        writer.wait_for(400 * round);
        let (mount, told) = disk.cut(&mut writer.process, || acknowledged(&notes));
        verify(members, &mount.join("data"), &told);
    }
}

#[test]
fn power_cut_under_one_member() {
    cut_and_verify("power_cut_under_one_member", 1, 4);
}

#[test]
fn power_cut_under_three_members() {
    cut_and_verify("power_cut_under_three_members", 3, 2);
}
