//! The final output of a command: tables for people, one JSON value for programs.

use serde_json::{Value, json};

use super::carry_out::Refused;
use super::comparison::Comparison;
use super::plan::Plan;
use super::reading::Unstable;
use crate::output;

/// Shows what is to be done.
pub fn plan(plan: &Plan) {
    let (new, same, kept) = (plan.new, plan.same, plan.kept);
    let leaving = plan.leaving();
    let written = plan.consumers.len() - leaving;
    let rows = [
        ("custom classes", plan.classes.len(), 0, 0, 0, 0),
        ("custom traits", plan.traits.len(), 0, 0, 0, 0),
        (
            "providers",
            new.0,
            plan.providers.len() - new.0,
            plan.gone.len(),
            same.0,
            kept.0,
        ),
        ("consumers", new.1, written - new.1, leaving, same.1, kept.1),
    ];
    let rows = rows.map(|(what, make, change, remove, same, kept)| {
        let counts = [make, change, remove, same, kept].map(|n| n.to_string());
        let [make, change, remove, same, kept] = counts;
        [what.to_owned(), make, change, remove, same, kept]
    });
    let head = ["kind", "make", "change", "take away", "same", "gone there"];
    output::table(head, rows.into(), "there is nothing to do");
}

/// Returns the same for programs.
#[must_use]
pub fn plan_json(plan: &Plan) -> Value {
    let leaving = plan.leaving();
    let (new, same, kept) = (plan.new, plan.same, plan.kept);
    json!({
        "custom_classes": {"make": plan.classes.len()},
        "custom_traits": {"make": plan.traits.len()},
        "providers": {
            "make": new.0, "change": plan.providers.len() - new.0, "take_away": plan.gone.len(),
            "same": same.0, "gone_there": kept.0,
        },
        "consumers": {
            "make": new.1, "change": plan.consumers.len() - leaving - new.1, "take_away": leaving,
            "same": same.1, "gone_there": kept.1,
        },
    })
}

/// Prints the conflicts of a plan, the first of them in full.
pub fn conflicts(plan: &Plan, listed_max: usize) {
    let all = plan.conflicts.iter();
    let lines = all.map(|c| {
        format!(
            "conflict: {}: {} ({}): {}",
            c.item, c.message, c.reason, c.advice
        )
    });
    print_lines(lines, plan.conflicts.len(), listed_max, "conflicts");
    let (providers, consumers) = plan.kept;
    if providers + consumers > 0 {
        output::message(format!(
            "hint: {providers} providers and {consumers} consumers of an earlier import no longer \
             exist at the source and stay here; --delete deletes them"
        ));
    }
}

/// Prints what the scheduler refused.
pub fn refused(refused: &[Refused], listed_max: usize) {
    let lines = refused.iter().map(|r| {
        let hint = r
            .hint
            .as_ref()
            .map_or(String::new(), |hint| format!(": {hint}"));
        format!("refused: {}: {} ({}){hint}", r.item, r.message, r.reason)
    });
    print_lines(lines, refused.len(), listed_max, "refusals");
}

/// Prints what changed while it was read.
pub fn moving(moving: &Unstable) {
    if *moving == Unstable::default() {
        return;
    }
    output::message(format!(
        "hint: {} providers and {} consumers changed while they were read and may be \
         inconsistent; for the last run, stop the clients that write to the source",
        moving.providers.len(),
        moving.consumers.len()
    ));
}

fn print_lines(lines: impl Iterator<Item = String>, count: usize, listed_max: usize, what: &str) {
    for line in lines.take(listed_max) {
        output::message(line);
    }
    if count > listed_max {
        output::message(format!("… and {} {what} more (--list)", count - listed_max));
    }
}

/// Shows both sides.
pub fn comparison(comparison: &Comparison) {
    let rows = comparison.kinds.iter().map(|tally| {
        let counts = [
            tally.source,
            tally.same,
            tally.different,
            tally.missing,
            tally.left_over,
            tally.own,
        ];
        let [source, same, different, missing, left_over, own] = counts.map(|n| n.to_string());
        let kind = tally.kind.to_owned();
        [kind, source, same, different, missing, left_over, own]
    });
    let head = [
        "kind",
        "source",
        "same",
        "different",
        "missing",
        "left over",
        "own",
    ];
    output::table(head, rows.collect(), "both sides are empty");
    if comparison.is_same() {
        output::message("both sides are the same");
        return;
    }
    let rows = comparison.differences.iter().map(|difference| {
        let side = |value: &Option<String>| value.clone().unwrap_or("-".to_owned());
        [
            difference.kind.to_owned(),
            difference.item.clone(),
            side(&difference.source),
            side(&difference.here),
        ]
    });
    output::print("");
    let head = ["differs in", "item", "source", "here"];
    output::table(head, rows.collect(), "none is listed (--list)");
    let listed = comparison.differences.len();
    if comparison.count > listed {
        output::message(format!(
            "… and {} differences more (--list)",
            comparison.count - listed
        ));
    }
}

/// Returns what changed until the end, for programs.
#[must_use]
pub fn moving_json(moving: &Unstable) -> Value {
    json!({"providers": moving.providers.len(), "consumers": moving.consumers.len()})
}
