//! Every way in which a member stops, and whether its remedy helps.
//!
//! Goal: whatever ends a member, its last two lines name the reason and what to do, as the table in
//! `docs/stops.md` has it, and what they say to do helps. Method: real processes, one case for each
//! reason at least. A case produces the reason, compares exit status and last lines, does what the
//! remedy says, and waits until the member serves again with what it had acknowledged.
//!
//! The class: [`CASES`] and [`NOT_PRODUCED`] together are the whole table; a new reason without a
//! case fails.
//!
//! | module | what |
//! |---|---|
//! | `single` | one process, and a group of three |
//! | `start` | refused starts of one member |
//! | `disk` | a disk that fails, is full, or is read-only |
//! | `replaced` | damage after which a member has to join again |
//! | `group` | what other members say, and versions |
//! | `unsound` | a state that breaks an invariant |

mod disk;
mod group;
mod replaced;
mod single;
mod start;
mod unsound;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use berth_process::BoxFuture;
use berth_scheduler::stop::Reason;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How many cases run side by side.
const AT_ONCE: usize = 4;

/// A way to produce reasons, and what it is.
struct Case {
    reason: Reason,
    what: &'static str,
    run: fn() -> BoxFuture<'static, ()>,
}

macro_rules! cases {
    ($($reason:ident $what:literal $run:path;)*) => {
        &[$(Case {
            reason: Reason::$reason,
            what: $what,
            run: || Box::pin($run()),
        }),*]
    };
}

const CASES: &[Case] = cases! {
    Configuration "an unknown key" start::unknown_key;
    Configuration "an unknown flag" start::unknown_flag;
    Certificates "files that are not there" start::certificates;
    Tokens "a hash that is none" start::tokens;
    AddressInUse "an address that is taken" start::address_in_use;
    AddressUnusable "an address of another machine" start::address_of_another_machine;
    NoMember "an empty directory" start::empty_directory;
    AlreadyMember "a new cluster in a used directory" start::used_directory;
    OtherCluster "another --cluster-id" start::other_cluster_id;
    OtherCluster "a member of another cluster under --join" start::other_cluster_joined;
    DirectoryOccupied "a foreign file" start::foreign_file;
    DirectoryInUse "a directory that another member uses" start::directory_in_use;
    FileInTheWay "a file in the place of the table" start::file_as_table;
    FileInTheWay "a file in the place of the checkpoints" start::file_as_checkpoints;
    FileInTheWay "a file in the place of the log" start::file_as_log;
    FileInTheWay "a folder in the place of the witness" start::folder_as_witness;
    FileInTheWay "a FIFO in the place of each file" start::fifo_as_file;
    FileInTheWay "a file in the place of the directory" start::file_as_directory;
    NoResources "eight file descriptors" start::few_descriptors;
    Panicked "a panic in the replica's task" start::panic_in_the_replica;
    NotPermitted "a directory of another user" disk::not_permitted;
    ReadOnly "a file system that is read-only" disk::read_only;
    DiskFull "no space left while running" disk::full;
    DiskFull "a quota that is reached" disk::quota;
    DiskFailed "reading fails at the start" disk::reading_fails;
    DiskFailed "each file fails at the start" disk::each_file_fails;
    DiskFailed "writing fails while running" disk::writing_fails;
    DiskFailed "synchronising the witness fails" disk::witness_not_synchronised;
    DiskFailed "synchronising what a kill left fails" disk::log_not_cut_off;
    LogNotSynchronised "synchronising the log fails" disk::log_not_synchronised;
    LogNotSynchronised "it fails at the start" disk::log_not_synchronised_at_the_start;
    MarkerDamaged "and the others that need a replacement" replaced::all;
    RolledBack "an older directory put back" group::rolled_back;
    TwoHistories "a quorum with older directories" group::two_histories;
    Diverged "a table with a row less" group::diverged;
    InvariantBroken "a VM without its claim" unsound::vm_without_claim;
    Removed "removed while it runs" group::removed;
    JoinFailed "a service version that the cluster has left behind" group::join_refused;
    Outdated "a cluster version raised meanwhile" group::outdated;
    NewerCommand "an older program on a newer log" group::newer_command;
    StateUnreadable "an older program on a newer checkpoint" group::newer_checkpoint;
};

/// Reasons that nothing outside the program produces, and what covers them.
const NOT_PRODUCED: &[(Reason, &str)] = &[
    (
        Reason::RaftFailed,
        "raft-rs returns errors for settings that the configuration refuses, and for a storage \
         that fails, which is memory here; what it panics at is `Panicked`",
    ),
    (
        Reason::ServerFailed,
        "tonic's server returns only when it is shut down or its listener ends",
    ),
];

/// The class test: no reason without a case, and none that is excused and produced.
#[test]
fn every_reason_is_produced_or_excused() {
    let produced = CASES.iter().map(|case| case.reason);
    let mut count: BTreeMap<Reason, usize> = BTreeMap::new();
    for reason in produced.chain(replaced::REASONS.iter().copied()) {
        *count.entry(reason).or_default() += 1;
    }
    for (reason, why) in NOT_PRODUCED {
        assert!(!count.contains_key(reason), "{} is produced", reason.code());
        assert!(!why.is_empty());
        count.insert(*reason, 0);
    }
    let all: BTreeSet<Reason> = Reason::ALL.iter().copied().collect();
    let covered: BTreeSet<Reason> = count.into_keys().collect();
    let missing: Vec<&str> = all.difference(&covered).map(|r| r.code()).collect();
    assert!(missing.is_empty(), "reasons without a case: {missing:?}");
}

/// Goal: what raft-engine cuts off at a start is reported as what it is: blank space after a kill
/// by nothing, an incomplete record as information, and neither as corruption. Method: bytes behind
/// the last record, as a kill in the middle of a write leaves them.
#[tokio::test(flavor = "multi_thread")]
async fn a_torn_end_is_not_reported_as_damage() {
    let mut single = single::Single::used().await;
    for torn in [0, 1, 700] {
        let log = single.directory().join(berth_store::folders::LOG);
        let file = replaced::newest(&log, ".raftlog");
        let mut bytes = std::fs::read(&file).expect("a log");
        let used = bytes.iter().rposition(|byte| *byte != 0).expect("a header") + 1;
        assert!(bytes.len() > used + torn, "the file ends in blank space");
        bytes[used..used + torn].fill(0x55);
        std::fs::write(&file, bytes).expect("a log");
        let said = single.log_of_a_start().await;
        assert_eq!(
            said.contains("was not completely written"),
            torn > 0,
            "{said}"
        );
        for word in ["Truncating", "orruption", "WARN", "ERROR"] {
            assert!(!said.contains(word), "{word}: {said}");
        }
        drop(single.serves(&[]).await);
    }
}

/// Goal: see the module. The cases have directories and addresses of their own.
#[tokio::test(flavor = "multi_thread")]
async fn every_reason_has_a_remedy_that_helps() {
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = JoinSet::new();
    for case in CASES {
        let permits = permits.clone();
        running.spawn(async move {
            let _permit = permits.acquire().await.expect("it is not closed");
            let began = Instant::now();
            (case.run)().await;
            let seconds = began.elapsed().as_secs_f32();
            println!("{seconds:5.1} s  {}: {}", case.reason.code(), case.what);
        });
    }
    let mut failed = 0;
    while let Some(ended) = running.join_next().await {
        // The panic has printed its message.
        failed += usize::from(ended.is_err());
    }
    assert_eq!(failed, 0, "of {} cases", CASES.len());
}
