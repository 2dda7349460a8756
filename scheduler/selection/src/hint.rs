//! The one change that would help most where no host can take a guest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::constraint::{PreparedDemand, Violation};
use berth_domain::host::{Host, Liveness};
use berth_domain::host_view::HostView;
use berth_domain::name::HostName;
use berth_domain::numa::{FitRefusal, Resource, Strategy};
use berth_domain::pmem::PmemNumaPolicy;

use crate::explain::Refused;

/// Returns the change that would help most; `refused` begins with the host that came nearest.
///
/// Opening a host that would take the guest as it is comes first: that is one command. Then
/// making room where least is missing. If no host could take the guest even when empty, only
/// another flavor or other hosts help.
#[must_use]
pub(crate) fn best(applicant: &PreparedDemand<'_>, refused: &[Refused<'_>]) -> Option<String> {
    if refused.is_empty() {
        return Some("start a compute agent that registers its host".to_owned());
    }
    if let Some(host) = opened(applicant, refused, &Violation::Cordoned) {
        return Some(format!("uncordon host {host}: the guest fits there"));
    }
    if let Some(host) = opened(applicant, refused, &Violation::Down) {
        return Some(format!(
            "start the compute agent of host {host} again: the guest fits there"
        ));
    }
    let lacking = || refused.iter().filter(|r| r.violation.is_lack_of_capacity());
    if let Some(nearest) = lacking().next() {
        let mut known: BTreeMap<u64, bool> = BTreeMap::new();
        let mut fits_when_empty = |view: &HostView| {
            let known = known.entry(view.class);
            *known.or_insert_with(|| applicant.fits_when_empty(view))
        };
        return if let Some(host) = lacking().find(|r| fits_when_empty(r.view)) {
            Some(free_capacity(host))
        } else {
            Some(never(applicant, nearest))
        };
    }
    other_rule(&refused[0].violation)
}

/// Returns the first host that breaks only the rule `barrier`.
fn opened<'a>(
    applicant: &PreparedDemand<'_>,
    refused: &'a [Refused<'_>],
    barrier: &Violation,
) -> Option<&'a HostName> {
    // Hosts that are alike give one answer.
    let mut seen = BTreeSet::new();
    let fits = |view: &HostView| {
        let mut open = view.clone();
        open.set_host(Arc::new(Host {
            liveness: Liveness::Up,
            // A host that is down may be cordoned as well, and stays so.
            cordoned: view.host.cordoned && *barrier != Violation::Cordoned,
            ..(*view.host).clone()
        }));
        applicant.try_place(&open, Strategy::Spread).is_some()
    };
    let closed = refused.iter().filter(|r| r.violation == *barrier);
    closed
        .filter(|r| seen.insert(r.view.likeness()))
        .find(|r| fits(r.view))
        .map(|r| &r.view.host.name)
}

fn free_capacity(refused: &Refused<'_>) -> String {
    let host = &refused.view.host.name;
    let cell = refused.violation.fit().and_then(FitRefusal::host_cell);
    let place = cell.map_or_else(String::new, |cell| format!("NUMA node {cell} of "));
    let short = refused
        .violation
        .missing()
        .map_or_else(String::new, |missing| {
            let short = missing.requested.saturating_sub(missing.available);
            format!(" ({}: {short} short)", missing.resource)
        });
    format!("make room on {place}host {host}: move or delete guests there{short}")
}

/// Returns what helps where the guest would not fit even on an empty host.
fn never(applicant: &PreparedDemand<'_>, nearest: &Refused<'_>) -> String {
    let violation = applicant
        .place(&nearest.view.emptied(), Strategy::Spread)
        .err();
    let change = match violation {
        Some(Violation::Fit(refusal)) => cell_change(&refusal),
        Some(Violation::Capacity { class, .. }) => {
            format!("take a smaller flavor or hosts with more {class}")
        }
        _ => "take another flavor".to_owned(),
    };
    format!("no host could take the guest even when empty: {change}")
}

fn cell_change(refusal: &FitRefusal) -> String {
    match refusal {
        FitRefusal::TooFewCells { available, .. } => {
            format!("use fewer guest NUMA nodes (hw:numa_nodes), a host has {available}")
        }
        FitRefusal::Cell { shortfall } => {
            let worst = shortfall.worst();
            match worst.resource {
                Resource::PageSize(_) | Resource::PageMultiple(_) => format!(
                    "reserve {} on the hosts, or take another hw:mem_page_size",
                    worst.resource
                ),
                Resource::Pages(_) => format!(
                    "reserve more {} per NUMA node, or use more guest NUMA nodes (hw:numa_nodes)",
                    worst.resource
                ),
                Resource::Siblings | Resource::SiblingCpus => {
                    "take another hw:cpu_thread_policy, or hosts with free sibling threads"
                        .to_owned()
                }
                Resource::Isolation | Resource::FreeCores => {
                    "take another hw:cpu_thread_policy, or hosts with wholly free cores".to_owned()
                }
                Resource::DedicatedCpus
                | Resource::SharedCpus
                | Resource::SharedVcpus
                | Resource::Memory => format!(
                    "a NUMA node has at most {} of {} {}; use more guest NUMA nodes (hw:numa_nodes) or a \
                     smaller flavor",
                    worst.available, worst.requested, worst.resource
                ),
            }
        }
        FitRefusal::Compete { host_cells, .. } => {
            let plural = if host_cells.len() == 1 { "" } else { "s" };
            format!(
                "only {} NUMA node{plural} can hold guest NUMA nodes of that size; make them smaller",
                host_cells.len()
            )
        }
        FitRefusal::Pci(shortfall) => format!(
            "take hosts with more devices {}, or another hw:pci_numa_affinity_policy",
            shortfall.what
        ),
        FitRefusal::Pmem(shortfall) => match shortfall.policy {
            PmemNumaPolicy::Preferred => {
                "take hosts with more such pmem namespaces, or wait until some are erased"
                    .to_owned()
            }
            PmemNumaPolicy::Required => {
                "take hosts with more such pmem namespaces on one NUMA node, or \
                                         hw:pmem_numa_policy=preferred"
                    .to_owned()
            }
        },
        FitRefusal::GaveUp
        | FitRefusal::PciTaken { .. }
        | FitRefusal::PmemTaken { .. }
        | FitRefusal::Taken { .. }
        | FitRefusal::Mismatch { .. } => "take another flavor".to_owned(),
    }
}

fn other_rule(violation: &Violation) -> Option<String> {
    match violation {
        Violation::TraitMissing(quality) => {
            Some(format!("give a host trait {quality}, or do not require it"))
        }
        Violation::TraitForbidden(quality) => Some(format!("do not forbid trait {quality}")),
        Violation::CpuKinds { .. } => Some(
            "name a host with guests of the same kind, or with cpu_dedicated_set and \
             cpu_shared_set instead of vcpu_pin_set"
                .to_owned(),
        ),
        Violation::Version { .. } | Violation::VersionHere { .. } | Violation::Feature(_) => {
            Some("upgrade the compute agents that are too old".to_owned())
        }
        Violation::DisksNotShared { .. } => Some(
            "keep guest disks on storage that both hosts share (the same storage_id), or upgrade the \
             compute agents so that they copy them, which they do from no host that is dead"
                .to_owned(),
        ),
        Violation::Driver { .. } => Some("name a host with the same hypervisor driver".to_owned()),
        Violation::Cordoned => Some("uncordon a host, or make room for the guest".to_owned()),
        Violation::ShapeRefused => Some(
            "restore the CPU sets and pages of the host, or move away the guests that do not fit"
                .to_owned(),
        ),
        Violation::Down => Some("start the compute agents of hosts that are down".to_owned()),
        Violation::SameHost => Some("name another host, or add one".to_owned()),
        Violation::Excluded => Some("look at why the agents refused the guest".to_owned()),
        Violation::Image { property, .. } => Some(format!(
            "take hosts of that kind with agents that say so, or correct {property} of the image"
        )),
        Violation::Zone { requested, .. } => Some(format!(
            "make room in availability zone {requested}, or do not ask for it"
        )),
        Violation::Aggregate { key, .. } => Some(format!(
            "add a host to an aggregate with that {key}, or do not ask for it"
        )),
        Violation::Affinity { .. } => Some(
            "make room where the server group is, or boot the guest outside of the group"
                .to_owned(),
        ),
        Violation::AntiAffinity { .. } => {
            Some("add a host, or boot the guest outside of the server group".to_owned())
        }
        Violation::HeldByUnknown { guests, .. } => Some(format!(
            "look at guest {} on that host: no claim is for it, and what it holds is free once it \
             is stopped",
            guests.join(", ")
        )),
        Violation::Fenced => Some(
            "start the fenced host and its compute agent again, it looks for guests that it lost"
                .to_owned(),
        ),
        Violation::VolumeElsewhere { hosts, .. } => {
            let host = hosts.first()?;
            Some(format!("make room on host {host}: volumes do not move"))
        }
        Violation::NoGuests => Some(
            "take another host, or give that one a hypervisor: driver in its agent's configuration"
                .to_owned(),
        ),
        Violation::Capacity { .. } | Violation::Fit(_) | Violation::Counted => None,
    }
}
