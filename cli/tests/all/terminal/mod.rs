//! Texts of others on the terminal: nothing that a server sends moves the cursor or forges a row.
//!
//! Goal: whatever any string of any response holds, the output for people has no control character,
//! no line break inside of a row, no character that changes the direction of text and none that is
//! invisible; and it has as many lines as with a text of the same length. JSON keeps the exact text.
//!
//! Method: a server that answers every method with a response made of its descriptor. Every command
//! of the command line is run with ordinary texts first, and then with hostile ones in all strings
//! that the responses had. Where the command refuses the response, as for a name that is no name,
//! each string is hostile alone, and those that are refused are left out; the error that quotes
//! them is checked as well. Alternatives of messages are taken in turn.

mod commands;
mod filters;
mod formats;
mod programs;
mod server;
mod several;
mod shape;
mod tables;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use berth_domain::refusal::{Code, HostRefusal, Refusal};
use berth_process::terminal::{escape, is_hidden};
use berth_proto::status::to_status;
use clap::CommandFactory as _;
use tonic::Status;

use self::commands::{COMMANDS, ELSEWHERE};
use self::server::{Fake, State};
use self::shape::{HOSTILE, Key};

/// In how many ways the alternatives of messages are combined.
const ROUNDS: usize = 3;

/// What a command printed, and how it ended.
#[derive(Debug)]
struct Output {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Output {
    fn is_like(&self, other: &Self) -> bool {
        let lines = |o: &Self| (o.status, o.stdout.lines().count(), o.stderr.lines().count());
        lines(self) == lines(other)
    }

    /// Whether the command could not read a response. Refusals of servers end with their reason.
    fn refuses(&self) -> bool {
        let mut errors = self
            .stderr
            .lines()
            .filter(|line| line.starts_with("error: "));
        errors.any(|line| !line.ends_with(')') || line.contains("(INVALID"))
    }

    fn texts(&self) -> [&str; 2] {
        [&self.stdout, &self.stderr]
    }
}

/// A server in a thread of its own, and what is known of the strings of its responses.
struct Site {
    address: String,
    state: Arc<Mutex<State>>,
    /// Strings that commands refuse when they are hostile.
    checked: BTreeSet<Key>,
    /// Strings that were hostile while a command succeeded.
    free: BTreeSet<Key>,
}

impl Site {
    fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let fake = Fake::new(address.clone());
        let state = fake.state.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                fake.serve(listener).await;
            });
        });
        Self {
            address,
            state,
            checked: BTreeSet::new(),
            free: BTreeSet::new(),
        }
    }

    fn berth(&self, words: &[&str]) -> Output {
        let mut command = Command::new("timeout");
        command.args(["30", env!("CARGO_BIN_EXE_berth")]);
        command.args(["--scheduler", &self.address]).args(words);
        let output = command.stdin(Stdio::null()).output().expect("berth runs");
        Output {
            status: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }

    /// Runs a command with a text behind each of these strings.
    fn run(&self, words: &[&str], strings: BTreeSet<Key>, behind: &str) -> Output {
        let set = |strings, behind: &str| {
            let shape = &mut self.state.lock().unwrap().shape;
            (shape.hostile, shape.behind) = (strings, behind.to_owned());
        };
        set(strings, behind);
        let output = self.berth(words);
        set(BTreeSet::new(), HOSTILE);
        output
    }

    /// Runs a command with these strings hostile, and checks what it printed.
    fn hostile(&self, words: &[&str], hostile: BTreeSet<Key>) -> Output {
        let output = self.run(words, hostile, HOSTILE);
        for text in output.texts() {
            let hidden = text.chars().find(|c| *c != '\n' && is_hidden(*c));
            assert_eq!(hidden, None, "{words:?} prints it raw: {output:?}");
        }
        output
    }

    /// Runs a command with ordinary and with hostile responses; returns whether a hostile text
    /// was printed.
    ///
    /// # Errors
    ///
    /// The command refuses an ordinary response: the shape is wrong, and nothing is proved.
    fn compare(&mut self, words: &[&str], round: usize) -> Result<bool, String> {
        {
            let mut state = self.state.lock().unwrap();
            state.shape.round = round;
            state.sent.clear();
        }
        let ordinary = self.berth(words);
        assert_ne!(
            ordinary.status,
            Some(124),
            "{words:?} in round {round} does not end"
        );
        if ordinary.refuses() {
            return Err(format!("{words:?} in round {round}: {}", ordinary.stderr));
        }
        let sent = self.state.lock().unwrap().sent.clone();
        let mut all: BTreeSet<Key> = sent.difference(&self.checked).cloned().collect();
        let mut output = self.hostile(words, all.clone());
        if output.refuses() {
            self.check_alone(words, &all);
            all.retain(|key| !self.checked.contains(key));
            output = self.hostile(words, all.clone());
        }
        if !output.is_like(&ordinary) {
            // What is escaped is longer, and long lines are wrapped: the same text, escaped already.
            let escaped = self.run(words, all.clone(), &escape(HOSTILE));
            let texts = format!("escaped: {escaped:#?}\nhostile: {output:#?}");
            let is_alike = output.is_like(&escaped);
            assert!(is_alike, "{words:?} in round {round}: {texts}");
        }
        self.free.extend(all);
        Ok(output
            .texts()
            .iter()
            .any(|text| text.contains(r"\u{1b}[2J")))
    }

    /// Finds the strings that a command refuses when they are hostile. The error that quotes them has
    /// one line.
    fn check_alone(&mut self, words: &[&str], all: &BTreeSet<Key>) {
        for key in all.iter().cloned() {
            let output = self.hostile(words, BTreeSet::from([key.clone()]));
            if output.refuses() {
                let errors = output
                    .stderr
                    .lines()
                    .skip_while(|line| !line.starts_with("error: "));
                assert_eq!(errors.count(), 1, "{words:?} with {key:?}: {output:#?}");
                self.free.remove(&key);
                self.checked.insert(key);
            }
        }
    }
}

/// Returns the commands that have no subcommands, as they are typed.
fn leaves(command: &clap::Command, within: &str, all: &mut Vec<String>) {
    let mut subcommands = command
        .get_subcommands()
        .filter(|c| c.get_name() != "help")
        .peekable();
    if subcommands.peek().is_none() {
        all.push(within.trim().to_owned());
    }
    for subcommand in subcommands {
        leaves(
            subcommand,
            &format!("{within} {}", subcommand.get_name()),
            all,
        );
    }
}

#[test]
fn every_command_is_tested_or_named() {
    let mut all = Vec::new();
    leaves(&berth_cli::arguments::Arguments::command(), "", &mut all);
    let covered = |leaf: &str| {
        let is_it = |typed: &&str| *typed == leaf || typed.starts_with(&format!("{leaf} "));
        COMMANDS.iter().any(is_it) || ELSEWHERE.iter().any(|(named, _)| *named == leaf)
    };
    let missing: Vec<&String> = all.iter().filter(|leaf| !covered(leaf)).collect();
    assert!(missing.is_empty(), "commands without a case: {missing:?}");
    assert!(
        all.len() > 80,
        "the command line is where this test looks for it"
    );
}

/// What commands have shown of hostile responses.
#[derive(Default)]
struct Seen {
    /// The commands that showed something.
    shown: BTreeSet<&'static str>,
    /// Ordinary responses that were refused.
    wrong: Vec<String>,
    checked: BTreeSet<Key>,
    free: BTreeSet<Key>,
}

impl Seen {
    /// Runs commands at a server of their own.
    fn of(commands: impl Iterator<Item = &'static str>) -> Self {
        let mut site = Site::start();
        let mut seen = Self::default();
        for typed in commands {
            let words: Vec<&str> = typed.split(' ').collect();
            // Each kind of record in turn.
            let rounds = if typed == "watch" { 6 } else { ROUNDS };
            for round in 0..rounds {
                match site.compare(&words, round) {
                    Ok(true) => {
                        seen.shown.insert(typed);
                    }
                    Ok(false) => {}
                    Err(refused) => seen.wrong.push(refused),
                }
            }
        }
        Self {
            checked: site.checked,
            free: site.free,
            ..seen
        }
    }

    fn join(mut self, mut other: Self) -> Self {
        self.shown.append(&mut other.shown);
        self.wrong.append(&mut other.wrong);
        self.checked.append(&mut other.checked);
        self.free.append(&mut other.free);
        self
    }
}

/// The number of servers at which the commands run at the same time: most of them wait.
const SITES: usize = 6;

#[test]
fn no_text_of_a_response_reaches_the_terminal_raw() {
    let seen = std::thread::scope(|scope| {
        let share = |at: usize| COMMANDS.iter().copied().skip(at).step_by(SITES);
        let sites = (0..SITES).map(|at| scope.spawn(move || Seen::of(share(at))));
        let sites: Vec<_> = sites.collect();
        let seen = sites.into_iter().map(|site| site.join().expect("seen"));
        seen.fold(Seen::default(), Seen::join)
    });
    assert!(
        seen.wrong.is_empty(),
        "ordinary responses are refused:\n{}",
        seen.wrong.join("\n")
    );
    let silent: Vec<_> = COMMANDS
        .iter()
        .filter(|c| !seen.shown.contains(*c))
        .collect();
    println!(
        "{} strings may hold anything, {} are checked; of {} commands {} show none: {silent:?}",
        seen.free.len(),
        seen.checked.len(),
        COMMANDS.len(),
        silent.len()
    );
    assert!(
        seen.free.len() > 100 && seen.shown.len() > 40,
        "too little is shown to prove anything"
    );
}

/// Goal: the same of errors, hints, causes and hosts, as they come in a status.
#[test]
fn no_text_of_a_status_reaches_the_terminal_raw() {
    let site = Site::start();
    let refusal = |text: &str| {
        let mut refusal = Refusal::new(
            Code::FailedPrecondition,
            &format!("REASON{text}"),
            format!("no{text}"),
        )
        .with_hint(format!("do{text}"));
        refusal.causes.insert(format!("cause{text}"), 2);
        let message = format!("full{text}");
        refusal.hosts = vec![HostRefusal {
            message,
            ..commands::host_refusal()
        }];
        refusal
    };
    type Make<'a> = &'a dyn Fn(&str) -> Status;
    let of_ours: Make<'_> = &|text| to_status(&refusal(text));
    let of_others: Make<'_> = &|text| Status::aborted(format!("no{text}"));
    for make in [of_ours, of_others] {
        let refused = |text: &str, words: &[&str]| {
            site.state.lock().unwrap().refusal = Some(make(text));
            site.hostile(words, BTreeSet::new())
        };
        let ordinary = refused("", &["vm", "list"]);
        let hostile = refused(HOSTILE, &["vm", "list"]);
        assert!(hostile.is_like(&ordinary), "{ordinary:#?}\n{hostile:#?}");
        assert!(hostile.stderr.contains(r"no\u{1b}[2J"), "{hostile:#?}");
        site.state.lock().unwrap().refusal = Some(make(HOSTILE));
        let exact = site.berth(&["-o", "json", "vm", "list"]);
        let value: serde_json::Value = serde_json::from_str(&exact.stderr).expect("JSON");
        assert_eq!(value["error"]["message"], format!("no{HOSTILE}"));
        assert_eq!(exact.stderr.lines().count(), 1, "one object on one line");
    }
}

/// Goal: the same of the address of a conductor that cannot be dialled.
#[test]
fn no_address_reaches_the_terminal_raw() {
    let site = Site::start();
    site.state.lock().unwrap().shape.address = format!("127.0.0.1:1{HOSTILE}");
    let output = site.hostile(&["vm", "stop", "x"], BTreeSet::new());
    assert_eq!(output.status, Some(3), "{output:#?}");
    assert_eq!(
        output.stderr.lines().count(),
        2,
        "error and hint: {output:#?}"
    );
    assert!(
        output.stderr.contains(r"127.0.0.1:1\u{1b}[2J"),
        "{output:#?}"
    );
}

/// Goal: a conductor that is lost before it answers is reported as what it is, whichever command called
/// it: whether the request is carried out is unknown, and the hint says how to find out.
/// Method: every command, with a conductor that closes each connection once a request has come.
#[test]
fn a_lost_conductor_is_an_unknown_outcome() {
    let site = Site::start();
    let (conductor, calls) = lossy_conductor();
    site.state
        .lock()
        .unwrap()
        .shape
        .address
        .clone_from(&conductor);
    let (mut begun, mut repeated) = (0, 0);
    for command in COMMANDS {
        let before = calls.load(Ordering::SeqCst);
        let words: Vec<&str> = command.split_whitespace().collect();
        let output = site.berth(&words);
        if calls.load(Ordering::SeqCst) == before {
            continue;
        }
        if *command == "doctor" {
            // A conductor that is lost is one of its findings.
            assert_eq!(output.status, Some(1), "{output:#?}");
            let finding = format!("http://{conductor}: ");
            assert!(output.stdout.contains(&finding), "{output:#?}");
            continue;
        }
        assert_eq!(output.status, Some(3), "{command}: {output:#?}");
        let is_read = output.stderr.contains("(STREAM_BROKEN)");
        let is_unknown =
            output.stderr.contains("(OUTCOME_UNKNOWN)") && output.stderr.contains("\nhint: ");
        assert!(is_read != is_unknown, "{command}: {output:#?}");
        begun += u32::from(is_unknown);
        // The hint names the request id that was sent: the command is repeated with it.
        let Some((_, repeat)) = output.stderr.split_once("--request-id ") else {
            continue;
        };
        let id = repeat.split_whitespace().next().unwrap();
        let again = site.berth(&[&words[..], &["--request-id", id]].concat());
        assert_eq!(again.stderr, output.stderr, "{command}");
        repeated += 1;
    }
    assert!(begun >= 16, "{begun} commands that change something");
    assert!(
        repeated >= 14,
        "{repeated} that can be repeated, of {begun}"
    );
}

/// Starts a conductor that closes each connection once a request has come; it counts them.
fn lossy_conductor() -> (String, Arc<AtomicUsize>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            counted.fetch_add(1, Ordering::SeqCst);
            let _ = read_request(connection.unwrap());
        }
    });
    (address, calls)
}

/// Reads frames of HTTP/2 up to the head of the first request.
fn read_request(mut connection: std::net::TcpStream) -> std::io::Result<()> {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const HEADERS: u8 = 1;
    connection.write_all(&SETTINGS)?;
    connection.read_exact(&mut [0; 24])?;
    loop {
        let mut head = [0; 9];
        connection.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut frame = (&connection).take(length.into());
        std::io::copy(&mut frame, &mut std::io::sink())?;
        if head[3] == HEADERS {
            return Ok(());
        }
    }
}

/// Goal: programs get the exact text, and JSON that is valid.
#[test]
fn json_keeps_the_exact_text() {
    let site = Site::start();
    let key = (
        "berth.placement.v1.ResourceProvider".to_owned(),
        "display_name".to_owned(),
    );
    site.state.lock().unwrap().shape.hostile = BTreeSet::from([key]);
    let output = site.berth(&["-o", "json", "provider", "list"]);
    let value: serde_json::Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert!(value.to_string().contains("\u{202e}"), "{value}");
    let is_exact = value[0]["name"]
        .as_str()
        .is_some_and(|name| name.ends_with(HOSTILE));
    assert!(is_exact, "{value}");
    let raw = output.stdout.chars().find(|c| *c != '\n' && c.is_control());
    assert_eq!(raw, None, "control characters are escaped in JSON");
}
