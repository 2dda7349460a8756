//! Revoked certificates: listed once, bounded, and gone when they have expired.

use berth_domain::id::TimeMs;
use berth_domain::revocation::{Fingerprint, REVOKED_MAX, RevokedCertificate};
use berth_state::command::Command;
use berth_testkit::state::*;

fn numbered(number: usize) -> RevokedCertificate {
    let mut fingerprint = [0; 32];
    fingerprint[..8].copy_from_slice(&number.to_be_bytes());
    RevokedCertificate {
        fingerprint: Fingerprint(fingerprint),
        expires_at: None,
        ..revoked_certificate(2)
    }
}

fn reinstate(certificate: &RevokedCertificate) -> Command {
    Command::ReinstateCertificate {
        fingerprint: certificate.fingerprint,
    }
}

#[test]
fn a_certificate_is_revoked_once_and_reinstated() {
    let mut world = World::with_hosts(1);
    let revision = |world: &World| world.state.header().revoked_revision;
    assert_eq!(revision(&world), 0);
    world.run(Command::RevokeCertificate(numbered(1))).unwrap();
    let first = revision(&world);
    assert_eq!(first, world.state.revision());
    let listed = world.state.revoked_certificates();
    let listed = listed.get(&numbered(1).fingerprint).unwrap().clone();
    assert_eq!(listed.revoked_at, world.state.time());

    // Again: the same list, of the same revision.
    let again = RevokedCertificate {
        revoked_at: TimeMs(77),
        ..numbered(1)
    };
    world.run(Command::RevokeCertificate(again)).unwrap();
    assert_eq!(revision(&world), first);
    let other = RevokedCertificate {
        reason: "another reason".to_owned(),
        ..numbered(1)
    };
    world.run(Command::RevokeCertificate(other)).unwrap();
    assert!(revision(&world) > first);
    let now = world.state.revoked_certificates();
    assert_eq!(
        now.get(&listed.fingerprint).unwrap().revoked_at,
        listed.revoked_at
    );

    world.run(reinstate(&numbered(1))).unwrap();
    assert_eq!(revision(&world), world.state.revision());
    assert!(world.state.revoked_certificates().is_empty());
    let refused = world.run(reinstate(&numbered(1))).unwrap_err();
    assert_eq!(refused.reason, "REVOKED_CERTIFICATE_NOT_FOUND");
}

#[test]
fn the_list_is_bounded_and_the_expired_make_room() {
    let mut world = World::with_hosts(1);
    let expires_at = Some(TimeMs(world.state.time().0 + 1));
    let expiring = RevokedCertificate {
        expires_at,
        ..numbered(0)
    };
    world.run(Command::RevokeCertificate(expiring)).unwrap();
    for number in 1..REVOKED_MAX {
        world
            .run(Command::RevokeCertificate(numbered(number)))
            .unwrap();
    }
    // One that is listed is no new one.
    world.now += 10_000;
    world
        .run(Command::RevokeCertificate(numbered(REVOKED_MAX)))
        .unwrap();
    let listed = world.state.revoked_certificates();
    assert_eq!(listed.len(), REVOKED_MAX);
    assert!(!listed.contains_key(&numbered(0).fingerprint));
    world.run(Command::RevokeCertificate(numbered(1))).unwrap();
    let refused = world.run(Command::RevokeCertificate(numbered(REVOKED_MAX + 1)));
    let refused = refused.unwrap_err();
    assert_eq!(refused.reason, "TOO_MANY_REVOKED_CERTIFICATES");
    assert!(refused.hint.is_some());
    world.state.check().unwrap();
}
