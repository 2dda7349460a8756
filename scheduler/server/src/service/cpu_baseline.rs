//! What the CPUs of a group of hosts have in common, as clients see it.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::cpu_model::{BaselineScope, HostCpu};
use berth_domain::name::{CpuFeature, CpuModelName};
use berth_domain::refusal::Refusal;
use berth_proto::convert::ResourceName as _;
use berth_proto::convert::cpu_model::write_features;
use berth_proto::host::v1;
use berth_state::State;

/// Describes the baseline of a group.
///
/// # Errors
///
/// There is no such aggregate.
pub(super) fn describe(
    state: &State,
    scope: &BaselineScope,
) -> Result<v1::GetCpuBaselineResponse, Refusal> {
    let hosts = state.cpus_of_hosts(scope)?;
    let all = state.count_of_hosts(scope);
    let (baseline, fault) = match state.cpu_baseline(scope) {
        Ok(baseline) => (Some(baseline), None),
        Err(refusal) => (None, Some(refusal)),
    };
    let losses = hosts.iter().map(|(host, cpu)| v1::HostCpuLoss {
        host: host.resource_name(),
        host_model: Some((&*cpu.host_model).into()),
        lost_features: (baseline.as_ref())
            .map(|baseline| write_features(&baseline.lost_of(cpu)))
            .unwrap_or_default(),
    });
    Ok(v1::GetCpuBaselineResponse {
        cpu: baseline.as_ref().map(|baseline| (&*baseline.cpu).into()),
        features: (baseline.as_ref())
            .map(|baseline| write_features(&baseline.features))
            .unwrap_or_default(),
        fault: fault.as_ref().map(Into::into),
        hosts: losses.collect(),
        models: models(hosts.iter().map(|(_, cpu)| &***cpu)),
        unreported_count: u32::try_from(all - hosts.len()).unwrap_or(u32::MAX),
        revision: state.revision(),
    })
}

fn models<'a>(cpus: impl Iterator<Item = &'a HostCpu>) -> Vec<v1::CpuModelSupport> {
    let mut models: BTreeMap<&CpuModelName, (u32, BTreeSet<CpuFeature>)> = BTreeMap::new();
    for (model, lacking) in cpus.flat_map(|cpu| &cpu.models) {
        let (hosts, missing) = models.entry(model).or_default();
        *hosts += u32::from(lacking.is_empty());
        missing.extend(lacking.iter().cloned());
    }
    let support =
        |(model, (host_count, missing)): (&CpuModelName, (u32, BTreeSet<_>))| v1::CpuModelSupport {
            model: model.to_string(),
            host_count,
            missing_features: write_features(&missing),
        };
    models.into_iter().map(support).collect()
}
