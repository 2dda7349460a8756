//! Goal: no bit of a grant can be changed, and no key but those of the cluster is accepted; and what
//! is required stays required. Method: grants that are signed here, as the scheduler does.

use berth_domain::grant::{EXPIRED, INVALID, LIFETIME_MS, MISSING, OF_ANOTHER, SKEW_MS};
use berth_domain::id::{Epoch, Incarnation, OperationId, VmUid};
use berth_domain::name::ServiceName;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use uuid::Uuid;

use super::*;

const NOW: TimeMs = TimeMs(1_700_000_000_000);

fn host(name: &str) -> HostName {
    HostName::new(name).unwrap()
}

fn cluster() -> ClusterId {
    ClusterId(Uuid::from_u128(1))
}

fn pair(number: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[number; 32]).unwrap()
}

fn key(number: u8, retired_at: Option<TimeMs>) -> v1::GrantKey {
    v1::GrantKey {
        number: number.into(),
        public_key: pair(number).public_key().as_ref().to_vec().into(),
        retire_time: retired_at.map(field::timestamp),
    }
}

fn terms(keys: Vec<v1::GrantKey>) -> Option<v1::GrantTerms> {
    Some(v1::GrantTerms {
        cluster_id: cluster().to_string(),
        required: true,
        keys,
        time: None,
    })
}

fn grant() -> Grant {
    Grant {
        cluster: cluster(),
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

fn sign(number: u8, grant: &Grant) -> v1::SignedGrant {
    let bytes = v1::Grant::from(grant).encode_to_vec();
    v1::SignedGrant {
        signature: pair(number).sign(&bytes).as_ref().to_vec().into(),
        grant: bytes.into(),
        key: number.into(),
    }
}

fn who(role: Role, name: &str) -> Identity {
    Identity {
        role,
        name: name.to_owned(),
        dns: Vec::new(),
        ips: Vec::new(),
        not_before: 0,
        not_after: 0,
        fingerprint: String::new(),
    }
}

/// An agent of `h1` that knows key 1.
fn agent() -> Grants {
    let grants = Grants::open(host("h1"), None, true);
    grants.learn(terms(vec![key(1, None)]));
    grants
}

fn reason(result: Result<(), Refusal>) -> Option<String> {
    result.err().map(|refusal| refusal.reason)
}

fn call(grants: &Grants, signed: Option<&v1::SignedGrant>, now: u64) -> Option<String> {
    let caller = who(Role::Conductor, "c1");
    reason(grants.check(&fence(), signed, Some(&caller), TimeMs(now)))
}

fn refused(reason: &str) -> Option<String> {
    Some(reason.to_owned())
}

#[test]
fn every_bit_of_a_grant_counts() {
    let (agent, good) = (agent(), sign(1, &grant()));
    assert_eq!(call(&agent, Some(&good), NOW.0), None);
    let flipped = |bytes: &Bytes, bit: usize| {
        let mut bytes = bytes.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        Bytes::from(bytes)
    };
    let mut bits = 0;
    for bit in 0..good.grant.len() * 8 {
        let mut other = good.clone();
        other.grant = flipped(&good.grant, bit);
        assert_eq!(call(&agent, Some(&other), NOW.0), refused(INVALID), "{bit}");
        bits += 1;
    }
    for bit in 0..good.signature.len() * 8 {
        let mut other = good.clone();
        other.signature = flipped(&good.signature, bit);
        assert_eq!(call(&agent, Some(&other), NOW.0), refused(INVALID), "{bit}");
        bits += 1;
    }
    assert!(bits > 1_500, "{bits}");
    for length in 0..good.signature.len() {
        let mut other = good.clone();
        other.signature.truncate(length);
        assert_eq!(call(&agent, Some(&other), NOW.0), refused(INVALID));
    }
}

/// Changes a grant by an id.
type Change = fn(&mut Grant, Uuid);

/// Method: each field of the grant by itself, well signed: the fence and the host decide then.
#[test]
fn a_well_signed_grant_of_another_is_refused() {
    let agent = agent();
    let other = Uuid::from_u128(99);
    let changes: [(&str, Change); 7] = [
        ("cluster", |g, id| g.cluster = ClusterId(id)),
        ("operation", |g, id| g.operation = OperationId(id)),
        ("vm", |g, id| g.vm = VmUid(id)),
        ("epoch", |g, _| g.epoch = Epoch(5)),
        ("conductor", |g, _| {
            g.conductor = ServiceName::new("c2").unwrap();
        }),
        ("hosts", |g, _| g.hosts = [host("h2")].into()),
        ("no hosts", |g, _| g.hosts.clear()),
    ];
    for (what, change) in changes {
        let mut changed = grant();
        change(&mut changed, other);
        let signed = sign(1, &changed);
        assert_eq!(
            call(&agent, Some(&signed), NOW.0),
            refused(OF_ANOTHER),
            "{what}"
        );
    }
    let signed = sign(1, &grant());
    let late = NOW.0 + LIFETIME_MS + SKEW_MS + 1;
    assert_eq!(call(&agent, Some(&signed), late), refused(EXPIRED));
    assert_eq!(
        call(&agent, Some(&signed), NOW.0 - SKEW_MS - 1),
        refused(INVALID)
    );
    assert_eq!(call(&agent, None, NOW.0), refused(MISSING));
}

#[test]
fn disks_are_read_by_the_destination_only() {
    let (agent, signed) = (agent(), sign(1, &grant()));
    let read = |who: &Identity, signed: Option<&v1::SignedGrant>| {
        reason(agent.check_reader(&fence(), signed, Some(who), NOW))
    };
    let good = Some(&signed);
    assert_eq!(read(&who(Role::Agent, "h2"), good), None);
    assert_eq!(read(&who(Role::Agent, "h2"), None), refused(MISSING));
    for (role, name) in [
        (Role::Agent, "h1"),
        (Role::Agent, "h3"),
        (Role::Conductor, "h2"),
        (Role::Operator, "h2"),
    ] {
        assert_eq!(
            read(&who(role, name), good),
            refused(OF_ANOTHER),
            "{role}:{name}"
        );
    }
    let boot = Grant {
        source: None,
        destination: None,
        ..grant()
    };
    let boot = sign(1, &boot);
    assert_eq!(
        read(&who(Role::Agent, "h2"), Some(&boot)),
        refused(OF_ANOTHER)
    );
}

/// Goal: after a rotation the key before it is good for what it signed before, and for no more.
#[test]
fn keys_are_rotated() {
    let agent = agent();
    let (first, second) = (sign(1, &grant()), sign(2, &grant()));
    assert_eq!(call(&agent, Some(&second), NOW.0), refused(INVALID));
    let retired = TimeMs(NOW.0 + 60_000);
    agent.learn(terms(vec![key(2, None), key(1, Some(retired))]));
    assert_eq!(call(&agent, Some(&first), NOW.0), None);
    assert_eq!(call(&agent, Some(&second), NOW.0), None);
    let later = Grant {
        issued_at: TimeMs(retired.0 + SKEW_MS + 1),
        expires_at: TimeMs(retired.0 + SKEW_MS + LIFETIME_MS),
        ..grant()
    };
    let at = later.issued_at.0;
    assert_eq!(call(&agent, Some(&sign(1, &later)), at), refused(INVALID));
    assert_eq!(call(&agent, Some(&sign(2, &later)), at), None);
    agent.learn(terms(vec![key(3, None), key(2, Some(retired))]));
    assert_eq!(call(&agent, Some(&first), NOW.0), refused(INVALID));
    // The number alone is none: the signature is made with the key.
    let mut posing = sign(1, &grant());
    posing.key = 3;
    assert_eq!(call(&agent, Some(&posing), NOW.0), refused(INVALID));
}

#[test]
fn what_is_required_stays_required() {
    let folder = tempfile::tempdir().unwrap();
    let directory = || Some(folder.path().to_owned());
    let open = |is_certified| Grants::open(host("h1"), directory(), is_certified);
    let signed = sign(1, &grant());
    // Before a scheduler responded: conductors with names wait, others are of a cluster without.
    assert_eq!(call(&open(true), None, NOW.0), refused("AGENT_STARTING"));
    assert_eq!(call(&open(false), None, NOW.0), None);
    // A scheduler that knows no grants, and a cluster that is not finalized.
    let agent = open(true);
    agent.learn(None);
    assert_eq!(call(&agent, None, NOW.0), None);
    agent.learn(Some(v1::GrantTerms::default()));
    assert_eq!(call(&agent, None, NOW.0), None);
    agent.learn(terms(vec![key(1, None)]));
    for fallen in [None, Some(v1::GrantTerms::default())] {
        agent.learn(fallen);
        assert_eq!(call(&agent, None, NOW.0), refused(MISSING));
        assert_eq!(call(&agent, Some(&signed), NOW.0), None);
    }
    // Another run knows it while no scheduler responds.
    for is_certified in [false, true] {
        let restarted = open(is_certified);
        assert_eq!(call(&restarted, None, NOW.0), refused(MISSING));
        assert_eq!(call(&restarted, Some(&signed), NOW.0), None);
    }
    fs::write(folder.path().join(FILE), b"\xff\xff").unwrap();
    assert_eq!(
        call(&open(true), Some(&signed), NOW.0),
        refused("AGENT_STARTING")
    );
}

/// Goal: no clock of a machine stops the calls of a conductor: grants are dated in the time of the cluster,
/// which a scheduler with a wrong clock may have taken far ahead or left behind. Method: each time of the
/// cluster with each clock of the host; and without a response yet, when only the host's clock is known.
#[test]
fn grants_count_by_the_time_of_the_cluster() {
    const HOUR: u64 = 3_600_000;
    const YEARS: u64 = 10 * 365 * 24 * HOUR;
    let offsets = [
        (0, true),
        (HOUR, true),
        (HOUR, false),
        (YEARS, true),
        (YEARS, false),
    ];
    let moved = |(by, ahead): (u64, bool)| match ahead {
        true => TimeMs(NOW.0 + by),
        false => TimeMs(NOW.0 - by),
    };
    for cluster_time in offsets.map(moved) {
        for wall in offsets.map(moved) {
            let grants = Grants::open(host("h1"), None, true);
            let at = Grant {
                issued_at: cluster_time,
                expires_at: TimeMs(cluster_time.0 + LIFETIME_MS),
                ..grant()
            };
            let signed = sign(7, &at);
            grants.learn(terms(vec![key(7, None)]));
            let without = grants.check(&fence(), Some(&signed), None, wall);
            let is_near = wall.0.abs_diff(cluster_time.0) <= LIFETIME_MS
                && wall.0 + SKEW_MS >= cluster_time.0;
            assert_eq!(without.is_ok(), is_near, "{cluster_time:?} {wall:?}");
            let mut stated = terms(vec![key(7, None)]);
            stated.as_mut().unwrap().time = Some(field::timestamp(cluster_time));
            grants.learn(stated);
            let checked = grants.check(&fence(), Some(&signed), None, wall);
            assert_eq!(checked, Ok(()), "{cluster_time:?} {wall:?}");
        }
    }
}
