//! The CPU that all hosts of a group can give, as the choice of a host and the command that claims it
//! need it.
//!
//! It changes nothing: see [`crate::apply`].

use std::sync::Arc;

use berth_domain::constraint::Demand;
use berth_domain::cpu_model::{
    Baseline, BaselineFault, BaselineScope, CpuDemand, HostCpu, baseline,
};
use berth_domain::host_view::HostView;
use berth_domain::name::HostName;
use berth_domain::refusal::Refusal;

use crate::refusals::precondition;
use crate::state::State;

impl State {
    /// Returns the hosts of a group that run guests and report their CPUs, in the order of their names.
    ///
    /// # Errors
    ///
    /// There is no such aggregate.
    pub fn cpus_of_hosts(
        &self,
        scope: &BaselineScope,
    ) -> Result<Vec<(&HostName, &Arc<HostCpu>)>, Refusal> {
        if let BaselineScope::Aggregate(name) = scope
            && !self.aggregates.contains_key(name)
        {
            return Err(Refusal::not_found("aggregate", name)
                .with_hint("the aggregates that exist are listed by `berth aggregate list`"));
        }
        let hosts = self.hosts_of(scope);
        Ok(hosts
            .filter_map(|(name, view)| Some((name, view.host.report.cpu.as_ref()?)))
            .collect())
    }

    /// Returns how many hosts of a group there are on which guests run.
    #[must_use]
    pub fn count_of_hosts(&self, scope: &BaselineScope) -> usize {
        self.hosts_of(scope).count()
    }

    fn hosts_of(&self, scope: &BaselineScope) -> impl Iterator<Item = (&HostName, &Arc<HostView>)> {
        let aggregate = match scope {
            BaselineScope::Cluster => None,
            BaselineScope::Aggregate(name) => Some(self.aggregates.get(name)),
        };
        let is_in = move |name: &HostName| {
            aggregate.is_none_or(|a| a.is_some_and(|a| a.hosts.contains(name)))
        };
        let runs_guests = |view: &HostView| view.host.report.runs_guests();
        let hosts = self.hosts.iter();
        hosts.filter(move |(name, view)| is_in(name) && runs_guests(view))
    }

    /// Returns the best CPU that all hosts of a group can give which report theirs.
    ///
    /// # Errors
    ///
    /// There is no such aggregate, or no such CPU.
    pub fn cpu_baseline(&self, scope: &BaselineScope) -> Result<Baseline, Refusal> {
        let hosts = self.cpus_of_hosts(scope)?;
        baseline(hosts.into_iter()).map_err(|fault| impossible(scope, &fault))
    }

    /// Returns a demand in which a chosen baseline is computed.
    ///
    /// # Errors
    ///
    /// As [`Self::cpu_baseline`].
    pub fn with_cpu(&self, demand: Demand) -> Result<Demand, Refusal> {
        let CpuDemand::Baseline(scope) = &demand.cpu else {
            return Ok(demand);
        };
        let cpu = CpuDemand::Exactly {
            cpu: self.cpu_baseline(scope)?.cpu,
            is_running: false,
        };
        Ok(Demand { cpu, ..demand })
    }

    /// Returns the same CPU as another host has it, where one does: hosts of one kind share what they
    /// report.
    pub(crate) fn shared_cpu(&self, cpu: Arc<HostCpu>) -> Arc<HostCpu> {
        let mut others = self
            .hosts
            .values()
            .filter_map(|v| v.host.report.cpu.as_ref());
        let same = others.find(|other| Arc::ptr_eq(other, &cpu) || **other == cpu);
        same.cloned().unwrap_or(cpu)
    }
}

fn impossible(scope: &BaselineScope, fault: &BaselineFault) -> Refusal {
    let group = match scope {
        BaselineScope::Cluster => "the cluster".to_owned(),
        BaselineScope::Aggregate(name) => format!("aggregate {name}"),
    };
    let hint = match fault {
        BaselineFault::NoHosts => {
            "hosts with libvirt report their CPUs; those that do are listed by `berth cpu baseline`"
        }
        BaselineFault::Vendors(_) => {
            "choose hosts of one vendor: hw:cpu_model=baseline:AGGREGATE; vendors are shown by `berth \
             cpu baseline`"
        }
        BaselineFault::Models { .. } => {
            "upgrade the hypervisor of that host, or choose other hosts: \
             hw:cpu_model=baseline:AGGREGATE"
        }
    };
    let message = format!("{group} has no CPU baseline: {fault}");
    let refusal = precondition("CPU_BASELINE_IMPOSSIBLE", message).with_hint(hint);
    match scope {
        BaselineScope::Cluster => refusal,
        BaselineScope::Aggregate(name) => refusal.with("aggregate", name),
    }
}
