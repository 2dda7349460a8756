//! What `restore` and `recover` print for programs.
//!
//! Goal: a script gets one JSON object, the result or the refusal, with the fields that `berth` has. Method:
//! whole processes; the recovery that is printed is compared with the one that the new cluster has.

use std::fs;

use berth_tests::processes::{Answer, Cluster, Host};
use serde_json::Value;

use super::{await_end, lose_schedulers, recovery, shown};
use crate::PROGRAMS;
use crate::backup::back_up;

/// Returns the names of an object's fields.
fn fields(object: &Value) -> Vec<&str> {
    let object = object.as_object().expect("an object");
    object.keys().map(String::as_str).collect()
}

/// Expects a refusal in the form for programs, with this reason.
#[track_caller]
fn refused(answer: Answer, status: i32, reason: &str) {
    let answer = answer.refused(status);
    assert_eq!(answer.stdout, "", "{answer:#?}");
    assert_eq!(answer.stderr.lines().count(), 1, "{answer:#?}");
    let printed: Value = serde_json::from_str(&answer.stderr).expect("JSON");
    let error = &printed["error"];
    assert_eq!(error["reason"], reason, "{answer:#?}");
    let document = error["metadata"]["document"].as_str();
    assert!(
        document.is_some_and(|path| path.starts_with("docs/")),
        "{answer:#?}"
    );
    assert!(error["hint"].is_string(), "{answer:#?}");
}

#[test]
fn results_and_refusals_are_one_json_object() {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(1)
        .host(Host::new("h1"))
        .start();
    cluster.pinned_flavor("one", 1);
    let _ = cluster.boot("a", "one", "h1");
    let folder = tempfile::tempdir().expect("a folder");
    let full = folder.path().join("full");
    let made = back_up(&cluster, 0, &full, &[]);
    let status = cluster.json(&["cluster", "status"]);
    cluster.schedulers[0].kill();
    let run = |cluster: &Cluster, words: &[&str]| {
        cluster.schedulers[0].answer(&cluster.programs, &[words, &["-o", "json"]].concat())
    };

    let inspected = run(&cluster, &["recover", "--inspect"])
        .json()
        .expect("JSON");
    for field in ["cluster_id", "member_id"] {
        assert_eq!(inspected[field], status[field], "{inspected:#}");
    }
    assert!(inspected["last_index"].as_u64() >= made["end_index"].as_u64());
    assert_eq!(
        (&inspected["hosts"], &inspected["vms"]),
        (&1.into(), &1.into())
    );
    assert_eq!(inspected["members"][0]["id"], status["member_id"]);
    assert_eq!(
        inspected["members"][0]["address"],
        *cluster.schedulers[0].address
    );

    let into = shown(&folder.path().join("survivor"));
    let force = ["recover", "--force-new-group", "--into", &into];
    let survivor = run(&cluster, &force).json().expect("JSON");
    assert_eq!(survivor["recovery"]["cause"], "quorum_lost", "{survivor:#}");
    assert_eq!(survivor["survivor"]["last_index"], inspected["last_index"]);
    assert_eq!(survivor["data_dir"], *into);
    refused(run(&cluster, &force), 1, "directory-occupied");
    refused(
        run(&cluster, &["restore", "/nowhere"]),
        1,
        "directory-occupied",
    );

    let directory = folder.path().join("restored");
    lose_schedulers(&mut cluster, &directory);
    refused(run(&cluster, &["restore", "/nowhere"]), 1, "FILE_NOT_FOUND");
    refused(run(&cluster, &["recover", "--inspect"]), 1, "no-member");
    let address = cluster.schedulers[0].address.clone();
    cluster.schedulers[0].set("--listen", "nowhere");
    refused(
        run(&cluster, &["restore", &shown(&full)]),
        2,
        "configuration",
    );
    cluster.schedulers[0].set("--listen", &address);
    for wrong in [
        &["restore"][..],
        &["restore", &shown(&full), "--at", "yesterday"],
        &["recover"],
        &["recover", "--inspect", "--force-new-group", "--into", "/x"],
        &["recover", "--nothing"],
    ] {
        refused(run(&cluster, wrong), 2, "configuration");
    }
    assert!(fs::metadata(&directory).is_err(), "nothing was made");
    let restored = run(&cluster, &["restore", &shown(&full)])
        .json()
        .expect("JSON");
    let expected = [
        "address",
        "cluster_id",
        "data_dir",
        "hosts",
        "member_id",
        "recovery",
        "vms",
    ];
    assert_eq!(fields(&restored), expected, "{restored:#}");
    assert_eq!(restored["vms"], 1);
    assert_ne!(restored["cluster_id"], status["cluster_id"]);
    cluster.schedulers[0].start(&cluster.programs);
    let _ = await_end(&cluster);
    let mut recovered = recovery(&cluster).expect("it is served")["recovery"].clone();
    recovered["end_time"] = Value::Null;
    assert_eq!(restored["recovery"], recovered, "as the cluster has it");
}
