//! The request for a host, and the choice.

use std::sync::Arc;

use berth_domain::allocation::Resources;
use berth_domain::audit::Ranked;
use berth_domain::constraint::Demand;
use berth_domain::cpu_model::GuestCpu;
use berth_domain::name::HostName;
use berth_domain::numa::Assignment;
use berth_domain::policy::SchedulingPolicy;
use uuid::Uuid;

/// A request for a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What the guest demands of its host.
    pub demand: Demand,
    /// The host that the user named, if any: no other is looked at.
    pub requested: Option<HostName>,
    /// Hosts that refused the guest before.
    pub excluded: Vec<HostName>,
    /// Decides between hosts that are equally good, so that not all guests go to the first of
    /// them: some id of the request that differs from guest to guest.
    pub seed: Uuid,
    /// What is preferred.
    pub policy: SchedulingPolicy,
}

/// The host that was chosen, and what the guest takes there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The host.
    pub host: HostName,
    /// Counted amounts.
    pub resources: Resources,
    /// Exact CPUs and pages.
    pub assignment: Assignment,
    /// The CPU that it is given there; absent where that is left to the host's driver.
    pub cpu: Option<Arc<GuestCpu>>,
    /// How much was looked at.
    pub examined: Examined,
    /// What the weighers say of it and of the next best hosts, in this order; nothing where the
    /// user named the host. The others were not tried: they had room at a glance.
    pub ranking: Vec<Ranked>,
    /// Warnings about it, for people. The caller fills them in.
    pub warnings: Vec<String>,
}

/// How many hosts were looked at, and how closely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Examined {
    /// All hosts.
    pub hosts: u32,
    /// Those that the filters let through.
    pub passed: u32,
    /// Those on which all rules were tried.
    pub tried: u32,
}
