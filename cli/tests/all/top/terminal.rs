//! `berth top` on a pseudo terminal, over a cluster of `berth dev`.
//!
//! Goal: the picture follows the cluster without a key, at any size and over the loss of the cluster; what may
//! be outdated says so; and whichever way the program ends, the terminal is as it was. Method: `script` runs
//! a shell on a pseudo terminal; the shell prints its name, runs the program, and prints the modes of the
//! terminal afterwards. What is written is interpreted by a small emulator.
//!
//! Invariant: nothing waits for time to pass, but for a picture. Processes are killed when their owner is
//! dropped.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::emulator::Emulator;

const BERTH: &str = env!("CARGO_BIN_EXE_berth");
/// Far more than anything takes.
const PATIENCE: Duration = Duration::from_secs(90);

/// Waits for a condition.
#[track_caller]
fn eventually<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let begin = Instant::now();
    loop {
        match look() {
            Ok(value) => return value,
            Err(seen) => assert!(begin.elapsed() < PATIENCE, "no {what}:\n{seen}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A whole cluster in a process.
struct Dev {
    child: Child,
    address: String,
    /// Open, since the program ends when it cannot write any more.
    _out: BufReader<ChildStdout>,
}

impl Dev {
    fn start(port: Option<&str>) -> Self {
        let begin = Instant::now();
        loop {
            if let Some(dev) = Self::try_start(port) {
                return dev;
            }
            // A port that was given back may be another process's for a moment.
            assert!(
                port.is_some() && begin.elapsed() < PATIENCE,
                "berth dev ends"
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Starts it; nothing where it ends before it says where its scheduler is.
    fn try_start(port: Option<&str>) -> Option<Self> {
        let mut command = Command::new(BERTH);
        command.args(["dev", "--ephemeral", "--hosts", "2"]);
        command.args(port.iter().flat_map(|port| ["--port", port]));
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("berth dev runs");
        let mut out = BufReader::new(child.stdout.take().expect("its output"));
        let mut lines = out.by_ref().lines().map_while(Result::ok);
        let Some(line) = lines.find(|line| line.contains("run here")) else {
            // It closes its output only at its end.
            child.wait().expect("it ends");
            return None;
        };
        let address = line.split(['(', ')']).nth(1).expect("an address");
        Some(Self {
            address: address.to_owned(),
            child,
            _out: out,
        })
    }

    #[track_caller]
    fn run(&self, line: &str) {
        let mut command = Command::new(BERTH);
        command.args(["--scheduler", &self.address]);
        let output = command.args(line.split(' ')).output().expect("berth runs");
        assert!(output.status.success(), "{line}: {output:?}");
    }

    #[track_caller]
    fn boot(&self, vm: &str, host: &str) {
        self.run(&format!(
            "vm create {vm} --flavor pinned --kernel k --initrd i --host {host}"
        ));
    }

    fn with_flavor(self) -> Self {
        self.run("flavor create pinned --vcpus 2 --memory-mib 64 --spec hw:cpu_policy=dedicated");
        self
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program on a terminal.
struct Top {
    child: Child,
    keys: ChildStdin,
    screen: Arc<Mutex<Emulator>>,
    /// The name of the terminal, as `/dev/pts/3`.
    terminal: String,
    pid: String,
}

impl Top {
    fn start(address: &str, environment: &str) -> Self {
        let shell = format!(
            "tty; stty rows 24 cols 80; \
             sh -c 'echo pid=$$.; exec env {environment} {BERTH} --scheduler {address} top'; \
             echo status=$?; stty -a; echo end."
        );
        let mut command = Command::new("script");
        command.args(["--quiet", "--flush", "--return", "--command", &shell]);
        command.arg("/dev/null").env("SHELL", "/bin/sh");
        command.env_remove("NO_COLOR").env_remove("LC_ALL");
        command.env("TERM", "xterm-256color").env("LANG", "C.UTF-8");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("script runs");
        let mut out = child.stdout.take().expect("its output");
        let screen = Arc::new(Mutex::new(Emulator::new()));
        let shared = screen.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut buffer) {
                shared.lock().unwrap().write(&buffer[..count]);
            }
        });
        let mut top = Self {
            keys: child.stdin.take().expect("its input"),
            child,
            screen,
            terminal: String::new(),
            pid: String::new(),
        };
        let text = top.outside(&["/dev/pts/", "pid=", "."]);
        let name = text.lines().find(|line| line.starts_with("/dev/pts/"));
        top.terminal = name.expect("a name").trim().to_owned();
        let pid = text
            .split("pid=")
            .nth(1)
            .and_then(|rest| rest.split('.').next());
        top.pid = pid.expect("a process id").to_owned();
        top
    }

    fn keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("keys");
        self.keys.flush().expect("keys");
    }

    /// Gives the terminal another size; the kernel signals that to the program.
    fn resize(&self, rows: usize, columns: usize) {
        self.screen.lock().unwrap().resize(rows, columns);
        let (rows, columns) = (rows.to_string(), columns.to_string());
        let mut stty = Command::new("stty");
        stty.args(["-F", &self.terminal, "rows", &rows, "cols", &columns]);
        assert!(stty.status().expect("stty runs").success());
    }

    /// Sends a signal to the program.
    fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        kill.args(["-s", name, &self.pid]);
        assert!(kill.status().expect("kill runs").success());
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().text()
    }

    /// Waits until all of these texts were written beside the pictures.
    #[track_caller]
    fn outside(&self, texts: &[&str]) -> String {
        eventually(&format!("text with {texts:?}"), || {
            let text = self.screen.lock().unwrap().outside.clone();
            match texts.iter().all(|part| text.contains(part)) {
                true => Ok(text),
                false => Err(text),
            }
        })
    }

    /// Waits for a picture with all of these texts.
    #[track_caller]
    fn until(&self, texts: &[&str]) -> String {
        eventually(&format!("picture with {texts:?}"), || {
            let text = self.text();
            match texts.iter().all(|part| text.contains(part)) {
                true => Ok(text),
                false => Err(text),
            }
        })
    }

    /// Checks that the program ended, and left the terminal as it was.
    #[track_caller]
    fn is_restored(&self, status: &str) {
        let text = self.outside(&[status, "end."]);
        let has_lines = [" icanon", " echo ", "isig "]
            .iter()
            .all(|mode| text.contains(mode));
        assert!(has_lines && !text.contains("-icanon"), "{text}");
        let screen = self.screen.lock().unwrap();
        assert!(!screen.is_alternate && !screen.is_cursor_hidden, "{text}");
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Goal: all views at the sizes of a small, a large and a resized terminal, and a VM that is booted, moved
/// and deleted appears in the map without a key.
#[test]
fn the_picture_follows_the_cluster() {
    let dev = Dev::start(None).with_flavor();
    let mut top = Top::start(&dev.address, "A=b");
    let first = top.until(&["live at revision", "leader", "PCPU", "2 UP"]);
    println!("{first}");
    top.until(&["failures of hosts: each of 2"]);
    {
        let screen = top.screen.lock().unwrap();
        assert!(screen.is_alternate && screen.is_cursor_hidden);
    }
    top.keys("2");
    top.until(&["2 of 2 hosts", "HOST", "host-a", "host-b"]);
    top.keys("/host-b\r");
    let filtered = top.until(&["1 of 2 hosts"]);
    assert!(!filtered.contains("host-a"), "{filtered}");
    top.keys("\r");
    let before = top.until(&["host host-b: ", "NUMA node 0", "CPUs"]);
    assert!(!before.contains("owners"), "{before}");
    dev.boot("web", "host-b");
    let map = top.until(&["owners", "A = web (ACTIVE, NUMA node", "[A"]);
    println!("{map}");
    top.keys("\r");
    top.until(&["[vm web]", "vCPU 0 -> CPU", "boot SUCCEEDED"]);
    top.resize(50, 200);
    top.until(&["[vm web]", "its history: berth vm history web"]);
    top.keys("4");
    top.until(&["0 running, 1 ended", "SUCCEEDED"]);
    top.resize(12, 40);
    top.until(&["the terminal is too small", "60 x 10"]);
    top.resize(24, 80);
    top.until(&["0 running, 1 ended"]);
    dev.run("vm migrate web --host host-a");
    top.until(&["live migration", "0 running, 2 ended"]);
    top.keys("3");
    let moved = top.until(&["host host-b: "]);
    assert!(!moved.contains("web"), "{moved}");
    dev.run("vm delete web");
    top.keys("1");
    top.until(&["0 VMs"]);
    top.keys("q");
    top.is_restored("status=0");
}

/// Goal: a picture that may be outdated is marked, and a cluster that is back with other revisions is read
/// afresh. Method: the cluster is killed, and one without its data takes its place.
#[test]
fn a_lost_cluster_is_shown_and_read_again() {
    let dev = Dev::start(None).with_flavor();
    dev.boot("before", "host-a");
    let mut top = Top::start(&dev.address, "A=b");
    top.keys("2");
    top.until(&["live at revision", "2 of 2 hosts"]);
    let address = dev.address.clone();
    drop(dev);
    top.until(&["NO CONNECTION since", "OLD PICTURE", "host-a"]);
    top.until(&[&format!("trying {address}")[..]]);
    let port = address.rsplit(':').next().expect("a port");
    let dev = Dev::start(Some(port)).with_flavor();
    let again = top.until(&["live at revision", "2 of 2 hosts"]);
    assert!(!again.contains("OLD PICTURE"), "{again}");
    dev.boot("after", "host-b");
    top.keys("4");
    let text = top.until(&["0 running, 1 ended", "after"]);
    assert!(!text.contains("before"), "{text}");
}

/// Goal: the terminal is restored whichever way the program is ended.
#[test]
fn the_terminal_is_restored() {
    let dev = Dev::start(None);
    for end in ["\u{3}", "q", "TERM", "INT", "HUP"] {
        let mut top = Top::start(&dev.address, "A=b");
        top.until(&["live at revision"]);
        match end {
            "TERM" | "INT" | "HUP" => top.signal(end),
            key => top.keys(key),
        }
        top.is_restored("status=0");
    }
}

/// Goal: the program ends with its terminal, also where no signal says that it is gone. Method: what holds
/// the other end of the terminal is killed, of a program in the session of the terminal and of one outside.
#[test]
fn the_program_ends_with_its_terminal() {
    let dev = Dev::start(None);
    for environment in ["A=b", "A=b setsid"] {
        let mut top = Top::start(&dev.address, environment);
        top.until(&["live at revision"]);
        top.child.kill().expect("it runs");
        top.child.wait().expect("it ends");
        let process = Path::new("/proc").join(&top.pid);
        eventually("end", || match process.exists() {
            true => Err(format!("{environment}: process {} runs", top.pid)),
            false => Ok(()),
        });
    }
}

/// Goal: `NO_COLOR` is honoured, and a locale that is not UTF-8 gets ASCII.
#[test]
fn colours_and_unicode_can_be_off() {
    let dev = Dev::start(None).with_flavor();
    dev.boot("web", "host-a");
    let map = |environment: &str| {
        let mut top = Top::start(&dev.address, environment);
        top.keys("3");
        let text = top.until(&["A = web", "live at revision", "[A]"]);
        let styles = top.screen.lock().unwrap().styles.clone();
        let is_colour = |number: &str| {
            let number = number.parse().unwrap_or(0);
            matches!(number, 30..=38 | 40..=48 | 90..=107)
        };
        (text, styles.iter().any(|s| s.split(';').any(is_colour)))
    };
    let (text, has_colour) = map("A=b");
    assert!(has_colour && !text.is_ascii(), "{text}");
    let (text, has_colour) = map("NO_COLOR=1 LANG=C");
    assert!(!has_colour && text.is_ascii(), "{text}");
}

/// Goal: where nothing can be drawn, the error says why and what to do instead.
#[test]
fn without_a_terminal_it_is_refused() {
    let dev = Dev::start(None);
    let refused = |words: &[&str]| {
        let mut command = Command::new(BERTH);
        command.args(["--scheduler", &dev.address]).args(words);
        let output = command.stdin(Stdio::null()).output().expect("berth runs");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).expect("UTF-8")
    };
    let text = refused(&["top"]);
    assert!(
        text.contains("(TERMINAL_NEEDED)") && text.contains("hint: `berth watch`"),
        "{text}"
    );
    for words in [&["-o", "json", "top"][..], &["--stale", "top"]] {
        let text = refused(words);
        assert!(text.contains("OPTIONS_CONTRADICT"), "{text}");
    }
    assert!(refused(&["--at", "7", "top"]).contains("REVISION_NOT_A_READ"));
    let top = Top::start(&dev.address, "TERM=dumb");
    top.outside(&["TERM is \"dumb\"", "TERMINAL_NEEDED", "status=1"]);
    top.is_restored("status=1");
}
