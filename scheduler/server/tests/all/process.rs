//! The real process: what it refuses to start on, and what survives `kill -9`.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use berth_proto::client::SchedulerChannel;
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::scheduler::v1::{GetVmRequest, ScheduleVmResponse};
use uuid::Uuid;

use crate::common::process::{PROGRAM, Process, addresses, reach, voters};
use crate::common::world::{flavor, register, vm_request};
use crate::common::{self, eventually};

fn check(ended: (Option<i32>, String), status: i32, words: &[&str]) {
    let (code, said) = ended;
    assert_eq!(code, Some(status), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said:?}");
    }
}

/// Makes the directory of a member that has run and was stopped.
async fn used_directory(directory: &Path) {
    let address = &addresses(1)[0];
    let process = Process::spawn(directory, address, &["--bootstrap"]);
    voters(address, 1).await;
    drop(process);
}

/// Goal: everything that a member cannot start on is told in words, with a status that is not 0.
#[tokio::test(flavor = "multi_thread")]
async fn faults_at_the_start_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let used = folder.path().join("used");
    used_directory(&used).await;
    let address = &addresses(1)[0];

    let empty = folder.path().join("empty");
    let said = Process::spawn(&empty, address, &[]).ended();
    check(said, 1, &["holds no member", "--bootstrap", "--join"]);

    let said = Process::spawn(&used, address, &["--bootstrap"]).ended();
    check(said, 1, &["already holds member 1", "without --bootstrap"]);

    let other = Uuid::new_v4().to_string();
    let said = Process::spawn(&used, address, &["--cluster-id", &other]).ended();
    check(said, 1, &["belongs to cluster", &other]);

    let said = Process::spawn(&used, "0.0.0.0:7100", &["--advertise", "http://x"]).ended();
    check(said, 2, &["--insecure-listen", "host:port"]);

    let file = folder.path().join("bad.toml");
    fs::write(&file, "lissten = \"x\"\nraft_tick_ms = 0\n").expect("a file");
    let file = file.to_str().expect("a name");
    let said = Process::spawn(&used, address, &["--config", file]).ended();
    check(said, 2, &["unknown key lissten", "raft_tick_ms = 0"]);

    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken
        .local_addr()
        .map(|a| (taken, a.to_string()))
        .expect("an address");
    let said = Process::spawn(&used, &taken.1, &[]).ended();
    check(said, 1, &["cannot listen on", "in use"]);

    let addresses = addresses(2);
    let first = Process::spawn(&used, &addresses[0], &[]);
    voters(&addresses[0], 1).await;
    let said = Process::spawn(&used, &addresses[1], &[]).ended();
    check(said, 1, &["in use by another process"]);

    let foreign = folder.path().join("foreign");
    used_directory(&foreign).await;
    let said = Process::spawn(&foreign, &addresses[1], &["--join", &addresses[0]]).ended();
    check(said, 1, &["belongs to cluster", "is a member of cluster"]);
    drop(first);
}

/// Goal: whatever stops a member in the usual way, its terminal being closed included, it ends as
/// requested, and begins again.
#[tokio::test(flavor = "multi_thread")]
async fn every_usual_signal_stops_it_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let used = folder.path().join("used");
    used_directory(&used).await;
    for signal in ["-TERM", "-INT", "-HUP"] {
        let address = &addresses(1)[0];
        // The tests may have been started to outlive their terminal.
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP").arg(PROGRAM);
        let process = Process::run(command, &used, address, &[]);
        voters(address, 1).await;
        assert_eq!(process.stop(signal).await, "", "{signal}");
    }
}

/// Goal: one that was started to outlive its terminal does.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_terminal_does_not_stop_what_ignores_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let used = folder.path().join("used");
    used_directory(&used).await;
    let address = &addresses(1)[0];
    let mut command = Command::new("nohup");
    command.arg(PROGRAM);
    let mut process = Process::run(command, &used, address, &[]);
    voters(address, 1).await;
    process.signal("-HUP");
    tokio::time::sleep(Duration::from_millis(500)).await;
    process.goes_on();
    voters(address, 1).await;
    let _ = process.terminate().await;
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    entries
        .map(|entry| entry.expect("an entry").path())
        .collect()
}

/// Goal: a member never makes up a state that it lost. Method: damage every checkpoint and take
/// the table away.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_checkpoints_stop_the_member() {
    let folder = tempfile::tempdir().expect("a folder");
    let used = folder.path().join("used");
    used_directory(&used).await;
    fs::remove_dir_all(used.join("table")).expect("a table");
    for file in files(&used.join("checkpoints")) {
        let mut bytes = fs::read(&file).expect("a checkpoint");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&file, bytes).expect("it is damaged");
    }
    let said = Process::spawn(&used, &addresses(1)[0], &[]).ended();
    check(said, 1, &["no usable checkpoint", "join again"]);
}

/// Goal: an emptied table is rebuilt, told, and nothing is lost.
#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_table_is_rebuilt() {
    let folder = tempfile::tempdir().expect("a folder");
    let used = folder.path().join("used");
    let address = addresses(1).remove(0);
    let process = Process::spawn(&used, &address, &["--bootstrap"]);
    voters(&address, 1).await;
    let channel = reach(&address).await.expect("a member");
    flavor(&channel, "kept", 1).await;
    // It is made behind the first answers.
    eventually("a table", || async {
        used.join("table/db").exists().then_some(())
    })
    .await;
    drop((process, channel));
    fs::remove_dir_all(used.join("table")).expect("a table");
    let _process = Process::spawn(&used, &address, &[]);
    voters(&address, 1).await;
    let channel = reach(&address).await.expect("a member");
    let request = berth_proto::scheduler::v1::GetFlavorRequest {
        name: "flavors/kept".into(),
        consistency: 0,
    };
    let answer = SchedulerServiceClient::new(channel)
        .get_flavor(request)
        .await;
    assert!(answer.is_ok(), "{answer:?}");
}

/// Goal: an acknowledged claim survives `kill -9` of all members at once. Method: three
/// processes under load from four clients, killed without warning and started again.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_claims_survive_kill_9_of_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let addresses = addresses(3);
    let directory = |n: usize| folder.path().join(n.to_string());
    let mut members = vec![Process::spawn(
        &directory(0),
        &addresses[0],
        &["--bootstrap"],
    )];
    voters(&addresses[0], 1).await;
    for (number, address) in addresses.iter().enumerate().skip(1) {
        let join = ["--join", addresses[0].as_str()];
        members.push(Process::spawn(&directory(number), address, &join));
    }
    voters(&addresses[0], 3).await;
    let channel = reach(&addresses[0]).await.expect("a member");
    for host in 0..8 {
        register(&channel, &format!("h{host}"), 4, 64).await;
    }
    flavor(&channel, "one", 1).await;

    let urls: Vec<String> = addresses.iter().map(|a| format!("http://{a}")).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let acknowledged = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let mut clients = Vec::new();
    for client in 0..4 {
        let (stop, count) = (stop.clone(), acknowledged.clone());
        let channel = channel.clone();
        clients.push(tokio::spawn(async move {
            let mut answers = Vec::new();
            for number in 0.. {
                let request = vm_request(&format!("vm-{client}-{number}"), "one");
                match common::world::schedule(&channel, request).await {
                    Ok(answer) => answers.push(answer),
                    // The members are gone.
                    Err(_) => break,
                }
                count.fetch_add(1, Ordering::Relaxed);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
            answers
        }));
    }
    eventually("some load", || async {
        (acknowledged.load(Ordering::Relaxed) >= 200).then_some(())
    })
    .await;
    drop(members);
    stop.store(true, Ordering::Relaxed);
    let mut answers: Vec<ScheduleVmResponse> = Vec::new();
    for client in clients {
        answers.extend(client.await.expect("no panic"));
    }

    let _members: Vec<Process> = (0..3)
        .map(|n| Process::spawn(&directory(n), &addresses[n], &[]))
        .collect();
    voters(&addresses[0], 3).await;
    let scheduler = SchedulerChannel::new(urls).expect("addresses");
    assert!(answers.len() >= 200);
    for answer in &answers {
        let request = GetVmRequest {
            name: answer.vm.as_ref().expect("a vm").name.clone(),
            consistency: 0,
        };
        let read = scheduler
            .call(|channel| {
                let request = request.clone();
                async move { SchedulerServiceClient::new(channel).get_vm(request).await }
            })
            .await
            .expect("an acknowledged vm is there");
        assert_eq!(
            read.claims,
            answer.claim.iter().cloned().collect::<Vec<_>>()
        );
    }
}
