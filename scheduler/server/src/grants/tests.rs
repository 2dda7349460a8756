//! Goal: what is signed is what the holder of a lease may do, with the key that the agents know.

use berth_domain::id::ClusterId;
use berth_proto::operation::v1::GrantTerms;
use berth_state::command::{Command, Envelope};
use ring::signature::{ED25519, UnparsedPublicKey};
use uuid::Uuid;

use super::*;

fn apply(state: &mut State, at: u64, command: Command) {
    let envelope = Envelope {
        at: TimeMs(at),
        principal: "leader".to_owned(),
        request: None,
        audit: None,
        command,
    };
    let index = state.revision() + 1;
    state.apply(index, &envelope).outcome.unwrap();
}

fn cluster(version: u32) -> State {
    let mut state = State::default();
    let gone = std::collections::BTreeSet::new();
    let version = ServiceVersion(version);
    apply(&mut state, 1, Command::FinalizeUpgrade { version, gone });
    let cluster = ClusterId(Uuid::from_u128(1));
    apply(&mut state, 2, Command::Bootstrap { cluster });
    state
}

fn replace(state: &mut State, at: u64, number: u32, byte: u8) {
    let seed = GrantSeed([byte; 32]);
    apply(state, at, Command::ReplaceGrantKey { number, seed });
}

fn numbers(terms: &GrantTerms) -> Vec<u32> {
    terms.keys.iter().map(|key| key.number).collect()
}

#[test]
fn a_cluster_has_keys_from_its_version_on() {
    let older = cluster(3);
    assert!(!lacks_key(&older));
    assert!(!terms(&older, TimeMs(1)).required);
    let mut state = cluster(4);
    assert!(lacks_key(&state) && !terms(&state, TimeMs(1)).required);
    replace(&mut state, 10, 1, 7);
    assert!(!lacks_key(&state) && terms(&state, TimeMs(1)).required);
    // Proposed twice, by two leaders: the first one holds.
    replace(&mut state, 11, 1, 8);
    assert_eq!(
        state.header().grant_keys[0].unwrap().seed,
        GrantSeed([7; 32])
    );
    assert_eq!(present_number(&state), 1);
}

/// Goal: there is always a key that agents know: the new one is used once they have it.
#[test]
fn a_new_key_is_used_once_agents_know_it() {
    let mut state = cluster(4);
    assert!(signing_key(&state, TimeMs(5)).is_none());
    replace(&mut state, 10, 1, 1);
    let used = |state: &State, now| signing_key(state, TimeMs(now)).unwrap().number;
    assert_eq!(used(&state, 10), 1);
    replace(&mut state, 100_000, 2, 2);
    assert_eq!(used(&state, 100_000 + USED_AFTER_MS - 1), 1);
    assert_eq!(used(&state, 100_000 + USED_AFTER_MS), 2);
    let shown = terms(&state, TimeMs(1));
    assert_eq!(numbers(&shown), [2, 1]);
    let retired = shown.keys[1].retire_time;
    assert_eq!(
        retired,
        Some(field::timestamp(TimeMs(100_000 + USED_AFTER_MS)))
    );
    replace(&mut state, 200_000, 3, 3);
    assert_eq!(numbers(&terms(&state, TimeMs(1))), [3, 2]);
}

/// Goal: the signature is over the very bytes, and no secret is in what agents get.
#[test]
fn what_is_signed_can_be_checked_with_the_terms() {
    let mut state = cluster(4);
    replace(&mut state, 10, 1, 7);
    let grant = Grant {
        cluster: state.cluster().unwrap(),
        operation: Uuid::from_u128(2).into(),
        vm: Uuid::from_u128(3).into(),
        epoch: berth_domain::id::Epoch(4),
        conductor: berth_domain::name::ServiceName::new("c1").unwrap(),
        hosts: [berth_domain::name::HostName::new("h1").unwrap()].into(),
        source: None,
        destination: None,
        issued_at: TimeMs(20),
        expires_at: TimeMs(20 + LIFETIME_MS),
    };
    let key = signing_key(&state, TimeMs(20)).unwrap();
    let signed = sign(&key, &grant);
    let terms = terms(&state, TimeMs(1));
    let public = UnparsedPublicKey::new(&ED25519, &terms.keys[0].public_key);
    public.verify(&signed.grant, &signed.signature).unwrap();
    let read = v1::Grant::decode(signed.grant).unwrap();
    assert_eq!(Grant::try_from(read).unwrap(), grant);
    let sent = terms.encode_to_vec();
    assert!(!sent.windows(32).any(|bytes| bytes == key.seed.0));
}

#[test]
fn secrets_differ() {
    let seeds: std::collections::HashSet<_> = (0..100).map(|_| draw_seed().unwrap().0).collect();
    assert_eq!(seeds.len(), 100);
}
