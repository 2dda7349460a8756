//! What a hypervisor has, and what was expected of it.

use berth_domain::id::{ClaimId, Generation, VmUid};
use berth_domain::numa::Assignment;
use berth_domain::reality::{
    Absence, Comparison, Expected, Finding, NAME_MAX, Trouble, UNKNOWN_MAX, Unknown,
};

use super::field::{self, Invalid, choices};
use super::name::ResourceName;
use crate::host::v1;
use crate::scheduler::v1 as scheduler;

/// The most findings of one comparison: a host has fewer guests.
const FINDINGS_MAX: usize = 100_000;

choices!(Absence => scheduler::guest_trouble::Absence { Stopped, Missing, ShutDown });

/// Writes what is wrong, if anything is.
fn write_absence(absence: Option<Absence>) -> i32 {
    absence.map_or(scheduler::guest_trouble::Absence::Unspecified, Into::into) as i32
}

/// Reads what is wrong. A number that this build does not know is refused.
fn read_absence(wire: i32, field: &str) -> Result<Option<Absence>, Invalid> {
    if wire == 0 {
        return Ok(None);
    }
    field::choice::<scheduler::guest_trouble::Absence, _>(wire, field).map(Some)
}

impl From<&Trouble> for scheduler::GuestTrouble {
    fn from(trouble: &Trouble) -> Self {
        Self {
            absence: write_absence(Some(trouble.absence)),
            claim: trouble.claim.resource_name(),
            since_time: Some(field::timestamp(trouble.since)),
        }
    }
}

impl TryFrom<scheduler::GuestTrouble> for Trouble {
    type Error = Invalid;

    fn try_from(wire: scheduler::GuestTrouble) -> Result<Self, Invalid> {
        Ok(Self {
            absence: field::choice::<scheduler::guest_trouble::Absence, _>(
                wire.absence,
                "absence",
            )?,
            claim: field::name(&wire.claim, "claim")?,
            since: field::time(wire.since_time, "since_time")?,
        })
    }
}

impl From<&Unknown> for v1::UnknownDomain {
    fn from(domain: &Unknown) -> Self {
        let held = &domain.held;
        Self {
            uuid: domain.uuid.to_string(),
            display_name: domain.name.clone(),
            made_by_berth: domain.is_ours,
            claim: field::name_or_empty(domain.claim.as_ref()),
            held: (*held != Assignment::default()).then(|| held.into()),
        }
    }
}

impl TryFrom<v1::UnknownDomain> for Unknown {
    type Error = Invalid;

    fn try_from(wire: v1::UnknownDomain) -> Result<Self, Invalid> {
        Ok(Self {
            uuid: field::uuid::<VmUid>(&wire.uuid, "uuid")?.0,
            name: field::text(wire.display_name, "display_name", NAME_MAX)?,
            is_ours: wire.made_by_berth,
            claim: field::optional_name(&wire.claim, "claim")?,
            held: field::optional(wire.held, "held")?.unwrap_or_default(),
        })
    }
}

impl From<&Expected> for v1::ExpectedDomain {
    fn from(expected: &Expected) -> Self {
        Self {
            vm: expected.vm.resource_name(),
            uid: expected.uid.to_string(),
            claim: expected.claim.resource_name(),
            generation: expected.generation.0,
            settled: expected.is_settled,
            recorded: write_absence(expected.recorded),
        }
    }
}

impl TryFrom<v1::ExpectedDomain> for Expected {
    type Error = Invalid;

    fn try_from(wire: v1::ExpectedDomain) -> Result<Self, Invalid> {
        Ok(Self {
            vm: field::name(&wire.vm, "vm")?,
            uid: field::uuid(&wire.uid, "uid")?,
            claim: field::name(&wire.claim, "claim")?,
            generation: Generation(wire.generation),
            is_settled: wire.settled,
            recorded: read_absence(wire.recorded, "recorded")?,
        })
    }
}

impl From<&Finding> for v1::GuestFinding {
    fn from(finding: &Finding) -> Self {
        Self {
            vm: finding.vm.resource_name(),
            claim: finding.claim.resource_name(),
            generation: finding.generation.0,
            absence: write_absence(finding.absence),
        }
    }
}

impl TryFrom<v1::GuestFinding> for Finding {
    type Error = Invalid;

    fn try_from(wire: v1::GuestFinding) -> Result<Self, Invalid> {
        Ok(Self {
            vm: field::name(&wire.vm, "vm")?,
            claim: field::name(&wire.claim, "claim")?,
            generation: Generation(wire.generation),
            absence: read_absence(wire.absence, "absence")?,
        })
    }
}

impl From<&Comparison> for v1::DomainComparison {
    fn from(comparison: &Comparison) -> Self {
        Self {
            basis_revision: comparison.basis,
            unknown_domains: comparison.unknown.iter().map(Into::into).collect(),
            findings: comparison.findings.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::DomainComparison> for Comparison {
    type Error = Invalid;

    fn try_from(wire: v1::DomainComparison) -> Result<Self, Invalid> {
        Ok(Self {
            basis: wire.basis_revision,
            unknown: field::each(wire.unknown_domains, "unknown_domains", UNKNOWN_MAX)?,
            findings: field::each(wire.findings, "findings", FINDINGS_MAX)?,
        })
    }
}

/// Writes a domain that its host lost.
#[must_use]
pub fn write_lost((uid, claim): &(VmUid, Option<ClaimId>)) -> v1::LostDomain {
    v1::LostDomain {
        uuid: uid.to_string(),
        claim: field::name_or_empty(claim.as_ref()),
    }
}

/// Reads a domain that its host lost.
///
/// # Errors
///
/// When it is none.
pub fn read_lost(wire: &v1::LostDomain) -> Result<(VmUid, Option<ClaimId>), Invalid> {
    Ok((
        field::uuid(&wire.uuid, "uuid")?,
        field::optional_name(&wire.claim, "claim")?,
    ))
}
