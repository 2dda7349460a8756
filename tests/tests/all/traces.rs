//! Traces of operations: complete trees, whichever conductors carried an operation out; clients' traces
//! linked; and nothing that a collector or a client does with them disturbs the work.
//!
//! Method: real processes that send their spans to a collector of the test.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use berth_proto::client::channel;
use berth_proto::conductor::v1::GetServiceInfoRequest;
use berth_proto::conductor::v1::conductor_service_client::ConductorServiceClient;
use berth_tests::processes::scrape::Scrape;
use berth_tests::processes::{
    Answer, Cluster, Collector, Host, Manner, Part, SeenSpan, Tree, eventually, verdict,
};
use tonic::Request;

use crate::PROGRAMS;

const SPAWN: &str = "berth.agent.v1.ComputeAgentService/SpawnVm";
const LIVE_MIGRATION: &str = "berth.agent.v1.ComputeAgentService/LiveMigration";
const ADVANCE: &str = "berth.operation.v1.OperationService/Advance";
const GET_OPERATION: &str = "berth.operation.v1.OperationService/GetOperation";
const CREATE: &str = "berth.conductor.v1.ConductorService/CreateVm";

/// A span of a client, as the header states it.
const CLIENT_TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT_SPAN: &str = "00f067aa0ba902b7";

/// How long no further span has come of a trace that is quiet.
const QUIET: Duration = Duration::from_secs(1);

fn tables(endpoint: &str) -> String {
    format!("[traces]\nendpoint = {endpoint:?}\nqueue_max = 64\n")
}

/// Returns the trace of an operation.
fn trace_of(operation: &str) -> String {
    operation.replace('-', "")
}

/// Waits until the trace of an operation is one tree in which all of these are.
#[track_caller]
fn complete(collector: &Collector, operation: &str, names: &[&str]) -> Tree {
    let trace = trace_of(operation);
    eventually("a complete tree", || {
        let tree = collector.trace(&trace);
        tree.root()?;
        let missing = names.iter().find(|name| tree.named(name).next().is_none());
        match missing {
            Some(name) => Err(format!("without {name}:\n{}", tree.text())),
            None => Ok(tree),
        }
    })
}

/// Returns the names from a span to its root, with their programs.
fn ancestry<'a>(tree: &'a Tree, span: &'a SeenSpan) -> Vec<(&'a str, &'a str)> {
    let up = std::iter::successors(Some(span), |span| tree.parent(span));
    up.map(|span| (span.name.as_str(), span.program.as_str()))
        .collect()
}

fn attribute<'a>(span: &'a SeenSpan, name: &str) -> &'a str {
    span.attributes.get(name).map_or("", String::as_str)
}

/// Goal: one boot is one tree: from the operation over its steps, the conductor's calls and their
/// requests at scheduler and agent down to the call of the hypervisor.
#[test]
fn a_boot_is_one_tree() {
    let collector = Collector::start(Manner::Accepts);
    let cluster = Cluster::builder(PROGRAMS)
        .host(Host::new("h1"))
        .tables(&tables(&collector.url()))
        .start();
    cluster.pinned_flavor("pinned", 2);
    let booting = cluster.begin(&Cluster::create("a", "pinned"));
    cluster.succeeds(&booting);

    let names = [
        "step claim",
        "step spawn",
        "command boot",
        "command step",
        "driver create",
        ADVANCE,
    ];
    let tree = complete(&collector, &booting, &names);
    let root = tree.root().unwrap();
    println!("{}", tree.text());
    assert_eq!(root.name, "operation boot");
    assert_eq!(root.id, trace_of(&booting)[16..]);
    assert_eq!(attribute(root, "berth.operation.id"), booting);
    assert_eq!(attribute(root, "berth.vm"), "a");
    assert!(!root.failed);
    let programs = ["berth-compute-agent", "berth-conductor", "berth-scheduler"];
    assert_eq!(tree.programs(), BTreeSet::from(programs));

    let [agent, conductor, scheduler] = programs;
    let driver = tree.named("driver create").next().unwrap();
    let expected = [
        ("driver create", agent),
        (SPAWN, agent),
        (SPAWN, conductor),
        ("step spawn", scheduler),
        ("operation boot", scheduler),
    ];
    assert_eq!(ancestry(&tree, driver), expected, "{}", tree.text());
    assert_eq!(driver.instance, "h1");
    let command = tree.named("command step").next().unwrap();
    let expected = [
        ("command step", scheduler),
        (ADVANCE, scheduler),
        (ADVANCE, conductor),
        ("step spawn", scheduler),
        ("operation boot", scheduler),
    ];
    assert_eq!(ancestry(&tree, command), expected, "{}", tree.text());
    assert_eq!(command.events, ["decided", "applied"]);
    let claim = tree.named("command boot").next().unwrap();
    assert_eq!(claim.parent, root.id);

    let known: BTreeSet<&str> = berth_traces::attributes::ALL.iter().copied().collect();
    for span in collector.seen() {
        for name in span.attributes.keys() {
            assert!(known.contains(name.as_str()), "{name} of {}", span.name);
        }
    }
}

/// Goal: the document names every attribute, and no attribute that there is not.
#[test]
fn attributes_are_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/traces.md");
    let document = std::fs::read_to_string(path).unwrap();
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = rows.filter_map(|row| row.split('`').next());
    let is_attribute = |name: &&str| {
        let prefixes = ["service.", "rpc.", "error.", "berth."];
        !name.contains('/') && prefixes.iter().any(|prefix| name.starts_with(prefix))
    };
    let documented: Vec<&str> = names.filter(is_attribute).collect();
    assert_eq!(documented, berth_traces::attributes::ALL);
}

/// Waits until the collector has all spans that are to come for now.
#[track_caller]
fn quiet(collector: &Collector, trace: &str) {
    let (mut count, mut since) = (0, Instant::now());
    eventually("a trace that is quiet", || {
        let now = collector.trace(trace).spans.len();
        if now != count {
            (count, since) = (now, Instant::now());
        }
        let is_quiet = count > 0 && since.elapsed() > QUIET;
        is_quiet.then_some(()).ok_or(format!("{count} spans"))
    });
}

/// Goal: a live migration that two conductors carried out is one tree with one root. Method: the first
/// one is killed while the guest is on its way.
#[test]
fn a_migration_is_one_tree_though_its_conductor_dies() {
    let collector = Collector::start(Manner::Accepts);
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(2)
        .host(Host::new("h1"))
        .host(Host::new("h2"))
        .transfer_ms(8_000)
        .lease_ttl_ms(2_000)
        .tables(&tables(&collector.url()))
        .start();
    cluster.pinned_flavor("pinned", 2);
    let _ = cluster.boot("a", "pinned", "h1");
    let moving = cluster.begin(&["vm", "migrate", "a", "--host", "h2"]);
    cluster.reaches(&moving, "LiveMigration", "Succeeded");
    quiet(&collector, &trace_of(&moving));
    let shown = cluster.json(&["operation", "show", &moving]);
    let holder = shown["lease"]["conductor"].as_str().unwrap_or_default();
    let first = cluster.conductors.iter().position(|c| c.name == holder);
    let first = first.unwrap_or_else(|| panic!("no conductor holds it: {shown:#}"));
    cluster.conductors[first].kill();
    cluster.succeeds(&moving);

    let names = [
        LIVE_MIGRATION,
        "driver migrate",
        "driver prepare",
        "step settle",
    ];
    let tree = complete(&collector, &moving, &names);
    let root = tree.root().unwrap();
    println!("{}", tree.text());
    assert_eq!(root.name, "operation live_migrate");
    let instances: BTreeSet<&str> = tree.spans.iter().map(|s| s.instance.as_str()).collect();
    for instance in ["conductor-1", "conductor-2", "h1", "h2"] {
        assert!(instances.contains(instance), "{instance}:\n{}", tree.text());
    }
    // Each conductor reads it when it begins: what it polls while the guest is on its way is not recorded.
    let reads = tree
        .named(GET_OPERATION)
        .filter(|span| span.program == "berth-conductor");
    assert!(reads.count() <= 4, "{}", tree.text());
    let migrate = tree.named("driver migrate").next().unwrap();
    let [.., (step, _), (last, _)] = ancestry(&tree, migrate)[..] else {
        panic!("{}", tree.text());
    };
    assert_eq!(
        (step, last),
        ("step live migration", "operation live_migrate")
    );
    verdict::holds(&cluster);
}

fn dropped(part: &Part, reason: &str) -> f64 {
    let scrape = Scrape::of(part.watch()).unwrap_or_else(|why| panic!("{}: {why}", part.name));
    let value = scrape.value("berth_traces_dropped_spans_total", &[("reason", reason)]);
    value.unwrap_or(0.0)
}

/// Starts a cluster with this collector, boots and deletes until enough spans are dropped for this
/// reason, and checks that the failure is in the log once.
#[track_caller]
fn goes_on(endpoint: &str, reason: &str) {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .host(Host::new("h1"))
        .tables(&tables(endpoint))
        .watched()
        .start();
    cluster.pinned_flavor("pinned", 2);
    eventually(&format!("dropped spans of {endpoint}"), || {
        let _ = cluster.boot("a", "pinned", "h1");
        cluster.run(&["vm", "delete", "a"]);
        let count = dropped(&cluster.schedulers[0], reason);
        (count > 0.0).then_some(()).ok_or("none")
    });
    eventually("a line about the collector", || {
        let log = cluster.schedulers[0].log();
        let lines = log.matches("the collector of traces fails").count();
        (lines > 0).then_some(()).ok_or(log)
    });
    let log = cluster.schedulers[0].log();
    assert_eq!(
        log.matches("the collector of traces fails").count(),
        1,
        "{log}"
    );
    verdict::holds(&cluster);
}

#[test]
fn a_collector_that_is_not_there_disturbs_nothing() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    goes_on(&format!("http://{address}"), "export_failed");
}

#[test]
fn a_collector_that_refuses_disturbs_nothing() {
    let collector = Collector::start(Manner::Refuses);
    goes_on(&collector.url(), "export_failed");
}

/// Goal: what waits for a collector that never answers is bounded. Method: the queue has 64 places.
#[test]
fn a_collector_that_never_answers_disturbs_nothing() {
    let collector = Collector::start(Manner::Stalls);
    goes_on(&collector.url(), "queue_full");
}

/// Boots a VM with this value of the environment variable, and returns the operation.
#[track_caller]
fn boot_within(cluster: &Cluster, vm: &str, parent: &str) -> String {
    let mut command = cluster.programs.command("berth");
    command
        .env("TRACEPARENT", parent)
        .args(["--output", "json", "--scheduler", &cluster.addresses()])
        .args(Cluster::create(vm, "pinned"))
        .arg("--no-wait");
    let begun = Answer::of(command).json();
    let begun = begun.unwrap_or_else(|why| panic!("{why}"));
    let operation = begun["operation"].as_str().unwrap_or_default().to_owned();
    cluster.succeeds(&operation);
    operation
}

/// Calls a conductor with this header.
fn call_with(conductor: &str, header: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let mut request = Request::new(GetServiceInfoRequest::default());
    let value = tonic::metadata::MetadataValue::try_from(header).expect("a header");
    request.metadata_mut().append("traceparent", value);
    let answered = runtime.block_on(async {
        let channel = channel(&format!("http://{conductor}")).expect("an address");
        ConductorServiceClient::new(channel)
            .get_service_info(request)
            .await
    });
    answered.unwrap_or_else(|status| panic!("{header:?}: {status}"));
}

/// Goal: the trace of a client and that of the operation lead to each other, and headers that are not
/// valid are as none.
#[test]
fn traces_of_clients_are_linked() {
    let collector = Collector::start(Manner::Accepts);
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .host(Host::new("h1"))
        .tables(&tables(&collector.url()))
        .start();
    cluster.pinned_flavor("pinned", 1);
    let valid = format!("00-{CLIENT_TRACE}-{CLIENT_SPAN}-01");
    for (vm, bad) in [
        (
            "zero-trace",
            format!("00-{}-{CLIENT_SPAN}-01", "0".repeat(32)),
        ),
        ("upper-case", valid.to_uppercase()),
    ] {
        let operation = boot_within(&cluster, vm, &bad);
        let _ = complete(&collector, &operation, &["command boot"]);
    }
    let conductor = &cluster.conductors[0].address;
    for bad in [
        format!("00-{CLIENT_TRACE}-{}-01", "0".repeat(16)),
        format!("ff-{CLIENT_TRACE}-{CLIENT_SPAN}-01"),
        format!("00-{CLIENT_TRACE}-{CLIENT_SPAN}-01{}", "x".repeat(4_000)),
        valid.replace('4', "g"),
        "00".to_owned(),
    ] {
        call_with(conductor, bad.as_bytes());
    }
    call_with(conductor, &[0xff; 55]);

    let booting = boot_within(&cluster, "linked", &valid);
    let own = complete(&collector, &booting, &["command boot"]);
    let root = own.root().unwrap();
    let root = (root.trace.clone(), root.id.clone());
    let client = eventually("spans of the client's trace", || {
        let tree = collector.trace(CLIENT_TRACE);
        let names = [CREATE, "command boot"];
        let missing = names.iter().find(|name| tree.named(name).next().is_none());
        missing.map_or(Ok(tree), |name| Err(format!("no {name}")))
    });
    let request = client.named(CREATE).next().unwrap();
    assert_eq!(request.parent, CLIENT_SPAN);
    assert_eq!(request.program, "berth-conductor");
    assert_eq!(request.links, [root]);
    let there = client.named("command boot").next().unwrap();
    let here = own.named("command boot").next().unwrap();
    assert_eq!(there.links, [(here.trace.clone(), here.id.clone())]);
    assert_eq!(here.links, [(there.trace.clone(), there.id.clone())]);

    let operations = cluster.json(&["operation", "list"]);
    let operations = operations.as_array().expect("a list").iter();
    let operations = operations.filter_map(|o| o["id"].as_str()).map(trace_of);
    let mut known: BTreeSet<String> = operations.collect();
    known.insert(CLIENT_TRACE.to_owned());
    let traces: BTreeSet<String> = collector.seen().into_iter().map(|s| s.trace).collect();
    assert_eq!(traces, known, "no trace of an invalid header");
}
