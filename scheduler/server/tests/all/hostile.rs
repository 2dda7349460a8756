//! What no host and no guest can be is refused by its field, over gRPC, and nothing is recorded.
//!
//! Random reports and assignments are in `proto/tests/all/hostile.rs`; here the way through the server.

use berth_proto::host::v1::{HostReport, ListHostsRequest};
use berth_proto::scheduler::v1::{ListFlavorsRequest, ListVmsRequest};
use berth_proto::status::from_status;
use berth_proto::types::v1::{HostTopology, PagePool, PciDevice};
use uuid::Uuid;

use crate::common::world::{
    flavor, flavor_request, register, register_request, schedule, vm_request,
};
use crate::common::{Cluster, hosts, schedulers};

/// How long a refusal may be: it repeats little of what was sent.
const MESSAGE_LENGTH_MAX: usize = 2000;

/// One change of a good report, and what is told of it.
type Change = (&'static str, fn(&mut HostReport));

fn topology(report: &mut HostReport) -> &mut HostTopology {
    report.topology.as_mut().expect("a topology")
}

fn pool(size_kib: u64, total: u64) -> PagePool {
    PagePool {
        size_kib,
        total,
        reserved: 0,
    }
}

fn device(address: &str, parent: &str) -> PciDevice {
    PciDevice {
        address: address.into(),
        vendor_id: "8086".into(),
        product_id: "1572".into(),
        kind: berth_proto::types::v1::PciKind::Virtual.into(),
        parent: parent.into(),
        ..Default::default()
    }
}

const REPORTS: [Change; 18] = [
    ("report.topology: is required", |r| r.topology = None),
    ("report.topology: the host has no NUMA node", |r| {
        topology(r).cells.clear();
    }),
    ("at most 1024 are allowed", |r| {
        let cell = topology(r).cells[0].clone();
        topology(r).cells = vec![cell; 1025];
    }),
    ("report.topology: NUMA node 0 appears twice", |r| {
        topology(r).cells[1].id = 0;
    }),
    ("CPUs 3 of NUMA node 1 appear in a second NUMA node", |r| {
        let cell = &mut topology(r).cells[1];
        (cell.dedicated_cpus, cell.cores) = ("3-7".into(), vec!["3-7".into()]);
    }),
    (
        "CPUs 1 of NUMA node 0 appear in a second NUMA node or core",
        |r| {
            topology(r).cells[0].cores = vec!["0-1".into(), "1-3".into()];
        },
    ),
    (
        "the cores of NUMA node 0 do not match its CPUs: 9 differ",
        |r| {
            topology(r).cells[0].cores[0] = "0,9".into();
        },
    ),
    (
        "the cores of NUMA node 0 do not match its CPUs: 3 differ",
        |r| {
            topology(r).cells[0].cores.pop();
        },
    ),
    ("NUMA node 0 has a core without CPUs", |r| {
        topology(r).cells[0].cores.push(String::new());
    }),
    (
        "topology.cells[0].shared_cpus: must be a CPU list: range",
        |r| {
            topology(r).cells[0].shared_cpus = "3-0".into();
        },
    ),
    ("beyond the greatest supported number", |r| {
        topology(r).cells[0].shared_cpus = "0-4294967295".into();
    }),
    ("page pool of 0 KiB in NUMA node 0 is wrong", |r| {
        topology(r).cells[0].pages = vec![pool(0, 1)];
    }),
    ("page pool of 2048 KiB in NUMA node 1 is wrong", |r| {
        topology(r).cells[1].pages.push(pool(2048, 1 << 63));
    }),
    ("NUMA node 0 has 18446744073709551615 MiB of memory", |r| {
        topology(r).cells[0].memory_mib = u64::MAX;
    }),
    ("the distance matrix is not 2 x 2", |r| {
        topology(r).distances.pop();
    }),
    ("topology.pci_devices[0].address", |r| {
        topology(r).pci_devices = vec![device("here", "")];
    }),
    ("0000:81:00.1 cannot belong to 0000:81:00.1", |r| {
        topology(r).pci_devices = vec![device("0000:81:00.1", "0000:81:00.1")];
    }),
    ("report.incarnation", |r| r.incarnation = "7".into()),
];

/// Goal: a report that contradicts itself, or is of no machine, is refused by its field, and the
/// host is not there afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn reports_that_cannot_be_are_refused_by_their_field() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    for (words, change) in REPORTS {
        let mut request = register_request("h1", 2, 4);
        change(request.report.as_mut().expect("a report"));
        let answer = hosts(&channel).register_host(request).await;
        let told = from_status(&answer.expect_err(words));
        assert_eq!(told.reason, "INVALID_FIELD", "{words}: {told}");
        assert!(told.message.contains(words), "{words}: {told}");
        assert!(told.message.starts_with("report"), "{words}: {told}");
        assert!(told.message.len() < MESSAGE_LENGTH_MAX, "{told}");
    }
    let all = hosts(&channel)
        .list_hosts(ListHostsRequest::default())
        .await;
    assert!(all.expect("a list").into_inner().hosts.is_empty());
    register(&channel, "h1", 2, 4).await;
}

/// Goal: a flavor that no guest can have is refused by its field, and is not there afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn flavors_that_cannot_be_are_refused_by_their_field() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    let long = "x".repeat(100_000);
    let with = |key: &str, value: &str| flavor_request("bad", 2, &[(key, value)]);
    let mut many = flavor_request("bad", 2, &[]);
    let specs = &mut many.flavor.as_mut().expect("a flavor").extra_specs;
    specs.extend((0..1000).map(|n| (format!("key-{n}"), "1".to_owned())));
    let mut memory = flavor_request("bad", 2, &[]);
    memory.flavor.as_mut().expect("a flavor").memory_mib = u64::MAX;
    for (words, request) in [
        ("vcpus = \"1000000\"", flavor_request("bad", 1_000_000, &[])),
        ("vcpus = \"0\"", flavor_request("bad", 0, &[])),
        ("memory_mib = \"18446744073709551615\"", memory),
        ("extra_specs", many),
        (
            "extra_specs.hw:cpu_policy",
            with("hw:cpu_policy", &long[..1000]),
        ),
        ("extra_specs", with("hw:cpu_policy", &long)),
        ("extra_specs", with(&long, "1")),
        (
            "hw:numa_nodes",
            with("hw:numa_nodes", "18446744073709551616"),
        ),
        ("hw:numa_nodes", with("hw:numa_nodes", "NaN")),
        ("hw:mem_page_size", with("hw:mem_page_size", "-1")),
        (
            "hw:cpu_dedicated_mask",
            with("hw:cpu_dedicated_mask", "0-4294967295"),
        ),
    ] {
        let answer = schedulers(&channel).create_flavor(request).await;
        let told = from_status(&answer.expect_err(words));
        let reasons = ["INVALID_FIELD", "INVALID_FLAVOR"];
        assert!(reasons.contains(&&*told.reason), "{words}: {told}");
        assert!(told.message.contains(words), "{words}: {told}");
        assert!(
            told.message.len() < MESSAGE_LENGTH_MAX,
            "{} bytes: {words}",
            told.message.len()
        );
    }
    let all = schedulers(&channel)
        .list_flavors(ListFlavorsRequest::default())
        .await;
    assert!(all.expect("a list").into_inner().flavors.is_empty());
}

/// Goal: an explanation, of a fit or of a refusal, leaves the state's revision as it was.
#[tokio::test(flavor = "multi_thread")]
async fn an_explanation_is_no_revision() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    register(&channel, "h1", 2, 4).await;
    flavor(&channel, "pair", 2).await;
    flavor(&channel, "wide", 5).await;
    let revision = async || {
        let list = schedulers(&channel)
            .list_vms(ListVmsRequest::default())
            .await;
        list.expect("a list").into_inner().revision
    };
    // The refused one first: nothing has changed then.
    for (name, fits) in [("wide", false), ("pair", true)] {
        let before = revision().await;
        let mut request = vm_request("x", name);
        request.validate_only = true;
        request.request_id = Uuid::new_v4().to_string();
        let explained = schedule(&channel, request.clone()).await;
        assert_eq!(explained.is_ok(), fits, "{explained:?}");
        assert_eq!(revision().await, before, "{name}");
        // It was not remembered as the answer to a request with this id either.
        request.validate_only = false;
        let asked = schedule(&channel, request).await;
        match (explained, asked) {
            (Ok(explained), Ok(asked)) => {
                let told = explained.explanation.expect("an explanation");
                let claim = asked.claim.expect("a claim");
                assert_eq!((told.host, told.assignment), (claim.host, claim.assignment));
                assert!(revision().await > before);
            }
            (Err(explained), Err(asked)) => {
                assert_eq!(from_status(&explained), from_status(&asked));
                assert_eq!(revision().await, before, "{name}");
            }
            (explained, asked) => panic!("{explained:?} {asked:?}"),
        }
    }
}
