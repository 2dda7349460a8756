//! The devices of a host: PCI functions below their physical ones, namespaces of persistent memory, regions
//! and volumes.

use std::collections::BTreeMap;

use berth_proto::host::v1::HostReport;
use berth_proto::types::v1::{Claim, HostTopology, PciDevice, PciKind, PmemNamespace};
use berth_proto::volume::v1::{Replica, ReplicaPhase, Volume};
use maud::{Markup, html};

use super::Letters;
use crate::table::{Column, number, table};
use crate::text::{Shown, Wrapped, bytes, joined, plain, short, vm_path};
use crate::words::{Tone, badge};

fn node(cell: Option<u32>) -> Markup {
    html! { @if let Some(cell) = cell { (cell) } @else { "unknown" } }
}

fn owner(claim: Option<&&Claim>, letters: &Letters) -> Markup {
    html! {
        @match claim {
            Some(claim) => {
                b class=(letters.class(&claim.name)) { (letters.letter(&claim.name)) } " "
                a href=(vm_path(&claim.vm)) { (Shown(short(&claim.vm))) }
            }
            None => span class="aside" { "free" },
        }
    }
}

/// Returns the tree of PCI functions.
pub(super) fn pci(topology: &HostTopology, claims: &[Claim], letters: &Letters) -> Markup {
    let mut owners: BTreeMap<&str, &Claim> = BTreeMap::new();
    for claim in claims {
        let grants = claim
            .assignment
            .iter()
            .flat_map(|assignment| &assignment.pci);
        owners.extend(
            grants
                .flat_map(|grant| &grant.addresses)
                .map(|a| (a.as_str(), claim)),
        );
    }
    let devices = &topology.pci_devices;
    let is_listed = |address: &str| devices.iter().any(|device| device.address == address);
    let mut children: BTreeMap<&str, Vec<&PciDevice>> = BTreeMap::new();
    let mut roots: Vec<&PciDevice> = Vec::new();
    for device in devices {
        // One that names itself would be below nothing.
        match is_listed(&device.parent) && device.parent != device.address {
            true => children.entry(&device.parent).or_default().push(device),
            false => roots.push(device),
        }
    }
    let item = |device: &PciDevice| function(device, owners.get(device.address.as_str()), letters);
    html! {
        section aria-labelledby="pci" {
            h2 id="pci" { "PCI functions" }
            @if roots.is_empty() { p { "None is given to guests." } } @else {
                ul class="tree" {
                    @for root in roots {
                        li {
                            (item(root))
                            @if let Some(children) = children.get(root.address.as_str()) {
                                ul { @for child in children { li { (item(child)) } } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn function(device: &PciDevice, claim: Option<&&Claim>, letters: &Letters) -> Markup {
    let kind = match device.kind() {
        PciKind::Unspecified | PciKind::Pci => "device",
        PciKind::Virtual => "virtual function",
        PciKind::Physical => "physical function",
    };
    let tags = device.tags.iter();
    let tags = joined(tags.map(|(key, value)| format!("{}={}", plain(key), plain(value))));
    html! {
        code { (Shown(&device.address)) } " " (kind) " " (Shown(&device.vendor_id)) ":" (Shown(&device.product_id))
        ", node " (node(device.cell)) ": " (owner(claim, letters))
        @if !tags.is_empty() { " " span class="aside" { (Wrapped(&tags)) } }
    }
}

/// Returns the namespaces of persistent memory.
pub(super) fn pmem(topology: &HostTopology, claims: &[Claim], letters: &Letters) -> Markup {
    let has = |claim: &&Claim, name: &str| {
        let devices = claim
            .assignment
            .iter()
            .flat_map(|assignment| &assignment.pmem);
        devices.into_iter().any(|device| device.name == name)
    };
    let row = |namespace: &PmemNamespace| {
        let claim = claims.iter().find(|claim| has(claim, &namespace.name));
        html! {
            tr {
                th scope="row" { (Shown(&namespace.name)) }
                td { (Shown(&namespace.resource_class)) }
                (number(bytes(namespace.size_bytes)))
                td { (node(namespace.cell)) }
                td { (Shown(&namespace.region)) }
                td { (owner(claim.as_ref(), letters)) }
                td class="wide" { (Wrapped(&namespace.trouble)) }
            }
        }
    };
    let rows: Vec<Markup> = topology.pmem_namespaces.iter().map(row).collect();
    let columns = [
        Column::Text("Namespace"),
        Column::Text("Resource class"),
        Column::Number("Size"),
        Column::Text("NUMA node"),
        Column::Text("Region"),
        Column::Text("Owner"),
        Column::Text("Trouble"),
    ];
    html! {
        section aria-labelledby="pmem" {
            h2 id="pmem" { "Persistent memory" }
            @if rows.is_empty() { p { "There is no namespace for guests." } } @else {
                (table("Namespaces of persistent memory", &columns, &rows))
            }
        }
    }
}

/// Returns the regions and the volumes on them.
pub(super) fn volumes(report: &HostReport, volumes: &[Volume]) -> Markup {
    let mut rows: Vec<Markup> = Vec::new();
    for volume in volumes {
        rows.extend(
            volume
                .replicas
                .iter()
                .map(|replica| volume_row(volume, replica)),
        );
    }
    let columns = [
        Column::Text("Volume"),
        Column::Text("State"),
        Column::Text("Region"),
        Column::Number("Size"),
        Column::Text("Attached to"),
        Column::Text("Failure"),
    ];
    html! {
        section aria-labelledby="volumes" {
            h2 id="volumes" { "Volumes" }
            @for region in &report.regions {
                p { "Region " (Shown(&region.name)) ": " (bytes(region.capacity_bytes)) ", node " (node(region.cell))
                    @if !region.trouble.is_empty() { ": " (Wrapped(&region.trouble)) } }
            }
            @if rows.is_empty() { p { "There is no volume." } } @else { (table("Volumes of this host", &columns, &rows)) }
        }
    }
}

fn volume_row(volume: &Volume, replica: &Replica) -> Markup {
    let phase = match replica.phase() {
        ReplicaPhase::Unspecified => ("UNKNOWN", Tone::Note),
        ReplicaPhase::Creating => ("CREATING", Tone::Note),
        ReplicaPhase::Ready => ("READY", Tone::Good),
        ReplicaPhase::Deleting => ("DELETING", Tone::Note),
    };
    html! {
        tr {
            th scope="row" { (Shown(&volume.display_name)) " " code { (Shown(short(&volume.name))) } }
            td { (badge(phase)) }
            td { (Shown(&replica.region)) " on " (Shown(short(&replica.host))) }
            (number(bytes(replica.size_bytes)))
            td {
                @if volume.attached_vm.is_empty() { "-" } @else {
                    a href=(vm_path(&volume.attached_vm)) { (Shown(short(&volume.attached_vm))) }
                }
            }
            td class="wide" { (Wrapped(&replica.failure)) }
        }
    }
}
