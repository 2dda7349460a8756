//! `berth score`: how good the distribution is, in one number and its components.

use berth_proto::planner::v1::planner_service_client::PlannerServiceClient;
use berth_proto::planner::v1::{GetScoreRequest, Score as Wire};
use serde_json::json;

use super::{SCALE, number, text};
use crate::arguments::Score;
use crate::session::{Session, short};
use crate::{output, read};

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
    let response = read!(session, PlannerServiceClient, get_score, request)?;
    let score = response.score.unwrap_or_default();
    if session.for_programs() {
        return output::value(&to_json(&score, &response.unreported_hosts));
    }
    let mut rows: Vec<[String; 4]> = Vec::new();
    rows.extend(score.components.iter().map(|component| {
        [
            component.name.clone(),
            number(component.value),
            component.weight.to_string(),
            number(component.value * component.weight),
        ]
    }));
    if is_load_unknown(&score) {
        let unknown = || "unknown".to_owned();
        rows.push([LOAD.to_owned(), unknown(), String::new(), unknown()]);
    }
    let head = ["component", "value", "weight", "counts"];
    output::table(head, rows, "there are no components");
    output::print(format!("score {}: {SCALE}", number(score.total)));
    if let Some(missing) = missing(&response.unreported_hosts) {
        output::message(missing);
    }
    Ok(())
}

/// The component that depends on what agents measure.
const LOAD: &str = "mem_load_cv";

fn is_load_unknown(score: &Wire) -> bool {
    score.components.iter().all(|one| one.name != LOAD)
}

/// Returns which hosts the score is without, for people.
pub(super) fn missing(hosts: &[String]) -> Option<String> {
    let (first, count) = (hosts.first()?, hosts.len());
    let which = match count {
        1 => short(first).to_owned(),
        _ => format!("{count} hosts, as {},", short(first)),
    };
    Some(format!(
        "the memory that guests really hold on {which} is unknown: not reported to this leader yet"
    ))
}

fn to_json(score: &Wire, unreported: &[String]) -> serde_json::Value {
    let components = score.components.iter();
    let mut values: serde_json::Map<_, _> = components
        .map(|component| (component.name.clone(), json!(component.value)))
        .collect();
    if is_load_unknown(score) {
        values.insert(LOAD.to_owned(), serde_json::Value::Null);
    }
    if !unreported.is_empty() {
        let hosts: Vec<&str> = unreported.iter().map(|host| short(host)).collect();
        values.insert("unreported_hosts".to_owned(), json!(hosts));
    }
    values.insert("score".to_owned(), json!(score.total));
    values.into()
}
