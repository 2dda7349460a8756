//! What drivers are held to when the disks of a guest that is off go from one host to another.
//!
//! Method: a pair of drivers that do not share the disks of their guests, and guests with disks. What lies
//! between the two in Berth, the agents, is a loop here.

use berth_domain::agent::Side;
use berth_domain::id::MigrationId;
use uuid::Uuid;

use super::{assert_absent, assert_runs};
use crate::disks::{DiskReader, DiskWriter};
use crate::domain::DomainSpec;
use crate::driver::Driver;
use crate::error::Error;

/// What the suite runs on.
pub struct Travel<'a> {
    /// Where guests start.
    pub source: &'a dyn Driver,
    /// Where they go.
    pub destination: &'a dyn Driver,
    /// A guest with disks as the source shall run it, with other ids for each number.
    pub guest: &'a dyn Fn(u32) -> DomainSpec,
    /// The same guest as the destination shall run it.
    pub moved: &'a dyn Fn(&DomainSpec) -> DomainSpec,
}

/// Runs the whole suite.
///
/// # Panics
///
/// At the first thing that a driver does not hold.
pub fn run(travel: &Travel<'_>) {
    disks_are_fetched_once_and_dropped_on_either_side(travel);
    half_a_disk_is_none(travel);
    a_guest_that_runs_keeps_its_disks(travel);
}

fn migration(number: u128) -> MigrationId {
    MigrationId(Uuid::from_u128(0xd15c_0000 + number))
}

fn reader(driver: &dyn Driver, guest: &DomainSpec, migration: MigrationId) -> DiskReader {
    let disks = driver.read_disks(guest.uid, guest.spec.disks.len(), migration);
    disks.expect("disks of a guest that is off")
}

fn begin(driver: &dyn Driver, guest: &DomainSpec, migration: MigrationId) -> DiskWriter {
    let writer = driver.receive_disks(guest, migration);
    writer.expect("room").expect("nothing is there yet")
}

/// Copies all disks, up to so many pieces; returns how many there were.
fn copy(mut from: DiskReader, to: &mut DiskWriter, pieces_max: usize) -> usize {
    to.expect(from.sizes()).expect("room");
    for number in 0..pieces_max {
        let Some(piece) = from.next_piece().expect("a piece") else {
            return number;
        };
        to.write(&piece).expect("the next piece");
    }
    pieces_max
}

fn assert_missing(driver: &dyn Driver, guest: &DomainSpec) {
    let refused = driver.start(guest);
    let missing = matches!(refused, Err(Error::DiskMissing { .. }));
    assert!(missing, "{refused:?}");
    assert_absent(driver, guest.uid);
}

/// Returns a guest that was started and stopped on the source.
fn stopped(travel: &Travel<'_>, number: u32) -> DomainSpec {
    let guest = (travel.guest)(number);
    assert!(!guest.spec.disks.is_empty(), "it has disks");
    travel.source.create(&guest).expect("it fits");
    travel.source.stop(guest.uid).expect("it is here");
    guest
}

/// Checks that all disks come, that a repetition has nothing to do, that a guest starts with them, and
/// that each side deletes its own and nothing else.
pub fn disks_are_fetched_once_and_dropped_on_either_side(travel: &Travel<'_>) {
    let (source, destination) = (travel.source, travel.destination);
    let guest = stopped(travel, 21);
    let moved = (travel.moved)(&guest);
    let (first, other) = (migration(1), migration(2));
    let mut writer = begin(destination, &moved, first);
    copy(reader(source, &guest, first), &mut writer, usize::MAX);
    writer.finish().expect("all of it has come");
    let again = destination.receive_disks(&moved, first);
    assert!(matches!(again, Ok(None)), "{again:?}");
    destination.start(&moved).expect("its disks are there");
    assert_runs(destination, &moved);
    for side in [Side::Source, Side::Destination] {
        let refused = destination.drop_disks(guest.uid, first, side);
        let runs = matches!(refused, Err(Error::WrongState { .. }));
        assert!(runs, "{refused:?}");
    }
    destination.stop(guest.uid).expect("it is here");

    // Another migration's are not this one's, and the source's not those that were fetched.
    let kept = destination.drop_disks(guest.uid, other, Side::Destination);
    kept.expect("nothing to do");
    let kept = destination.drop_disks(guest.uid, first, Side::Source);
    kept.expect("nothing to do");
    let kept = source.drop_disks(guest.uid, first, Side::Destination);
    kept.expect("nothing to do");
    source.start(&guest).expect("its disks are there still");
    source.stop(guest.uid).expect("it is here");
    destination
        .start(&moved)
        .expect("its disks are there still");
    destination.stop(guest.uid).expect("it is here");

    for _ in 0..2 {
        let dropped = source.drop_disks(guest.uid, first, Side::Source);
        dropped.expect("they can be deleted, also twice");
        assert_missing(source, &guest);
    }
    // And back: what was fetched here before has no owner.
    let mut writer = begin(source, &guest, other);
    copy(reader(destination, &moved, other), &mut writer, usize::MAX);
    writer.finish().expect("all of it has come");
    source.start(&guest).expect("its disks are there");
    for _ in 0..2 {
        let dropped = destination.drop_disks(guest.uid, first, Side::Destination);
        dropped.expect("they can be deleted, also twice");
        assert_missing(destination, &moved);
    }
    source.destroy(guest.uid).expect("it is here");
}

/// Checks that a guest does not start with a partial fetch of its disks, that a fetch restarts, and that
/// what it left is deleted.
pub fn half_a_disk_is_none(travel: &Travel<'_>) {
    let (source, destination) = (travel.source, travel.destination);
    let guest = stopped(travel, 22);
    let moved = (travel.moved)(&guest);
    let first = migration(3);
    let mut writer = begin(destination, &moved, first);
    assert_eq!(copy(reader(source, &guest, first), &mut writer, 1), 1);
    let refused = writer.finish();
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    let refused = destination.start(&moved);
    assert!(refused.is_err(), "it has half a disk");
    assert_absent(destination, guest.uid);

    let writer = begin(destination, &moved, first);
    drop(writer);
    let mut writer = begin(destination, &moved, first);
    copy(reader(source, &guest, first), &mut writer, usize::MAX);
    writer.finish().expect("all of it has come");
    destination.start(&moved).expect("its disks are there");
    destination.stop(guest.uid).expect("it is here");
    let dropped = destination.drop_disks(guest.uid, first, Side::Destination);
    dropped.expect("they can be deleted");

    let mut writer = begin(destination, &moved, first);
    copy(reader(source, &guest, first), &mut writer, 1);
    drop(writer);
    let dropped = destination.drop_disks(guest.uid, first, Side::Destination);
    dropped.expect("they can be deleted");
    assert_missing(destination, &moved);
    source.start(&guest).expect("its disks are there still");
    source.destroy(guest.uid).expect("it is here");
}

/// Holds that disks are not read below a guest, and not fetched over those that were not fetched.
pub fn a_guest_that_runs_keeps_its_disks(travel: &Travel<'_>) {
    let source = travel.source;
    let guest = stopped(travel, 23);
    let refused = source.receive_disks(&guest, migration(4));
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    source.start(&guest).expect("its disks are there");
    let refused = source.read_disks(guest.uid, guest.spec.disks.len(), migration(4));
    let runs = matches!(refused, Err(Error::WrongState { .. }));
    assert!(runs, "{refused:?}");
    let refused = source.receive_disks(&guest, migration(4));
    let runs = matches!(refused, Err(Error::WrongState { .. }));
    assert!(runs, "{refused:?}");
    source.destroy(guest.uid).expect("it is here");
    assert_absent(source, guest.uid);
}
