//! The page of the cluster over HTTPS.
//!
//! Goal: a view is there for every role that may call the methods that it reads, and for no other; without a
//! certificate of ours there is no connection. Method: `curl`, with every role and every view.

use berth_page::Route;
use berth_process::access::table;
use berth_tests::processes::{Cluster, Host, eventually};
use berth_tls::Role;

use super::curl;
use crate::PROGRAMS;

/// A path of each kind, without the streams.
const PATHS: [&str; 10] = [
    "/",
    "/failover",
    "/hosts",
    "/hosts/h1",
    "/vms",
    "/vms/a",
    "/vms/a/history",
    "/why-not?flavor=one",
    "/page.css",
    "/page.js",
];

pub(crate) fn the_page_requires_certificates() {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .host(Host::new("h1"))
        .certified()
        .paged()
        .start();
    cluster.pinned_flavor("one", 1);
    let _ = cluster.boot("a", "one", "h1");
    let page = cluster.schedulers[0].page();
    let certificates = cluster.certificates();
    let ca = certificates.ca();
    eventually("a listener", || {
        std::net::TcpStream::connect(page).map(drop)
    });
    for role in Role::ALL {
        let files = certificates.files(role, "ann");
        for path in PATHS {
            let url = format!("https://{page}{path}");
            let answer = curl::answer(curl::of(&url, Some(&ca), Some(&files)));
            let (status, body) = answer.expect("it answers every certificate");
            let (route, query) = path.split_once('?').unwrap_or((path, ""));
            let route = Route::parse(route, Some(query)).expect("a view");
            let may = route
                .methods()
                .iter()
                .all(|method| table::may(role, method));
            assert_eq!(status, if may { 200 } else { 403 }, "{role} {path}: {body}");
            let refusal = format!("{role}:ann may not call");
            assert!(may || body.contains(&refusal), "{body}");
            // Who may not place a VM on trial sees no link to it.
            let trial = table::may(role, "berth.scheduler.v1.SchedulerService/ScheduleVm");
            let is_view = may && !path.starts_with("/page.");
            assert_eq!(
                body.contains("href=\"/why-not\""),
                is_view && trial,
                "{role} {path}"
            );
        }
    }
    let reads = [
        "/",
        "/failover",
        "/hosts",
        "/hosts/h1",
        "/vms",
        "/vms/a",
        "/vms/a/history",
    ];
    let reader = certificates.files(Role::Reader, "bob");
    for path in reads {
        let url = format!("https://{page}{path}");
        let answer = curl::answer(curl::of(&url, Some(&ca), Some(&reader)));
        assert_eq!(answer.expect("an answer").0, 200, "a reader reads {path}");
    }
    let url = format!("https://{page}/");
    assert!(curl::answer(curl::of(&url, Some(&ca), None)).is_err());
    let plain = format!("http://{page}/");
    assert!(curl::answer(curl::of(&plain, None, None)).is_err());
}
