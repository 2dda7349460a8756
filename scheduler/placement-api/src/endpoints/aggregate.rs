//! `/resource_providers/{uuid}/aggregates`.

use berth_domain::id::AggregateId;
use berth_state::command::Command;
use serde_json::json;

use super::shared::{before, find, generation, provider_id, provider_of, refused_at};
use crate::call::Call;
use crate::fault::Fault;
use crate::reply::Reply;
use crate::{schemas, uuids};

pub(super) const CONFLICT: &str =
    "Resource provider's generation already changed. Please update the generation and try again.";

pub(super) async fn show(call: &Call<'_>, id: &str) -> Result<Reply, Fault> {
    let state = call.state().await?;
    let provider = find(&state, id)?;
    let aggregates: Vec<AggregateId> = provider.aggregates.iter().copied().collect();
    render(call, &aggregates, provider.generation.0)
}

fn render(call: &Call<'_>, aggregates: &[AggregateId], generation: u64) -> Result<Reply, Fault> {
    let mut body = json!({"aggregates": aggregates});
    if call.has(19) {
        body["resource_provider_generation"] = generation.into();
    }
    Ok(Reply::json(&body)?.modified(call.now()))
}

pub(super) async fn replace(call: &Call<'_>, id: &str) -> Result<Reply, Fault> {
    let body = match call.read(schemas::aggregates(call.version)) {
        Ok(body) => body,
        Err(fault) => return Err(before(call, id, None, fault).await),
    };
    // Before 1.19 the body is the list.
    let (list, generation) = match call.has(19) {
        true => (
            &body["aggregates"],
            Some(generation(&body["resource_provider_generation"])),
        ),
        false => (&body, None),
    };
    let aggregates: Vec<AggregateId> = list
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|text| text.as_str().and_then(uuids::parse))
        .map(AggregateId)
        .collect();
    let command = Command::SetAggregates {
        provider: provider_id(id)?,
        generation,
        aggregates: aggregates.iter().copied().collect(),
    };
    let written = call
        .command(command)
        .await
        .map_err(|refusal| refused_at(id, CONFLICT, &refusal))?;
    render(call, &aggregates, provider_of(written)?.generation.0)
}
