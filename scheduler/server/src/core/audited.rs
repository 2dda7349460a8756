//! What the audit notes of a request: the method, what it is about, and a few words.
//!
//! Only what is listed here is noted, never a whole message: what users write into images, disks
//! or properties stays out. What nobody asks for (reports, leases, steps of operations) is not
//! noted at all; what came of an operation stands in its own record.

use std::fmt::Display;

use berth_domain::audit::{Asked, Chosen, shortened};
use berth_domain::name::{HostName, VmName};
use berth_domain::policy::Scope;
use berth_selection::Choice;
use berth_state::command::{Command, ConsumerUpdate};

use super::request::{Ask, Request, ScheduleVm};

/// A request in a few words.
struct Words<'r> {
    method: &'static str,
    vm: Option<&'r VmName>,
    host: Option<&'r HostName>,
    summary: String,
}

/// Returns what is noted of a request, if anything is.
#[must_use]
pub fn asked(ask: &Ask, choice: Option<&Choice>) -> Option<Asked> {
    if ask.is_duty() {
        return None;
    }
    let words = match &ask.request {
        Request::ScheduleVm(wanted) => Some(Words {
            method: "ScheduleVm",
            vm: Some(&wanted.vm),
            host: wanted.host.as_ref(),
            summary: vm(wanted),
        }),
        Request::ScheduleMigration(wanted) => Some(Words {
            method: "ScheduleMigration",
            vm: Some(&wanted.vm),
            host: wanted.host.as_ref(),
            summary: String::new(),
        }),
        Request::ScheduleMove(wanted) => {
            let words = [("evacuate", wanted.evacuate), ("verify", wanted.verify)];
            let words = words.into_iter().filter(|(_, is_so)| *is_so);
            let mut words: Vec<_> = words.map(|(word, _)| word.to_owned()).collect();
            words.extend(wanted.flavor.iter().map(|f| format!("flavor={f}")));
            Some(Words {
                method: "ScheduleMove",
                vm: Some(&wanted.vm),
                host: wanted.host.as_ref(),
                summary: words.join(" "),
            })
        }
        Request::ScheduleUnshelve(wanted) => Some(Words {
            method: "ScheduleUnshelve",
            vm: Some(&wanted.vm),
            host: wanted.host.as_ref(),
            summary: String::new(),
        }),
        Request::ScheduleNext { operation, .. } => {
            some("ScheduleNext", format!("operation={operation}"))
        }
        Request::SetPolicy {
            scope, settings, ..
        } => {
            let settings = settings.iter().map(|setting| format!("{setting:?}"));
            let mut words: Vec<_> = settings.collect();
            if *scope != Scope::Cluster {
                words.push(format!("for {scope}"));
            }
            some("UpdateSchedulingPolicy", words.join(" "))
        }
        Request::CreateVolume(wanted) => some(
            "CreateVolume",
            format!(
                "volume={:?} kind={} required_bytes={} replicas={}",
                wanted.display_name.as_str(),
                wanted.kind,
                wanted.required_bytes,
                wanted.replicas
            ),
        ),
        Request::Plain(command) => plain(command),
    }?;
    Some(Asked {
        method: words.method.to_owned(),
        request_id: ask.key.as_ref().map(|key| key.id),
        vm: words.vm.cloned(),
        host: words.host.cloned(),
        summary: shortened(words.summary),
        choice: choice.map(chosen),
    })
}

fn some<'r>(method: &'static str, summary: String) -> Option<Words<'r>> {
    Some(Words {
        method,
        vm: None,
        host: None,
        summary,
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

fn vm(wanted: &ScheduleVm) -> String {
    let mut words = vec![format!("flavor={}", wanted.flavor)];
    let hints = &wanted.hints;
    words.extend(
        hints
            .server_group
            .iter()
            .map(|g| format!("server_group={g}")),
    );
    words.extend(hints.availability_zone.iter().map(|z| format!("zone={z}")));
    words.join(" ")
}

/// A command as it was asked for. One table, so that a new command has to say what is noted of it.
fn plain(command: &Command) -> Option<Words<'_>> {
    let about = |method, vm, host| {
        Some(Words {
            method,
            vm,
            host,
            summary: String::new(),
        })
    };
    let named = |method, what: &str, name: &dyn Display| some(method, format!("{what}={name}"));
    match command {
        Command::BeginDelete { vm, .. } => about("BeginDelete", Some(vm), None),
        Command::ConfirmResize { vm, .. } => about("ConfirmResize", Some(vm), None),
        Command::BeginRevertResize { vm, .. } => about("BeginRevertResize", Some(vm), None),
        Command::BeginShelve { vm, .. } => about("BeginShelve", Some(vm), None),
        Command::BeginPower { vm, kind, .. } => Some(Words {
            method: "BeginPower",
            vm: Some(vm),
            host: None,
            summary: format!("task={}", kind.task().unwrap_or_default()),
        }),
        Command::FinalizeUpgrade { version, .. } => named("FinalizeUpgrade", "version", version),
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
        Command::WriteOffPmem { host, namespace } => Some(Words {
            method: "WriteOffPmem",
            vm: None,
            host: Some(host),
            summary: format!("namespace={namespace}"),
        }),
        Command::DeleteVolume { volume, .. } => named("DeleteVolume", "volume", volume),
        Command::FenceHost { host, how, .. } => Some(Words {
            method: "FenceHost",
            vm: None,
            host: Some(host),
            summary: format!("how={how:?}"),
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
        Command::ImportProviders { source, providers } => some(
            "ImportResourceProviders",
            format!("source={source} providers={}", providers.len()),
        ),
        Command::ImportConsumers { source, consumers } => some(
            "ImportConsumers",
            format!("source={source} consumers={}", consumers.len()),
        ),
        // Users ask for these through a request of their own, or nobody does.
        Command::BeginBoot { .. }
        | Command::BeginMigration { .. }
        | Command::BeginMove { .. }
        | Command::BeginUnshelve { .. }
        | Command::Bootstrap { .. }
        | Command::RegisterHost { .. }
        | Command::SetLiveness { .. }
        | Command::NoteReality { .. }
        | Command::NoteErasures { .. }
        | Command::CreateVolume { .. }
        | Command::NoteVolumes { .. }
        | Command::RegisterService(_)
        | Command::TakeLease { .. }
        | Command::RenewLeases { .. }
        | Command::Advance { .. } => None,
    }
}

/// Names the consumer, or says how many there are.
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

    use super::*;

    fn noted(command: Command) -> Option<Asked> {
        asked(&Ask::new("me", Request::Plain(command)), None)
    }

    /// Goal: what somebody asks for is noted in bounded words, and what nobody asks for is not.
    #[test]
    fn what_is_asked_for_is_noted_in_few_words() {
        let flavor = FlavorName::new("small").unwrap();
        let asked = noted(Command::DeleteFlavor { flavor }).unwrap();
        assert_eq!(
            (&*asked.method, &*asked.summary),
            ("DeleteFlavor", "flavor=small")
        );
        let long = Command::ImportConsumers {
            source: "x".repeat(10_000),
            consumers: Vec::new(),
        };
        let summary = noted(long).unwrap().summary;
        assert!(
            summary.len() <= berth_domain::audit::SUMMARY_MAX,
            "{summary}"
        );
        let cordon = |cordoned| {
            let host = HostName::new("h1").unwrap();
            noted(Command::SetCordon { host, cordoned }).unwrap()
        };
        assert_eq!(cordon(true).method, "CordonHost");
        assert_eq!(cordon(false).method, "UncordonHost");
        assert_eq!(cordon(true).host.unwrap().as_str(), "h1");
        let renewed = Command::RenewLeases {
            conductor: berth_domain::name::ServiceName::new("c").unwrap(),
            leases: Vec::new(),
            ttl_ms: TimeMs(1).0,
        };
        assert_eq!(noted(renewed), None);
    }
}
