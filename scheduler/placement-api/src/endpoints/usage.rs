//! `/resource_providers/{uuid}/usages` and `/usages`.

use berth_domain::resource::ConsumerType;
use berth_state::placement::{ConsumerTypes, Usage};
use serde_json::{Map, Value, json};

use super::shared::find;
use crate::call::Call;
use crate::fault::Fault;
use crate::reply::Reply;
use crate::schemas;

/// How consumers of no known type are called.
const UNKNOWN: &str = "unknown";
/// How the consumers of all types together are called.
const ALL: &str = "all";

pub(super) async fn of_provider(call: &Call<'_>, id: &str) -> Result<Reply, Fault> {
    let state = call.state().await?;
    let provider = find(&state, id)?;
    let used = state.used_of(provider.id);
    let usages = provider.inventories.keys().map(|class| {
        let used = used.get(class).copied().unwrap_or_default();
        (class.to_string(), used.into())
    });
    let usages: Map<String, Value> = usages.collect();
    let body = json!({
        "usages": usages,
        "resource_provider_generation": provider.generation.0,
    });
    Ok(Reply::json(&body)?.modified(call.now()))
}

pub(super) async fn total(call: &Call<'_>) -> Result<Reply, Fault> {
    call.check_query(schemas::usage_query(call.version))?;
    let project = call.query.get("project_id").unwrap_or_default();
    let user = call.query.get("user_id");
    let consumer_type = call.query.get("consumer_type");
    let types = match consumer_type {
        None | Some(ALL) => ConsumerTypes::Every,
        Some(UNKNOWN) => ConsumerTypes::Unknown,
        Some(name) => match ConsumerType::new(name) {
            Ok(name) => ConsumerTypes::Only(name),
            Err(error) => return Err(Fault::bad_request(error.to_string())),
        },
    };
    let (project, user) = (project.to_owned(), user.map(str::to_owned));
    // A project may have as many consumers as there are.
    let usages = call.search("usages", move |state, _| {
        Ok(state.usages(&project, user.as_deref(), &types))
    });
    let usages = usages.await?;
    let usages = if !call.has(38) {
        Value::from(amounts(&together(usages.into_values())))
    } else if consumer_type == Some(ALL) {
        match usages.is_empty() {
            true => json!({}),
            false => json!({ALL: counted(&together(usages.into_values()))}),
        }
    } else {
        let by_type = usages.iter().map(|(kind, usage)| {
            let kind = kind.as_ref().map_or(UNKNOWN, ConsumerType::as_str);
            (kind.to_owned(), counted(usage))
        });
        Value::Object(by_type.collect())
    };
    Ok(Reply::json(&json!({"usages": usages}))?.modified(call.now()))
}

fn together(usages: impl Iterator<Item = Usage>) -> Usage {
    usages.fold(Usage::default(), |mut sum, usage| {
        sum.consumers += usage.consumers;
        for (class, amount) in usage.resources {
            *sum.resources.entry(class).or_default() += amount;
        }
        sum
    })
}

fn amounts(usage: &Usage) -> Map<String, Value> {
    let resources = usage.resources.iter();
    resources
        .map(|(class, amount)| (class.to_string(), (*amount).into()))
        .collect()
}

fn counted(usage: &Usage) -> Value {
    let mut amounts = amounts(usage);
    amounts.insert("consumer_count".to_owned(), usage.consumers.into());
    amounts.into()
}
