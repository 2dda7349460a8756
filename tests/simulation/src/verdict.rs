//! What must hold after every step, and at the end.

use std::collections::BTreeMap;

use berth_domain::claim;
use berth_domain::fence::may_evacuate;
use berth_domain::id::{ClaimId, Generation};
use berth_domain::migration;
use berth_domain::name::HostName;
use berth_domain::vm;
use berth_driver::sim::World;
use berth_replication::Position;
use berth_state::State;

use crate::member::Member;
use crate::writer::Applied;

/// Collects what members applied and acknowledged.
#[derive(Debug, Default)]
pub struct Verdict {
    /// By index: what the command there did.
    applied: BTreeMap<u64, String>,
    /// By index: where a state was after it.
    positions: BTreeMap<u64, Position>,
    /// What was acknowledged: index and what it did.
    acknowledged: Vec<(u64, String)>,
    /// What was applied of the writes through any member.
    written: Applied,
    /// The furthest state that any member has applied.
    latest: Option<(Position, State)>,
    /// Whether a quorum may go on without what it had acknowledged, as a directory was put back.
    pub allows_two_histories: bool,
    /// Where that was seen.
    pub split: Option<u64>,
}

impl Verdict {
    /// Notes what a member applied. The invariants are checked of the first state at each index: all
    /// others there have the same hash.
    ///
    /// # Errors
    ///
    /// When another member applied something else there, or came to another state, or an invariant
    /// does not hold.
    pub fn applied(
        &mut self,
        commands: Vec<(u64, String)>,
        position: Position,
        state: Option<&State>,
    ) -> Result<(), String> {
        for (index, outcome) in commands {
            match self.applied.get(&index) {
                Some(known) if *known != outcome && self.allows_two_histories => {
                    self.split.get_or_insert(index);
                }
                Some(known) if *known != outcome => {
                    return Err(format!(
                        "members disagree at index {index}: {known} here, {outcome} there"
                    ));
                }
                Some(_) => {}
                None => {
                    self.applied.insert(index, outcome);
                }
            }
        }
        match self.positions.get(&position.index) {
            Some(known) if *known != position && self.allows_two_histories => {
                self.split.get_or_insert(position.index);
            }
            Some(known) if *known != position => {
                return Err(format!("states differ: {known:?} and {position:?}"));
            }
            Some(_) => {}
            None => {
                self.positions.insert(position.index, position);
                if let Some(state) = state {
                    check(position, state)?;
                }
            }
        }
        let newer = self
            .latest
            .as_ref()
            .is_none_or(|(latest, _)| latest.index < position.index);
        if newer && let Some(state) = state {
            self.latest = Some((position, state.clone()));
        }
        Ok(())
    }

    /// Notes a write that a member applied.
    ///
    /// # Errors
    ///
    /// When it was applied before, with another outcome.
    pub fn written(&mut self, number: u64, generation: Generation) -> Result<(), String> {
        match self.written.insert(number, generation) {
            Some(known) if known != generation => Err(format!(
                "write {number} was applied twice: generations {known} and {generation}"
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns what was applied of the writes through any member.
    #[must_use]
    pub fn all_written(&self) -> &Applied {
        &self.written
    }

    /// Returns the furthest state that any member has applied.
    #[must_use]
    pub fn latest(&self) -> Option<&State> {
        self.latest.as_ref().map(|(_, state)| state)
    }

    /// Returns that state with where it is.
    #[must_use]
    pub fn latest_at(&self) -> Option<(Position, &State)> {
        self.latest
            .as_ref()
            .map(|(position, state)| (*position, state))
    }

    /// Forgets what the members of a group did: a new one begins with this state.
    pub fn restored(&mut self, state: State) {
        self.applied.clear();
        self.positions.clear();
        self.acknowledged.clear();
        self.written = Applied::default();
        if let Some((position, latest)) = &mut self.latest {
            position.index = state.revision();
            *latest = state;
        }
    }

    /// Notes what a member acknowledged.
    pub fn acknowledged(&mut self, index: u64, outcome: String) {
        self.acknowledged.push((index, outcome));
    }

    /// Returns how many commands were acknowledged.
    #[must_use]
    pub fn acknowledgements(&self) -> usize {
        self.acknowledged.len()
    }

    /// Checks the guests against the claims: no guest runs twice, none without a claim.
    ///
    /// # Errors
    ///
    /// What does not hold.
    pub fn guests(&self, world: &World, hosts: &[HostName]) -> Result<(), String> {
        world.check()?;
        // Guests of the lost time have their claims when the recovery has ended.
        let latest = self.latest.as_ref().map(|(_, state)| state);
        let Some(state) = latest.filter(|state| !state.is_recovering()) else {
            return Ok(());
        };
        for name in hosts {
            let Some(host) = world.host(name) else {
                continue;
            };
            for (uid, domain) in host.domains() {
                let held = domain.holds_memory();
                // One that an old source sent does not say its claim.
                let is_for = |id| domain.spec.claim.is_none_or(|own| own == id);
                let mut claims = state.claims_of_host(name);
                let claimed =
                    claims.any(|c| c.is_in_use() && c.vm == domain.spec.vm && is_for(c.id));
                if held && !claimed {
                    return Err(format!(
                        "guest {} ({uid}) is on {name} in phase {:?} without a claim there, its metadata says {:?}",
                        domain.spec.vm, domain.phase, domain.spec.claim
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks what was acknowledged against what was applied in the end.
    ///
    /// # Errors
    ///
    /// The first acknowledged command that is lost.
    pub fn nothing_lost(&self, end: u64) -> Result<(), String> {
        for (index, outcome) in &self.acknowledged {
            match self.applied.get(index) {
                Some(applied) if applied == outcome => {}
                Some(applied) => {
                    return Err(format!(
                        "{outcome} was acknowledged at index {index}, where {applied} is now"
                    ));
                }
                None => {
                    return Err(format!(
                        "{outcome} was acknowledged at index {index} and is lost"
                    ));
                }
            }
            if *index > end {
                return Err(format!(
                    "index {index} was acknowledged, the log ends at {end}"
                ));
            }
        }
        Ok(())
    }
}

fn check(position: Position, state: &State) -> Result<(), String> {
    let checked = state.check();
    checked.map_err(|violation| format!("at index {}: {violation}", position.index))
}

/// Checks a state that a member has come to, with all that is not part of its hash: indexes and sums.
///
/// # Errors
///
/// What does not hold.
pub fn member(member: &Member) -> Result<(), String> {
    let (Some(position), Some(state)) = (member.position(), member.state()) else {
        return Ok(());
    };
    check(position, state).map_err(|what| format!("member {:?} {what}", member.id()))
}

/// Returns whether a host is proven to be dead: what is to run there does not.
fn is_dead(state: &State, host: &HostName) -> bool {
    let view = state.host(host);
    view.is_some_and(|view| may_evacuate(&view.host, state.time()).is_ok())
}

/// Returns whether a VM that waits to be verified did not run before.
fn was_stopped(state: &State, vm: &vm::Vm) -> bool {
    let mut migrations = state.migrations().values();
    migrations.any(|m| m.vm == vm.name && m.state == migration::State::Verifying && m.was_stopped)
}

/// Checks a cluster at rest: nothing left over, every guest where it should be.
///
/// # Errors
///
/// What does not hold.
pub fn at_rest(state: &State, world: &World, hosts: &[HostName]) -> Result<(), String> {
    state.check().map_err(|v| v.to_string())?;
    if let Some(operation) = state.running_operations().next() {
        return Err(format!("an operation still runs: {operation:?}"));
    }
    // A host that is dead for good has namespaces that nobody erases.
    for claim in state.claims().values().filter(|claim| claim.is_in_use()) {
        let kept = state.vm(&claim.vm).map(|vm| vm.state) == Some(vm::State::Resized);
        if claim.state != claim::State::Active && !kept {
            return Err(format!("a claim is left over: {claim:?}"));
        }
    }
    for migration in state.migrations().values() {
        let lost = migration
            .error
            .as_ref()
            .is_some_and(|e| e.reason.contains("LOST"));
        let waits = migration.state == migration::State::Verifying;
        if !(migration.state.is_ended() || waits) || lost {
            return Err(format!("a migration ended badly: {migration:?}"));
        }
        if migration.state == migration::State::Completed && migration.assignment_after.is_none() {
            return Err(format!(
                "a completed migration has no assignment: {migration:?}"
            ));
        }
    }
    for vm in state.vms().values() {
        let runs = world.executing(vm.uid);
        let expected: Vec<&HostName> = match vm.state {
            vm::State::Active => vm
                .host
                .iter()
                .filter(|host| !is_dead(state, host))
                .collect(),
            vm::State::Resized => vm
                .host
                .iter()
                .filter(|host| !was_stopped(state, vm) && !is_dead(state, host))
                .collect(),
            vm::State::Error | vm::State::Stopped | vm::State::Shelved => Vec::new(),
            vm::State::Building | vm::State::Migrating | vm::State::Deleting => {
                return Err(format!("a VM is not at rest: {vm:?}"));
            }
        };
        // Its guest was stopped or deleted in the time that is lost; it still waits to be verified.
        let is_off =
            vm.state == vm::State::Resized && runs.is_empty() && state.header().recovery.is_some();
        if runs != expected && !is_off {
            return Err(format!(
                "VM {} runs on {runs:?}, the state says {expected:?}",
                vm.name
            ));
        }
    }
    for name in hosts {
        let Some(host) = world.host(name) else {
            continue;
        };
        for (uid, domain) in host.domains() {
            // One that an old source sent does not say its claim.
            let is_for =
                |id: Option<ClaimId>| domain.spec.claim.is_none() || domain.spec.claim == id;
            let known = state
                .vms()
                .values()
                .any(|vm| vm.uid == *uid && vm.host.as_ref() == Some(name) && is_for(vm.claim));
            if !known {
                return Err(format!(
                    "guest {} is left over on {name}: {:?}",
                    domain.spec.vm, domain.phase
                ));
            }
        }
    }
    Ok(())
}
