//! Metrics and health over HTTPS.
//!
//! Goal: they are there for operators and readers; who has no certificate of ours, or that of a part of the
//! cluster, is refused. Method: `curl`, with every role.

use berth_tests::processes::{Cluster, eventually};
use berth_tls::Role;

use super::curl;
use crate::PROGRAMS;

pub(crate) fn metrics_require_certificates() {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(0)
        .certified()
        .watched()
        .start();
    let watch = cluster.schedulers[0].watch();
    let certificates = cluster.certificates();
    let ca = certificates.ca();
    eventually("a listener", || {
        std::net::TcpStream::connect(watch).map(drop)
    });
    for role in Role::ALL {
        let files = certificates.files(role, "ann");
        let may = matches!(role, Role::Operator | Role::Reader);
        for path in ["/metrics", "/livez", "/readyz"] {
            let url = format!("https://{watch}{path}");
            let answer = curl::answer(curl::of(&url, Some(&ca), Some(&files)));
            let (status, body) = answer.expect("it answers every certificate");
            assert_eq!(status, if may { 200 } else { 403 }, "{role} {path}: {body}");
            let refusal = format!("{role}:ann may not read metrics and health");
            assert!(may || body.contains(&refusal), "{body}");
            let ends = body.contains("\nberth_certificate_not_after_seconds ");
            assert_eq!(ends, may && path == "/metrics", "{body}");
        }
    }
    let url = format!("https://{watch}/metrics");
    assert!(curl::answer(curl::of(&url, Some(&ca), None)).is_err());
    let plain = format!("http://{watch}/metrics");
    assert!(curl::answer(curl::of(&plain, None, None)).is_err());
}
