//! Certificates that are revoked while their connections are open.
//!
//! Goal: seconds after a certificate was revoked no server of the cluster accepts it, on open
//! connections or new ones, whatever its role; a server that is restarted while no scheduler responds
//! does not either; and another certificate of the same name is accepted. Method: one connection of
//! each role to each of five servers, before, during and after the revocation.

use std::path::Path;
use std::time::{Duration, Instant};

use berth_tests::processes::{Cluster, Host};
use berth_tls::{Expected, Files, Role, Tls};
use tonic::transport::Channel;

use super::{channel, runtime, try_unreadably};
use crate::PROGRAMS;

/// How long it may take until each server refuses the certificate. It takes five seconds at most until
/// a program other than a scheduler looks at the list; the rest is for busy machines.
const LIMIT: Duration = Duration::from_secs(30);

/// A method that each role may call at each kind of server, or is refused because of its role: never
/// because of its certificate.
const METHOD: &str = "grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

#[test]
fn a_revoked_certificate_is_refused_everywhere() {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(3)
        .host(Host::new("h1"))
        .certified()
        .start();
    let runtime = runtime();
    // Channels are made outside of it.
    let _inside = runtime.enter();
    let victims: Vec<(Role, Files)> = Role::ALL
        .into_iter()
        .map(|role| (role, cluster.certificates().files(role, "victim")))
        .collect();
    let own = cluster.certificates().files(Role::Operator, "ann");

    // One's own is not revoked by mistake.
    let refused = cluster.berth(&["cluster", "revoke-certificate", text(&own.cert)]);
    let _ = refused
        .refused(1)
        .saying(&["OWN_CERTIFICATE", "another operator"]);

    for (role, files) in &victims {
        let tls = || Tls::open(files.clone()).expect("its certificate");
        let mut open = Vec::new();
        for (name, address) in servers(&cluster) {
            let mut before = channel(tls(), &address, Expected::AnyServer);
            let answered = runtime.block_on(is_accepted(&mut before));
            assert!(answered, "{role} at {name} before it is revoked");
            open.push((name, address, before));
        }
        cluster.run(&[
            "cluster",
            "revoke-certificate",
            text(&files.cert),
            "--reason",
            "stolen",
        ]);
        let since = Instant::now();
        for (name, address, mut before) in open {
            let refuses = |channel: &mut Channel| !runtime.block_on(is_accepted(channel));
            let mut both_refused = || {
                let mut new = channel(tls(), &address, Expected::AnyServer);
                refuses(&mut before) && refuses(&mut new)
            };
            while !both_refused() {
                assert!(
                    since.elapsed() < LIMIT,
                    "{role} is still accepted at {name}"
                );
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        println!(
            "{role}: refused at five servers after {:.1} s",
            since.elapsed().as_secs_f64()
        );
    }

    let listed = cluster.json(&["cluster", "revoked-certificates"]);
    let listed = listed.as_array().expect("a list");
    assert_eq!(listed.len(), Role::ALL.len());
    assert!(
        listed.iter().all(|row| row["reason"] == "stolen"),
        "{listed:#?}"
    );
    let audit = cluster.berth(&["audit", "list"]).with_status(0);
    assert!(
        audit.stdout.contains("RevokeCertificate"),
        "{}",
        audit.stdout
    );

    // Another certificate of the same name is another certificate.
    let renewed = cluster.certificates().directory().join("renewed");
    std::fs::create_dir(&renewed).expect("a directory");
    let (_, files) = &victims[0];
    let (cert, key) = (renewed.join("cert.pem"), renewed.join("key.pem"));
    std::fs::copy(&files.cert, &cert).expect("a copy");
    std::fs::copy(&files.key, &key).expect("a copy");
    let stolen = Files {
        ca: files.ca.clone(),
        cert,
        key,
    };
    cluster.certificates().renew_all();
    let is_accepted_at = |cluster: &Cluster, files: &Files, name: &str| {
        let servers = servers(cluster);
        let (_, address) = servers.iter().find(|(at, _)| at == name).expect("a server");
        let tls = Tls::open(files.clone()).expect("its certificate");
        runtime.block_on(is_accepted(&mut channel(tls, address, Expected::AnyServer)))
    };
    assert!(is_accepted_at(&cluster, files, "h1"));

    // What is stored is enough: no scheduler responds, and the agent is another process.
    cluster
        .schedulers
        .iter_mut()
        .for_each(|member| member.kill());
    let programs = cluster.programs.clone();
    cluster.agents[0].kill();
    cluster.agents[0].start(&programs);
    wait_until_accepted(|| is_accepted_at(&cluster, files, "h1"));
    assert!(!is_accepted_at(&cluster, &stolen, "h1"));
    cluster
        .schedulers
        .iter_mut()
        .for_each(|member| member.start(&programs));
    cluster.wait();

    // And as before, once it is reinstated.
    cluster.run(&["cluster", "reinstate-certificate", text(&stolen.cert)]);
    for (name, _) in servers(&cluster) {
        wait_until_accepted(|| is_accepted_at(&cluster, &stolen, &name));
    }
    let again = cluster.berth(&["cluster", "reinstate-certificate", text(&stolen.cert)]);
    let _ = again.refused(1).saying(&["REVOKED_CERTIFICATE_NOT_FOUND"]);
}

fn servers(cluster: &Cluster) -> Vec<(String, String)> {
    let parts = cluster.schedulers.iter().chain(&cluster.conductors);
    let parts = parts.chain(&cluster.agents);
    parts
        .map(|part| (part.name.clone(), part.address.clone()))
        .collect()
}

/// Returns whether a call comes to the table of roles or beyond it.
async fn is_accepted(channel: &mut Channel) -> bool {
    let call = tokio::time::timeout(LIMIT, try_unreadably(channel, METHOD)).await;
    matches!(call.expect("an answer"), Ok((code, _)) if code != "16")
}

fn wait_until_accepted(mut is_accepted: impl FnMut() -> bool) {
    let until = Instant::now() + LIMIT;
    while !is_accepted() {
        assert!(Instant::now() < until, "it is not accepted");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("plain characters")
}
