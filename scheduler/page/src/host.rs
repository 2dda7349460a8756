//! One host: sockets and NUMA nodes, each CPU with the VM that has it, pools of pages, PCI functions,
//! persistent memory and volumes.
//!
//! | module | contents |
//! |---|---|
//! | `node` | a NUMA node: CPUs, memory and pages |
//! | `devices` | PCI functions, persistent memory, regions and volumes |
//!
//! Invariant: each CPU that the host dedicates is in the map once, and a claim has the same letter and colour
//! everywhere in the view.

mod devices;
mod node;

use std::collections::{BTreeMap, BTreeSet};

use berth_proto::host::v1::{GetHostResponse, Host, HostReport};
use berth_proto::types::v1::{Claim, HostCell, HostTopology};
use berth_proto::volume::v1::Volume;
use maud::{Markup, html};

use crate::action::Action;
use crate::frame::{Frame, Section, View, actions};
use crate::operations::time;
use crate::table::{Column, facts, meter, number, table};
use crate::text::{Shown, Wrapped, count, grouped, joined, mib, plain, short, vm_path};
use crate::words::{self, Tone, badge};

/// How many colours there are for claims.
const COLOURS: usize = 12;

/// What the view shows.
#[derive(Clone, Debug, Default)]
pub struct HostView {
    /// The host, its claims and what they take.
    pub host: GetHostResponse,
    /// Its volumes.
    pub volumes: Vec<Volume>,
}

/// The letters of the claims on a host, by their names.
pub(crate) struct Letters(BTreeMap<String, usize>);

impl Letters {
    fn of(claims: &[Claim]) -> Self {
        let names: BTreeSet<&str> = claims.iter().map(|claim| claim.name.as_str()).collect();
        Self(names.into_iter().map(str::to_owned).zip(0..).collect())
    }

    /// Returns the letter of a claim, as A, B, … Z, A1; a claim that is not listed has none.
    pub(crate) fn letter(&self, claim: &str) -> String {
        match self.0.get(claim) {
            None => "?".to_owned(),
            Some(number) => {
                let letter = char::from(b'A' + u8::try_from(number % 26).unwrap_or(0));
                match number / 26 {
                    0 => letter.to_string(),
                    round => format!("{letter}{round}"),
                }
            }
        }
    }

    /// Returns the class of a claim's colour.
    pub(crate) fn class(&self, claim: &str) -> String {
        match self.0.get(claim) {
            None => "o".to_owned(),
            Some(number) => format!("o o{}", number % COLOURS),
        }
    }
}

/// Returns the view.
#[must_use]
pub fn render(frame: &Frame, view: &HostView) -> String {
    let host = view.host.host.clone().unwrap_or_default();
    let report = host.report.clone().unwrap_or_default();
    let topology = report.topology.clone().unwrap_or_default();
    let letters = Letters::of(&view.host.claims);
    let document = View {
        section: Section::Hosts,
        title: format!("Host {}", short(&host.name)),
        fixed: html! {},
        live: html! {
            (summary(&host, &report, &topology, view))
            @if frame.may_change { (actions(&offered(&host))) }
            (problems(&host))
            (sockets(&topology, view, &letters))
            (claims(&view.host.claims, &letters))
            (devices::pci(&topology, &view.host.claims, &letters))
            (devices::pmem(&topology, &view.host.claims, &letters))
            (devices::volumes(&report, &view.volumes))
        },
    };
    frame.document(&document)
}

fn summary(host: &Host, report: &HostReport, topology: &HostTopology, view: &HostView) -> Markup {
    let sockets: BTreeSet<_> = topology.cells.iter().map(|cell| cell.socket).collect();
    let memory = view.host.memory.clone().unwrap_or_default();
    let cpu = view.host.cpu.clone().unwrap_or_default();
    let traits = joined(report.traits.iter().map(|name| plain(name)));
    html! {
        section aria-label="State" {
            (facts(&[
                ("State", badge(words::host(host))),
                ("Shape", html! { (count(sockets.len() as u64, "socket")) ", "
                    (count(topology.cells.len() as u64, "NUMA node")) }),
                ("Memory", html! {
                    (meter("memory", memory.used_mib, memory.total_mib,
                        &format!("{} of {}", mib(memory.used_mib), mib(memory.total_mib))))
                    ", ratio " (ratio(memory.ratio_milli))
                    @if let Some(violation) = words::violation(memory.violation()) { " " (badge(violation)) }
                }),
                ("vCPUs on shared CPUs", html! {
                    (meter("vCPUs", cpu.used, cpu.capacity,
                        &format!("{} of {}", grouped(cpu.used), grouped(cpu.capacity))))
                    ", ratio " (ratio(cpu.ratio_milli))
                }),
                ("Agent", html! { code { (Shown(&report.agent_address)) } ", version " (report.service_version) }),
                ("Driver", html! { (Shown(&report.driver)) " " (Shown(&report.hypervisor_type)) " "
                    (Shown(&report.architecture)) }),
                ("Registered", time(host.create_time.as_ref())),
                ("Traits", html! { details { summary { (count(report.traits.len() as u64, "trait")) }
                    p { (Wrapped(&traits)) } } }),
            ]))
        }
    }
}

/// Returns what can be done to a host.
fn offered(host: &Host) -> [Action; 2] {
    let name = || short(&host.name).to_owned();
    let cordon = match host.cordoned {
        true => Action::Uncordon(name()),
        false => Action::Cordon(name()),
    };
    [cordon, Action::Drain(name())]
}

fn ratio(milli: u32) -> String {
    match milli % 1000 {
        0 => format!("{}", milli / 1000),
        rest => format!("{}.{:03}", milli / 1000, rest)
            .trim_end_matches('0')
            .to_owned(),
    }
}

fn problems(host: &Host) -> Markup {
    html! {
        @if !host.cordoned_by.is_empty() { p class="notice note" { "Cordoned by " (Shown(&host.cordoned_by)) "." } }
        @if !host.shape_refused.is_empty() {
            p class="notice bad" { "Its latest shape is refused: " (Wrapped(&host.shape_refused)) }
        }
        @if let Some(fence) = &host.fence {
            p class="notice bad" { "Fenced by " (Shown(&fence.principal)) ", " (time(fence.fence_time.as_ref())) ". "
                (Wrapped(&fence.output)) }
        }
        @for guest in &host.unknown_domains {
            p class="notice bad" { "A guest without a claim runs here: " (Shown(&guest.display_name)) " "
                code { (Shown(&guest.uuid)) } }
        }
        @for failed in &host.failed_volumes {
            p class="notice bad" { "Volume " (Shown(&failed.display_name)) " could not be made: " (Wrapped(&failed.why)) }
        }
    }
}

fn sockets(topology: &HostTopology, view: &HostView, letters: &Letters) -> Markup {
    let mut sockets: BTreeMap<Option<u32>, Vec<&HostCell>> = BTreeMap::new();
    for cell in &topology.cells {
        sockets.entry(cell.socket).or_default().push(cell);
    }
    let usage = view.host.usage.clone().unwrap_or_default();
    html! {
        section aria-labelledby="map" {
            h2 id="map" { "Sockets and NUMA nodes" }
            @if sockets.is_empty() { p { "The host has nothing for guests." } }
            @for (socket, cells) in &sockets {
                section class="socket" aria-label=(socket_name(*socket)) {
                    h3 { (socket_name(*socket)) }
                    div class="nodes" { @for cell in cells { (node::render(cell, &usage, &view.host.claims, letters)) } }
                }
            }
            @for far in &topology.far_memory {
                p { "NUMA node " (far.id) ": " (mib(far.memory_mib)) " of memory without CPUs near it, given to no guest." }
            }
        }
    }
}

fn socket_name(socket: Option<u32>) -> String {
    socket.map_or("Socket unknown".to_owned(), |socket| {
        format!("Socket {socket}")
    })
}

fn claims(claims: &[Claim], letters: &Letters) -> Markup {
    let row = |claim: &Claim| {
        let assignment = claim.assignment.clone().unwrap_or_default();
        let nodes = joined(assignment.cells.iter().map(|cell| cell.host_cell));
        let pinned: usize = assignment.cells.iter().map(|cell| cell.pins.len()).sum();
        let memory = claim.resources.get("MEMORY_MB").copied().unwrap_or(0);
        html! {
            tr {
                td class=(letters.class(&claim.name)) { b { (letters.letter(&claim.name)) } }
                th scope="row" { a href=(vm_path(&claim.vm)) { (Shown(short(&claim.vm))) } }
                td { (badge(words::claim(claim.state()))) @if !claim.migration.is_empty() { " of a migration" } }
                td { @if nodes.is_empty() { "floats" } @else { (nodes) } }
                (number(grouped(pinned as u64)))
                (number(mib(memory)))
            }
        }
    };
    let rows: Vec<Markup> = claims.iter().map(row).collect();
    let columns = [
        Column::Text("Letter"),
        Column::Text("VM"),
        Column::Text("Claim"),
        Column::Text("NUMA nodes"),
        Column::Number("Pinned CPUs"),
        Column::Number("Memory"),
    ];
    html! {
        section aria-labelledby="claims" {
            h2 id="claims" { "Claims" }
            @if rows.is_empty() { p { (badge(("EMPTY", Tone::Plain))) " No VM is on this host." } } @else {
                (table("Claims on this host, with their letters in the map", &columns, &rows))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_have_letters_in_the_order_of_their_names() {
        let claims: Vec<Claim> = (0..30)
            .map(|number| Claim {
                name: format!("claims/{number:02}"),
                ..Claim::default()
            })
            .collect();
        let letters = Letters::of(&claims);
        let letter = |number: usize| letters.letter(&format!("claims/{number:02}"));
        assert_eq!(
            (letter(0), letter(25), letter(26)),
            ("A".into(), "Z".into(), "A1".into())
        );
        assert_eq!(letters.letter("claims/x"), "?");
        assert_eq!(letters.class("claims/13"), "o o1");
        assert_eq!(
            (ratio(1000), ratio(1500), ratio(1050)),
            ("1".into(), "1.5".into(), "1.05".into())
        );
    }
}
