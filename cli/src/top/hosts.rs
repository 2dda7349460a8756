//! The view of all hosts: a table that is sorted and filtered.
//!
//! Invariant: only visible rows are drawn, whatever the number of hosts.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use berth_domain::host::Liveness;
use berth_domain::name::HostName;
use ratatui::text::Line;

use super::cursor::{Cursor, window};
use super::model::{HostEntry, Model};
use super::paint::{Tone, line};
use super::table::{Cell, Column, fit, head, row};
use super::usage::Usage;
use crate::records;

/// The order of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// By name.
    #[default]
    Name,
    /// Hosts that take no VMs first.
    State,
    /// The most dedicated CPUs that are free first.
    FreeCpus,
    /// The most vCPUs for each shared CPU first.
    SharedCpus,
    /// The least memory that is free first.
    FreeMemory,
    /// The least huge pages that are free first.
    FreePages,
    /// The most VMs first.
    Vms,
}

impl Sort {
    /// All of them, in the order in which a key selects them.
    pub const ALL: [Self; 7] = [
        Self::Name,
        Self::State,
        Self::FreeCpus,
        Self::SharedCpus,
        Self::FreeMemory,
        Self::FreePages,
        Self::Vms,
    ];

    /// Returns the next one.
    #[must_use]
    pub fn next(self) -> Self {
        let at = Self::ALL.iter().position(|sort| *sort == self);
        Self::ALL[at.map_or(0, |at| (at + 1) % Self::ALL.len())]
    }

    /// Returns what it is called.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::State => "state",
            Self::FreeCpus => "free dedicated CPUs",
            Self::SharedCpus => "load of shared CPUs",
            Self::FreeMemory => "free memory",
            Self::FreePages => "free huge pages",
            Self::Vms => "VMs",
        }
    }
}

/// What the table shows.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// The selected host.
    pub cursor: Cursor<HostName>,
    /// The order.
    pub sort: Sort,
    /// Whether the order is reversed.
    pub is_reversed: bool,
    /// Only hosts that have this text in their name, state or aggregates.
    pub filter: String,
}

/// The aggregates of each host, as a text.
pub type Aggregates = BTreeMap<HostName, String>;

/// A host with what is taken of it.
struct Row<'m> {
    entry: &'m HostEntry,
    usage: Usage,
}

impl Row<'_> {
    fn name(&self) -> &HostName {
        &self.entry.host.name
    }

    fn state(&self) -> &'static str {
        records::host_state(&self.entry.host)
    }

    /// Returns a number by which the row is sorted: less is first.
    fn rank(&self, sort: Sort) -> u64 {
        let (usage, capacity) = (&self.usage, &self.entry.capacity);
        match sort {
            Sort::Name => 0,
            Sort::State => u64::from(self.entry.host.is_open()),
            Sort::FreeCpus => u64::MAX - capacity.dedicated.saturating_sub(usage.dedicated),
            Sort::SharedCpus => {
                u64::MAX - usage.shared.saturating_mul(1000) / capacity.shared.max(1)
            }
            Sort::FreeMemory => capacity.memory_mib.saturating_sub(usage.memory_mib),
            Sort::FreePages => capacity.pages_mib.saturating_sub(usage.pages_mib),
            Sort::Vms => u64::MAX - usage.claims,
        }
    }
}

impl Hosts {
    fn rows<'m>(&self, model: &'m Model, aggregates: &Aggregates) -> Vec<Row<'m>> {
        let filter = self.filter.to_lowercase();
        let matches = |row: &Row<'_>| {
            let aggregates = aggregates.get(row.name()).map_or("", String::as_str);
            let texts = [row.name().as_str(), row.state(), aggregates];
            let mut texts = texts.iter().map(|text| text.to_lowercase());
            filter.is_empty() || texts.any(|text| text.contains(&filter))
        };
        let rows = model.hosts().map(|entry| Row {
            entry,
            usage: model.usage(&entry.host.name),
        });
        let mut rows: Vec<Row<'m>> = rows.filter(matches).collect();
        match self.is_reversed {
            false => rows.sort_by_cached_key(|row| row.rank(self.sort)),
            true => {
                rows.reverse();
                rows.sort_by_cached_key(|row| Reverse(row.rank(self.sort)));
            }
        }
        rows
    }

    /// Returns the hosts that the table has, in its order.
    #[must_use]
    pub fn names(&self, model: &Model, aggregates: &Aggregates) -> Vec<HostName> {
        let rows = self.rows(model, aggregates);
        rows.iter().map(|row| row.name().clone()).collect()
    }

    /// Draws the table.
    #[must_use]
    pub fn draw(
        &self,
        model: &Model,
        aggregates: &Aggregates,
        (width, height): (usize, usize),
    ) -> Vec<Line<'static>> {
        let rows = self.rows(model, aggregates);
        let columns = fit(&COLUMNS, width);
        let order = if self.is_reversed { ", reversed" } else { "" };
        let filtered = match self.filter.is_empty() {
            true => String::new(),
            false => format!(" with \"{}\"", self.filter),
        };
        let title = format!(
            "{} of {} hosts{filtered}, by {}{order}",
            rows.len(),
            model.host_count(),
            self.sort.word()
        );
        let mut lines = vec![line(&title, Tone::Faint), head(&columns)];
        let names: Vec<HostName> = rows.iter().map(|row| row.name().clone()).collect();
        let selected = self.cursor.position(&names);
        let visible = window(
            selected.unwrap_or(0),
            rows.len(),
            height.saturating_sub(lines.len()),
        );
        for at in visible {
            let cells = cells(&rows[at], aggregates);
            lines.push(row(&columns, cells, selected == Some(at)));
        }
        if rows.is_empty() {
            let none = match model.host_count() {
                0 => "no host has registered",
                _ => "no host matches: Esc removes the filter",
            };
            lines.push(line(none, Tone::Plain));
        }
        lines
    }
}

const COLUMNS: [Column; 9] = [
    Column::text("HOST", 14),
    Column::text("STATE", 10),
    Column::number("PINNED", 9),
    Column::number("FREE", 5),
    Column::number("SHARED", 9),
    Column::number("MEMORY GiB", 11),
    Column::number("PAGES GiB", 10),
    Column::number("VMS", 4),
    Column::text("AGGREGATES", 12),
];

fn cells(row: &Row<'_>, aggregates: &Aggregates) -> Vec<Cell> {
    let (usage, capacity) = (&row.usage, &row.entry.capacity);
    let host = &row.entry.host;
    let state = match (host.liveness, host.is_open()) {
        (Liveness::Down, _) => Tone::Bad,
        (Liveness::Up, false) => Tone::Warning,
        (Liveness::Up, true) => Tone::Good,
    };
    let of = |used: u64, all: u64| match all {
        0 if used == 0 => "-".to_owned(),
        _ => format!("{used}/{all}"),
    };
    let gib_of = |used_mib: u64, all_mib: u64| match all_mib {
        0 if used_mib == 0 => "-".to_owned(),
        _ => format!("{}/{}", gib(used_mib), gib(all_mib)),
    };
    let tone = |used: u64, all: u64| match used > all {
        true => Tone::Warning,
        false => Tone::Plain,
    };
    let free = capacity.dedicated.saturating_sub(usage.dedicated);
    vec![
        (row.name().to_string(), Tone::Plain),
        (row.state().to_owned(), state),
        (
            of(usage.dedicated, capacity.dedicated),
            tone(usage.dedicated, capacity.dedicated),
        ),
        (free.to_string(), Tone::Plain),
        (of(usage.shared, capacity.shared), Tone::Plain),
        (
            gib_of(usage.memory_mib, capacity.memory_mib),
            tone(usage.memory_mib, capacity.memory_mib),
        ),
        (
            gib_of(usage.pages_mib, capacity.pages_mib),
            tone(usage.pages_mib, capacity.pages_mib),
        ),
        (usage.claims.to_string(), Tone::Plain),
        (
            aggregates.get(row.name()).cloned().unwrap_or_default(),
            Tone::Faint,
        ),
    ]
}

/// Returns an amount in GiB; a small one that is no whole number with a decimal.
fn gib(mib: u64) -> String {
    match mib % 1024 {
        0 => (mib / 1024).to_string(),
        _ if mib >= 100 * 1024 => (mib / 1024).to_string(),
        rest => format!("{}.{}", mib / 1024, rest * 10 / 1024),
    }
}
