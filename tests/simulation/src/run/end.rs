//! When a run is over, and what it came to.

use std::collections::BTreeMap;

use berth_domain::id::TimeMs;
use berth_domain::operation::Outcome;
use berth_state::State;

use super::{Run, Summary};
use crate::member::Member;
use crate::verdict;

impl Run {
    /// Returns whether nothing is under way any more.
    pub(super) fn is_at_rest(&self) -> bool {
        let Some(leader) = self.members.iter().find(|m| m.decides()) else {
            return false;
        };
        let Some(state) = leader.state() else {
            return false;
        };
        let even = self
            .members
            .iter()
            .all(|m| m.position() == leader.position());
        let asked = self.user.wishes.iter().all(|w| w.is_over());
        let raised = self.finalized_at.is_some() || !self.is_upgrade();
        let erased = state.claims().values().all(|claim| claim.is_in_use());
        let ended = state.running_operations().next().is_none();
        let volumes = state.volumes().values().all(|volume| volume.is_ready());
        let volumes = volumes && self.volume_user.is_over() && self.writers.is_over();
        raised && even && asked && erased && ended && volumes
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
        format!(
            "volumes {volumes:?}, positions {positions:?}, {open} open wishes, running {running:?}, raised {raised:?}, \
             erasing {erasing:?}, hosts at {hosts:?}, conductors at {services:?}"
        )
    }

    pub(super) fn finish(&mut self) -> Result<Summary, String> {
        let leader = self
            .members
            .iter()
            .find(|m| m.decides())
            .ok_or("nobody leads")?;
        let state = leader.state().ok_or("the leader has no state")?;
        let position = leader.position().ok_or("the leader has no state")?;
        verdict::at_rest(state, &self.world, &self.hosts)?;
        for agent in &self.agents {
            agent.devices.compare(state, &agent.host)?;
        }
        self.verdict.nothing_lost(position.index)?;
        self.writers.compare(self.verdict.all_written())?;
        self.nothing_gated_afterwards()?;
        let migrations = state.migrations().values();
        let migrated = migrations
            .filter(|m| m.state == berth_domain::migration::State::Completed)
            .count();
        let granted = self.user.wishes.iter();
        let granted = granted.filter(|w| matches!(w.answer, Some(Ok(_))));
        let is_late = |at: Option<TimeMs>| self.finalized_at.is_some() && at > self.finalized_at;
        Ok(Summary {
            events: self.events,
            acknowledged: self.verdict.acknowledgements(),
            granted: granted.clone().count(),
            granted_afterwards: granted.filter(|w| is_late(w.first_at)).count(),
            failed: self.failed(state),
            migrated,
            stayed: state.migrations().len() - migrated,
            hash: format!("{:?}", position.hash),
            volumes: self.volume_user.done,
            writes: self.writers.counts(),
        })
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
