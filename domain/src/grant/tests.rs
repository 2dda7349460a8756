//! Goal: a grant is good for one call by one caller, and everything that differs is refused. Method:
//! one good call, of which each part is changed by itself.

use super::*;
use crate::id::Incarnation;
use uuid::Uuid;

const NOW: TimeMs = TimeMs(1_000_000_000_000);

fn host(name: &str) -> HostName {
    HostName::new(name).unwrap()
}

fn grant() -> Grant {
    Grant {
        cluster: ClusterId(Uuid::from_u128(1)),
        operation: OperationId(Uuid::from_u128(2)),
        vm: VmUid(Uuid::from_u128(3)),
        epoch: Epoch(4),
        conductor: ServiceName::new("c1").unwrap(),
        hosts: [host("h1"), host("h2")].into(),
        source: Some(host("h1")),
        destination: Some(host("h2")),
        issued_at: NOW,
        expires_at: TimeMs(NOW.0 + LIFETIME_MS),
    }
}

fn fence() -> Fence {
    Fence {
        vm: VmUid(Uuid::from_u128(3)),
        operation: OperationId(Uuid::from_u128(2)),
        epoch: Epoch(4),
        incarnation: Incarnation(Uuid::from_u128(5)),
        attempt: 0,
    }
}

/// Checks a grant at `h1` for the good call, changed by `change`.
fn check(grant: &Grant, change: impl FnOnce(&mut Fence, &mut Presented<'_>)) -> Option<String> {
    let (mut fence, at) = (fence(), host("h1"));
    let unchanged = fence;
    let mut call = Presented {
        cluster: ClusterId(Uuid::from_u128(1)),
        host: &at,
        fence: &unchanged,
        now: NOW,
        key_retired_at: None,
    };
    change(&mut fence, &mut call);
    let call = Presented {
        fence: &fence,
        ..call
    };
    let refused = grant.check(&call).err()?;
    assert_eq!(refused.code, Code::PermissionDenied);
    assert!(refused.hint.is_some() || refused.reason == INVALID);
    Some(refused.reason)
}

fn refused(reason: &str) -> Option<String> {
    Some(reason.to_owned())
}

#[test]
fn a_grant_is_for_one_call() {
    let good = grant();
    assert_eq!(check(&good, |_, _| ()), None);
    // The run of the agent is the fence's matter.
    let run = |fence: &mut Fence, _: &mut Presented<'_>| {
        fence.incarnation = Incarnation(Uuid::from_u128(6));
    };
    assert_eq!(check(&good, run), None);
    let other = Uuid::from_u128(9);
    assert_eq!(
        check(&good, |fence, _| fence.vm = VmUid(other)),
        refused(OF_ANOTHER)
    );
    assert_eq!(
        check(&good, |fence, _| fence.operation = OperationId(other)),
        refused(OF_ANOTHER)
    );
    for epoch in [0, 3, 5, u64::MAX] {
        assert_eq!(
            check(&good, |fence, _| fence.epoch = Epoch(epoch)),
            refused(OF_ANOTHER)
        );
    }
    assert_eq!(
        check(&good, |_, call| call.cluster = ClusterId(other)),
        refused(OF_ANOTHER)
    );
    let elsewhere = Grant {
        hosts: [host("h2"), host("h10")].into(),
        ..grant()
    };
    assert_eq!(check(&elsewhere, |_, _| ()), refused(OF_ANOTHER));
}

/// Method: the agent's clock at both sides of every limit.
#[test]
fn times_count_with_the_difference_of_clocks() {
    let good = grant();
    let at = |now: u64| check(&good, |_, call| call.now = TimeMs(now));
    let end = NOW.0 + LIFETIME_MS;
    for (now, expected) in [
        (NOW.0 - SKEW_MS, None),
        (NOW.0 - SKEW_MS - 1, refused(INVALID)),
        (end + SKEW_MS, None),
        (end + SKEW_MS + 1, refused(EXPIRED)),
        (0, refused(INVALID)),
        (u64::MAX, refused(EXPIRED)),
    ] {
        assert_eq!(at(now), expected, "{now}");
    }
    // No scheduler gives these, though the key be stolen.
    for (issued, expires) in [(0, 1), (1, 0)] {
        let strange = Grant {
            issued_at: TimeMs(NOW.0 + issued),
            expires_at: TimeMs(NOW.0 + expires * (LIFETIME_MS + 2)),
            ..grant()
        };
        assert_eq!(check(&strange, |_, _| ()), refused(INVALID));
    }
    let retired = |at: u64| check(&good, |_, call| call.key_retired_at = Some(TimeMs(at)));
    assert_eq!(retired(NOW.0 - SKEW_MS), None);
    assert_eq!(retired(NOW.0 - SKEW_MS - 1), refused(INVALID));
}

#[test]
fn a_grant_is_for_one_caller() {
    let good = grant();
    assert!(good.check_conductor(None).is_ok());
    assert!(good.check_conductor(Some("c1")).is_ok());
    for other in ["c2", "C1", "c11", ""] {
        let refused = good.check_conductor(Some(other)).unwrap_err();
        assert_eq!(refused.reason, OF_ANOTHER, "{other}");
    }
}

/// Goal: disks are read by the destination from the source, and by no other host.
#[test]
fn disks_are_read_by_the_destination_at_the_source() {
    let is = |name: &'static str| move |of: &HostName| of.as_str() == name;
    let read = |grant: &Grant, at: &str, by: &'static str| {
        let by = is(by);
        grant
            .check_reader(&host(at), Some(&by))
            .err()
            .map(|r| r.reason)
    };
    assert_eq!(read(&grant(), "h1", "h2"), None);
    assert!(grant().check_reader(&host("h1"), None).is_ok());
    for (at, by) in [
        ("h1", "h1"),
        ("h1", "h3"),
        ("h2", "h1"),
        ("h3", "h2"),
        ("h2", "h2"),
    ] {
        assert_eq!(read(&grant(), at, by), refused(OF_ANOTHER), "{by} at {at}");
    }
    let stays = Grant {
        source: None,
        destination: None,
        ..grant()
    };
    assert_eq!(read(&stays, "h1", "h2"), refused(OF_ANOTHER));
}

#[test]
fn a_secret_is_not_shown() {
    let key = GrantKey {
        number: 1,
        seed: GrantSeed([0xab; 32]),
        created_at: NOW,
    };
    let shown = format!("{key:?} {:#?}", [Some(key); KEYS_MAX]);
    assert!(!shown.contains("ab") && !shown.contains("171"), "{shown}");
}
