//! Makes and signs grants: what the holder of a lease may do at agents.
//!
//! The keys are in the replicated state, so that every member signs with the same one. The state does
//! neither: it draws no secrets and computes no signatures.
//!
//! Invariant: a secret leaves this module as a command only. No response, log line or error holds it.

use berth_domain::grant::{ConsoleGrant, Grant, GrantKey, GrantSeed, ImageGrant, LIFETIME_MS};
use berth_domain::id::{TimeMs, VmUid};
use berth_domain::image::{Image, ImageDownload};
use berth_domain::name::ServiceName;
use berth_domain::operation::Operation;
use berth_domain::version::ServiceVersion;
use berth_proto::convert::field;
use berth_proto::operation::v1;
use berth_state::State;
use prost::Message as _;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair as _};

/// How long after a key was made it is used first, where there is one before it: until then the agents
/// have it from the responses to their heartbeats.
const USED_AFTER_MS: u64 = 60_000;

/// Draws a secret from the random source of the operating system.
pub(crate) fn draw_seed() -> Option<GrantSeed> {
    let mut seed = [0; 32];
    SystemRandom::new().fill(&mut seed).ok()?;
    Some(GrantSeed(seed))
}

/// Returns the number of the present key; 0 where there is none.
pub(crate) fn present_number(state: &State) -> u32 {
    let [present, _] = state.header().grant_keys;
    present.map_or(0, |key| key.number)
}

/// Returns the number of the next key.
pub(crate) fn next_number(state: &State) -> u32 {
    present_number(state).saturating_add(1)
}

/// Returns whether the cluster is to have a key and has none.
pub(crate) fn lacks_key(state: &State) -> bool {
    let header = state.header();
    header.cluster_version >= ServiceVersion::GRANTS && header.grant_keys[0].is_none()
}

/// Returns the signed grant of the holder of an operation's lease; nothing where there is no lease or
/// no key.
pub(crate) fn signed(state: &State, operation: &Operation, now: TimeMs) -> Option<v1::SignedGrant> {
    let key = signing_key(state, now)?;
    let grant = grant(state, operation, now)?;
    Some(sign(&key, &grant))
}

/// Returns the signed grant to type on the console of a guest; nothing where there is no key.
pub(crate) fn signed_console(
    state: &State,
    vm: VmUid,
    conductor: &ServiceName,
    user: &str,
    now: TimeMs,
) -> Option<v1::SignedGrant> {
    let key = signing_key(state, now)?;
    let cluster = state.cluster()?;
    let grant = ConsoleGrant::new(cluster, vm, conductor.clone(), user.to_owned(), now);
    let grant = v1::ConsoleGrant::from(&grant).encode_to_vec();
    Some(signed_with(&key, ConsoleGrant::PREFIX, grant))
}

/// Returns the signed grant to have agents take, download, fetch and send an image; nothing where there is no
/// key.
pub(crate) fn signed_image(
    state: &State,
    image: &Image,
    download: Option<ImageDownload>,
    conductor: &ServiceName,
    now: TimeMs,
) -> Option<v1::SignedGrant> {
    let key = signing_key(state, now)?;
    let grant = ImageGrant::new(state.cluster()?, image, download, conductor.clone(), now);
    let grant = v1::ImageGrant::from(&grant).encode_to_vec();
    Some(signed_with(&key, ImageGrant::PREFIX, grant))
}

/// Returns what agents check grants with, by now in replicated time.
pub(crate) fn terms(state: &State, now: TimeMs) -> v1::GrantTerms {
    let header = state.header();
    let [present, previous] = header.grant_keys;
    let retired_at = present.map(|key| TimeMs(key.created_at.0.saturating_add(USED_AFTER_MS)));
    let present = present.map(|key| public(&key, None));
    let previous = previous.map(|key| public(&key, retired_at));
    v1::GrantTerms {
        cluster_id: header.cluster.map(|id| id.to_string()).unwrap_or_default(),
        required: header.grant_keys[0].is_some(),
        keys: present.into_iter().chain(previous).collect(),
        time: Some(field::timestamp(now)),
    }
}

/// Returns the key that is used now: the present one, once the agents know it.
fn signing_key(state: &State, now: TimeMs) -> Option<GrantKey> {
    let [present, previous] = state.header().grant_keys;
    let present = present?;
    let is_known = now.0 >= present.created_at.0.saturating_add(USED_AFTER_MS);
    match previous {
        Some(previous) if !is_known => Some(previous),
        Some(_) | None => Some(present),
    }
}

fn grant(state: &State, operation: &Operation, now: TimeMs) -> Option<Grant> {
    let lease = operation.lease.as_ref()?;
    if operation.is_done() {
        return None;
    }
    let vm = state.vm(operation.vm()?)?;
    let claims = || state.claims_of_vm(&vm.name);
    let kept = claims().find_map(|claim| match claim.owner {
        berth_domain::claim::Owner::Migration(migration) => Some(migration),
        berth_domain::claim::Owner::Vm => None,
    });
    let migration = operation.kind.migration().or(kept);
    let migration = migration.and_then(|id| state.migrations().get(&id));
    let source = migration.map(|migration| migration.source.clone());
    let destination = migration.and_then(|migration| migration.destination.clone());
    let on = claims().map(|claim| claim.host.clone());
    let others = [&vm.host, &vm.remains_on, &source, &destination];
    Some(Grant {
        cluster: state.cluster()?,
        operation: operation.id,
        vm: vm.uid,
        epoch: lease.epoch,
        conductor: lease.conductor.clone(),
        hosts: on.chain(others.into_iter().flatten().cloned()).collect(),
        source,
        destination,
        issued_at: now,
        expires_at: TimeMs(now.0.saturating_add(LIFETIME_MS)),
    })
}

fn sign(key: &GrantKey, grant: &Grant) -> v1::SignedGrant {
    signed_with(key, b"", v1::Grant::from(grant).encode_to_vec())
}

/// Signs an encoded grant behind the prefix of its kind.
fn signed_with(key: &GrantKey, prefix: &[u8], grant: Vec<u8>) -> v1::SignedGrant {
    let signature = pair(key).sign(&[prefix, &grant].concat());
    v1::SignedGrant {
        grant: grant.into(),
        key: key.number,
        signature: signature.as_ref().to_vec().into(),
    }
}

fn public(key: &GrantKey, retired_at: Option<TimeMs>) -> v1::GrantKey {
    v1::GrantKey {
        number: key.number,
        public_key: pair(key).public_key().as_ref().to_vec().into(),
        retire_time: retired_at.map(field::timestamp),
    }
}

fn pair(key: &GrantKey) -> Ed25519KeyPair {
    let pair = Ed25519KeyPair::from_seed_unchecked(&key.seed.0);
    pair.expect("every 32 bytes are the seed of a key pair")
}

#[cfg(test)]
mod tests;
