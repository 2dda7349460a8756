//! What the policy says of memory and of shared CPUs, and what follows from it for hosts: the
//! inventories of their root providers, and who is marked as having no room.
//!
//! Nothing is refused because too much is taken already: an operator may say less than is there, and
//! sees it. What is refused are unknown names, and two groups that speak of the same for one host.

use std::collections::BTreeSet;

use berth_domain::host_rule::HostRule;
use berth_domain::name::{AggregateName, HostName};
use berth_domain::policy::{Scoped, Terms};
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::Refusal;

use crate::refusals::precondition;
use crate::state::State;
use crate::transaction::{Journal, Transaction};

/// A host with the rule that held of it.
pub(super) type Before = (HostName, HostRule);

impl<J: Journal> Transaction<'_, J> {
    /// Refuses what is said of groups and hosts that are not there, or of a host by two groups.
    pub(super) fn examine_scoped<T: Terms>(
        &self,
        old: &Scoped<T>,
        new: &Scoped<T>,
    ) -> Result<(), Refusal> {
        let mut hosts = new.hosts.keys();
        if let Some(host) = hosts.find(|host| self.state.host(host).is_none()) {
            return Err(Refusal::not_found("host", host)
                .with_hint("the hosts of this cluster are listed by `berth host list`"));
        }
        let mut groups = new.groups.keys();
        if let Some(group) = groups.find(|group| self.state.aggregate(group).is_none()) {
            return Err(Refusal::not_found("aggregate", group)
                .with_hint("a group is an aggregate: see `berth aggregate list`"));
        }
        let groups = new.groups.keys();
        for group in groups.filter(|name| !old.groups.contains_key(*name)) {
            let aggregate = self.state.aggregate(group);
            for host in aggregate.iter().flat_map(|aggregate| &aggregate.hosts) {
                examine_group(self.state, new, group, host)?;
            }
        }
        Ok(())
    }

    /// Returns every host with the rule that holds of it, to be compared after a change.
    pub(super) fn rules_of_all(&self) -> Vec<Before> {
        let hosts = self.state.hosts().iter();
        hosts
            .map(|(name, view)| (name.clone(), view.rule))
            .collect()
    }

    /// Has inventories and marks follow where something else holds than before.
    pub(super) fn follow_rules(&mut self, before: impl IntoIterator<Item = Before>) {
        for (name, old) in before {
            let Some(view) = self.state.host(&name).cloned() else {
                continue;
            };
            let new = view.rule;
            if new == old {
                continue;
            }
            let provider = self.state.provider(view.host.provider).cloned();
            if let Some(provider) = provider
                && provider.inventories != *view.inventories
            {
                self.put_provider(ResourceProvider {
                    inventories: (*view.inventories).clone(),
                    generation: provider.generation.next(),
                    updated_at: self.now(),
                    ..(*provider).clone()
                });
            }
            // Where more may be taken than before, no guest loses its room.
            let is_wider = new.includes(&old, view.host.report.memory_reserved_mib);
            if !is_wider || !view.host.hit.is_empty() {
                self.mark_hits(&name);
            }
        }
    }

    /// Forgets what is said of a host that is about to be forgotten.
    pub(super) fn leave_policy(&mut self, host: &HostName) {
        let old = self.state.policy().clone();
        if old.memory.hosts.contains_key(host) || old.cpu.hosts.contains_key(host) {
            let mut policy = (*old).clone();
            policy.memory.hosts.remove(host);
            policy.cpu.hosts.remove(host);
            policy.generation = policy.generation.next();
            self.put_policy(policy);
        }
    }
}

/// Refuses a host in a second group of the same terms.
pub(super) fn examine_group<T: Terms>(
    state: &State,
    scoped: &Scoped<T>,
    group: &AggregateName,
    host: &HostName,
) -> Result<(), Refusal> {
    let others: BTreeSet<_> = state
        .aggregates_of(host)
        .map(|aggregate| &aggregate.name)
        .filter(|name| *name != group && scoped.groups.contains_key(*name))
        .collect();
    let Some(other) = others.first() else {
        return Ok(());
    };
    let (what, [key, _]) = (T::WHAT, T::KEYS);
    let message = format!(
        "host {host} is in group {other}, which has settings of {what}, and cannot be in group \
         {group} too: which of them would hold?"
    );
    let hint = format!(
        "take it out of aggregate {other}, or say it for the host: berth policy set {key}=... \
         --host {host}, and unset it for one of the groups"
    );
    Err(precondition("HOST_IN_OTHER_GROUP", message)
        .with_hint(hint)
        .with("host", host)
        .with("group", other))
}
