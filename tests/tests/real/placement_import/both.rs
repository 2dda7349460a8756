//! A real Placement and a real Berth, beside each other.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use berth_tests::lab::placement_python;
use berth_tests::processes::{Addresses, Answer, Process, Programs, eventually};

use crate::PROGRAMS;

/// A real Placement with a seeded world; see `placement/serve.py`.
pub(crate) struct Source {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    pub(crate) url: String,
    // Goes after the process that was killed, and takes its database along.
    _folder: tempfile::TempDir,
}

impl Source {
    /// Starts it, filled with so many trees of five providers, and consumers.
    pub(crate) fn start(seed: &str, trees: u32, consumers: u32) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("placement/serve.py");
        let folder = tempfile::tempdir().expect("a folder");
        let mut child = Command::new(placement_python())
            .arg(script)
            .arg("--folder")
            .arg(folder.path())
            .args(["--seed", seed])
            .args(["--trees", &trees.to_string()])
            .args(["--consumers", &consumers.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the script starts");
        let mut source = Self {
            commands: child.stdin.take().expect("a pipe"),
            answers: BufReader::new(child.stdout.take().expect("a pipe")),
            child,
            url: String::new(),
            _folder: folder,
        };
        let begun = source.answer();
        let port = begun
            .strip_prefix("listening ")
            .and_then(|b| b.split(' ').next());
        let port = port.unwrap_or_else(|| panic!("{begun:?}"));
        source.url = format!("http://127.0.0.1:{port}");
        source
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line).expect("a line");
        assert!(read > 0, "the script has ended");
        line.trim_end().to_owned()
    }

    /// Has it carry out a command.
    pub(crate) fn obey(&mut self, command: &str) -> String {
        writeln!(self.commands, "{command}").expect("the script reads");
        self.answer()
    }

    /// Compares everything that it answers with what Berth's REST API answers.
    #[track_caller]
    pub(crate) fn is_like(&mut self, berth: &Berth) {
        let said = self.obey(&format!("audit http://{}", berth.rest));
        assert!(said.starts_with("same "), "{said}");
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the first of two ports in a row that nobody listens on, for a scheduler and a
/// conductor. They are below those that outgoing connections take.
fn two_ports() -> u16 {
    static CALLS: AtomicU16 = AtomicU16::new(0);
    let process = u16::try_from(std::process::id() % 1_000).expect("below 1,000");
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    std::iter::repeat_with(|| CALLS.fetch_add(1, Ordering::Relaxed))
        .map(|call| 20_000 + (process * 10 + call * 2) % 10_000)
        .find(|first| free(*first) && free(first + 1))
        .expect("it goes on for ever")
}

/// A Berth without hosts, whose REST API can be read, too.
pub(crate) struct Berth {
    grpc: String,
    pub(crate) rest: String,
    // Ends before its program and its log are taken away.
    _process: Process,
    programs: Programs,
    _folder: tempfile::TempDir,
}

impl Berth {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let programs = Programs::new(PROGRAMS);
        let grpc = two_ports();
        let rest = Addresses::new().free();
        let mut command = programs.command("berth");
        command
            .args(["dev", "--hosts", "0", "--ephemeral"])
            .args(["--port", &grpc.to_string()])
            .args(["--placement-listen", &rest])
            .args(["--placement-profile", "default"]);
        let process = Process::start(command, &folder.path().join("log"));
        let berth = Self {
            grpc: format!("127.0.0.1:{grpc}"),
            rest,
            _process: process,
            programs,
            _folder: folder,
        };
        eventually("an answer of berth", || {
            std::net::TcpStream::connect(&berth.rest).map(drop)
        });
        berth
    }

    /// Returns the command `berth` with these words, asking this scheduler.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.programs.command("berth");
        command
            .args(["--scheduler", &self.grpc])
            .args(words)
            .env("OS_TOKEN", "admin");
        command
    }

    /// Types `berth` and these words, for programs.
    pub(crate) fn berth(&self, words: &[&str]) -> Answer {
        Answer::of(self.command(&[&["--output", "json"], words].concat()))
    }

    /// Imports, and returns what is said of it.
    pub(crate) fn import(&self, source: &Source, options: &[&str]) -> Answer {
        let import = ["placement", "import", "--from", &source.url];
        self.berth(&[&import[..], options].concat())
    }
}
