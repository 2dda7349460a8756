//! Conformance suite of drivers: run against simulated hypervisors in this crate and
//! against real ones where there are any.
//!
//! Method: a pair of drivers that can reach each other, and guests that fit on them. Each check
//! states in its name what it checks, leaves nothing behind, and panics with what was seen.

pub mod cpu;
pub mod disks;
pub mod encryption;
pub mod images;
pub mod power;
pub mod sample;
pub mod transfer;

use std::thread;
use std::time::{Duration, Instant};

use berth_domain::agent::{DomainState, DomainStatus};
use berth_domain::id::{ClaimId, Epoch, VmUid};
use uuid::Uuid;

use crate::domain::{DomainSpec, Force, Sending};
use crate::driver::Driver;
use crate::error::Error;

/// How much memory a hypervisor may need besides that of its guest: translated code most of all.
const HYPERVISOR_KIB_MAX: u64 = 1024 * 1024;

/// What the suite runs on.
pub struct Pair<'a> {
    /// Where guests start.
    pub source: &'a dyn Driver,
    /// Where they go.
    pub destination: &'a dyn Driver,
    /// A guest as the source shall run it, with other ids for each number.
    pub guest: &'a dyn Fn(u32) -> DomainSpec,
    /// The same guest as the destination shall run it.
    pub moved: &'a dyn Fn(&DomainSpec) -> DomainSpec,
    /// The same guest as no host can run it.
    pub impossible: &'a dyn Fn(&DomainSpec) -> DomainSpec,
    /// Lets a guest that runs on the destination crash, where the hypervisor can be had to.
    pub crash_at_destination: Option<&'a dyn Fn(VmUid)>,
    /// Where no hypervisor listens.
    pub unreachable_uri: &'a str,
    /// Where nothing listens, in the network of this process; guests may be sent in another one.
    pub closed_uri: &'a str,
    /// Whether this process reaches the consoles' sockets, which machines of a lab have to themselves.
    pub can_type: bool,
    /// How long a guest may take to write to its console.
    pub patience: Duration,
}

/// Runs the whole suite.
///
/// # Panics
///
/// At the first thing that a driver does not hold.
pub fn run(pair: &Pair<'_>) {
    an_unknown_guest_is_absent_and_taking_it_away_is_no_error(pair);
    a_guest_is_created_once_and_destroyed_once(pair);
    if pair.can_type {
        what_is_typed_arrives_from_one_connection_after_the_other(pair);
    }
    a_refused_guest_leaves_nothing_behind(pair);
    a_transfer_to_nowhere_leaves_the_guest_running(pair);
    power::a_guest_is_stopped_and_started_on_what_it_has(pair);
    a_transfer_that_the_destination_refuses_leaves_the_guest_running(pair);
    a_preparation_is_repeated_and_undone(pair);
    a_stopped_guest_is_not_expected_any_longer(pair);
    a_guest_moves_with_its_new_claim_and_goes_on(pair);
    a_transfer_is_stopped_or_has_ended(pair);
    transfer::run(pair);
    encryption::a_guest_moves_encrypted(pair);
    cpu::run(pair);
}

/// Checks that absence is a result, and that removals can be repeated.
pub fn an_unknown_guest_is_absent_and_taking_it_away_is_no_error(pair: &Pair<'_>) {
    let plain = Sending::default();
    let vm = VmUid(Uuid::from_u128(0xdead_beef));
    for driver in [pair.source, pair.destination] {
        assert_eq!(driver.domain(vm), Ok(DomainStatus::absent()));
        assert_eq!(driver.destroy(vm), Ok(()));
        assert_eq!(driver.cancel_incoming(vm), Ok(()));
        assert_eq!(driver.release(vm), Ok(()));
        assert_eq!(driver.abort(vm), Ok(()));
        assert_eq!(driver.shutdown(vm), Ok(()));
        assert_eq!(driver.stop(vm), Ok(()));
        assert_eq!(driver.force_complete(vm, Force::Pause), Ok(()));
        assert_eq!(driver.force_complete(vm, Force::PostCopy), Ok(()));
        assert_eq!(driver.console_read(vm, 0), Err(Error::Absent { vm }));
        assert_eq!(driver.console_log(vm), Err(Error::Absent { vm }));
        assert_eq!(driver.console_open(vm).err(), Some(Error::Absent { vm }));
        let sent = driver.migrate(vm, pair.unreachable_uri, &(pair.guest)(0), &plain);
        assert_eq!(sent, Err(Error::Absent { vm }));
        assert!(!driver.free_pages().expect("a host has pages").is_empty());
        assert!(!driver.info().expect("a hypervisor").driver.is_empty());
    }
}

/// Holds that a guest hears what is typed in pieces, also from a connection that is opened as soon as the
/// one before it is dropped, and that a connection to a guest that is gone ends.
pub fn what_is_typed_arrives_from_one_connection_after_the_other(pair: &Pair<'_>) {
    let guest = (pair.guest)(21);
    let (driver, vm) = (pair.source, guest.uid);
    driver.create(&guest).expect("it fits");
    let mut from = wait_for_output(pair, driver, vm, 0);
    let mut first_log = None;
    for word in ["first", "second"] {
        let mut input = driver.console_open(vm).expect("it has a console");
        let (begin, rest) = word.split_at(2);
        for piece in [begin, rest, "\n"] {
            input.write(piece.as_bytes()).expect("it is typed");
        }
        assert!(input.is_open());
        drop(input);
        let mut text = String::new();
        let heard = wait(pair.patience, || {
            let chunk = driver.console_read(vm, from).expect("it has a console");
            from = chunk.offset + chunk.bytes.len() as u64;
            text.push_str(&String::from_utf8_lossy(&chunk.bytes));
            text.contains(word)
        });
        assert!(heard, "the guest does not repeat {word:?}: {text}");
        let log = driver.console_log(vm).expect("it has a console");
        assert!(log.end >= from, "{log:?} ends before {from}");
        assert_eq!(*first_log.get_or_insert(log.id.clone()), log.id);
    }
    let mut input = driver.console_open(vm).expect("it has a console");
    driver.destroy(vm).expect("it is there");
    assert!(driver.console_open(vm).is_err());
    assert!(wait(pair.patience, || !input.is_open()));
    // It is not that of the next guest of this name.
    driver.create(&guest).expect("it fits");
    assert!(!input.is_open() && input.write(b"x").is_err());
    driver.destroy(vm).expect("it is there");
}

/// Holds that metadata and pins are kept, that a repetition has no effect, and that another claim
/// is refused.
pub fn a_guest_is_created_once_and_destroyed_once(pair: &Pair<'_>) {
    let guest = (pair.guest)(1);
    let driver = pair.source;
    driver.create(&guest).expect("it fits");
    driver.create(&guest).expect("a repetition has no effect");
    assert_runs(driver, &guest);
    let known = driver.domains().expect("a list");
    let found = known.iter().find(|k| k.domain.uid == guest.uid);
    let found = found.expect("the list has it");
    assert_eq!(found.domain, guest);
    assert_eq!(found.state, DomainState::Running);
    let other = DomainSpec {
        claim: Some(ClaimId(Uuid::from_u128(77))),
        ..guest.clone()
    };
    let refused = driver.create(&other);
    assert!(matches!(refused, Err(Error::Exists { .. })), "{refused:?}");
    let released = driver.release(guest.uid);
    assert!(
        matches!(released, Err(Error::WrongState { .. })),
        "{released:?}"
    );
    wait_for_output(pair, driver, guest.uid, 0);
    has_memory(driver, &guest);
    driver.destroy(guest.uid).expect("it is here");
    let memory = driver.guest_memory().expect("memory is reported");
    assert!(!memory.contains_key(&guest.vm), "{memory:?}");
    driver
        .destroy(guest.uid)
        .expect("a repetition has no effect");
    assert_absent(driver, guest.uid);
    let known = driver.domains().expect("a list");
    assert!(known.iter().all(|k| k.domain.uid != guest.uid));
}

/// Checks that a guest that runs has memory, and not more than its own and what its hypervisor needs.
fn has_memory(driver: &dyn Driver, guest: &DomainSpec) {
    let memory = driver.guest_memory().expect("memory is reported");
    let memory = memory.get(&guest.vm).expect("it runs here");
    let given_kib = guest.spec.flavor.memory_mib * 1024;
    let has_kib = memory.non_discardable_kib();
    let most_kib = given_kib + HYPERVISOR_KIB_MAX;
    assert!(
        has_kib > 0 && has_kib <= most_kib,
        "{memory:?} of {guest:?}"
    );
}

/// Holds that a refusal is definite.
pub fn a_refused_guest_leaves_nothing_behind(pair: &Pair<'_>) {
    let guest = (pair.impossible)(&(pair.guest)(2));
    let refused = pair.source.create(&guest);
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    assert_absent(pair.source, guest.uid);
    // The same guest, possible now, is not in the way of itself.
    let guest = (pair.guest)(2);
    pair.source.create(&guest).expect("it fits");
    pair.source.destroy(guest.uid).expect("it is here");
}

/// Holds that a transfer that cannot begin changes nothing.
pub fn a_transfer_to_nowhere_leaves_the_guest_running(pair: &Pair<'_>) {
    let plain = Sending::default();
    let guest = (pair.guest)(3);
    pair.source.create(&guest).expect("it fits");
    let moved = (pair.moved)(&guest);
    let reached = pair.source.check_peer(pair.closed_uri);
    assert!(matches!(reached, Err(Error::Refused { .. })), "{reached:?}");
    let sent = pair
        .source
        .migrate(guest.uid, pair.unreachable_uri, &moved, &plain);
    assert!(matches!(sent, Err(Error::Refused { .. })), "{sent:?}");
    assert_runs(pair.source, &guest);
    pair.source.destroy(guest.uid).expect("it is here");
}

/// Holds that what the destination cannot run stays on the source, and still counts.
pub fn a_transfer_that_the_destination_refuses_leaves_the_guest_running(pair: &Pair<'_>) {
    let plain = Sending::default();
    let guest = (pair.guest)(4);
    pair.source.create(&guest).expect("it fits");
    let end = wait_for_output(pair, pair.source, guest.uid, 0);
    let moved = (pair.moved)(&guest);
    pair.destination
        .prepare_incoming(&moved, &[])
        .expect("it would fit");
    let uri = pair.destination.info().expect("a hypervisor").migration_uri;
    let impossible = (pair.impossible)(&moved);
    let sent = pair.source.migrate(guest.uid, &uri, &impossible, &plain);
    assert!(matches!(sent, Err(Error::Refused { .. })), "{sent:?}");
    assert_runs(pair.source, &guest);
    wait_for_output(pair, pair.source, guest.uid, end);
    pair.destination
        .cancel_incoming(guest.uid)
        .expect("nothing arrives");
    assert_absent(pair.destination, guest.uid);
    pair.source.destroy(guest.uid).expect("it is here");
}

/// Holds that preparing and its undo can both be repeated.
pub fn a_preparation_is_repeated_and_undone(pair: &Pair<'_>) {
    let guest = (pair.moved)(&(pair.guest)(5));
    let driver = pair.destination;
    driver.prepare_incoming(&guest, &[]).expect("it would fit");
    driver.prepare_incoming(&guest, &[]).expect("a repetition");
    let state = driver.domain(guest.uid).expect("an answer").state;
    assert!(
        matches!(state, DomainState::Prepared | DomainState::Absent),
        "{state:?}"
    );
    driver.cancel_incoming(guest.uid).expect("nothing arrives");
    driver.cancel_incoming(guest.uid).expect("a repetition");
    assert_absent(driver, guest.uid);
}

/// Holds that a guest that has stopped is no reason to refuse the undo of its preparation.
pub fn a_stopped_guest_is_not_expected_any_longer(pair: &Pair<'_>) {
    let Some(crash) = pair.crash_at_destination else {
        return;
    };
    let guest = (pair.moved)(&(pair.guest)(8));
    let driver = pair.destination;
    driver.create(&guest).expect("it fits");
    crash(guest.uid);
    let state = driver.domain(guest.uid).expect("an answer").state;
    assert_eq!(state, DomainState::Stopped);
    driver.cancel_incoming(guest.uid).expect("it does not run");
    assert_absent(driver, guest.uid);
    driver
        .prepare_incoming(&guest, &[])
        .expect("nothing is in the way");
    driver.cancel_incoming(guest.uid).expect("nothing arrives");
}

/// Checks that the guest executes on one side at a time, arrives with the claim, the epoch and the
/// CPUs of the destination, and goes on counting.
pub fn a_guest_moves_with_its_new_claim_and_goes_on(pair: &Pair<'_>) {
    let plain = Sending::default();
    let guest = (pair.guest)(6);
    let moved = DomainSpec {
        claim: Some(ClaimId(Uuid::from_u128(66))),
        epoch: Epoch(guest.epoch.0 + 5),
        ..(pair.moved)(&guest)
    };
    let (source, destination) = (pair.source, pair.destination);
    source.create(&guest).expect("it fits");
    wait_for_output(pair, source, guest.uid, 0);
    destination
        .prepare_incoming(&moved, &[])
        .expect("it would fit");
    let uri = destination.info().expect("a hypervisor").migration_uri;
    thread::scope(|scope| {
        let sending = scope.spawn(|| source.migrate(guest.uid, &uri, &moved, &plain));
        while !sending.is_finished() {
            // The destination is queried first: what runs there then has left the source.
            let there = destination.domain(guest.uid).expect("an answer").state;
            let here = source.domain(guest.uid).expect("an answer").state;
            let both = there == DomainState::Running && here == DomainState::Running;
            assert!(!both, "it runs on both sides");
            thread::yield_now();
        }
        sending.join().expect("no panic").expect("the transfer");
    });
    assert_absent(source, guest.uid);
    assert_runs(destination, &moved);
    wait_for_output(pair, destination, guest.uid, 0);
    source.release(guest.uid).expect("it is gone");
    for refused in [
        destination.cancel_incoming(guest.uid),
        destination.prepare_incoming(&moved, &[]),
    ] {
        assert!(
            matches!(refused, Err(Error::WrongState { .. })),
            "{refused:?}"
        );
    }
    let again = source.migrate(guest.uid, &uri, &moved, &plain);
    assert_eq!(again, Err(Error::Absent { vm: guest.uid }));
    destination.destroy(guest.uid).expect("it is here");
    assert_absent(destination, guest.uid);
}

/// Holds that a stopped transfer leaves the guest on the source and nothing on the destination;
/// one that had ended already is not undone.
pub fn a_transfer_is_stopped_or_has_ended(pair: &Pair<'_>) {
    let plain = Sending::default();
    let guest = (pair.guest)(7);
    let moved = (pair.moved)(&guest);
    let (source, destination) = (pair.source, pair.destination);
    source.create(&guest).expect("it fits");
    wait_for_output(pair, source, guest.uid, 0);
    destination
        .prepare_incoming(&moved, &[])
        .expect("it would fit");
    let uri = destination.info().expect("a hypervisor").migration_uri;
    let sent = thread::scope(|scope| {
        let sending = scope.spawn(|| source.migrate(guest.uid, &uri, &moved, &plain));
        while !sending.is_finished() {
            let state = source.domain(guest.uid).expect("an answer").state;
            if state == DomainState::MigratingOut {
                source.abort(guest.uid).expect("an answer");
            }
            thread::yield_now();
        }
        sending.join().expect("no panic")
    });
    match sent {
        Err(Error::Aborted { .. }) => {
            assert_runs(source, &guest);
            let gone = wait(pair.patience, || {
                destination.cancel_incoming(guest.uid).is_ok()
            });
            assert!(gone, "the destination still receives");
            source.destroy(guest.uid).expect("it is here");
        }
        Ok(()) => {
            assert_absent(source, guest.uid);
            destination.destroy(guest.uid).expect("it is there");
        }
        Err(other) => panic!("a stopped transfer says {other:?}"),
    }
    assert_absent(destination, guest.uid);
}

fn assert_runs(driver: &dyn Driver, guest: &DomainSpec) {
    let status = driver.domain(guest.uid).expect("an answer");
    assert_eq!(status.state, DomainState::Running);
    assert_eq!(status.claim, guest.claim);
    assert_eq!(status.epoch, Some(guest.epoch));
    let expected: Vec<_> = guest.vcpu_cpus().into_iter().collect();
    assert_eq!(status.vcpu_cpus, expected);
}

fn assert_absent(driver: &dyn Driver, vm: VmUid) {
    assert_eq!(driver.domain(vm), Ok(DomainStatus::absent()));
}

/// Waits until the guest has written beyond `offset`, and returns the new end.
fn wait_for_output(pair: &Pair<'_>, driver: &dyn Driver, vm: VmUid, offset: u64) -> u64 {
    let mut end = offset;
    let wrote = wait(pair.patience, || {
        let chunk = driver.console_read(vm, offset).expect("it has a console");
        end = chunk.offset + chunk.bytes.len() as u64;
        !chunk.bytes.is_empty()
    });
    assert!(wrote, "the guest writes nothing");
    end
}

/// Polls until it is so, or the time is over.
fn wait(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + patience;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        thread::park_timeout(Duration::from_millis(20));
    }
}
