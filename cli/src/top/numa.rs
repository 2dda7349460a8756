//! The view of one host: its sockets and NUMA nodes, each CPU with the VM that has it, pages, PCI
//! functions and persistent memory.
//!
//! The parts are those of `berth host show` ([`parts`]); here the CPUs are a dense map, in which a claim has
//! its letter and, where there is colour, its colour. Below the map each claim is a row to select.
//!
//! Invariant: a claim keeps its letter as long as it is on the host, whatever comes and goes beside it.

use std::collections::BTreeMap;

use berth_domain::claim::Claim;
use berth_domain::host::Host;
use berth_domain::id::ClaimId;
use berth_domain::name::HostName;
use ratatui::text::{Line, Span};

use super::cursor::{Cursor, window};
use super::model::Model;
use super::paint::{Tone, line, span};
use crate::draw::parts::{self, Core, Part, Thread, Use};
use crate::draw::{bytes, letter};
use crate::records;
use crate::sides::Sides;

/// A host, and the letters of the claims on it.
#[derive(Clone, Debug)]
pub struct HostMap {
    /// The host.
    pub host: HostName,
    /// The selected claim.
    pub cursor: Cursor<ClaimId>,
    /// The first visible line.
    pub scroll: usize,
    /// Whether the selected claim is to be visible instead: its selection was moved last.
    pub follows_selection: bool,
    /// The number of each claim's letter.
    letters: BTreeMap<ClaimId, usize>,
}

impl HostMap {
    /// Returns the map of a host.
    #[must_use]
    pub fn new(host: HostName) -> Self {
        Self {
            host,
            cursor: Cursor::default(),
            scroll: 0,
            follows_selection: false,
            letters: BTreeMap::new(),
        }
    }

    /// Gives letters to claims that came, the first that are free, and takes those of claims that left.
    pub fn refresh(&mut self, model: &Model) {
        let on_host: Vec<&std::sync::Arc<Claim>> = model.claims_on(&self.host).collect();
        self.letters
            .retain(|id, _| on_host.iter().any(|claim| claim.id == *id));
        let mut taken: Vec<usize> = self.letters.values().copied().collect();
        taken.sort_unstable();
        let mut candidate = 0;
        let mut free = std::iter::from_fn(|| {
            while taken.binary_search(&candidate).is_ok() {
                candidate += 1;
            }
            candidate += 1;
            Some(candidate - 1)
        });
        for claim in on_host {
            if let std::collections::btree_map::Entry::Vacant(vacant) = self.letters.entry(claim.id)
                && let Some(letter) = free.next()
            {
                vacant.insert(letter);
            }
        }
    }

    /// Returns the claims on the host in the order of their letters.
    #[must_use]
    pub fn claims(&self, model: &Model) -> Vec<Claim> {
        let mut claims: Vec<Claim> = model
            .claims_on(&self.host)
            .map(|claim| Claim::clone(claim))
            .collect();
        claims.sort_by_key(|claim| self.number(claim.id));
        claims
    }

    fn number(&self, claim: ClaimId) -> usize {
        self.letters.get(&claim).copied().unwrap_or(usize::MAX)
    }

    /// Draws the host; returns all lines, and the first one that is visible.
    #[must_use]
    pub fn draw(
        &self,
        model: &Model,
        (width, height): (usize, usize),
    ) -> (Vec<Line<'static>>, usize) {
        let Some(entry) = model.host(&self.host) else {
            let gone = format!("host {} does not exist (any more)", self.host);
            return (vec![line(&gone, Tone::Warning)], 0);
        };
        let claims = self.claims(model);
        let ids: Vec<ClaimId> = claims.iter().map(|claim| claim.id).collect();
        let picture = Picture {
            selected: self.cursor.position(&ids),
            numbers: ids.iter().map(|id| self.number(*id)).collect(),
            width,
        };
        let migrations: Vec<_> = model.open_migrations().map(|m| (**m).clone()).collect();
        let sides = Sides::new(&migrations);
        let letters: Vec<String> = picture.numbers.iter().map(|n| letter(*n)).collect();
        let report = &entry.host.report;
        let parts = parts::of_host(&self.host, report, &claims, &letters, &sides);
        let mut lines = vec![state_line(&entry.host)];
        let mut selected = 0;
        for part in parts {
            match part {
                Part::Lines(part) => lines.extend(part.iter().map(|text| plain(text, width))),
                Part::Cores(cores) => lines.extend(picture.cores(&cores, &letters)),
                Part::Owner(at, text) => {
                    if picture.selected == Some(at) {
                        selected = lines.len();
                    }
                    lines.push(picture.owner(at, &text));
                }
            }
        }
        lines.extend(regions(&entry.host));
        let first = match (self.follows_selection, selected < height) {
            (true, false) => window(selected, lines.len(), height).start,
            (true, true) => 0,
            (false, _) => self.scroll,
        };
        (lines, first)
    }
}

/// How the claims of a host are drawn.
struct Picture {
    selected: Option<usize>,
    /// The number of the letter of each claim.
    numbers: Vec<usize>,
    width: usize,
}

impl Picture {
    fn tone(&self, claim: usize) -> Tone {
        match self.selected == Some(claim) {
            true => Tone::Selected,
            false => Tone::Owner(self.numbers[claim]),
        }
    }

    fn owner(&self, at: usize, text: &str) -> Line<'static> {
        line(text, self.tone(at))
    }

    /// Draws CPUs in rows, each behind the number of its first one.
    fn cores(&self, cores: &[Core], letters: &[String]) -> Vec<Line<'static>> {
        let marks = cores.iter().flatten().map(|thread| mark(thread, letters));
        let each = marks.map(|m| m.chars().count()).max().unwrap_or(1);
        let first = |core: &Core| core.first().map_or(0, |thread| thread.cpu.0);
        let digits = cores.iter().map(|core| first(core).to_string().len());
        let digits = digits.max().unwrap_or(1);
        let mut lines = Vec::new();
        let mut spans = Vec::new();
        let mut used = 0;
        for core in cores {
            let needed = core.len() * (each + 1) + 2;
            if used + needed > self.width && !spans.is_empty() {
                lines.push(Line::from(std::mem::take(&mut spans)));
            }
            if spans.is_empty() {
                let head = match lines.is_empty() {
                    true => format!("    CPUs {:>digits$} ", first(core)),
                    false => format!("         {:>digits$} ", first(core)),
                };
                used = head.len();
                spans.push(span(&head, Tone::Faint));
            }
            used += needed;
            spans.push(Span::raw("["));
            for (at, thread) in core.iter().enumerate() {
                if at > 0 {
                    spans.push(Span::raw(" "));
                }
                let text = format!("{:<each$}", mark(thread, letters));
                let tone = match thread.owner {
                    Some((claim, _)) => self.tone(claim),
                    None => Tone::Faint,
                };
                spans.push(span(&text, tone));
            }
            spans.push(Span::raw("] "));
        }
        lines.push(Line::from(spans));
        lines
    }
}

/// Returns what stands for a CPU: the letter of its claim; with `-` if it stays idle beside an isolated
/// thread, with `e` if the emulator has it.
fn mark(thread: &Thread, letters: &[String]) -> String {
    match thread.owner {
        Some((claim, Use::Vcpu(_))) => letters[claim].clone(),
        Some((claim, Use::Emulator)) => format!("{}e", letters[claim]),
        Some((claim, Use::Idle)) => format!("{}-", letters[claim]),
        None => "·".to_owned(),
    }
}

/// Returns a line of the picture: sockets and the head stand out.
fn plain(text: &str, width: usize) -> Line<'static> {
    let tone = match text.starts_with(' ') {
        true => Tone::Plain,
        false => Tone::Heading,
    };
    line(&super::table::cut(text, width), tone)
}

fn state_line(host: &Host) -> Line<'static> {
    let word = records::host_state(host);
    let tone = match host.is_open() {
        true => Tone::Good,
        false => Tone::Bad,
    };
    let mut spans = vec![span(word, tone)];
    if host.cordoned {
        spans.push(Span::raw("  cordoned"));
    }
    if let Some(why) = &host.shape_refused {
        spans.push(span(&format!("  shape refused: {why}"), Tone::Warning));
    }
    if !host.unknown.is_empty() {
        let unknown = format!(
            "  {} without a claim",
            crate::draw::count(host.unknown.len(), "guest")
        );
        spans.push(span(&unknown, Tone::Warning));
    }
    let report = &host.report;
    let driver = format!(
        "  driver {}, service version {}",
        report.driver, report.service_version
    );
    spans.push(span(&driver, Tone::Faint));
    Line::from(spans)
}

/// Draws the regions that volumes can be made of. Which volumes are in them is not watched.
fn regions(host: &Host) -> Vec<Line<'static>> {
    let regions = &host.report.regions;
    let mut lines = Vec::new();
    if !regions.is_empty() {
        lines.push(line("regions for volumes", Tone::Heading));
    }
    for region in regions {
        let cell = region.cell.map(|cell| format!("NUMA node {cell}, "));
        let text = format!(
            "  {}: {}{}, {}",
            region.name,
            cell.unwrap_or_default(),
            region.mode,
            bytes(region.capacity_bytes)
        );
        lines.push(line(&text, Tone::Plain));
        if !region.trouble.is_empty() {
            lines.push(line(&format!("    ! {}", region.trouble), Tone::Warning));
        }
    }
    lines
}
