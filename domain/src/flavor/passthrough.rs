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
/// The most functions that one alias can be requested.
const COUNT_MAX: u32 = 256;

/// Some functions of one alias.
pub(super) struct AliasRequest {
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
pub(super) fn parse_aliases(text: &str) -> Result<Vec<AliasRequest>, String> {
    let each = text.split(',').map(|part| {
        let (name, count) = part.trim().split_once(':')?;
        Some(AliasRequest {
            alias: PciAliasName::new(name.trim()).ok()?,
            count: text::small(count.trim(), COUNT_MAX).ok()?,
        })
    });
    let requested: Option<Vec<_>> = each.collect();
    requested.ok_or_else(|| {
        format!("must be PCI aliases with their counts, 1 to {COUNT_MAX}, as gpu:2,nic:1")
    })
}

/// Returns the aliases that a flavor names; none where the value is invalid.
pub(super) fn named(flavor: &Flavor) -> BTreeSet<PciAliasName> {
    let setting = flavor.extra_specs.get(ALIAS);
    let requested = setting.and_then(|text| parse_aliases(text).ok());
    requested.into_iter().flatten().map(|w| w.alias).collect()
}

/// Returns the policy of flavor or image; both must agree.
pub(super) fn evaluate_policy(
    settings: &Settings<'_>,
    faults: &mut Faults,
) -> Option<PciNumaPolicy> {
    let setting = &settings.pci_policy;
    if let (Some(flavor), Some(image)) = (setting.flavor, setting.image)
        && flavor.value != image.value
    {
        let rule = format!("contradicts the flavor's hw:{POLICY}={}", flavor.text);
        faults.add(&Side::Image.named(POLICY), image.text, rule);
    }
    setting.value()
}

/// Returns the functions that are requested. Without `aliases` nothing is looked up: the names
/// that a flavor uses need not exist yet when it is made.
pub(super) fn evaluate(
    settings: &Settings<'_>,
    policy: Option<PciNumaPolicy>,
    aliases: Option<&PciAliases>,
    faults: &mut Faults,
) -> Vec<PciRequest> {
    let (Some(setting), Some(aliases)) = (&settings.pci_aliases, aliases) else {
        return Vec::new();
    };
    let mut requests = Vec::new();
    for requested in &setting.value {
        let Some(alias) = aliases.get(&requested.alias) else {
            let rule = "is not a PCI alias of this cluster";
            faults.add(&Side::Flavor.field(ALIAS), &requested.alias, rule);
            continue;
        };
        requests.push(PciRequest {
            count: requested.count,
            any_of: alias.any_of.clone(),
            policy: policy.or(alias.policy).unwrap_or_default(),
        });
    }
    requests
}
