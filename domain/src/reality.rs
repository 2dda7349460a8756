//! What a hypervisor has, compared with its host's claims.
//!
//! The agent compares: it first reads what is expected of its host, then queries the hypervisor,
//! and reports what differs from what is recorded. The state takes a report over only where the VM
//! has not changed since it was read: see `NoteReality`.
//!
//! Invariant: this decides; it stops nothing. What is not expected is reported, never killed for
//! it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::agent::DomainState;
use crate::id::{ClaimId, Generation, VmUid};
use crate::name::VmName;
use crate::numa::Assignment;

pub use crate::vm::{Absence, Trouble};

/// How many unexpected domains are reported of one host. Those that Berth made come first, as
/// these keep their CPUs.
pub const UNKNOWN_MAX: usize = 256;

/// The longest reported name of a domain, in bytes.
pub const NAME_MAX: usize = 256;

/// A domain that no claim of its host is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Unknown {
    /// The domain's UUID.
    pub uuid: Uuid,
    /// The domain's name, at most [`NAME_MAX`] bytes of it.
    pub name: String,
    /// Whether Berth made it.
    pub is_ours: bool,
    /// The claim in its metadata, if Berth made it.
    pub claim: Option<ClaimId>,
    /// What it holds; empty for one that Berth did not make.
    pub held: Assignment,
}

impl Unknown {
    /// Returns whether it may be the guest of this claim. One that was handed over by an agent too
    /// old has none.
    #[must_use]
    pub fn is_on(&self, claim: ClaimId) -> bool {
        self.is_ours && self.claim.is_none_or(|own| own == claim)
    }
}

/// A domain that a hypervisor has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedDomain {
    /// The domain as it would be reported.
    pub domain: Unknown,
    /// Where it is.
    pub state: DomainState,
}

/// What a claim lets expect of its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The VM.
    pub vm: VmName,
    /// This life of it; the domain's UUID.
    pub uid: VmUid,
    /// The claim.
    pub claim: ClaimId,
    /// The VM's generation when this was read.
    pub generation: Generation,
    /// Whether the guest should run here now: the VM is ACTIVE on this claim and no operation works
    /// on it.
    pub is_settled: bool,
    /// What is recorded to be wrong with it.
    pub recorded: Option<Absence>,
}

/// A VM whose record differs from the observation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Finding {
    /// The VM.
    pub vm: VmName,
    /// The claim that was expected.
    pub claim: ClaimId,
    /// The VM's generation when that was read; a later one makes this void.
    pub generation: Generation,
    /// What is wrong; absent: it runs.
    pub absence: Option<Absence>,
}

/// What an agent reports of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Comparison {
    /// The state's revision from which the expectation was read.
    pub basis: u64,
    /// Every domain that are not expected, in the order of their UUIDs.
    pub unknown: Vec<Unknown>,
    /// The VMs whose record is to change.
    pub findings: Vec<Finding>,
}

/// Compares what a hypervisor has with what was expected before it was queried.
#[must_use]
pub fn compare(basis: u64, expected: &[Expected], observed: &[ObservedDomain]) -> Comparison {
    let here: BTreeMap<Uuid, &ObservedDomain> =
        observed.iter().map(|f| (f.domain.uuid, f)).collect();
    let mut claims: BTreeMap<Uuid, Vec<&Expected>> = BTreeMap::new();
    for expected in expected {
        claims.entry(expected.uid.0).or_default().push(expected);
    }
    let settled = expected.iter().filter(|e| e.is_settled);
    let findings = settled.filter_map(|expected| {
        let absence = absence_of(expected, here.get(&expected.uid.0).copied());
        (absence != expected.recorded).then(|| Finding {
            vm: expected.vm.clone(),
            claim: expected.claim,
            generation: expected.generation,
            absence,
        })
    });
    let is_unknown = |observed: &&ObservedDomain| {
        let mut expected = claims.get(&observed.domain.uuid).into_iter().flatten();
        let covers = |e: &&Expected| !e.is_settled || observed.domain.is_on(e.claim);
        !observed.domain.is_ours || !expected.any(covers)
    };
    let mut unknown: Vec<Unknown> = observed
        .iter()
        .filter(is_unknown)
        .map(|observed| observed.domain.clone())
        .collect();
    unknown.sort_by_key(|domain| (!domain.is_ours, domain.uuid));
    unknown.truncate(UNKNOWN_MAX);
    unknown.sort_by_key(|domain| domain.uuid);
    Comparison {
        basis,
        findings: findings.collect(),
        unknown,
    }
}

/// Returns what is wrong with a guest that should run.
fn absence_of(expected: &Expected, observed: Option<&ObservedDomain>) -> Option<Absence> {
    let Some(observed) = observed.filter(|observed| observed.domain.is_ours) else {
        return Some(Absence::Missing);
    };
    if !observed.domain.is_on(expected.claim) {
        return Some(Absence::Missing);
    }
    match observed.state {
        DomainState::Absent | DomainState::Prepared => Some(Absence::Missing),
        DomainState::Stopped => Some(Absence::Stopped),
        DomainState::Starting
        | DomainState::Running
        | DomainState::Paused
        | DomainState::MigratingOut
        | DomainState::MigratingIn
        // Its migration is to be settled, and waits for a word.
        | DomainState::PostCopyBroken => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uuid(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    fn expected(number: u128) -> Expected {
        Expected {
            vm: VmName::new(&format!("vm{number}")).unwrap(),
            uid: VmUid(uuid(number)),
            claim: ClaimId(uuid(100 + number)),
            generation: Generation(7),
            is_settled: true,
            recorded: None,
        }
    }

    fn observed(number: u128, state: DomainState) -> ObservedDomain {
        ObservedDomain {
            domain: Unknown {
                uuid: uuid(number),
                name: format!("vm{number}"),
                is_ours: true,
                claim: Some(ClaimId(uuid(100 + number))),
                held: Assignment::default(),
            },
            state,
        }
    }

    fn absences(comparison: &Comparison) -> Vec<Option<Absence>> {
        comparison.findings.iter().map(|f| f.absence).collect()
    }

    /// Goal: what runs is left alone, what does not is reported, once. Method: every state of a
    /// domain, against every record.
    #[test]
    fn every_domain_state_is_compared() {
        use DomainState as D;
        let table = [
            (D::Absent, Some(Absence::Missing)),
            (D::Prepared, Some(Absence::Missing)),
            (D::Stopped, Some(Absence::Stopped)),
            (D::Starting, None),
            (D::Running, None),
            (D::Paused, None),
            (D::MigratingOut, None),
            (D::MigratingIn, None),
            (D::PostCopyBroken, None),
        ];
        for (state, absence) in table {
            for recorded in [None, Some(Absence::Stopped), Some(Absence::Missing)] {
                let expected = Expected {
                    recorded,
                    ..expected(1)
                };
                let comparison = compare(3, &[expected], &[observed(1, state)]);
                let changed = (absence != recorded).then_some(absence);
                assert_eq!(absences(&comparison), Vec::from_iter(changed), "{state:?}");
                assert_eq!((comparison.basis, comparison.unknown), (3, Vec::new()));
            }
        }
        assert_eq!(
            absences(&compare(0, &[expected(1)], &[])),
            [Some(Absence::Missing)]
        );
    }

    #[test]
    fn vms_with_an_operation_are_not_compared() {
        let moving = Expected {
            is_settled: false,
            ..expected(1)
        };
        assert_eq!(compare(0, &[moving], &[]), Comparison::default());
    }

    #[test]
    fn unexpected_domains_are_reported() {
        let mut foreign = observed(1, DomainState::Running);
        foreign.domain.is_ours = false;
        // It has the UUID of a VM, and is not the VM's guest.
        let comparison = compare(0, &[expected(1)], std::slice::from_ref(&foreign));
        assert_eq!(absences(&comparison), [Some(Absence::Missing)]);
        assert_eq!(comparison.unknown, [foreign.domain]);
        // Another life of the VM's domain: of a claim that was given back.
        let mut old = observed(2, DomainState::Running);
        old.domain.claim = Some(ClaimId(uuid(5)));
        let comparison = compare(0, &[expected(2)], &[old]);
        assert_eq!(absences(&comparison), [Some(Absence::Missing)]);
        assert_eq!(comparison.unknown.len(), 1, "it keeps its CPUs");
        let comparison = compare(0, &[], &[observed(3, DomainState::Stopped)]);
        assert_eq!(comparison.unknown.len(), 1);
    }

    /// Goal: of too many those that Berth made are reported, since they keep what they hold.
    #[test]
    fn the_report_is_bounded() {
        let count = UNKNOWN_MAX as u128 + 9;
        let mut all: Vec<ObservedDomain> = (0..count)
            .map(|n| observed(n, DomainState::Running))
            .collect();
        for domain in &mut all[..20] {
            domain.domain.is_ours = false;
        }
        let comparison = compare(0, &[], &all).unknown;
        assert_eq!(comparison.len(), UNKNOWN_MAX);
        assert_eq!(
            comparison.iter().filter(|d| d.is_ours).count(),
            all.len() - 20
        );
        assert!(comparison.is_sorted_by_key(|d| d.uuid));
    }
}
