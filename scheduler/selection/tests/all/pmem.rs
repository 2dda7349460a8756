//! Persistent memory in the choice of a host.

use berth_domain::claim::{Claim, Owner, State};
use berth_domain::host_view::HostView;
use berth_domain::id::{ClaimId, TimeMs};
use berth_domain::name::{PmemName, VmName};
use berth_domain::numa::Assignment;
use berth_domain::pmem::{Label, PmemDevice, PmemNamespace};
use berth_domain::topology::CellId;
use berth_selection::select;
use berth_testkit::selection::hosts::{Shape, host, name, topology};
use berth_testkit::selection::{claim, request, spec};
use std::sync::Arc;
use uuid::Uuid;

const SHAPE: Shape = Shape {
    cells: 2,
    cores: 2,
    threads: 1,
    shared_cores: 1,
    memory_gib: 4,
    pages_2m_gib: 1,
    pages_1g: 0,
};

fn ns(at: u32) -> PmemNamespace {
    PmemNamespace {
        name: PmemName::new(&format!("ns{at}")).unwrap(),
        class: Label::parse("SMALL").unwrap().class(),
        size_bytes: 1 << 30,
        align_bytes: 2 << 20,
        path: format!("/dev/dax{at}.0"),
        cell: Some(CellId(at)),
        region: String::new(),
        trouble: String::new(),
    }
}

/// Cell 0 is full; the namespace of cell `erased` is being erased.
fn view(text: &str, erased: u32) -> HostView {
    let t = topology(SHAPE).with_pmem(vec![ns(0), ns(1)]).unwrap();
    let mut view = HostView::new(Arc::new(host(text, &Arc::new(t))), []);
    let mut filler = request(&spec(1, 512, &[("hw:cpu_policy", "dedicated")]), 1);
    filler.requested = Some(name(text));
    let choice = select(&filler, [&Arc::new(view.clone())]).unwrap();
    view.place(&claim(&choice));
    let given = Claim {
        id: ClaimId(Uuid::from_u128(9)),
        vm: VmName::new("gone").unwrap(),
        owner: Owner::Vm,
        host: name(text),
        state: State::Active,
        resources: Default::default(),
        assignment: Assignment {
            pmem: vec![PmemDevice::from(&ns(erased))],
            ..Assignment::default()
        },
        erasures: Default::default(),
        cpu: None,
    };
    view.place(&given.released(TimeMs(0)).unwrap());
    view
}

/// Goal: a host is not refused for the reason of another one whose free namespace is elsewhere.
#[test]
fn hosts_that_differ_in_namespaces_are_not_alike() {
    let wish = spec(
        1,
        512,
        &[
            ("hw:cpu_policy", "dedicated"),
            ("hw:pmem", "SMALL"),
            ("hw:pmem_numa_policy", "required"),
        ],
    );
    let mut refused = Vec::new();
    for (a, b) in [(0, 1), (1, 0)] {
        for seed in 0..8 {
            let views = [Arc::new(view("a", a)), Arc::new(view("b", b))];
            if let Err(e) = select(&request(&wish, seed), &views) {
                refused.push((a, b, seed, e.message));
            }
        }
    }
    assert!(refused.is_empty(), "{refused:?}");
}

/// Goal: one that is of no use and taken does not keep the others from being given.
#[test]
fn a_troubled_namespace_that_is_taken_counts_once() {
    let bad = PmemNamespace {
        trouble: "gone".into(),
        ..ns(0)
    };
    let t = topology(SHAPE).with_pmem(vec![bad, ns(1)]).unwrap();
    let mut view = HostView::new(Arc::new(host("a", &Arc::new(t))), []);
    let wish = spec(1, 512, &[("hw:pmem", "SMALL")]);
    select(&request(&wish, 1), [&Arc::new(view.clone())]).unwrap();
    let given = Claim {
        id: ClaimId(Uuid::from_u128(9)),
        vm: VmName::new("gone").unwrap(),
        owner: Owner::Vm,
        host: name("a"),
        state: State::Active,
        resources: Default::default(),
        assignment: Assignment {
            pmem: vec![PmemDevice::from(&ns(0))],
            ..Assignment::default()
        },
        erasures: Default::default(),
        cpu: None,
    };
    view.place(&given.released(TimeMs(0)).unwrap());
    let chosen = select(&request(&wish, 1), [&Arc::new(view)]);
    assert!(
        chosen.is_ok(),
        "ns1 is free: {}",
        chosen.unwrap_err().message
    );
}
