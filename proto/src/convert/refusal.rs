//! Refusals.

use berth_domain::refusal::{Code, HOSTS_MAX, HostRefusal, Missing, Refusal};
use berth_domain::topology::CellId;

use super::field::{self, Invalid, LIST_MAX, MESSAGE_MAX, choices};
use super::name::ResourceName;
use crate::types::v1;

choices!(Code => v1::refusal::Code {
    InvalidArgument,
    NotFound,
    AlreadyExists,
    FailedPrecondition,
    Aborted,
    ResourceExhausted,
    OutOfRange,
    Unavailable,
    DeadlineExceeded,
    Cancelled,
    PermissionDenied,
    Internal,
    Unimplemented,
});

impl From<&Refusal> for v1::Refusal {
    fn from(refusal: &Refusal) -> Self {
        Self {
            code: v1::refusal::Code::from(refusal.code).into(),
            reason: refusal.reason.clone(),
            message: refusal.message.clone(),
            hint: refusal.hint.clone(),
            metadata: refusal.metadata.clone(),
            causes: refusal.causes.clone(),
            hosts: refusal.hosts.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::Refusal> for Refusal {
    type Error = Invalid;

    fn try_from(wire: v1::Refusal) -> Result<Self, Invalid> {
        let hint = |hint| field::text(hint, "hint", MESSAGE_MAX);
        field::bounded(wire.causes.len(), "causes", LIST_MAX)?;
        Ok(Self {
            code: field::choice::<v1::refusal::Code, _>(wire.code, "code")?,
            reason: field::text(wire.reason, "reason", MESSAGE_MAX)?,
            message: field::text(wire.message, "message", MESSAGE_MAX)?,
            hint: wire.hint.map(hint).transpose()?,
            // A detail of its own: see `crate::status`.
            change: None,
            metadata: field::text_map(wire.metadata, "metadata", LIST_MAX, MESSAGE_MAX)?,
            causes: wire.causes,
            hosts: field::each(wire.hosts, "hosts", HOSTS_MAX)?,
        })
    }
}

impl From<&HostRefusal> for v1::HostRefusal {
    fn from(refusal: &HostRefusal) -> Self {
        Self {
            host: refusal.host.resource_name(),
            cause: refusal.cause.clone(),
            message: refusal.message.clone(),
            guest_cell: refusal.guest_cell,
            host_cell: refusal.host_cell.map(|c| c.0),
            missing: refusal.missing.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<v1::HostRefusal> for HostRefusal {
    type Error = Invalid;

    fn try_from(wire: v1::HostRefusal) -> Result<Self, Invalid> {
        Ok(Self {
            host: field::name(&wire.host, "host")?,
            cause: field::text(wire.cause, "cause", MESSAGE_MAX)?,
            message: field::text(wire.message, "message", MESSAGE_MAX)?,
            guest_cell: wire.guest_cell,
            host_cell: wire.host_cell.map(CellId),
            missing: field::optional(wire.missing, "missing")?,
        })
    }
}

impl From<&Missing> for v1::Shortfall {
    fn from(missing: &Missing) -> Self {
        Self {
            resource: missing.resource.clone(),
            requested: missing.requested,
            available: missing.available,
        }
    }
}

impl TryFrom<v1::Shortfall> for Missing {
    type Error = Invalid;

    fn try_from(wire: v1::Shortfall) -> Result<Self, Invalid> {
        Ok(Self {
            resource: field::text(wire.resource, "resource", MESSAGE_MAX)?,
            requested: wire.requested,
            available: wire.available,
        })
    }
}
