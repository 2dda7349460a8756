//! Aggregates of hosts. What they say of a host follows into its view and its root provider, in
//! the same command.
//!
//! Invariant: a VM that requested a zone stays in it. A change that would take its host out of the
//! zone is refused, as a move of the host would be a move of the VM.

use std::collections::BTreeSet;

use berth_domain::aggregate::{AGGREGATES_MAX, Aggregate, AggregateChange};
use berth_domain::fault;
use berth_domain::id::Generation;
use berth_domain::name::{AggregateName, HostName, ZoneName};
use berth_domain::policy::{Scoped, Terms};
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::{Code, Refusal};

use super::inventory::examine_count;
use super::overcommit::examine_group;
use crate::refusals::{exists, precondition};
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn create_aggregate(&mut self, aggregate: &Aggregate) -> Result<Reply, Refusal> {
        if self.state.aggregate(&aggregate.name).is_some() {
            return Err(exists("aggregate", &aggregate.name));
        }
        let aggregates = self.state.aggregates();
        if aggregates.len() >= AGGREGATES_MAX {
            let message = format!("there are {AGGREGATES_MAX} aggregates, and may be no more");
            return Err(precondition("TOO_MANY_AGGREGATES", message));
        }
        if let Some(other) = aggregates.values().find(|other| other.id == aggregate.id) {
            return Err(exists("aggregate", &other.name).with("id", aggregate.id));
        }
        let created = Aggregate {
            generation: Generation(1),
            created_at: self.now(),
            ..aggregate.clone()
        };
        self.examine_aggregate(None, &created)?;
        Ok(self.write_aggregate(None, created))
    }

    pub(super) fn update_aggregate(
        &mut self,
        name: &AggregateName,
        change: &AggregateChange,
    ) -> Result<Reply, Refusal> {
        let old = self.state.aggregate(name).cloned();
        let old = old.ok_or_else(|| Refusal::not_found("aggregate", name))?;
        if let Some(given) = change.generation
            && given != old.generation
        {
            let actual = old.generation;
            return Err(Refusal::new(
                Code::Aborted,
                "AGGREGATE_GENERATION",
                format!("aggregate {name} is at generation {actual}, not {given}"),
            )
            .with_hint("read it again and repeat the change")
            .with("actual", actual)
            .with("given", given));
        }
        if let Some(host) = change.remove_hosts.difference(&old.hosts).next() {
            return Err(precondition(
                "HOST_NOT_IN_AGGREGATE",
                format!("host {host} is not in aggregate {name}"),
            )
            .with("host", host));
        }
        let new = old.changed(change);
        if new == *old {
            return Ok(Reply::Aggregate(old));
        }
        self.examine_aggregate(Some(&old), &new)?;
        let generation = old.generation.next();
        Ok(self.write_aggregate(Some(&old), Aggregate { generation, ..new }))
    }

    pub(super) fn delete_aggregate(&mut self, name: &AggregateName) -> Result<Reply, Refusal> {
        let aggregate = self.state.aggregate(name);
        let aggregate = aggregate.ok_or_else(|| Refusal::not_found("aggregate", name))?;
        if let Some(host) = aggregate.hosts.first() {
            let hosts = match aggregate.hosts.len() {
                1 => format!("host {host}"),
                count => format!("{count} hosts, among them {host}"),
            };
            return Err(
                precondition("AGGREGATE_IN_USE", format!("aggregate {name} has {hosts}"))
                    .with_hint("remove its hosts from it first")
                    .with("aggregate", name),
            );
        }
        let policy = self.state.policy();
        examine_end(&policy.memory, name)?;
        examine_end(&policy.cpu, name)?;
        self.remove_aggregate(name);
        Ok(Reply::None)
    }

    /// Takes a host that is about to be forgotten out of its aggregates. It holds nothing.
    pub(super) fn leave_aggregates(&mut self, host: &HostName) {
        let aggregates: Vec<_> = self.state.aggregates_of(host).cloned().collect();
        for aggregate in aggregates {
            let mut without = (*aggregate).clone();
            without.hosts.remove(host);
            without.generation = without.generation.next();
            self.put_aggregate(without);
        }
    }

    fn examine_aggregate(&self, old: Option<&Aggregate>, new: &Aggregate) -> Result<(), Refusal> {
        let faults = new.faults();
        if !faults.is_empty() {
            return Err(fault::refusal("aggregate", &faults));
        }
        let zone = new.zone();
        let before = old.map(|old| &old.hosts);
        let known = |host: &HostName| before.is_some_and(|hosts| hosts.contains(host));
        let policy = self.state.policy();
        let has_memory = policy.memory.groups.contains_key(&new.name);
        let has_cpu = policy.cpu.groups.contains_key(&new.name);
        let zone_changes = old.and_then(Aggregate::zone) != zone;
        for host in &new.hosts {
            if !known(host) {
                self.examine_new_host(host)?;
                if has_memory {
                    examine_group(self.state, &policy.memory, &new.name, host)?;
                }
                if has_cpu {
                    examine_group(self.state, &policy.cpu, &new.name, host)?;
                }
            }
            if zone_changes || !known(host) {
                self.examine_zone(new, host, zone.as_ref())?;
            }
        }
        let left = before.into_iter().flatten();
        let left = left.filter(|host| !new.hosts.contains(*host));
        for host in left {
            self.examine_zone(new, host, None)?;
        }
        Ok(())
    }

    fn examine_new_host(&self, host: &HostName) -> Result<(), Refusal> {
        if self.state.host(host).is_none() {
            return Err(Refusal::not_found("host", host)
                .with_hint("the hosts of this cluster are listed by `berth host list`"));
        }
        examine_count(
            self.state.aggregates_of(host).count() + 1,
            "aggregates of a host",
        )
    }

    /// Refuses a second zone for a host, and one that its VMs did not ask for. `zone` is what
    /// `aggregate` says of the host from now on.
    fn examine_zone(
        &self,
        aggregate: &Aggregate,
        host: &HostName,
        zone: Option<&ZoneName>,
    ) -> Result<(), Refusal> {
        let others = self.state.aggregates_of(host);
        let other = others
            .filter(|other| other.name != aggregate.name)
            .find_map(|other| Some((other.zone()?, &other.name)));
        if let (Some(zone), Some((other_zone, other))) = (zone, &other)
            && zone != other_zone
        {
            return Err(precondition(
                "HOST_IN_OTHER_ZONE",
                format!(
                    "host {host} is in availability zone {other_zone} by aggregate {other}, and \
                     cannot be in zone {zone} too"
                ),
            )
            .with_hint(format!("take it out of aggregate {other} first"))
            .with("host", host)
            .with("zone", other_zone));
        }
        let after = zone.cloned().or(other.map(|(zone, _)| zone));
        let vms: BTreeSet<_> = self
            .state
            .claims_of_host(host)
            .filter(|claim| claim.is_in_use())
            .filter(|claim| {
                let vm = self.state.vm(&claim.vm);
                let requested = vm.and_then(|vm| vm.spec.hints.availability_zone.as_ref());
                requested.is_some() && requested != after.as_ref()
            })
            .map(|claim| &claim.vm)
            .collect();
        let Some(first) = vms.first() else {
            return Ok(());
        };
        let named = match vms.len() {
            1 => format!("vm {first}, which requested"),
            count => format!("{count} VMs, among them {first}, which requested"),
        };
        Err(precondition(
            "ZONE_IN_USE",
            format!("host {host} holds {named} the availability zone that it would leave"),
        )
        .with_hint("move or delete them first")
        .with("host", host)
        .with("vm", first))
    }

    /// Writes an aggregate that was examined, and the providers of the hosts that join or leave.
    fn write_aggregate(&mut self, old: Option<&Aggregate>, new: Aggregate) -> Reply {
        let none = BTreeSet::new();
        let before = old.map_or(&none, |old| &old.hosts);
        let id = new.id;
        let moved: Vec<HostName> = before.symmetric_difference(&new.hosts).cloned().collect();
        let rules: Vec<_> = moved
            .iter()
            .filter_map(|host| Some((host.clone(), self.state.host(host)?.rule)))
            .collect();
        let written = self.put_aggregate(new);
        for host in moved {
            let Some(view) = self.state.host(&host).cloned() else {
                continue;
            };
            let Some(provider) = self.state.provider(view.host.provider).cloned() else {
                continue;
            };
            let mut aggregates = provider.aggregates.clone();
            if written.hosts.contains(&host) {
                aggregates.insert(id);
            } else {
                aggregates.remove(&id);
            }
            self.put_provider(ResourceProvider {
                aggregates,
                // Those of a host that joins or leaves a group may be others now.
                inventories: (*view.inventories).clone(),
                generation: provider.generation.next(),
                updated_at: self.now(),
                ..(*provider).clone()
            });
        }
        self.follow_rules(rules);
        Reply::Aggregate(written)
    }
}

/// Refuses the end of a group.
fn examine_end<T: Terms>(scoped: &Scoped<T>, name: &AggregateName) -> Result<(), Refusal> {
    if !scoped.groups.contains_key(name) {
        return Ok(());
    }
    let message = format!("aggregate {name} has settings of {}", T::WHAT);
    let keys = T::KEYS.join(" ");
    Err(precondition("AGGREGATE_IN_USE", message)
        .with_hint(format!("berth policy unset {keys} --group {name}"))
        .with("aggregate", name))
}
