//! Every rule that a host must keep to take a guest, one per file. The filters that choose a
//! host and the commands that claim it call the same ones.
//!
//! | rule | where |
//! |---|---|
//! | the host's agent is heard of | [`liveness`] |
//! | no operator cordoned it | [`cordon`] |
//! | its agent reports a shape that its guests fit | [`shape`] |
//! | it has the qualities, and not the forbidden ones | [`qualities`] |
//! | its counted resources suffice | [`capacity`] |
//! | the guest's cells fit on its cells | [`exact`] |
//! | a guest that moves: it is another host | [`elsewhere`] |
//! | … with the same hypervisor driver | [`driver`] |
//! | … with an agent that is new enough | [`version`] |
//! | … that sees the same disks | [`storage`] |
//!
//! Invariant: a rule is a function of the host's view and the demand alone.

pub mod capacity;
pub mod cordon;
mod demand;
pub mod driver;
pub mod elsewhere;
pub mod exact;
pub mod liveness;
pub mod qualities;
pub mod shape;
pub mod storage;
pub mod version;
mod violation;

pub use demand::{Demand, Leaving};
pub use violation::Violation;

use crate::claim::Claim;
use crate::host_view::HostView;
use crate::numa::{Assignment, Strategy};

/// A rule without the exact fit.
pub type Rule = fn(&HostView, &Demand) -> Result<(), Violation>;

/// All rules but counted capacity and the exact fit, in the order in which they are told: what
/// cannot be changed comes before what can.
pub const RULES: [Rule; 8] = [
    elsewhere::check,
    liveness::check,
    cordon::check,
    shape::check,
    driver::check,
    version::check,
    storage::check,
    qualities::check,
];

/// Returns an exact assignment of the guest on this host.
///
/// # Errors
///
/// The first rule that is broken. Where both the exact fit and counted capacity are, the fit is
/// told: it names the cell.
pub fn place(
    view: &HostView,
    demand: &Demand,
    strategy: Strategy,
) -> Result<Assignment, Violation> {
    for rule in RULES {
        rule(view, demand)?;
    }
    let assignment = exact::place(view, demand, strategy)?;
    capacity::check(view, demand)?;
    Ok(assignment)
}

/// Returns what [`place`] returns, without the reason where a rule is broken: cheap to ask of many
/// hosts.
#[must_use]
pub fn try_place(view: &HostView, demand: &Demand, strategy: Strategy) -> Option<Assignment> {
    for rule in RULES {
        rule(view, demand).ok()?;
    }
    capacity::check(view, demand).ok()?;
    exact::try_place(view, demand, strategy)
}

/// Checks a claim that somebody chose: `view` is the host without it.
///
/// # Errors
///
/// The first rule that is broken.
pub fn admit(view: &HostView, demand: &Demand, claim: &Claim) -> Result<(), Violation> {
    for rule in RULES {
        rule(view, demand)?;
    }
    if claim.resources != demand.resources {
        return Err(Violation::Counted);
    }
    exact::admit(view, demand, &claim.assignment)?;
    capacity::check(view, demand)
}
