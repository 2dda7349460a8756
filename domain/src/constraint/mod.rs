//! Every rule that a host must keep to take a guest, one per file. The filters that choose a
//! host and the commands that claim it call the same ones.
//!
//! | rule | where |
//! |---|---|
//! | the host's agent reports | [`liveness`] |
//! | no operator cordoned it | [`cordon`] |
//! | it is not fenced | [`fenced`] |
//! | its guests are known since the cluster recovered | [`reported`] |
//! | its agent reports a shape that its guests fit | [`shape`] |
//! | it has the qualities, and not the forbidden ones | [`traits`] |
//! | its CPUs are not for one guest and for all at the same time | [`cpu_kinds`] |
//! | its counted resources suffice | [`capacity`] |
//! | its memory is over-committed as far as it may be | [`memory`] |
//! | the guest's cells fit on its cells | [`exact`] |
//! | it is the kind of machine that the image requests | [`image`] |
//! | it gives the CPU that the guest is to have, or runs with | [`cpu`] |
//! | it reaches the guest's networks | [`network`] |
//! | it is in the availability zone | [`zone`] |
//! | its aggregates have the metadata that the flavor requires | [`aggregate`] |
//! | a hard server group of the guest allows it | [`group`] |
//! | it has the guest's volumes | [`volumes`] |
//! | a guest that moves: it is another host | [`elsewhere`] |
//! | … with the same hypervisor driver | [`driver`] |
//! | … with an agent that is new enough | [`version`] |
//! | … that sees the same disks | [`storage`] |
//!
//! Invariant: a rule is a function of the host's view and the demand alone.

pub mod aggregate;
pub mod capacity;
pub mod cordon;
pub mod cpu;
pub mod cpu_kinds;
mod demand;
pub mod driver;
pub mod elsewhere;
pub mod exact;
pub mod fenced;
pub mod group;
pub mod image;
mod leaving;
pub mod liveness;
pub mod memory;
pub mod network;
pub mod reported;
pub mod shape;
pub mod storage;
pub mod traits;
pub mod version;
mod violation;
pub mod volumes;
pub mod zone;

pub use demand::{Demand, Leaving, MoveKind, RestartReason, VolumeLocation};
pub use leaving::REASON as PCI_NOT_LIVE_MIGRATABLE;
pub use violation::Violation;

use crate::claim::Claim;
use crate::cpu_set::CpuSet;
use crate::host_view::HostView;
use crate::numa::{Assignment, Guest, Strategy, gives_up, is_feasible};

/// A rule without the exact fit.
pub type Rule = fn(&HostView, &Demand) -> Result<(), Violation>;

/// The rules that depend on which host it is.
pub const HOST_RULES: [Rule; 3] = [elsewhere::check, group::check, volumes::check];

/// The other rules but counted capacity and the exact fit: they look only at what hosts of one
/// [class](HostView::class) have in common.
pub const CLASS_RULES: [Rule; 14] = [
    fenced::check,
    reported::check,
    liveness::check,
    cordon::check,
    shape::check,
    driver::check,
    version::check,
    storage::check,
    traits::check,
    image::check,
    cpu::check,
    network::check,
    zone::check,
    aggregate::check,
];

/// The rules that look at what is taken of a host, beside counted capacity and the exact fit.
pub const LOAD_RULES: [Rule; 1] = [cpu_kinds::check];

/// A demand with what its exact fit needs, worked out once for many hosts.
#[derive(Clone, Debug)]
pub struct PreparedDemand<'a> {
    demand: &'a Demand,
    guest: Guest<'a>,
}

impl<'a> PreparedDemand<'a> {
    /// Returns the prepared form of this demand.
    #[must_use]
    pub fn new(demand: &'a Demand) -> Self {
        Self {
            demand,
            guest: Guest::new(exact::exact_demand(demand)),
        }
    }

    /// Checks the rules that depend on which host it is. All others have the same result for hosts
    /// that are [alike](HostView::likeness).
    ///
    /// # Errors
    ///
    /// The first rule that is broken.
    pub fn check_host(&self, view: &HostView) -> Result<(), Violation> {
        HOST_RULES
            .iter()
            .try_for_each(|rule| rule(view, self.demand))
    }

    /// Returns an exact assignment of the guest on this host.
    ///
    /// # Errors
    ///
    /// The first rule that is broken, those that cannot be changed before those that can. Where
    /// both the exact fit and counted capacity are, the fit is reported: it names the cell.
    pub fn place(&self, view: &HostView, strategy: Strategy) -> Result<Assignment, Violation> {
        check_rules(view, self.demand)?;
        let near = exact::near(view, self.demand);
        let beside = (!near.is_empty()).then(|| self.guest.near(&near));
        let guest = beside.as_ref().unwrap_or(&self.guest);
        let assignment =
            exact::place(view, guest, strategy).map_err(|why| self.blame_unknown(view, why))?;
        capacity::check(view, self.demand)?;
        memory::check(view, &self.demand.resources, &assignment)?;
        Ok(assignment)
    }

    /// Returns the reason why the guest does not fit: guests that no claim is for, where it would
    /// fit without them.
    fn blame_unknown(&self, view: &HostView, why: Violation) -> Violation {
        if view.claimed.is_none() {
            return why;
        }
        let without = view.clone().without_unknown();
        if exact::try_place(&without, &self.guest, Strategy::Spread).is_none() {
            return why;
        }
        Violation::HeldByUnknown {
            guests: view.holders().map(|guest| guest.name.clone()).collect(),
            cpus: (view.holders()).fold(CpuSet::new(), |all, guest| all.union(&guest.held.taken())),
        }
    }

    /// Returns what [`Self::place`] returns, without the reason where a rule is broken: cheap to
    /// evaluate for many hosts.
    #[must_use]
    pub fn try_place(&self, view: &HostView, strategy: Strategy) -> Option<Assignment> {
        check_rules(view, self.demand).ok()?;
        capacity::check(view, self.demand).ok()?;
        let near = exact::near(view, self.demand);
        let beside = (!near.is_empty()).then(|| self.guest.near(&near));
        let guest = beside.as_ref().unwrap_or(&self.guest);
        let assignment = exact::try_place(view, guest, strategy)?;
        let fits = memory::check(view, &self.demand.resources, &assignment);
        fits.is_ok().then_some(assignment)
    }

    /// Returns whether [`Self::try_place`] finds nothing only since the search for PCI functions is
    /// given up: then it is not known whether the guest fits.
    #[must_use]
    pub fn gives_up(&self, view: &HostView) -> bool {
        check_rules(view, self.demand).is_ok()
            && capacity::check(view, self.demand).is_ok()
            && gives_up(view.ground(), &self.guest)
    }

    /// Returns whether a host of the same class as this one could take the guest if nothing were
    /// taken of it.
    #[must_use]
    pub fn suits_class(&self, view: &HostView) -> bool {
        CLASS_RULES
            .iter()
            .all(|rule| rule(view, self.demand).is_ok())
            && self.fits_when_empty(view)
    }

    /// Returns whether the guest's amounts, cells and devices fit on the host when nothing is taken
    /// of it.
    #[must_use]
    pub fn fits_when_empty(&self, view: &HostView) -> bool {
        let empty = view.emptied();
        let mut rules = LOAD_RULES.iter();
        rules.all(|rule| rule(&empty, self.demand).is_ok())
            && capacity::check(&empty, self.demand).is_ok()
            && is_feasible(empty.ground(), &self.guest)
    }
}

/// Checks a proposed claim: `view` is the host without it.
///
/// # Errors
///
/// The first rule that is broken.
pub fn admit(view: &HostView, demand: &Demand, claim: &Claim) -> Result<(), Violation> {
    check_rules(view, demand)?;
    if claim.resources != demand.resources {
        return Err(Violation::Counted);
    }
    if claim.cpu != cpu::given(&view.host.report, &demand.cpu) {
        return Err(Violation::CpuNotGiven);
    }
    fits(view, demand, &claim.assignment)
}

/// Checks that a proposed assignment fits beside what is taken of the host: `view` is the host
/// without it. Whether the host may be chosen at all is not looked at.
///
/// # Errors
///
/// The first rule that is broken.
pub fn fits(view: &HostView, demand: &Demand, assignment: &Assignment) -> Result<(), Violation> {
    exact::admit(view, demand, assignment)?;
    capacity::check(view, demand)?;
    memory::check(view, &demand.resources, assignment)
}

fn check_rules(view: &HostView, demand: &Demand) -> Result<(), Violation> {
    let mut rules = HOST_RULES.iter().chain(&CLASS_RULES).chain(&LOAD_RULES);
    rules.try_for_each(|rule| rule(view, demand))
}
