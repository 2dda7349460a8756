//! Goal: a simulated hypervisor in a real process holds what every driver is held to, keeps its
//! guests over a restart, and never lets a guest run twice when a connection breaks.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use berth_domain::agent::DomainState;
use berth_domain::cpu_set::CpuId;
use berth_domain::instance::{PageSize, VcpuId};
use berth_driver::conformance::{self, Pair, encryption, sample};
use berth_driver::sim::SimDriver;
use berth_driver::sim::driver::Config;
use berth_driver::sim::wire::{self, Message};
use berth_driver::{DomainSpec, Driver, Error, Force, Sending};

fn start(transfer_ms: u64) -> SimDriver {
    start_with(transfer_ms, &["aes"])
}

/// Starts a hypervisor with a CPU that has these features beyond its model's.
fn start_with(transfer_ms: u64, features: &[&str]) -> SimDriver {
    SimDriver::start(Config {
        cpu: Some(sample::cpu(features)),
        transfer: Duration::from_millis(transfer_ms),
        ..Config::new(sample::host(2))
    })
    .unwrap()
}

fn guest(number: u32) -> DomainSpec {
    let spec = sample::pinned_spec(2, PageSize::Kib(2048));
    sample::domain(
        "a",
        number.into(),
        spec,
        sample::pins(0, &[1, 2], Some(2048)),
    )
}

fn moved(guest: &DomainSpec) -> DomainSpec {
    DomainSpec {
        assignment: sample::pins(1, &[6, 5], Some(2048)),
        ..guest.clone()
    }
}

fn impossible(guest: &DomainSpec) -> DomainSpec {
    let mut guest = guest.clone();
    guest.assignment.cells[0].pins.insert(VcpuId(0), CpuId(900));
    guest
}

fn wait(mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < end, "waited in vain");
        thread::yield_now();
    }
}

#[test]
fn it_conforms() {
    let (source, destination) = (start_with(150, &["aes", "avx2"]), start_with(150, &["aes"]));
    conformance::run(&Pair {
        source: &source,
        destination: &destination,
        guest: &guest,
        moved: &moved,
        impossible: &impossible,
        crash_at_destination: Some(&|vm| destination.crash(vm)),
        unreachable_uri: "sim+tcp://127.0.0.1:1",
        closed_uri: "sim+tcp://127.0.0.1:1",
        can_type: true,
        patience: Duration::from_secs(20),
    });
}

/// Method: either side is set up without encryption.
#[test]
fn a_guest_that_cannot_be_encrypted_stays_where_it_is() {
    let unable = || {
        SimDriver::start(Config {
            can_encrypt: false,
            ..Config::new(sample::host(2))
        })
        .unwrap()
    };
    let (able, unable) = (start(10), unable());
    for (source, destination) in [(&able, &unable), (&unable, &able)] {
        let pair = Pair {
            source,
            destination,
            guest: &guest,
            moved: &moved,
            impossible: &impossible,
            crash_at_destination: None,
            unreachable_uri: "sim+tcp://127.0.0.1:1",
            closed_uri: "sim+tcp://127.0.0.1:1",
            can_type: true,
            patience: Duration::from_secs(20),
        };
        encryption::a_guest_that_cannot_be_encrypted_stays(&pair, &unable);
    }
}

#[test]
fn pages_that_are_taken_are_refused_and_come_back() {
    let driver = start(10);
    let big = |number, name: &str, cpu| {
        let spec = sample::pinned_spec(1, PageSize::Kib(2048));
        sample::domain(name, number, spec, sample::pins(0, &[cpu], Some(2048)))
    };
    driver.create(&big(1, "a", 1)).unwrap();
    driver.create(&big(2, "b", 2)).unwrap();
    let refused = driver.create(&big(3, "c", 3)).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("cell 0 has 0 free pages of 2048 KiB, 64 are needed")
    );
    driver.destroy(big(1, "a", 1).uid).unwrap();
    driver.create(&big(3, "c", 3)).unwrap();
}

#[test]
fn guests_are_there_again_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let config = || Config {
        state_file: Some(directory.path().join("guests.json")),
        ..Config::new(sample::host(2))
    };
    let driver = SimDriver::start(config()).unwrap();
    let with_cpu = DomainSpec {
        cpu: Some(sample::cpu(&["aes"]).host_model),
        ..guest(1)
    };
    driver.create(&with_cpu).unwrap();
    drop(driver);
    let driver = SimDriver::start(config()).unwrap();
    assert_eq!(driver.domains().unwrap()[0].domain, with_cpu);
    assert_eq!(
        driver.domain(guest(1).uid).unwrap().state,
        DomainState::Running
    );
    std::fs::write(directory.path().join("guests.json"), "{").unwrap();
    assert!(SimDriver::start(config()).is_err(), "a damaged file");
}

/// Method: a peer that takes everything and hangs up instead of answering, on each break point.
#[test]
fn a_guest_whose_fate_is_unknown_does_not_run_here_until_the_other_side_has_said() {
    let source = start(1);
    source.create(&guest(1)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("sim+tcp://{}", listener.local_addr().unwrap());
    let vm = guest(1).uid;
    thread::scope(|scope| {
        let sending =
            scope.spawn(|| source.migrate(vm, &uri, &moved(&guest(1)), &Sending::default()));
        let (mut stream, _) = listener.accept().unwrap();
        assert!(matches!(
            wire::receive(&mut stream).unwrap(),
            Message::Offer { .. }
        ));
        wire::send(&mut stream, &Message::Accepted).unwrap();
        while !matches!(wire::receive(&mut stream).unwrap(), Message::Go { .. }) {}
        drop(stream);
        // It asks; as long as the answer is not definite the guest stands still here.
        let (mut stream, _) = listener.accept().unwrap();
        assert_eq!(wire::receive(&mut stream).unwrap(), Message::Query { vm });
        assert_eq!(source.domain(vm).unwrap().state, DomainState::MigratingOut);
        let receiving = DomainState::MigratingIn;
        wire::send(&mut stream, &Message::Has { state: receiving }).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        wire::receive(&mut stream).unwrap();
        assert_eq!(source.domain(vm).unwrap().state, DomainState::MigratingOut);
        let absent = DomainState::Absent;
        wire::send(&mut stream, &Message::Has { state: absent }).unwrap();
        let sent = sending.join().unwrap();
        assert!(matches!(sent, Err(Error::Refused { .. })), "{sent:?}");
    });
    assert_eq!(source.domain(vm).unwrap().state, DomainState::Running);
}

/// Method: a source that offers a guest and is killed in the middle; one that nobody expects; and
/// noise.
#[test]
fn a_destination_gives_up_what_breaks_and_refuses_what_it_does_not_expect() {
    let destination = start(1);
    let uri = destination.info().unwrap().migration_uri;
    let address = uri.strip_prefix("sim+tcp://").unwrap().to_owned();
    let offer = Message::Offer {
        domain: Box::new(guest(1)),
        active_percent: None,
        tls: false,
    };
    let mut stream = TcpStream::connect(&address).unwrap();
    wire::send(&mut stream, &offer).unwrap();
    let answer = wire::receive(&mut stream).unwrap();
    assert!(matches!(answer, Message::Refused { .. }), "{answer:?}");

    destination.prepare_incoming(&guest(1), &[]).unwrap();
    let mut stream = TcpStream::connect(&address).unwrap();
    wire::send(&mut stream, &offer).unwrap();
    assert_eq!(wire::receive(&mut stream).unwrap(), Message::Accepted);
    let state = || destination.domain(guest(1).uid).unwrap().state;
    assert_eq!(state(), DomainState::MigratingIn);
    let refused = destination.cancel_incoming(guest(1).uid);
    assert!(matches!(refused, Err(Error::WrongState { .. })));
    drop(stream);
    wait(|| state() == DomainState::Prepared);

    let mut stream = TcpStream::connect(&address).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(wire::receive(&mut stream).is_err(), "it hangs up");
    destination.cancel_incoming(guest(1).uid).unwrap();
}

/// Two hypervisors of which the first does what a file tells.
struct Told {
    source: SimDriver,
    destination: SimDriver,
    story: tempfile::NamedTempFile,
}

impl Told {
    fn new() -> Self {
        let story = tempfile::NamedTempFile::new().unwrap();
        let source = SimDriver::start(Config {
            transfer: Duration::from_millis(1),
            story_file: Some(story.path().to_owned()),
            ..Config::new(sample::host(2))
        });
        Self {
            source: source.unwrap(),
            destination: start(1),
            story,
        }
    }

    fn happens(&self, line: &str) {
        writeln!(self.story.as_file(), "{line}").unwrap();
    }

    /// Sends a guest while something happens.
    fn send(&self, post_copy: bool, meanwhile: impl FnOnce()) -> Result<(), Error> {
        self.source.create(&guest(1)).unwrap();
        self.destination
            .prepare_incoming(&moved(&guest(1)), &[])
            .unwrap();
        let uri = self.destination.info().unwrap().migration_uri;
        let mut sending = Sending::default();
        sending.policy.post_copy = post_copy;
        thread::scope(|scope| {
            let sent = scope.spawn(|| {
                self.source
                    .migrate(guest(1).uid, &uri, &moved(&guest(1)), &sending)
            });
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(meanwhile));
            if let Err(panic) = done {
                // Whatever is held would be waited for.
                self.source.close();
                std::panic::resume_unwind(panic);
            }
            sent.join().unwrap()
        })
    }
}

fn state(driver: &SimDriver) -> DomainState {
    driver.domain(guest(1).uid).unwrap().state
}

/// Goal: a transfer that a story holds does not end, and one that it breaks leaves the guest.
#[test]
fn a_story_holds_and_breaks_a_transfer() {
    let told = Told::new();
    told.happens("hold transfer");
    let sent = told.send(false, || {
        wait(|| state(&told.destination) == DomainState::MigratingIn);
        told.happens("break a");
    });
    assert!(matches!(sent, Err(Error::Refused { .. })), "{sent:?}");
    assert_eq!(state(&told.source), DomainState::Running);
    wait(|| told.destination.cancel_incoming(guest(1).uid).is_ok());

    told.happens("let transfer");
    told.source.destroy(guest(1).uid).unwrap();
    told.happens("refuse create 1");
    assert!(told.source.create(&guest(1)).is_err());
    assert_eq!(told.send(false, || ()), Ok(()));
    assert_eq!(state(&told.destination), DomainState::Running);
    told.happens("hold your horses");
    let error = told.source.domains().unwrap_err().to_string();
    assert!(error.contains("must be one of other UUID NAME"), "{error}");
}

/// Goal: a story changes what guests touch, swap space and pressure, and a guest that moves takes its
/// share along.
#[test]
fn a_story_changes_memory_and_a_guest_takes_its_share_along() {
    let told = Told::new();
    let pressure = || told.source.machine_memory().unwrap().pressure;
    let swap = || told.source.machine_memory().unwrap().swap.unwrap();
    assert_eq!((pressure(), swap().total_kib), (None, 0));
    let spec = sample::pinned_spec(2, PageSize::Unspecified);
    let guest = sample::domain("a", 1, spec, sample::pins(0, &[1, 2], None));
    told.source.create(&guest).unwrap();
    let touched = |driver: &SimDriver| {
        let memory = driver.guest_memory().unwrap();
        memory.get(&guest.vm).map(|memory| memory.resident_kib)
    };
    assert_eq!(touched(&told.source), Some(64 * 1024));
    told.happens("active a 75");
    told.happens("swap 100");
    told.happens("pressure 12.5 3.25");
    assert_eq!(touched(&told.source), Some(96 * 1024));
    assert_eq!(swap().total_kib, 100 * 1024);
    let stalls = pressure().unwrap();
    assert_eq!(stalls.some.avg10_milli_percent, 12_500);
    assert_eq!(stalls.full.avg60_milli_percent, 3_250);

    told.destination.prepare_incoming(&guest, &[]).unwrap();
    let uri = told.destination.info().unwrap().migration_uri;
    let sent = told
        .source
        .migrate(guest.uid, &uri, &guest, &Sending::default());
    assert_eq!(sent, Ok(()));
    assert_eq!(touched(&told.source), None);
    assert_eq!(touched(&told.destination), Some(96 * 1024));
    told.happens("pressure much none");
    let error = told.source.guest_memory().unwrap_err().to_string();
    assert!(error.contains("much is no share in percent"), "{error}");
}

/// Goal: a guest in post-copy runs on the destination alone; while its memory follows, a break
/// leaves two halves of which neither goes on, and nothing of Berth's takes one away.
#[test]
fn a_post_copy_that_breaks_tears_the_guest_apart() {
    let told = Told::new();
    told.happens("hold transfer");
    told.happens("hold post-copy");
    let vm = guest(1).uid;
    let sent = told.send(true, || {
        wait(|| told.source.domain(vm).unwrap().progress.is_some());
        told.source.force_complete(vm, Force::PostCopy).unwrap();
        wait(|| state(&told.destination) == DomainState::MigratingIn);
        let written = || {
            let chunk = told.destination.console_read(vm, 0);
            chunk.unwrap().bytes.len()
        };
        let before = written();
        wait(|| written() > before);
        assert_eq!(state(&told.destination), DomainState::MigratingIn);
        assert_eq!(state(&told.source), DomainState::MigratingOut);
        told.happens("break a");
    });
    assert!(matches!(sent, Err(Error::Refused { .. })), "{sent:?}");
    wait(|| state(&told.destination) == DomainState::PostCopyBroken);
    assert_eq!(state(&told.source), DomainState::PostCopyBroken);
    for driver in [&told.source, &told.destination] {
        assert!(driver.cancel_incoming(vm).is_err());
        assert!(driver.release(vm).is_err());
        assert!(driver.destroy(vm).is_err());
    }
    told.happens("lose a");
    assert_eq!(state(&told.source), DomainState::Absent);
}
