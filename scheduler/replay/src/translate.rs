//! Recorded commands that choose no host, as a state with changes takes them.
//!
//! Leases have other epochs there, as operations that are refused take none; drains are made of a
//! cordon and moves, as the drained host holds other VMs. What is about an operation or VM that is not
//! there is left out.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::claim::{ErasureProgress, ErasureReport};
use berth_domain::id::{ClaimId, Epoch, Incarnation, OperationId};
use berth_domain::name::{HostName, VmName};
use berth_state::State;
use berth_state::command::{Command, Effect};

use crate::changes::Changes;

/// A recorded command as a state with changes takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Translated {
    /// These are carried out.
    Run(Vec<Command>),
    /// It is about an operation or VM that is not there.
    Follower,
    /// Nothing has to be done.
    Nothing,
}

/// What a translation depends on.
pub(crate) struct Context<'a> {
    /// The state with changes.
    pub(crate) state: &'a State,
    pub(crate) changes: &'a Changes,
    /// Operations that are drains in the recorded history.
    pub(crate) drains: &'a BTreeSet<OperationId>,
    /// Claims that are on another host than recorded.
    pub(crate) elsewhere: &'a BTreeSet<ClaimId>,
}

impl Context<'_> {
    /// Returns what a recorded command is here.
    pub(crate) fn translate(&self, command: &Command) -> Translated {
        if let Command::NoteErasures {
            host,
            incarnation,
            reports,
        } = command
        {
            return Translated::Run(self.erasures(host, *incarnation, reports));
        }
        if let Some(host) = host_of(command)
            && self.changes.without.contains(host)
        {
            return Translated::Nothing;
        }
        if let Some(operation) = operation_of(command) {
            if self.drains.contains(&operation) {
                return Translated::Nothing;
            }
            if self.state.operation(operation).is_none() {
                return Translated::Follower;
            }
        }
        if let Some(vm) = vm_of(command)
            && self.state.vm(vm).is_none()
        {
            return Translated::Follower;
        }
        if let Command::RecordDrained { .. } = command {
            return Translated::Nothing;
        }
        Translated::Run(vec![self.adjusted(command)])
    }

    /// Returns whether a host that a command names among others is there.
    fn is_there(&self, host: &HostName) -> bool {
        !self.changes.without.contains(host) || self.state.host(host).is_some()
    }

    fn adjusted(&self, command: &Command) -> Command {
        let mut command = command.clone();
        if let Command::SetPolicy(policy) = &mut command {
            *policy = self.changes.policy(policy);
            policy.generation = self.state.policy().generation;
        } else if let Command::CreateAggregate(aggregate) = &mut command {
            aggregate.hosts.retain(|host| self.is_there(host));
        } else if let Command::UpdateAggregate { change, .. } = &mut command {
            change.add_hosts.retain(|host| self.is_there(host));
            change.remove_hosts.retain(|host| self.is_there(host));
            // It counts changes that were recorded, and may have others here.
            change.generation = None;
        } else if let Command::CreateFlavor(flavor) = &mut command {
            *flavor = self.changes.flavor(flavor);
        } else if let Command::RenewLeases { leases, .. } = &mut command {
            leases.retain_mut(|(operation, epoch)| self.renew(*operation, epoch));
        } else if let Command::BeginDrain { host, spec, .. } = &command {
            // After a drain by restart policies the dead host is as it was.
            let known = self.state.host(host).is_some_and(|view| view.host.cordoned);
            let (host, cordoned) = (host.clone(), known || !spec.by_policy);
            return Command::SetCordon { host, cordoned };
        } else if let Command::Advance {
            operation,
            epoch,
            effect,
            ..
        } = &mut command
        {
            let _ = self.renew(*operation, epoch);
            self.adjust_effect(effect);
        }
        command
    }

    /// Persistent memory that was erased on one host is taken to be erased after the same claim on
    /// another, with all that the claim has there.
    fn erasures(
        &self,
        host: &HostName,
        incarnation: Incarnation,
        reports: &[ErasureReport],
    ) -> Vec<Command> {
        let mut by_host: BTreeMap<&HostName, Vec<ErasureReport>> = BTreeMap::new();
        for report in reports {
            let Some(claim) = self.state.claim(report.claim) else {
                continue;
            };
            let reports = by_host.entry(&claim.host).or_default();
            if !self.elsewhere.contains(&claim.id) {
                reports.push(report.clone());
            } else if report.progress == ErasureProgress::Erased {
                let devices = claim.assignment.pmem.iter();
                reports.extend(devices.map(|device| ErasureReport {
                    claim: claim.id,
                    namespace: device.name.clone(),
                    progress: ErasureProgress::Erased,
                }));
            }
        }
        let commands = by_host.into_iter().filter_map(|(at, reports)| {
            let known = self.state.host(at)?.host.report.incarnation;
            Some(Command::NoteErasures {
                host: at.clone(),
                incarnation: if at == host { incarnation } else { known },
                reports,
            })
        });
        commands.collect()
    }

    /// Takes the epoch of the lease as it is here; returns whether there is one.
    fn renew(&self, operation: OperationId, epoch: &mut Epoch) -> bool {
        let known = self.state.operation(operation);
        let lease = known.and_then(|known| known.lease.as_ref());
        *epoch = lease.map_or(*epoch, |lease| lease.epoch);
        lease.is_some()
    }

    /// What an agent fitted otherwise on its own host says nothing about another one: there the claim is
    /// confirmed.
    fn adjust_effect(&self, effect: &mut Effect) {
        if let Effect::SwapClaim { claim, .. } = effect
            && self.elsewhere.contains(claim)
        {
            *effect = Effect::ConfirmClaim { claim: *claim };
        }
    }
}

/// Returns the host that a report of an agent or an operator is about.
fn host_of(command: &Command) -> Option<&HostName> {
    if let Command::RegisterHost { host, .. }
    | Command::SetLiveness { host, .. }
    | Command::SetCordon { host, .. }
    | Command::RemoveHost { host }
    | Command::FenceHost { host, .. }
    | Command::NoteReality { host, .. }
    | Command::ReportGuests { host, .. }
    | Command::WriteOffPmem { host, .. }
    | Command::NoteVolumes { host, .. } = command
    {
        return Some(host);
    }
    None
}

/// Returns the operation that a command carries on.
fn operation_of(command: &Command) -> Option<OperationId> {
    if let Command::Advance { operation, .. }
    | Command::TakeLease { operation, .. }
    | Command::CancelOperation { operation }
    | Command::ForceComplete { operation } = command
    {
        return Some(*operation);
    }
    None
}

/// Returns the VM that a command is about.
fn vm_of(command: &Command) -> Option<&VmName> {
    if let Command::SetRestartPolicy { vm, .. }
    | Command::OpenConsole { vm, .. }
    | Command::UpdateVm { vm, .. }
    | Command::BeginDelete { vm, .. }
    | Command::BeginPower { vm, .. }
    | Command::ConfirmResize { vm, .. }
    | Command::BeginRevertResize { vm, .. }
    | Command::BeginShelve { vm, .. } = command
    {
        return Some(vm);
    }
    None
}
