//! Changes of one host: it is opened, gets traits or bridges, or there is one more like it.
//!
//! Invariant: each host is changed alone; a step that would change nothing is not named.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_domain::aggregate::HostAggregates;
use berth_domain::claim::Claim;
use berth_domain::constraint::{Demand, Violation};
use berth_domain::hint::{Hint, HostShape, NeededBridge, OpenStep};
use berth_domain::host::{Host, Liveness};
use berth_domain::host_view::HostView;
use berth_domain::name::{HostName, PmemName};
use berth_domain::network::{BridgeMapping, BridgeType, HostNetwork};
use berth_domain::resource::Trait;
use berth_domain::version::ServiceVersion;

use super::{Search, needed};
use crate::explain::Refused;

/// How many hosts are opened to see whether the guest fits, those that are alike counted once.
const OPENED_MAX: usize = 32;
/// How many hosts with namespaces that are being erased are looked at.
const ERASING_MAX: usize = 8;
/// How many shapes of hosts are tried for one more host.
const SHAPES_MAX: usize = 16;

impl Search<'_> {
    /// Tries hosts without the claims whose namespaces are being erased.
    pub(super) fn wait_for_erasure(&mut self) -> Option<Hint> {
        if self.request.demand.pmem.requests.is_empty() {
            return None;
        }
        let refused = self.refused;
        for host in refused.iter().take(ERASING_MAX) {
            let view = host.view;
            let claims = self.cluster.erasing(&view.host.name);
            if claims.is_empty() {
                continue;
            }
            let mut erased = HostView::clone(view);
            let released: Vec<&Claim> = claims.iter().map(|claim| &**claim).collect();
            erased.release_all(&released);
            if !self.spend() {
                return None;
            }
            let placed = self.applicant.try_place(&erased, self.request.policy.cells);
            let Some(assignment) = placed else { continue };
            let given: BTreeSet<&PmemName> = assignment.pmem.iter().map(|d| &d.name).collect();
            let waits = claims.iter().flat_map(|claim| claim.erasures.keys());
            let namespaces: Vec<PmemName> = waits.filter(|n| given.contains(n)).cloned().collect();
            if !namespaces.is_empty() && self.is_decided(erased, &self.request.demand) {
                let host = view.host.name.clone();
                return Some(Hint::WaitForErasure { host, namespaces });
            }
        }
        None
    }

    /// Tries hosts that are closed, opened by at most so many steps.
    pub(super) fn open_host(&mut self, steps_max: usize) -> Option<Hint> {
        let refused = self.refused;
        let closed = refused.iter().filter(|host| is_closed(&host.violation));
        let mut seen = BTreeSet::new();
        let mut all: Vec<(Vec<OpenStep>, &Refused<'_>)> = closed
            .filter(|host| seen.insert(host.view.likeness()))
            .map(|host| (steps(host), host))
            .filter(|(steps, _)| !steps.is_empty() && steps.len() <= steps_max)
            .take(OPENED_MAX)
            .collect();
        all.sort_by_key(|(steps, _)| steps.len());
        for (steps, host) in all {
            let open = opened(host.view, &steps);
            if self.fits(&open) && self.is_decided(open, &self.request.demand) {
                let host = host.view.host.name.clone();
                return Some(Hint::OpenHost { host, steps });
            }
        }
        None
    }

    /// Tries an upgrade of the agent of the host that the guest leaves, of one that it could go to,
    /// and of both.
    pub(super) fn upgrade_agents(&mut self) -> Option<Hint> {
        let refused = self.refused;
        let is_old = |host: &&Refused<'_>| {
            matches!(
                host.violation,
                Violation::Version { .. } | Violation::VersionHere { .. } | Violation::Feature(_)
            )
        };
        let mut seen = BTreeSet::new();
        let old = refused.iter().filter(is_old);
        let old: Vec<_> = old
            .filter(|host| seen.insert(host.view.likeness()))
            .collect();
        for (is_source, is_here) in [(true, false), (false, true), (true, true)] {
            for refused in &old {
                if !self.spend() {
                    return None;
                }
                if let Some(agents) = self.fits_upgraded(refused.view, is_source, is_here) {
                    let host = refused.view.host.name.clone();
                    return Some(Hint::UpgradeAgents { agents, host });
                }
            }
        }
        None
    }

    /// Returns the hosts of the upgraded agents, if the guest fits then.
    fn fits_upgraded(
        &self,
        view: &HostView,
        is_source: bool,
        is_here: bool,
    ) -> Option<Vec<HostName>> {
        let current = ServiceVersion::CURRENT;
        let mut demand = self.request.demand.clone();
        let mut agents = Vec::new();
        if is_source {
            let leaving = demand.leaving.as_mut()?;
            leaving.version = leaving.version.max(current);
            agents.push(leaving.host.clone());
        }
        let mut new = view.clone();
        if is_here {
            let mut host = Host::clone(&view.host);
            host.report.service_version = host.report.service_version.max(current);
            agents.push(host.name.clone());
            new.set_host(Arc::new(host));
        }
        self.is_decided(new, &demand).then_some(agents)
    }

    /// Tries hosts with the traits that they lack. The standard ones state what a machine is, and
    /// cannot be given to it.
    pub(super) fn add_traits(&mut self) -> Option<Hint> {
        let refused = self.refused;
        let lacking = |host: &&Refused<'_>| matches!(host.violation, Violation::TraitMissing(_));
        let mut seen = BTreeSet::new();
        let lacking = refused.iter().filter(lacking);
        for host in lacking.filter(|host| seen.insert(host.view.likeness())) {
            let missing = self.request.demand.required.difference(&host.view.traits);
            let traits: Vec<Trait> = missing.cloned().collect();
            if !traits.iter().all(|t| t.as_str().starts_with("CUSTOM_")) {
                continue;
            }
            let mut with = HostView::clone(host.view);
            Arc::make_mut(&mut with.traits).extend(traits.iter().cloned());
            if self.fits(&with) && self.is_decided(with, &self.request.demand) {
                let host = host.view.host.name.clone();
                return Some(Hint::AddTraits { host, traits });
            }
        }
        None
    }

    /// Tries hosts with bridges to the networks that they do not reach, or not as it takes.
    pub(super) fn add_bridges(&mut self) -> Option<Hint> {
        let refused = self.refused;
        let lacking = |host: &&Refused<'_>| matches!(host.violation, Violation::Network(_));
        let mut seen = BTreeSet::new();
        let lacking = refused.iter().filter(lacking);
        for host in lacking.filter(|host| seen.insert(host.view.likeness())) {
            let bridges = needed::bridges(&self.request.demand, host.view);
            let with = with_bridges(host.view, &bridges);
            if self.fits(&with) && self.is_decided(with, &self.request.demand) {
                let host = host.view.host.name.clone();
                return Some(Hint::AddBridges { host, bridges });
            }
        }
        None
    }

    /// Tries one more host of the shape of one that is there.
    pub(super) fn add_host(&mut self) -> Option<Hint> {
        if self.request.requested.is_some() {
            return None;
        }
        let refused = self.refused;
        let mut seen = BTreeSet::new();
        let shapes = refused.iter().filter(|host| seen.insert(host.view.class()));
        for host in shapes.take(SHAPES_MAX) {
            let new = one_more(host.view)?;
            if self.fits(&new) && self.is_decided(new, &self.request.demand) {
                let like = host.view.host.name.clone();
                return Some(Hint::AddHost { like });
            }
        }
        None
    }

    /// Tries a host of the least shape.
    pub(super) fn add_shape(&mut self) -> Option<Hint> {
        let refused = self.refused.first()?;
        if self.request.requested.is_some() {
            return None;
        }
        let shape = needed::shape(&self.request.demand)?;
        let new = of_shape(refused.view, &shape, &self.request.demand)?;
        let fits = self.fits(&new) && self.is_decided(new, &self.request.demand);
        fits.then(|| Hint::AddShape(Box::new(shape)))
    }
}

/// Returns a host with these bridges in the place of those that it has to the same physical networks.
fn with_bridges(view: &HostView, bridges: &[NeededBridge]) -> HostView {
    let mut host = Host::clone(&view.host);
    let networks = &mut host.report.networks;
    for needed in bridges {
        networks.retain(|one| one.mapping.physical_network != needed.physical_network);
        networks.push(HostNetwork {
            mapping: BridgeMapping {
                physical_network: needed.physical_network.clone(),
                bridge: String::new(),
                bridge_type: BridgeType::Linux,
            },
            can_tag: needed.tags,
            mtu: needed.mtu.unwrap_or_default(),
        });
    }
    let mut with = view.clone();
    with.set_host(Arc::new(host));
    with
}

/// Returns a host of a shape, with the traits, the zone and the metadata that it names, and for the
/// rest as one that is there.
fn of_shape(view: &HostView, shape: &HostShape, demand: &Demand) -> Option<HostView> {
    let mut host = Host::clone(&view.host);
    if let Some(leaving) = &demand.leaving {
        host.report.driver.clone_from(&leaving.driver);
        host.report.storage_id.clone_from(&leaving.storage_id);
    }
    host.report.topology = Arc::new(shape.topology()?);
    host.report.memory_reserved_mib = 0;
    host.report.service_version = ServiceVersion::CURRENT;
    host.report.traits = shape.traits.iter().cloned().collect();
    host.report.regions = Vec::new();
    let base = HostView::under(Arc::new(host), view.rule, []);
    let mut new = one_more(&base)?;
    let metadata = shape.metadata.iter();
    let metadata = metadata.map(|(key, value)| (key.clone(), BTreeSet::from([value.clone()])));
    new.set_aggregates(Arc::new(HostAggregates {
        zone: shape.zone.clone(),
        metadata: metadata.collect(),
    }));
    Some(new)
}

/// Returns whether a host could be opened by a command or by its agent.
fn is_closed(violation: &Violation) -> bool {
    match violation {
        Violation::Cordoned
        | Violation::Down
        | Violation::ShapeRefused
        | Violation::Fenced
        | Violation::Unreported
        | Violation::HeldByUnknown { .. } => true,
        Violation::Version { .. }
        | Violation::VersionHere { .. }
        | Violation::Feature(_)
        | Violation::SameHost
        | Violation::Excluded
        | Violation::Driver { .. }
        | Violation::DisksNotShared { .. }
        | Violation::TraitMissing(_)
        | Violation::TraitForbidden(_)
        | Violation::CpuKinds { .. }
        | Violation::Image { .. }
        | Violation::Cpu(_)
        | Violation::Network(_)
        | Violation::Zone { .. }
        | Violation::Aggregate { .. }
        | Violation::Affinity { .. }
        | Violation::AntiAffinity { .. }
        | Violation::Capacity { .. }
        | Violation::Fit(_)
        | Violation::Counted
        | Violation::CpuNotGiven
        | Violation::VolumeElsewhere { .. }
        | Violation::NoGuests => false,
    }
}

/// Returns what has to be done to open a host.
fn steps(refused: &Refused<'_>) -> Vec<OpenStep> {
    let host = &refused.view.host;
    let is_held = matches!(refused.violation, Violation::HeldByUnknown { .. });
    let all = [
        (host.cordoned, OpenStep::Uncordon),
        (
            host.liveness == Liveness::Down || host.fenced.is_some() || host.unreported,
            OpenStep::StartAgent,
        ),
        (host.shape_refused.is_some(), OpenStep::RestoreShape),
        (is_held, OpenStep::StopUnknownGuests),
    ];
    let needed = all.into_iter().filter(|(is_needed, _)| *is_needed);
    needed.map(|(_, step)| step).collect()
}

/// Returns a host after these steps.
fn opened(view: &HostView, steps: &[OpenStep]) -> HostView {
    let mut host = Host::clone(&view.host);
    for step in steps {
        match step {
            OpenStep::Uncordon => host.uncordon(),
            OpenStep::StartAgent => {
                host.liveness = Liveness::Up;
                host.fenced = None;
                host.unreported = false;
            }
            OpenStep::RestoreShape => host.shape_refused = None,
            OpenStep::StopUnknownGuests => {}
        }
    }
    let mut open = view.clone();
    open.set_host(Arc::new(host));
    match steps.contains(&OpenStep::StopUnknownGuests) {
        true => open.without_unknown(),
        false => open,
    }
}

/// Returns a host of the same shape and aggregates that is open and has no guests, under a name
/// that no host has.
fn one_more(view: &HostView) -> Option<HostView> {
    let mut host = Host::clone(&view.host);
    host.name = HostName::new("one-more-host").ok()?;
    host.uncordon();
    host.liveness = Liveness::Up;
    host.fenced = None;
    host.shape_refused = None;
    host.unreported = false;
    host.unknown = Vec::new();
    let mut new = HostView::under(Arc::new(host), view.rule, []);
    new.set_aggregates(Arc::clone(&view.aggregates));
    Some(new)
}
