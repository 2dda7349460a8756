//! One member from end to end: what is asked over gRPC is decided, kept and read back.

use berth_process::Listening;
use berth_proto::scheduler::v1::GetVmRequest;
use berth_scheduler::{Scheduler, Start};

use crate::common::world::{flavor, register, schedule, vm_request};
use crate::common::{self, Cluster, config, schedulers};

/// Goal: a VM gets a host with exact CPUs, and is there after a restart. Method: register,
/// schedule, read, restart, read.
#[tokio::test(flavor = "multi_thread")]
async fn a_vm_is_claimed_and_survives_a_restart() {
    let mut cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    register(&channel, "h1", 2, 4).await;
    flavor(&channel, "small", 2).await;
    let scheduled = schedule(&channel, vm_request("a", "small"))
        .await
        .expect("room");
    let claim = scheduled.claim.expect("a claim");
    assert_eq!(claim.host, "hosts/h1");
    let assignment = claim.assignment.clone().expect("an assignment");
    assert_eq!(assignment.cells[0].pins.len(), 2);
    assert_eq!(
        scheduled
            .explanation
            .expect("an explanation")
            .hosts_considered,
        1
    );

    let member = cluster.members.remove(0);
    let config = berth_scheduler::Config {
        listening: Listening::new(&member.peer()),
        start: berth_scheduler::Start::Restart,
        ..common::config(&member.directory, berth_scheduler::Start::Restart)
    };
    drop(channel);
    member.stop().await.expect("a clean end");
    cluster.members.push(common::Member::start(config).await);

    let channel = cluster.channel().await;
    let request = GetVmRequest {
        name: "vms/a".into(),
        consistency: 0,
    };
    let read = schedulers(&channel)
        .get_vm(request)
        .await
        .expect("the vm")
        .into_inner();
    assert_eq!(read.claims, [claim]);
}

/// Goal: an operator who starts a new cluster reads of nothing that was lost or repaired.
#[tokio::test]
async fn a_first_start_repairs_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = config(&directory.path().join("0"), Start::Bootstrap);
    let scheduler = Scheduler::start(first).await.expect("the member starts");
    let told = scheduler.recovery();
    assert_eq!(told.len(), 1, "{told:?}");
}
