//! The view of operations: those that run first, then the last ones that ended.
//!
//! Invariant: only visible rows are drawn.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::id::{MigrationId, OperationId};
use berth_domain::operation::{Operation, Outcome};
use berth_domain::transfer::TransferProgress;
use ratatui::text::Line;

use super::cursor::{Cursor, window};
use super::model::Model;
use super::moment::{Now, between, describe};
use super::paint::{Tone, line};
use super::table::{Cell, Column, fit, head, row};
use crate::{bar, operation};

/// How far the transfers of live migrations are, and the time that is left in milliseconds.
pub type Transfers = BTreeMap<MigrationId, (TransferProgress, Option<u64>)>;

/// What the table shows.
#[derive(Clone, Debug, Default)]
pub struct Operations {
    /// The selected operation.
    pub cursor: Cursor<OperationId>,
    /// Only operations that have this text in their subject, kind or state.
    pub filter: String,
}

impl Operations {
    fn rows<'m>(&self, model: &'m Model) -> Vec<&'m Arc<Operation>> {
        let filter = self.filter.to_lowercase();
        let mut rows = model.operations_by_age();
        rows.retain(|o| {
            let state = operation::state(o);
            let texts = [o.subject_name(), o.kind.plan().title, &state];
            let mut texts = texts.iter().map(|text| text.to_lowercase());
            filter.is_empty() || texts.any(|text| text.contains(&filter))
        });
        rows
    }

    /// Returns the operations that the table has, in its order.
    #[must_use]
    pub fn ids(&self, model: &Model) -> Vec<OperationId> {
        self.rows(model).iter().map(|o| o.id).collect()
    }

    /// Draws the table.
    #[must_use]
    pub fn draw(
        &self,
        model: &Model,
        transfers: &Transfers,
        now: Now,
        (width, height): (usize, usize),
    ) -> Vec<Line<'static>> {
        let rows = self.rows(model);
        let running = rows.iter().filter(|o| !o.is_done()).count();
        let filtered = match self.filter.is_empty() {
            true => String::new(),
            false => format!(" with \"{}\"", self.filter),
        };
        let title = format!(
            "{running} running, {} ended{filtered}",
            rows.len() - running
        );
        let columns = fit(&COLUMNS, width);
        let mut lines = vec![line(&title, Tone::Faint), head(&columns)];
        let ids: Vec<OperationId> = rows.iter().map(|o| o.id).collect();
        let selected = self.cursor.position(&ids);
        let free = height.saturating_sub(lines.len());
        for at in window(selected.unwrap_or(0), rows.len(), free) {
            let cells = cells(rows[at], now, transfers);
            lines.push(row(&columns, cells, selected == Some(at)));
        }
        if rows.is_empty() {
            lines.push(line("there is no operation", Tone::Plain));
        }
        lines
    }
}

const COLUMNS: [Column; 5] = [
    Column::text("STATE", 10),
    Column::text("KIND", 14),
    Column::text("VM OR HOST", 16),
    Column::number("TOOK", 12),
    Column::text("STEP OR REASON", 12),
];

fn cells(operation: &Operation, now: Now, transfers: &Transfers) -> Vec<Cell> {
    let (state, tone) = state_of(operation);
    vec![
        (state.to_owned(), tone),
        (operation.kind.plan().title.to_owned(), Tone::Plain),
        (operation.subject_name().to_owned(), Tone::Plain),
        (took(operation, now), Tone::Plain),
        (last_word(operation, transfers), Tone::Plain),
    ]
}

/// Returns the state as a word, without the reason of a failure.
fn state_of(operation: &Operation) -> (&'static str, Tone) {
    match (&operation.outcome, operation.cancelled) {
        (Some(Outcome::Succeeded), _) => ("SUCCEEDED", Tone::Good),
        (Some(Outcome::Failed(_)), _) => ("FAILED", Tone::Bad),
        (None, true) => ("CANCELLING", Tone::Warning),
        (None, false) => ("RUNNING", Tone::Heading),
    }
}

/// Returns how long an operation took, or has taken so far.
#[must_use]
pub fn took(operation: &Operation, now: Now) -> String {
    let until = operation.ended_at.unwrap_or(now.clock);
    describe(between(operation.created_at, until))
}

/// Returns why an operation failed, or how far it is.
fn last_word(operation: &Operation, transfers: &Transfers) -> String {
    if let Some(Outcome::Failed(refusal)) = &operation.outcome {
        return format!("{}: {}", refusal.reason, refusal.message);
    }
    if let Some(drain) = operation.drain() {
        let tally = drain.tally();
        let gone = tally.moved + tally.gone;
        return format!("{gone} of {} moved", drain.vms.len());
    }
    if operation.is_done() {
        return String::new();
    }
    step(operation, transfers)
}

/// Returns the step at which an operation is, with the progress of its transfer.
#[must_use]
pub fn step(operation: &Operation, transfers: &Transfers) -> String {
    let step = operation.log.last().map_or("-", |entry| entry.step.title());
    let host = operation.log.last().and_then(|entry| entry.host.as_ref());
    let on = host.map_or(String::new(), |host| format!(" on {host}"));
    let migration = operation.kind.migration();
    match migration.and_then(|id| transfers.get(&id)) {
        Some((progress, left)) => bar::line(progress, *left).trim().to_owned(),
        None => format!("{step}{on}"),
    }
}
