//! Goal: a guest is started and moved only where it can be given its CPU, keeps it while it runs, and
//! the refusal names what is missing.
//!
//! Method: five hosts whose simulated hypervisors offer CPUs of two vendors and three generations, and
//! refuse what they cannot give as libvirt does; every choice of a flavor, and every way of a guest from
//! one host to another. What libvirt itself says is in `real cpu_models::`.

use berth_tests::processes::{Answer, Cluster, Host};
use serde_json::{Value, json};

use crate::PROGRAMS;

/// The models of the map: each with its features.
const MODELS: [(&str, &[&str]); 4] = [
    ("Old", &["sse"]),
    ("Mid", &["avx", "sse"]),
    ("New", &["avx", "avx512f", "sse"]),
    ("Other", &["sse", "sse4a"]),
];

/// Returns the CPU of a host that has a model, and these features beyond it.
fn cpu(vendor: &str, model: &str, beyond: &[&str]) -> String {
    let of = |name: &str| MODELS.iter().find(|(model, _)| *model == name).unwrap().1;
    let has: Vec<&str> = [of(model), beyond].concat();
    let mut text = format!(
        "[cpu]\nmodel = {model:?}\nvendor = {vendor:?}\nfeatures = {has:?}\nrequired = {beyond:?}\n\
         [cpu.models]\n"
    );
    for (name, features) in MODELS {
        let lacking = features.iter().filter(|feature| !has.contains(*feature));
        let lacking: Vec<_> = lacking.collect();
        text.push_str(&format!("{name} = {lacking:?}\n"));
    }
    text
}

fn start() -> Cluster {
    let host = |name: &str, cpu: &str| Host::new(name).with_cpu_model(cpu);
    let cluster = Cluster::builder(PROGRAMS)
        .host(host("new1", &cpu("Intel", "New", &["vmx"])))
        .host(host("new2", &cpu("Intel", "New", &["vmx"])))
        .host(host("mid", &cpu("Intel", "Mid", &["vmx"])))
        .host(host("amd", &cpu("AMD", "Other", &["avx"])))
        .host(Host::new("mute"))
        .transfer_ms(50)
        .start();
    for (aggregate, hosts) in [
        ("intel", &["new1", "new2", "mid"][..]),
        ("mixed", &["mid", "amd"]),
    ] {
        cluster.run(&["aggregate", "create", aggregate]);
        for host in hosts {
            cluster.run(&["aggregate", "add-host", aggregate, host]);
        }
    }
    for (flavor, spec) in [
        ("default", None),
        ("model", Some("host-model")),
        ("passed", Some("host-passthrough")),
        ("old", Some("Old")),
        ("sky", Some("New")),
        ("strange", Some("Unheard-Of")),
        ("common", Some("baseline:intel")),
        ("all", Some("baseline")),
        ("none", Some("baseline:mixed")),
        ("lost", Some("baseline:nowhere")),
    ] {
        let words = [
            "flavor",
            "create",
            flavor,
            "--vcpus",
            "1",
            "--memory-mib",
            "64",
        ];
        let spec = spec.map(|spec| format!("hw:cpu_model={spec}"));
        let spec = spec.as_ref().map(|spec| ["--spec", spec]);
        cluster.run(&[&words[..], spec.as_ref().map_or(&[], |s| &s[..])].concat());
    }
    cluster
}

/// Returns the CPU that the VM's claim on a host records.
#[track_caller]
fn claimed(cluster: &Cluster, vm: &str, host: &str) -> Value {
    let shown = cluster.json(&["vm", "show", vm]);
    assert_eq!(shown["vm"]["host"], host, "{shown:#}");
    let claims = shown["claims"].as_array().expect("claims");
    assert_eq!(claims.len(), 1, "{shown:#}");
    claims[0]["cpu"].clone()
}

/// Runs a command that succeeds.
#[track_caller]
fn done(answer: Answer) {
    let _ = answer.with_status(0);
}

/// Runs a command that is refused with these words.
#[track_caller]
fn refused(answer: Answer, words: &[&str]) {
    let _ = answer.with_status(1).saying(words);
}

/// Returns a CPU as JSON has it, with these features beyond its model.
fn described(mode: &str, model: &str, vendor: impl Into<Value>, required: &[&str]) -> Value {
    let vendor: Value = vendor.into();
    json!({
        "mode": mode,
        "model": model,
        "vendor": vendor,
        "required": required,
        "disabled": [],
    })
}

fn intel_new() -> Value {
    described("Custom", "New", "Intel", &["vmx"])
}

/// Returns the CPU that all hosts of the aggregate `intel` can give.
fn common() -> Value {
    described("Custom", "Mid", "Intel", &["vmx"])
}

#[test]
fn each_choice_is_placed_where_it_can_be_given() {
    let cluster = start();
    let create = |vm: &str, flavor: &str, host: &str| {
        cluster.berth(&[&Cluster::create(vm, flavor)[..], &["--host", host]].concat())
    };
    for (flavor, host, expected) in [
        ("default", "new1", intel_new()),
        ("default", "mute", Value::Null),
        ("model", "mid", common()),
        (
            "passed",
            "new2",
            described("HostPassthrough", "New", "Intel", &["vmx"]),
        ),
        ("old", "amd", described("Custom", "Old", Value::Null, &[])),
        ("sky", "new1", described("Custom", "New", Value::Null, &[])),
        ("common", "new1", common()),
    ] {
        let vm = format!("{flavor}-{host}");
        done(create(&vm, flavor, host));
        assert_eq!(claimed(&cluster, &vm, host), expected, "{flavor} on {host}");
    }
    for (flavor, host, words) in [
        ("model", "mute", &["CPU_NOT_REPORTED"][..]),
        ("passed", "mute", &["CPU_NOT_REPORTED"]),
        ("old", "mute", &["CPU_NOT_REPORTED"]),
        (
            "sky",
            "mid",
            &["CPU_FEATURES", "it lacks avx512f, needed by CPU model New"],
        ),
        ("sky", "amd", &["it lacks avx512f"]),
        (
            "strange",
            "new1",
            &["CPU_MODEL_UNKNOWN", "does not know CPU model Unheard-Of"],
        ),
        (
            "common",
            "amd",
            &["CPU_VENDOR", "of vendor AMD, the guest's of Intel"],
        ),
        (
            "all",
            "new1",
            &[
                "CPU_BASELINE_IMPOSSIBLE",
                "that of host amd is of vendor AMD",
                "baseline:AGGREGATE",
            ],
        ),
        (
            "none",
            "mid",
            &["CPU_BASELINE_IMPOSSIBLE", "aggregate mixed"],
        ),
        ("lost", "mid", &["AGGREGATE_NOT_FOUND", "nowhere"]),
    ] {
        refused(create("no", flavor, host), words);
    }
    // Without a host named, the one that can is chosen, and a refusal counts the causes.
    cluster.run(&Cluster::create("free", "sky"));
    let host = cluster.json(&["vm", "show", "free"])["vm"]["host"].clone();
    assert!(["new1", "new2"].map(Value::from).contains(&host), "{host}");
    let answer = cluster.berth(&Cluster::create("no", "strange"));
    refused(
        answer,
        &[
            "4 whose hypervisors do not know the CPU model",
            "CPU_NOT_REPORTED",
        ],
    );
}

#[test]
fn a_running_guest_keeps_its_cpu_and_a_started_one_gets_the_hosts() {
    let cluster = start();
    let run = |words: &[&str]| cluster.run(words);
    let migrate = |vm: &str, host: &str| cluster.berth(&["vm", "migrate", vm, "--host", host]);
    run(&[&Cluster::create("g", "default")[..], &["--host", "mid"]].concat());
    assert_eq!(claimed(&cluster, "g", "mid"), common());

    // To a newer host and back: it is what it was started as.
    done(migrate("g", "new1"));
    assert_eq!(claimed(&cluster, "g", "new1"), common());
    done(migrate("g", "mid"));
    assert_eq!(claimed(&cluster, "g", "mid"), common());
    refused(
        migrate("g", "amd"),
        &[
            "CPU_VENDOR",
            "host amd: its CPU is of vendor AMD, the guest's of Intel",
        ],
    );
    refused(migrate("g", "mute"), &["CPU_NOT_REPORTED"]);

    // Restarted elsewhere it is what that host gives, and cannot go back while it runs.
    run(&["vm", "migrate", "g", "--cold", "--host", "new1"]);
    assert_eq!(claimed(&cluster, "g", "new1"), intel_new());
    refused(
        migrate("g", "mid"),
        &[
            "CPU_FEATURES",
            "host mid: it lacks avx512f, needed by the running guest",
            "name no host: another one can take the guest",
        ],
    );
    done(migrate("g", "new2"));
    assert_eq!(claimed(&cluster, "g", "new2"), intel_new());

    // Where no host gives it what it runs with, a restart helps.
    run(&[&Cluster::create("x", "default")[..], &["--host", "amd"]].concat());
    refused(
        cluster.berth(&["vm", "migrate", "x"]),
        &["restart it with another host's CPU: `berth vm migrate x --cold`"],
    );
    refused(
        migrate("x", "mid"),
        &["restart it with that host's CPU: `berth vm migrate x --cold --host mid`"],
    );
    run(&["vm", "migrate", "x", "--cold", "--host", "mid"]);
    assert_eq!(claimed(&cluster, "x", "mid"), common());

    // A reboot keeps it, and a start takes what the host gives now.
    run(&["vm", "reboot", "g"]);
    assert_eq!(claimed(&cluster, "g", "new2"), intel_new());
    run(&["vm", "stop", "g"]);
    run(&["vm", "migrate", "g", "--cold", "--host", "mid"]);
    run(&["vm", "start", "g"]);
    assert_eq!(claimed(&cluster, "g", "mid"), common());

    // One with a baseline goes to and fro between all hosts of its group.
    run(&[&Cluster::create("b", "common")[..], &["--host", "new1"]].concat());
    for host in ["mid", "new2", "mid", "new1"] {
        done(migrate("b", host));
        assert_eq!(claimed(&cluster, "b", host), common());
    }
    // Once it is stopped, a group that changed counts.
    run(&["vm", "stop", "b"]);
    run(&["aggregate", "remove-host", "intel", "mid"]);
    run(&["vm", "start", "b"]);
    assert_eq!(claimed(&cluster, "b", "new1"), intel_new());
    run(&["vm", "stop", "b"]);
    run(&["aggregate", "add-host", "intel", "amd"]);
    let start = cluster.berth(&["vm", "start", "b"]);
    refused(start, &["CPU_BASELINE_IMPOSSIBLE"]);
    // What it has is recorded with its guest, and a passed-through one moves to its like alone.
    run(&[&Cluster::create("p", "passed")[..], &["--host", "new1"]].concat());
    done(migrate("p", "new2"));
    refused(migrate("p", "mid"), &["CPU_DIFFERS"]);
}

#[test]
fn a_group_shows_what_it_has_in_common() {
    let cluster = start();
    let shown = cluster.json(&["cpu", "baseline", "--group", "intel"]);
    assert_eq!(shown["cpu"], common(), "{shown:#}");
    assert_eq!(shown["features"], json!(["avx", "sse", "vmx"]));
    let lost: Vec<_> = shown["hosts"].as_array().unwrap().iter().collect();
    let lost = lost
        .iter()
        .map(|host| (host["host"].as_str().unwrap(), &host["lost"]));
    let (none, some) = (json!([]), json!(["avx512f"]));
    assert_eq!(
        lost.collect::<Vec<_>>(),
        [("mid", &none), ("new1", &some), ("new2", &some)]
    );
    let shown = cluster.json(&["cpu", "baseline"]);
    assert_eq!(shown["cpu"], Value::Null);
    assert_eq!(
        shown["fault"]["reason"], "CPU_BASELINE_IMPOSSIBLE",
        "{shown:#}"
    );
    assert_eq!(shown["unreported_count"], 1);
    assert_eq!(shown["hosts"].as_array().unwrap().len(), 4);
    let models = cluster.json(&["cpu", "models", "--group", "intel"]);
    assert_eq!(
        models,
        json!([
            {"cpu_model": "Mid", "hosts": 3, "missing": []},
            {"cpu_model": "New", "hosts": 2, "missing": ["avx512f"]},
            {"cpu_model": "Old", "hosts": 3, "missing": []},
            {"cpu_model": "Other", "hosts": 0, "missing": ["sse4a"]},
        ])
    );
    let nowhere = cluster.berth(&["cpu", "models", "--group", "nowhere"]);
    refused(nowhere, &["AGGREGATE_NOT_FOUND", "berth aggregate list"]);
    for (words, expected) in [
        (
            &["cpu", "baseline", "--group", "intel"][..],
            &["the baseline is Mid (Intel) +vmx", "avx512f"][..],
        ),
        (
            &["cpu", "baseline"],
            &["CPUs of different vendors", "1 host does not report a CPU"],
        ),
        (&["host", "show", "new1"], &["New (Intel) +vmx"]),
    ] {
        let mut command = cluster.programs.command("berth");
        command
            .args(["--scheduler", &cluster.addresses()])
            .args(words);
        let answer = Answer::of(command).with_status(0);
        let shown = format!("{}{}", answer.stdout, answer.stderr);
        for word in expected {
            assert!(shown.contains(word), "{word:?} is not in {shown}");
        }
    }
}

/// Goal: an agent that does not know CPU models gets no guest with one.
#[test]
fn an_older_agent_gets_no_guest_with_a_cpu() {
    let of_new = cpu("Intel", "New", &[]);
    let cluster = Cluster::builder(PROGRAMS)
        .host(Host::new("h1").with_cpu_model(&of_new))
        .host(Host::new("h2").with_cpu_model(&of_new).at_version(3))
        .start();
    for (flavor, specs) in [
        ("default", &[][..]),
        ("sky", &["--spec", "hw:cpu_model=New"]),
    ] {
        let words = [
            "flavor",
            "create",
            flavor,
            "--vcpus",
            "1",
            "--memory-mib",
            "64",
        ];
        cluster.run(&[&words[..], specs].concat());
    }
    let create = |vm: &str, flavor: &str, host: &str| {
        cluster.berth(&[&Cluster::create(vm, flavor)[..], &["--host", host]].concat())
    };
    done(create("a", "sky", "h1"));
    done(create("b", "default", "h1"));
    done(create("c", "default", "h2"));
    assert_eq!(claimed(&cluster, "c", "h2"), Value::Null);
    refused(create("d", "sky", "h2"), &["SERVICE_VERSION_TOO_OLD"]);
    for vm in ["a", "b"] {
        let move_back = cluster.berth(&["vm", "migrate", vm, "--host", "h2"]);
        refused(move_back, &["SERVICE_VERSION_TOO_OLD"]);
    }
    // What was started there moves as before: what it has is not recorded.
    cluster.run(&["vm", "migrate", "c", "--host", "h1"]);
    assert_eq!(claimed(&cluster, "c", "h1"), Value::Null);
}
