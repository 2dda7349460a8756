//! Transfer policies, overrides and progress.
//!
//! Invariant: what is as by default is absent on the wire, so that a cluster in which nothing of it
//! is used writes what it wrote before there was any of it.

use berth_domain::policy::MigrationPolicy;
use berth_domain::transfer::{
    Amount, DiskCopy, HOSTS_TRIED_DEFAULT, Phase, TimeoutAction, TransferOverrides, TransferPolicy,
    TransferProgress, Tried,
};

use super::field::{self, Invalid, choices};
use super::name::ResourceName;
use crate::policy::v1 as policy;
use crate::types::v1;

choices!(TimeoutAction => v1::TimeoutAction { Abort, ForceComplete, PostCopy });
choices!(Phase => v1::transfer_progress::Phase { Setup, PreCopy, PostCopy, Switch });

/// Writes a policy, unless it is the default.
#[must_use]
pub fn write_policy(policy: &TransferPolicy) -> Option<v1::TransferPolicy> {
    (*policy != TransferPolicy::default()).then(|| policy.into())
}

/// Reads a policy; absent, it is the default.
///
/// # Errors
///
/// When it is not valid.
pub fn read_policy(
    wire: Option<v1::TransferPolicy>,
    field: &str,
) -> Result<TransferPolicy, Invalid> {
    Ok(field::optional(wire, field)?.unwrap_or_default())
}

/// Writes how many hosts are tried, unless it is the default.
#[must_use]
pub fn write_hosts_tried(most: u32) -> u32 {
    if most == HOSTS_TRIED_DEFAULT { 0 } else { most }
}

/// Reads how many hosts are tried.
#[must_use]
pub fn read_hosts_tried(wire: u32) -> u32 {
    if wire == 0 { HOSTS_TRIED_DEFAULT } else { wire }
}

impl From<&TransferPolicy> for v1::TransferPolicy {
    fn from(policy: &TransferPolicy) -> Self {
        Self {
            bandwidth_mib_per_s_max: policy.bandwidth_mib_per_s_max,
            downtime_ms_max: policy.downtime_ms_max,
            auto_converge: policy.auto_converge,
            post_copy: policy.post_copy,
            timeout_ms: policy.timeout_ms,
            timeout_action: v1::TimeoutAction::from(policy.timeout_action).into(),
        }
    }
}

impl TryFrom<v1::TransferPolicy> for TransferPolicy {
    type Error = Invalid;

    fn try_from(wire: v1::TransferPolicy) -> Result<Self, Invalid> {
        let action = field::choice::<v1::TimeoutAction, _>(wire.timeout_action, "timeout_action")?;
        Ok(Self {
            bandwidth_mib_per_s_max: wire.bandwidth_mib_per_s_max,
            downtime_ms_max: wire.downtime_ms_max,
            auto_converge: wire.auto_converge,
            post_copy: wire.post_copy,
            timeout_ms: wire.timeout_ms,
            timeout_action: action,
        })
    }
}

impl From<&TransferOverrides> for v1::TransferOverrides {
    fn from(overrides: &TransferOverrides) -> Self {
        let action = overrides.timeout_action.map(v1::TimeoutAction::from);
        Self {
            bandwidth_mib_per_s_max: overrides.bandwidth_mib_per_s_max,
            downtime_ms_max: overrides.downtime_ms_max,
            auto_converge: overrides.auto_converge,
            post_copy: overrides.post_copy,
            timeout_ms: overrides.timeout_ms,
            timeout_action: action.unwrap_or_default().into(),
        }
    }
}

impl TryFrom<v1::TransferOverrides> for TransferOverrides {
    type Error = Invalid;

    fn try_from(wire: v1::TransferOverrides) -> Result<Self, Invalid> {
        let unspecified = i32::from(v1::TimeoutAction::Unspecified);
        let action = (wire.timeout_action != unspecified)
            .then(|| field::choice::<v1::TimeoutAction, _>(wire.timeout_action, "timeout_action"));
        Ok(Self {
            bandwidth_mib_per_s_max: wire.bandwidth_mib_per_s_max,
            downtime_ms_max: wire.downtime_ms_max,
            auto_converge: wire.auto_converge,
            post_copy: wire.post_copy,
            timeout_ms: wire.timeout_ms,
            timeout_action: action.transpose()?,
        })
    }
}

impl From<&MigrationPolicy> for policy::MigrationPolicy {
    fn from(migration: &MigrationPolicy) -> Self {
        Self {
            transfer: write_policy(&migration.transfer),
            hosts_tried_max: write_hosts_tried(migration.hosts_tried_max),
        }
    }
}

impl TryFrom<policy::MigrationPolicy> for MigrationPolicy {
    type Error = Invalid;

    fn try_from(wire: policy::MigrationPolicy) -> Result<Self, Invalid> {
        Ok(Self {
            transfer: read_policy(wire.transfer, "transfer")?,
            hosts_tried_max: read_hosts_tried(wire.hosts_tried_max),
        })
    }
}

fn write_amount(amount: &Amount) -> Option<v1::TransferAmount> {
    (*amount != Amount::default()).then_some(v1::TransferAmount {
        total_bytes: amount.total,
        processed_bytes: amount.processed,
        remaining_bytes: amount.remaining,
    })
}

fn read_amount(wire: Option<v1::TransferAmount>) -> Amount {
    let wire = wire.unwrap_or_default();
    Amount {
        total: wire.total_bytes,
        processed: wire.processed_bytes,
        remaining: wire.remaining_bytes,
    }
}

impl From<&TransferProgress> for v1::TransferProgress {
    fn from(progress: &TransferProgress) -> Self {
        Self {
            phase: v1::transfer_progress::Phase::from(progress.phase).into(),
            memory: write_amount(&progress.memory),
            disk: write_amount(&progress.disk),
            dirty_bytes_per_s: progress.dirty_bytes_per_s,
            bytes_per_s: progress.bytes_per_s,
            elapsed_ms: progress.elapsed_ms,
            downtime_ms: progress.downtime_ms,
            iteration: progress.iteration,
        }
    }
}

impl TryFrom<v1::TransferProgress> for TransferProgress {
    type Error = Invalid;

    fn try_from(wire: v1::TransferProgress) -> Result<Self, Invalid> {
        Ok(Self {
            phase: field::choice::<v1::transfer_progress::Phase, _>(wire.phase, "phase")?,
            memory: read_amount(wire.memory),
            disk: read_amount(wire.disk),
            dirty_bytes_per_s: wire.dirty_bytes_per_s,
            bytes_per_s: wire.bytes_per_s,
            elapsed_ms: wire.elapsed_ms,
            downtime_ms: wire.downtime_ms,
            iteration: wire.iteration,
        })
    }
}

impl From<&DiskCopy> for v1::DiskCopy {
    fn from(copy: &DiskCopy) -> Self {
        Self {
            index: copy.index,
            virtual_bytes: copy.virtual_bytes,
        }
    }
}

impl TryFrom<v1::DiskCopy> for DiskCopy {
    type Error = Invalid;

    fn try_from(wire: v1::DiskCopy) -> Result<Self, Invalid> {
        Ok(Self {
            index: wire.index,
            virtual_bytes: wire.virtual_bytes,
        })
    }
}

impl From<&Tried> for v1::Tried {
    fn from(tried: &Tried) -> Self {
        Self {
            host: tried.host.resource_name(),
            refusal: Some((&tried.refusal).into()),
        }
    }
}

impl TryFrom<v1::Tried> for Tried {
    type Error = Invalid;

    fn try_from(wire: v1::Tried) -> Result<Self, Invalid> {
        Ok(Self {
            host: field::name(&wire.host, "host")?,
            refusal: field::required(wire.refusal, "refusal")?,
        })
    }
}
