//! Goal: what operators write on VMs goes through the whole system, outlives moves, crashes and backups,
//! and selects VMs; a protected VM survives deletion by the command and by a direct call of a conductor or
//! a scheduler, until the command that the refusal names has been run.
//!
//! Method: real processes on loopback with simulated hypervisors.

use berth_proto::client::channel;
use berth_proto::conductor::v1::conductor_service_client::ConductorServiceClient;
use berth_proto::conductor::v1::{DeleteVmRequest, RebuildVmRequest};
use berth_proto::scheduler::v1::BeginDeleteRequest;
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::status::from_status;
use berth_tests::processes::{Cluster, Host, verdict};
use serde_json::{Value, json};

use crate::PROGRAMS;
use crate::backup::back_up;

const PROTECTED: &str = "VM_PROTECTED";

fn cluster() -> Cluster {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(1)
        .host(Host::new("h1"))
        .host(Host::new("h2"))
        .start();
    cluster.wait();
    cluster.pinned_flavor("pinned", 1);
    cluster
}

fn vm(cluster: &Cluster, name: &str) -> Value {
    cluster.json(&["vm", "show", name])["vm"].clone()
}

/// Returns the names of the VMs that are listed.
fn listed(cluster: &Cluster, options: &[&str]) -> Vec<String> {
    let vms = cluster.json(&[&["vm", "list"][..], options].concat());
    let names = vms.as_array().expect("a list").iter();
    names
        .map(|vm| vm["name"].as_str().expect("a name").to_owned())
        .collect()
}

/// Returns the refusal of a command.
#[track_caller]
fn refused(cluster: &Cluster, words: &[&str]) -> Value {
    let answer = cluster.berth(words).refused(1);
    let printed: Value = serde_json::from_str(&answer.stderr).expect("JSON");
    printed["error"].clone()
}

/// Requests the deletion and the rebuild of a VM of the conductor, and its deletion of the scheduler in the
/// conductor's stead; returns the reasons of the refusals.
fn attack(cluster: &Cluster, vm: &str) -> Vec<String> {
    let vm = format!("vms/{vm}");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let address = format!("http://{}", cluster.conductors[0].address);
    let (deleted, rebuilt) = runtime.block_on(async {
        let mut conductor = ConductorServiceClient::new(channel(&address).expect("an address"));
        let delete = DeleteVmRequest {
            vm: vm.clone(),
            ..Default::default()
        };
        let rebuild = RebuildVmRequest {
            vm: vm.clone(),
            ..Default::default()
        };
        (
            conductor.delete_vm(delete).await.map(drop),
            conductor.rebuild_vm(rebuild).await.map(drop),
        )
    });
    let begin = BeginDeleteRequest {
        vm: vm.clone(),
        conductor: format!("services/{}", cluster.conductors[0].name),
        lease_ttl: Some(prost_types::Duration {
            seconds: 60,
            nanos: 0,
        }),
        ..Default::default()
    };
    let begun = cluster.at_scheduler(|channel| {
        let begin = begin.clone();
        async move {
            SchedulerServiceClient::new(channel)
                .begin_delete(begin)
                .await
        }
    });
    let outcomes = [deleted, rebuilt, begun.map(drop)];
    let reasons = outcomes.map(|outcome| outcome.map_err(|status| from_status(&status).reason));
    reasons
        .into_iter()
        .map(|outcome| outcome.expect_err("it is refused"))
        .collect()
}

#[test]
fn a_protected_vm_survives_every_deletion() {
    let mut cluster = cluster();
    let written = [
        "--label",
        "team=blue",
        "--label",
        "example.com/tier=1",
        "--description",
        "orders, primary",
        "--protect",
    ];
    cluster.run(
        &[
            &Cluster::create("a", "pinned")[..],
            &["--host", "h1"],
            &written,
        ]
        .concat(),
    );
    let labels = json!({"example.com/tier": "1", "team": "blue"});
    let has_all = |cluster: &Cluster| {
        let vm = vm(cluster, "a");
        assert_eq!(vm["labels"], labels, "{vm:#}");
        assert_eq!(vm["description"], "orders, primary", "{vm:#}");
        assert_eq!(vm["protected"], true, "{vm:#}");
    };
    has_all(&cluster);

    let refusal = refused(&cluster, &["vm", "delete", "a"]);
    assert_eq!(refusal["reason"], PROTECTED, "{refusal:#}");
    let rebuilt = refused(&cluster, &["vm", "rebuild", "a"]);
    assert_eq!(rebuilt["reason"], PROTECTED, "{rebuilt:#}");
    assert_eq!(attack(&cluster, "a"), [PROTECTED; 3]);

    // Everything else is done to it, and what is written stays.
    cluster.run(&["vm", "stop", "a"]);
    assert_eq!(attack(&cluster, "a"), [PROTECTED; 3]);
    cluster.run(&["vm", "start", "a"]);
    cluster.run(&["vm", "migrate", "a", "--host", "h2"]);
    has_all(&cluster);
    cluster.schedulers[0].kill();
    let programs = cluster.programs.clone();
    cluster.schedulers[0].start(&programs);
    cluster.wait();
    has_all(&cluster);
    assert_eq!(attack(&cluster, "a"), [PROTECTED; 3]);
    assert_eq!(listed(&cluster, &[]), ["a"]);

    // What the refusal advises lets the deletion through.
    let hint = refusal["hint"].as_str().expect("a hint");
    let command = hint.split('`').nth(1).expect("it names a command");
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    cluster.run(&words);
    assert_eq!(vm(&cluster, "a")["protected"], Value::Null);
    cluster.run(&["vm", "delete", "a"]);
    assert!(listed(&cluster, &[]).is_empty());
    // Who lifted the protection is in the audit.
    let entries = cluster.json(&["audit", "list", "--vm", "a", "--method", "UpdateVm"]);
    assert_eq!(entries.as_array().map(Vec::len), Some(1), "{entries:#}");
    assert!(
        entries.to_string().contains("protected=false"),
        "{entries:#}"
    );
    verdict::holds(&cluster);
}

#[test]
fn labels_select_vms_and_are_changed_by_their_keys() {
    let cluster = cluster();
    for (name, team) in [("a", "team=blue"), ("b", "team=red"), ("c", "team=blue")] {
        cluster.run(&[&Cluster::create(name, "pinned")[..], &["--label", team]].concat());
    }
    cluster.run(&Cluster::create("d", "pinned"));
    assert_eq!(listed(&cluster, &["--label", "team"]), ["a", "b", "c"]);
    assert_eq!(listed(&cluster, &["--label", "team=blue"]), ["a", "c"]);
    assert!(listed(&cluster, &["--label", "team="]).is_empty());

    // Several VMs of one command, and two operators, of whom each changes another key.
    let changed = cluster.json(&["vm", "set", "a", "b", "--label", "owner=ann"]);
    assert_eq!(changed.as_array().map(Vec::len), Some(2), "{changed:#}");
    assert_eq!(changed[1]["vm"]["name"], "b", "{changed:#}");
    let answer = cluster.berth(&["vm", "set", "a", "nowhere", "b", "--label", "all=yes"]);
    assert_eq!(answer.status, Some(1), "{answer:#?}");
    assert!(answer.stderr.contains("VM_NOT_FOUND"), "{answer:#?}");
    assert_eq!(listed(&cluster, &["--label", "all=yes"]), ["a", "b"]);
    cluster.run(&["vm", "set", "a", "b", "--remove-label", "all"]);
    cluster.run(&[
        "vm",
        "set",
        "a",
        "--remove-label",
        "team",
        "--label",
        "tier=1",
    ]);
    assert_eq!(
        vm(&cluster, "a")["labels"],
        json!({"owner": "ann", "tier": "1"})
    );
    let both = ["--label", "owner=ann", "--label", "team"];
    assert_eq!(listed(&cluster, &both), ["b"]);

    // A request that is repeated undoes no later one.
    let id = "0b6f1c6f-3a0e-4c39-8a51-4a8c3b6b1f10";
    let first = ["vm", "set", "b", "--label", "tier=1", "--request-id", id];
    cluster.run(&first);
    cluster.run(&["vm", "set", "b", "--label", "tier=2"]);
    cluster.run(&first);
    assert_eq!(vm(&cluster, "b")["labels"]["tier"], "2");

    let refusal = refused(&cluster, &["vm", "set", "nowhere", "--protect"]);
    assert_eq!(refusal["reason"], "VM_NOT_FOUND", "{refusal:#}");
    for wrong in [
        &["vm", "set", "a"][..],
        &["vm", "set", "a", "--label", "not a key=1"],
        &["vm", "set", "a", "--label", "team"],
        &["vm", "set", "a", "--protect", "--unprotect"],
        &["vm", "set", "a", "--description", "two\nlines"],
        &["vm", "list", "--label", "not a key"],
    ] {
        let answer = cluster.berth(wrong);
        assert_eq!(answer.status, Some(2), "{answer:#?}");
    }

    // A backup has all of it.
    let file = cluster.folder().join("labels.backup");
    let _ = back_up(&cluster, 0, &file, &[]);
    let file = file.to_str().expect("a path");
    let mut command = cluster.programs.command("berth");
    command.args(["--output", "json", "--backup", file, "vm", "list"]);
    command.args(["--label", "owner=ann"]);
    let offline = berth_tests::processes::Answer::of(command).json();
    let offline = offline.unwrap_or_else(|seen| panic!("{seen}"));
    assert_eq!(offline.as_array().map(Vec::len), Some(2), "{offline:#}");
    assert_eq!(offline[0]["labels"], json!({"owner": "ann", "tier": "1"}));

    // What is written leaves the cluster in no bundle that hashes names, and the state in it stays valid.
    let words = ["corp.example", "ann-smith", "orders of smith"];
    let label = format!("{}/owner={}", words[0], words[1]);
    cluster.run(&[
        "vm",
        "set",
        "c",
        "--label",
        &label,
        "--description",
        words[2],
    ]);
    for (options, is_hashed) in [(&["--hash-names"][..], true), (&[], false)] {
        let file = cluster.folder().join(format!("{is_hashed}.tar"));
        let path = file.to_str().expect("a path");
        let bundle = ["support", "bundle", path, "--with-state"];
        cluster.run(&[&bundle[..], options].concat());
        let bytes = std::fs::read(&file).expect("a bundle");
        let text = String::from_utf8_lossy(&bytes);
        for word in words {
            assert_eq!(text.contains(word), !is_hashed, "{word} with {options:?}");
        }
    }
    verdict::holds(&cluster);
}

/// Goal: nothing that is to be written on a VM is dropped without a word where programs are too old for it.
#[test]
fn older_programs_refuse_what_they_would_drop() {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(1)
        .at_version(3)
        .host(Host::new("h1"))
        .start();
    cluster.wait();
    cluster.pinned_flavor("pinned", 1);
    for written in [
        &["--label", "team=blue"][..],
        &["--description", "orders"],
        &["--protect"],
    ] {
        let words = [&Cluster::create("a", "pinned")[..], written].concat();
        let refusal = refused(&cluster, &words);
        assert_eq!(refusal["reason"], "SERVICE_VERSION_TOO_OLD", "{refusal:#}");
    }
    assert!(listed(&cluster, &[]).is_empty());
    cluster.run(&Cluster::create("a", "pinned"));
    let refusal = refused(&cluster, &["vm", "set", "a", "--protect"]);
    assert_eq!(refusal["reason"], "CLUSTER_VERSION_TOO_OLD", "{refusal:#}");
    assert!(listed(&cluster, &["--label", "team"]).is_empty());
    cluster.run(&["vm", "delete", "a"]);
}
