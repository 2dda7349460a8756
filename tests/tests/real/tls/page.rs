//! The page of the cluster over HTTPS.
//!
//! Goal: a view is there for every role that may call the methods that it reads, and an action for every role
//! that may have it done, under the name of its caller; without a certificate of ours there is no connection, or,
//! where logins are offered, nothing but the way to log in. Method: `curl`, with every role and every view.

use berth_page::Route;
use berth_process::access::table;
use berth_tests::processes::{Cluster, Host, eventually};
use berth_tls::{Files, Role};

use super::curl;
use crate::PROGRAMS;

/// A path of each kind, without the streams.
const PATHS: [&str; 13] = [
    "/",
    "/failover",
    "/hosts",
    "/hosts/h1",
    "/vms",
    "/vms/a",
    "/vms/a/history",
    "/vms/a/console",
    "/why-not?flavor=one",
    "/balance",
    "/audit?vm=a",
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

/// What `curl` sends and keeps, as one browser.
struct Browser<'a> {
    page: &'a str,
    ca: std::path::PathBuf,
    files: Option<Files>,
    /// Where its cookies are.
    cookies: std::path::PathBuf,
}

impl Browser<'_> {
    fn command(&self, path: &str) -> std::process::Command {
        let url = format!("https://{}{path}", self.page);
        let mut command = curl::of(&url, Some(&self.ca), self.files.as_ref());
        command.arg("--cookie").arg(&self.cookies);
        command.arg("--cookie-jar").arg(&self.cookies);
        command
    }

    #[track_caller]
    fn get(&self, path: &str) -> (u16, String) {
        curl::answer(self.command(path)).expect("an answer")
    }

    /// Sends a form as a browser does.
    #[track_caller]
    fn post(&self, path: &str, body: &str) -> (u16, String) {
        let mut command = self.command(path);
        let origin = format!("origin: https://{}", self.page);
        command.args(["--header", &origin, "--data", body]);
        curl::answer(command).expect("an answer")
    }

    /// Sends the form of the view that confirms an action.
    #[track_caller]
    fn confirm(&self, path: &str) -> (u16, String) {
        let (status, html) = self.get(path);
        match status {
            200 => {
                let (token, id) = (value(&html, "token"), value(&html, "request_id"));
                self.post(path, &format!("token={token}&request_id={id}"))
            }
            _ => (status, html),
        }
    }
}

/// Returns the last value of a hidden field.
#[track_caller]
fn value(html: &str, name: &str) -> String {
    let (_, rest) = html
        .rsplit_once(&format!("name=\"{name}\" value=\""))
        .unwrap_or_else(|| panic!("no {name} in {html}"));
    rest.split_once('"').expect("its end").0.to_owned()
}

/// Goal: an action is for the roles that may call its method, and is recorded under the name of its caller, also
/// where a conductor carries it out.
pub(crate) fn actions_are_for_operators_and_in_their_name() {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .host(Host::new("h1"))
        .host(Host::new("h2"))
        .certified()
        .paged()
        .start();
    cluster.pinned_flavor("one", 1);
    let _ = cluster.boot("a", "one", "h1");
    let certificates = cluster.certificates();
    let folder = tempfile::tempdir().expect("a folder");
    let page = cluster.schedulers[0].page();
    eventually("a listener", || {
        std::net::TcpStream::connect(page).map(drop)
    });
    for role in Role::ALL {
        let browser = Browser {
            page,
            ca: certificates.ca(),
            files: Some(certificates.files(role, "ann")),
            cookies: folder.path().join(role.as_str()),
        };
        for path in ["/hosts/h1/cordon", "/hosts/h1/uncordon", "/vms/a/migrate"] {
            let route = Route::parse(path, None).expect("an action");
            let mut methods = route.methods().iter().copied().chain(route.change());
            let may = methods.all(|method| table::may(role, method));
            let (status, body) = browser.confirm(path);
            assert_eq!(status, if may { 303 } else { 403 }, "{role} {path}: {body}");
            if !may {
                let (status, body) = browser.post(path, "token=&request_id=");
                assert_eq!(status, 403, "{role} {path}: {body}");
                let mut methods = route.methods().iter().copied().chain(route.change());
                let refused = methods.find(|method| !table::may(role, method));
                let caller = format!("{role}:ann");
                is_audited(
                    &cluster,
                    refused.expect("a method"),
                    &caller,
                    "ROLE_NOT_ALLOWED",
                );
            }
        }
        let (_, host) = browser.get("/hosts/h1");
        let is_offered = host.contains("/hosts/h1/cordon");
        assert_eq!(is_offered, role == Role::Operator, "{role}: {host}");
    }
    eventually("the audit has the name", || {
        let audit = cluster.berth(&["audit", "list", "--output", "json"]).stdout;
        let of_ann = audit.matches("operator:ann").count();
        match of_ann >= 3 && audit.contains("MigrateVm") | audit.contains("ScheduleMigration") {
            true => Ok(()),
            false => Err(audit),
        }
    });
}

/// Goal: a link logs one browser in, once, with the rights of its certificate and no longer than that is valid;
/// without a login nothing is shown.
pub(crate) fn browsers_log_in_by_a_link() {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .host(Host::new("h1"))
        .certified()
        .with_page_logins()
        .start();
    let certificates = cluster.certificates();
    let folder = tempfile::tempdir().expect("a folder");
    let page = cluster.schedulers[0].page();
    eventually("a listener", || {
        std::net::TcpStream::connect(page).map(drop)
    });
    let browser = |name: &str| Browser {
        page,
        ca: certificates.ca(),
        files: None,
        cookies: folder.path().join(name),
    };
    let link_of = |name: &str| {
        let files = certificates.files(Role::Operator, name);
        let printed = cluster.berth_as(&files, &["web", "login"]);
        assert_eq!(printed.status, Some(0), "{printed:?}");
        let link: serde_json::Value = serde_json::from_str(&printed.stdout).expect("JSON");
        let url = link["url"].as_str().expect("a URL");
        let path = url.strip_prefix(&format!("https://{page}"));
        path.expect("of this page").to_owned()
    };
    let first = browser("first");
    for path in PATHS {
        let is_public = path.starts_with("/page.");
        let (status, body) = first.get(path);
        assert_eq!(status, if is_public { 200 } else { 401 }, "{path}: {body}");
        assert!(
            is_public || body.contains("berth web login"),
            "{path}: {body}"
        );
    }
    assert_eq!(first.confirm("/hosts/h1/cordon").0, 401);
    assert_eq!(first.post("/hosts/h1/cordon", "").0, 401);
    assert_eq!(first.get("/login?token=0123").0, 403);
    assert_eq!(first.post("/login", "token=0123").0, 403);

    let path = link_of("ann");
    for _ in 0..2 {
        let (status, html) = first.get(&path);
        assert_eq!(status, 200, "{html}");
        assert_eq!(format!("/login?token={}", value(&html, "token")), path);
    }
    let token = path.rsplit_once('=').expect("a token").1;
    let forged = {
        let mut command = first.command("/login");
        let body = format!("token={token}");
        command.args(["--header", "origin: https://evil.example", "--data", &body]);
        curl::answer(command).expect("an answer")
    };
    assert_eq!(forged.0, 403, "{forged:?}");
    let (status, body) = first.post("/login", &format!("token={token}"));
    assert_eq!(status, 303, "{body}");
    let (status, body) = browser("thief").post("/login", &format!("token={token}"));
    assert_eq!(status, 403, "a link is used twice: {body}");
    let (status, html) = first.get("/hosts/h1");
    assert_eq!(status, 200, "{html}");
    assert!(html.contains("Logged in as operator:ann"), "{html}");
    let cordoned = first.confirm("/hosts/h1/cordon");
    assert_eq!(cordoned.0, 303, "{cordoned:?}");
    assert_eq!(browser("other").get("/").0, 401);
    // The form of one login is of no use to another one.
    let second = browser("second");
    let path = link_of("eve");
    let token = path.rsplit_once('=').expect("a token").1;
    assert_eq!(second.post("/login", &format!("token={token}")).0, 303);
    let seal = value(&html, "token");
    let crossed = format!("token={seal}&request_id=01a22882-c2be-7054-8d94-0cf55e1b1e00");
    assert_eq!(second.post("/hosts/h1/uncordon", &crossed).0, 409);
    assert_eq!(second.post("/logout", &crossed).0, 409);
    assert_eq!(first.post("/logout", &format!("token={seal}")).0, 303);
    assert_eq!(first.get("/").0, 401, "it has logged out");
    assert_eq!(second.get("/").0, 200);
    let eve = certificates.files(Role::Operator, "eve").cert;
    let eve = eve.to_str().expect("a path");
    cluster.run(&[
        "cluster",
        "revoke-certificate",
        eve,
        "--reason",
        "she has left",
    ]);
    eventually("a login ends with its certificate", || {
        match second.get("/").0 {
            401 => Ok(()),
            other => Err(other.to_string()),
        }
    });
    let uncordon = Route::parse("/hosts/h1/uncordon", None).and_then(|route| route.change());
    for (method, caller, outcome) in [
        ("PageLogin", "unverified", "PAGE_LOGIN_SPENT"),
        ("PageLogin", "operator:ann", "done"),
        ("PageLogin", "operator:eve", "done"),
        ("PageLogout", "operator:ann", "done"),
        ("PageLoginEnded", "operator:eve", "done"),
        (uncordon.expect("a method"), "operator:eve", "FORM_OUTDATED"),
    ] {
        is_audited(&cluster, method, caller, outcome);
    }
}

/// Waits for a line of the audit in the log of the first scheduler.
#[track_caller]
fn is_audited(cluster: &Cluster, method: &str, caller: &str, outcome: &str) {
    let fields = [("method", method), ("caller", caller), ("outcome", outcome)];
    let fields = fields.map(|(name, value)| format!("{name}=\"{value}\""));
    eventually("a line of the audit", || {
        let log = cluster.schedulers[0].log();
        let mut lines = log.lines().filter(|line| line.contains(" audit"));
        match lines.any(|line| fields.iter().all(|field| line.contains(field.as_str()))) {
            true => Ok(()),
            false => Err(format!("{fields:?}: {log}")),
        }
    });
}
