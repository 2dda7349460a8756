//! A record in a few words: what it is about, and how it is.

use berth_domain::assignment::{Assignment, CellAssignment};
use berth_domain::claim::Owner;
use berth_domain::cpu_set::CpuSet;
use berth_domain::event::Record;

use crate::{audit, operation, records};

/// Returns where a record is, or between which hosts; empty where its name says it.
pub(super) fn place(record: &Record) -> String {
    match record {
        Record::Claim(claim) => format!("{} on {}", claim.vm, claim.host),
        Record::Migration(migration) => {
            let to = migration.destination.as_ref();
            let to = to.map_or(String::new(), |host| format!(" to {host}"));
            format!("{} from {}{to}", migration.vm, migration.source)
        }
        Record::Operation(operation) => operation.kind.plan().title.to_owned(),
        Record::Vm(_) | Record::Host(_) | Record::Audit(_) => String::new(),
    }
}

/// Returns the state of a record, with what is the state's.
pub(super) fn state(record: &Record) -> String {
    match record {
        Record::Vm(vm) => {
            let host = vm.host.as_ref();
            let host = host.map_or(String::new(), |host| format!(" on {host}"));
            let error = vm.error.as_ref();
            let error = error.map_or(String::new(), |why| format!(" ({})", why.reason));
            format!("{}{host}{error}", vm.state.as_str())
        }
        Record::Migration(migration) => {
            let error = migration.error.as_ref();
            let error = error.map_or(String::new(), |why| format!(" ({})", why.reason));
            format!("{}{error}", migration.state.as_str())
        }
        Record::Host(host) => records::host_state(host).to_owned(),
        Record::Claim(claim) => {
            let owner = match &claim.owner {
                Owner::Vm => "",
                Owner::Migration(_) => " for a migration",
            };
            format!("{}{owner}", claim.state.as_str())
        }
        Record::Operation(operation) => operation::state(operation),
        Record::Audit(entry) => audit::line(entry),
    }
}

/// Returns what a new record has besides its state: the exact CPUs, pages and devices of a claim.
pub(super) fn details(record: &Record) -> Vec<String> {
    match record {
        Record::Claim(claim) => assignment(&claim.assignment),
        Record::Vm(_)
        | Record::Migration(_)
        | Record::Host(_)
        | Record::Operation(_)
        | Record::Audit(_) => Vec::new(),
    }
}

fn assignment(assignment: &Assignment) -> Vec<String> {
    let mut lines: Vec<String> = assignment.cells.iter().map(cell).collect();
    if !assignment.emulator.is_empty() {
        lines.push(format!("CPUs {} for the emulator", assignment.emulator));
    }
    let functions = assignment.pci.iter().flatten();
    let functions: Vec<String> = functions.map(ToString::to_string).collect();
    if !functions.is_empty() {
        lines.push(format!("PCI functions {}", functions.join(", ")));
    }
    let namespaces = assignment.pmem.iter();
    let namespaces: Vec<String> = namespaces.map(|device| device.name.to_string()).collect();
    if !namespaces.is_empty() {
        lines.push(format!("namespaces {}", namespaces.join(", ")));
    }
    lines
}

fn cell(cell: &CellAssignment) -> String {
    let CellAssignment {
        guest_cell,
        host_cell,
        pins,
        idle,
        shared_vcpus,
        floating,
        memory_mib,
        page_size_kib,
    } = cell;
    let mut parts = Vec::new();
    let pinned: CpuSet = pins.values().copied().collect();
    if !pinned.is_empty() {
        parts.push(format!("CPUs {pinned}"));
    }
    if !idle.is_empty() {
        parts.push(format!("CPUs {idle} idle"));
    }
    if *shared_vcpus > 0 {
        parts.push(format!("{shared_vcpus} vCPUs on shared CPUs {floating}"));
    }
    let pages = page_size_kib.map_or(String::new(), |size| format!(" in pages of {size} KiB"));
    parts.push(format!("{memory_mib} MiB{pages}"));
    let parts = parts.join(", ");
    format!("guest node {guest_cell} on NUMA node {host_cell}: {parts}")
}
