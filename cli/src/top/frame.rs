//! The whole screen: a header, the view, and the keys.
//!
//! ```text
//!   berth top [hosts]  cluster 3f2a91c0  live at revision 4711
//!   … the view …
//!   1-4 views  Tab next  Enter open  / filter  s sort  q quit  ? help
//! ```
//!
//! Pure: it draws into a buffer and knows no terminal.
//!
//! Invariant: it draws at any size without a panic, and says so where the size is below the minimum. What
//! may be outdated is dimmed, and the header says since when.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::Line;

use super::app::{App, Drawn, View};
use super::details;
use super::feed::Connection;
use super::moment::{Now, describe};
use super::paint::{Terminal, Tone, finish, line, span};
use super::table::cut;

/// The least width of a screen.
pub const WIDTH_MIN: u16 = 60;
/// The least height of a screen.
pub const HEIGHT_MIN: u16 = 10;

/// Draws the screen; returns how large the view was.
pub fn draw(app: &App, now: Now, terminal: Terminal, buffer: &mut Buffer) -> Drawn {
    let area = buffer.area;
    let drawn = match area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        true => too_small(area, buffer),
        false => screen(app, now, area, buffer),
    };
    finish(buffer, terminal);
    drawn
}

fn too_small(area: Rect, buffer: &mut Buffer) -> Drawn {
    let texts = [
        "the terminal is too small".to_owned(),
        format!("{WIDTH_MIN} x {HEIGHT_MIN} is the minimum,"),
        format!("it has {} x {}", area.width, area.height),
        "q quits".to_owned(),
    ];
    let lines = texts.iter().map(|text| line(text, Tone::Plain)).collect();
    put(buffer, area, lines);
    Drawn::default()
}

fn screen(app: &App, now: Now, area: Rect, buffer: &mut Buffer) -> Drawn {
    let (width, rows) = (usize::from(area.width), usize::from(area.height) - 3);
    let row = |y: u16, height: u16| Rect {
        y: area.y + y,
        height,
        ..area
    };
    put(buffer, row(0, 1), vec![header(app, now, width)]);
    let rule = "─".repeat(width);
    put(buffer, row(1, 1), vec![line(&rule, Tone::Faint)]);
    let (mut lines, scroll) = match app.is_help {
        true => (help(), 0),
        false => view(app, now, (width, rows)),
    };
    let total = lines.len();
    lines.drain(..scroll.min(total.saturating_sub(rows)));
    let body = row(2, area.height - 3);
    put(buffer, body, lines);
    if app.feed.is_old() && !app.is_help {
        dim(buffer, body);
    }
    put(buffer, row(area.height - 1, 1), vec![footer(app)]);
    Drawn { rows, lines: total }
}

/// Returns the lines of the view, and the first one that is visible.
fn view(app: &App, now: Now, size: (usize, usize)) -> (Vec<Line<'static>>, usize) {
    let model = app.feed.model();
    let transfers = &app.transfers;
    if let Some(details) = &app.details {
        let lines = details::draw(model, &details.vm, transfers, now);
        return (lines, details.scroll);
    }
    match app.view {
        View::Cluster => {
            let lines = app.overview.draw(model, transfers, now, size.0);
            (lines, app.overview.scroll)
        }
        View::Hosts => (app.hosts.draw(model, &app.aggregates, size), 0),
        View::Host => match &app.map {
            Some(map) => map.draw(model, size),
            None => (vec![line("no host has registered", Tone::Plain)], 0),
        },
        View::Operations => (app.operations.draw(model, transfers, now, size), 0),
    }
}

fn header(app: &App, now: Now, width: usize) -> Line<'static> {
    let title = match &app.details {
        Some(details) => format!("vm {}", details.vm),
        None => app.view.title().to_owned(),
    };
    let revision = app.feed.revision();
    let (state, tone) = match app.feed.connection() {
        Connection::Live => (format!("live at revision {revision}"), Tone::Good),
        Connection::Listing(records) => (
            format!("reading the cluster, {records} records"),
            Tone::Warning,
        ),
        Connection::CatchingUp => (
            format!("connected, catching up from revision {revision}"),
            Tone::Warning,
        ),
        Connection::Lost { since, trying, .. } => {
            let ms = now.running.saturating_sub(*since).as_millis();
            let time = describe(u64::try_from(ms).unwrap_or(u64::MAX));
            (
                format!("NO CONNECTION since {time}, trying {trying}"),
                Tone::Bad,
            )
        }
    };
    // A connection that is lost needs the whole line.
    let is_lost = matches!(app.feed.connection(), Connection::Lost { .. });
    let id = app.overview.status.value.as_ref().filter(|_| !is_lost);
    let id = id.map_or(String::new(), |(status, _)| {
        let short: String = status.id.chars().take(8).collect();
        format!("  cluster {short}")
    });
    let head = format!("berth top [{}]{id}  ", cut(&title, 24));
    let left = width.saturating_sub(super::table::width(&head));
    Line::from(vec![
        span(&head, Tone::Heading),
        span(&cut(&state, left), tone),
    ])
}

fn footer(app: &App) -> Line<'static> {
    if app.is_typing {
        let filter = match app.view {
            View::Operations => &app.operations.filter,
            View::Hosts | View::Cluster | View::Host => &app.hosts.filter,
        };
        let text = format!("filter: {filter}_   Enter keeps it, Esc removes it");
        return line(&text, Tone::Selected);
    }
    if let Connection::Lost { why, .. } = app.feed.connection() {
        return line(&format!("OLD PICTURE: {why}"), Tone::Bad);
    }
    let keys = match (&app.details, app.view) {
        _ if app.is_help => "any key closes the help",
        (Some(_), _) => "Esc back  Enter its host  arrows scroll  q quit  ? help",
        (None, View::Cluster) => "1-4 Tab views  arrows scroll  v verify  q quit  ? help",
        (None, View::Hosts) => {
            "1-4 Tab views  Enter open  / filter  s sort  r reverse  q quit  ? help"
        }
        (None, View::Host) => {
            "1-4 Tab views  Esc hosts  arrows VM  Enter details  PgDn more  q quit"
        }
        (None, View::Operations) => "1-4 Tab views  Enter VM  / filter  q quit  ? help",
    };
    line(keys, Tone::Faint)
}

fn help() -> Vec<Line<'static>> {
    const TEXT: &[&str] = &[
        "1 2 3 4      cluster, hosts, the selected host, operations",
        "Tab          the next view",
        "arrows, j k  select or scroll; PgUp, PgDn, Home, End turn pages",
        "Enter        open what is selected: host, VM, and from a VM its host",
        "Esc          back; in a table, remove the filter",
        "/            filter hosts or operations by a text",
        "s, r         sort the hosts by the next column; reverse the order",
        "v            verify what the failure of each host would mean",
        "q, Ctrl-C    quit",
        "",
        "In the map of a host each dedicated CPU has the letter of its claim, and",
        "siblings are in one bracket: [A A] [B B-] [Be \u{b7}]",
        "  A   a vCPU of A is pinned to it     Be  the emulator of B has it",
        "  B-  idle, its sibling is isolated   \u{b7}   free",
        "Amounts are those that are installed; the policy's ratios may allow more.",
    ];
    TEXT.iter().map(|text| line(text, Tone::Plain)).collect()
}

/// Draws lines from the top of an area on, those that do not fit left out.
fn put(buffer: &mut Buffer, area: Rect, lines: Vec<Line<'static>>) {
    let area = area.intersection(buffer.area);
    for (y, line) in (area.y..area.bottom()).zip(lines) {
        buffer.set_style(
            Rect {
                y,
                height: 1,
                ..area
            },
            line.style,
        );
        buffer.set_line(area.x, y, &line, area.width);
    }
}

/// Marks an area as outdated.
fn dim(buffer: &mut Buffer, area: Rect) {
    let area = area.intersection(buffer.area);
    for y in area.y..area.bottom() {
        for x in area.x..area.right() {
            buffer[(x, y)].modifier.insert(Modifier::DIM);
        }
    }
}
