//! `berth vm set`: labels, descriptions and protections of VMs; and what `berth vm show` shows of them.

use berth_domain::vm::{Metadata, MetadataChange, Vm};
use berth_proto::convert::vm_metadata::write_change;
use berth_proto::scheduler::v1::UpdateVmRequest;
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use serde_json::json;

use super::{several, with_task};
use crate::arguments::{MetadataOptions, Run};
use crate::session::{Session, request_id, resource};
use crate::{call, output};

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
