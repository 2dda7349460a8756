//! A VM: its state, what it holds down to the CPU, what was done to it, and where it is being moved.

use berth_proto::operation::v1::Operation;
use berth_proto::scheduler::v1::guest_trouble::Absence;
use berth_proto::scheduler::v1::vm::State;
use berth_proto::scheduler::v1::{GetVmResponse, Migration, Vm};
use berth_proto::types::v1::{Assignment, CellAssignment, Claim, Flavor};
use maud::{Markup, html};

use crate::action::Action;
use crate::frame::{Frame, Section, View, actions};
use crate::operations::{log, migrations, operations, time};
use crate::table::{Column, facts, number, table};
use crate::text::{
    Shown, Wrapped, bytes, count, encoded, grouped, host_path, joined, kib, mib, plain, short,
};
use crate::transfer::{Measured, transfer};
use crate::vms::state;
use crate::words::{self, badge};

/// What the view shows.
#[derive(Clone, Debug, Default)]
pub struct VmView {
    /// The VM and its claims.
    pub vm: GetVmResponse,
    /// What was done to it lately.
    pub operations: Vec<Operation>,
    /// Where it was moved.
    pub migrations: Vec<Migration>,
    /// How far the transfer of the open one is, if there is one.
    pub measured: Option<Measured>,
}

/// Returns whether a migration has not ended.
#[must_use]
pub fn is_open(migration: &Migration) -> bool {
    words::is_open(migration.state())
}

/// Returns the view.
#[must_use]
pub fn render(frame: &Frame, view: &VmView) -> String {
    let vm = view.vm.vm.clone().unwrap_or_default();
    let (open, ended): (Vec<_>, Vec<_>) = view.migrations.iter().partition(|m| is_open(m));
    let document = View {
        section: Section::Vms,
        title: format!("VM {}", short(&vm.name)),
        fixed: html! {},
        live: html! {
            (summary(&vm, &view.vm.lost))
            @if frame.may_change && vm.state() == State::Active {
                (actions(&[Action::Migrate(short(&vm.name).to_owned())]))
            }
            @if !open.is_empty() {
                section aria-labelledby="moving" {
                    h2 id="moving" { "Running migration" }
                    (migrations("Where it is being moved", &open, frame.may_change))
                    @if let Some(measured) = &view.measured { (transfer(measured)) }
                }
            }
            section aria-labelledby="claims" {
                h2 id="claims" { "Claims" }
                @if view.vm.claims.is_empty() { p { "It holds nothing." } }
                @for one in &view.vm.claims { (claim(one)) }
            }
            section aria-labelledby="history" {
                h2 id="history" { "Operations" }
                (done(&vm, &view.operations, frame.may_change))
                @if !ended.is_empty() { (migrations("Migrations that have ended", &ended, false)) }
            }
        },
    };
    frame.document(&document)
}

fn summary(vm: &Vm, lost: &str) -> Markup {
    let flavor = vm.spec.as_ref().and_then(|spec| spec.flavor.as_ref());
    html! {
        section aria-label="State" {
            (facts(&[
                ("State", state(vm)),
                ("Host", html! {
                    @if vm.host.is_empty() { "none" } @else {
                        a href=(host_path(&vm.host)) { (Shown(short(&vm.host))) }
                    }
                }),
                ("Flavor", html! { @if let Some(flavor) = flavor { (flavor_text(flavor)) } @else { "-" } }),
                ("Project", html! { (Shown(short(&vm.project))) }),
                ("Creator", html! { (Shown(&vm.creator)) }),
                ("Created", time(vm.create_time.as_ref())),
                ("UID", html! { code { (Shown(&vm.uid)) } }),
            ]))
            (written(vm))
            (problems(vm, lost))
        }
    }
}

/// Returns what operators wrote on a VM.
fn written(vm: &Vm) -> Markup {
    // Each in an element of its own: one that is long takes no other's place.
    let labels = vm.labels.iter();
    let labels: Vec<String> = labels
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let labels = html! {
        @if labels.is_empty() { "none" } @else {
            ul { @for label in &labels { li { (Wrapped(label)) } } }
        }
    };
    let description = match &*vm.description {
        "" => html! { "none" },
        text => html! { (Wrapped(text)) },
    };
    html! {
        @if vm.protected {
            p class="notice note" { "It is protected: it can neither be deleted nor rebuilt." }
        }
        @if !vm.labels.is_empty() || !vm.description.is_empty() {
            (facts(&[("Labels", labels), ("Description", description)]))
        }
    }
}

fn problems(vm: &Vm, lost: &str) -> Markup {
    let trouble = vm.guest_trouble.as_ref().map(|trouble| {
        let what = match trouble.absence() {
            Absence::Unspecified => "is not running",
            Absence::Stopped => "is stopped",
            Absence::Missing => "is not there",
            Absence::ShutDown => "has shut itself down",
        };
        html! { "The guest " (what) ", since " (time(trouble.since_time.as_ref())) "." }
    });
    html! {
        @if let Some(trouble) = trouble { p class="notice bad" { (trouble) } }
        @if let Some(error) = &vm.error {
            p class="notice bad" {
                code { (Shown(&error.reason)) } ": " (Wrapped(&error.message))
                @if let Some(hint) = &error.hint { " Hint: " (Wrapped(hint)) }
            }
        }
        @if !lost.is_empty() { p class="notice bad" { (Wrapped(lost)) } }
        @if !vm.remains_on.is_empty() {
            p class="notice note" { "Something of it remains on host "
                a href=(host_path(&vm.remains_on)) { (Shown(short(&vm.remains_on))) } "." }
        }
        @if !vm.restart_obstacle.is_empty() {
            p class="notice note" { "It is not restarted: " (Wrapped(&vm.restart_obstacle)) }
        }
    }
}

fn flavor_text(flavor: &Flavor) -> Markup {
    let specs = flavor.extra_specs.iter();
    let specs = joined(specs.map(|(key, value)| format!("{} = {}", plain(key), plain(value))));
    html! {
        (Shown(short(&flavor.name))) ": " (count(flavor.vcpus.into(), "vCPU")) ", " (mib(flavor.memory_mib)) ", "
        (flavor.disk_gib) " GiB of disk"
        @if !specs.is_empty() { " (" (Wrapped(&specs)) ")" }
    }
}

fn claim(claim: &Claim) -> Markup {
    let caption = format!("What it holds on host {}", plain(short(&claim.host)));
    let resources = claim.resources.iter();
    let resources = joined(resources.map(|(class, n)| format!("{} {}", grouped(*n), plain(class))));
    html! {
        article class="claim" {
            h3 { (badge(words::claim(claim.state()))) " on "
                a href=(host_path(&claim.host)) { (Shown(short(&claim.host))) } }
            p { "Claim " code { (Shown(short(&claim.name))) }
                @if !claim.migration.is_empty() { ", of migration " code { (Shown(short(&claim.migration))) } }
                ": " (Wrapped(&resources)) "." }
            @if let Some(assigned) = &claim.assignment { (assignment(&caption, assigned)) }
            @for erasure in &claim.erasures {
                p { "Namespace " (Shown(&erasure.namespace)) ": " (bytes(erasure.erased_bytes)) " erased"
                    @if !erasure.failure.is_empty() { "; it failed: " (Wrapped(&erasure.failure)) } "." }
            }
        }
    }
}

/// Returns what exactly is assigned.
pub(crate) fn assignment(caption: &str, assignment: &Assignment) -> Markup {
    let columns = [
        Column::Number("Guest node"),
        Column::Number("Host node"),
        Column::Text("vCPU → CPU"),
        Column::Text("Floating"),
        Column::Number("Memory"),
        Column::Number("Pages"),
    ];
    let rows: Vec<Markup> = assignment.cells.iter().map(cell_row).collect();
    let addresses = assignment.pci.iter().flat_map(|grant| &grant.addresses);
    let addresses = joined(addresses.map(|address| plain(address)));
    let pmem = assignment.pmem.iter();
    let pmem = joined(pmem.map(|d| format!("{} ({})", plain(&d.name), bytes(d.size_bytes))));
    html! {
        @if rows.is_empty() { p { "It has no NUMA node of its own: it floats over the shared CPUs." } } @else {
            (table(caption, &columns, &rows))
        }
        @if !assignment.emulator_cpus.is_empty() {
            p { "Emulator threads on CPUs " (Shown(&assignment.emulator_cpus)) "." }
        }
        @if !addresses.is_empty() { p { "PCI functions: " code { (Wrapped(&addresses)) } "." } }
        @if !pmem.is_empty() { p { "Persistent memory: " (Wrapped(&pmem)) "." } }
    }
}

fn cell_row(cell: &CellAssignment) -> Markup {
    let pins = joined(cell.pins.iter().map(|(vcpu, cpu)| format!("{vcpu}→{cpu}")));
    html! {
        tr {
            th scope="row" class="number" { (cell.guest_cell) }
            (number(cell.host_cell))
            td class="wide" {
                @if pins.is_empty() { "-" } @else { (Wrapped(&pins)) }
                @if !cell.idle_cpus.is_empty() { " (idle siblings: " (Shown(&cell.idle_cpus)) ")" }
            }
            td {
                @if cell.shared_vcpus == 0 { "-" } @else {
                    (count(cell.shared_vcpus.into(), "vCPU")) " over " (Shown(&cell.floating_cpus))
                }
            }
            (number(mib(cell.memory_mib)))
            td class="number" {
                @match cell.page_size_kib {
                    Some(size) => {
                        (grouped((cell.memory_mib << 10).checked_div(size).unwrap_or(0))) " × " (kib(size))
                    }
                    None => "-",
                }
            }
        }
    }
}

fn done(vm: &Vm, all: &[Operation], may_change: bool) -> Markup {
    html! {
        @if all.is_empty() { p { "No operation of it is remembered." } } @else {
            (operations("What was done to it, the latest first", all, may_change))
        }
        @for operation in all {
            @if !operation.log.is_empty() {
                details {
                    summary { "Steps of " code { (Shown(short(&operation.name))) } }
                    (log(operation))
                }
            }
        }
        p { a href=(format!("/vms/{}/history", encoded(short(&vm.name)))) { "All changes that the log still has" } }
        @if may_change && !vm.host.is_empty() {
            p { a href=(format!("/vms/{}/console", encoded(short(&vm.name)))) { "Its console" } }
        }
    }
}
