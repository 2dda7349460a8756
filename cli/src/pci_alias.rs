//! `berth pci-alias`: names for PCI functions, so that flavors need not know vendors and numbers.

use berth_domain::pci::{LIVE_MIGRATABLE, PciAlias, PciId, PciKind, PciMatch, PciNumaPolicy};
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::scheduler::v1::{
    CreatePciAliasRequest, DeletePciAliasRequest, GetPciAliasRequest, ListPciAliasesRequest,
};
use berth_proto::types::v1 as wire;

use crate::arguments::{PciAlias as Verb, PciPolicy};
use crate::session::{Session, read_all, request_id, resource};
use crate::{all_pages, call, output, read};

/// The network that a function is connected to.
const NETWORK: &str = "physical_network";
/// The prefix of any other tag's name.
const TAG: &str = "tag:";

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
            output::message(format!(
                "pci alias {alias} is deleted; VMs made with it keep their functions"
            ));
            Ok(())
        }
    }
}

fn list(session: &Session, aliases: &[PciAlias]) -> anyhow::Result<()> {
    if session.json() {
        return output::json(&aliases);
    }
    let rows = aliases
        .iter()
        .map(|alias| {
            let matches: Vec<String> = alias.any_of.iter().map(ToString::to_string).collect();
            [
                alias.name.to_string(),
                policy(alias.policy).to_owned(),
                matches.join(" or "),
            ]
        })
        .collect();
    let head = ["alias", "policy", "matches"];
    output::table(head, rows, "there is no PCI alias");
    Ok(())
}

fn show(session: &Session, alias: &PciAlias) -> anyhow::Result<()> {
    if session.json() {
        return output::json(alias);
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

/// Reads `vendor_id=8086,product_id=154c,kind=vf`.
///
/// # Errors
///
/// Names the part that is wrong, and what is allowed.
pub fn parse_match(text: &str) -> Result<PciMatch, String> {
    let mut pattern = PciMatch::default();
    for part in text.split(',') {
        let (key, value) = part
            .split_once('=')
            .ok_or_else(|| format!("{part:?} is not KEY=VALUE"))?;
        let id = || value.parse::<PciId>().map_err(|error| error.to_string());
        let twice = match key {
            "vendor_id" => pattern.vendor.replace(id()?).is_some(),
            "product_id" => pattern.product.replace(id()?).is_some(),
            "kind" => pattern.kind.replace(kind(value)?).is_some(),
            _ => {
                let tag = match key.strip_prefix(TAG) {
                    Some(tag) => tag,
                    None if key == NETWORK || key == LIVE_MIGRATABLE => key,
                    None => {
                        return Err(format!(
                            "{key:?} is not known; known are vendor_id, product_id, kind, \
                             {NETWORK}, {LIVE_MIGRATABLE} and {TAG}NAME"
                        ));
                    }
                };
                let tags = &mut pattern.tags;
                tags.insert(tag.to_owned(), value.to_owned()).is_some()
            }
        };
        if twice {
            return Err(format!("{key} is there twice"));
        }
    }
    Ok(pattern)
}

/// Reads a kind, also as OpenStack Nova writes it.
fn kind(text: &str) -> Result<PciKind, String> {
    match text.to_ascii_lowercase().as_str() {
        "pci" | "type-pci" => Ok(PciKind::Pci),
        "vf" | "type-vf" => Ok(PciKind::Virtual),
        "pf" | "type-pf" => Ok(PciKind::Physical),
        _ => Err(format!("kind {text:?} must be pci, vf or pf")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is typed becomes a match, and what is wrong is named.
    #[test]
    fn matches_are_read() {
        let shown = |text: &str| parse_match(text).map(|m| m.to_string());
        for (text, expected) in [
            ("vendor_id=8086,product_id=154c,kind=vf", "8086:154c (VF)"),
            ("kind=type-PF", "*:* (PF)"),
            ("vendor_id=10DE", "10de:*"),
            (
                "physical_network=blue,live_migratable=yes,tag:rack=7",
                "*:* live_migratable=yes physical_network=blue rack=7",
            ),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(expected), "{text}");
        }
        for (text, words) in [
            ("", "\"\" is not KEY=VALUE"),
            ("8086:154c", "is not KEY=VALUE"),
            ("vendor_id=0x8086", "four hexadecimal digits"),
            ("vendor_id=", "four hexadecimal digits"),
            ("kind=nic", "must be pci, vf or pf"),
            ("vendor=8086", "known are vendor_id"),
            ("vendor_id=8086,vendor_id=8086", "vendor_id is there twice"),
            ("tag:a=1,tag:a=2", "tag:a is there twice"),
            ("kind=vf,", "is not KEY=VALUE"),
        ] {
            let error = shown(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
