//! `berth policy`: what is preferred when a guest could go to several hosts.

use std::collections::BTreeMap;

use anyhow::bail;
use berth_domain::policy::memory::{MemoryTerms, ratio_text};
use berth_domain::policy::{SCOPED_KEYS, SchedulingPolicy};
use berth_proto::policy::v1::policy_service_client::PolicyServiceClient;
use berth_proto::policy::v1::{GetSchedulingPolicyRequest, UpdateSchedulingPolicyRequest};
use serde_json::json;

use crate::arguments::{Policy as Verb, PolicyScope};
use crate::session::{Session, request_id, resource};
use crate::{call, memory, output, read};

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
            match response.memory {
                Some(memory) => memory::show(session, &host.unwrap_or_default(), &memory),
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
    let response = call!(
        session,
        PolicyServiceClient,
        update_scheduling_policy,
        request
    )?;
    show(session, &response.policy.unwrap_or_default().try_into()?)
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

fn show(session: &Session, policy: &SchedulingPolicy) -> anyhow::Result<()> {
    let settings = policy.settings();
    let groups = policy.memory.groups.iter();
    let groups = groups.map(|(name, terms)| (name.to_string(), settings_of(terms)));
    let hosts = policy.memory.hosts.iter();
    let hosts = hosts.map(|(name, terms)| (name.to_string(), settings_of(terms)));
    if session.json() {
        let settings: BTreeMap<_, _> = settings.into_iter().collect();
        let each = |of: (String, Vec<(&'static str, String)>)| (of.0, of.1.into_iter().collect());
        let groups: BTreeMap<String, BTreeMap<_, _>> = groups.map(each).collect();
        let hosts: BTreeMap<String, BTreeMap<_, _>> = hosts.map(each).collect();
        return output::json(&json!({
            "settings": settings,
            "groups": groups,
            "hosts": hosts,
            "generation": policy.generation.0,
        }));
    }
    let mut fields: Vec<(&str, String)> = settings.into();
    let words = |terms: Vec<(&str, String)>| {
        let words: Vec<_> = terms
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        words.join(" ")
    };
    fields.extend(groups.map(|(name, terms)| ("group", format!("{name}: {}", words(terms)))));
    fields.extend(hosts.map(|(name, terms)| ("host", format!("{name}: {}", words(terms)))));
    fields.push(("generation", policy.generation.to_string()));
    output::fields(&fields);
    Ok(())
}

/// Returns the settings of a group or a host, as they are written on the command line.
fn settings_of(terms: &MemoryTerms) -> Vec<(&'static str, String)> {
    let ratio = terms.ratio_milli.map(|milli| ratio_text(milli.into()));
    let node = terms.mem_node_mib.map(|mib| mib.to_string());
    let ratio = ratio.map(|ratio| (SCOPED_KEYS[0], ratio));
    let node = node.map(|node| (SCOPED_KEYS[1], node));
    ratio.into_iter().chain(node).collect()
}
