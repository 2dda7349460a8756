//! `berth score`: how good the distribution is, in one number and its components.

use berth_proto::planner::v1::planner_service_client::PlannerServiceClient;
use berth_proto::planner::v1::{GetScoreRequest, Score as Wire};
use serde_json::json;

use super::{number, text};
use crate::arguments::Score;
use crate::session::Session;
use crate::{ask, output};

/// Does what was typed.
///
/// # Errors
///
/// What the scheduler refused.
pub async fn run(session: &Session, asked: Score) -> anyhow::Result<()> {
    if asked.text.text.is_some() {
        return text::score(session, &asked);
    }
    let request = GetScoreRequest::default();
    let answer = ask!(session, PlannerServiceClient, get_score, request)?;
    let score = answer.score.unwrap_or_default();
    if session.json() {
        return output::json(&told(&score));
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

fn told(score: &Wire) -> serde_json::Value {
    let components = score.components.iter();
    let mut told: serde_json::Map<_, _> = components
        .map(|component| (component.name.clone(), json!(component.value)))
        .collect();
    told.insert("score".to_owned(), json!(score.total));
    told.into()
}
