//! What is done inside the machine.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use berth_pmem::conformance::{self, Bench, Expected};
use berth_pmem::memory::Failure;
use berth_pmem::real::Settings;
use berth_pmem::{Configured, EraseId, Mark, Order, Pmem, Progress, Real, Record, State};

use super::device::{Device, MIB};
use super::{ERASER, MARKED, SECRET};
use crate::harness::ROLE;

/// The agent's option. `fs0` is there but not for guests, `gone` is not there.
const OPTION: &str = "64m:ns0|ns2,BIG:ns1,FS:fs0|gone";

/// How long an erase may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(300);

/// Everything up to the middle of an erase, where the machine ends.
pub(crate) fn until_the_power_goes() {
    make_namespaces();
    println!(
        "ndctl list says {}",
        run("ndctl", &berth_pmem::ndctl::ARGUMENTS)
    );
    let pmem = start();
    let records: BTreeMap<String, Record> = pmem
        .discover()
        .unwrap()
        .usable
        .into_iter()
        .map(|record| (record.name.clone(), record))
        .collect();
    passes_the_suite(&records);
    what_daxio_wrote_is_erased(&records["ns2"]);
    what_is_mapped_is_not_erased(&records["ns0"]);
    one_that_is_switched_off_leaves_the_others();
    an_eraser_that_is_killed_is_followed_by_another(&records["ns1"]);
    lose_power_in_an_erase(&records["ns1"]);
}

/// The machine after it lost its power: nothing is prepared, everything is found.
pub(crate) fn after_that(mark: &str) {
    let mark = read_mark(mark);
    let pmem = start();
    let discovery = pmem.discover().unwrap();
    let record = discovery.record("ns1").unwrap();
    assert_eq!(record.uuid.as_ref(), Some(&mark.uuid));
    let device = Device::map(&record.path, record.size_bytes);
    assert_eq!(device.read(0, SECRET.len()), vec![0; SECRET.len()]);
    assert!(device.holds(SECRET), "the end was not reached");
    // Before the mark nothing is written any more.
    device.write(0, b"somebody");
    drop(device);
    let mut order = order(7, "ns1");
    order.resume = Some(mark);
    pmem.start_erase(&order).unwrap();
    wait(&pmem, "ns1", |progress| progress.state == State::Done);
    let device = Device::map(&record.path, record.size_bytes);
    assert_eq!(device.read(0, 9), b"somebody\0");
    assert!(!device.holds(SECRET));
}

/// A program of its own that erases `ns1` and tells how far it is, until it is killed.
pub(crate) fn erase_until_killed() {
    let pmem = start();
    pmem.start_erase(&order(5, "ns1")).unwrap();
    let mut told = 0;
    loop {
        let progress = pmem.erase("ns1").unwrap();
        if progress.done_bytes > told {
            told = progress.done_bytes;
            println!("{}", write_mark(&progress.mark().unwrap()));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn start() -> Real {
    let settings = Settings {
        piece_bytes: 16 * MIB,
        ..Settings::default()
    };
    Real::new(Configured::parse(OPTION).unwrap(), settings)
}

/// What an operator does once. A new NVDIMM has nowhere to write down what its namespaces are,
/// until its labels are initialised.
pub(crate) fn make_namespaces() {
    run("ndctl", &["disable-namespace", "all"]);
    run("ndctl", &["disable-region", "all"]);
    run("ndctl", &["init-labels", "-f", "all"]);
    run("ndctl", &["enable-region", "all"]);
    // Regions are numbered in no order that could be relied on.
    let region = |node: u32| {
        let node = node.to_string();
        let listed = run("ndctl", &["list", "-R", "-v", "-U", &node]);
        let (_, rest) = listed.split_once("\"dev\":\"region").unwrap();
        format!("region{}", rest.split_once('"').unwrap().0)
    };
    let make = |node: u32, mode: &str, size: &str, name: &str| {
        let region = region(node);
        let place = ["create-namespace", "-r", &region, "-m", mode];
        run("ndctl", &[&place[..], &["-s", size, "-n", name]].concat());
    };
    make(0, "devdax", "64M", "ns0");
    make(0, "devdax", "128M", "ns1");
    make(2, "devdax", "64M", "ns2");
    make(2, "fsdax", "64M", "fs0");
}

/// Runs a program that is to end well, and returns what it printed.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn passes_the_suite(records: &BTreeMap<String, Record>) {
    let expected = |name: &str, label: &str, mib: u64, node: u32| Expected {
        name: name.to_owned(),
        label: label.to_owned(),
        size_bytes: mib * MIB,
        align_bytes: 2 * MIB,
        numa_node: Some(node),
    };
    let map = |name: &str| {
        let record = &records[name];
        Device::map(&record.path, record.size_bytes)
    };
    conformance::run(&Bench {
        start: &|| Box::new(start()),
        // Of what was asked for, the table of pages is taken away.
        usable: &[
            expected("ns0", "64M", 62, 0),
            expected("ns1", "BIG", 124, 0),
            expected("ns2", "64M", 62, 2),
        ],
        refused: &[
            ("fs0", "it is in mode fsdax", true),
            ("gone", "this host has no namespace of that name", true),
        ],
        write: &|name, offset, length, byte| {
            let bytes = vec![byte; usize::try_from(length).unwrap()];
            map(name).write(offset, &bytes);
        },
        read: &|name, offset, length| map(name).read(offset, length),
        pass: &|| thread::sleep(Duration::from_millis(5)),
        patience: PATIENCE,
    });
    println!("the suite is passed");
}

/// What daxio writes, and how it reads afterwards: the programs agree with the mapping.
fn what_daxio_wrote_is_erased(record: &Record) {
    let path = record.path.to_str().unwrap();
    std::fs::write("/tmp/secret", SECRET.repeat(1000)).unwrap();
    run("daxio", &["-i", "/tmp/secret", "-o", path]);
    run("daxio", &["-i", "/tmp/secret", "-o", path, "-s", "20M"]);
    let device = Device::map(&record.path, record.size_bytes);
    assert!(device.holds(SECRET));
    drop(device);
    let pmem = start();
    pmem.start_erase(&order(1, "ns2")).unwrap();
    wait(&pmem, "ns2", |progress| progress.state == State::Done);
    run("daxio", &["-i", path, "-o", "/tmp/after"]);
    let after = std::fs::read("/tmp/after").unwrap();
    assert_eq!(after.len() as u64, record.size_bytes);
    assert!(after.iter().all(|byte| *byte == 0));
    std::fs::remove_file("/tmp/after").unwrap();
    println!("what daxio wrote is erased");
}

/// A guest that runs on would write into what was erased.
fn what_is_mapped_is_not_erased(record: &Record) {
    let device = Device::map(&record.path, record.size_bytes);
    device.write(0, SECRET);
    let pmem = start();
    pmem.start_erase(&order(2, "ns0")).unwrap();
    let failed = wait(&pmem, "ns0", |progress| !progress.state.is_active());
    let State::Failed(Failure::Held { holders, .. }) = failed.state else {
        panic!("{failed:?}");
    };
    let pids: Vec<u32> = holders.iter().map(|holder| holder.pid).collect();
    assert_eq!(pids, [std::process::id()]);
    assert_eq!(device.read(0, SECRET.len()), SECRET);
    drop(device);
    pmem.start_erase(&order(2, "ns0")).unwrap();
    wait(&pmem, "ns0", |progress| progress.state == State::Done);
    let device = Device::map(&record.path, record.size_bytes);
    assert_eq!(device.read(0, SECRET.len()), vec![0; SECRET.len()]);
    println!("what is mapped is not erased");
}

fn one_that_is_switched_off_leaves_the_others() {
    let pmem = start();
    let before = pmem.discover().unwrap();
    let listed = run("ndctl", &["list", "-N"]);
    let entries = berth_pmem::ndctl::read(listed.as_bytes()).unwrap();
    let named = entries.iter().find(|entry| entry.name() == Some("ns2"));
    let dev = named.unwrap().dev().unwrap();
    run("ndctl", &["disable-namespace", dev]);
    let without = pmem.discover().unwrap();
    let names: Vec<&str> = without.usable.iter().map(|r| r.name.as_str()).collect();
    assert_eq!(names, ["ns0", "ns1"]);
    let refusal = without.refusal("ns2").unwrap();
    assert!(!refusal.reason.stops_start(), "{refusal}");
    let said = refusal.to_string();
    assert!(said.starts_with("64M:ns2: it is switched off"), "{said}");
    run("ndctl", &["enable-namespace", dev]);
    assert_eq!(pmem.discover().unwrap(), before);
    println!("one that is switched off leaves the others");
}

fn an_eraser_that_is_killed_is_followed_by_another(record: &Record) {
    let device = Device::map(&record.path, record.size_bytes);
    device.fill(SECRET);
    drop(device);
    let mut eraser = Command::new(std::env::current_exe().unwrap())
        .env(ROLE, ERASER)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(eraser.stdout.take().unwrap()).lines();
    let mark = lines.find_map(|line| {
        let line = line.unwrap();
        line.split_once(' ').filter(|(uuid, _)| uuid.len() == 36)?;
        Some(read_mark(&line))
    });
    let mark = mark.unwrap();
    // Killed at once, by the kernel: what it started to erase goes on by itself for a while.
    eraser.kill().unwrap();
    eraser.wait().unwrap();
    let device = Device::map(&record.path, record.size_bytes);
    assert!(device.holds(SECRET), "it was not in the middle");
    device.write(0, b"somebody");
    drop(device);
    println!("an eraser was killed after {} bytes", mark.done_bytes);
    let pmem = start();
    let mut order = order(5, "ns1");
    order.resume = Some(mark);
    pmem.start_erase(&order).unwrap();
    wait(&pmem, "ns1", |progress| progress.state == State::Done);
    let device = Device::map(&record.path, record.size_bytes);
    assert_eq!(device.read(0, 9), b"somebody\0");
    assert!(!device.holds(SECRET));
    println!("another has erased the rest");
}

fn lose_power_in_an_erase(record: &Record) {
    let device = Device::map(&record.path, record.size_bytes);
    device.fill(SECRET);
    drop(device);
    let pmem = start();
    pmem.start_erase(&order(6, "ns1")).unwrap();
    let progress = wait(&pmem, "ns1", |progress| progress.done_bytes > 0);
    assert_eq!(progress.state, State::Erasing);
    println!("{MARKED}{}", write_mark(&progress.mark().unwrap()));
    // What has not left the console's port yet would go with the power.
    rustix::termios::tcdrain(std::io::stdout()).unwrap();
    std::fs::write("/proc/sysrq-trigger", "b").unwrap();
    loop {
        thread::park();
    }
}

fn order(id: u128, namespace: &str) -> Order {
    Order {
        id: EraseId(id),
        namespace: namespace.to_owned(),
        resume: None,
    }
}

fn wait(pmem: &Real, namespace: &str, wanted: impl Fn(&Progress) -> bool) -> Progress {
    loop {
        let progress = pmem.erase(namespace).unwrap();
        if wanted(&progress) {
            return progress;
        }
        assert!(progress.state.is_active(), "{progress:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn write_mark(mark: &Mark) -> String {
    format!("{} {} {}", mark.uuid, mark.size_bytes, mark.done_bytes)
}

fn read_mark(text: &str) -> Mark {
    let mut words = text.split_whitespace();
    let mut word = || words.next().unwrap();
    Mark {
        uuid: word().to_owned(),
        size_bytes: word().parse().unwrap(),
        done_bytes: word().parse().unwrap(),
    }
}
