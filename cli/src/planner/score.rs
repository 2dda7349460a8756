//! `berth score`: how good the distribution is, in one number and its components.

use berth_proto::planner::v1::planner_service_client::PlannerServiceClient;
use berth_proto::planner::v1::{GetScoreRequest, Score as Wire};
use serde_json::json;

use super::{number, text};
use crate::arguments::Score;
use crate::session::Session;
use crate::{call, output};

/// Runs the command.
///
/// # Errors
///
/// The scheduler's refusal.
pub async fn run(session: &Session, args: Score) -> anyhow::Result<()> {
    if args.text.text.is_some() {
        return text::score(session, &args);
    }
    let request = GetScoreRequest::default();
    let response = call!(session, PlannerServiceClient, get_score, request)?;
    let score = response.score.unwrap_or_default();
    if session.json() {
        return output::json(&to_json(&score));
    }
    let rows = score.components.iter().map(|component| {
        [
            component.name.clone(),
            number(component.value),
            component.weight.to_string(),
            number(component.value * component.weight),
        ]
    });
    let head = ["component", "value", "weight", "counts"];
    output::table(head, rows.collect(), "there are no components");
    output::print(&format!("score {}\n", number(score.total)));
    Ok(())
}

fn to_json(score: &Wire) -> serde_json::Value {
    let components = score.components.iter();
    let mut values: serde_json::Map<_, _> = components
        .map(|component| (component.name.clone(), json!(component.value)))
        .collect();
    values.insert("score".to_owned(), json!(score.total));
    values.into()
}
