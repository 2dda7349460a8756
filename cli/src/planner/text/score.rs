//! `berth score --text`.

use berth_ganeti::model::RatioSource;
use berth_ganeti::score::{COMPONENTS, Score};
use serde_json::{Map, json};

use super::super::{SCALE, number};
use super::load::load;
use crate::arguments;
use crate::output;
use crate::session::Session;

/// Runs the command.
///
/// # Errors
///
/// The fault of the file.
pub fn score(session: &Session, args: &arguments::Score) -> anyhow::Result<()> {
    // The score of released htools knows no ratio, and this one is to be comparable.
    let loaded = load(&args.text, RatioSource::Ignored)?;
    let score = Score::new(&loaded.cluster, loaded.group);
    if session.for_programs() {
        let components = score.named();
        let mut values: Map<_, _> = components
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect();
        values.insert("score".to_owned(), json!(score.total));
        return output::value(&values);
    }
    let rows = COMPONENTS.iter().zip(score.components);
    let rows = rows.map(|((name, weight), value)| {
        [
            (*name).to_owned(),
            format!("{value:.8}"),
            weight.to_string(),
            format!("{:.8}", value * weight),
        ]
    });
    let head = ["component", "value", "weight", "counts"];
    output::table(head, rows.collect(), "there are no components");
    output::print(format!("score {}: {SCALE}", number(score.total)));
    Ok(())
}
