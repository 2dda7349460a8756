//! What drivers are held to when a guest is stopped and started again.

use berth_domain::id::{ClaimId, Epoch};
use uuid::Uuid;

use super::{Pair, assert_absent, assert_runs, wait_for_output};
use crate::domain::DomainSpec;
use crate::error::Error;

/// Holds that a stopped guest is nowhere, that it runs again on its claim and under the new lease,
/// and that both can be repeated.
///
/// # Panics
///
/// When the driver does not hold to it.
pub fn a_guest_is_stopped_and_started_on_what_it_has(pair: &Pair<'_>) {
    let guest = (pair.guest)(9);
    let driver = pair.source;
    driver.create(&guest).expect("it fits");
    wait_for_output(pair, driver, guest.uid, 0);
    driver
        .shutdown(guest.uid)
        .expect("a running guest accepts the request");
    driver.stop(guest.uid).expect("it is here");
    assert_absent(driver, guest.uid);
    let known = driver.domains().expect("a list");
    assert!(known.iter().all(|k| k.domain.uid != guest.uid));
    driver.stop(guest.uid).expect("a repetition has no effect");
    driver
        .shutdown(guest.uid)
        .expect("a guest that is off needs no request");

    let again = DomainSpec {
        epoch: Epoch(guest.epoch.0 + 1),
        ..guest.clone()
    };
    driver.start(&again).expect("its disks are there");
    driver.start(&again).expect("a repetition has no effect");
    assert_runs(driver, &again);
    wait_for_output(pair, driver, guest.uid, 0);
    let other = DomainSpec {
        claim: Some(ClaimId(Uuid::from_u128(78))),
        ..again
    };
    let refused = driver.start(&other);
    assert!(matches!(refused, Err(Error::Exists { .. })), "{refused:?}");
    let known = driver.domains().expect("a list");
    assert!(known.iter().any(|k| k.domain.uid == guest.uid));
    driver.destroy(guest.uid).expect("it is here");
    driver.destroy(guest.uid).expect("a repetition");
    assert_absent(driver, guest.uid);
}
