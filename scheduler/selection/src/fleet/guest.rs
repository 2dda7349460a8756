//! A guest of the fleet: what it takes, and what it would demand of another host.
//!
//! Not here: where it is just now in a speculative fleet ([`super::Fleet::place_of`]).

use std::sync::Arc;

use berth_domain::claim::Claim;
use berth_domain::constraint::Demand;
use berth_domain::name::{HostName, VmName};
use berth_domain::server_group::GroupDemand;

/// What is to become of a guest when its host dies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rescue {
    /// It is started on another host.
    Restart,
    /// It is not to be restarted: the reason, for people.
    Spare(String),
    /// It cannot be, whatever room there is: the reason, for people.
    Impossible(String),
}

/// A guest, with the claim that it is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetGuest {
    /// Who it is.
    pub vm: VmName,
    /// What it takes, and where.
    pub claim: Arc<Claim>,
    /// Further hosts where it holds a claim, as while it is moved: they count for its server group.
    pub also_on: Vec<HostName>,
    /// What it would demand of another host. Where the members of its server group are is not
    /// looked at: the fleet knows it better.
    pub demand: Arc<Demand>,
    /// Why it cannot be moved, for people; absent where it can.
    pub fixed: Option<String>,
    /// What is to become of it when its host dies.
    pub rescue: Rescue,
}

impl FleetGuest {
    /// Returns its server group, if it has one.
    #[must_use]
    pub fn group(&self) -> Option<&GroupDemand> {
        self.demand.group.as_ref()
    }
}
