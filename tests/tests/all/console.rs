//! Users type on the consoles of guests, with whole processes.
//!
//! Goal: what is typed arrives, what the guest writes is shown once and in order, and a session outlives
//! the move of its guest and the end of its conductor; one user types at a time; nothing is typed without a
//! grant for it. Method: the real command on a pseudo terminal, which `script` makes; the simulated guest
//! counts, and repeats each line that it reads in brackets.

use std::process::Command;
use std::time::Duration;

use berth_domain::refusal::Refusal;
use berth_proto::agent::v1 as agent;
use berth_proto::agent::v1::attach_console_request as agent_request;
use berth_proto::agent::v1::compute_agent_service_client::ComputeAgentServiceClient;
use berth_proto::client::Dialer;
use berth_proto::conductor::v1 as conductor;
use berth_proto::conductor::v1::attach_console_request as request;
use berth_proto::conductor::v1::attach_console_response::Response as Answer;
use berth_proto::conductor::v1::conductor_service_client::ConductorServiceClient;
use berth_proto::operation::v1::SignedGrant;
use berth_proto::scheduler::v1::OpenConsoleRequest;
use berth_proto::scheduler::v1::power_service_client::PowerServiceClient;
use berth_proto::status::from_status;
use berth_tests::processes::{Cluster, Host, Terminal, certs};
use berth_tls::{Expected, Role};
use rustix::process::Signal;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::PROGRAMS;

/// Ctrl-].
const ESCAPE: &str = "\u{1d}";

fn start() -> Cluster {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(2)
        .host(Host::new("h1"))
        .host(Host::new("h2"))
        .certified()
        .start();
    let size = ["--vcpus", "1", "--memory-mib", "64"];
    cluster.run(&[&["flavor", "create", "f"][..], &size].concat());
    for vm in ["a", "b"] {
        cluster.run(&[&Cluster::create(vm, "f")[..], &["--host", "h1"]].concat());
    }
    cluster
}

/// Runs `berth` on a terminal, as an operator.
fn open_terminal(cluster: &Cluster, user: &str, arguments: &str) -> Terminal {
    let files = cluster.certificates().files(Role::Operator, user);
    let flags = certs::flags(&files);
    let flags: Vec<_> = flags
        .iter()
        .map(|(flag, file)| format!("{flag} {file}"))
        .collect();
    let berth = cluster.programs.command("berth");
    let program = berth.get_program().display();
    let addresses = cluster.addresses();
    let flags = flags.join(" ");
    let line = format!("{program} --scheduler {addresses} {flags} {arguments}");
    Terminal::open(Command::new("script"), &line)
}

/// Types a line, and waits for the guest to repeat it.
#[track_caller]
fn type_line(terminal: &mut Terminal, line: &str) {
    terminal.keys(&format!("{line}\r"));
    terminal.until(&format!("[{line}]"));
}

/// Asserts that the guest's lines were shown once each and in order.
#[track_caller]
fn counts_without_a_gap(text: &str) {
    let numbers: Vec<u64> = text
        .split("count ")
        .skip(1)
        .filter_map(|rest| rest.get(..10)?.parse().ok())
        .collect();
    assert!(numbers.len() > 5, "{text}");
    for pair in numbers.windows(2) {
        assert_eq!(pair[1], pair[0] + 1, "{text}");
    }
}

/// Goal: a session goes on while its guest moves and when its conductor is killed.
#[test]
fn a_session_goes_on_while_its_guest_moves() {
    let mut cluster = start();
    let mut terminal = open_terminal(&cluster, "ann", "vm console a --interactive");
    terminal.until("Ctrl-] and then q leaves the console of a");
    type_line(&mut terminal, "first");
    cluster.run(&["vm", "migrate", "a", "--host", "h2"]);
    terminal.until("[berth: the guest is on h2 now]");
    type_line(&mut terminal, "second");
    // One of the two carries the session.
    for conductor in 0..2 {
        cluster.conductors[conductor].kill();
        type_line(
            &mut terminal,
            &format!("without {}", cluster.conductors[conductor].name),
        );
        cluster.conductors[conductor].start(&cluster.programs);
        cluster.wait();
    }
    let text = terminal.text();
    assert!(text.contains("the connection was lost"), "{text}");
    terminal.keys(&format!("{ESCAPE}s"));
    terminal.until("[stty rows 31 cols 99]");
    terminal.keys(&format!("{ESCAPE}xliteral{ESCAPE}{ESCAPE}\r"));
    terminal.until("[literal\u{1d}]");
    terminal.until("that was not typed");
    terminal.keys(&format!("last\r{ESCAPE}q"));
    let text = terminal.ends(0);
    assert!(
        text.contains("[last]") && text.contains("left the console of a"),
        "{text}"
    );
    counts_without_a_gap(&text);
    // Who typed is in the audit, once a session and not a word of what.
    let audit = cluster.json(&["audit", "list"]).to_string();
    assert!(
        audit.contains("OpenConsole") && audit.contains("operator:ann"),
        "{audit}"
    );
    assert!(!audit.contains("second"), "{audit}");
}

/// Goal: a conductor that stands still is given up, and keys that it has not passed on go to no other VM of
/// the name.
#[test]
fn keys_go_to_no_other_guest() {
    let mut cluster = start();
    let mut terminal = open_terminal(&cluster, "ann", "vm console a --interactive");
    type_line(&mut terminal, "before");
    // The first of the list carries the session; commands go on over the other.
    cluster.conductors[0].signal(Signal::STOP);
    terminal.keys("meant for the old one\r");
    cluster.run(&["vm", "delete", "a"]);
    cluster.run(&[&Cluster::create("a", "f")[..], &["--host", "h2"]].concat());
    let text = terminal.ends(1);
    assert!(text.contains("the connection was lost"), "{text}");
    assert!(text.contains("VM_NOT_FOUND"), "{text}");
    cluster.conductors[0].signal(Signal::CONT);
    let mut terminal = open_terminal(&cluster, "ann", "vm console a --interactive");
    type_line(&mut terminal, "after");
    let text = terminal.text();
    assert!(!text.contains("meant for"), "{text}");
    // What holds no session any more is left all the same, with what may be lost.
    for conductor in &mut cluster.conductors {
        conductor.kill();
    }
    terminal.until("the connection was lost");
    terminal.keys(&format!("nowhere\r{ESCAPE}q"));
    let text = terminal.ends(0);
    assert!(text.contains("may not have arrived"), "{text}");
}

/// Goal: one user types at a time and any number read; who comes later learns who it is, and may take the
/// console over.
#[test]
fn one_user_types_and_the_others_read() {
    let cluster = start();
    let mut ann = open_terminal(&cluster, "ann", "vm console a --interactive");
    type_line(&mut ann, "of ann");
    let bob = open_terminal(&cluster, "bob", "vm console a --interactive");
    let text = bob.ends(1);
    assert!(
        text.contains("CONSOLE_IN_USE") && text.contains("operator:ann"),
        "{text}"
    );
    assert!(text.contains("--take-over"), "{text}");
    let mut reader = open_terminal(&cluster, "bob", "vm console a --follow");
    reader.until("[of ann]");
    // Another guest's console is another one.
    let mut other = open_terminal(&cluster, "bob", "vm console b --interactive");
    type_line(&mut other, "on b");
    let mut bob = open_terminal(&cluster, "bob", "vm console a --interactive --take-over");
    type_line(&mut bob, "of bob");
    let text = ann.ends(1);
    assert!(
        text.contains("CONSOLE_TAKEN_OVER") && text.contains("operator:bob"),
        "{text}"
    );
    reader.until("[of bob]");
    type_line(&mut other, "still on b");
    for terminal in [&mut bob, &mut other] {
        terminal.keys(&format!("{ESCAPE}q"));
        terminal.ends(0);
    }
    // Each that has ended leaves the console to the next.
    let mut ann = open_terminal(&cluster, "ann", "vm console a --interactive --escape ^A");
    type_line(&mut ann, "again");
    ann.keys("\u{1}.");
    ann.ends(0);
    reader.keys("\u{3}");
}

/// Goal: a guest that is off has no console, one that is started again has, and each says so.
#[test]
fn a_guest_that_is_off_has_no_console() {
    let cluster = start();
    let mut terminal = open_terminal(&cluster, "ann", "vm console a --interactive");
    type_line(&mut terminal, "before");
    cluster.run(&["vm", "reboot", "a", "--hard"]);
    terminal.until("[berth: waiting for the guest");
    type_line(&mut terminal, "after");
    cluster.run(&["vm", "stop", "a"]);
    let text = terminal.ends(0);
    assert!(text.contains("the guest of a is off"), "{text}");
    for (vm, reason, hint) in [
        ("a", "NO_CONSOLE", "berth vm start a"),
        ("nothing", "VM_NOT_FOUND", ""),
    ] {
        let arguments = format!("vm console {vm} --interactive");
        let text = open_terminal(&cluster, "ann", &arguments).ends(1);
        assert!(text.contains(reason) && text.contains(hint), "{text}");
    }
    cluster.run(&["vm", "start", "a"]);
    let mut terminal = open_terminal(&cluster, "ann", "vm console a --interactive");
    type_line(&mut terminal, "again");
    cluster.run(&["vm", "shelve", "a"]);
    let text = terminal.ends(0);
    assert!(text.contains("the guest of a is off"), "{text}");
    // Another VM of the same name is not the one of the session.
    let mut terminal = open_terminal(&cluster, "ann", "vm console b --interactive");
    type_line(&mut terminal, "before");
    cluster.run(&["vm", "delete", "b"]);
    cluster.run(&Cluster::create("b", "f"));
    let text = terminal.ends(1);
    assert!(text.contains("VM_NOT_FOUND"), "{text}");
}

/// Goal: what cannot work is refused before anything is called.
#[test]
fn wrong_options_are_refused() {
    let cluster = start();
    // The command of the tests has no terminal.
    let refused = cluster.berth(&["vm", "console", "a", "--interactive"]);
    assert!(refused.refused(1).stderr.contains("OPTIONS_CONTRADICT"));
    for (arguments, part) in [
        ("vm console a --interactive --follow", "cannot be used with"),
        ("vm console a --take-over", "--interactive"),
        ("vm console a -i --escape ^M", "the Enter key"),
        ("vm console a -i --escape q", "no control character"),
    ] {
        let text = open_terminal(&cluster, "ann", arguments).ends(2);
        assert!(text.contains(part), "{arguments}: {text}");
    }
    let piped = open_terminal(&cluster, "ann", "vm console a -i < /dev/null");
    assert!(piped.ends(1).contains("TERMINAL_NEEDED"));
}

type Session = Result<Streaming<agent::AttachConsoleResponse>, Status>;

fn open(vm_uid: &str, grant: Option<SignedGrant>) -> agent_request::Request {
    agent_request::Request::Open(agent_request::Open {
        vm_uid: vm_uid.to_owned(),
        grant,
        user: "operator:forged".to_owned(),
        // What is left of the session before is not waited for.
        take_over: true,
        ..Default::default()
    })
}

fn input(bytes: &[u8]) -> agent_request::Request {
    agent_request::Request::Input(bytes.to_vec().into())
}

async fn attach(channel: &Channel, requests: Vec<agent_request::Request>) -> Session {
    let requests = requests
        .into_iter()
        .map(|request| agent::AttachConsoleRequest {
            request: Some(request),
        });
    // It stays open, as that of a client that has more to say.
    let requests = tokio_stream::iter(requests).chain(tokio_stream::pending());
    let mut client = ComputeAgentServiceClient::new(channel.clone());
    Ok(client.attach_console(requests).await?.into_inner())
}

fn reason<T>(result: Result<T, Status>) -> String {
    match result {
        Ok(_) => "done".to_owned(),
        Err(status) => from_status(&status).reason,
    }
}

/// Returns how a session ends that the agent accepts.
async fn end(session: Session) -> Refusal {
    let mut session = session.expect("it is open");
    let reading = async {
        loop {
            if let Err(status) = session.message().await {
                return from_status(&status);
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), reading)
        .await
        .expect("an end")
}

/// Goal: at an agent none types but a conductor that was granted it, on this guest. Method: every role
/// without a grant, and every grant that there is in the wrong place; nothing of it is in the console.
#[test]
fn nothing_is_typed_without_a_grant() {
    let cluster = start();
    let uid = |vm: &str| {
        let shown = cluster.json(&["vm", "show", vm]);
        shown["vm"]["uid"].as_str().expect("a UUID").to_owned()
    };
    let (a, b) = (uid("a"), uid("b"));
    let dial = |role: Role, name: &str, address: &str, expected: Expected| {
        let dialer = Dialer::new(Some(cluster.certificates().tls(role, name)));
        dialer
            .channel(&dialer.url(address), expected)
            .expect("a channel")
    };
    let h1 = &cluster.agents[0].address;
    let of_agent = || Expected::Agent("h1".to_owned());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        for role in Role::ALL {
            let channel = dial(role, "probe", h1, of_agent());
            let session = attach(&channel, vec![open(&a, None), input(b"forged\r")]).await;
            let expected = if role == Role::Conductor {
                "GRANT_MISSING"
            } else {
                "ROLE_NOT_ALLOWED"
            };
            assert_eq!(reason(session), expected, "{role}");
        }
        // The scheduler grants it to the conductor in the certificate alone.
        let scheduler = &cluster.schedulers[0].address;
        let ask = |role: Role, name: &str, conductor: &str| {
            let channel = dial(role, name, scheduler, Expected::AnyServer);
            let request = OpenConsoleRequest {
                vm: "vms/a".to_owned(),
                conductor: format!("services/{conductor}"),
                ..Default::default()
            };
            async move { PowerServiceClient::new(channel).open_console(request).await }
        };
        for role in Role::ALL
            .into_iter()
            .filter(|role| *role != Role::Conductor)
        {
            assert_eq!(
                reason(ask(role, "probe", "probe").await),
                "ROLE_NOT_ALLOWED",
                "{role}"
            );
        }
        assert_ne!(
            reason(ask(Role::Conductor, "rogue", "conductor-1").await),
            "done"
        );
        let granted = ask(Role::Conductor, "rogue", "rogue")
            .await
            .expect("a grant");
        let grant = granted.into_inner().grant.expect("a grant");
        let rogue = dial(Role::Conductor, "rogue", h1, of_agent());
        let other = dial(Role::Conductor, "conductor-1", h1, of_agent());
        let changed = SignedGrant {
            signature: vec![7; 64].into(),
            ..grant.clone()
        };
        for (channel, vm, grant, expected) in [
            (&rogue, &b, grant.clone(), "GRANT_OF_ANOTHER"),
            (&other, &a, grant.clone(), "GRANT_OF_ANOTHER"),
            (&rogue, &a, changed, "GRANT_INVALID"),
        ] {
            let session = attach(channel, vec![open(vm, Some(grant)), input(b"forged\r")]).await;
            assert_eq!(reason(session), expected);
        }
        // It is no grant of an operation.
        let fence = agent::Fence {
            vm_uid: a.clone(),
            operation: format!("operations/{}", uuid::Uuid::new_v4()),
            epoch: 1,
            incarnation: uuid::Uuid::new_v4().to_string(),
            grant: Some(grant.clone()),
            attempt: 0,
        };
        let mut client = ComputeAgentServiceClient::new(rogue.clone());
        let destroyed = client
            .destroy_vm(agent::DestroyVmRequest { fence: Some(fence) })
            .await;
        assert_eq!(reason(destroyed), "GRANT_INVALID");
        // With the grant, what is not a session is refused.
        let open = || open(&a, Some(grant.clone()));
        for (requests, part) in [
            (vec![input(b"x")], "`open`"),
            (vec![open(), open()], "open already"),
            (vec![open(), input(&[b'x'; 4097])], "4096"),
        ] {
            let session = attach(&rogue, requests).await;
            let refusal = match session {
                Ok(session) => end(Ok(session)).await,
                Err(status) => from_status(&status),
            };
            assert!(refusal.message.contains(part), "{refusal:?}");
        }
        // Nothing is left of those.
        let mut session = attach(&rogue, vec![open(), input(b"granted\r")])
            .await
            .expect("a session");
        let mut text = Vec::new();
        while !String::from_utf8_lossy(&text).contains("[granted]") {
            let message = session
                .message()
                .await
                .expect("output")
                .expect("it goes on");
            text.extend(message.data);
        }
    });
    let shown = cluster.berth(&["vm", "console", "a"]);
    assert!(!shown.stdout.contains("forged"), "{}", shown.stdout);
    let said = cluster.agents[0].said();
    let is_recorded =
        |line: &&str| line.contains("AttachConsole") && line.contains("GRANT_MISSING");
    assert!(said.lines().any(|line| is_recorded(&line)), "{said}");
}

/// Goal: a client of the conductor that behaves badly ends its own session and no other.
#[test]
fn bad_clients_end_their_own_sessions() {
    let cluster = start();
    let address = &cluster.conductors[0].address;
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let _entered = runtime.enter();
    let tls = cluster.certificates().tls(Role::Operator, "ann");
    let dialer = Dialer::new(Some(tls));
    let channel = dialer
        .channel(&dialer.url(address), Expected::AnyServer)
        .expect("a channel");
    let attach = async |requests: Vec<request::Request>| {
        let (sender, received) = tokio::sync::mpsc::channel(8);
        for request in requests {
            let request = Some(request);
            let request = conductor::AttachConsoleRequest { request };
            sender.send(request).await.expect("room");
        }
        let mut client = ConductorServiceClient::new(channel.clone());
        let called = client.attach_console(ReceiverStream::new(received)).await;
        // The client's side is open as long as the sender is kept.
        Ok::<_, Status>((sender, called?.into_inner()))
    };
    let open = |vm: &str| {
        request::Request::Open(request::Open {
            vm: vm.to_owned(),
            // What is left of the session before is not waited for.
            take_over: vm != "vms/b",
            ..Default::default()
        })
    };
    let input = |bytes: &[u8]| request::Request::Input(bytes.to_vec().into());
    let mut bob = open_terminal(&cluster, "bob", "vm console b --interactive");
    type_line(&mut bob, "before");
    runtime.block_on(async {
        for (requests, part) in [
            (vec![input(b"x")], "`open`"),
            (vec![open("a")], "open.vm"),
            (vec![open("vms/a"), open("vms/a")], "open already"),
            (vec![open("vms/a"), input(&[b'x'; 4097])], "4096"),
            (vec![open("vms/b")], "operator:bob"),
        ] {
            let status = match attach(requests).await {
                Err(status) => status,
                Ok((_open, mut session)) => loop {
                    match session.message().await {
                        Err(status) => break status,
                        Ok(message) => assert!(message.is_some(), "no error with {part}"),
                    }
                },
            };
            assert!(status.message().contains(part), "{part}: {status:?}");
        }
        // One that reads nothing, and one that closes at once, hold nothing up.
        let idle = attach(vec![open("vms/a"), input(b"idle\r")])
            .await
            .expect("a session");
        drop(idle);
        let mut tries = 0;
        let (_open, mut session) = loop {
            match attach(vec![open("vms/a")]).await {
                Ok(session) => break session,
                Err(status) => {
                    tries += 1;
                    assert!(tries < 300, "{status:?}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        };
        let first = session
            .message()
            .await
            .expect("a response")
            .expect("it goes on");
        assert!(
            matches!(first.response, Some(Answer::Attached(_))),
            "{first:?}"
        );
    });
    type_line(&mut bob, "after");
}
