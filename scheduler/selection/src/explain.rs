//! The reason where no host can take a guest: counted by cause over all hosts, described for the few
//! that came nearest.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::constraint::{PreparedDemand, Violation};
use berth_domain::hint::Hint;
use berth_domain::host_view::HostView;
use berth_domain::name::HostName;
use berth_domain::numa::Assignment;
use berth_domain::refusal::{Code, HOSTS_MAX, Refusal};
use berth_domain::version::TOO_OLD;

use crate::hint::{self, Cluster, HostsAlone};
use crate::request::Request;

/// A host with the rule that it breaks.
#[derive(Clone, Debug)]
pub struct Refused<'a> {
    /// The host.
    pub view: &'a HostView,
    /// The rule.
    pub violation: Violation,
}

/// Returns what the guest would take of one host.
///
/// # Errors
///
/// The rule that the host breaks.
pub(crate) fn examine(
    request: &Request,
    applicant: &PreparedDemand<'_>,
    view: &HostView,
) -> Result<Assignment, Violation> {
    if request.excluded.contains(&view.host.name) {
        return Err(Violation::Excluded);
    }
    applicant.place(view, request.policy.cells)
}

/// Returns why no host was chosen for a request, and the change after which it succeeds.
///
/// `hosts` are those of the decision. It takes longer than a decision: every host is evaluated.
pub fn refusal<'a>(
    request: &Request,
    hosts: impl IntoIterator<Item = &'a Arc<HostView>>,
    cluster: &dyn Cluster,
) -> Refusal {
    let hosts: Vec<&Arc<HostView>> = hosts.into_iter().collect();
    match &request.requested {
        Some(name) => named(request, name, &hosts, cluster),
        None => by_all(request, &hosts, cluster),
    }
}

/// Returns the refusal by all hosts, where only they are known.
///
/// Where one of them could take the guest after all, the filters are wrong: then that is the
/// refusal.
pub fn nowhere<'a>(
    request: &Request,
    hosts: impl IntoIterator<Item = &'a Arc<HostView>>,
) -> Refusal {
    refusal(request, hosts, &HostsAlone)
}

/// Returns the refusal by the host that the user named.
fn named(
    request: &Request,
    name: &HostName,
    hosts: &[&Arc<HostView>],
    cluster: &dyn Cluster,
) -> Refusal {
    let Some(view) = hosts.iter().find(|view| view.host.name == *name) else {
        return unknown_host(name);
    };
    match examine(request, &PreparedDemand::new(&request.demand), view) {
        Ok(_) => passed_over(name),
        Err(violation) => {
            let refusal = violation.to_refusal(name);
            let refused = [Refused { view, violation }];
            let change = hint::best(request, hosts, &refused, cluster);
            match change.or_else(|| on_any_host(request, hosts, cluster)) {
                Some(change) => refusal.with_change(change),
                None => refusal,
            }
        }
    }
}

/// Returns the change after which the request succeeds if it names no host.
fn on_any_host(request: &Request, hosts: &[&Arc<HostView>], cluster: &dyn Cluster) -> Option<Hint> {
    let request = Request {
        requested: None,
        ..request.clone()
    };
    let refused = refused_by(&request, hosts).ok()?;
    let change = hint::best(&request, hosts, &refused, cluster)?;
    Some(Hint::AnyHostAnd(Box::new(change)))
}

/// Returns the refusal of a host that is not there.
pub(crate) fn unknown_host(host: &HostName) -> Refusal {
    let message = format!("host {host} is not part of this cluster");
    Refusal::new(Code::NotFound, "HOST_NOT_FOUND", message).with("host", host)
}

/// Returns the refusal by all hosts.
fn by_all(request: &Request, hosts: &[&Arc<HostView>], cluster: &dyn Cluster) -> Refusal {
    let refused = match refused_by(request, hosts) {
        Ok(refused) => refused,
        Err(able) => return passed_over(able),
    };
    let mut counts: BTreeMap<Cow<'_, str>, u32> = BTreeMap::new();
    for host in &refused {
        *counts.entry(host.violation.cause()).or_default() += 1;
    }
    let causes = counts.into_iter().map(|(cause, n)| (cause.into_owned(), n));
    let causes: BTreeMap<String, u32> = causes.collect();
    let (code, reason) = if is_gated(&refused) {
        (Code::FailedPrecondition, TOO_OLD)
    } else {
        (Code::ResourceExhausted, "NO_VALID_HOST")
    };
    let mut refusal = Refusal::new(code, reason, message(&refused, &causes));
    refusal.causes = causes;
    refusal.hosts = refused
        .iter()
        .take(HOSTS_MAX)
        .map(|r| r.violation.to_host_refusal(&r.view.host.name))
        .collect();
    match hint::best(request, hosts, &refused, cluster) {
        Some(change) => refusal.with_change(change),
        None => refusal,
    }
}

/// Returns every host with the rule that it breaks, the nearest first. Hosts that are alike are
/// evaluated once.
///
/// # Errors
///
/// A host that breaks none.
fn refused_by<'a>(
    request: &Request,
    hosts: &[&'a Arc<HostView>],
) -> Result<Vec<Refused<'a>>, &'a HostName> {
    let applicant = PreparedDemand::new(&request.demand);
    let mut refused: Vec<Refused<'_>> = Vec::with_capacity(hosts.len());
    // By likeness, where among the refused a host of it is.
    let mut known: BTreeMap<u64, usize> = BTreeMap::new();
    for &view in hosts {
        let is_own =
            request.excluded.contains(&view.host.name) || applicant.check_host(view).is_err();
        let alike = match is_own {
            true => None,
            false => known.get(&view.likeness()),
        };
        let violation = match alike {
            Some(&at) => refused[at].violation.clone(),
            None => match examine(request, &applicant, view) {
                Err(violation) => violation,
                Ok(_) => return Err(&view.host.name),
            },
        };
        if !is_own {
            known.entry(view.likeness()).or_insert(refused.len());
        }
        refused.push(Refused { view, violation });
    }
    refused.sort_by_cached_key(|refused| {
        let name: &'a HostName = &refused.view.host.name;
        (refused.violation.distance(), name)
    });
    Ok(refused)
}

fn passed_over(host: &HostName) -> Refusal {
    let message = format!("host {host} could take the guest, but was passed over");
    Refusal::new(Code::Internal, "HOST_PASSED_OVER", message)
        .with_hint("name the host, and report this: it is a fault of Berth")
        .with("host", host)
}

/// Returns whether nothing but the service version stands in the way anywhere: then that is the
/// reason for programs too.
fn is_gated(refused: &[Refused<'_>]) -> bool {
    let others = || {
        refused
            .iter()
            .filter(|r| r.violation != Violation::SameHost)
    };
    others().next().is_some()
        && others().all(|r| {
            matches!(
                r.violation,
                Violation::Version { .. } | Violation::Feature(_)
            )
        })
}

fn message(refused: &[Refused<'_>], causes: &BTreeMap<String, u32>) -> String {
    let Some(nearest) = refused.first() else {
        return "no host can take the guest: the cluster has no host, and gets one from the compute agent that \
                registers it"
            .to_owned();
    };
    let mut counts: Vec<_> = causes.iter().collect();
    counts.sort_by_key(|(cause, count)| (std::cmp::Reverse(**count), *cause));
    let counts: Vec<_> = counts
        .into_iter()
        .map(|(cause, count)| format!("{count} {}", phrase(cause)))
        .collect();
    let subject = match refused.len() {
        1 => "the only host cannot take the guest".to_owned(),
        hosts => format!("none of the {hosts} hosts can take the guest"),
    };
    format!(
        "{subject} ({}); nearest is host {}: {}",
        counts.join(", "),
        nearest.view.host.name,
        nearest.violation
    )
}

/// Returns a cause in words that stand behind a number of hosts.
fn phrase(cause: &str) -> String {
    let text = match cause {
        "SAME_HOST" => "where it runs already",
        "HOST_EXCLUDED" => "refused it before",
        "HOST_DOWN" => "down",
        "HOST_CORDONED" => "cordoned",
        "HOST_SHAPE_REFUSED" => "with a shape that their guests do not fit",
        "DRIVER_DIFFERS" => "with another driver",
        "SERVICE_VERSION_TOO_OLD" => "behind an agent that is too old",
        "DISKS_NOT_SHARED" => "without its disks",
        "TRAIT_MISSING" => "without a required trait",
        "TRAIT_FORBIDDEN" => "with a forbidden trait",
        "IMAGE_PROPERTIES" => "that are not the kind of machine that the image asks for",
        "CPU_FEATURES" => "whose CPUs lack features",
        "CPU_VENDOR" => "with CPUs of another vendor",
        "CPU_MODEL_UNKNOWN" => "whose hypervisors do not know the CPU model",
        "CPU_DIFFERS" => "with another CPU than the one passed through",
        "CPU_NOT_REPORTED" => "whose agents do not report a CPU",
        "AVAILABILITY_ZONE" => "outside of the availability zone",
        "AGGREGATE_METADATA" => "outside of the aggregates that the flavor asks for",
        "AFFINITY" => "without the other members of its server group",
        "ANTI_AFFINITY" => "with enough members of its server group",
        "HOST_FENCED" => "fenced",
        "HOST_NOT_REPORTED" => "whose guests are not reported since the cluster recovered",
        "VOLUME_ELSEWHERE" => "without its volumes",
        "HELD_BY_UNKNOWN_GUEST" => "where unknown guests hold what it needs",
        "CELLS" => "with too few NUMA nodes",
        "DEDICATED_CPUS" => "without enough dedicated CPUs in a NUMA node",
        "CPU_THREADS" => "without enough cores that are free as requested",
        "PCI_DEVICES" => "without enough PCI devices near enough",
        "SHARED_CPUS" => "without enough room on the shared CPUs of a NUMA node",
        "MEMORY" => "without enough memory in a NUMA node",
        "PMEM" => "without enough free pmem namespaces",
        "PAGES" => "without enough free pages in a NUMA node",
        "PAGE_SIZE" => "without pages of the size",
        "CELLS_COMPETE" => "where guest NUMA nodes compete for a NUMA node",
        _ => match cause.strip_prefix("RESOURCE_") {
            Some(class) => return format!("without enough {class}"),
            None => return format!("for {cause}"),
        },
    };
    text.to_owned()
}
