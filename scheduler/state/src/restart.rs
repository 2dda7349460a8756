//! Which VMs are to be started again by their restart policies.
//!
//! It changes nothing, and decides nothing that is not decided again when a restart begins
//! ([`crate::apply`]).
//!
//! Invariant: a VM on which an operation works is not among them, and nothing of a host is that is
//! not proven to be dead.

use std::cmp::Reverse;
use std::sync::Arc;

use berth_domain::fence::may_evacuate;
use berth_domain::host::{Host, Liveness};
use berth_domain::id::TimeMs;
use berth_domain::name::{HostName, VmName};
use berth_domain::operation::{Drain, Operation};
use berth_domain::vm::{self, Due, RestartAction, Vm};

use crate::state::State;

/// How long after an evacuation by policy the VMs that it left are tried again.
const RETRY_MS: u64 = 60_000;

/// What is to be started again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DueRestarts {
    /// VMs on hosts that are alive, those with the highest priority first.
    pub vms: Vec<VmName>,
    /// Dead hosts with VMs that are to be started elsewhere, the one with the VM of the highest
    /// priority first.
    pub hosts: Vec<HostName>,
}

impl State {
    /// Returns what is to be started again at `now`, at most `max` VMs and as many hosts.
    #[must_use]
    pub fn due_restarts(&self, now: TimeMs, max: usize) -> DueRestarts {
        if self.is_recovering() {
            return DueRestarts::default();
        }
        let troubled = self.index.troubled.iter().filter_map(|name| self.vm(name));
        let mut vms: Vec<&Arc<Vm>> = troubled.filter(|vm| self.is_due(vm, now)).collect();
        vms.sort_by_key(|vm| (Reverse(vm.restarts.policy.priority), &vm.name));
        let hosts = self.hosts().keys().filter_map(|host| {
            let priority = self.evacuation_priority(host, now)?;
            Some((Reverse(priority), host))
        });
        let mut hosts: Vec<_> = hosts.collect();
        hosts.sort();
        let hosts = hosts.into_iter().map(|(_, host)| host.clone());
        DueRestarts {
            vms: vms
                .into_iter()
                .take(max)
                .map(|vm| vm.name.clone())
                .collect(),
            hosts: hosts.take(max).collect(),
        }
    }

    /// Returns whether a guest that was found not to run is to be started again where it is, or given
    /// up.
    fn is_due(&self, vm: &Vm, now: TimeMs) -> bool {
        let host = vm.host.as_ref().and_then(|host| self.host(host));
        let is_up = host.is_some_and(|view| view.host.liveness == Liveness::Up);
        let Some(trouble) = vm.trouble.as_ref().filter(|_| is_up) else {
            return false;
        };
        vm.operation.is_none()
            && match vm.restarts.due_after(trouble, now) {
                Due::Never => false,
                Due::UsedUp => true,
                Due::At(at) => at <= now,
            }
    }

    /// Returns the highest priority of the VMs of a dead host that are to be started elsewhere.
    fn evacuation_priority(&self, name: &HostName, now: TimeMs) -> Option<u32> {
        let host = &self.host(name)?.host;
        if host.fenced.is_none() || may_evacuate(host, now).is_err() {
            return None;
        }
        if self.drain_of(name).is_some() {
            return None;
        }
        let last = self.last_evacuation(host, now);
        let was_left = |vm: &Vm| last.is_some_and(|drain| drain.vm(&vm.name).is_some());
        let vms = self.restarted_elsewhere(name, now);
        let vms = vms.filter(|vm| !was_left(vm));
        vms.map(|vm| vm.restarts.policy.priority).max()
    }

    /// Returns the VMs that are to be started elsewhere when this host is dead.
    pub fn restarted_elsewhere<'s>(
        &'s self,
        host: &'s HostName,
        now: TimeMs,
    ) -> impl Iterator<Item = &'s Arc<Vm>> + 's {
        let vms = self.claims_of_host(host).filter(|claim| claim.is_in_use());
        let vms = vms.filter_map(|claim| {
            let vm = self.vm(&claim.vm)?;
            (vm.claim == Some(claim.id)).then_some(vm)
        });
        vms.filter(move |vm| {
            vm.state == vm::State::Active
                && vm.operation.is_none()
                && is_restarted_elsewhere(vm)
                && vm.restarts.permits(now)
                && self.restart_obstacle(vm).is_none()
        })
    }

    /// Returns why a VM cannot be started on another host when its own has failed, whatever is free
    /// there; nothing for one that can, or is on no host.
    #[must_use]
    pub fn restart_obstacle(&self, vm: &Vm) -> Option<String> {
        let host = vm.claim.and(vm.host.as_ref())?;
        if !vm.spec.volumes.is_empty() {
            return Some(format!("its volumes are on host {host} alone"));
        }
        if !vm.spec.pmem_demand().requests.is_empty() {
            return Some(format!("its persistent memory is on host {host} alone"));
        }
        let mut others = self.hosts().keys().filter(|other| *other != host);
        if others.all(|other| self.are_apart(vm, host, other)) {
            return Some(match vm.spec.disks.is_empty() {
                true => "there is no other host".to_owned(),
                false => format!("its disks are on host {host} alone"),
            });
        }
        None
    }

    /// Returns the last evacuation by policy of a host, if it has just ended, and began with its fence or
    /// after it: what it left is tried again later.
    fn last_evacuation(&self, host: &Host, now: TimeMs) -> Option<&Drain> {
        let since = TimeMs(now.0.saturating_sub(RETRY_MS));
        let fenced_at = host.fenced.as_ref()?.at;
        let ended = self.index.done.iter().rev();
        let mut recent = ended
            .take_while(|(at, _)| *at > since)
            .filter_map(|(_, id)| self.operation(*id));
        let last = recent.find(|operation| is_evacuation_by_policy(operation, &host.name))?;
        last.drain().filter(|_| last.created_at >= fenced_at)
    }
}

/// Returns whether a VM is started elsewhere when its host is dead. One whose guest was off before is
/// if that was to be started again.
pub(crate) fn is_restarted_elsewhere(vm: &Vm) -> bool {
    let policy = &vm.restarts.policy;
    let was_off = vm.trouble.as_ref().map(|trouble| trouble.absence);
    policy.on_host_failure == RestartAction::Restart
        && was_off.is_none_or(|absence| policy.on_absence(absence) == RestartAction::Restart)
}

fn is_evacuation_by_policy(operation: &Operation, host: &HostName) -> bool {
    let by_policy = operation.kind.drain().is_some_and(|spec| spec.by_policy);
    by_policy && operation.drain().is_some_and(|drain| drain.host == *host)
}
