//! The claim: what a VM or a migration holds on one host, counted amounts and exact assignment
//! together. It is the central noun of Berth; see [`crate::allocation`] for what other consumers
//! take.
//!
//! ```text
//!             confirm, activate              release (owner gone, contents to be erased)
//!   (none) ──claim──▶ HELD ──────────▶ ACTIVE ──────────▶ RELEASING ──▶ (none)
//!                      └──────────────── release ───────────────────────▶ (none)
//! ```
//!
//! Invariant: whatever its state, a claim counts in full, and no two claims of a host overlap.

use serde::{Deserialize, Serialize};

use crate::allocation::Resources;
use crate::id::{ClaimId, MigrationId};
use crate::name::{HostName, VmName};
use crate::numa::Assignment;

/// On whose behalf a claim is held.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Owner {
    /// The VM itself.
    Vm,
    /// A migration that brings the VM to this host.
    Migration(MigrationId),
}

/// How far a claim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum State {
    /// Reserved: nothing runs on it.
    Held,
    /// A guest runs on it, or may.
    Active,
    /// The guest is gone, but something is still to be done before anyone else may take it.
    Releasing,
}

/// What is held on one host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Claim {
    /// Who it is; also the consumer of its allocations.
    pub id: ClaimId,
    /// The VM for which it is held.
    pub vm: VmName,
    /// On whose behalf.
    pub owner: Owner,
    /// Where.
    pub host: HostName,
    /// How far it is.
    pub state: State,
    /// Counted amounts, taken from the host's root provider.
    pub resources: Resources,
    /// Exact CPUs and pages.
    pub assignment: Assignment,
}
