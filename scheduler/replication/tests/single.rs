//! One member on a real disk: proposals, decisions, reads, restarts, damage.

mod common;

use std::path::Path;

use berth_replication::runtime::{
    Decision, Ended, Handle, NoNetwork, Proposed, Runtime, Settings, Start, StopError,
};
use berth_store::recover::Source;
use berth_store::{FileDisk, Identity, Recovery};
use common::{Registers, add, set};
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
                    .propose_with(move |state: &Registers| match state.len() < 10 {
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
