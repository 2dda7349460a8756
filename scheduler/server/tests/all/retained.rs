//! What a member retains in memory is bounded, and its status and docs/memory.md name all of it.

use berth_proto::cluster::v1::RetainedData;
use berth_proto::scheduler::v1::DeleteFlavorRequest;
use berth_scheduler::{Config, Start};

use crate::common::world::{flavor_request, schedule, vm_request};
use crate::common::{Cluster, Member, config, eventually, schedulers};

const WATCHED_MAX: usize = 16;
const CHECKPOINT_ENTRIES: u64 = 100;
const ROUNDS: usize = 500;

async fn start() -> Cluster {
    let directory = tempfile::tempdir().expect("a directory");
    let config = Config {
        watch_history_max: WATCHED_MAX,
        checkpoint_entries: CHECKPOINT_ENTRIES,
        ..config(&directory.path().join("0"), Start::Bootstrap)
    };
    let cluster = Cluster {
        members: vec![Member::start(config).await],
        directory,
    };
    cluster.voters(1).await;
    cluster
}

/// Returns what is beyond its bound.
fn exceeded(retained: &[RetainedData]) -> Vec<&RetainedData> {
    let beyond = |r: &&RetainedData| r.count > r.count_max || r.bytes > r.bytes_max;
    retained.iter().filter(beyond).collect()
}

/// Goal: nothing that grows with what is done is without a bound. Method: write far more than two of
/// the bounds, which are small here, have requests refused, and read the status.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_member_retains_is_bounded() {
    let cluster = start().await;
    let member = &cluster.members[0];
    let channel = member.channel().await;
    let mut client = schedulers(&channel);
    for number in 0..ROUNDS {
        let name = format!("f{number}");
        let created = client.create_flavor(flavor_request(&name, 1, &[])).await;
        created.expect("a flavor");
        let delete = DeleteFlavorRequest {
            name: format!("flavors/{name}"),
            ..Default::default()
        };
        client.delete_flavor(delete).await.expect("no flavor");
        let refused = schedule(&channel, vm_request(&name, "unknown")).await;
        refused.expect_err("there is no such flavor");
    }
    // The log is forgotten when the checkpoint is on the disk, which takes a moment.
    let retained = eventually("a checkpoint", || async {
        let retained = member.status().await.retained;
        exceeded(&retained).is_empty().then_some(retained)
    })
    .await;
    let of = |name: &str| {
        let found = retained.iter().find(|r| r.name == name);
        found.unwrap_or_else(|| panic!("no {name} in {retained:?}"))
    };
    assert_eq!(of("watch_events").count, WATCHED_MAX as u64);
    assert_eq!(of("log_entries").count_max, 2 * CHECKPOINT_ENTRIES);
    assert_eq!(of("remembered_requests").count, 0, "none had an id");
    assert_eq!(of("refusals").count, ROUNDS as u64);
    assert!(of("audit_entries").count >= 2 * ROUNDS as u64);
}

/// Goal: an operator who sees a name in the status reads what it is.
#[tokio::test(flavor = "multi_thread")]
async fn everything_retained_is_documented() {
    let cluster = start().await;
    let retained = cluster.members[0].status().await.retained;
    let names: Vec<_> = retained.iter().map(|r| format!("`{}`", r.name)).collect();
    let docs = include_str!("../../../../docs/memory.md");
    let rows = docs.lines().filter(|line| line.starts_with("| `"));
    let documented: Vec<_> = rows.filter_map(|row| row.split(' ').nth(1)).collect();
    assert_eq!(documented, names);
}
