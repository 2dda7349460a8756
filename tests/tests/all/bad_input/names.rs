//! Impossible flavors, and names of what is not there.

use std::path::Path;

use berth_tests::processes::{Bench, Cluster, Host, Process, eventually, verdict};
use serde_json::Value;

use crate::PROGRAMS;

/// Goal: impossible flavors are refused with the key and the rule, several faults at once.
#[test]
fn impossible_flavors_are_refused() {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(0)
        .start();
    let cases: [(&[&str], &[&str]); 9] = [
        (&["hw:cpu_polcy=dedicated"], &["hw:cpu_polcy", "known are"]),
        (&["hw:cpu_policy=greedy"], &["hw:cpu_policy", "greedy"]),
        (
            &["hw:mem_page_size=plenty"],
            &["hw:mem_page_size", "plenty"],
        ),
        (&["hw:mem_page_size=3"], &["hw:mem_page_size", "3"]),
        (&["hw:numa_nodes=0"], &["hw:numa_nodes", "must be a number"]),
        (&["hw:numa_nodes=3"], &["hw:numa_nodes", "3"]),
        (
            &[
                "hw:numa_nodes=2",
                "hw:numa_cpus.0=0-2",
                "hw:numa_cpus.1=2-3",
            ],
            &["hw:numa_cpus"],
        ),
        (
            &[
                "hw:numa_nodes=2",
                "hw:numa_cpus.0=0-1",
                "hw:numa_mem.0=64",
                "hw:numa_cpus.1=2-3",
                "hw:numa_mem.1=65",
            ],
            &["hw:numa_mem", "sum", "128"],
        ),
        (
            &[
                "hw:cpu_polcy=x",
                "hw:numa_nodes=many",
                "hw:emulator_threads_policy=x",
                "nowhere=1",
            ],
            &[
                "hw:cpu_polcy",
                "hw:numa_nodes",
                "hw:emulator_threads_policy",
                "nowhere",
                "a key needs a namespace",
            ],
        ),
    ];
    for (specs, words) in cases {
        let specs: Vec<&str> = specs.iter().flat_map(|spec| ["--spec", spec]).collect();
        let create = [
            "flavor",
            "create",
            "bad",
            "--vcpus",
            "4",
            "--memory-mib",
            "128",
        ];
        let answer = cluster.berth(&[&create[..], &specs].concat());
        let _ = answer.refused(1).saying(words);
    }
    for size in [
        ["--vcpus", "0", "--memory-mib", "64"],
        ["--vcpus", "1", "--memory-mib", "0"],
    ] {
        let answer = cluster.berth(&[&["flavor", "create", "bad"][..], &size].concat());
        let _ = answer.refused(1);
    }
    let named = [
        "flavor",
        "create",
        "no/slash",
        "--vcpus",
        "1",
        "--memory-mib",
        "64",
    ];
    let _ = cluster.berth(&named).refused(2).saying(&["no/slash"]);
    let flavors = cluster.json(&["flavor", "list"]);
    assert_eq!(flavors.as_array().map(Vec::len), Some(0), "{flavors:#}");
}

/// Goal: whatever is asked of something that is not there, the answer names it and its kind.
#[test]
fn unknown_names_are_told_by_every_verb() {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .host(Host::new("h1"))
        .start();
    cluster.pinned_flavor("one", 1);
    let _ = cluster.boot("a", "one", "h1");
    let before = cluster.json(&["vm", "list"]);
    let id = "00000000-0000-4000-8000-000000000000";
    let cases: [(&[&str], &str); 27] = [
        (&["host", "show", "nobody"], "HOST_NOT_FOUND"),
        (&["host", "cordon", "nobody"], "HOST_NOT_FOUND"),
        (&["host", "uncordon", "nobody"], "HOST_NOT_FOUND"),
        (&["host", "remove", "nobody"], "HOST_NOT_FOUND"),
        (&["flavor", "show", "nobody"], "FLAVOR_NOT_FOUND"),
        (&["flavor", "delete", "nobody"], "FLAVOR_NOT_FOUND"),
        (&["vm", "show", "nobody"], "VM_NOT_FOUND"),
        (&["vm", "migrate", "nobody"], "VM_NOT_FOUND"),
        (&["vm", "delete", "nobody"], "VM_NOT_FOUND"),
        (&["vm", "console", "nobody"], "VM_NOT_FOUND"),
        (
            &["vm", "migrate", "a", "--host", "nobody"],
            "HOST_NOT_FOUND",
        ),
        (&["migration", "show", id], "MIGRATION_NOT_FOUND"),
        (&["operation", "show", id], "OPERATION_NOT_FOUND"),
        (&["operation", "wait", id], "OPERATION_NOT_FOUND"),
        (&["operation", "cancel", id], "OPERATION_NOT_FOUND"),
        (&["cluster", "remove-member", "99"], "MEMBER_NOT_FOUND"),
        (&["cluster", "transfer-leader", "99"], "MEMBER_NOT_FOUND"),
        (&["provider", "show", id], "PROVIDER_NOT_FOUND"),
        (
            &["provider", "set-inventories", id, "--inventory", "VCPU=1"],
            "PROVIDER_NOT_FOUND",
        ),
        (
            &["provider", "set-traits", id, "--trait", "HW_NUMA"],
            "PROVIDER_NOT_FOUND",
        ),
        (&["provider", "delete", id], "PROVIDER_NOT_FOUND"),
        (
            &["provider", "create", "x", "--parent", id],
            "PARENT_NOT_FOUND",
        ),
        (&["provider", "update", id, "--root"], "PROVIDER_NOT_FOUND"),
        (&["provider", "set-aggregates", id], "PROVIDER_NOT_FOUND"),
        (&["class", "delete", "CUSTOM_NO"], "CLASS_NOT_FOUND"),
        (
            &["class", "rename", "CUSTOM_NO", "CUSTOM_X"],
            "CLASS_NOT_FOUND",
        ),
        (&["trait", "delete", "CUSTOM_NO"], "TRAIT_NOT_FOUND"),
    ];
    for (arguments, reason) in cases {
        let named = if arguments.contains(&"99") { "99" } else { "" };
        let named = if arguments.contains(&"nobody") {
            "nobody"
        } else {
            named
        };
        let named = if arguments.contains(&id) { id } else { named };
        let _ = cluster.berth(arguments).refused(1).saying(&[reason, named]);
    }
    let create = Cluster::create("b", "nobody");
    let _ = cluster
        .berth(&create)
        .with_status(1)
        .saying(&["FLAVOR_NOT_FOUND", "nobody"]);
    let create = [&Cluster::create("b", "one")[..], &["--host", "nobody"]].concat();
    let words = ["HOST_NOT_FOUND", "nobody", "not part of this cluster"];
    let _ = cluster.berth(&create).with_status(1).saying(&words);
    let _ = cluster
        .berth(&["operation", "show", "x"])
        .with_status(2)
        .saying(&["an id of an operation", "USAGE"]);
    let _ = cluster.berth(&["vm", "show", "-a-"]).with_status(2);
    let _ = cluster
        .berth(&["vm", "show", "A B"])
        .with_status(2)
        .saying(&["A B"]);
    let again = cluster.berth(&Cluster::create("a", "one"));
    let _ = again.with_status(1).saying(&["VM_EXISTS"]);
    let nothing = cluster.berth(&["vm", "create", "b", "--flavor", "one"]);
    let _ = nothing
        .with_status(2)
        .saying(&["boot from", "--kernel", "--disk"]);
    assert_eq!(cluster.json(&["vm", "list"]), before, "nothing changed");
    verdict::holds(&cluster);

    let nobody = cluster.berth_at("127.0.0.1:1", &["vm", "list"]);
    let _ = nobody
        .refused(3)
        .saying(&["127.0.0.1:1", "BERTH_SCHEDULER"]);
    let _ = cluster
        .berth(&["vm", "lsit"])
        .with_status(2)
        .saying(&["lsit"]);
}

/// Goal: a resource has one name, with its collection and without it, for the command that makes it, those
/// that show it and the one that deletes it; and a deletion says for programs what is gone.
#[test]
fn a_name_is_the_same_with_its_collection() {
    let host = Host::new("h1").with_volumes("sim", &["region0:4096@1"], "");
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(1)
        .host(host)
        .start();
    cluster.pinned_flavor("one", 1);
    let kinds: [(&str, &str, &[&str]); 6] = [
        ("flavor", "flavors", &["--vcpus", "1", "--memory-mib", "64"]),
        ("pci-alias", "pciAliases", &["--match", "vendor_id=8086"]),
        ("server-group", "serverGroups", &["--policy", "affinity"]),
        ("aggregate", "aggregates", &[]),
        ("volume", "volumes", &["--size", "64M", "--wait"]),
        (
            "vm",
            "vms",
            &["--flavor", "one", "--kernel", "k", "--initrd", "i"],
        ),
    ];
    for (kind, collection, options) in kinds {
        let named = format!("{collection}/x-{kind}");
        let short = format!("x-{kind}");
        for (made, deleted) in [(&named, &short), (&short, &named)] {
            cluster.run(&[&[kind, "create", made], options].concat());
            let shown = [&named, &short].map(|name| cluster.json(&[kind, "show", name]));
            assert_eq!(shown[0], shown[1], "{kind}");
            let gone = cluster.json(&[kind, "delete", deleted]);
            let prefix = format!("{collection}/");
            let name = gone["name"].as_str();
            assert!(
                name.is_some_and(|name| name.starts_with(&prefix)),
                "{gone:#}"
            );
            assert!(gone["result"].is_string(), "{gone:#}");
        }
    }
}

/// Goal: operations and migrations are named by the beginning of their ids, and no other one is taken for
/// it; providers by their names.
#[test]
fn the_beginning_of_an_id_names_one_record_or_none() {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(1)
        .host(Host::new("h1"))
        .host(Host::new("h2"))
        .start();
    cluster.pinned_flavor("one", 1);
    let _ = cluster.boot("a", "one", "h1");
    cluster.run(&["vm", "migrate", "a"]);
    let ids = |command: &[&str]| -> Vec<String> {
        let listed = cluster.json(command);
        let all = listed.as_array().cloned().unwrap_or_default();
        let id = |record: &Value| record["id"].as_str().unwrap_or_default().to_owned();
        all.iter().map(id).collect()
    };
    let migrations = ids(&["migration", "list"]);
    let operations = ids(&["operation", "list"]);
    assert_eq!((migrations.len(), operations.len()), (1, 2));
    for (kind, id) in [("migration", &migrations[0]), ("operation", &operations[1])] {
        for end in [id.len(), id.len() - 1] {
            let shown = cluster.json(&[kind, "show", &id[..end]]);
            assert_eq!(shown["id"], **id, "{kind}: {shown:#}");
        }
        let _ = cluster
            .berth(&[kind, "show", "ffff"])
            .refused(1)
            .saying(&["_NOT_FOUND", "ffff"]);
    }
    let shared = operations[0].chars().zip(operations[1].chars());
    let shared: String = shared.take_while(|(a, b)| a == b).map(|(a, _)| a).collect();
    for verb in ["show", "wait", "cancel"] {
        let refused = cluster.berth(&["operation", verb, &shared]).refused(1);
        let _ = refused.saying(&["AMBIGUOUS_ID", &operations[0], &operations[1]]);
    }
    let provider = cluster.json(&["provider", "show", "h1"]);
    let id = provider["provider"]["id"].as_str().expect("an id");
    assert_eq!(cluster.json(&["provider", "show", id]), provider);
    for verb in [
        "show",
        "delete",
        "set-traits",
        "set-aggregates",
        "set-inventories",
        "update",
    ] {
        for name in ["", "resourceProviders/"] {
            let refused = cluster.berth(&["provider", verb, name]).refused(1);
            let _ = refused.saying(&["INVALID_FIELD"]);
        }
    }
    let named = cluster.json(&["provider", "show", "resourceProviders/h1"]);
    assert_eq!(named, provider);
    let _ = cluster
        .berth(&["provider", "show", "h3"])
        .refused(1)
        .saying(&["RESOURCE_PROVIDER_NOT_FOUND", "h3"]);
}

/// Goal: a text that can be no address of a server is wrong usage, and not taken for a server that does not
/// answer. Method: the option of all commands, and that of a member's address, which is not called.
#[test]
fn what_is_no_address_is_wrong_usage() {
    let bench = Bench::new(PROGRAMS);
    for bad in [
        "127.0.5.5;127.0.5.4",
        "127.0.5.5;127.0.5.4:7100",
        "*",
        "*:7100",
        "é",
        "a b",
        "u@a",
        "a:0",
        "a:99999",
        "256.1.1.1",
        "[::g]",
        "ftp://a",
        "http://*",
        "",
    ] {
        let list = ["--output", "json", "--scheduler", bad, "vm", "list"];
        let answer = bench.run_plain("berth", &list).refused(2);
        let _ = answer.saying(&["USAGE"]);
        let of_member = ["cluster", "update-member", "2", "--address", bad];
        let answer = [&["--output", "json"][..], &of_member].concat();
        let answer = bench.run_plain("berth", &answer).refused(2);
        let _ = answer.saying(&["USAGE"]);
    }
    let vm = [
        "--output", "json", "vm", "create", "é", "--flavor", "f", "--kernel", "k",
    ];
    let answer = bench.run_plain("berth", &vm).refused(2);
    let _ = answer.saying(&["USAGE", "vm name"]);
}

/// Goal: a controller of volumes with a wrong address logs that at its start, and not with its first request.
#[test]
fn a_wrong_address_of_the_schedulers_is_logged() {
    let mut bench = Bench::new(PROGRAMS);
    let nothing = bench.addresses.free();
    let socket = format!("unix://{}", bench.path("csi/csi.sock"));
    let mut command = bench.programs.command("berth-csi-controller");
    command.args(["--csi-endpoint", &socket, "--scheduler", &nothing]);
    let process = Process::start(command, Path::new(&bench.path("controller.log")));
    eventually("a line about the schedulers", || {
        let log = process.log();
        let is_there = log.contains("no scheduler is reached") && log.contains(&nothing);
        is_there.then_some(()).ok_or(log)
    });
}
