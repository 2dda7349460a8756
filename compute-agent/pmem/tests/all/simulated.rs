//! Simulated memory: it is what every implementation is, under a clock that is moved by hand, and
//! what was ordered goes wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use berth_pmem::conformance::{self, Bench, Expected};
use berth_pmem::discovery::PathKind;
use berth_pmem::memory::{Error, Failure};
use berth_pmem::ndctl::Mode;
use berth_pmem::simulated::{Clock, Memory, World};
use berth_pmem::{Configured, EraseId, Order, Pmem, Progress, Simulated, State};

const GIB: u64 = 1 << 30;

/// A clock that is moved by hand.
#[derive(Clone, Default)]
struct Hand(Arc<AtomicU64>);

impl Hand {
    fn clock(&self) -> Clock {
        let hand = self.0.clone();
        Arc::new(move || Duration::from_millis(hand.load(Ordering::SeqCst)))
    }

    fn pass(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

fn configured(text: &str) -> Configured {
    Configured::parse(text).unwrap()
}

fn order(id: u128, namespace: &str) -> Order {
    Order {
        id: EraseId(id),
        namespace: namespace.to_owned(),
        resume: None,
    }
}

/// A world with `a`, `b` and `c` of 4 GiB, erased at 1 GiB a second.
fn world() -> World {
    let world = World::default();
    for (name, node) in [("a", Some(0)), ("b", Some(1)), ("c", None)] {
        world.make(&Memory::new(name, 4 * GIB, node));
    }
    world.set_speed(GIB);
    world
}

fn start(world: &World, hand: &Hand) -> Simulated {
    Simulated::new(world, configured("S:a|b|c"), hand.clock())
}

fn failure(pmem: &Simulated, namespace: &str) -> String {
    match pmem.erase(namespace).map(|progress| progress.state) {
        Some(State::Failed(failure)) => failure.to_string(),
        other => panic!("{other:?}"),
    }
}

fn done(pmem: &Simulated, namespace: &str) -> (u64, bool) {
    let Progress {
        done_bytes, state, ..
    } = pmem.erase(namespace).unwrap();
    (done_bytes / (GIB / 2), state == State::Done)
}

#[test]
fn it_is_what_every_implementation_is() {
    let (world, hand) = (world(), Hand::default());
    let mut fsdax = Memory::new("f", GIB, Some(0));
    fsdax.mode = Mode::Fsdax;
    world.make(&fsdax);
    world.make(&Memory::new("odd", GIB + 1, Some(0)));
    let expected = |name: &str, label: &str, numa_node| Expected {
        name: name.to_owned(),
        label: label.to_owned(),
        size_bytes: 4 * GIB,
        align_bytes: 2 << 20,
        numa_node,
    };
    let option = configured("s:a|b,BIG:c,S:absent|f|odd");
    conformance::run(&Bench {
        start: &|| Box::new(Simulated::new(&world, option.clone(), hand.clock())),
        usable: &[
            expected("a", "S", Some(0)),
            expected("b", "S", Some(1)),
            expected("c", "BIG", None),
        ],
        refused: &[
            ("absent", "this host has no namespace of that name", true),
            ("f", "it is in mode fsdax", true),
            ("odd", "is no multiple of its alignment", false),
        ],
        write: &|name, offset, length, byte| world.write(name, offset, length, byte),
        read: &|name, offset, length| world.read(name, offset, length),
        pass: &|| hand.pass(250),
        patience: Duration::from_secs(600),
    });
}

#[test]
fn it_takes_the_time_that_its_speed_says_and_two_go_at_once() {
    let (world, hand) = (world(), Hand::default());
    let pmem = start(&world, &hand);
    for (id, name) in [(1, "a"), (2, "b"), (3, "c")] {
        world.write(name, 0, 4 * GIB, 1);
        pmem.start_erase(&order(id, name)).unwrap();
    }
    hand.pass(2500);
    assert_eq!(done(&pmem, "a"), (5, false));
    assert_eq!(done(&pmem, "b"), (5, false));
    assert_eq!(done(&pmem, "c"), (0, false));
    let border = 5 * (GIB / 2);
    assert_eq!(world.read("a", border - 2, 4), [0, 0, 1, 1]);
    let due = pmem.next_event().unwrap();
    assert_eq!(due, Duration::from_nanos(4_000_000_001));
    // Looked at late, the third began when the first ended.
    hand.pass(3000);
    assert_eq!(done(&pmem, "a"), (8, true));
    assert_eq!(done(&pmem, "c"), (2, false));
    hand.pass(3000);
    assert_eq!(done(&pmem, "c"), (8, true));
    assert!(["a", "b", "c"].iter().all(|name| world.is_zero(name)));
    assert_eq!(pmem.next_event(), None);
}

#[test]
fn a_terabyte_is_no_more_than_a_byte() {
    let (world, hand) = (World::default(), Hand::default());
    for number in 0..100 {
        let name = format!("n{number}");
        world.make(&Memory::new(&name, 512 * GIB, Some(number % 2)));
        world.write(&name, 511 * GIB, GIB, 1);
    }
    world.set_speed(64 * GIB);
    let names: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
    let option = configured(&format!("BIG:{}", names.join("|")));
    let pmem = Simulated::new(&world, option, hand.clock());
    for (id, name) in (0..).zip(&names) {
        pmem.start_erase(&order(id, name)).unwrap();
    }
    // Two at once, 8 s each.
    hand.pass(399_000);
    assert!(!pmem.erases().iter().all(|e| e.state == State::Done));
    hand.pass(1_001);
    assert!(pmem.erases().iter().all(|e| e.state == State::Done));
    assert!(names.iter().all(|name| world.is_zero(name)));
}

#[test]
fn an_erase_that_fails_tells_why_and_goes_on_from_there() {
    let (world, hand) = (world(), Hand::default());
    let pmem = start(&world, &hand);
    world.write("a", 0, 4 * GIB, 1);
    world.fail_erase("a", Some(GIB));
    pmem.start_erase(&order(1, "a")).unwrap();
    hand.pass(2000);
    assert_eq!(
        failure(&pmem, "a"),
        "cannot erase /dev/dax0.0 from byte 1073741824: daxio ended with exit status 1: daxio: \
         failed to perform I/O"
    );
    assert!(!world.is_zero("a"));
    world.fail_erase("a", None);
    let progress = pmem.start_erase(&order(1, "a")).unwrap();
    assert_eq!(progress.done_bytes, GIB);
    hand.pass(3001);
    assert_eq!(done(&pmem, "a"), (8, true));
    assert!(world.is_zero("a"));
}

#[test]
fn an_erase_that_hangs_is_given_up() {
    let (world, hand) = (world(), Hand::default());
    let pmem = start(&world, &hand);
    world.hang_erase("a", Some(0));
    pmem.start_erase(&order(1, "a")).unwrap();
    hand.pass(599_000);
    assert_eq!(done(&pmem, "a"), (0, false));
    hand.pass(2_000);
    assert!(failure(&pmem, "a").contains("daxio did not end within 600 s and was killed"));
}

#[test]
fn a_namespace_that_somebody_holds_is_erased_from_its_beginning_again() {
    let (world, hand) = (world(), Hand::default());
    let pmem = start(&world, &hand);
    world.write("a", 0, 4 * GIB, 1);
    pmem.start_erase(&order(1, "a")).unwrap();
    hand.pass(2000);
    assert_eq!(done(&pmem, "a"), (4, false));
    world.hold("a", Some(4711));
    hand.pass(3000);
    let said = failure(&pmem, "a");
    assert_eq!(said, "/dev/dax0.0 is held by process 4711 (simulated)");
    world.write("a", 0, 1, 9);
    let again = pmem.start_erase(&order(1, "a")).unwrap();
    assert_eq!((again.done_bytes, again.state.is_active()), (0, false));
    world.hold("a", None);
    pmem.start_erase(&order(1, "a")).unwrap();
    hand.pass(4001);
    assert_eq!(done(&pmem, "a"), (8, true));
    assert!(world.is_zero("a"));
}

#[test]
fn what_disappears_does_not_take_the_others_with_it() {
    let (world, hand) = (world(), Hand::default());
    let pmem = start(&world, &hand);
    pmem.start_erase(&order(1, "a")).unwrap();
    pmem.start_erase(&order(2, "b")).unwrap();
    hand.pass(1000);
    world.take_away("a");
    hand.pass(1000);
    let said = failure(&pmem, "a");
    assert!(said.contains("namespace a: this host has no namespace of that name"));
    assert_eq!(done(&pmem, "b"), (4, false));
    world.set_device("c", PathKind::Nothing);
    world.set_enabled("b", false);
    let discovery = pmem.discover().unwrap();
    assert_eq!(discovery.usable, []);
    let reasons: Vec<String> = discovery.refused.iter().map(ToString::to_string).collect();
    assert_eq!(reasons.len(), 3);
    assert!(
        reasons[1].contains("S:b: it is switched off"),
        "{reasons:?}"
    );
    assert!(reasons[2].contains("its character device /dev/dax0.2 is missing"));
    // Only what can never have been right stops a start.
    assert_eq!(discovery.check_start().unwrap_err().refused.len(), 1);
}

#[test]
fn a_listing_that_cannot_be_read_is_told() {
    let (world, hand) = (world(), Hand::default());
    let pmem = start(&world, &hand);
    world.list_garbage();
    let error = pmem.discover().unwrap_err();
    assert!(matches!(error, Error::Listing(_)));
    assert!(error.to_string().contains("did not print JSON"), "{error}");
    pmem.start_erase(&order(1, "a")).unwrap();
    let state = pmem.erase("a").unwrap().state;
    assert_eq!(state, State::Failed(Failure::Unlisted(error)));
    world.set_listing(None);
    pmem.start_erase(&order(1, "a")).unwrap();
    hand.pass(4001);
    assert_eq!(done(&pmem, "a"), (8, true));
}

#[test]
fn nothing_configured_asks_for_nothing() {
    let world = world();
    world.list_garbage();
    let pmem = Simulated::new(&world, Configured::default(), Hand::default().clock());
    assert_eq!(pmem.discover().unwrap(), berth_pmem::Discovery::default());
}
