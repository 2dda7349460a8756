//! The claim: what a VM or a migration holds on one host, counted amounts and exact assignment
//! together. It is the central noun of Berth; see [`crate::allocation`] for what other consumers
//! take.
//!
//! ```text
//!             confirm, activate        release
//!   (none) ──claim──▶ HELD ──▶ ACTIVE ──────────▶ (none)     nothing of it keeps contents
//!                      │          │
//!                      └──────────┴─ release ─▶ RELEASING ──every namespace erased──▶ (none)
//! ```
//!
//! Persistent memory keeps what the guest wrote. A claim that is given back with some shrinks to
//! its namespaces, which its VM has no part in any more: another VM of that name may exist. The
//! host's agent erases them, and reports each. One that was never used is erased all the same:
//! only the agent knows what happened to it.
//!
//! Invariant: whatever its state, a claim counts in full, and no two claims of a host overlap. Each
//! namespace of a RELEASING claim has its erasure, and no other claim has any.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::allocation::Resources;
use crate::cpu_model::GuestCpu;
use crate::id::{ClaimId, MigrationId, TimeMs};
use crate::name::{HostName, PmemName, VmName};
use crate::numa::Assignment;
use crate::pmem::CLASS_PREFIX;
use crate::resource::ResourceClass;

/// On whose behalf a claim is held.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Owner {
    /// The VM itself.
    Vm,
    /// A migration that brings the VM to this host.
    Migration(MigrationId),
}

/// The state of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum State {
    /// Reserved: nothing runs on it.
    Held,
    /// A guest runs on it, or may.
    Active,
    /// The guest has ended, but cleanup is pending before the resources can be claimed again.
    Releasing,
}

impl State {
    /// Returns the word for it, as tables and messages show it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Held => "HELD",
            Self::Active => "ACTIVE",
            Self::Releasing => "RELEASING",
        }
    }
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
    /// The state.
    pub state: State,
    /// Counted amounts, taken from the host's root provider.
    pub resources: Resources,
    /// Exact CPUs and pages.
    pub assignment: Assignment,
    /// How erasing the namespaces of a RELEASING claim goes; of one in use, which namespaces are
    /// written off.
    #[serde(default)]
    pub erasures: BTreeMap<PmemName, Erasure>,
    /// The CPU that the guest is started with, and keeps while it runs; absent where that is left to
    /// the host's driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Arc<GuestCpu>>,
}

/// After how many failures in a row a namespace counts as quarantined. Its agent goes on trying.
pub const ERASURE_FAILURES_MAX: u32 = 3;

/// The longest text of a failure that is kept, in bytes.
pub const ERASURE_FAILURE_LENGTH_MAX: usize = 512;

/// How erasing a namespace goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Erasure {
    /// Since when it is to be erased.
    pub since: TimeMs,
    /// How often that failed.
    pub failures: u32,
    /// What was wrong last; empty where nothing was.
    pub failure: String,
    /// How much of it is erased, in bytes, as its agent last reported.
    pub erased_bytes: u64,
    /// Whether an operator declared the namespace lost for good. It blocks no claim any more
    /// and is not counted. Should it come back, it is erased before anybody is given it.
    #[serde(default)]
    pub written_off: bool,
}

/// How far an agent is with a namespace of a RELEASING claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ErasureProgress {
    /// It is being erased.
    Running {
        /// How much of it is.
        erased_bytes: u64,
    },
    /// It could not be; it will be tried again.
    Failed {
        /// Why.
        failure: String,
    },
    /// It is erased: nothing of what the guest wrote is left.
    Erased,
}

/// An agent's report of a namespace that it is to erase.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ErasureReport {
    /// The claim; a report about any other claim with that namespace is void.
    pub claim: ClaimId,
    /// The namespace.
    pub namespace: PmemName,
    /// The state.
    pub progress: ErasureProgress,
}

impl Erasure {
    /// Returns one that has not begun.
    fn open(since: TimeMs, written_off: bool) -> Self {
        Self {
            since,
            failures: 0,
            failure: String::new(),
            erased_bytes: 0,
            written_off,
        }
    }

    /// Returns whether it failed so often that an operator has to intervene.
    #[must_use]
    pub fn is_quarantined(&self) -> bool {
        self.failures >= ERASURE_FAILURES_MAX
    }
}

impl Claim {
    /// Returns whether a VM has a part in it.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        match self.state {
            State::Held | State::Active => true,
            State::Releasing => false,
        }
    }

    /// Returns whether a guest runs on it, or may.
    #[must_use]
    pub fn is_active(&self) -> bool {
        match self.state {
            State::Active => true,
            State::Held | State::Releasing => false,
        }
    }

    /// Returns what is left of the claim when it is given back: its namespaces, if it has any.
    #[must_use]
    pub fn released(&self, now: TimeMs) -> Option<Self> {
        let pmem = &self.assignment.pmem;
        if pmem.is_empty() || !self.is_in_use() {
            return None;
        }
        let erasures = pmem.iter().map(|device| {
            let written_off = self.has_written_off(&device.name);
            (device.name.clone(), Erasure::open(now, written_off))
        });
        Some(self.shrunk(erasures.collect()))
    }

    /// Returns whether a namespace of the claim is written off.
    #[must_use]
    pub fn has_written_off(&self, name: &PmemName) -> bool {
        let erasure = self.erasures.get(name);
        erasure.is_some_and(|erasure| erasure.written_off)
    }

    /// Returns whether there is nothing left of the claim but what is written off.
    #[must_use]
    pub fn is_written_off(&self) -> bool {
        !self.is_in_use() && self.erasures.values().all(|erasure| erasure.written_off)
    }

    /// Returns the claim with one of its namespaces written off. It is not counted any more.
    #[must_use]
    pub fn write_off(&self, name: &PmemName, now: TimeMs) -> Self {
        let mut claim = self.clone();
        let open = Erasure::open(now, true);
        let erasure = claim.erasures.entry(name.clone()).or_insert(open);
        erasure.written_off = true;
        let is_pmem = |class: &ResourceClass| class.as_str().starts_with(CLASS_PREFIX);
        claim.resources.retain(|class, _| !is_pmem(class));
        let counted = claim.counted_pmem();
        claim.resources.extend(counted);
        claim
    }

    /// Returns how many namespaces of each class the claim counts.
    #[must_use]
    pub fn counted_pmem(&self) -> Resources {
        let devices = self.assignment.pmem.iter();
        let mut counted = Resources::new();
        for device in devices.filter(|device| !self.has_written_off(&device.name)) {
            *counted.entry(device.class.clone()).or_default() += 1;
        }
        counted
    }

    /// Returns what is left of a RELEASING claim when one of its namespaces is erased: the others.
    #[must_use]
    pub fn without(&self, erased: &PmemName) -> Option<Self> {
        let mut erasures = self.erasures.clone();
        erasures.remove(erased);
        (!erasures.is_empty()).then(|| self.shrunk(erasures))
    }

    /// Returns the RELEASING claim after this report, if it changes it: `None` for nothing is left.
    #[must_use]
    pub fn after(&self, report: &ErasureReport) -> Option<Option<Self>> {
        if self.is_in_use() {
            return None;
        }
        let erasure = self.erasures.get(&report.namespace)?;
        let after = match &report.progress {
            ErasureProgress::Erased => return Some(self.without(&report.namespace)),
            ErasureProgress::Running { erased_bytes } => Erasure {
                erased_bytes: *erased_bytes,
                ..erasure.clone()
            },
            ErasureProgress::Failed { failure } => Erasure {
                failures: erasure.failures.saturating_add(1),
                failure: failure.clone(),
                erased_bytes: 0,
                ..erasure.clone()
            },
        };
        let mut claim = self.clone();
        let before = claim.erasures.insert(report.namespace.clone(), after);
        (before != claim.erasures.get(&report.namespace).cloned()).then_some(Some(claim))
    }

    fn shrunk(&self, erasures: BTreeMap<PmemName, Erasure>) -> Self {
        let pmem = self.assignment.pmem.iter();
        let pmem: Vec<_> = pmem
            .filter(|device| erasures.contains_key(&device.name))
            .cloned()
            .collect();
        let shrunk = Self {
            state: State::Releasing,
            assignment: Assignment {
                pmem,
                ..Assignment::default()
            },
            erasures,
            ..self.clone()
        };
        Self {
            resources: shrunk.counted_pmem(),
            ..shrunk
        }
    }
}
