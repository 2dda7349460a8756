//! Goal: only operators can make the replicated state grow beyond `berth_domain::bound`, by any
//! method.
//!
//! Method: the methods come from the descriptors and the roles from the access table. Each method that is
//! no read has bounds for each role that may call it, and an attack: commands as the service makes them of
//! requests, with new names each time and texts as long as the conversions accept. Each attack runs 2,000
//! times on the state machine; then every row is measured as it is stored. A role's state grows by
//! nothing that has no bound, and by no more than each bound.

mod attack;

use std::collections::{BTreeMap, BTreeSet};

use berth_codec::encode_row;
use berth_domain::bound::{BOUNDS, Bound, Bytes, Record};
use berth_process::access::table;
use berth_state::{Key, Row, State};
use berth_testkit::state::World;
use berth_tls::Role;
use prost::Message as _;
use prost_types::FileDescriptorSet;

use self::attack::Attacker;

/// How often each method is repeated.
const REPEATS: usize = 2_000;

/// What the name of a remembered request takes beside its outcome.
const REQUEST_BYTES_MAX: u64 = 1024;

/// The roles that are no administrators. Members of the scheduler are the state.
const ROLES: [Role; 4] = [
    Role::Agent,
    Role::Conductor,
    Role::CsiController,
    Role::Reader,
];

/// Services of other programs.
const ELSEWHERE: [&str; 3] = ["berth.agent.", "berth.conductor.", "csi."];

/// The verbs of methods that read.
const READS: [&str; 10] = [
    "Expect", "Find", "Fit", "Get", "List", "Plan", "Verify", "Wait", "Watch", "Grant",
];

/// Returns the methods of schedulers that a role may call and that are no reads.
pub(crate) fn writes(role: Role) -> Vec<String> {
    let described = FileDescriptorSet::decode(berth_proto::DESCRIPTOR_SET).expect("descriptors");
    let mut writes = Vec::new();
    for file in &described.file {
        for service in &file.service {
            for method in &service.method {
                let name = format!("{}.{}/{}", file.package(), service.name(), method.name());
                let is_here = !ELSEWHERE.iter().any(|prefix| name.starts_with(prefix));
                let is_read = READS.iter().any(|verb| method.name().starts_with(verb));
                if is_here && !is_read && table::may(role, &name) {
                    writes.push(name);
                }
            }
        }
    }
    writes
}

fn is_of(bound: &Bound, role: Role) -> bool {
    bound.role == role.as_str() || bound.role == "everybody"
}

/// Goal: a new method that writes does not come without a bound, nor a bound without its method.
#[test]
fn every_method_that_writes_has_bounds() {
    let mut known = BTreeSet::new();
    for role in ROLES {
        for method in writes(role) {
            let mut bounds = BOUNDS.iter();
            let has_bound =
                bounds.any(|b| b.role == role.as_str() && b.methods.contains(&&*method));
            assert!(
                has_bound,
                "{method} of {role}: say in domain/src/bound.rs what it creates"
            );
            known.insert((role.as_str(), method));
        }
    }
    assert!(writes(Role::Reader).is_empty(), "readers create nothing");
    assert!(known.len() > 20, "the descriptors were read");
    for bound in BOUNDS {
        for method in bound.methods {
            let row = (bound.role, (*method).to_owned());
            assert!(known.contains(&row), "{row:?} is not called");
        }
    }
}

/// Returns what kind of record a row is; absent where only operators create it.
fn record_of(row: &Row) -> Option<Record> {
    match row {
        Row::Host(_) => Some(Record::Host),
        Row::Provider(_) => Some(Record::Provider),
        Row::Class(_) | Row::Trait(_) => Some(Record::Name),
        Row::Volume(_) => Some(Record::Volume),
        Row::Consumer(_) => Some(Record::Consumer),
        Row::Service(_) => Some(Record::Conductor),
        Row::Vm(_) => Some(Record::Vm),
        Row::Claim(_) => Some(Record::Claim),
        Row::Operation(_) => Some(Record::Operation),
        Row::Migration(_) => Some(Record::Migration),
        Row::Request(_) => Some(Record::Request),
        Row::Audit(_) => Some(Record::AuditEntry),
        Row::Header(_)
        | Row::Flavor(_)
        | Row::ServerGroup(_)
        | Row::Aggregate(_)
        | Row::Policy(_)
        | Row::PciAlias(_)
        | Row::Network(_)
        | Row::RevokedCertificate(_)
        | Row::SettledVm(_) => None,
        Row::RecoveredHost(_) => Some(Record::RecoveredHost),
        Row::Image(_) => Some(Record::Image),
    }
}

/// What there is of a kind of record.
#[derive(Clone, Debug, Default)]
struct Measured {
    count: usize,
    longest: usize,
    together: u64,
}

fn measure(state: &State) -> BTreeMap<Record, Measured> {
    let mut all: BTreeMap<Record, Measured> = BTreeMap::new();
    for row in state.rows() {
        let Some(record) = record_of(&row) else {
            continue;
        };
        let stored = encode_row(&row);
        let bytes = stored.key.len() + stored.value.len();
        let measured = all.entry(record).or_default();
        measured.count += 1;
        measured.longest = measured.longest.max(bytes);
        measured.together += bytes as u64;
    }
    all
}

/// Returns the rows that no bound of a role is about.
fn others(role: Role, state: &State) -> BTreeMap<Key, Row> {
    let is_bounded = |record: Record| BOUNDS.iter().any(|b| is_of(b, role) && b.record == record);
    let rows = state.rows().filter(|row| {
        !matches!(row, Row::Header(_)) && record_of(row).is_none_or(|record| !is_bounded(record))
    });
    rows.map(|row| (row.key(), row)).collect()
}

/// Checks what a role has created against its bounds. It acted as one host, or as one conductor.
fn check(role: Role, before: &BTreeMap<Record, Measured>, after: &BTreeMap<Record, Measured>) {
    for bound in BOUNDS.iter().filter(|bound| is_of(bound, role)) {
        let count =
            |all: &BTreeMap<Record, Measured>| all.get(&bound.record).map_or(0, |m| m.count);
        let created = count(after).saturating_sub(count(before));
        assert!(created <= bound.count, "{role}: {created}, {bound:?}");
        let Some(measured) = after.get(&bound.record) else {
            continue;
        };
        match bound.bytes {
            Bytes::Each(max) => {
                assert!(measured.longest <= max, "{role}: {measured:?}, {bound:?}");
            }
            Bytes::Together(max) => {
                let names = measured.count as u64 * REQUEST_BYTES_MAX;
                let is_good = measured.together <= max + names;
                assert!(is_good, "{role}: {measured:?}, {bound:?}");
            }
        }
    }
}

/// Runs every attack of a role, and checks after each.
fn attack(role: Role) {
    let mut attacker = Attacker::new(role);
    let before = measure(&attacker.world.state);
    let untouched = others(role, &attacker.world.state);
    let mut never = Vec::new();
    for method in writes(role) {
        let accepted = attacker.accepted;
        let started = std::time::Instant::now();
        for number in 0..REPEATS {
            attacker.repeat(&method, number);
        }
        if attacker.accepted == accepted {
            never.push(method.clone());
        }
        let after = measure(&attacker.world.state);
        check(role, &before, &after);
        let all: u64 = after.values().map(|measured| measured.together).sum();
        println!("{role} {method}: {all} bytes, {:?}", started.elapsed());
    }
    assert!(never.is_empty(), "no repeat was accepted: {never:?}");
    let now = others(role, &attacker.world.state);
    let changed = now
        .iter()
        .filter(|(key, row)| untouched.get(key) != Some(row));
    let changed: Vec<&Key> = changed.map(|(key, _)| key).collect();
    assert!(
        changed.is_empty(),
        "{role} changed {changed:?}, which has no bound"
    );
    assert_eq!(
        now.len(),
        untouched.len(),
        "{role} removed what is not its own"
    );
    let World { state, .. } = &attacker.world;
    state
        .check()
        .unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn an_agent_fills_no_more_than_its_bounds() {
    attack(Role::Agent);
}

#[test]
fn a_conductor_fills_no_more_than_its_bounds() {
    attack(Role::Conductor);
}

#[test]
fn a_controller_of_volumes_fills_no_more_than_its_bounds() {
    attack(Role::CsiController);
}
