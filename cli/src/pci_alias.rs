//! `berth pci-alias`: names for PCI functions, so that flavors need not know vendors and numbers.

use berth_domain::pci::{PciAlias, PciNumaPolicy};
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::scheduler::v1::{
    CreatePciAliasRequest, DeletePciAliasRequest, GetPciAliasRequest, ListPciAliasesRequest,
};
use berth_proto::types::v1 as wire;

use crate::arguments::{PciAlias as Verb, PciPolicy};
use crate::output::Columns;
use crate::session::{Session, read_all, request_id, resource};
use crate::{all_pages, call, output, read};

/// The columns of the list.
pub(crate) const COLUMNS: Columns<3, 0> = Columns {
    usual: ["alias", "policy", "matches"],
    wide: [],
};

/// Runs the command.
///
/// # Errors
///
/// The scheduler's refusal.
pub async fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Create {
            alias,
            any_of,
            policy,
        } => {
            let policy = policy.map(|p| wire::PciNumaPolicy::from(PciNumaPolicy::from(p)));
            let alias = wire::PciAlias {
                name: resource("pciAliases", &alias),
                any_of: any_of.iter().map(Into::into).collect(),
                policy: policy.unwrap_or_default().into(),
            };
            let request = CreatePciAliasRequest {
                pci_alias: Some(alias),
                request_id: request_id(None),
            };
            let response = call!(session, SchedulerServiceClient, create_pci_alias, request)?;
            show(session, &response.pci_alias.unwrap_or_default().try_into()?)
        }
        Verb::List => {
            let request = ListPciAliasesRequest::default();
            let aliases = all_pages!(
                session,
                SchedulerServiceClient,
                list_pci_aliases,
                request,
                pci_aliases
            );
            list(session, &read_all(aliases)?)
        }
        Verb::Show { alias } => {
            let request = GetPciAliasRequest {
                name: resource("pciAliases", &alias),
                ..Default::default()
            };
            let response = read!(session, SchedulerServiceClient, get_pci_alias, request)?;
            show(session, &response.pci_alias.unwrap_or_default().try_into()?)
        }
        Verb::Delete { alias } => {
            let request = DeletePciAliasRequest {
                name: resource("pciAliases", &alias),
                request_id: request_id(None),
            };
            call!(session, SchedulerServiceClient, delete_pci_alias, request)?;
            let note = "VMs made with it keep their functions";
            let sentence = format!("pci alias {alias} is deleted; {note}");
            session.done(&resource("pciAliases", &alias), "deleted", sentence)
        }
    }
}

fn list(session: &Session, aliases: &[PciAlias]) -> anyhow::Result<()> {
    if session.for_programs() {
        return output::value(&aliases);
    }
    let rows = aliases
        .iter()
        .map(|alias| {
            let matches: Vec<String> = alias.any_of.iter().map(ToString::to_string).collect();
            let row = [
                alias.name.to_string(),
                policy(alias.policy).to_owned(),
                matches.join(" or "),
            ];
            (row, [])
        })
        .collect();
    output::list(&COLUMNS, rows, "there is no PCI alias")
}

fn show(session: &Session, alias: &PciAlias) -> anyhow::Result<()> {
    if session.for_programs() {
        return output::value(alias);
    }
    let mut fields = vec![
        ("pci alias", alias.name.to_string()),
        ("policy", policy(alias.policy).to_owned()),
    ];
    fields.extend(alias.any_of.iter().map(|m| ("match", m.to_string())));
    output::fields(&fields);
    Ok(())
}

/// Returns the word for a policy, as flavors write it.
fn policy(policy: Option<PciNumaPolicy>) -> &'static str {
    match policy {
        None => "-",
        Some(PciNumaPolicy::Required) => "required",
        Some(PciNumaPolicy::Preferred) => "preferred",
        Some(PciNumaPolicy::Legacy) => "legacy",
        Some(PciNumaPolicy::Socket) => "socket",
    }
}

impl From<PciPolicy> for PciNumaPolicy {
    fn from(policy: PciPolicy) -> Self {
        match policy {
            PciPolicy::Required => Self::Required,
            PciPolicy::Preferred => Self::Preferred,
            PciPolicy::Legacy => Self::Legacy,
            PciPolicy::Socket => Self::Socket,
        }
    }
}
