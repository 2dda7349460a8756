//! Whether the failure of each host, zone or aggregate would be survived.
//!
//! Pure. The plan of a host that holds nothing is empty, and it is proven. A host that is dead
//! already is planned for like the others: that is where its guests would start now.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::name::{HostName, VmName};
use berth_domain::refusal::{Code, Refusal};
use berth_selection::failover::bound::explain;
use berth_selection::failover::{Bound, Budget, Domain, Plan, Verdict, evaluate};
use berth_state::State;

use super::fleet::{Purpose, fleet_of};

/// The failure domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// One host.
    Host,
    /// The hosts of one availability zone.
    Zone,
    /// The hosts of one aggregate.
    Aggregate,
}

impl Failing {
    fn noun(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Zone => "availability_zone",
            Self::Aggregate => "aggregate",
        }
    }
}

/// The verdict on one failure domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainVerdict {
    /// What fails.
    pub domain: Domain,
    /// Whether it would be survived.
    pub verdict: Verdict,
    /// Why no other host fits a guest, host by host, where a single guest is refused.
    pub alone: Option<Refusal>,
}

/// Verifies the failure of all domains, or of the named ones.
///
/// # Errors
///
/// A name is unknown.
pub fn verify(
    state: &State,
    failing: Failing,
    names: &BTreeSet<String>,
    budget: Budget,
) -> Result<Vec<DomainVerdict>, Refusal> {
    let domains = domains(state, failing, names)?;
    let mut fleet = fleet_of(state, Purpose::Failover)?;
    let verdicts = domains.into_iter().map(|domain| {
        let verdict = evaluate(&mut fleet, &domain, budget);
        let alone = match verdict.bound() {
            Some(Bound::Alone { vm, .. }) => explain(&mut fleet, &domain, vm),
            Some(_) | None => None,
        };
        DomainVerdict {
            domain,
            verdict,
            alone,
        }
    });
    Ok(verdicts.collect())
}

/// How many hosts there are by the verdict on their failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Their guests would all be started elsewhere.
    pub proven: u64,
    /// Not all of them could.
    pub refuted: u64,
    /// Neither was found within the budget.
    pub unknown: u64,
}

/// Counts the verdicts on the failure of each single host; nothing if `is_cancelled` before the end, which
/// is called for each host.
///
/// # Errors
///
/// The hosts and guests of the state cannot be planned with.
pub fn survey(
    state: &State,
    budget: Budget,
    mut is_cancelled: impl FnMut() -> bool,
) -> Result<Option<Survey>, Refusal> {
    let mut fleet = fleet_of(state, Purpose::Failover)?;
    let mut survey = Survey::default();
    for host in state.hosts().keys() {
        if is_cancelled() {
            return Ok(None);
        }
        match evaluate(&mut fleet, &Domain::host(host), budget) {
            Verdict::Proven(_) => survey.proven += 1,
            Verdict::Refuted(_) => survey.refuted += 1,
            Verdict::Unknown { .. } => survey.unknown += 1,
        }
    }
    Ok(Some(survey))
}

/// Returns the plan for the guests of one host, if its failure is proven to be survived.
///
/// # Errors
///
/// The host is unknown.
pub fn plan_of_host(
    state: &State,
    host: &HostName,
    budget: Budget,
) -> Result<Option<Plan>, Refusal> {
    if state.host(host).is_none() {
        return Err(Refusal::not_found("host", host));
    }
    let mut fleet = fleet_of(state, Purpose::Failover)?;
    Ok(match evaluate(&mut fleet, &Domain::host(host), budget) {
        Verdict::Proven(plan) => Some(plan),
        Verdict::Refuted(_) | Verdict::Unknown { .. } => None,
    })
}

fn domains(
    state: &State,
    failing: Failing,
    names: &BTreeSet<String>,
) -> Result<Vec<Domain>, Refusal> {
    let mut all: BTreeMap<String, BTreeSet<HostName>> = BTreeMap::new();
    match failing {
        Failing::Host => {
            let hosts = state.hosts().keys();
            all.extend(hosts.map(|host| (host.to_string(), BTreeSet::from([host.clone()]))));
        }
        Failing::Zone => {
            for aggregate in state.aggregates().values() {
                if let Some(zone) = aggregate.zone() {
                    let hosts = aggregate.hosts.iter().cloned();
                    all.entry(zone.to_string()).or_default().extend(hosts);
                }
            }
        }
        Failing::Aggregate => {
            let aggregates = state.aggregates().values();
            all.extend(aggregates.map(|a| (a.name.to_string(), a.hosts.clone())));
        }
    }
    if let Some(unknown) = names.iter().find(|name| !all.contains_key(*name)) {
        let noun = failing.noun();
        return Err(Refusal::not_found(noun, unknown));
    }
    all.retain(|name, hosts| !hosts.is_empty() && (names.is_empty() || names.contains(name)));
    let domains = all.into_iter().map(|(name, hosts)| Domain { name, hosts });
    Ok(domains.collect())
}

/// Returns why a verdict is not "proven".
#[must_use]
pub fn reason(verdict: &DomainVerdict) -> Option<Refusal> {
    let name = &verdict.domain.name;
    match &verdict.verdict {
        Verdict::Proven(_) => None,
        Verdict::Refuted(bound) => {
            let refusal = Refusal::new(
                Code::ResourceExhausted,
                "FAILOVER_REFUTED",
                format!("if {name} fails, {bound}"),
            );
            let alone = verdict.alone.clone();
            let hint = alone.as_ref().and_then(|alone| alone.hint.clone());
            let refusal = refusal.with_hint(hint.unwrap_or_else(|| bound.help()));
            let refusal = refusal.with("domain", name);
            Some(match alone {
                None => refusal,
                Some(alone) => Refusal {
                    causes: alone.causes,
                    hosts: alone.hosts,
                    ..refusal
                },
            })
        }
        Verdict::Unknown { tried, stuck } => Some(undecided(name, *tried, stuck)),
    }
}

fn undecided(name: &str, tried: u64, stuck: &VmName) -> Refusal {
    let message = format!(
        "if {name} fails, no host was found for vm {stuck} in {tried} placements, and no bound \
         proves that there is none"
    );
    Refusal::new(Code::ResourceExhausted, "FAILOVER_UNKNOWN", message)
        .with("domain", name)
        .with("vm", stuck)
        .with_hint("search longer with a greater --budget, or free capacity on the other hosts")
}
