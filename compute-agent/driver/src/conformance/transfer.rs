//! Conformance of a transfer under way: it reports its progress, it is stopped, and it
//! is made to end, by either means.
//!
//! Method: transfers that a limited bandwidth makes last for seconds.

use std::thread;

use berth_domain::agent::DomainState;
use berth_domain::transfer::{TransferPolicy, TransferProgress};

use super::{Pair, assert_absent, assert_runs, wait, wait_for_output};
use crate::domain::{DomainSpec, Force, Sending};
use crate::error::Error;

/// Runs this part of the suite.
///
/// # Panics
///
/// At the first thing that a driver does not hold.
pub fn run(pair: &Pair<'_>) {
    a_transfer_is_stopped_in_the_middle(pair);
    a_transfer_ends_with_the_guest_standing_still(pair);
    a_guest_that_stands_still_goes_on_when_its_transfer_is_stopped(pair);
    a_transfer_ends_by_post_copy(pair);
}

/// How a guest is sent, so slowly that something can be done meanwhile.
fn slowly(post_copy: bool) -> Sending {
    Sending {
        policy: TransferPolicy {
            bandwidth_mib_per_s_max: Some(8),
            downtime_ms_max: Some(200),
            post_copy,
            ..TransferPolicy::default()
        },
        copies: Vec::new(),
        tls: false,
    }
}

/// What is done to a transfer that is under way.
type Meanwhile<'a> = &'a dyn Fn(&TransferProgress);

/// Sends a guest; does something as soon as part of it was sent. Returns what became of the transfer,
/// and the furthest that was seen of it.
fn send(
    pair: &Pair<'_>,
    guest: &DomainSpec,
    moved: &DomainSpec,
    sending: &Sending,
    meanwhile: Meanwhile<'_>,
) -> Result<(), Error> {
    let (source, destination) = (pair.source, pair.destination);
    source.create(guest).expect("it fits");
    wait_for_output(pair, source, guest.uid, 0);
    let status = source.domain(guest.uid).expect("an answer");
    assert_eq!(status.progress, None, "nothing is sent");
    destination
        .prepare_incoming(moved, &[])
        .expect("it would fit");
    let uri = destination.info().expect("a hypervisor").migration_uri;
    thread::scope(|scope| {
        let sent = scope.spawn(|| source.migrate(guest.uid, &uri, moved, sending));
        let mut seen = None;
        wait(pair.patience, || {
            let status = source.domain(guest.uid).expect("an answer");
            seen = status.progress.filter(|p| p.memory.processed > 0);
            seen.is_some() || sent.is_finished()
        });
        let seen = seen.expect("a transfer that takes seconds says how far it is");
        assert!(
            seen.memory.total > 0 && seen.memory.remaining > 0,
            "{seen:?}"
        );
        meanwhile(&seen);
        sent.join().expect("no panic")
    })
}

fn assert_stayed(pair: &Pair<'_>, guest: &DomainSpec, sent: &Result<(), Error>) {
    assert!(matches!(sent, Err(Error::Aborted { .. })), "{sent:?}");
    assert_runs(pair.source, guest);
    let end = wait_for_output(pair, pair.source, guest.uid, 0);
    wait_for_output(pair, pair.source, guest.uid, end);
    let gone = wait(pair.patience, || {
        pair.destination.cancel_incoming(guest.uid).is_ok()
    });
    assert!(gone, "the destination still receives");
    pair.source.destroy(guest.uid).expect("it is here");
    assert_absent(pair.destination, guest.uid);
}

fn assert_moved(pair: &Pair<'_>, moved: &DomainSpec, sent: &Result<(), Error>) {
    assert_eq!(*sent, Ok(()));
    assert_absent(pair.source, moved.uid);
    pair.source.release(moved.uid).expect("it is gone");
    assert_runs(pair.destination, moved);
    let end = wait_for_output(pair, pair.destination, moved.uid, 0);
    wait_for_output(pair, pair.destination, moved.uid, end);
    pair.destination.destroy(moved.uid).expect("it is here");
}

/// Holds that what has begun can be stopped, more than once.
pub fn a_transfer_is_stopped_in_the_middle(pair: &Pair<'_>) {
    let guest = (pair.guest)(9);
    let moved = (pair.moved)(&guest);
    let sent = send(pair, &guest, &moved, &slowly(false), &|_| {
        pair.source.abort(guest.uid).expect("an answer");
        pair.source.abort(guest.uid).expect("a repetition");
    });
    assert_stayed(pair, &guest, &sent);
    let status = pair.source.domain(guest.uid).expect("an answer");
    assert_eq!(status.state, DomainState::Absent);
}

/// Holds that a guest that was made to stand still goes on at the destination.
pub fn a_transfer_ends_with_the_guest_standing_still(pair: &Pair<'_>) {
    let guest = (pair.guest)(10);
    let moved = (pair.moved)(&guest);
    let sent = send(pair, &guest, &moved, &slowly(false), &|_| {
        let vm = guest.uid;
        pair.source
            .force_complete(vm, Force::Pause)
            .expect("an answer");
        pair.source
            .force_complete(vm, Force::Pause)
            .expect("a repetition");
    });
    assert_moved(pair, &moved, &sent);
}

/// Holds that a guest that was made to stand still goes on where it was, when it is not to leave.
pub fn a_guest_that_stands_still_goes_on_when_its_transfer_is_stopped(pair: &Pair<'_>) {
    let guest = (pair.guest)(11);
    let moved = (pair.moved)(&guest);
    let sent = send(pair, &guest, &moved, &slowly(false), &|_| {
        let forced = pair.source.force_complete(guest.uid, Force::Pause);
        forced.expect("an answer");
        pair.source.abort(guest.uid).expect("an answer");
    });
    if sent.is_ok() {
        // It was faster.
        return assert_moved(pair, &moved, &sent);
    }
    assert_stayed(pair, &guest, &sent);
}

/// Checks that post-copy has to be allowed at the begin, and then carries the guest over.
pub fn a_transfer_ends_by_post_copy(pair: &Pair<'_>) {
    let guest = (pair.guest)(12);
    let moved = (pair.moved)(&guest);
    let sent = send(pair, &guest, &moved, &slowly(false), &|_| {
        let forced = pair.source.force_complete(guest.uid, Force::PostCopy);
        assert!(
            !matches!(&forced, Err(error) if error.is_unknown()),
            "{forced:?}"
        );
        let status = pair.source.domain(guest.uid).expect("an answer");
        assert_eq!(
            status.state,
            DomainState::MigratingOut,
            "it goes on as it was"
        );
        pair.source.abort(guest.uid).expect("an answer");
    });
    assert_stayed(pair, &guest, &sent);

    let guest = (pair.guest)(13);
    let moved = (pair.moved)(&guest);
    let sent = send(pair, &guest, &moved, &slowly(true), &|_| {
        let forced = pair.source.force_complete(guest.uid, Force::PostCopy);
        forced.expect("it was allowed");
    });
    assert_moved(pair, &moved, &sent);
}
