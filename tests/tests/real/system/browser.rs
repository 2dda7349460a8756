//! A migration of a real guest, watched in a browser from its start to its end.

use berth_domain::migration::State;
use berth_testkit::browser::Browser;
use berth_tests::lab::Forward;

use super::cluster::{System, eventually};
use super::transfers;
use super::verdict::{hosts_agree, runs_on};

/// Afterwards as before: `host-a` empty; on `host-b` both `b` and `a`.
pub(crate) fn follows_a_migration(system: &System) {
    let page = system.page(0);
    let forward = Forward::start(system.machine("control"), page).unwrap();
    // Its addresses are those of the lab.
    let map = format!("--host-resolver-rules=MAP * {}", forward.address());
    let profile = tempfile::tempdir().unwrap();
    let browser = Browser::start_with(profile.path(), &[&map]);

    browser.open(&format!("http://{page}/vms/a"));
    browser.shows("Changes are shown as they happen");
    let _ = browser.run("document.isSameDocument = true");
    let slow = transfers::begin(system, &[]);
    browser.shows("Running migration");
    browser.shows("MIGRATING");
    assert!(browser.text().contains("host-a"), "{}", browser.text());
    assert_eq!(slow.end(system).state, State::Completed);
    let host = "return document.querySelector('section[aria-label=State] a[href^=\"/hosts/\"]').textContent";
    eventually("the view shows the new host", || match browser.run(host) {
        host if host == "host-a" => Ok(()),
        host => Err(host.to_string()),
    });
    browser.shows("ACTIVE");
    assert_eq!(browser.run("return document.isSameDocument"), true);
    let _ = runs_on(system, "a", "host-a");

    browser.open(&format!("http://{page}/hosts/host-b"));
    browser.shows("Changes are shown as they happen");
    assert!(!browser.text().contains("VM a"), "{}", browser.text());
    system.json(&["vm", "migrate", "a", "--host", "host-b"]);
    browser.shows("VM a");
    // One header is for encrypted pages, and those of the same machine.
    let mut complaints = browser.complaints();
    complaints.retain(|line| !line.contains("Cross-Origin-Opener-Policy"));
    assert_eq!(complaints, Vec::<String>::new());
    let _ = runs_on(system, "a", "host-b");
    hosts_agree(system);
}
