//! Goal: `berth apply` makes what files declare and nothing else: applied again it changes nothing, also after a
//! run that failed in the middle; what was changed by others is shown and made as declared; what cannot be
//! changed in place, what is protected and what is hostile is refused before anything is changed.
//!
//! Method: real processes on loopback with simulated hypervisors, and the files of a user.

use std::fs;

use berth_tests::processes::{Answer, Cluster, Host};
use serde_json::{Value, json};

use crate::PROGRAMS;

const BASE: &str = "
kind: SchedulingPolicy
settings:
  scheduling.hosts: pack
  memory.ratio: 1.5
groups:
  east: {cpu.ratio: 8.0}
---
kind: ServerGroup
name: web
policy: soft-anti-affinity
---
kind: Aggregate
name: east
hosts: [h1, h2]
metadata: {availability_zone: east}
---
kind: Flavor
name: small
vcpus: 1
memory_mib: 64
---
kind: Network
name: front
physical_network: physnet1
vlan: 120
---
kind: PciAlias
name: nic
any_of:
- {vendor_id: \"8086\", kind: virtual}
";

const VMS: &str = "
kind: Vm
name: web-1
flavor: small
boot: {kernel: {kernel: vmlinuz, initrd: initrd.gz}}
server_group: web
availability_zone: east
labels: {app: web, tier: front}
description: the first one
---
kind: Vm
name: web-2
flavor: small
boot: {kernel: {kernel: vmlinuz}}
nics: [{bridge: br0}, {network: front}]
labels: {app: web}
restart_policy: {on_crash: restart}
";

fn cluster() -> Cluster {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(1)
        .host(Host::new("h1").with_network("physnet1", "br1"))
        .host(Host::new("h2").with_network("physnet1", "br2"))
        .start();
    cluster.wait();
    cluster
}

/// Writes a file of the user and returns its path.
fn file(cluster: &Cluster, name: &str, text: &str) -> String {
    let folder = cluster.folder().join("declared");
    fs::create_dir_all(&folder).expect("a directory");
    let path = folder.join(name);
    fs::write(&path, text).expect("a file");
    path.display().to_string()
}

/// Runs `berth` without a format.
fn plain(cluster: &Cluster, words: &[&str]) -> Answer {
    let mut command = cluster.programs.command("berth");
    command
        .args(["--scheduler", &cluster.addresses()])
        .args(words);
    Answer::of(command)
}

/// Returns the actions of a plan, each with its resource.
fn actions(plan: &Value) -> Vec<String> {
    let resources = plan["resources"].as_array().expect("a list").iter();
    let word = |value: &Value| value.as_str().expect("a text").to_owned();
    let line = |one: &Value| format!("{} {}", word(&one["action"]), word(&one["name"]));
    resources.map(line).collect()
}

fn vm(cluster: &Cluster, name: &str) -> Value {
    cluster.json(&["vm", "show", name])["vm"].clone()
}

fn names_of_vms(cluster: &Cluster) -> Vec<String> {
    let vms = cluster.json(&["vm", "list"]);
    let vms = vms.as_array().expect("a list").iter();
    vms.map(|vm| vm["name"].as_str().expect("a name").to_owned())
        .collect()
}

/// Checks that everything is as declared: with status 0, and again without a plan of changes.
#[track_caller]
fn is_as_declared(cluster: &Cluster, files: &[&str]) {
    let apply = [&["apply"][..], files].concat();
    let plan = cluster.json(&[&apply[..], &["--dry-run"]].concat());
    let all = actions(&plan);
    assert!(
        all.iter().all(|action| action.starts_with("unchanged")),
        "{all:?}"
    );
    let applied = cluster.json(&apply);
    assert_eq!(applied["summary"], json!({"unchanged": all.len()}));
}

#[test]
fn what_is_declared_is_made_once_and_kept() {
    let cluster = cluster();
    let base = file(&cluster, "10-base.yaml", BASE);
    file(&cluster, "20-vms.yml", VMS);
    file(&cluster, "notes.txt", "kind: Nothing");
    let folder = cluster.folder().join("declared").display().to_string();
    let files = ["-f", &*folder];
    let apply = ["apply", "-f", &folder];

    let dry = [&apply[..], &["--dry-run"]].concat();
    let planned = cluster.berth(&dry).json_with(4).expect("a plan");
    let expected = ["nic", "front", "small", "east", "web", "", "web-1", "web-2"];
    let expected: Vec<String> = expected
        .iter()
        .map(|name| match *name {
            "" => "change ".to_owned(),
            name => format!("create {name}"),
        })
        .collect();
    assert_eq!(actions(&planned), expected);
    assert_eq!(cluster.json(&["flavor", "list"]), json!([]));

    let applied = cluster.json(&apply);
    assert_eq!(actions(&applied), expected);
    let resources = applied["resources"].as_array().expect("a list");
    assert!(
        resources.iter().all(|one| one["result"] == "done"),
        "{applied:#}"
    );
    is_as_declared(&cluster, &files);
    let first = vm(&cluster, "web-1");
    assert_eq!(first["labels"], json!({"app": "web", "tier": "front"}));
    assert_eq!(first["state"], "Active");
    let policy = cluster.json(&["policy", "show"]);
    assert_eq!(policy["settings"]["memory.ratio"], "1.5");
    assert_eq!(policy["groups"]["east"]["cpu.ratio"], "8.0");

    shown_is_accepted(&cluster);
    drift(&cluster, &apply);
    is_as_declared(&cluster, &files);

    // What cannot be changed in place stops all of it.
    let changed = BASE
        .replace("vcpus: 1", "vcpus: 2")
        .replace("pack", "spread");
    fs::write(&base, changed).expect("a file");
    let answer = cluster.berth(&apply).refused(1).saying(&[
        "PLAN_NOT_APPLICABLE",
        "vcpus of a Flavor",
        "berth flavor delete small",
    ]);
    let plan: Value = serde_json::from_str(&answer.stdout).expect("JSON");
    assert!(actions(&plan).contains(&"recreate-needed small".to_owned()));
    let policy = cluster.json(&["policy", "show"]);
    assert_eq!(policy["settings"]["scheduling.hosts"], "pack");
    let table = plain(&cluster, &["apply", "-f", &folder, "--dry-run"]).with_status(4);
    assert!(table.stdout.contains("recreate-needed"), "{table:#?}");
    let _ = table.saying(&["hint: `berth flavor delete small`"]);
    cluster.run(&["flavor", "delete", "small"]);
    cluster.run(&apply);
    assert_eq!(cluster.json(&["flavor", "show", "small"])["vcpus"], 2);
    is_as_declared(&cluster, &files);
}

/// What `show -o yaml` prints, with its kind, is what is declared.
fn shown_is_accepted(cluster: &Cluster) {
    let mut all = String::new();
    for (kind, words) in [
        ("Flavor", &["flavor", "show", "small"][..]),
        ("PciAlias", &["pci-alias", "show", "nic"]),
        ("Network", &["network", "show", "front"]),
        ("Aggregate", &["aggregate", "show", "east"]),
        ("ServerGroup", &["server-group", "show", "web"]),
        ("SchedulingPolicy", &["policy", "show"]),
        ("Vm", &["vm", "show", "web-1"]),
        ("Vm", &["vm", "show", "web-2"]),
    ] {
        let shown = plain(cluster, &[words, &["-o", "yaml"]].concat()).with_status(0);
        all.push_str(&format!("---\nkind: {kind}\n{}", shown.stdout));
    }
    let path = cluster.folder().join("shown.yaml").display().to_string();
    fs::write(&path, all).expect("a file");
    is_as_declared(cluster, &["-f", &path]);
}

/// What others change is shown, and made as declared again.
fn drift(cluster: &Cluster, apply: &[&str]) {
    cluster.run(&[
        "vm",
        "set",
        "web-1",
        "--label",
        "app=x",
        "--label",
        "owner=ann",
    ]);
    cluster.run(&["vm", "set", "web-1", "--description", "", "--protect"]);
    cluster.run(&["vm", "set-restart", "web-2", "--on-crash", "leave"]);
    cluster.run(&["aggregate", "set", "east", "rack=7"]);
    cluster.run(&["policy", "set", "memory.ratio=2.0", "balance.hold_ms=7"]);
    let dry = [apply, &["--dry-run"]].concat();
    let planned = cluster.berth(&dry).json_with(4).expect("a plan");
    let mut fields = Vec::new();
    for one in planned["resources"].as_array().expect("a list") {
        for difference in one["differences"].as_array().expect("a list") {
            fields.push(difference["field"].as_str().expect("a text").to_owned());
        }
    }
    let expected = [
        "metadata.rack",
        "settings.memory.ratio",
        "description",
        "labels.app",
        "labels.owner",
        "protected",
        "restart_policy.on_crash",
    ];
    assert_eq!(fields, expected, "{planned:#}");
    let table = plain(cluster, &dry).with_status(4);
    for part in [
        "ACTION",
        "change",
        "Vm web-1",
        "labels.app",
        "x",
        "web",
        "2.0",
        "1.5",
    ] {
        assert!(table.stdout.contains(part), "{part}: {table:#?}");
    }
    let applied = cluster.json(apply);
    assert_eq!(applied["summary"], json!({"change": 4, "unchanged": 4}));
    let now = vm(cluster, "web-1");
    assert_eq!(now["labels"], json!({"app": "web", "tier": "front"}));
    assert_eq!(now["description"], "the first one");
    // What is not declared of the policy is left alone.
    let policy = cluster.json(&["policy", "show"]);
    assert_eq!(policy["settings"]["balance.hold_ms"], "7");
}

#[test]
fn a_run_that_failed_goes_on_where_it_ended() {
    let cluster = cluster();
    let huge = "---\nkind: Flavor\nname: huge\nvcpus: 1\nmemory_mib: 1000000\n";
    let third = "---\nkind: Vm\nname: web-0\nflavor: huge\nboot: {kernel: {kernel: vmlinuz}}\n\
                 labels: {app: web}\n";
    let path = file(
        &cluster,
        "all.yaml",
        &format!("{BASE}{huge}---{VMS}{third}"),
    );
    let apply = ["apply", "-f", &path];
    let failed = cluster.berth(&apply).refused(1);
    let plan: Value = serde_json::from_str(&failed.stdout).expect("JSON");
    let of = |name: &str| {
        let mut all = plan["resources"].as_array().expect("a list").iter();
        all.rfind(|one| one["name"] == name).cloned()
    };
    let refused = of("web-0").expect("it is declared");
    assert_eq!(refused["result"], "failed", "{plan:#}");
    assert_eq!(refused["error"]["reason"], "NO_VALID_HOST", "{plan:#}");
    assert_eq!(of("web-1").expect("it is declared")["result"], "done");
    assert_eq!(names_of_vms(&cluster), ["web-1", "web-2"]);

    let fixed = fs::read_to_string(&path).expect("a file");
    fs::write(&path, fixed.replace("flavor: huge", "flavor: small")).expect("a file");
    let applied = cluster.json(&apply);
    assert_eq!(applied["summary"], json!({"create": 1, "unchanged": 9}));
    is_as_declared(&cluster, &["-f", &path]);
    prune(&cluster, &path);
}

fn prune(cluster: &Cluster, path: &str) {
    cluster.run(
        &[
            &Cluster::create("other", "small")[..],
            &["--label", "app=db"],
        ]
        .concat(),
    );
    let text = fs::read_to_string(path).expect("a file");
    let (kept, _) = text
        .split_once("---\nkind: Vm\nname: web-0")
        .expect("it is there");
    fs::write(path, kept).expect("a file");
    let prune = ["apply", "-f", path, "--prune", "app=web"];
    let confirmed = [&prune[..], &["--yes"]].concat();

    let planned = cluster.berth(&[&prune[..], &["--dry-run"]].concat());
    let planned = planned.json_with(4).expect("a plan");
    assert_eq!(planned["summary"], json!({"delete": 1, "unchanged": 9}));
    let _ = cluster.berth(&prune).refused(1).saying(&["give --yes"]);
    cluster.run(&["vm", "set", "web-0", "--protect"]);
    let _ = cluster.berth(&confirmed).refused(1).saying(&[
        "nothing was changed: Vm web-0: it is protected",
        "--unprotect",
    ]);
    assert_eq!(names_of_vms(cluster), ["other", "web-0", "web-1", "web-2"]);
    cluster.run(&["vm", "set", "web-0", "--unprotect"]);
    let applied = cluster.json(&confirmed);
    assert_eq!(applied["summary"], json!({"delete": 1, "unchanged": 9}));
    assert_eq!(names_of_vms(cluster), ["other", "web-1", "web-2"]);
    assert_eq!(cluster.json(&confirmed)["summary"], json!({"unchanged": 9}));

    // Files without such a VM delete none by accident, be they empty or of another label.
    let empty = file(cluster, "empty.yaml", "# nothing\n");
    let of_empty = ["apply", "-f", &empty, "--prune", "app=web", "--yes"];
    let _ = cluster.berth(&of_empty).refused(2).saying(&["--prune-all"]);
    let of_other = ["apply", "-f", path, "--prune", "app=db", "--yes"];
    let _ = cluster.berth(&of_other).refused(2).saying(&["--prune-all"]);
    assert_eq!(names_of_vms(cluster), ["other", "web-1", "web-2"]);
    cluster.run(&[&of_empty[..], &["--prune-all"]].concat());
    assert_eq!(names_of_vms(cluster), ["other"]);
}

/// Goal: what is hostile or wrong in one document leaves the cluster as it is, and its text is no line of the
/// output. Method: each beside a flavor that is fine.
#[test]
fn a_bad_document_changes_nothing() {
    let cluster = cluster();
    let flavor = "kind: Flavor\nname: small\nvcpus: 1\nmemory_mib: 64\n---\n";
    for (bad, part) in [
        (
            "kind: Vm\nname: \"a\\nforged\"\nflavor: small\nboot: Disk",
            "name",
        ),
        (
            "kind: Vm\nname: ../../a\nflavor: small\nboot: Disk",
            "document 2",
        ),
        ("kind: \"\\e[2J\"", "kind"),
        ("kind: Flavor\n\"\\e[2Jx\\n\": 1\nname: a", "is not known"),
        (
            "kind: Flavor\nname: small\nvcpus: 1\nmemory_mib: 64",
            "is declared in",
        ),
        (
            "kind: Vm\nname: a\nflavor: small\nboot: Disk\ndescription: \"\\e[31m\"",
            "description",
        ),
        ("kind: Flavor\nname: [", "cannot be read as YAML or JSON"),
        ("!!binary x", "cannot be read as YAML or JSON"),
    ] {
        let path = file(&cluster, "bad.yaml", &format!("{flavor}{bad}\n"));
        let _ = cluster
            .berth(&["apply", "-f", &path])
            .refused(2)
            .saying(&["bad.yaml", part]);
        let answer = plain(&cluster, &["apply", "-f", &path]).with_status(2);
        assert!(answer.stdout.is_empty(), "{answer:#?}");
        assert_eq!(answer.stderr.trim_end().lines().count(), 1, "{answer:#?}");
        assert!(!answer.stderr.contains('\u{1b}'), "{answer:#?}");
    }
    let path = file(
        &cluster,
        "vm.yaml",
        &format!("{flavor}kind: Vm\nname: a\nflavor: other\nboot: {{kernel: {{kernel: k}}}}\n"),
    );
    let _ = cluster
        .berth(&["apply", "-f", &path])
        .refused(1)
        .saying(&["Flavor other"]);
    for path in ["/none", "/dev/zero"] {
        let _ = cluster
            .berth(&["apply", "-f", path])
            .refused(2)
            .saying(&[path]);
    }
    assert_eq!(cluster.json(&["flavor", "list"]), json!([]));
    let nothing = cluster.json(&["apply", "-f", "-"]);
    assert_eq!(nothing["resources"], json!([]));
}
