//! The refusals that more than one command gives.

use std::fmt::Display;

use berth_domain::id::OperationId;
use berth_domain::name::{HostName, ServerGroupName, VmName};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::{CLUSTER_TOO_OLD, ServiceVersion};

/// Something is in the wrong state for this.
pub(crate) fn precondition(reason: &str, message: impl Into<String>) -> Refusal {
    Refusal::new(Code::FailedPrecondition, reason, message)
}

/// The command itself is wrong.
pub(crate) fn invalid(reason: &str, message: impl Into<String>) -> Refusal {
    Refusal::new(Code::InvalidArgument, reason, message)
}

/// The thing exists already.
pub(crate) fn exists(kind: &str, name: impl Display) -> Refusal {
    let reason = format!("{}_EXISTS", kind.to_uppercase());
    Refusal::new(
        Code::AlreadyExists,
        &reason,
        format!("{} {name} exists already", kind.replace('_', " ")),
    )
    .with(kind, name)
}

/// The cluster version has no such thing yet.
pub(crate) fn cluster_too_old(
    what: &str,
    present: ServiceVersion,
    needed: ServiceVersion,
) -> Refusal {
    let message = format!("{what} requires cluster version {needed}, the cluster is at {present}");
    precondition(CLUSTER_TOO_OLD, message)
        .with("cluster_version", present)
        .with("needed_version", needed)
}

/// Another operation works on the VM.
pub(crate) fn vm_busy(vm: &VmName, operation: OperationId) -> Refusal {
    precondition(
        "VM_BUSY",
        format!("operation {operation} is at work on vm {vm}"),
    )
    .with_hint("wait for that operation, or cancel it")
    .with("vm", vm)
    .with("operation", operation)
}

/// Another operation drains the host.
pub(crate) fn host_is_drained(host: &HostName, operation: OperationId) -> Refusal {
    precondition(
        "HOST_IS_DRAINED",
        format!("operation {operation} drains host {host}"),
    )
    .with_hint(format!(
        "`berth operation wait {operation}` waits for its end, `berth operation cancel {operation}` \
         cancels it"
    ))
    .with("host", host)
    .with("operation", operation)
}

/// There is no such server group.
#[must_use]
pub fn group_not_found(name: &ServerGroupName) -> Refusal {
    Refusal::new(
        Code::NotFound,
        "SERVER_GROUP_NOT_FOUND",
        format!("server group {name} does not exist"),
    )
    .with_hint("the server groups that exist are listed by `berth server-group list`")
    .with("server_group", name)
}

/// There is such a server group already.
pub(crate) fn group_exists(name: &ServerGroupName) -> Refusal {
    Refusal::new(
        Code::AlreadyExists,
        "SERVER_GROUP_EXISTS",
        format!("server group {name} exists already"),
    )
    .with("server_group", name)
}

/// A service does not support a cluster version.
#[must_use]
pub fn upgrade_incomplete(version: ServiceVersion, behind: &[String]) -> Refusal {
    precondition(
        "UPGRADE_INCOMPLETE",
        format!(
            "the cluster version cannot be raised to {version}: behind are {}",
            behind.join(", ")
        ),
    )
    .with_hint(
        "upgrade them, remove members that are lost (`berth cluster remove-member`), and name \
         conductors that are gone (`--gone`)",
    )
    .with("wanted_version", version)
    .with("behind", behind.join(", "))
}
