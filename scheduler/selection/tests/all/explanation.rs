//! What is told where no host can take a guest.

use std::sync::Arc;

use berth_domain::constraint::{Demand, PreparedDemand};
use berth_domain::host::Liveness;
use berth_domain::host_view::HostView;
use berth_domain::numa::Strategy;
use berth_domain::refusal::{Code, HOSTS_MAX, Refusal};
use berth_domain::version::ServiceVersion;
use berth_domain::vm::{Disk, DiskFormat, VmSpec};
use berth_selection::{Request, explain, select};
use berth_testkit::selection::hosts::{Shape, name};
use berth_testkit::selection::{change, claim, request, spec, view};

/// One cell, one dedicated and one shared CPU.
const TINY: Shape = Shape {
    cells: 1,
    cores: 2,
    threads: 1,
    shared_cores: 1,
    memory_gib: 4,
    pages_2m_gib: 1,
    pages_1g: 0,
};

const PINNED: &[(&str, &str)] = &[("hw:cpu_policy", "dedicated")];

/// Returns a host on which its only dedicated CPU is taken.
fn full(text: &str) -> HostView {
    let mut view = view(text, TINY);
    let mut request = request(&spec(1, 512, PINNED), 1);
    request.requested = Some(name(text));
    let choice = select(&request, [&Arc::new(view.clone())]).unwrap();
    view.place(&claim(&choice));
    view
}

fn refusal(request: &Request, hosts: Vec<HostView>) -> Refusal {
    let hosts: Vec<_> = hosts.into_iter().map(Arc::new).collect();
    select(request, &hosts).unwrap_err()
}

fn check(refusal: &Refusal, reason: &str, message: &str, hint: &str) {
    assert_eq!(refusal.reason, reason);
    assert_eq!(refusal.message, message);
    assert_eq!(refusal.hint.as_deref(), Some(hint));
}

#[test]
fn a_named_host_names_its_cell_and_the_shortfall() {
    let mut request = request(&spec(1, 512, PINNED), 1);
    request.requested = Some(name("b"));
    let refusal = refusal(&request, vec![view("a", TINY), full("b")]);
    assert_eq!(refusal.code, Code::ResourceExhausted);
    check(
        &refusal,
        "NO_VALID_HOST",
        "host b: NUMA node 0: 0 free dedicated CPUs, guest NUMA node 0 needs 1",
        "name no host: another one can take the guest",
    );
    let told = &refusal.hosts[0];
    assert_eq!((told.host.as_str(), &*told.cause), ("b", "DEDICATED_CPUS"));
    assert_eq!(told.host_cell.map(|c| c.0), Some(0));
    let missing = told.missing.as_ref().unwrap();
    assert_eq!((missing.requested, missing.available), (1, 0));
}

#[test]
fn a_named_host_that_is_unknown_is_not_found() {
    let mut request = request(&spec(1, 512, &[]), 1);
    request.requested = Some(name("x"));
    let refusal = refusal(&request, vec![view("a", TINY)]);
    assert_eq!(refusal.code, Code::NotFound);
    assert_eq!(refusal.reason, "HOST_NOT_FOUND");
    assert_eq!(refusal.message, "host x is not part of this cluster");
}

#[test]
fn one_host_names_its_cell_too() {
    let request = request(&spec(1, 512, PINNED), 1);
    check(
        &refusal(&request, vec![full("a")]),
        "NO_VALID_HOST",
        "the only host cannot take the guest (1 without enough dedicated CPUs in a NUMA node); nearest is \
         host a: NUMA node 0: 0 free dedicated CPUs, guest NUMA node 0 needs 1",
        "add a host of the shape of host a, in the same aggregates: the guest fits on such a host \
         while it has no others",
    );
}

#[test]
fn many_hosts_are_counted_and_few_are_listed() {
    let request = request(&spec(1, 512, PINNED), 1);
    let mut hosts: Vec<_> = (0..50).map(|n| full(&format!("h{n:02}"))).collect();
    change(&mut hosts[7], |h| h.cordoned = true);
    change(&mut hosts[8], |h| h.liveness = Liveness::Down);
    let refusal = refusal(&request, hosts);
    let causes: Vec<_> = refusal.causes.iter().map(|(c, n)| (&**c, *n)).collect();
    assert_eq!(
        causes,
        [
            ("DEDICATED_CPUS", 48),
            ("HOST_CORDONED", 1),
            ("HOST_DOWN", 1)
        ]
    );
    assert_eq!(refusal.hosts.len(), HOSTS_MAX);
    assert!(refusal.hosts.iter().all(|h| h.cause == "DEDICATED_CPUS"));
}

const ADD: &str = "add a host of the shape of host a, in the same aggregates: the guest fits on such \
                   a host while it has no others";

/// Goal: the hint is the smallest change of hosts after which the guest fits, or none. Method: a
/// table of clusters.
#[test]
fn the_hint_names_the_change_that_helps_most() {
    let closed = |text, down: bool| {
        let mut view = view(text, TINY);
        change(&mut view, |h| {
            h.cordoned = !down;
            h.liveness = if down { Liveness::Down } else { Liveness::Up };
        });
        view
    };
    let mut down_and_cordoned = closed("b", true);
    change(&mut down_and_cordoned, |h| h.cordoned = true);
    let mut full_and_closed = full("c");
    change(&mut full_and_closed, |h| h.cordoned = true);
    let pinned = |vcpus, memory_mib| request(&spec(vcpus, memory_mib, PINNED), 1);
    let paged = |memory_mib, size| {
        let specs = [("hw:mem_page_size", size), ("hw:cpu_policy", "dedicated")];
        request(&spec(1, memory_mib, &specs), 1)
    };
    let quality = [("trait:CUSTOM_FAST", "required")];
    for (request, hosts, expected) in [
        (pinned(1, 512), vec![], ""),
        (
            pinned(1, 512),
            vec![full("a"), closed("b", false)],
            "uncordon host b: the guest fits there",
        ),
        (
            pinned(1, 512),
            vec![full("a"), closed("b", true)],
            "start the compute agent of host b again: the guest fits there",
        ),
        (
            pinned(1, 512),
            vec![down_and_cordoned, full("a")],
            "uncordon host b, then start the compute agent of host b again: the guest fits there",
        ),
        (pinned(1, 512), vec![full_and_closed, full("a")], ADD),
        (
            pinned(2, 512),
            vec![full("a")],
            "add a host of this shape, or a larger one: \
             1 NUMA node of 2 dedicated CPUs, 1 shared CPUs and 512 MiB",
        ),
        (
            paged(1024, "1GB"),
            vec![full("a")],
            "add a host of this shape, or a larger one: \
             1 NUMA node of 1 dedicated CPUs, 1 shared CPUs and 1024 MiB in 1 GiB pages",
        ),
        (
            paged(2048, "2MB"),
            vec![full("a")],
            "add a host of this shape, or a larger one: \
             1 NUMA node of 1 dedicated CPUs, 1 shared CPUs and 2048 MiB in 2 MiB pages",
        ),
        (
            request(&spec(2, 512, &[("hw:numa_nodes", "2")]), 1),
            vec![full("a")],
            "add a host of this shape, or a larger one: \
             2 NUMA nodes of 1 shared CPUs and 256 MiB",
        ),
        (
            request(&spec(1, 512, &quality), 1),
            vec![full("a")],
            "give host a trait CUSTOM_FAST in its agent's configuration: the guest fits there then",
        ),
        (
            request(&spec(2, 512, &[]), 1),
            vec![full("a")],
            "add a host of this shape, or a larger one: \
             1 NUMA node of 2 shared CPUs and 512 MiB",
        ),
    ] {
        let hint = refusal(&request, hosts).hint;
        assert_eq!(hint.as_deref().unwrap_or_default(), expected);
    }
}

/// Returns the request to move a guest away from host `a`.
fn migration(spec: &VmSpec, source: &mut HostView) -> Request {
    let mut boot = request(spec, 1);
    boot.requested = Some(source.host.name.clone());
    let choice = select(&boot, [&Arc::new(source.clone())]).unwrap();
    source.place(&claim(&choice));
    Request {
        demand: Demand::migration(spec, &claim(&choice), &source.host).unwrap(),
        requested: None,
        ..boot
    }
}

/// Goal: what keeps a running guest from moving is told by its own reason. Method: one change to
/// the destination each.
#[test]
fn a_guest_that_moves_is_refused_for_its_own_reasons() {
    let mut with_disk = spec(1, 512, PINNED);
    with_disk.flavor.disk_gib = 1;
    with_disk.disks.push(Disk {
        image: None,
        format: DiskFormat::Raw,
        size_gib: 1,
        seed: false,
    });
    type Change = fn(&mut berth_domain::host::Host);
    let plain = spec(1, 512, &[]);
    let mut seeded = plain.clone();
    seeded.disks.push(Disk::SEED);
    let table: [(&VmSpec, Change, Option<&str>); 12] = [
        (&seeded, |_| {}, None),
        (
            &seeded,
            |h| h.report.service_version = ServiceVersion(ServiceVersion::FIRST_BOOT.0 - 1),
            Some("SERVICE_VERSION_TOO_OLD"),
        ),
        (&with_disk, |_| {}, None),
        (
            &with_disk,
            |h| {
                h.report.storage_id = "t".to_owned();
                h.report.service_version = ServiceVersion(ServiceVersion::DISK_COPY.0 - 1);
            },
            Some("DISKS_NOT_SHARED"),
        ),
        (&with_disk, |h| h.report.storage_id = "t".to_owned(), None),
        (&plain, |h| h.report.storage_id = "t".to_owned(), None),
        (
            &plain,
            |h| h.report.driver = "libvirt".to_owned(),
            Some("DRIVER_DIFFERS"),
        ),
        (
            &plain,
            |h| h.report.service_version = ServiceVersion(1),
            None,
        ),
        (
            &with_disk,
            |h| h.report.service_version = ServiceVersion(1),
            Some("SERVICE_VERSION_TOO_OLD"),
        ),
        (&plain, |h| h.cordoned = true, Some("HOST_CORDONED")),
        (&plain, |h| h.liveness = Liveness::Down, Some("HOST_DOWN")),
        (&plain, |h| h.name = name("a"), Some("SAME_HOST")),
    ];
    for (spec, alter, expected) in table {
        let mut source = view("a", TINY);
        let mut request = migration(spec, &mut source);
        let mut destination = view("b", TINY);
        change(&mut destination, alter);
        request.requested = Some(destination.host.name.clone());
        let result = select(&request, [&Arc::new(destination)]);
        assert_eq!(result.err().map(|r| r.reason).as_deref(), expected);
    }
}

#[test]
fn where_every_agent_is_too_old_that_is_the_reason() {
    let mut source = view("a", TINY);
    let request = migration(&spec(1, 512, PINNED), &mut source);
    let mut destination = view("b", TINY);
    change(&mut destination, |h| {
        h.report.service_version = ServiceVersion(1)
    });
    let refusal = refusal(&request, vec![source, destination]);
    assert_eq!(refusal.code, Code::FailedPrecondition);
    check(
        &refusal,
        "SERVICE_VERSION_TOO_OLD",
        "none of the 2 hosts can take the guest (1 where it runs already, 1 behind an agent that is too old); \
         nearest is host b: its agent is at service version 1, a guest with a NUMA topology or PCI \
         functions needs 2 on both sides to migrate",
        "upgrade the compute agent of host b: the guest fits on host b then",
    );
}

#[test]
fn a_host_that_refused_is_not_chosen_again() {
    let mut request = request(&spec(1, 512, PINNED), 1);
    request.excluded.push(name("b"));
    let told = refusal(&request, vec![full("a"), view("b", TINY)]);
    assert_eq!(told.causes.get("HOST_EXCLUDED"), Some(&1));
    let hosts = [Arc::new(view("a", TINY)), Arc::new(view("b", TINY))];
    assert_eq!(select(&request, &hosts).unwrap().host, name("a"));
}

/// Goal: at 1,000 hosts a refusal still fits on one screen, counts every host once, tells of each
/// host that it lists what that host says when it is asked alone, and ends with a change. Method:
/// hosts that are closed in three ways, full, or without CPUs for one guest.
#[test]
fn a_thousand_hosts_fit_on_one_screen() {
    let request = request(&spec(1, 512, PINNED), 1);
    let host = |n: usize| {
        let text = format!("h{n:03}");
        let mut view = match n % 6 {
            0 => view(
                &text,
                Shape {
                    shared_cores: 2,
                    ..TINY
                },
            ),
            _ => full(&text),
        };
        change(&mut view, |h| match n % 6 {
            1 => h.cordoned = true,
            2 => h.liveness = Liveness::Down,
            3 => h.shape_refused = Some("a page less".to_owned()),
            _ => {}
        });
        view
    };
    let hosts: Vec<_> = (0..1000).map(host).collect();
    let refusal = refusal(&request, hosts.clone());
    assert_eq!(refusal.causes.values().sum::<u32>(), 1000);
    assert!(refusal.causes.len() >= 4, "{:?}", refusal.causes);
    let lines = 1 + refusal.causes.len() + refusal.hosts.len() + 1;
    assert!(lines <= 24, "{lines} lines");
    assert!(refusal.message.len() <= 480, "{}", refusal.message);
    let applicant = PreparedDemand::new(&request.demand);
    for told in &refusal.hosts {
        let view = hosts.iter().find(|v| v.host.name == told.host).unwrap();
        let violation = applicant.place(view, Strategy::Spread).unwrap_err();
        assert_eq!(told.message, violation.to_string());
    }
    assert!(refusal.hint.is_some());
}

/// Goal: where the filters are wrong, that is told rather than a reason that is none.
#[test]
fn a_host_that_was_passed_over_is_told() {
    let request = request(&spec(1, 512, PINNED), 1);
    let hosts = [Arc::new(full("a")), Arc::new(view("b", TINY))];
    let refusal = explain::nowhere(&request, &hosts);
    assert_eq!(refusal.code, Code::Internal);
    assert_eq!(refusal.reason, "HOST_PASSED_OVER");
    assert_eq!(refusal.metadata["host"], "b");
}
