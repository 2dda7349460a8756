//! What the search for a hint reads of the cluster beside its hosts: the VMs on them, and how the
//! request could be made otherwise. The caller knows; this crate does not know the state.
//!
//! Invariant: everything is of the state in which the request was refused.

use std::sync::Arc;

use berth_domain::claim::Claim;
use berth_domain::constraint::Demand;
use berth_domain::hint::RequestChange;
use berth_domain::name::{HostName, ServerGroupName, VmName};

/// The cluster around a refused request.
pub trait Cluster {
    /// Returns the claims on a host that can be given back, without those of the guest itself.
    fn occupants(&self, host: &HostName) -> Vec<Occupant>;

    /// Returns what the VM demands of another host: while it runs, and stopped; absent where it
    /// cannot be moved so.
    fn moves(&self, vm: &VmName) -> Moves;

    /// Returns the claims on a host of which only namespaces are left that are being erased.
    fn erasing(&self, host: &HostName) -> Vec<Arc<Claim>>;

    /// Returns the changes of the request's policies that can be tried, the smallest first.
    fn changes(&self) -> Vec<RequestChange>;

    /// Returns what the guest would demand after a change of the request; nothing where such a
    /// request is not valid.
    fn changed(&self, change: &RequestChange) -> Option<Demand>;

    /// Returns the guest's vCPUs and its memory in MiB, where a smaller flavor can be requested.
    fn size(&self) -> Option<(u32, u64)>;
}

/// A claim on a host, and how it can be given back.
#[derive(Clone, Debug)]
pub struct Occupant {
    /// The VM.
    pub vm: VmName,
    /// The claim.
    pub claim: Arc<Claim>,
    /// The VM's server group.
    pub group: Option<ServerGroupName>,
    /// What gives it back.
    pub exit: Exit,
}

/// What gives a claim back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The VM is moved, or shelved where it can go nowhere.
    Move,
    /// The VM is moved while it runs. Its agent is too old to do anything else.
    MoveLive,
    /// It is the old claim of a resize, which can be confirmed.
    Confirm,
    /// Only the deletion of the VM.
    Delete,
}

/// What a VM demands of the host that it is moved to.
#[derive(Clone, Debug, Default)]
pub struct Moves {
    /// While it runs.
    pub live: Option<Demand>,
    /// Stopped.
    pub cold: Option<Demand>,
}

/// A cluster of which only the hosts are known: nothing moves, and the request stays as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostsAlone;

impl Cluster for HostsAlone {
    fn occupants(&self, _: &HostName) -> Vec<Occupant> {
        Vec::new()
    }

    fn moves(&self, _: &VmName) -> Moves {
        Moves::default()
    }

    fn erasing(&self, _: &HostName) -> Vec<Arc<Claim>> {
        Vec::new()
    }

    fn changes(&self) -> Vec<RequestChange> {
        Vec::new()
    }

    fn changed(&self, _: &RequestChange) -> Option<Demand> {
        None
    }

    fn size(&self) -> Option<(u32, u64)> {
        None
    }
}
