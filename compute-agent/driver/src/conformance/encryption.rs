//! Conformance of encrypted transfers: a guest moves, and where it cannot be encrypted nothing is sent.
//!
//! Not here: that the bytes on the network are encrypted; a real test captures them.

use super::{Pair, assert_absent, assert_runs, wait_for_output};
use crate::domain::Sending;
use crate::driver::Driver;
use crate::error::Error;

fn encrypted() -> Sending {
    Sending {
        tls: true,
        ..Sending::default()
    }
}

/// Checks that a pair of which both can encrypt states so, and moves a guest.
pub fn a_guest_moves_encrypted(pair: &Pair<'_>) {
    let guest = (pair.guest)(14);
    let moved = (pair.moved)(&guest);
    let (source, destination) = (pair.source, pair.destination);
    assert_eq!(source.check_tls(), Ok(()));
    assert_eq!(destination.check_tls(), Ok(()));
    source.create(&guest).expect("it fits");
    wait_for_output(pair, source, guest.uid, 0);
    destination
        .prepare_incoming(&moved, &[])
        .expect("it would fit");
    let uri = destination.info().expect("a hypervisor").migration_uri;
    source
        .migrate(guest.uid, &uri, &moved, &encrypted())
        .expect("both can encrypt");
    assert_absent(source, guest.uid);
    source.release(guest.uid).expect("it is gone");
    assert_runs(destination, &moved);
    let end = wait_for_output(pair, destination, guest.uid, 0);
    wait_for_output(pair, destination, guest.uid, end);
    destination.destroy(guest.uid).expect("it is here");
}

/// Checks that a guest that is to be sent encrypted stays where it is, and runs on, if `unable`, which is
/// one of the pair, cannot encrypt; and that `unable` states so.
pub fn a_guest_that_cannot_be_encrypted_stays(pair: &Pair<'_>, unable: &dyn Driver) {
    let guest = (pair.guest)(15);
    let moved = (pair.moved)(&guest);
    let (source, destination) = (pair.source, pair.destination);
    let stated = unable.check_tls();
    assert!(matches!(stated, Err(Error::Refused { .. })), "{stated:?}");
    source.create(&guest).expect("it fits");
    destination
        .prepare_incoming(&moved, &[])
        .expect("it would fit");
    let uri = destination.info().expect("a hypervisor").migration_uri;
    let sent = source.migrate(guest.uid, &uri, &moved, &encrypted());
    assert!(matches!(sent, Err(Error::Refused { .. })), "{sent:?}");
    assert_runs(source, &guest);
    destination
        .cancel_incoming(guest.uid)
        .expect("nothing arrives");
    assert_absent(destination, guest.uid);
    source.destroy(guest.uid).expect("it is here");
}
