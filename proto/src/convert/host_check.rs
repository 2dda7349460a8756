//! Checks of hosts: their findings, and what agents report to be compared.

use berth_domain::host_check::{CheckOutcome, HOSTS_MAX, HostCheck, HostFinding};

use super::field::{self, ADDRESS_MAX, Invalid, choices};
use super::name::ResourceName;
use crate::agent::v1 as agent;
use crate::types::v1;

/// The most findings of one response of an agent: of its own host, and of its peers.
pub const FINDINGS_MAX: usize = 256 + HOSTS_MAX;

/// The longest message of a finding.
const MESSAGE_MAX: usize = 4 * ADDRESS_MAX;

choices!(CheckOutcome => v1::CheckOutcome { Ok, Warning, Failed, Unknown });

impl From<&HostFinding> for v1::HostFinding {
    fn from(finding: &HostFinding) -> Self {
        Self {
            check: finding.check.clone(),
            host: finding.host.resource_name(),
            peer: field::name_or_empty(finding.peer.as_ref()),
            outcome: v1::CheckOutcome::from(finding.outcome).into(),
            message: finding.message.clone(),
            hint: finding.hint.clone().unwrap_or_default(),
        }
    }
}

impl TryFrom<v1::HostFinding> for HostFinding {
    type Error = Invalid;

    fn try_from(wire: v1::HostFinding) -> Result<Self, Invalid> {
        let hint = field::text(wire.hint, "hint", MESSAGE_MAX)?;
        Ok(Self {
            check: field::required_text(wire.check, "check", ADDRESS_MAX)?,
            host: field::name(&wire.host, "host")?,
            peer: field::optional_name(&wire.peer, "peer")?,
            outcome: field::choice::<v1::CheckOutcome, _>(wire.outcome, "outcome")?,
            message: field::required_text(wire.message, "message", MESSAGE_MAX)?,
            hint: (!hint.is_empty()).then_some(hint),
        })
    }
}

impl From<&HostCheck> for agent::CheckHostResponse {
    fn from(report: &HostCheck) -> Self {
        Self {
            host: report.host.resource_name(),
            findings: report.findings.iter().map(Into::into).collect(),
            hypervisor_version: report.hypervisor_version.clone(),
            tls: Some((&report.tls).into()),
            wall_clock: Some(field::timestamp(report.wall_clock)),
        }
    }
}

impl TryFrom<agent::CheckHostResponse> for HostCheck {
    type Error = Invalid;

    fn try_from(wire: agent::CheckHostResponse) -> Result<Self, Invalid> {
        let version = field::text(wire.hypervisor_version, "hypervisor_version", ADDRESS_MAX)?;
        Ok(Self {
            host: field::name(&wire.host, "host")?,
            findings: field::each(wire.findings, "findings", FINDINGS_MAX)?,
            hypervisor_version: version,
            tls: field::required(wire.tls, "tls")?,
            wall_clock: field::time(wire.wall_clock, "wall_clock")?,
        })
    }
}
