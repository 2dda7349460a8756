//! `berth policy`: what is preferred when a guest could go to several hosts.

use std::collections::BTreeMap;

use anyhow::bail;
use berth_domain::policy::cpu::CpuTerms;
use berth_domain::policy::memory::{MemoryTerms, ratio_text};
use berth_domain::policy::{SchedulingPolicy, Terms};
use berth_proto::policy::v1 as wire;
use berth_proto::policy::v1::policy_service_client::PolicyServiceClient;
use berth_proto::policy::v1::{
    GetSchedulingPolicyRequest, GetSchedulingPolicyResponse, UpdateSchedulingPolicyRequest,
};
use serde_json::{Value, json};

use crate::arguments::{Policy as Verb, PolicyScope};
use crate::session::{Session, request_id, resource};
use crate::{call, cpu, memory, output, read};

/// Runs the command.
///
/// # Errors
///
/// The scheduler's refusal.
pub async fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Show { host } => {
            let request = GetSchedulingPolicyRequest {
                host: host.as_deref().map_or_else(String::new, of_host),
                ..Default::default()
            };
            let response = read!(session, PolicyServiceClient, get_scheduling_policy, request)?;
            match host {
                Some(host) => show_host(session, &host, &response),
                None => show(session, &response.policy.unwrap_or_default().try_into()?),
            }
        }
        Verb::Set {
            settings,
            scope,
            generation,
        } => {
            let settings = each_once(settings)?;
            change(session, (settings, Vec::new()), scope, generation).await
        }
        Verb::Unset {
            keys,
            scope,
            generation,
        } => change(session, (BTreeMap::new(), keys), scope, generation).await,
    }
}

fn of_host(name: &str) -> String {
    resource("hosts", name)
}

/// Sets and takes back.
async fn change(
    session: &Session,
    (settings, unset): (BTreeMap<String, String>, Vec<String>),
    scope: PolicyScope,
    generation: Option<u64>,
) -> anyhow::Result<()> {
    let group = scope.group.as_deref();
    let request = UpdateSchedulingPolicyRequest {
        settings,
        generation,
        request_id: request_id(None),
        unset,
        group: group.map_or_else(String::new, |group| resource("aggregates", group)),
        host: scope.host.as_deref().map_or_else(String::new, of_host),
    };
    show(session, &update(session, request).await?.try_into()?)
}

/// Has the scheduler change the policy, and returns it.
pub(crate) async fn update(
    session: &Session,
    request: UpdateSchedulingPolicyRequest,
) -> anyhow::Result<wire::SchedulingPolicy> {
    let response = call!(
        session,
        PolicyServiceClient,
        update_scheduling_policy,
        request
    )?;
    Ok(response.policy.unwrap_or_default())
}

fn each_once(settings: Vec<(String, String)>) -> anyhow::Result<BTreeMap<String, String>> {
    let mut each = BTreeMap::new();
    for (key, value) in settings {
        if each.contains_key(&key) {
            bail!("{key} is given twice");
        }
        each.insert(key, value);
    }
    Ok(each)
}

/// Shows what holds of a host. An older scheduler reports nothing of CPUs.
fn show_host(
    session: &Session,
    host: &str,
    response: &GetSchedulingPolicyResponse,
) -> anyhow::Result<()> {
    let (memory, cpu) = (response.memory.as_ref(), response.cpu.as_ref());
    if session.for_programs() {
        return output::value(&json!({
            "host": host,
            "memory": memory.map(memory::value).transpose()?,
            "cpu": cpu.map(cpu::value).transpose()?,
        }));
    }
    let mut fields = memory.map(memory::lines).transpose()?.unwrap_or_default();
    fields.extend(cpu.map(cpu::lines).transpose()?.unwrap_or_default());
    output::fields(&fields);
    Ok(())
}

fn show(session: &Session, policy: &SchedulingPolicy) -> anyhow::Result<()> {
    if session.for_programs() {
        return output::value(&value(policy));
    }
    let groups = by_name(&policy.memory.groups, &policy.cpu.groups);
    let hosts = by_name(&policy.memory.hosts, &policy.cpu.hosts);
    let mut fields: Vec<(&str, String)> = policy.settings().into();
    let words = |terms: Settings| {
        let words: Vec<_> = terms
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        words.join(" ")
    };
    let line = |(name, terms)| format!("{name}: {}", words(terms));
    fields.extend(groups.into_iter().map(|of| ("group", line(of))));
    fields.extend(hosts.into_iter().map(|of| ("host", line(of))));
    fields.push(("generation", policy.generation.to_string()));
    output::fields(&fields);
    Ok(())
}

/// Returns a policy as programs see it.
pub(crate) fn value(policy: &SchedulingPolicy) -> Value {
    let each = |(name, terms): (String, Settings)| (name, terms.into_iter().collect());
    let scoped = |all: BTreeMap<String, Settings>| -> BTreeMap<String, BTreeMap<_, _>> {
        all.into_iter().map(each).collect()
    };
    let settings: BTreeMap<_, _> = policy.settings().into_iter().collect();
    json!({
        "settings": settings,
        "groups": scoped(by_name(&policy.memory.groups, &policy.cpu.groups)),
        "hosts": scoped(by_name(&policy.memory.hosts, &policy.cpu.hosts)),
        "generation": policy.generation.0,
    })
}

/// Settings as they are written on the command line.
pub(crate) type Settings = Vec<(&'static str, String)>;

/// Returns the settings of groups or hosts.
pub(crate) fn by_name<N: Ord + ToString>(
    memory: &BTreeMap<N, MemoryTerms>,
    cpu: &BTreeMap<N, CpuTerms>,
) -> BTreeMap<String, Settings> {
    let mut all: BTreeMap<String, Settings> = BTreeMap::new();
    for (name, terms) in memory {
        let ratio = terms.ratio_milli.map(|milli| ratio_text(milli.into()));
        let node = terms.mem_node_mib.map(|mib| mib.to_string());
        let settings = settings_of(MemoryTerms::KEYS, [ratio, node]);
        all.entry(name.to_string()).or_default().extend(settings);
    }
    for (name, terms) in cpu {
        let ratio = terms.ratio_milli.map(|milli| ratio_text(milli.into()));
        let reserved = terms.reserved.map(|cpus| cpus.to_string());
        let settings = settings_of(CpuTerms::KEYS, [ratio, reserved]);
        all.entry(name.to_string()).or_default().extend(settings);
    }
    all
}

fn settings_of(
    keys: [&'static str; 2],
    values: [Option<String>; 2],
) -> impl Iterator<Item = (&'static str, String)> {
    let each = keys.into_iter().zip(values);
    each.filter_map(|(key, value)| Some((key, value?)))
}

#[cfg(test)]
mod tests {
    use berth_domain::name::HostName;
    use berth_domain::policy::{Scope, Setting};

    use super::*;

    #[test]
    fn settings_of_one_host_are_shown_together() {
        let mut policy = SchedulingPolicy::default();
        let host = |name| Scope::Host(HostName::new(name).unwrap());
        policy.set_for(&host("h1"), Setting::CpuRatio(Some(8000)));
        policy.set_for(&host("h1"), Setting::MemNode(Some(512)));
        policy.set_for(&host("h2"), Setting::CpuReserved(Some(0)));
        let shown = by_name(&policy.memory.hosts, &policy.cpu.hosts);
        let setting = |key, value: &str| (key, value.to_owned());
        let expected = [
            (
                "h1".to_owned(),
                vec![
                    setting("memory.mem_node_mib", "512"),
                    setting("cpu.ratio", "8.0"),
                ],
            ),
            ("h2".to_owned(), vec![setting("cpu.reserved", "0")]),
        ];
        assert_eq!(shown, expected.into());
        assert!(by_name(&policy.memory.groups, &policy.cpu.groups).is_empty());
    }
}
