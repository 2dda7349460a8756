//! `berth vm set`: labels, descriptions and protections of VMs; and what `berth vm show` shows of them.

use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::{Feature, TOO_OLD};
use berth_domain::vm::{Metadata, MetadataChange, Vm};
use berth_proto::convert::vm_metadata::write_change;
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::scheduler::v1::{GetVmRequest, UpdateVmRequest};
use serde_json::json;

use super::{several, with_task};
use crate::arguments::{MetadataOptions, Run};
use crate::session::{Session, request_id, resource};
use crate::{call, output, read};

/// Changes what is written on VMs, one after the other.
pub(super) async fn set(
    session: &Session,
    vms: &[String],
    options: &MetadataOptions,
    id: Option<uuid::Uuid>,
) -> anyhow::Result<()> {
    let change = options.to_change()?;
    let run = Run {
        no_wait: false,
        request_id: id,
    };
    several::each(session, vms, &run, async |vm| {
        set_one(session, vm, &change, id).await
    })
    .await
}

async fn set_one(
    session: &Session,
    name: &str,
    change: &MetadataChange,
    id: Option<uuid::Uuid>,
) -> anyhow::Result<()> {
    let request = UpdateVmRequest {
        vm: resource("vms", name),
        request_id: request_id(id),
        ..write_change(change)
    };
    let response = call!(session, SchedulerServiceClient, update_vm, request)?;
    let wire = response.vm.unwrap_or_default();
    let task = wire.task.clone();
    let vm: Vm = wire.try_into()?;
    if session.for_programs() {
        return output::value(&json!({ "vm": with_task(&vm, &task)? }));
    }
    let mut lines = vec![("vm", vm.name.to_string())];
    lines.extend(fields(&vm.metadata));
    if !vm.metadata.protected {
        lines.push(("protected", "no".to_owned()));
    }
    output::fields(&lines);
    Ok(())
}

/// Checks that a new VM has what was to be written on it. A scheduler or a conductor of an earlier build of
/// the version drops it, and its version does not show that.
pub(super) async fn check_created(
    session: &Session,
    name: &str,
    requested: &Metadata,
) -> anyhow::Result<()> {
    if requested.is_default() {
        return Ok(());
    }
    let request = GetVmRequest {
        name: resource("vms", name),
        ..Default::default()
    };
    let created: Vm = match read!(session, SchedulerServiceClient, get_vm, request) {
        Ok(response) => response.vm.unwrap_or_default().try_into()?,
        // A request that was repeated, of a VM that was deleted since.
        Err(refusal) if refusal.code == Code::NotFound => return Ok(()),
        Err(refusal) => return Err(refusal.into()),
    };
    match dropped(name, requested, &created.metadata) {
        Some(refusal) => Err(refusal.into()),
        None => Ok(()),
    }
}

/// Returns the refusal of a VM that was created without what was requested. What has another value was
/// changed since, and was not dropped.
fn dropped(name: &str, requested: &Metadata, created: &Metadata) -> Option<Refusal> {
    let labels = !requested.labels.is_empty() && created.labels.is_empty();
    let description = !requested.description.is_empty() && created.description.is_empty();
    let protection = requested.protected && !created.protected;
    let parts = [
        (labels, "its labels"),
        (description, "its description"),
        (protection, "its protection"),
    ];
    let parts = parts.iter().filter(|(is_dropped, _)| *is_dropped);
    let parts: Vec<&str> = parts.map(|(_, part)| *part).collect();
    if parts.is_empty() {
        return None;
    }
    let needed = Feature::VmMetadata.needs();
    let message = format!(
        "vm {name} was created without {}: a scheduler or a conductor is of a build from before service \
         version {needed} had them, and dropped them",
        parts.join(", ")
    );
    let hint = format!(
        "upgrade all schedulers and conductors to Berth {}, then set them with `berth vm set {name}`",
        env!("CARGO_PKG_VERSION")
    );
    let refusal = Refusal::new(Code::FailedPrecondition, TOO_OLD, message).with_hint(hint);
    Some(refusal.with("vm", name).with("needed_version", needed))
}

/// Returns the lines of a VM about what is written on it.
pub(super) fn fields(metadata: &Metadata) -> Vec<(&'static str, String)> {
    let mut fields = Vec::new();
    if metadata.protected {
        fields.push(("protected", "from deletion and rebuild".to_owned()));
    }
    let labels = metadata.labels.iter();
    fields.extend(labels.map(|(key, value)| ("label", format!("{key}={value}"))));
    if !metadata.description.is_empty() {
        fields.push(("description", metadata.description.clone()));
    }
    fields
}

/// Returns the labels of a VM as a column of a table.
pub(super) fn labels(metadata: &Metadata) -> String {
    if metadata.labels.is_empty() {
        return "-".to_owned();
    }
    let labels = metadata.labels.iter();
    let labels: Vec<String> = labels
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    labels.join(",")
}

/// Returns whether a VM is protected, as a column of a table.
pub(super) fn protected(metadata: &Metadata) -> String {
    if metadata.protected { "yes" } else { "no" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what an older build dropped is named, with the version that has it; what was changed since the
    /// creation is no fault.
    #[test]
    fn what_was_dropped_is_named_with_the_version() {
        let requested = Metadata {
            labels: [("team".to_owned(), "blue".to_owned())].into(),
            description: "orders".to_owned(),
            protected: true,
        };
        let refusal = dropped("a", &requested, &Metadata::default()).unwrap();
        assert_eq!(refusal.reason, TOO_OLD);
        for part in [
            "vm a was created without its labels, its description, its protection",
            "service version 4",
        ] {
            assert!(refusal.message.contains(part), "{refusal}");
        }
        let hint = refusal.hint.unwrap();
        assert!(hint.contains(env!("CARGO_PKG_VERSION")), "{hint}");
        let unprotected = Metadata {
            protected: false,
            ..requested.clone()
        };
        let refusal = dropped("a", &requested, &unprotected).unwrap();
        assert!(refusal.message.contains("without its protection:"));
        assert_eq!(dropped("a", &unprotected, &requested), None);
        let changed = Metadata {
            labels: [("team".to_owned(), "red".to_owned())].into(),
            ..requested.clone()
        };
        assert_eq!(dropped("a", &requested, &changed), None);
    }
}
