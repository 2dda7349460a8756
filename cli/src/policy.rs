//! `berth policy`: what is preferred when a guest could go to several hosts.

use std::collections::BTreeMap;

use anyhow::bail;
use berth_domain::policy::SchedulingPolicy;
use berth_proto::policy::v1::policy_service_client::PolicyServiceClient;
use berth_proto::policy::v1::{GetSchedulingPolicyRequest, UpdateSchedulingPolicyRequest};
use serde_json::json;

use crate::arguments::Policy as Verb;
use crate::session::{Session, request_id};
use crate::{ask, output};

/// Does what was typed.
///
/// # Errors
///
/// What the scheduler refused.
pub async fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Show => {
            let request = GetSchedulingPolicyRequest::default();
            let answer = ask!(session, PolicyServiceClient, get_scheduling_policy, request)?;
            show(session, &answer.policy.unwrap_or_default().try_into()?)
        }
        Verb::Set {
            settings,
            generation,
        } => {
            let request = UpdateSchedulingPolicyRequest {
                settings: each_once(settings)?,
                generation,
                request_id: request_id(None),
            };
            let answer = ask!(
                session,
                PolicyServiceClient,
                update_scheduling_policy,
                request
            )?;
            show(session, &answer.policy.unwrap_or_default().try_into()?)
        }
    }
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
    if session.json() {
        let settings: BTreeMap<_, _> = settings.into_iter().collect();
        return output::json(&json!({
            "settings": settings,
            "generation": policy.generation.0,
        }));
    }
    let mut fields: Vec<(&str, String)> = settings.into();
    fields.push(("generation", policy.generation.to_string()));
    output::fields(&fields);
    Ok(())
}
