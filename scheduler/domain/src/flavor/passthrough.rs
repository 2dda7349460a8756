//! `pci_passthrough:alias` and `hw:pci_numa_affinity_policy`: PCI functions for the guest.

use std::collections::BTreeSet;

use super::faults::Faults;
use super::settings::Settings;
use super::{Flavor, Side, text};
use crate::name::PciAliasName;
use crate::pci::{PciAliases, PciNumaPolicy, PciRequest};

/// The name of the policy's setting.
const POLICY: &str = "pci_numa_affinity_policy";
/// The key of the list of aliases.
const ALIAS: &str = "pci_passthrough:alias";
/// The most functions that one alias can be asked for.
const COUNT_MAX: u32 = 256;

/// Some functions of one alias.
pub(super) struct Wanted {
    alias: PciAliasName,
    count: u32,
}

pub(super) fn parse_policy(text: &str) -> Result<PciNumaPolicy, String> {
    match text {
        "required" => Ok(PciNumaPolicy::Required),
        "preferred" => Ok(PciNumaPolicy::Preferred),
        "legacy" => Ok(PciNumaPolicy::Legacy),
        "socket" => Ok(PciNumaPolicy::Socket),
        _ => Err("must be required, preferred, legacy or socket".to_owned()),
    }
}

/// Reads `NAME:COUNT[,NAME:COUNT…]`.
pub(super) fn parse_aliases(text: &str) -> Result<Vec<Wanted>, String> {
    let each = text.split(',').map(|part| {
        let (name, count) = part.trim().split_once(':')?;
        Some(Wanted {
            alias: PciAliasName::new(name.trim()).ok()?,
            count: text::small(count.trim(), COUNT_MAX).ok()?,
        })
    });
    let wanted: Option<Vec<_>> = each.collect();
    wanted.ok_or_else(|| {
        format!("must be PCI aliases with their counts, 1 to {COUNT_MAX}, as gpu:2,nic:1")
    })
}

/// Returns the aliases that a flavor names; none where what it says is not understood.
pub(super) fn named(flavor: &Flavor) -> BTreeSet<PciAliasName> {
    let said = flavor.extra_specs.get(ALIAS);
    let wanted = said.and_then(|text| parse_aliases(text).ok());
    wanted.into_iter().flatten().map(|w| w.alias).collect()
}

/// Returns the policy that flavor or image says: both the same, if both do.
pub(super) fn judge_policy(settings: &Settings<'_>, faults: &mut Faults) -> Option<PciNumaPolicy> {
    let said = &settings.pci_policy;
    if let (Some(flavor), Some(image)) = (said.flavor, said.image)
        && flavor.value != image.value
    {
        let rule = format!("contradicts the flavor's hw:{POLICY}={}", flavor.text);
        faults.add(&Side::Image.named(POLICY), image.text, rule);
    }
    said.value()
}

/// Returns the functions that are asked for. Without `aliases` nothing is looked up: the names
/// that a flavor uses need not exist yet when it is made.
pub(super) fn judge(
    settings: &Settings<'_>,
    policy: Option<PciNumaPolicy>,
    aliases: Option<&PciAliases>,
    faults: &mut Faults,
) -> Vec<PciRequest> {
    let (Some(said), Some(aliases)) = (&settings.pci_aliases, aliases) else {
        return Vec::new();
    };
    let mut requests = Vec::new();
    for wanted in &said.value {
        let Some(alias) = aliases.get(&wanted.alias) else {
            let rule = "is not a PCI alias of this cluster";
            faults.add(&Side::Flavor.field(ALIAS), &wanted.alias, rule);
            continue;
        };
        requests.push(PciRequest {
            count: wanted.count,
            any_of: alias.any_of.clone(),
            policy: policy.or(alias.policy).unwrap_or_default(),
        });
    }
    requests
}
