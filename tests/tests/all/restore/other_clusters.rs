//! Commands of clients that name schedulers of the cluster from before a recovery.

use std::collections::BTreeMap;

use berth_tests::processes::{Answer, Cluster, eventually};
use serde_json::Value;

use super::guests;

/// Every command that a conductor carries out, of the VM `a`.
const CONDUCTED: &[&[&str]] = &[
    &[
        "vm", "create", "x", "--flavor", "one", "--kernel", "k", "--initrd", "i",
    ],
    &["vm", "delete", "a"],
    &["vm", "migrate", "a"],
    &["vm", "evacuate", "a"],
    &["vm", "resize", "a", "--flavor", "one"],
    &["vm", "confirm-resize", "a"],
    &["vm", "revert-resize", "a"],
    &["vm", "shelve", "a"],
    &["vm", "unshelve", "a"],
    &["vm", "stop", "a"],
    &["vm", "start", "a"],
    &["vm", "reboot", "a"],
    &["vm", "rebuild", "a"],
    &["vm", "snapshot", "a", "s"],
    &["vm", "console", "a"],
    &["host", "drain", "h1"],
    &["host", "fence", "h1"],
    &["host", "check", "h1"],
];

/// Returns the VMs of the cluster that these schedulers are of, with their hosts and states.
fn vms(cluster: &Cluster, addresses: &str) -> BTreeMap<String, Value> {
    let listed = cluster.berth_at(addresses, &["vm", "list"]).json();
    let listed = listed.unwrap_or_else(|seen| panic!("{seen}"));
    let vms = listed.as_array().into_iter().flatten();
    vms.map(|vm| {
        (
            vm["vm"]["name"].as_str().unwrap_or_default().to_owned(),
            vm.clone(),
        )
    })
    .collect()
}

fn reason(answer: &Answer) -> Value {
    let object: Value = serde_json::from_str(&answer.stderr).unwrap_or_default();
    object["error"]["reason"].clone()
}

/// Goal: nothing is carried out in the new cluster for a client that follows the old one, whose conductors
/// have gone over; and it is not reported as refused for another reason. Method: every command of a conductor.
pub(super) fn commands_of_the_old_group_change_nothing(cluster: &Cluster, old: &str) {
    let new = &cluster.schedulers[0].address;
    let before = (vms(cluster, new), guests(cluster));
    for command in CONDUCTED {
        let answer = cluster.berth_at(old, command);
        assert_eq!(reason(&answer), "OTHER_CLUSTER", "{command:?}: {answer:#?}");
        assert_eq!(answer.status, Some(1), "{command:?}: {answer:#?}");
    }
    assert_eq!((vms(cluster, new), guests(cluster)), before);
}

/// Goal: where schedulers of both are named, every command is of the recovered cluster, and the user is
/// warned once. Method: both orders; a command that reads, one that writes, one of a conductor.
pub(super) fn commands_are_of_the_new_group(cluster: &Cluster, old: &str) {
    let new = &cluster.schedulers[0].address;
    let all = vms(cluster, new);
    for (turn, addresses) in [format!("{old},{new}"), format!("{new},{old}")]
        .iter()
        .enumerate()
    {
        assert_eq!(vms(cluster, addresses), all, "{addresses}");
        let flavor = format!("of-{turn}");
        for command in [
            &["vm", "list"][..],
            &[
                "flavor", "create", &flavor, "--vcpus", "1", "--memory", "1G",
            ],
            &["host", "check", "h1"],
        ] {
            let answer = cluster.berth_at(addresses, command);
            assert_eq!(answer.status, Some(0), "{command:?}: {answer:#?}");
            let warnings = answer.stderr.matches("other_clusters");
            assert_eq!(warnings.count(), 1, "{command:?}: {answer:#?}");
            assert!(answer.stderr.contains(old), "{command:?}: {answer:#?}");
        }
        let shown = cluster.berth_at(new, &["flavor", "show", &flavor]);
        assert_eq!(shown.status, Some(0), "{shown:#?}");
    }
}

/// Goal: a program that knows nothing of before follows the recovered cluster, also where it is given the old
/// one first: else agents would carry out what that one says. Method: an agent and the conductor with empty
/// directories.
pub(super) fn programs_without_data_follow_the_new_group(cluster: &mut Cluster, old: &str) {
    let new = cluster.schedulers[0].address.clone();
    let folder = tempfile::tempdir().expect("a folder");
    let empty = |name: &str| folder.path().join(name).display().to_string();
    let is_up = |cluster: &Cluster| {
        let hosts = cluster.ask(&["host", "list"])?;
        let mut hosts = hosts.as_array().into_iter().flatten();
        let h1 = hosts.find(|host| host["host"]["name"] == "h1");
        let h1 = h1.ok_or("no host h1")?;
        Ok::<bool, String>(h1["host"]["liveness"] == "Up")
    };
    cluster.agents[0].kill();
    eventually("the host to be down", || {
        let up = is_up(cluster)?;
        (!up).then_some(()).ok_or("it is up".to_owned())
    });
    for (part, name) in [
        (&mut cluster.agents[0], "agent"),
        (&mut cluster.conductors[0], "conductor"),
    ] {
        part.kill();
        part.set("--data-dir", &empty(name));
        part.set("--scheduler", &format!("{old},{new}"));
        part.start(&cluster.programs);
    }
    eventually("the host to be up in the new cluster", || {
        let up = is_up(cluster)?;
        up.then_some(()).ok_or("it is down".to_owned())
    });
    for part in [&cluster.agents[0], &cluster.conductors[0]] {
        eventually("the old cluster to be left out", || {
            let log = part.log();
            let is_left_out = log.contains("left out a scheduler of a cluster");
            is_left_out.then_some(()).ok_or(log)
        });
    }
    let checked = cluster.berth_at(&new, &["host", "check", "h1"]);
    assert_eq!(checked.status, Some(0), "{checked:#?}");
}

/// Goal: a conductor that is registered, and still follows the old cluster, keeps no command from the other one;
/// alone it carries out nothing. Method: the first of the list is started with the old address only.
pub(super) fn a_conductor_of_the_old_group_is_passed_over(cluster: &mut Cluster, old: &str) {
    let new = cluster.schedulers[0].address.clone();
    let folder = tempfile::tempdir().expect("a folder");
    let check = &["host", "check", "h1"];
    let stray = &mut cluster.conductors[0];
    stray.kill();
    stray.set("--data-dir", &folder.path().display().to_string());
    stray.set("--scheduler", old);
    stray.start(&cluster.programs);
    eventually("the conductor to follow the old cluster", || {
        let answer = cluster.berth_at(old, check);
        (reason(&answer) != "OTHER_CLUSTER")
            .then_some(())
            .ok_or(answer.stderr)
    });
    let status = cluster.berth_at(&new, &["cluster", "status"]).json();
    let status = status.unwrap_or_else(|seen| panic!("{seen}"));
    let conductors = status["conductors"].as_array().expect("a list");
    let names = conductors.iter().map(|conductor| &conductor["name"]);
    assert_eq!(names.collect::<Vec<_>>(), ["conductor-1", "conductor-2"]);

    let checked = cluster.berth_at(&new, check);
    assert_eq!(checked.status, Some(0), "{checked:#?}");
    cluster.conductors[1].kill();
    for command in CONDUCTED {
        let answer = cluster.berth_at(&new, command);
        assert_ne!(answer.status, Some(0), "{command:?}: {answer:#?}");
        assert_ne!(
            reason(&answer),
            "OUTCOME_UNKNOWN",
            "{command:?}: {answer:#?}"
        );
    }
    cluster.conductors[1].start(&cluster.programs);
    let stray = &mut cluster.conductors[0];
    stray.kill();
    stray.set("--scheduler", &new);
    stray.start(&cluster.programs);
}
