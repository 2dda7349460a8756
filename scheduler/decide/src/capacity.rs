//! How many more VMs of a flavor fit in a state: now, after the worst failure, at other ratios of
//! memory, and with shapes that shrink.
//!
//! Pure. A VM of the flavor is taken to have no disks of its own beside the flavor's space, no
//! interfaces and no hints: what an image or a user adds can only make it fit less often.

use std::sync::Arc;

use berth_domain::constraint::Demand;
use berth_domain::host_rule::HostRule;
use berth_domain::host_view::HostView;
use berth_domain::image::ImageProperties;
use berth_domain::memory::MemoryRule;
use berth_domain::name::FlavorName;
use berth_domain::overcommit::AllocationRatio;
use berth_domain::refusal::Refusal;
use berth_domain::vm::{BootSource, SchedulingHints, VmSpec};
use berth_selection::capacity::{
    Fill, Least, Shape, Steps, Tiered, Worst, after_failures, fill, tiered,
};
use berth_selection::failover::{Budget, Domain, Verdict, evaluate};
use berth_selection::fleet::Fleet;
use berth_state::State;

use super::fleet::{Purpose, fleet_where};
use super::schedule::{Rest, sized};

/// The parameters of a capacity query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapacityParams {
    /// The flavor.
    pub flavor: FlavorName,
    /// Memory allocation ratios in thousandths; empty for the configured one.
    pub ratios_milli: Vec<u64>,
    /// Whether to include the worst failure.
    pub with_failure: bool,
    /// Whether to include smaller shapes.
    pub with_tiers: bool,
}

/// The capacity at one ratio.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtRatio {
    /// The ratio in thousandths; absent for the configured one.
    pub ratio_milli: Option<u64>,
    /// What fits now.
    pub now: Fill,
    /// What fits after the worst failure, if requested.
    pub after: Option<Worst>,
    /// What fits of shrinking shapes, if requested.
    pub tiers: Option<Tiered>,
}

/// Returns what fits, in the order of the requested ratios.
///
/// # Errors
///
/// The flavor is unknown; the state is inconsistent.
pub fn capacity(state: &State, params: &CapacityParams) -> Result<Vec<AtRatio>, Refusal> {
    let spec = spec_of(state, &params.flavor)?;
    let ratios: Vec<Option<u64>> = match params.ratios_milli.is_empty() {
        true => vec![None],
        false => params.ratios_milli.iter().copied().map(Some).collect(),
    };
    let each = ratios
        .into_iter()
        .map(|ratio| at_ratio(state, params, &spec, ratio));
    each.collect()
}

/// Returns the spec of a new VM of a flavor.
pub(super) fn spec_of(state: &State, flavor: &FlavorName) -> Result<VmSpec, Refusal> {
    let rest = Rest {
        boot: BootSource::Kernel {
            kernel: "any".to_owned(),
            initrd: "any".to_owned(),
            cmdline: String::new(),
        },
        disks: Vec::new(),
        nics: Vec::new(),
        image_properties: ImageProperties::default(),
        hints: SchedulingHints::default(),
        volumes: Vec::new(),
    };
    sized(state, flavor, rest)
}

fn at_ratio(
    state: &State,
    params: &CapacityParams,
    spec: &VmSpec,
    ratio_milli: Option<u64>,
) -> Result<AtRatio, Refusal> {
    let mut fleet = fleet_where(state, Purpose::Failover, |view| match ratio_milli {
        None => Arc::clone(view),
        Some(milli) => Arc::new(with_ratio(view, AllocationRatio::from_milli(milli))),
    })?;
    let cells = state.policy().cells;
    let demand = state.with_cpu(Demand::boot(spec)?)?;
    let now = fill(&fleet, &demand, cells);
    let after = match params.with_failure {
        true => {
            let verdicts = verdicts(&mut fleet);
            let verdicts = verdicts.iter().map(|(domain, verdict)| (domain, verdict));
            after_failures(&mut fleet, &now, &demand, cells, verdicts)
        }
        false => None,
    };
    let tiers = match params.with_tiers {
        true => Some(shrinking(state, &fleet, spec)),
        false => None,
    };
    Ok(AtRatio {
        ratio_milli,
        now,
        after,
        tiers,
    })
}

fn with_ratio(view: &HostView, ratio: AllocationRatio) -> HostView {
    let mut view = view.clone();
    view.set_rule(HostRule {
        memory: MemoryRule {
            ratio,
            ..view.rule.memory
        },
        ..view.rule
    });
    view
}

fn verdicts(fleet: &mut Fleet) -> Vec<(Domain, Verdict)> {
    let views = fleet.views().iter();
    let domains: Vec<Domain> = views.map(|view| Domain::host(&view.host.name)).collect();
    let verdicts = domains.into_iter().map(|domain| {
        let verdict = evaluate(fleet, &domain, Budget::default());
        (domain, verdict)
    });
    verdicts.collect()
}

fn shrinking(state: &State, fleet: &Fleet, spec: &VmSpec) -> Tiered {
    let flavor = &spec.flavor;
    let largest = Shape {
        memory_mib: flavor.memory_mib,
        disk_gib: flavor.disk_gib,
        vcpus: flavor.vcpus,
    };
    let least = Least(Shape {
        memory_mib: flavor.memory_mib.min(64),
        disk_gib: flavor.disk_gib.min(1),
        vcpus: 1,
    });
    let demand_of = |shape: &Shape| {
        let mut flavor = flavor.clone();
        flavor.memory_mib = shape.memory_mib;
        flavor.disk_gib = shape.disk_gib;
        flavor.vcpus = shape.vcpus;
        let requirements = flavor.requirements(&spec.image_properties, &spec.pci_aliases);
        let requirements = requirements.ok()?;
        let smaller = VmSpec {
            flavor,
            topology: requirements.topology,
            cpu_shape: requirements.cpu_shape,
            pci: requirements.pci,
            ..spec.clone()
        };
        let demand = Demand::boot(&smaller).ok()?;
        state.with_cpu(demand).ok()
    };
    let cells = state.policy().cells;
    // Large disks shrink by larger steps, to bound their number.
    let steps = Steps(Shape {
        disk_gib: (flavor.disk_gib / 64).max(1),
        ..Steps::default().0
    });
    tiered(fleet, largest, least, steps, cells, demand_of)
}
