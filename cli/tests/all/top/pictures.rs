//! What `berth top` draws.
//!
//! Goal: each view shows what it is for, at any size and after any keys without a panic, and nothing of what
//! others write reaches the terminal as it is.

use std::time::Duration;

use berth_cli::top::app::{App, Effect, View};
use berth_cli::top::frame::draw;
use berth_cli::top::key::Key;
use berth_cli::top::model::Model;
use berth_cli::top::moment::Now;
use berth_cli::top::overview::{Member, Status, Verdicts};
use berth_cli::top::paint::Terminal;
use berth_cli::top::update::Update;
use berth_domain::event::{Change, Record};
use berth_domain::id::TimeMs;
use berth_domain::operation::Outcome;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::ServiceVersion;
use berth_process::terminal::is_hidden;
use berth_testkit::state::scale::{Size, state};
use proptest::prelude::*;
use ratatui::Terminal as Screen;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};

use super::records;

const FULL: Terminal = Terminal {
    color: true,
    unicode: true,
};
const BARE: Terminal = Terminal {
    color: false,
    unicode: false,
};
const NOW: Now = Now {
    running: Duration::from_secs(60),
    clock: TimeMs(10_000_000),
};

fn model(hosts: u64) -> Model {
    let state = state(Size {
        hosts,
        vms_per_host: 6,
        seed: 1,
        version: ServiceVersion::CURRENT,
    });
    let mut model = Model::default();
    for record in records(&state).into_values() {
        model.apply(Change::Put(record));
    }
    model
}

fn app(hosts: u64) -> App {
    let mut app = App::default();
    app.feed.replace(model(hosts));
    app
}

fn picture(app: &mut App, terminal: Terminal, (width, height): (u16, u16)) -> Buffer {
    let mut screen = Screen::new(TestBackend::new(width, height)).expect("a screen");
    let drawn = screen.draw(|frame| app.drawn = draw(app, NOW, terminal, frame.buffer_mut()));
    drawn.expect("a picture");
    screen.backend().buffer().clone()
}

fn text(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let rows = buffer.content.chunks(width);
    let rows = rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>());
    rows.map(|row| row.trim_end().to_owned() + "\n").collect()
}

#[track_caller]
fn shows(app: &mut App, size: (u16, u16), parts: &[&str]) -> String {
    let text = text(&picture(app, FULL, size));
    for part in parts {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    text
}

fn press(app: &mut App, keys: &str) {
    for character in keys.chars() {
        let key = match character {
            '\r' => Key::Enter,
            '\u{1b}' => Key::Escape,
            '\t' => Key::Tab,
            '↓' => Key::Down,
            other => Key::Char(other),
        };
        assert_eq!(app.key(key), Effect::None);
    }
}

const SMALL: (u16, u16) = (80, 24);

#[test]
fn each_view_shows_what_it_is_for() {
    for size in [SMALL, (200, 50)] {
        let mut app = app(4);
        shows(
            &mut app,
            size,
            &["berth top [cluster]", "PCPU", "MEMORY_MB", "running"],
        );
        press(&mut app, "2");
        shows(&mut app, size, &["HOST", "PINNED", "h000000", "h000003"]);
        press(&mut app, "↓\r");
        shows(
            &mut app,
            size,
            &["host h000001: ", "NUMA node 0  memory", "CPUs", "[F F]"],
        );
        press(&mut app, "\r");
        shows(
            &mut app,
            size,
            &["berth top [vm vm", "state", "flavor", "claim"],
        );
        press(&mut app, "4");
        shows(&mut app, size, &["KIND", "VM OR HOST", "RUNNING"]);
        press(&mut app, "?");
        shows(
            &mut app,
            size,
            &["any key closes the help", "idle, its sibling"],
        );
    }
}

#[test]
fn a_terminal_that_is_too_small_shows_the_minimum() {
    let mut app = app(2);
    for size in [(40, 12), (59, 24), (80, 9)] {
        shows(&mut app, size, &["too small", "60 x 10"]);
    }
}

#[test]
fn hosts_are_filtered_and_sorted_and_the_selection_stays() {
    let mut app = app(12);
    press(&mut app, "2↓↓");
    let selected = |app: &mut App| {
        let buffer = picture(app, FULL, SMALL);
        let is_reversed = |cell: &ratatui::buffer::Cell| cell.modifier.contains(Modifier::REVERSED);
        let mut rows = buffer.content.chunks(80);
        let row = rows.rfind(|row| is_reversed(&row[0]));
        let row = row.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>());
        row.unwrap_or_default()
            .split(' ')
            .next()
            .unwrap_or("")
            .to_owned()
    };
    assert_eq!(selected(&mut app), "h000002");
    press(&mut app, "sssssr");
    assert_eq!(selected(&mut app), "h000002", "under another order");
    press(&mut app, "/00000");
    shows(&mut app, SMALL, &["filter: 00000_", "10 of 12 hosts"]);
    press(&mut app, "9\r");
    shows(&mut app, SMALL, &["1 of 12 hosts with \"000009\""]);
    assert_eq!(selected(&mut app), "h000009", "the nearest that is left");
    press(&mut app, "\u{1b}");
    shows(&mut app, SMALL, &["12 of 12 hosts"]);
}

/// Goal: who looks at a map recognizes a VM by its letter while others come and go.
#[test]
fn claims_keep_their_letters() {
    let mut app = app(1);
    press(&mut app, "3");
    let model = app.feed.model();
    let map = app.map.as_ref().expect("a host is open");
    let claims = map.claims(model);
    let line = |app: &mut App, vm: &str| {
        let text = text(&picture(app, FULL, (120, 60)));
        let line = text
            .lines()
            .find(|line| line.contains(&format!(" = {vm} ")));
        line.map(|line| line.trim().split(' ').next().unwrap_or("").to_owned())
    };
    let (first, third) = (claims[0].clone(), claims[2].clone());
    assert_eq!(line(&mut app, third.vm.as_str()).as_deref(), Some("C"));
    let mut changed = app.feed.model().clone();
    changed.apply(Change::Deleted(Record::Claim(first.clone().into()).name()));
    app.feed.replace(changed.clone());
    app.refresh();
    assert_eq!(line(&mut app, third.vm.as_str()).as_deref(), Some("C"));
    assert_eq!(line(&mut app, first.vm.as_str()), None);
    let mut other = first;
    other.id.0 = uuid_of(0xffff);
    changed.apply(Change::Put(Record::Claim(other.clone().into())));
    app.feed.replace(changed);
    app.refresh();
    assert_eq!(line(&mut app, other.vm.as_str()).as_deref(), Some("A"));
    assert_eq!(line(&mut app, third.vm.as_str()).as_deref(), Some("C"));
}

fn uuid_of(number: u128) -> uuid::Uuid {
    uuid::Uuid::from_u128(number << 100)
}

/// Goal: what may be outdated is marked in the header and dimmed.
#[test]
fn a_lost_connection_is_shown() {
    let mut app = app(2);
    press(&mut app, "2");
    let is_dim = |buffer: &Buffer| {
        let cells = buffer.content[2 * 80..23 * 80].iter();
        cells.filter(|c| c.modifier.contains(Modifier::DIM)).count() > 20 * 80
    };
    assert!(!is_dim(&picture(&mut app, FULL, SMALL)));
    let lost = Update::Lost {
        trying: "h:7100".to_owned(),
        why: "the scheduler ended the watch".to_owned(),
    };
    app.update(lost, Duration::from_secs(48)).unwrap();
    shows(
        &mut app,
        SMALL,
        &[
            "NO CONNECTION since 12 s, trying h:7100",
            "OLD PICTURE: the scheduler ended",
            "h000000",
        ],
    );
    assert!(is_dim(&picture(&mut app, FULL, SMALL)));
}

const HOSTILE: &str = "x\u{1b}[2J\u{9b}1m\u{202e}\u{200b}\r\ny";

/// Goal: names, addresses, reasons and messages of others are escaped in every view.
#[test]
fn nothing_of_others_reaches_the_terminal_raw() {
    let mut app = app(2);
    let text_of = HOSTILE.to_owned();
    let member = Member {
        id: 1,
        address: text_of.clone(),
        role: text_of.clone(),
        lag: None,
        active: text_of.clone(),
        is_active: false,
        version: text_of.clone(),
    };
    let status = Status {
        id: text_of.clone(),
        leader: text_of.clone(),
        has_leader: false,
        tolerates: text_of.clone(),
        version: text_of.clone(),
        recovery: Some(text_of.clone()),
        members: vec![member],
    };
    let verdicts = Verdicts {
        refuted: vec![(text_of.clone(), text_of.clone())],
        beyond: vec![(text_of.clone(), text_of.clone())],
        ..Verdicts::default()
    };
    let mut changed = app.feed.model().clone();
    let some = changed.operations().next().cloned().expect("an operation");
    let mut failed = (*some).clone();
    failed.created_at = TimeMs(u64::MAX);
    let refusal = Refusal::new(Code::Aborted, HOSTILE, HOSTILE).with_hint(HOSTILE);
    failed.outcome = Some(Outcome::Failed(refusal));
    changed.apply(Change::Put(Record::Operation(failed.into())));
    let entry = changed.hosts().next().expect("a host");
    let mut host = (*entry.host).clone();
    host.shape_refused = Some(text_of.clone());
    host.report.driver = text_of.clone();
    let name = host.name.clone();
    changed.apply(Change::Put(Record::Host(host.into())));
    app.feed.replace(changed);
    let at = Duration::from_secs(1);
    app.update(Update::Status(Ok(status)), at).unwrap();
    app.update(Update::Verdicts(Ok(verdicts)), at).unwrap();
    app.update(Update::Verdicts(Err(text_of.clone())), at)
        .unwrap();
    let aggregates = [(name, text_of.clone())].into();
    app.update(Update::Aggregates(aggregates), at).unwrap();
    let mut shown = 0;
    for keys in ["1", "2", "3", "\r", "4", "/\u{202e}\u{1b}[2J\r"] {
        press(&mut app, &keys.replace('\u{1b}', "e"));
        let buffer = picture(&mut app, FULL, (200, 60));
        let cells = buffer.content.iter();
        let hidden = cells
            .filter(|cell| cell.symbol().chars().any(is_hidden))
            .count();
        assert_eq!(hidden, 0, "{keys:?}");
        shown += usize::from(text(&buffer).contains(r"x\u{1b}[2J"));
    }
    assert!(shown >= 4, "{shown} views show it, escaped");
    let lost = Update::Lost {
        trying: text_of.clone(),
        why: text_of,
    };
    app.update(lost, at).unwrap();
    let text = shows(
        &mut app,
        (200, 60),
        &[r"trying x\u{1b}[2J", r"OLD PICTURE: x\u{1b}"],
    );
    assert!(!text.chars().any(|c| c != '\n' && is_hidden(c)));
}

#[test]
fn a_bare_terminal_gets_ascii_without_colour() {
    let mut app = app(2);
    for keys in ["1", "2", "3", "4", "?"] {
        press(&mut app, keys);
        let buffer = picture(&mut app, BARE, SMALL);
        let text = text(&buffer);
        assert!(text.is_ascii(), "{text}");
        let mut cells = buffer.content.iter();
        assert!(cells.all(|c| c.fg == Color::Reset && c.bg == Color::Reset));
    }
}

fn keys() -> impl Strategy<Value = Vec<(Key, u16, u16)>> {
    let key = prop_oneof![
        Just(Key::Up),
        Just(Key::Down),
        Just(Key::PageUp),
        Just(Key::PageDown),
        Just(Key::Home),
        Just(Key::End),
        Just(Key::Enter),
        Just(Key::Escape),
        Just(Key::Tab),
        Just(Key::BackTab),
        Just(Key::Backspace),
        proptest::sample::select(vec![
            '1', '2', '3', '4', '/', 's', 'r', '?', 'v', 'h', '0', 'é'
        ])
        .prop_map(Key::Char),
    ];
    proptest::collection::vec((key, 0..120_u16, 0..40_u16), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// Goal: no sequence of keys and sizes panics, draws outside of the screen, or leaves the program
    /// without a way to quit. An empty cluster is one of those that are shown.
    #[test]
    fn any_keys_at_any_size(steps in keys(), hosts in 0..4_u64) {
        let mut app = App::default();
        if hosts > 0 {
            app.feed.replace(model(hosts));
        }
        for (key, width, height) in steps {
            prop_assert_ne!(app.key(key), Effect::Quit);
            picture(&mut app, FULL, (width, height));
            prop_assert!(View::ALL.contains(&app.view));
        }
        prop_assert_eq!(app.key(Key::Interrupt), Effect::Quit);
    }
}
