//! The host's own programs when they are not what they should be: missing, failing, hanging, talking
//! nonsense. In their place are scripts that say what is wished.
//!
//! What this is not: a proof that real namespaces are erased; the guest with NVDIMMs shows that.
//! A device is needed that is there on every machine and harmless: `/dev/full`, under the name of
//! a DAX device by a link in a directory of the test.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use berth_pmem::memory::Failure;
use berth_pmem::real::Settings;
use berth_pmem::versions::Part;
use berth_pmem::{Configured, EraseId, Order, Pmem as _, Progress, Real, State};

/// Three pieces of 64 KiB.
const LISTING: &str = r#"[{"dev":"namespace0.0","mode":"devdax","size":196608,"align":4096,
    "uuid":"d116688c-e9dd-41d3-8414-a14758530137","chardev":"dax0.0","name":"ns0"}]"#;

/// What daxio says when all went well.
const COPIED: &str = "echo \"daxio: copied $7 bytes to device\" >&2";

/// A host whose programs are scripts.
struct Host {
    directory: tempfile::TempDir,
    settings: Settings,
}

impl Host {
    fn new(ndctl: &str, daxio: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path("dev")).unwrap();
        symlink("/dev/full", path("dev/dax0.0")).unwrap();
        // A host without processes: tests that run at the same time would be looked into, and
        // may not let themselves be.
        fs::create_dir_all(path("proc/sys/kernel")).unwrap();
        fs::write(path("proc/sys/kernel/osrelease"), "6.1.0-28-cloud-amd64\n").unwrap();
        let settings = Settings {
            ndctl: script(&path("ndctl"), ndctl),
            daxio: script(&path("daxio"), daxio),
            devices: path("dev"),
            proc: path("proc"),
            tell_limit: Duration::from_secs(60),
            piece_bytes: 65_536,
            piece_limit: Duration::from_secs(60),
            parallel: 1,
        };
        Self {
            directory,
            settings,
        }
    }

    /// With programs that do what they should; the second writes down what it is given.
    fn good() -> Self {
        let daxio = format!("echo \"$@\" >> \"$(dirname \"$0\")/log\"; {COPIED}");
        Self::new(&format!("cat <<'END'\n{LISTING}\nEND"), &daxio)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn start(&self) -> Real {
        let configured = Configured::parse("SMALL:ns0").unwrap();
        Real::new(configured, self.settings.clone())
    }

    fn log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Erases, and tells how that ended.
    fn erase(&self) -> Progress {
        let pmem = self.start();
        pmem.start_erase(&order(1)).unwrap();
        ended(&pmem)
    }

    fn failure(&self) -> Failure {
        let progress = self.erase();
        let State::Failed(failure) = progress.state else {
            panic!("{progress:?}");
        };
        failure
    }
}

fn script(path: &Path, text: &str) -> PathBuf {
    // Written by a process of its own: a descriptor of ours that is open for writing may be
    // inherited by a program that another thread starts, and then the script cannot run.
    let written = std::process::Command::new("/bin/sh")
        .args(["-c", "printf '%s\\n' \"$1\" > \"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .arg(format!("#!/bin/sh\n{text}"))
        .status();
    assert!(written.unwrap().success());
    path.to_owned()
}

fn order(id: u128) -> Order {
    Order {
        id: EraseId(id),
        namespace: "ns0".to_owned(),
        resume: None,
    }
}

fn wait(pmem: &Real, wanted: impl Fn(&Progress) -> bool) -> Progress {
    loop {
        let progress = pmem.erase("ns0").unwrap();
        if wanted(&progress) {
            return progress;
        }
        thread::yield_now();
    }
}

fn ended(pmem: &Real) -> Progress {
    wait(pmem, |progress| !progress.state.is_active())
}

#[test]
fn it_is_erased_piece_by_piece() {
    let host = Host::good();
    let progress = host.erase();
    assert_eq!(progress.state, State::Done);
    assert_eq!(
        (progress.done_bytes, progress.size_bytes),
        (196_608, 196_608)
    );
    let device = host.path("dev/dax0.0");
    let expected: Vec<String> = [0, 65_536, 131_072]
        .iter()
        .map(|seek| {
            let device = device.display();
            format!("--zero --output {device} --seek {seek} --len 65536")
        })
        .collect();
    assert_eq!(host.log(), expected);
}

#[test]
fn the_last_piece_is_what_is_left_and_pieces_are_aligned() {
    let mut host = Host::good();
    host.settings.piece_bytes = 70_000;
    assert_eq!(host.erase().state, State::Done);
    let ends: Vec<String> = host
        .log()
        .iter()
        .map(|line| line.split_once("--seek ").unwrap().1.to_owned())
        .collect();
    let expected = ["0 --len 73728", "73728 --len 73728", "147456 --len 49152"];
    assert_eq!(ends, expected);
}

#[test]
fn versions_are_asked_and_what_does_not_answer_is_told() {
    let mut host = Host::new("echo 76.1", "echo 1.12.1");
    let own = [Part::Linux, Part::Ndctl, Part::Daxio];
    assert_eq!(host.start().versions().check_parts(&own), Ok(()));
    let whole = host.start().versions().with_hypervisor("7.2.22", "9.0.0");
    assert_eq!(whole.check(), Ok(()));
    host.settings.ndctl = host.path("absent");
    host.settings.daxio = script(&host.path("bad"), "echo no such option >&2; exit 3");
    fs::write(host.path("proc/sys/kernel/osrelease"), "4.17.0\n").unwrap();
    let said = host.start().versions().check_parts(&own).unwrap_err();
    let directory = host.directory.path().display();
    assert_eq!(
        said.to_string(),
        format!(
            "Linux is 4.17.0; 4.18 or newer is needed; ndctl 62 or newer is needed: there is no \
             program {directory}/absent; is it installed?; daxio 1.6 or newer is needed: \
             {directory}/bad ended with exit status 3: no such option"
        )
    );
}

#[test]
fn a_listing_that_cannot_be_had_is_told() {
    for (ndctl, expected) in [
        ("echo Killed", "ndctl list did not print JSON"),
        ("echo 'x' >&2; exit 9", "/ndctl ended with exit status 9: x"),
        ("kill -11 $$", "/ndctl was ended by signal 11"),
        ("echo 5", "printed JSON that is no list of namespaces"),
        ("yes", "/ndctl printed more than 8388608 bytes"),
        ("yes >&2", "/ndctl printed more than 8388608 bytes"),
    ] {
        let host = Host::new(ndctl, COPIED);
        let said = host.start().discover().unwrap_err().to_string();
        assert!(said.contains(expected), "{ndctl}: {said}");
        let said = host.failure().to_string();
        assert!(said.starts_with("cannot erase: "), "{said}");
        assert!(said.contains(expected), "{ndctl}: {said}");
    }
    let mut host = Host::good();
    host.settings.ndctl = host.directory.path().to_owned();
    let said = host.start().discover().unwrap_err().to_string();
    assert!(
        said.contains("cannot run ") && said.contains("ermission"),
        "{said}"
    );
}

#[test]
fn a_program_that_hangs_is_killed_with_all_that_it_started() {
    // The child of the script keeps the pipe open, and says who it is.
    let hangs = "sleep 1000 & echo $! > \"$(dirname \"$0\")/child\"; wait";
    let mut host = Host::new(hangs, COPIED);
    host.settings.tell_limit = Duration::from_millis(1);
    // Until the child has written down its number.
    let child = loop {
        let said = host.start().discover().unwrap_err().to_string();
        assert!(said.contains("did not end within"), "{said}");
        let child = fs::read_to_string(host.path("child")).unwrap_or_default();
        if child.ends_with('\n') {
            break child.trim().to_owned();
        }
        host.settings.tell_limit *= 2;
    };
    let state = || fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
    while !state().is_empty() && !state().contains(") Z ") {
        thread::yield_now();
    }
}

#[test]
fn an_eraser_that_fails_hangs_or_says_nothing_is_told() {
    for (daxio, expected) in [
        (
            "echo 'daxio: failed to open' >&2; exit 1",
            "ended with exit status 1: daxio: failed to open",
        ),
        ("exit 0", "and printed: \"\""),
        (
            "echo 'daxio: copied 4096 bytes to device' >&2",
            "printed: \"daxio: copied 4096 bytes",
        ),
        (
            "echo \"daxio: copied $7 bytes to device\"",
            "and printed: \"\"",
        ),
    ] {
        let host = Host::new(&format!("cat <<'END'\n{LISTING}\nEND"), daxio);
        let said = host.failure().to_string();
        assert!(said.contains(expected), "{daxio}: {said}");
    }
    let mut host = Host::new(&format!("cat <<'END'\n{LISTING}\nEND"), "exec sleep 1000");
    host.settings.piece_limit = Duration::from_millis(50);
    let said = host.failure().to_string();
    assert!(
        said.contains("daxio did not end within 0 s and was killed"),
        "{said}"
    );
    host.settings.daxio = host.path("absent");
    assert!(host.failure().to_string().contains("there is no program"));
}

#[test]
fn one_that_failed_goes_on_where_it_was() {
    let fails = format!(
        "[ \"$5\" = 131072 ] && [ ! -e \"$(dirname \"$0\")/go\" ] && exit 1; \
         echo \"$5\" >> \"$(dirname \"$0\")/log\"; {COPIED}"
    );
    let host = Host::new(&format!("cat <<'END'\n{LISTING}\nEND"), &fails);
    let pmem = host.start();
    pmem.start_erase(&order(1)).unwrap();
    let failed = ended(&pmem);
    assert_eq!(failed.done_bytes, 131_072);
    assert!(matches!(failed.state, State::Failed(_)));
    fs::write(host.path("go"), "").unwrap();
    let again = pmem.start_erase(&order(1)).unwrap();
    assert_eq!((again.done_bytes, again.state), (131_072, State::Queued));
    assert_eq!(ended(&pmem).state, State::Done);
    assert_eq!(host.log(), ["0", "65536", "131072"]);
}

#[test]
fn a_device_that_goes_is_not_made_as_a_file() {
    let host = Host::good();
    let gone = format!("rm -f \"$(dirname \"$0\")/dev/dax0.0\"; {COPIED}");
    script(&host.path("daxio"), &gone);
    let said = host.failure().to_string();
    assert!(
        said.contains("ns0") && said.ends_with("is missing"),
        "{said}"
    );
    assert!(!host.path("dev/dax0.0").exists());
    let said = host.failure().to_string();
    assert!(said.ends_with("is missing"), "{said}");
    fs::write(host.path("dev/dax0.0"), "").unwrap();
    let said = host.failure().to_string();
    assert!(
        said.ends_with("dev/dax0.0 is not a character device"),
        "{said}"
    );
}

#[test]
fn what_is_stopped_or_dropped_does_not_write_any_more() {
    let waits = "echo $$ >> \"$(dirname \"$0\")/log\"; exec sleep 1000";
    let host = Host::new(&format!("cat <<'END'\n{LISTING}\nEND"), waits);
    let ends = |pmem: Real, end: fn(&Real)| {
        let before = host.log().len();
        pmem.start_erase(&order(1)).unwrap();
        while host.log().len() == before {
            thread::yield_now();
        }
        end(&pmem);
        let progress = pmem.erase("ns0");
        drop(pmem);
        let pid = host.log().pop().unwrap();
        assert!(!Path::new("/proc").join(pid).exists());
        progress.unwrap().state
    };
    let stopped = ends(host.start(), |pmem| pmem.abort_erase("ns0"));
    assert_eq!(stopped, State::Aborted);
    assert_eq!(ends(host.start(), |_| ()), State::Erasing);
}

#[test]
fn a_queued_one_is_stopped_too() {
    let listing = LISTING.replace("[{", "[{\"dev\":\"namespace0.1\",\"mode\":\"devdax\",\"size\":4096,\"align\":4096,\"chardev\":\"dax0.1\",\"name\":\"ns1\"},{");
    let host = Host::new(&format!("cat <<'END'\n{listing}\nEND"), "exec sleep 1000");
    let configured = Configured::parse("SMALL:ns0|ns1").unwrap();
    let pmem = Real::new(configured, host.settings.clone());
    pmem.start_erase(&order(1)).unwrap();
    wait(&pmem, |progress| progress.state == State::Erasing);
    let mut other = order(2);
    other.namespace = "ns1".to_owned();
    let queued = pmem.start_erase(&other).unwrap();
    assert_eq!(queued.state, State::Queued);
    assert_eq!(queued.mark(), None);
    pmem.abort_erase("ns1");
    assert_eq!(pmem.erase("ns1").unwrap().state, State::Aborted);
    pmem.abort_erase("ns0");
    assert_eq!(pmem.erase("ns0").unwrap().state, State::Aborted);
}

/// Puts a process into the host's `/proc` that has the device open.
fn hold(host: &Host, pid: u32, line: &str) -> PathBuf {
    let process = host.path("proc").join(pid.to_string());
    fs::create_dir_all(process.join("fd")).unwrap();
    fs::write(process.join("comm"), "holder\n").unwrap();
    fs::write(process.join("cmdline"), line).unwrap();
    symlink("/dev/full", process.join("fd/3")).unwrap();
    process
}

#[test]
fn what_somebody_holds_is_not_erased_nor_told_to_be() {
    let host = Host::good();
    let process = hold(&host, 4711, "guest");
    let said = host.failure().to_string();
    let device = host.path("dev/dax0.0").display().to_string();
    assert_eq!(said, format!("{device} is held by process 4711 (holder)"));
    assert_eq!(host.log(), Vec::<String>::new());
    fs::remove_dir_all(&process).unwrap();
    // Opened while it was erased: all of it is to be erased again.
    let opens = format!(
        "mkdir -p \"$(dirname \"$0\")/proc/99/fd\"; \
         ln -sf /dev/full \"$(dirname \"$0\")/proc/99/fd/3\"; {COPIED}"
    );
    script(&host.path("daxio"), &opens);
    let progress = host.erase();
    assert!(matches!(
        progress.state,
        State::Failed(Failure::Held { .. })
    ));
    assert_eq!(progress.done_bytes, 0);
}

#[test]
fn an_eraser_that_was_left_behind_is_waited_for() {
    let host = Host::good();
    let device = host.path("dev/dax0.0");
    let line = format!("daxio\0--zero\0--output\0{}\0", device.display());
    let process = hold(&host, 4711, &line);
    let pmem = host.start();
    pmem.start_erase(&order(1)).unwrap();
    wait(&pmem, |progress| progress.size_bytes > 0);
    assert_eq!(host.log(), Vec::<String>::new());
    // All of it at once: without its command line it would be somebody else.
    fs::rename(&process, host.path("proc/ended")).unwrap();
    assert_eq!(ended(&pmem).state, State::Done);
    // One that does not end is told, and keeps what was done.
    let mut host = host;
    host.settings.piece_limit = Duration::from_millis(1);
    hold(&host, 4711, &line);
    let pmem = host.start();
    let mut resumed = order(1);
    resumed.resume = Some(berth_pmem::Mark {
        uuid: "d116688c-e9dd-41d3-8414-a14758530137".to_owned(),
        size_bytes: 196_608,
        done_bytes: 65_536,
    });
    pmem.start_erase(&resumed).unwrap();
    let progress = ended(&pmem);
    assert!(matches!(
        progress.state,
        State::Failed(Failure::Held { .. })
    ));
    assert_eq!(progress.done_bytes, 65_536);
}

#[test]
fn nothing_of_our_environment_reaches_the_programs() {
    let host = Host::new("env > \"$(dirname \"$0\")/env\"; echo []", COPIED);
    host.start().discover().unwrap();
    let found = fs::read_to_string(host.path("env")).unwrap();
    let mut names: Vec<&str> = found
        .lines()
        .filter_map(|l| Some(l.split_once('=')?.0))
        .collect();
    // The shell adds these by itself.
    names.retain(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name));
    names.sort_unstable();
    assert_eq!(names, ["LC_ALL", "PATH"]);
}

#[test]
fn calls_of_several_threads_do_not_wait_for_an_erase() {
    let host = Host::new(&format!("cat <<'END'\n{LISTING}\nEND"), "exec sleep 1000");
    let pmem = host.start();
    pmem.start_erase(&order(1)).unwrap();
    wait(&pmem, |progress| progress.state == State::Erasing);
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..4 {
            let (tell, pmem) = (tell.clone(), &pmem);
            scope.spawn(move || tell.send(pmem.discover().unwrap().usable.len()).unwrap());
        }
        for _ in 0..4 {
            assert_eq!(told.recv().unwrap(), 1);
        }
    });
    assert_eq!(pmem.erase("ns0").unwrap().state, State::Erasing);
}
