//! One member on a real disk: proposals, decisions, reads, restarts, damage.

use std::path::Path;
use std::process::{Command, Stdio};

use berth_replication::runtime::{
    Decision, Ended, Handle, NoNetwork, OpenError, ProposeError, Proposed, Runtime, Settings,
    Start, StopError,
};
use berth_store::recover::Source;
use berth_store::{FileDisk, Identity, Recovery};
use berth_testkit::replication::{Registers, add, set};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

struct Member {
    handle: Handle<Registers>,
    recovery: Recovery,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<Ended, StopError>>,
}

impl Member {
    fn start(disk: FileDisk, start: Start) -> Self {
        let runtime =
            Runtime::<Registers, _>::open(Settings::default(), disk, start).expect("open");
        let handle = runtime.handle();
        let recovery = runtime.recovery().clone();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(runtime.run(NoNetwork, async move {
            let _ = stopped.await;
        }));
        Self {
            handle,
            recovery,
            stop,
            task,
        }
    }

    fn bootstrap(path: &Path) -> Self {
        let identity = Identity {
            cluster_id: "cluster".into(),
            member_id: 1,
            disk_id: "disk".into(),
        };
        let disk = FileDisk::create(path, identity).expect("create");
        let address = "localhost:1".into();
        Self::start(disk, Start::Bootstrap { address })
    }

    fn open(path: &Path) -> Self {
        Self::start(FileDisk::open(path).expect("open"), Start::Existing)
    }

    async fn stop(self) {
        drop(self.handle);
        let _ = self.stop.send(());
        let ended = self.task.await.expect("no panic").expect("no error");
        assert_eq!(ended, Ended::Shutdown);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_is_there_after_a_restart() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("member");
    let member = Member::bootstrap(&path);
    for n in 1..=100 {
        let committed = member.handle.propose(add("sum", n)).await.expect("commit");
        assert_eq!(committed.outcome.rows, 1);
    }
    member.stop().await;

    let member = Member::open(&path);
    assert_eq!(member.recovery.source, Source::Table);
    assert_eq!(member.recovery.repairs, Vec::<String>::new());
    let sum = member
        .handle
        .read(|m| m.get("sum").map(str::to_owned))
        .await;
    assert_eq!(sum.expect("read").as_deref(), Some("5050"));
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_see_each_other_before_they_commit() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let member = Member::bootstrap(&folder.path().join("member"));
    // Fifty ask for one of ten slots, all at once: exactly ten get one.
    let asked: Vec<_> = (0..50)
        .map(|n| {
            let handle = member.handle.clone();
            tokio::spawn(async move {
                handle
                    .propose_with(move |state: &Registers| match state.count() < 10 {
                        true => Decision::Command(set(format!("slot{n}"), n)),
                        false => Decision::Answer("full"),
                    })
                    .await
                    .expect("an answer")
            })
        })
        .collect();
    let mut taken = 0;
    for answer in asked {
        match answer.await.expect("no panic") {
            Proposed::Committed(_) => taken += 1,
            Proposed::Answered(reason) => assert_eq!(reason, "full"),
        }
    }
    assert_eq!(taken, 10);
    member.stop().await;
}

/// A disk of its own that can be filled; needs root.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(mib: u64) -> Option<Self> {
        let folder = tempfile::tempdir().ok()?;
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs"])
            .arg(folder.path())
            .stderr(Stdio::null())
            .status();
        mounted.is_ok_and(|s| s.success()).then_some(Self(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a failing test may still hold files open.
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_stops_the_member_needs_root() {
    let Some(disk) = SmallDisk::new(120) else {
        eprintln!("SKIPPED full_disk_stops_the_member: mounting a tmpfs needs root");
        return;
    };
    let path = disk.0.path().join("member");
    let member = Member::bootstrap(&path);
    member.handle.propose(add("sum", 1)).await.expect("commit");
    let ballast = disk.0.path().join("ballast");
    // As much as there is.
    let _ = std::fs::write(&ballast, vec![0; 120 << 20]);
    let mut acknowledged = 1;
    let ended = loop {
        let value = "x".repeat(100_000);
        match member
            .handle
            .propose(set(format!("k{acknowledged}"), value))
            .await
        {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
    };
    // A part of it may be on the disk.
    assert!(matches!(ended, ProposeError::Lost { .. }), "{ended:?}");
    let stopped = member
        .task
        .await
        .expect("no panic")
        .expect_err("a full disk");
    assert!(
        stopped.to_string().contains("the disk is full"),
        "{stopped}"
    );
    drop(member.handle);

    let refused = FileDisk::open(&path).map(|_| ()).expect_err("still full");
    assert!(refused.to_string().contains("is full"), "{refused}");
    std::fs::remove_file(&ballast).expect("make room");
    // This process has the table still that failed, and holds its lock; another one would not.
    std::fs::remove_dir_all(path.join("table")).expect("the table");
    let member = Member::open(&path);
    let rows = member.handle.read(Registers::count).await.expect("read");
    // The command that met the full disk may or may not have made it.
    assert!(rows == acknowledged || rows == acknowledged + 1, "{rows}");
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_table_is_repaired_and_told() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("member");
    let member = Member::bootstrap(&path);
    for n in 1..=30 {
        member
            .handle
            .propose(set(format!("k{n}"), n))
            .await
            .expect("commit");
    }
    member.stop().await;
    std::fs::remove_dir_all(path.join("table")).expect("remove");

    let member = Member::open(&path);
    assert_eq!(member.recovery.source, Source::Checkpoint);
    assert_eq!(member.recovery.repairs.len(), 1);
    assert_eq!(member.handle.read(Registers::count).await, Ok(30));
    member.stop().await;
    let member = Member::open(&path);
    assert_eq!(member.recovery.source, Source::Table);
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_with_a_state_begins_no_second_cluster() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("member");
    Member::bootstrap(&path).stop().await;
    let disk = FileDisk::open(&path).expect("open");
    let start = Start::Bootstrap {
        address: "localhost:2".into(),
    };
    let refused = Runtime::<Registers, _>::open(Settings::default(), disk, start).map(|_| ());
    assert!(matches!(refused, Err(OpenError::AlreadyStarted { .. })));
}
