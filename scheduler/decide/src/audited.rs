//! What the audit log records of a request: the method, its target, and a short summary.
//!
//! Only what is listed here is recorded, never a whole message: what users write into images, disks
//! or properties stays out. Commands that no client requests (reports, leases, steps of operations)
//! are not recorded; the outcome of an operation is in its own record.

use std::fmt::Display;
use std::sync::Arc;

use berth_domain::audit::{Chosen, RequestSummary, shortened};
use berth_domain::name::{HostName, VmName};
use berth_domain::policy::{Scope, Setting};
use berth_domain::vm::RestartPolicy;
use berth_selection::Choice;
use berth_state::command::{Command, ConsumerUpdate};

use super::request::{Action, DecisionRequest, ScheduleVm};

/// The audit summary of a request.
struct Summary<'r> {
    method: &'static str,
    vm: Option<&'r VmName>,
    host: Option<&'r HostName>,
    text: String,
}

/// Returns what is recorded of a request, if anything is.
#[must_use]
pub fn audit_record(request: &DecisionRequest, choice: Option<&Choice>) -> Option<RequestSummary> {
    if request.is_duty() {
        return None;
    }
    let summary = match &request.action {
        Action::ScheduleVm(params) => Some(Summary {
            method: "ScheduleVm",
            vm: Some(&params.vm),
            host: params.host.as_ref(),
            text: vm_summary(params),
        }),
        Action::ScheduleMigration(params) => Some(Summary {
            method: "ScheduleMigration",
            vm: Some(&params.vm),
            host: params.host.as_ref(),
            text: String::new(),
        }),
        Action::ScheduleMove(params) => {
            let words = [("evacuate", params.evacuate), ("verify", params.verify)];
            let words = words.into_iter().filter(|(_, is_so)| *is_so);
            let mut words: Vec<_> = words.map(|(word, _)| word.to_owned()).collect();
            words.extend(params.flavor.iter().map(|f| format!("flavor={f}")));
            Some(Summary {
                method: "ScheduleMove",
                vm: Some(&params.vm),
                host: params.host.as_ref(),
                text: words.join(" "),
            })
        }
        Action::ScheduleUnshelve(params) => Some(Summary {
            method: "ScheduleUnshelve",
            vm: Some(&params.vm),
            host: params.host.as_ref(),
            text: String::new(),
        }),
        Action::MoveDrained(params) => Some(Summary {
            method: "MoveDrained",
            vm: Some(&params.vm),
            host: None,
            text: format!("operation={}", params.drain),
        }),
        Action::ScheduleNext { operation, .. } => {
            some("ScheduleNext", format!("operation={operation}"))
        }
        Action::SetPolicy {
            scope, settings, ..
        } => {
            let settings = settings.iter().map(Setting::describe);
            let mut words: Vec<_> = settings.collect();
            if *scope != Scope::Cluster {
                words.push(format!("for {scope}"));
            }
            some("UpdateSchedulingPolicy", words.join(" "))
        }
        Action::CreateVolume(params) => some(
            "CreateVolume",
            format!(
                "volume={:?} kind={} required_bytes={} replicas={}",
                params.display_name.as_str(),
                params.kind,
                params.required_bytes,
                params.replicas
            ),
        ),
        Action::Plain(command) => command_summary(command),
    }?;
    Some(RequestSummary {
        method: summary.method.to_owned(),
        request_id: request.key.as_ref().map(|key| key.id),
        vm: summary.vm.cloned(),
        host: summary.host.cloned(),
        summary: shortened(summary.text),
        choice: choice.map(chosen).map(Arc::new),
    })
}

fn some<'r>(method: &'static str, summary: String) -> Option<Summary<'r>> {
    Some(Summary {
        method,
        vm: None,
        host: None,
        text: summary,
    })
}

fn chosen(choice: &Choice) -> Chosen {
    Chosen {
        host: choice.host.clone(),
        hosts: choice.examined.hosts,
        passed: choice.examined.passed,
        tried: choice.examined.tried,
        ranking: choice.ranking.clone(),
    }
}

fn vm_summary(params: &ScheduleVm) -> String {
    let mut words = vec![format!("flavor={}", params.flavor)];
    let hints = &params.hints;
    words.extend(
        hints
            .server_group
            .iter()
            .map(|g| format!("server_group={g}")),
    );
    words.extend(hints.availability_zone.iter().map(|z| format!("zone={z}")));
    words.join(" ")
}

fn describe_restart(policy: &RestartPolicy) -> String {
    let RestartPolicy {
        on_crash,
        on_host_failure,
        priority,
        per_hour_max,
    } = policy;
    format!(
        "on_crash={} on_host_failure={} priority={priority} per_hour_max={per_hour_max}",
        on_crash.as_str(),
        on_host_failure.as_str(),
    )
}

/// Returns the summary of a command. One exhaustive table, so that every new command is decided on.
fn command_summary(command: &Command) -> Option<Summary<'_>> {
    let about = |method, vm, host| {
        Some(Summary {
            method,
            vm,
            host,
            text: String::new(),
        })
    };
    let named = |method, what: &str, name: &dyn Display| some(method, format!("{what}={name}"));
    match command {
        Command::BeginDelete { vm, .. } => about("BeginDelete", Some(vm), None),
        Command::ConfirmResize { vm, .. } => about("ConfirmResize", Some(vm), None),
        Command::BeginRevertResize { vm, .. } => about("BeginRevertResize", Some(vm), None),
        Command::BeginShelve { vm, .. } => about("BeginShelve", Some(vm), None),
        Command::BeginPower {
            vm,
            kind,
            by_policy,
            ..
        } => {
            let by = if *by_policy { " by_policy" } else { "" };
            Some(Summary {
                method: "BeginPower",
                vm: Some(vm),
                host: None,
                text: format!("task={}{by}", kind.task().unwrap_or_default()),
            })
        }
        Command::SetRestartPolicy { vm, policy } => Some(Summary {
            method: "UpdateRestartPolicy",
            vm: Some(vm),
            host: None,
            text: describe_restart(policy),
        }),
        Command::OpenConsole {
            vm,
            conductor,
            take_over,
        } => {
            let how = if *take_over { " take_over" } else { "" };
            Some(Summary {
                method: "OpenConsole",
                vm: Some(vm),
                host: None,
                text: format!("through={conductor}{how}"),
            })
        }
        Command::UpdateVm { vm, change } => Some(Summary {
            method: "UpdateVm",
            vm: Some(vm),
            host: None,
            text: change.describe(),
        }),
        Command::BeginDrain { host, spec, .. } => {
            let words = [
                ("evacuate", spec.evacuate),
                ("cold", spec.cold),
                ("by_policy", spec.by_policy),
            ];
            let words = words.into_iter().filter(|(_, is_so)| *is_so);
            let mut words: Vec<_> = words.map(|(word, _)| word.to_owned()).collect();
            words.push(format!("parallel={}", spec.parallel));
            Some(Summary {
                method: "BeginDrain",
                vm: None,
                host: Some(host),
                text: words.join(" "),
            })
        }
        Command::FinalizeUpgrade { version, .. } => named("FinalizeUpgrade", "version", version),
        // Never the secret.
        Command::ReplaceGrantKey { number, .. } => named("RotateGrantKey", "key", number),
        Command::RevokeCertificate(certificate) => some(
            "RevokeCertificate",
            format!(
                "fingerprint={} principal={}",
                certificate.fingerprint, certificate.principal
            ),
        ),
        Command::ReinstateCertificate { fingerprint } => {
            named("ReinstateCertificate", "fingerprint", fingerprint)
        }
        Command::UnregisterService { service } => named("UnregisterService", "service", service),
        Command::ForceComplete { operation } => {
            named("ForceCompleteOperation", "operation", operation)
        }
        Command::CancelOperation { operation } => named("CancelOperation", "operation", operation),
        Command::SetCordon { host, cordoned } => {
            let method = if *cordoned {
                "CordonHost"
            } else {
                "UncordonHost"
            };
            about(method, None, Some(host))
        }
        Command::WriteOffPmem { host, namespace } => Some(Summary {
            method: "WriteOffPmem",
            vm: None,
            host: Some(host),
            text: format!("namespace={namespace}"),
        }),
        Command::DeleteVolume { volume, .. } => named("DeleteVolume", "volume", volume),
        Command::FenceHost { host, method, .. } => Some(Summary {
            method: "FenceHost",
            vm: None,
            host: Some(host),
            text: format!("how={}", method.as_str()),
        }),
        Command::RemoveHost { host } => about("RemoveHost", None, Some(host)),
        Command::CreateFlavor(flavor) => named("CreateFlavor", "flavor", &flavor.name),
        Command::DeleteFlavor { flavor } => named("DeleteFlavor", "flavor", flavor),
        Command::CreateAggregate(new) => named("CreateAggregate", "aggregate", &new.name),
        Command::UpdateAggregate { aggregate, .. } => {
            named("UpdateAggregate", "aggregate", aggregate)
        }
        Command::DeleteAggregate { aggregate } => named("DeleteAggregate", "aggregate", aggregate),
        Command::CreateServerGroup(new) => named("CreateServerGroup", "server_group", &new.name),
        Command::DeleteServerGroup { group } => named("DeleteServerGroup", "server_group", group),
        Command::SetPolicy(_) => some("UpdateSchedulingPolicy", String::new()),
        Command::CreatePciAlias(alias) => named("CreatePciAlias", "pci_alias", &alias.name),
        Command::DeletePciAlias { alias } => named("DeletePciAlias", "pci_alias", alias),
        Command::CreateNetwork(network) => named("CreateNetwork", "network", &network.name),
        Command::DeleteNetwork { network } => named("DeleteNetwork", "network", network),
        Command::CreateImage(image) => named("CreateImage", "image", &image.name),
        Command::CompleteImage { image, host, .. } => {
            some("CompleteImage", format!("image={image} host={host}"))
        }
        Command::DeleteImage { image, .. } => named("DeleteImage", "image", image),
        Command::CreateProvider { id, name, .. } => some(
            "CreateResourceProvider",
            format!("provider={id} name={name}"),
        ),
        Command::UpdateProvider { id, .. } => named("UpdateResourceProvider", "provider", id),
        Command::DeleteProvider { id } => named("DeleteResourceProvider", "provider", id),
        Command::SetInventories { provider, .. } => {
            named("ReplaceInventories", "provider", provider)
        }
        Command::PutInventory {
            provider, class, ..
        } => some("PutInventory", format!("provider={provider} class={class}")),
        Command::DeleteInventory { provider, class } => some(
            "DeleteInventory",
            format!("provider={provider} class={class}"),
        ),
        Command::DeleteInventories { provider } => named("DeleteInventories", "provider", provider),
        Command::SetTraits { provider, .. } => named("ReplaceTraits", "provider", provider),
        Command::DeleteTraits { provider } => named("DeleteTraits", "provider", provider),
        Command::SetAggregates { provider, .. } => named("ReplaceAggregates", "provider", provider),
        Command::SetAllocations { consumers } => some("ReplaceAllocations", these(consumers)),
        Command::DeleteAllocations { consumer } => named("DeleteAllocations", "consumer", consumer),
        Command::Reshape {
            inventories,
            consumers,
        } => {
            let providers = inventories.len();
            some(
                "Reshape",
                format!("providers={providers} {}", these(consumers)),
            )
        }
        Command::Batch { writes } => named("BatchWrite", "writes", &writes.len()),
        Command::CreateClass { class } => named("CreateResourceClass", "class", class),
        Command::RenameClass { from, to } => {
            some("RenameResourceClass", format!("class={from} to={to}"))
        }
        Command::DeleteClass { class } => named("DeleteResourceClass", "class", class),
        Command::CreateTrait { name } => named("CreateTrait", "trait", name),
        Command::DeleteTrait { name } => named("DeleteTrait", "trait", name),
        Command::EndRecovery { accept_conflicts } => {
            named("EndRecovery", "accept_conflicts", accept_conflicts)
        }
        Command::ImportProviders { source, providers } => some(
            "ImportResourceProviders",
            format!("source={source} providers={}", providers.len()),
        ),
        Command::ImportConsumers { source, consumers } => some(
            "ImportConsumers",
            format!("source={source} consumers={}", consumers.len()),
        ),
        // Users request these through an action of their own, or no client requests them.
        Command::BeginBoot { .. }
        | Command::BeginMigration { .. }
        | Command::BeginMove { .. }
        | Command::BeginUnshelve { .. }
        | Command::MoveDrained { .. }
        | Command::RecordDrained { .. }
        | Command::Bootstrap { .. }
        | Command::RegisterHost { .. }
        | Command::SetLiveness { .. }
        | Command::NoteReality { .. }
        | Command::ReportGuests { .. }
        | Command::NoteErasures { .. }
        | Command::CreateVolume { .. }
        | Command::NoteVolumes { .. }
        | Command::RegisterService(_)
        | Command::TakeLease { .. }
        | Command::RenewLeases { .. }
        | Command::SetImageCopy { .. }
        | Command::Advance { .. } => None,
    }
}

/// Returns the consumer, or the number of consumers.
fn these(consumers: &[ConsumerUpdate]) -> String {
    match consumers {
        [one] => format!("consumer={} project={}", one.consumer, one.project),
        many => format!("consumers={}", many.len()),
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::id::TimeMs;
    use berth_domain::name::FlavorName;
    use berth_domain::vm::MetadataChange;

    use super::*;

    fn recorded(command: Command) -> Option<RequestSummary> {
        audit_record(&DecisionRequest::new("me", Action::Plain(command)), None)
    }

    /// Goal: clients' requests are recorded in bounded summaries, other commands are not.
    #[test]
    fn client_requests_are_recorded_in_short_summaries() {
        let flavor = FlavorName::new("small").unwrap();
        let record = recorded(Command::DeleteFlavor { flavor }).unwrap();
        assert_eq!(
            (&*record.method, &*record.summary),
            ("DeleteFlavor", "flavor=small")
        );
        let long = Command::ImportConsumers {
            source: "x".repeat(10_000),
            consumers: Vec::new(),
        };
        let summary = recorded(long).unwrap().summary;
        assert!(
            summary.len() <= berth_domain::audit::SUMMARY_MAX,
            "{summary}"
        );
        let cordon = |cordoned| {
            let host = HostName::new("h1").unwrap();
            recorded(Command::SetCordon { host, cordoned }).unwrap()
        };
        assert_eq!(cordon(true).method, "CordonHost");
        assert_eq!(cordon(false).method, "UncordonHost");
        assert_eq!(cordon(true).host.unwrap().as_str(), "h1");
        let updated = Command::UpdateVm {
            vm: VmName::new("a").unwrap(),
            change: MetadataChange {
                set_labels: [("team".to_owned(), "secret".to_owned())].into(),
                description: Some("private".to_owned()),
                protected: Some(false),
                ..MetadataChange::default()
            },
        };
        let record = recorded(updated).unwrap();
        assert_eq!(record.vm.unwrap().as_str(), "a");
        assert_eq!(
            (&*record.method, &*record.summary),
            (
                "UpdateVm",
                "protected=false description=7 bytes set_labels=team"
            )
        );
        let renewed = Command::RenewLeases {
            conductor: berth_domain::name::ServiceName::new("c").unwrap(),
            leases: Vec::new(),
            ttl_ms: TimeMs(1).0,
        };
        assert_eq!(recorded(renewed), None);
    }
}
