//! The page of the cluster in a real browser.
//!
//! Goal: a person follows and does things there with a browser as it comes: what happens is shown without
//! loading the page, a form does what it says, nothing that the policy forbids is needed, and every view can be
//! read on a phone, in both themes, and by a screen reader. Method: Debian's Chromium, and the rules of
//! axe-core.

use berth_testkit::browser::{Browser, Screen};
use berth_tests::lab::axe_core;
use berth_tests::processes::{Cluster, Host};

use crate::PROGRAMS;

/// The views that are looked at.
const VIEWS: [&str; 17] = [
    "/",
    "/failover",
    "/hosts",
    "/hosts?by=zone&q=up",
    "/hosts/h1",
    "/vms",
    "/vms/a",
    "/vms/a/history",
    "/vms/a/console",
    "/why-not",
    "/why-not?flavor=one",
    "/why-not?flavor=huge",
    "/hosts/h1/drain",
    "/vms/a/migrate",
    "/hosts/none",
    "/balance",
    "/audit",
];

fn start() -> Cluster {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .host(Host::new("h1"))
        .host(Host::new("h2"))
        .paged()
        .start();
    cluster.pinned_flavor("one", 1);
    cluster.pinned_flavor("huge", 60);
    cluster
}

/// Goal: a boot and a migration appear in views that are open, and a form in one of them begins the migration.
pub(crate) fn a_migration_is_begun_and_followed() {
    let cluster = start();
    let folder = tempfile::tempdir().expect("a folder");
    let browser = Browser::start(folder.path());
    let page = format!("http://{}", cluster.schedulers[0].page());
    browser.open(&format!("{page}/hosts/h1"));
    browser.shows("No VM is on this host");
    browser.shows("Changes are shown as they happen");
    let _ = browser.run("document.isSameDocument = true");
    let _ = cluster.boot("a", "one", "h1");
    browser.shows("VM a");
    let is_same = browser.run("return document.isSameDocument");
    assert_eq!(is_same, true, "it was loaded again");

    browser.open(&format!("{page}/vms/a"));
    browser.shows("ACTIVE");
    browser.click("a[href='/vms/a/migrate']");
    browser.shows("The VM is moved to another host while it runs");
    browser.click("form.action button");
    let is_there = "return document.querySelector('main a[href=\"/hosts/h2\"]') !== null";
    berth_tests::processes::eventually("the view shows the new host", || {
        match browser.run(is_there) == true && browser.text().contains("ACTIVE") {
            true => Ok(()),
            false => Err(browser.text()),
        }
    });
    browser.open(&format!("{page}/hosts/h2"));
    browser.shows("VM a");
    browser.click("a[href='/hosts/h2/cordon']");
    browser.click("form.action button");
    browser.shows("CORDONED");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// Goal: no view breaks a rule of axe-core, scrolls sideways as a whole, or needs what its policy forbids, at the
/// width of a phone, a tablet and a desk, light and dark.
pub(crate) fn every_view_is_accessible_on_every_screen() {
    let cluster = start();
    let _ = cluster.boot("a", "one", "h1");
    let folder = tempfile::tempdir().expect("a folder");
    let browser = Browser::start(folder.path());
    let page = format!("http://{}", cluster.schedulers[0].page());
    let axe = std::fs::read_to_string(axe_core()).expect("axe-core is installed");
    let check = format!(
        "{axe}; const done = arguments[arguments.length - 1]; \
         axe.run(document, {{resultTypes: ['violations']}}).then( \
         result => done(result.violations.map(v => v.id + ': ' + v.nodes.map(n => n.html).join(' ')))) \
         .catch(error => done(['failed: ' + error]));"
    );
    browser.open("data:text/html,<input><img src='data:,'>");
    let found = browser.run_async(&check);
    assert_ne!(found.as_array().map_or(0, Vec::len), 0, "it finds no fault");
    let _ = browser.complaints();
    let mut faults = Vec::new();
    for (width, height) in [(390, 844), (768, 1024), (1440, 900)] {
        for is_dark in [false, true] {
            browser.set_screen(Screen {
                width,
                height,
                is_dark,
            });
            for path in VIEWS {
                let at = format!("{path} at {width}, dark: {is_dark}");
                browser.open(&format!("{page}{path}"));
                let wide = browser.run("return document.documentElement.scrollWidth");
                if wide.as_u64() > Some(u64::from(width)) {
                    faults.push(format!("{at}: it is {wide} pixels wide"));
                }
                let violations = browser.run_async(&check);
                for violation in violations.as_array().expect("a list") {
                    faults.push(format!("{at}: {violation}"));
                }
                let complaints = browser.complaints();
                // A view that is not there is loaded with this status.
                let complaints = complaints.iter().filter(|line| !line.contains("404"));
                faults.extend(complaints.map(|line| format!("{at}: {line}")));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
