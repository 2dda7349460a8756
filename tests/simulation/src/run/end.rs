//! When a run is over, and what it came to.

use std::collections::BTreeMap;

use berth_domain::id::TimeMs;
use berth_domain::migration;
use berth_domain::operation::Outcome;
use berth_state::State;

use super::{Run, Summary};
use crate::member::Member;
use crate::verdict;

/// Within how long each agent has compared.
const COMPARED_AFTER_MS: u64 = 15_000;

impl Run {
    /// Returns whether nothing is under way any more.
    pub(super) fn is_at_rest(&self) -> bool {
        let Some(leader) = self.members.iter().find(|m| m.decides()) else {
            return false;
        };
        let Some(state) = leader.state() else {
            return false;
        };
        let Some(membership) = leader.membership().cloned() else {
            return false;
        };
        let mut ids = membership.members.iter().map(|member| member.id);
        let even = ids.all(|id| {
            let mut members = self.members.iter();
            let member = members.find(|member| member.id() == Some(id));
            member.and_then(Member::position) == leader.position()
        });
        let even = even && self.membership_is_at_rest(&membership);
        let asked = self.user.wishes.iter().all(|w| w.is_over());
        let raised = self.finalized_at.is_some() || !self.is_upgrade();
        let erased = state.claims().values().all(|claim| claim.is_in_use());
        let ended = state.running_operations().next().is_none();
        let volumes = state.volumes().values().all(|volume| volume.is_ready());
        let volumes = volumes && self.volume_user.is_over() && self.writers.is_over();
        // Agents remove what is left over from before when they compare next.
        let settled = match state.header().recovery {
            Some(recovery) => {
                (recovery.ended_at).is_some_and(|at| self.now_ms().0 > at.0 + COMPARED_AFTER_MS)
            }
            None => true,
        };
        settled && raised && even && asked && erased && ended && volumes
    }

    /// Says what is still under way.
    pub(super) fn unrest(&self) -> String {
        let positions: Vec<_> = self.members.iter().map(Member::position).collect();
        let state = self
            .members
            .iter()
            .find(|m| m.decides())
            .and_then(Member::state);
        let running: Vec<String> = state
            .map(|s| s.running_operations().map(|o| format!("{o:?}")).collect())
            .unwrap_or_default();
        let open = self.user.wishes.iter().filter(|w| !w.is_over()).count();
        let hosts = state.map(|s| s.hosts().values());
        let hosts: Vec<_> = (hosts.into_iter().flatten())
            .map(|view| view.host.report.service_version)
            .collect();
        let services = state.map(|s| s.services().values());
        let services: Vec<_> = (services.into_iter().flatten())
            .map(|s| s.version)
            .collect();
        let raised = self.finalized_at;
        let claims = state.map(|s| s.claims().values().filter(|c| !c.is_in_use()));
        let erasing: Vec<_> = (claims.into_iter().flatten())
            .map(|claim| (&claim.host, &claim.erasures))
            .collect();
        let volumes = state.map(|s| s.volumes().values().filter(|v| !v.is_ready()));
        let volumes: Vec<_> = volumes.into_iter().flatten().collect();
        let recovery = state.filter(|s| s.is_recovering());
        let recovery = recovery.map(|s| (s.recovery_progress(), s.recovery_outcome()));
        let administration = &self.administration;
        let ids: Vec<_> = self.members.iter().map(Member::id).collect();
        let up: Vec<_> = self.members.iter().map(Member::is_up).collect();
        let tasks: Vec<_> = administration.administrators.iter().collect();
        let lost = &administration.lost;
        let membership = self.membership();
        format!(
            "members {membership:?} on machines {ids:?}, up {up:?}, lost {lost:?}, tasks {tasks:?}, \
             volumes {volumes:?}, recovery {recovery:?}, positions {positions:?}, {open} open wishes, running {running:?}, raised {raised:?}, \
             erasing {erasing:?}, hosts at {hosts:?}, conductors at {services:?}"
        )
    }

    pub(super) fn finish(&mut self) -> Result<Summary, String> {
        if self.is_over {
            return Ok(self.summary(None));
        }
        let leader = self
            .members
            .iter()
            .find(|m| m.decides())
            .ok_or("nobody leads")?;
        let membership = leader.membership().ok_or("the leader has no state")?;
        self.members_are_whole(membership)?;
        let state = leader.state().ok_or("the leader has no state")?;
        let position = leader.position().ok_or("the leader has no state")?;
        for member in &self.members {
            verdict::member(member)?;
        }
        verdict::at_rest(state, &self.world, &self.hosts)?;
        for agent in &self.agents {
            agent.devices.compare(state, &agent.host)?;
        }
        self.verdict.nothing_lost(position.index)?;
        self.writers.compare(self.verdict.all_written())?;
        self.nothing_gated_afterwards()?;
        Ok(self.summary(Some((state, format!("{:?}", position.hash)))))
    }

    /// Sums up a run; one that ended with two histories has no state.
    fn summary(&self, end: Option<(&State, String)>) -> Summary {
        let migrations = end
            .iter()
            .flat_map(|(state, _)| state.migrations().values());
        let migrations: Vec<_> = migrations.map(|m| m.state).collect();
        let is_completed = |state: &&migration::State| **state == migration::State::Completed;
        let migrated = migrations.iter().filter(is_completed).count();
        let granted = self.user.wishes.iter();
        let granted = granted.filter(|w| matches!(w.answer, Some(Ok(_))));
        let is_late = |at: Option<TimeMs>| self.finalized_at.is_some() && at > self.finalized_at;
        Summary {
            events: self.events,
            acknowledged: self.verdict.acknowledgements(),
            granted: granted.clone().count(),
            granted_afterwards: granted.filter(|w| is_late(w.first_at)).count(),
            failed: end
                .as_ref()
                .map_or_else(BTreeMap::new, |(state, _)| self.failed(state)),
            migrated,
            stayed: migrations.len() - migrated,
            hash: end.map_or_else(String::new, |(_, hash)| hash),
            volumes: self.volume_user.done,
            writes: self.writers.counts(),
            members: self.administration.done,
            seen: self.seen,
            recoveries: self.recoveries,
        }
    }

    /// Counts why wishes were refused and operations failed; those that the user gave up are not
    /// failures.
    fn failed(&self, state: &State) -> BTreeMap<String, usize> {
        let mut failed = BTreeMap::new();
        let refused = self.user.wishes.iter().filter_map(|w| match &w.answer {
            Some(Err(refusal)) => Some(refusal),
            Some(Ok(_)) | None => None,
        });
        let ended = state.operations().values().filter(|o| !o.cancelled);
        let ended = ended.filter_map(|operation| match &operation.outcome {
            Some(Outcome::Failed(refusal)) => Some(refusal),
            Some(Outcome::Succeeded) | None => None,
        });
        for refusal in refused.chain(ended) {
            *failed.entry(refusal.reason.clone()).or_default() += 1;
        }
        failed
    }
}
