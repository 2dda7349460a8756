//! The page of the cluster: what every response has, who is refused, and that it follows what happens.
//!
//! Goal: the page shows what the commands show, changes what its own forms confirm and nothing else, and gives
//! nothing to other web sites.
//! Method: whole processes; requests are written as bytes, as a browser and as others would send them. Who may
//! read with certificates is tested with `curl`, in the target `real`; the HTML itself in `scheduler/page`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use berth_tests::processes::scrape::{self, Response};
use berth_tests::processes::{Cluster, Host, PATIENCE, eventually};
use rustix::process::Signal;

use crate::PROGRAMS;

/// How many streams a member has at most.
const STREAMS_MAX: usize = 64;

fn start(schedulers: u32) -> Cluster {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(schedulers)
        .host(Host::new("h1"))
        .paged()
        .start();
    cluster.pinned_flavor("one", 1);
    cluster
}

#[track_caller]
fn get(page: &str, path: &str) -> Response {
    scrape::get(page, path).unwrap_or_else(|why| panic!("{path}: {why}"))
}

#[track_caller]
fn send(page: &str, request: &str) -> Response {
    scrape::send(page, request.as_bytes()).unwrap_or_else(|why| panic!("{request}: {why}"))
}

/// Reads a view until it has a text.
#[track_caller]
fn shows(page: &str, path: &str, text: &str) -> String {
    eventually(&format!("{path} shows {text}"), || {
        let response = scrape::get(page, path)?;
        match response.status == 200 && response.body.contains(text) {
            true => Ok(response.body),
            false => Err(format!("{}: {}", response.status, response.body)),
        }
    })
}

/// Returns the revision that a view states.
#[track_caller]
fn revision(html: &str) -> u64 {
    let (_, rest) = html.split_once("id=\"revision\">").expect("a revision");
    let (digits, _) = rest.split_once('<').expect("its end");
    digits.parse().expect("a number")
}

/// A stream of events.
struct Stream(BufReader<TcpStream>);

impl Stream {
    /// Opens one; returns its head.
    fn open(page: &str, path: &str) -> (Self, String) {
        let mut stream = TcpStream::connect(page).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let request = format!("GET {path} HTTP/1.1\r\nhost: {page}\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it is sent");
        let mut stream = Self(BufReader::new(stream));
        let mut head = String::new();
        loop {
            let line = stream.line().expect("a head");
            if line == "\r\n" {
                return (stream, head.to_lowercase());
            }
            head.push_str(&line);
        }
    }

    /// Returns the next line; nothing at its end.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(line),
            Err(error) => panic!("nothing more was sent: {error}"),
        }
    }

    /// Reads on until an event of this name; nothing if the stream ends before.
    fn event(&mut self, name: &str) -> Option<String> {
        let expected = format!("event: {name}");
        let begun = Instant::now();
        while let Some(line) = self.line() {
            assert!(begun.elapsed() < PATIENCE, "no event {name}");
            if line.trim() == expected {
                return self.line();
            }
        }
        None
    }
}

/// Goal: nothing is served that was not configured.
#[test]
fn without_an_address_there_is_no_page() {
    let cluster = Cluster::builder(PROGRAMS).schedulers(1).start();
    assert_eq!(cluster.schedulers[0].page, None);
    let response = get(&cluster.schedulers[0].address, "/hosts");
    assert_ne!(response.status, 200, "{response:?}");
    assert!(!response.body.contains("Berth"), "{response:?}");
}

/// Goal: every response has all headers, failures too; other names, methods and paths are refused.
#[test]
fn other_names_methods_and_paths_are_refused() {
    let cluster = start(1);
    let page = cluster.schedulers[0].page().to_owned();
    let port = page.rsplit_once(':').expect("a port").1;
    let named = |host: &str| format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    let local = [
        format!("localhost:{port}"),
        "127.0.0.1".into(),
        format!("[::1]:{port}"),
    ];
    for host in &local {
        assert_eq!(send(&page, &named(host)).status, 200, "{host}");
    }
    let mut refused = Vec::new();
    for host in ["evil.example", "localhost.evil.example", "10.1.2.3", ""] {
        refused.push((421, named(host)));
    }
    let twice = format!(
        "GET / HTTP/1.1\r\nhost: {page}\r\nhost: evil.example\r\nconnection: close\r\n\r\n"
    );
    refused.push((421, twice));
    let absolute =
        format!("GET http://evil.example/ HTTP/1.1\r\nhost: {page}\r\nconnection: close\r\n\r\n");
    refused.push((421, absolute));
    refused.push((
        421,
        "GET / HTTP/1.0\r\nconnection: close\r\n\r\n".to_owned(),
    ));
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
        let request = format!(
            "{method} / HTTP/1.1\r\nhost: {page}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        );
        refused.push((405, request));
    }
    let at =
        |path: &str| format!("GET {path} HTTP/1.1\r\nhost: {page}\r\nconnection: close\r\n\r\n");
    for path in [
        "/x",
        "/hosts/",
        "/hosts/none",
        "/vms/none",
        "/metrics",
        "/../etc/passwd",
    ] {
        refused.push((404, at(path)));
    }
    for path in [
        "/hosts/%3Cscript%3E",
        "/vms/a%00b",
        "/vms?after=x",
        "/events?of=vm&name=%0a&after=x",
    ] {
        let status = if path.starts_with("/events") {
            404
        } else {
            400
        };
        refused.push((status, at(path)));
    }
    let served = [
        "/",
        "/failover",
        "/hosts",
        "/hosts/h1",
        "/vms",
        "/why-not",
        "/balance",
        "/audit",
        "/page.css",
        "/page.js",
        "/page.svg",
    ];
    let served = served.into_iter().map(|path| (200, at(path)));
    for (status, request) in refused.into_iter().chain(served) {
        let response = send(&page, &request);
        assert_eq!(response.status, status, "{request}: {response:?}");
        check_headers(&request, &response);
        assert!(!response.body.contains("<script>"), "{request}");
    }
    let head = send(
        &page,
        &format!("HEAD / HTTP/1.1\r\nhost: {page}\r\nconnection: close\r\n\r\n"),
    );
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[track_caller]
fn check_headers(what: &str, response: &Response) {
    let policy = "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src \
                  'self'; img-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";
    for header in [
        policy,
        "x-content-type-options: nosniff",
        "x-frame-options: deny",
        "referrer-policy: same-origin",
        "cache-control: no-store",
        "cross-origin-resource-policy: same-origin",
    ] {
        let has = response.head.lines().any(|line| line == header);
        assert!(has, "{what}: no {header} in {}", response.head);
    }
    for absent in ["access-control-", "set-cookie", "server:"] {
        assert!(!response.head.contains(absent), "{what}: {}", response.head);
    }
}

/// Goal: each view shows what there is, and what happens comes as an event.
#[test]
fn views_show_what_happens() {
    let cluster = start(1);
    let page = cluster.schedulers[0].page().to_owned();
    let hosts = shows(&page, "/hosts", "UP");
    assert!(hosts.contains("/hosts/h1"), "{hosts}");
    let empty = shows(&page, "/hosts/h1", "No VM is on this host");
    let path = format!("/events?of=host&name=h1&after={}", revision(&empty));
    let (mut events, head) = Stream::open(&page, &path);
    assert!(head.contains("text/event-stream"), "{head}");
    assert!(events.event("alive").is_some());

    let _ = cluster.boot("a", "one", "h1");
    assert!(events.event("change").is_some());
    let host = shows(&page, "/hosts/h1", "/vms/a");
    assert!(host.contains("vCPU 0"), "{host}");
    assert!(revision(&host) > revision(&empty));
    let vm = shows(&page, "/vms/a", "ACTIVE");
    assert!(vm.contains("0→"), "{vm}");
    assert!(vm.contains("SUCCEEDED"), "{vm}");
    let _ = shows(&page, "/vms", "/vms/a");
    let _ = shows(&page, "/vms/a/history", "ACTIVE");
    let _ = shows(&page, "/", "1 active");
    // What it could be decided on; h1 is the only host.
    let _ = shows(&page, "/failover", "NOT SURVIVED");
    let _ = shows(&page, "/", "would not be survived");
    let audit = shows(&page, "/audit?vm=a", "ScheduleVm");
    assert!(audit.contains("DONE"), "{audit}");
    let _ = shows(&page, "/audit?vm=other", "There is no entry");
    let _ = shows(&page, "/balance", "No move is planned");
}

/// Goal: a plan that would balance the hosts shows its moves, and moves nothing.
#[test]
fn a_plan_shows_what_would_be_moved() {
    let cluster = two_hosts(1);
    let page = cluster.schedulers[0].page().to_owned();
    for vm in ["b", "c"] {
        let _ = cluster.boot(vm, "one", "h1");
    }
    let plan = shows(&page, "/balance", "Score after");
    assert!(plan.contains("href=\"/hosts/h2\""), "{plan}");
    assert!(plan.contains("Parts of the score"), "{plan}");
    let _ = shows(&page, "/hosts/h2", "No VM is on this host");
}

/// Goal: what changed between a view and its stream is not lost, and other records give no event.
#[test]
fn a_stream_begins_where_the_view_ends() {
    let cluster = start(1);
    let page = cluster.schedulers[0].page().to_owned();
    let before = revision(&get(&page, "/vms").body);
    let _ = cluster.boot("a", "one", "h1");
    let (mut events, _) = Stream::open(&page, &format!("/events?of=vm&name=a&after={before}"));
    assert!(events.event("change").is_some());
    // Of a cluster that was restored since: the view is of what is no more.
    let (mut events, _) = Stream::open(&page, "/events?of=vm&name=a&after=1000000");
    assert!(events.event("change").is_some());
    let (mut events, _) = Stream::open(&page, "/events?of=vm&name=a&after=0");
    assert!(events.event("alive").is_some());
}

/// Goal: "why not" is the decision of a boot: it fits, or it is refused by cause with near misses and a hint;
/// nothing is claimed.
#[test]
fn why_not_decides_and_claims_nothing() {
    let cluster = start(1);
    let page = cluster.schedulers[0].page().to_owned();
    cluster.pinned_flavor("huge", 60);
    let form = shows(&page, "/why-not", "Choose a flavor");
    assert!(form.contains("value=\"huge\""), "{form}");
    let fits = shows(&page, "/why-not?flavor=one&host=", "It fits");
    assert!(fits.contains("/hosts/h1"), "{fits}");
    let refused = shows(&page, "/why-not?flavor=huge", "It does not fit");
    for part in ["NO_VALID_HOST", "Hint:", "Refusals by cause", "Near misses"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    let unknown = shows(&page, "/why-not?flavor=none", "FLAVOR_NOT_FOUND");
    assert!(!unknown.contains("Near misses"), "{unknown}");
    let _ = shows(&page, "/vms", "No VM is there");
    let _ = shows(&page, "/hosts/h1", "No VM is on this host");
}

/// Goal: streams are bounded; one that ends gives its place to another, and views are served meanwhile.
#[test]
fn streams_are_bounded() {
    let cluster = start(1);
    let page = cluster.schedulers[0].page().to_owned();
    let after = revision(&get(&page, "/").body);
    let path = format!("/events?of=cluster&after={after}");
    let mut streams = Vec::new();
    // A caller may have fewer connections than there may be streams.
    let refused = (0..=STREAMS_MAX).find_map(|_| {
        let (stream, head) = Stream::open(&page, &path);
        if head.contains(" 200 ") {
            streams.push(stream);
            return None;
        }
        Some(head)
    });
    let refused = refused.expect("a stream too many is refused");
    assert!(refused.starts_with("http/1.1 503 "), "{refused}");
    assert!(refused.contains("retry-after: "), "{refused}");
    assert!(streams.len() >= 16, "{}", streams.len());
    streams.truncate(streams.len() - 4);
    let _ = shows(&page, "/hosts", "/hosts/h1");
    eventually("a stream in the place of one that ended", || {
        let (mut stream, head) = Stream::open(&page, &path);
        match head.contains(" 200 ") && stream.event("alive").is_some() {
            true => Ok(()),
            false => Err(head),
        }
    });
}

/// Goal: a member that does not lead serves its own state and says so; without any leader too, and streams end
/// with the reason.
#[test]
fn a_follower_states_its_age() {
    let mut cluster = start(3);
    let leader = cluster.leader();
    let follower = (leader + 1) % 3;
    let led = cluster.schedulers[leader].page().to_owned();
    let page = cluster.schedulers[follower].page().to_owned();
    let _ = shows(&led, "/", "from the leader");
    let own = shows(&page, "/hosts/h1", "own state");
    assert!(own.contains("before this view was made"), "{own}");
    assert!(own.contains("leads."), "{own}");
    let refused = get(&page, "/why-not?flavor=one");
    assert_eq!(refused.status, 503, "{refused:?}");
    let after = revision(&own);
    let (mut events, _) = Stream::open(&page, &format!("/events?of=cluster&after={after}"));
    let _ = cluster.boot("a", "one", "h1");
    assert!(events.event("change").is_some());
    let _ = shows(&page, "/vms/a", "ACTIVE");
    for other in (0..3).filter(|number| *number != follower) {
        cluster.schedulers[other].kill();
    }
    let why = events.event("end").expect("it ends with the reason");
    assert!(why.contains("leader"), "{why}");
    let alone = shows(&page, "/vms/a", "it knows no leader");
    assert!(alone.contains("own state"), "{alone}");
}

/// A form of a view.
struct Form {
    path: String,
    token: String,
    request_id: String,
}

/// Returns the form of the view that confirms an action.
#[track_caller]
fn form(page: &str, path: &str) -> Form {
    let html = shows(page, path, "method=\"post\"");
    let value = |name: &str| {
        let (_, rest) = html
            .split_once(&format!("name=\"{name}\" value=\""))
            .unwrap_or_else(|| panic!("no {name} in {html}"));
        rest.split_once('"').expect("its end").0.to_owned()
    };
    Form {
        path: path.to_owned(),
        token: value("token"),
        request_id: value("request_id"),
    }
}

impl Form {
    fn body(&self, more: &str) -> String {
        format!("token={}&request_id={}{more}", self.token, self.request_id)
    }

    /// Sends it as a browser does; returns the response.
    #[track_caller]
    fn send(&self, page: &str, more: &str) -> Response {
        let own = format!("origin: http://{page}\r\nsec-fetch-site: same-origin\r\n");
        post(page, &self.path, &own, &self.body(more))
    }

    /// Sends it; returns where the response leads to.
    #[track_caller]
    fn carried_out(&self, page: &str, more: &str) -> String {
        let response = self.send(page, more);
        assert_eq!(response.status, 303, "{}: {response:?}", self.path);
        check_headers(&self.path, &response);
        let mut lines = response.head.lines();
        let location = lines.find_map(|line| line.strip_prefix("location: "));
        location.expect("a location").to_owned()
    }
}

#[track_caller]
fn post(page: &str, path: &str, headers: &str, body: &str) -> Response {
    let length = body.len();
    send(
        page,
        &format!(
            "POST {path} HTTP/1.1\r\nhost: {page}\r\nconnection: close\r\n{headers}content-type: \
             application/x-www-form-urlencoded\r\ncontent-length: {length}\r\n\r\n{body}"
        ),
    )
}

fn two_hosts(schedulers: u32) -> Cluster {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(schedulers)
        .host(Host::new("h1"))
        .host(Host::new("h2"))
        .paged()
        .start();
    cluster.pinned_flavor("one", 1);
    let _ = cluster.boot("a", "one", "h1");
    cluster
}

/// Waits until the VM is on a host, and nothing is done to it.
#[track_caller]
fn moved(page: &str, host: &str) {
    eventually(&format!("a is on {host}"), || {
        let vm = get(page, "/vms/a").body;
        let is_there = vm.contains(&format!("href=\"/hosts/{host}\"")) && vm.contains("ACTIVE");
        let is_quiet = get(page, "/").body.contains("No operation is running");
        match is_there && is_quiet && !vm.contains("Running migration") {
            true => Ok(()),
            false => Err(vm),
        }
    });
}

/// Goal: every action is carried out, from the member that leads and from another one, and the views show it.
#[test]
fn actions_are_carried_out() {
    let cluster = two_hosts(3);
    let leader = cluster.leader();
    for (member, from, to) in [(leader, "h1", "h2"), ((leader + 1) % 3, "h2", "h1")] {
        let page = cluster.schedulers[member].page().to_owned();
        let host = format!("/hosts/{from}");
        let cordon = form(&page, &format!("{host}/cordon"));
        assert_eq!(cordon.carried_out(&page, ""), host);
        assert_eq!(cordon.carried_out(&page, ""), host, "it was done already");
        let _ = shows(&page, &host, "CORDONED");
        let uncordon = form(&page, &format!("{host}/uncordon"));
        assert_eq!(uncordon.carried_out(&page, ""), host);
        assert_eq!(cordon.carried_out(&page, ""), host, "it was done once");
        let _ = shows(&page, &host, "/cordon\"");

        let migrate = form(&page, "/vms/a/migrate");
        assert_eq!(migrate.carried_out(&page, &format!("&host={to}")), "/vms/a");
        moved(&page, to);
        let again = migrate.send(&page, &format!("&host={to}"));
        assert!(matches!(again.status, 303 | 409), "{again:?}");
        moved(&page, to);

        let drain = form(&page, &format!("/hosts/{to}/drain"));
        assert_eq!(drain.carried_out(&page, ""), "/");
        moved(&page, from);
        let _ = shows(&page, &format!("/hosts/{to}"), "CORDONED");
        let uncordon = form(&page, &format!("/hosts/{to}/uncordon"));
        let _ = uncordon.carried_out(&page, "");
        let migrate = form(&page, "/vms/a/migrate");
        let _ = migrate.carried_out(&page, "");
        moved(&page, to);
    }
    let page = cluster.schedulers[leader].page().to_owned();
    for (path, key) in [
        ("operations/{}/cancel", "operation"),
        ("migrations/{}/abort", "migration"),
    ] {
        let listed = cluster.json(&[key, "list"]);
        let id = listed[0]["id"].as_str().expect("one that has ended");
        let late = get(&page, &format!("/{}", path.replace("{}", id)));
        assert_eq!(late.status, 409, "{path}: {late:?}");
        assert!(late.body.contains("has ended already"), "{late:?}");
    }
    let refused = form(&page, "/vms/a/migrate");
    let unknown = refused.send(&page, "&host=none");
    assert_eq!(unknown.status, 404, "{unknown:?}");
    assert!(unknown.body.contains("none"), "{unknown:?}");
}

/// The actions that a conductor carries out, and those of the scheduler itself.
const ACTIONS: [&str; 4] = [
    "/hosts/h1/cordon",
    "/hosts/h1/uncordon",
    "/hosts/h1/drain",
    "/vms/a/migrate",
];

/// Goal: the view of a VM shows how far its transfer is while it lasts, and what the guest wrote. Method: the
/// simulated hypervisor takes its time.
#[test]
fn what_agents_measure_is_shown() {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .host(Host::new("h1"))
        .host(Host::new("h2"))
        .transfer_ms(20_000)
        .paged()
        .start();
    cluster.pinned_flavor("one", 1);
    let _ = cluster.boot("a", "one", "h1");
    let page = cluster.schedulers[0].page().to_owned();
    let console = shows(&page, "/vms/a/console", "<pre class=\"console\"");
    assert!(!console.contains("data-events"), "{console}");
    let quiet = get(&page, "/vms/a").body;
    assert!(!quiet.contains("data-again"), "{quiet}");
    let begun = cluster.json(&["vm", "migrate", "a", "--host", "h2", "--no-wait"]);
    let moving = shows(&page, "/vms/a", "aria-label=\"Transferred\"");
    assert!(moving.contains("data-again=\"1000\""), "{moving}");
    for part in ["Downtime", "over its memory", " left"] {
        assert!(moving.contains(part), "{part}: {moving}");
    }
    let migration = cluster.json(&["migration", "list"])[0]["id"].clone();
    let id = migration.as_str().expect("an id");
    cluster.run(&["migration", "abort", id]);
    let operation = begun["operation"].as_str().expect("an id");
    let _ = cluster.berth(&["operation", "wait", operation]);
    let ended = get(&page, "/vms/a").body;
    assert!(!ended.contains("data-again"), "{ended}");
}

/// Goal: views that wait for an agent which hangs are limited, those beyond the limit say so at once and do not say
/// that an agent did not answer, and no other view waits for them.
#[test]
fn views_of_an_agent_that_hangs_are_limited() {
    let mut cluster = two_hosts(1);
    let page = cluster.schedulers[0].page().to_owned();
    let _ = shows(&page, "/vms/a/console", "<pre class=\"console\"");
    cluster.agents[0].signal(Signal::STOP);
    let views: Vec<_> = std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..40)
            .map(|_| scope.spawn(|| get(&page, "/vms/a/console")))
            .collect();
        for path in ["/", "/hosts", "/vms", "/vms/a", "/audit"] {
            assert_eq!(get(&page, path).status, 200, "{path}");
        }
        waiting
            .into_iter()
            .map(|view| view.join().expect("a view"))
            .collect()
    });
    let is_limited = |view: &&Response| view.body.contains("too many views wait for agents");
    let limited: Vec<&Response> = views.iter().filter(is_limited).collect();
    let count = limited.len();
    assert!(count > 0 && count < views.len(), "{count}");
    for view in limited {
        assert_eq!(view.status, 503, "{view:?}");
    }
    cluster.agents[0].signal(Signal::CONT);
    let _ = shows(&page, "/vms/a/console", "<pre class=\"console\"");
}

/// Goal: a conductor that hangs delays no action that another one can carry out, whichever of them it is; where
/// all hang nothing is done, and the answer says so.
#[test]
fn conductors_that_hang_delay_no_action() {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(2)
        .host(Host::new("h1"))
        .host(Host::new("h2"))
        .paged()
        .start();
    cluster.pinned_flavor("one", 1);
    let _ = cluster.boot("a", "one", "h1");
    let page = cluster.schedulers[0].page().to_owned();
    for (hangs, to) in [(0, "h2"), (1, "h1")] {
        let migrate = form(&page, "/vms/a/migrate");
        cluster.conductors[hangs].signal(Signal::STOP);
        let _ = migrate.carried_out(&page, &format!("&host={to}"));
        cluster.conductors[hangs].signal(Signal::CONT);
        moved(&page, to);
    }
    let migrate = form(&page, "/vms/a/migrate");
    for conductor in &mut cluster.conductors {
        conductor.signal(Signal::STOP);
    }
    let refused = migrate.send(&page, "");
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.body.contains("no conductor can"), "{refused:?}");
    for conductor in &mut cluster.conductors {
        conductor.signal(Signal::CONT);
    }
    moved(&page, "h1");
    let _ = migrate.carried_out(&page, "");
    moved(&page, "h2");
}

/// Goal: without a leader no action is begun, and each answer says so. Method: two of three members are killed
/// between the view of a form and its sending.
#[test]
fn without_a_leader_no_action_is_begun() {
    let mut cluster = two_hosts(3);
    let last = (cluster.leader() + 1) % 3;
    let page = cluster.schedulers[last].page().to_owned();
    let forms = ACTIONS.map(|path| form(&page, path));
    let lost = (0..3).filter(|number| *number != last);
    for member in lost.clone() {
        cluster.schedulers[member].kill();
    }
    let _ = shows(&page, "/vms/a", "it knows no leader");
    for form in &forms {
        let refused = form.send(&page, "");
        assert_eq!(refused.status, 503, "{}: {refused:?}", form.path);
        let is_sure = !refused.body.contains("may or may not");
        assert!(is_sure, "{}: {refused:?}", form.path);
    }
    for member in lost {
        cluster.schedulers[member].start(&cluster.programs);
    }
    cluster.wait();
    moved(&page, "h1");
    let _ = shows(&page, "/hosts/h1", "/cordon\"");
    let methods = cluster.berth(&["audit", "list", "--output", "json"]).stdout;
    for method in ["SetCordon", "CordonHost", "MigrateVm", "ScheduleMigration"] {
        assert!(!methods.contains(method), "{method}: {methods}");
    }
}

/// Goal: a form is carried out only if this page sent it, with the token of this member. Method: each part of a
/// valid request is left out or replaced, for every action; the host and the VM stay as they are.
#[test]
fn forged_forms_are_refused() {
    let cluster = two_hosts(1);
    let page = cluster.schedulers[0].page().to_owned();
    let own = format!("origin: http://{page}\r\n");
    for path in [
        "/hosts/h1/cordon",
        "/hosts/h1/drain",
        "/vms/a/migrate",
        "/hosts/h1/uncordon",
    ] {
        let form = form(&page, path);
        let valid = form.body("");
        let other = form.token.chars().rev().collect::<String>();
        let forged = form.request_id.as_str();
        for (status, headers, body) in [
            (403, String::new(), valid.clone()),
            (403, "origin: null\r\n".to_owned(), valid.clone()),
            (
                403,
                "origin: http://evil.example\r\n".to_owned(),
                valid.clone(),
            ),
            (
                403,
                format!("{own}sec-fetch-site: cross-site\r\n"),
                valid.clone(),
            ),
            (403, format!("origin: https://{page}\r\n"), valid.clone()),
            (
                409,
                own.clone(),
                format!("token={other}&request_id={forged}"),
            ),
            (409, own.clone(), format!("request_id={forged}")),
            (409, own.clone(), String::new()),
            (400, own.clone(), format!("token={}", form.token)),
            (
                400,
                own.clone(),
                format!("token={}&request_id=x", form.token),
            ),
            (400, own.clone(), format!("{valid}&x={}", "x".repeat(5000))),
            (400, own.clone(), "token=%ff".to_owned()),
        ] {
            let response = post(&page, path, &headers, &body);
            assert_eq!(
                response.status, status,
                "{path} {headers} {body}: {response:?}"
            );
            check_headers(path, &response);
        }
        let query = format!("{path}?{valid}");
        assert_eq!(get(&page, &query).status, 200, "a link does nothing");
    }
    for path in [
        "/",
        "/hosts",
        "/hosts/h1",
        "/vms/a",
        "/page.css",
        "/why-not",
    ] {
        let response = post(&page, path, &own, "");
        assert_eq!(response.status, 405, "{path}: {response:?}");
    }
    let _ = shows(&page, "/hosts/h1", "/cordon\"");
    let vm = shows(&page, "/vms/a", "ACTIVE");
    assert!(vm.contains("href=\"/hosts/h1\""), "{vm}");
    assert_eq!(get(&page, "/login").status, 404, "no logins are offered");
}
