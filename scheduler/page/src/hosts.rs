//! All hosts: a square for each, coloured by what is taken of it, and a table a page at a time.
//!
//! Not here: how the rows are made of a state, which the server does from the same summary that `ListHosts`
//! answers.
//!
//! Invariant: what the squares show is in the text and the table too. The squares are hidden from screen
//! readers and from the tab key, for which ten thousand links would be no help.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::frame::{Frame, Section, View};
use crate::route::HostsQuery;
use crate::table::{Column, meter, number, table};
use crate::text::{Shown, count, encoded, grouped, host_path, joined, mib, percent, plain};
use crate::words::{Tone, badge};

/// How many rows a page of the table has.
const ROWS_MAX: usize = 100;
/// How many squares are drawn.
const SQUARES_MAX: usize = 20_000;
/// How many groups have a heading; the hosts of the others are one group.
const GROUPS_MAX: usize = 500;

/// The state of a host: the first that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostState {
    /// Its agent reports, and it takes guests.
    Up,
    /// It takes no guests, as an operator decided.
    Cordoned,
    /// It has not reported since the state was restored.
    Unreported,
    /// Its agent reports a shape that its guests do not fit.
    ShapeRefused,
    /// Its agent does not report.
    Down,
    /// It is known to be dead.
    Fenced,
}

impl HostState {
    fn word(self) -> (&'static str, Tone) {
        match self {
            Self::Up => ("UP", Tone::Good),
            Self::Cordoned => ("CORDONED", Tone::Note),
            Self::Unreported => ("UNREPORTED", Tone::Note),
            Self::ShapeRefused => ("SHAPE_REFUSED", Tone::Bad),
            Self::Down => ("DOWN", Tone::Bad),
            Self::Fenced => ("FENCED", Tone::Bad),
        }
    }

    /// Returns the letter of its class in the style; none for a host that takes guests.
    fn mark(self) -> &'static str {
        match self {
            Self::Up => "",
            Self::Cordoned | Self::Unreported => " c",
            Self::ShapeRefused | Self::Down | Self::Fenced => " d",
        }
    }
}

/// What is taken of what there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// What is taken.
    pub used: u64,
    /// What there is, under the allocation ratio.
    pub capacity: u64,
}

/// What is shown of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRow {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: HostState,
    /// Its availability zone; empty without one.
    pub zone: String,
    /// The aggregates that it is in.
    pub aggregates: Vec<String>,
    /// Dedicated CPUs.
    pub pcpu: Share,
    /// vCPUs over shared CPUs.
    pub vcpu: Share,
    /// Memory in MiB.
    pub memory: Share,
    /// How many claims are on it.
    pub claims: u64,
    /// Whether it is beyond its rule of memory.
    pub violates: bool,
}

impl HostRow {
    /// Returns the greatest share that is taken of a resource, in percent.
    fn load(&self) -> u64 {
        let shares = [self.pcpu, self.vcpu, self.memory];
        let loads = shares.map(|share| percent(share.used, share.capacity));
        loads.into_iter().max().unwrap_or(0)
    }

    fn matches(&self, filter: &str) -> bool {
        let has = |text: &str| text.to_lowercase().contains(filter);
        let aggregates = || self.aggregates.iter().any(|name| has(name));
        filter.is_empty()
            || has(&self.name)
            || has(self.state.word().0)
            || has(&self.zone)
            || aggregates()
    }
}

/// What the squares are grouped by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// The state.
    #[default]
    State,
    /// The availability zone.
    Zone,
    /// The aggregates.
    Aggregate,
}

impl Grouping {
    const ALL: [Self; 3] = [Self::State, Self::Zone, Self::Aggregate];

    fn key(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Zone => "zone",
            Self::Aggregate => "aggregate",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Zone => "availability zone",
            Self::Aggregate => "aggregates",
        }
    }

    /// Reads a parameter; what it is not is the default.
    pub(crate) fn read(text: Option<&str>) -> Self {
        let all = Self::ALL.into_iter();
        let mut named = all.filter(|grouping| Some(grouping.key()) == text);
        named.next().unwrap_or_default()
    }

    fn group(self, row: &HostRow) -> String {
        let text = match self {
            Self::State => row.state.word().0.to_owned(),
            Self::Zone => row.zone.clone(),
            Self::Aggregate => joined(&row.aggregates),
        };
        match text.is_empty() {
            true => format!("no {}", self.label()),
            false => text,
        }
    }
}

/// Returns the view of these hosts, which are in the order of their names.
#[must_use]
pub fn render(frame: &Frame, query: &HostsQuery, hosts: &[HostRow]) -> String {
    let filter = query.filter.to_lowercase();
    let shown: Vec<&HostRow> = hosts.iter().filter(|row| row.matches(&filter)).collect();
    let view = View {
        section: Section::Hosts,
        title: "Hosts".to_owned(),
        fixed: form(query),
        live: html! {
            p {
                (count(shown.len() as u64, "host"))
                @if shown.len() < hosts.len() { " of " (grouped(hosts.len() as u64)) }
                @if !shown.is_empty() { ": " (by_state(&shown)) }
                "."
            }
            @if shown.is_empty() && !hosts.is_empty() { p { "No host matches the text." } }
            @if !shown.is_empty() { (squares(query.grouping, &shown)) (rows(query, &shown)) }
        },
    };
    frame.document(&view)
}

fn form(query: &HostsQuery) -> Markup {
    html! {
        form class="query" method="get" action="/hosts" {
            p {
                label for="q" { "Name, state, zone or aggregate" }
                input id="q" name="q" type="search" autocomplete="off" maxlength="255" value=(plain(&query.filter));
            }
            p {
                label for="by" { "Grouped by" }
                select id="by" name="by" {
                    @for grouping in Grouping::ALL {
                        option value=(grouping.key()) selected[grouping == query.grouping] { (grouping.label()) }
                    }
                }
            }
            p { button type="submit" { "Show" } }
        }
    }
}

fn by_state(hosts: &[&HostRow]) -> String {
    let mut states: BTreeMap<HostState, u64> = BTreeMap::new();
    for row in hosts {
        *states.entry(row.state).or_default() += 1;
    }
    joined(
        states
            .iter()
            .map(|(state, number)| format!("{} {}", grouped(*number), state.word().0)),
    )
}

fn squares(grouping: Grouping, hosts: &[&HostRow]) -> Markup {
    let mut groups: BTreeMap<String, Vec<&HostRow>> = BTreeMap::new();
    for row in hosts.iter().take(SQUARES_MAX) {
        let mut group = grouping.group(row);
        if groups.len() >= GROUPS_MAX && !groups.contains_key(&group) {
            group = "others".to_owned();
        }
        groups.entry(group).or_default().push(row);
    }
    html! {
        section aria-labelledby="use" {
            h2 id="use" { "What is taken" }
            p class="legend" {
                "A square for each host, by the greatest share taken of dedicated CPUs, vCPUs and memory: "
                @for tenth in [0, 3, 5, 7, 9, 10] {
                    span class={ "square u" (tenth) } aria-hidden="true" {} " " (tenth * 10) " % "
                }
                span class="square u0 c" aria-hidden="true" {} " cordoned or unreported "
                span class="square u0 d" aria-hidden="true" {} " down, fenced or refused"
            }
            @if hosts.len() > SQUARES_MAX { p { "The first " (SQUARES_MAX) " have a square." } }
            @for (name, hosts) in &groups {
                h3 { (Shown(name)) " " span class="aside" {
                    (count(hosts.len() as u64, "host")) ": " (by_state(hosts)) "; "
                    (average(hosts)) " % taken on average" } }
                div class="squares" aria-hidden="true" { @for row in hosts { (square(row)) } }
            }
        }
    }
}

fn average(hosts: &[&HostRow]) -> u64 {
    let sum: u64 = hosts.iter().map(|row| row.load()).sum();
    sum / (hosts.len() as u64).max(1)
}

/// Returns the square of a host. The path is relative, for there may be ten thousand.
fn square(row: &HostRow) -> Markup {
    let load = row.load();
    html! {
        a tabindex="-1" class={ "u" (load.min(100) / 10) (row.state.mark()) }
            href={ "hosts/" (encoded(&row.name)) } title={ (plain(&row.name)) " " (load) " %" } {}
    }
}

fn rows(query: &HostsQuery, hosts: &[&HostRow]) -> Markup {
    let pages = hosts.len().div_ceil(ROWS_MAX);
    let page = query.page.min(pages).max(1);
    let first = (page - 1) * ROWS_MAX;
    let shown = hosts.iter().skip(first).take(ROWS_MAX);
    let rows: Vec<Markup> = shown.map(|row| table_row(row)).collect();
    let columns = [
        Column::Text("Host"),
        Column::Text("State"),
        Column::Text("Zone"),
        Column::Text("Aggregates"),
        Column::Text("Dedicated CPUs"),
        Column::Text("vCPUs"),
        Column::Text("Memory"),
        Column::Number("Claims"),
    ];
    let caption = format!(
        "Hosts {} to {} of {}",
        first + 1,
        first + rows.len(),
        hosts.len()
    );
    let link = |page: usize| {
        format!(
            "/hosts?q={}&by={}&page={page}",
            encoded(&query.filter),
            query.grouping.key()
        )
    };
    html! {
        section aria-labelledby="table" {
            h2 id="table" { "Table" }
            (table(&caption, &columns, &rows))
            nav class="pages" aria-label="Pages" {
                @if page > 1 { a rel="prev" href=(link(page - 1)) { "Previous page" } " " }
                "Page " (page) " of " (pages)
                @if page < pages { " " a rel="next" href=(link(page + 1)) { "Next page" } }
            }
        }
    }
}

fn table_row(row: &HostRow) -> Markup {
    let share = |label: &str, share: Share, shown: fn(u64) -> String| {
        html! {
            td {
                @if share == Share::default() { "-" } @else {
                    (meter(label, share.used, share.capacity,
                        &format!("{} / {}", shown(share.used), shown(share.capacity))))
                }
            }
        }
    };
    html! {
        tr {
            th scope="row" { a href=(host_path(&row.name)) { (Shown(&row.name)) } }
            td { (badge(row.state.word())) @if row.violates { " " (badge(("MEMORY", Tone::Bad))) } }
            td { (Shown(&row.zone)) }
            td { (Shown(&joined(&row.aggregates))) }
            (share("dedicated CPUs", row.pcpu, grouped))
            (share("vCPUs", row.vcpu, grouped))
            (share("memory", row.memory, mib))
            (number(row.claims))
        }
    }
}
