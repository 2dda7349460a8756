//! What a member answers from its state.

use std::collections::BTreeSet;

use berth_agent_core::Expectation;
use berth_domain::id::{Epoch, OperationId, TimeMs};
use berth_domain::name::HostName;
use berth_domain::operation::Operation;
use berth_domain::recovery::era_of;
use berth_saga::{Facts, HostFacts};
use berth_state::State;

use crate::packet::{Question, Told};

/// Answers a question from a state that contains everything acknowledged before it.
pub(super) fn read(state: &State, now: TimeMs, question: &Question) -> Told {
    match question {
        Question::Facts(id) => Told::Facts(facts(state, *id)),
        Question::Drain(id) => Told::Drain(drain(state, *id)),
        Question::Expired => {
            let now = now.max(state.time());
            Told::Expired(state.expired_leases(now).map(|o| o.id).collect())
        }
        Question::Erasures(host) => Told::Erasures(state.erasures_of(host)),
        Question::Expected(host) => Told::Expected(Box::new(expected(state, host))),
        Question::Volumes(host) => {
            let volumes = state.volumes_of_host(host);
            Told::Volumes(volumes.map(|volume| (**volume).clone()).collect())
        }
        Question::Service(name) => Told::Service(state.service(name).map(|s| s.version)),
        Question::Registered(host) => {
            Told::Registered(state.host(host).map(|view| view.host.report.incarnation))
        }
        Question::Decide(_) | Question::Members(_) => Told::Lost,
    }
}

/// Returns what an agent is to expect. It contains guests and claims only where schedulers were lost:
/// otherwise nothing happens that a comparison would find.
#[must_use]
pub fn expected(state: &State, name: &HostName) -> Expectation {
    let erasures = state.erasures_of(name);
    let recovered = state.header().recovery.is_some();
    let Some(view) = state.host(name).filter(|_| recovered) else {
        return Expectation {
            erasures,
            ..Expectation::default()
        };
    };
    let least = Epoch(era_of(state.header().epoch.0));
    Expectation {
        revision: state.revision(),
        expected: state.expected_of(name),
        unknown: view.host.unknown.clone(),
        lost: state.lost_of(&view.host),
        fenced: view.host.fenced.is_some(),
        erasures,
        recovery: state.has_unreported_guests(&view.host).then_some(least),
    }
}

/// Returns a drain with those of its moves that have ended.
fn drain(state: &State, id: OperationId) -> Option<(Operation, BTreeSet<OperationId>)> {
    let operation = state.operation(id)?;
    let moves = operation.drain()?.moving().map(|(_, id)| id);
    let ended = moves.filter(|id| state.operation(*id).is_none_or(|o| o.is_done()));
    Some(((**operation).clone(), ended.collect()))
}

/// Returns an operation with what a saga has to know of it, as conductors read it.
#[must_use]
pub fn facts(state: &State, id: OperationId) -> Option<(Operation, Facts)> {
    let operation = state.operation(id)?;
    let vm = state.vm(operation.vm()?)?;
    let claims = || state.claims_of_vm(&vm.name);
    let migration = Facts::migration_needed(&operation.kind, claims().map(|c| &**c));
    let migration = migration.and_then(|id| state.migration(id));
    let claim = operation.claim.and_then(|c| state.claim(c));
    let names = Facts::hosts_needed(vm, migration.map(|m| &**m), claim.map(|c| &**c));
    let hosts = names.into_iter().filter_map(|name| {
        let facts = HostFacts::from(&*state.host(&name)?.host);
        Some((name, facts))
    });
    let facts = Facts {
        vm: (**vm).clone(),
        migration: migration.map(|m| (**m).clone()),
        claim: claim.map(|c| (**c).clone()),
        claims: claims().map(|c| (c.id, (**c).clone())).collect(),
        hosts: hosts.collect(),
    };
    Some(((**operation).clone(), facts))
}
