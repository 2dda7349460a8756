//! Some views as files, so that a change of what is shown is seen in a review.
//!
//! Method: the part of a view that follows changes, a tag on each line, is compared with
//! `tests/golden/NAME.html`. With `BLESS=1` in the environment the files are written instead.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use berth_page::host::HostView;
use berth_page::hosts::{Grouping, HostRow, HostState, Share};
use berth_page::route::{HostsQuery, WhyNotQuery};
use berth_page::why_not::Outcome;
use berth_page::{Frame, Source};
use berth_proto::host::v1::{
    CellUsage, CpuHolder, GetHostResponse, Host, HostReport, HostUsage, host,
};
use berth_proto::types::v1::{
    Assignment, CellAssignment, Claim, HostCell, HostRefusal, HostTopology, PagePool, PciDevice,
    PciGrant, PciKind, Refusal, Shortfall, claim,
};

const FRAME: Frame = Frame {
    cluster_id: String::new(),
    member: 1,
    revision: 7,
    source: Source::Leader,
    may_validate: true,
    may_change: false,
    logged_in: None,
    topic: None,
};

#[track_caller]
fn check(name: &str, html: &str) {
    let (_, live) = html
        .split_once("<div id=\"live\">")
        .expect("a part that follows");
    let (live, _) = live.split_once("</main>").expect("its end");
    let lines = live
        .strip_suffix("</div>")
        .unwrap_or(live)
        .replace("><", ">\n<");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.html"));
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, format!("{lines}\n")).expect("it is written");
    }
    let expected = fs::read_to_string(&path).expect("a file; BLESS=1 writes it");
    assert_eq!(format!("{lines}\n"), expected, "{name}");
}

fn holder(cpu: u32, vcpu: Option<u32>) -> CpuHolder {
    CpuHolder {
        cpu,
        claim: "claims/1".into(),
        vm: "vms/web".into(),
        vcpu,
    }
}

fn topology() -> HostTopology {
    HostTopology {
        cells: vec![HostCell {
            id: 0,
            socket: Some(0),
            shared_cpus: "0".into(),
            dedicated_cpus: "1-3,5".into(),
            cores: vec!["0-1".into(), "2-3".into()],
            memory_mib: 8192,
            pages: vec![PagePool {
                size_kib: 2048,
                total: 512,
                reserved: 12,
            }],
        }],
        pci_devices: vec![
            PciDevice {
                address: "0000:81:00.0".into(),
                vendor_id: "8086".into(),
                product_id: "1572".into(),
                cell: Some(0),
                kind: PciKind::Physical.into(),
                ..PciDevice::default()
            },
            PciDevice {
                address: "0000:81:02.0".into(),
                vendor_id: "8086".into(),
                product_id: "154c".into(),
                cell: Some(0),
                kind: PciKind::Virtual.into(),
                parent: "0000:81:00.0".into(),
                tags: BTreeMap::new(),
            },
        ],
        ..HostTopology::default()
    }
}

/// Goal: each dedicated CPU is there once, with its owner, siblings together, also one of no core.
#[test]
fn a_host() {
    let claim = Claim {
        name: "claims/1".into(),
        vm: "vms/web".into(),
        host: "hosts/h1".into(),
        state: claim::State::Active.into(),
        resources: [("MEMORY_MB".to_owned(), 1024), ("PCPU".to_owned(), 1)].into(),
        assignment: Some(Assignment {
            cells: vec![CellAssignment {
                host_cell: 0,
                pins: [(0, 2)].into(),
                memory_mib: 1024,
                page_size_kib: Some(2048),
                idle_cpus: "3".into(),
                ..CellAssignment::default()
            }],
            emulator_cpus: "1".into(),
            pci: vec![PciGrant {
                addresses: vec!["0000:81:02.0".into()],
            }],
            pmem: Vec::new(),
        }),
        ..Claim::default()
    };
    let usage = HostUsage {
        cells: vec![CellUsage {
            host_cell: 0,
            memory_mib: 1024,
            pages: [(2048, 250)].into(),
            ..CellUsage::default()
        }],
        cpus: vec![holder(2, Some(0)), holder(3, None), holder(1, None)],
        ..HostUsage::default()
    };
    let view = HostView {
        host: GetHostResponse {
            host: Some(Host {
                name: "hosts/h1".into(),
                liveness: host::Liveness::Up.into(),
                report: Some(HostReport {
                    topology: Some(topology()),
                    driver: "sim".into(),
                    ..HostReport::default()
                }),
                ..Host::default()
            }),
            claims: vec![claim],
            usage: Some(usage),
            ..GetHostResponse::default()
        },
        volumes: Vec::new(),
    };
    check("host", &berth_page::host::render(&FRAME, &view));
}

#[test]
fn hosts_by_zone() {
    let row = |name: &str, state, zone: &str, used| HostRow {
        name: name.to_owned(),
        state,
        zone: zone.to_owned(),
        aggregates: vec!["rack1".to_owned()],
        pcpu: Share { used, capacity: 8 },
        vcpu: Share::default(),
        memory: Share {
            used: 1024,
            capacity: 8192,
        },
        claims: 2,
        violates: false,
    };
    let rows = [
        row("h1", HostState::Up, "az1", 7),
        row("h2", HostState::Down, "az1", 0),
        row("h3", HostState::Cordoned, "", 9),
    ];
    let query = HostsQuery {
        filter: String::new(),
        grouping: Grouping::Zone,
        page: 1,
    };
    check("hosts", &berth_page::hosts::render(&FRAME, &query, &rows));
    let none = HostsQuery {
        filter: "h9".to_owned(),
        ..query
    };
    check(
        "hosts-none",
        &berth_page::hosts::render(&FRAME, &none, &rows),
    );
}

#[test]
fn a_refusal() {
    let refusal = Refusal {
        reason: "NO_VALID_HOST".into(),
        message: "no host fits".into(),
        hint: Some("uncordon host h1".into()),
        causes: [("CORDONED".to_owned(), 1), ("DEDICATED_CPUS".to_owned(), 2)].into(),
        hosts: vec![HostRefusal {
            host: "hosts/h2".into(),
            cause: "DEDICATED_CPUS".into(),
            message: "too few dedicated CPUs".into(),
            guest_cell: Some(0),
            host_cell: Some(1),
            missing: Some(Shortfall {
                resource: "PCPU".into(),
                requested: 4,
                available: 3,
            }),
        }],
        ..Refusal::default()
    };
    let query = WhyNotQuery {
        flavor: "large".into(),
        host: String::new(),
    };
    let outcome = Outcome::Refused(Box::new(refusal));
    check(
        "why-not",
        &berth_page::why_not::render(&FRAME, &query, &[], &outcome),
    );
}

/// Goal: ten thousand hosts stay a document that a browser loads at once: less than a megabyte.
#[test]
fn ten_thousand_hosts() {
    let row = |number: u64| HostRow {
        name: format!("h{number:06}"),
        state: HostState::Up,
        zone: format!("az{}", number % 3),
        aggregates: vec![format!("rack{:03}", number / 100)],
        pcpu: Share {
            used: number % 97,
            capacity: 96,
        },
        vcpu: Share {
            used: number % 60,
            capacity: 64,
        },
        memory: Share {
            used: 1024 * (number % 200),
            capacity: 1024 * 256,
        },
        claims: 34,
        violates: false,
    };
    let rows: Vec<HostRow> = (0..10_000).map(row).collect();
    for grouping in [Grouping::State, Grouping::Zone, Grouping::Aggregate] {
        let query = HostsQuery {
            filter: String::new(),
            grouping,
            page: 1,
        };
        let html = berth_page::hosts::render(&FRAME, &query, &rows);
        assert!(html.len() < 1_000_000, "{grouping:?}: {} bytes", html.len());
        assert_eq!(html.matches("<a tabindex=\"-1\"").count(), rows.len());
    }
}
