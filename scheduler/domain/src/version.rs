//! Service versions: what a running agent or conductor can do.
//!
//! A service version is one number that grows with every change of what services say to each
//! other. It gates features while a cluster is upgraded host by host: what a peer is too old for
//! is refused before anything is done.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::name::HostName;
use crate::refusal::{Code, Refusal};

/// The version of a service process.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ServiceVersion(pub u32);

impl ServiceVersion {
    /// The version that this build speaks.
    pub const CURRENT: Self = Self(3);
    /// The oldest version that can still be started (`--service-version`).
    pub const OLDEST: Self = Self(1);
    /// From here on `migrate_data` carries the `InstanceNUMATopology`, and a destination fits it
    /// and confirms its claim. An older agent drops the field and refuses the call.
    pub const NUMA_LIVE_MIGRATION: Self = Self(2);
    /// From here on an agent says that it knows the PCI affinity `socket`.
    pub const SOCKET_PCI_AFFINITY: Self = Self(2);
    /// From here on an agent stops, starts, rebuilds and snapshots the guests of its host, and a
    /// conductor carries out the operations that ask it to. An older one refuses the calls.
    pub const VM_POWER: Self = Self(3);
    /// From here on `migrate_data` carries a transfer policy, and the source's agent is asked to stop
    /// a transfer or to end it soon. An older agent drops the field and refuses the calls.
    pub const TRANSFER_CONTROL: Self = Self(3);
    /// From here on agents have the hypervisor copy disks that the destination does not see.
    pub const DISK_COPY: Self = Self(3);
}

impl fmt::Display for ServiceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Refuses to move a guest with exact wishes (a topology, PCI functions) between agents of which one
/// is too old to carry what answers them. Other guests are not gated.
///
/// # Errors
///
/// Says which side is too old.
pub fn live_migration_gate(
    guest_is_exact: bool,
    source: ServiceVersion,
    destination: ServiceVersion,
) -> Result<(), Refusal> {
    let needed = ServiceVersion::NUMA_LIVE_MIGRATION;
    if !guest_is_exact || source.min(destination) >= needed {
        return Ok(());
    }
    let side = match (source < needed, destination < needed) {
        (true, true) => "source and destination are",
        (true, false) => "the source is",
        (false, true | false) => "the destination is",
    };
    Err(Refusal::new(
        Code::FailedPrecondition,
        TOO_OLD,
        format!(
            "a guest with a NUMA topology or PCI functions is not migrated live: {side} too old (service versions \
             {source} and {destination}, needed {needed})"
        ),
    )
    .with("source_version", source)
    .with("destination_version", destination)
    .with("needed_version", needed)
    .with_hint("upgrade the compute agents of both hosts"))
}

/// Refuses to stop, start, rebuild or snapshot a guest whose host's agent is too old for it.
///
/// # Errors
///
/// Names the host, its version and the one that is needed.
pub fn power_gate(host: &HostName, version: ServiceVersion) -> Result<(), Refusal> {
    let needed = ServiceVersion::VM_POWER;
    if version >= needed {
        return Ok(());
    }
    Err(Refusal::new(
        Code::FailedPrecondition,
        TOO_OLD,
        format!(
            "the compute agent of host {host} is too old to stop, start, rebuild or snapshot a \
             VM (service version {version}, needed {needed})"
        ),
    )
    .with("host", host)
    .with("version", version)
    .with("needed_version", needed)
    .with_hint(format!("upgrade the compute agent of host {host}")))
}

/// The reason of a refusal for an agent that is too old.
pub const TOO_OLD: &str = "SERVICE_VERSION_TOO_OLD";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_without_power_calls_is_named_with_the_way_out() {
        let host = HostName::new("h1").unwrap();
        assert_eq!(power_gate(&host, ServiceVersion::VM_POWER), Ok(()));
        let refusal = power_gate(&host, ServiceVersion(2)).unwrap_err();
        assert_eq!(refusal.reason, TOO_OLD);
        assert_eq!(refusal.metadata["host"], "h1");
        assert!(refusal.hint.is_some_and(|h| h.contains("h1")));
    }

    /// Goal: both sides are gated, and only for guests with a topology. Method: all combinations.
    #[test]
    fn the_gate_looks_at_both_sides() {
        for source in 1..=3 {
            for destination in 1..=3 {
                let (old, new) = (ServiceVersion(source), ServiceVersion(destination));
                assert!(live_migration_gate(false, old, new).is_ok());
                let result = live_migration_gate(true, old, new);
                assert_eq!(result.is_ok(), source >= 2 && destination >= 2);
                if let Err(refusal) = result {
                    assert_eq!(refusal.reason, TOO_OLD);
                    assert_eq!(refusal.message.contains("source"), source < 2);
                    assert_eq!(refusal.message.contains("destination"), destination < 2);
                }
            }
        }
    }
}
