//! PCI functions of hosts, and what guests request of them.

use berth_domain::flavor::{EXTRA_SPEC_LENGTH_MAX, EXTRA_SPECS_MAX};
use berth_domain::pci::{
    PCI_REQUESTS_MAX, PciAlias, PciAliases, PciDevice, PciId, PciKind, PciMatch, PciNumaPolicy,
    PciRequest,
};
use berth_domain::topology::{CellId, PCI_DEVICES_MAX};

use super::field::{self, Invalid, choices};
use super::name::ResourceName;
use crate::types::v1;

/// The most alternatives of a request.
const ALTERNATIVES_MAX: usize = 256;

choices!(PciKind => v1::PciKind { Pci, Virtual, Physical });

impl From<PciNumaPolicy> for v1::PciNumaPolicy {
    fn from(policy: PciNumaPolicy) -> Self {
        match policy {
            PciNumaPolicy::Required => Self::Required,
            PciNumaPolicy::Preferred => Self::Preferred,
            PciNumaPolicy::Legacy => Self::Legacy,
            PciNumaPolicy::Socket => Self::Socket,
        }
    }
}

impl From<v1::PciNumaPolicy> for PciNumaPolicy {
    fn from(policy: v1::PciNumaPolicy) -> Self {
        match policy {
            v1::PciNumaPolicy::Required => Self::Required,
            v1::PciNumaPolicy::Preferred => Self::Preferred,
            v1::PciNumaPolicy::Unspecified | v1::PciNumaPolicy::Legacy => Self::Legacy,
            v1::PciNumaPolicy::Socket => Self::Socket,
        }
    }
}

impl From<&PciDevice> for v1::PciDevice {
    fn from(device: &PciDevice) -> Self {
        Self {
            address: device.address.to_string(),
            vendor_id: device.vendor.to_string(),
            product_id: device.product.to_string(),
            cell: device.cell.map(|c| c.0),
            kind: v1::PciKind::from(device.kind).into(),
            parent: device.parent.map(|p| p.to_string()).unwrap_or_default(),
            tags: device.tags.clone(),
        }
    }
}

impl TryFrom<v1::PciDevice> for PciDevice {
    type Error = Invalid;

    fn try_from(wire: v1::PciDevice) -> Result<Self, Invalid> {
        let parent = (!wire.parent.is_empty()).then(|| wire.parent.parse());
        Ok(Self {
            address: wire
                .address
                .parse()
                .map_err(|e| Invalid::here(e).within("address"))?,
            vendor: id(&wire.vendor_id, "vendor_id")?,
            product: id(&wire.product_id, "product_id")?,
            cell: wire.cell.map(CellId),
            kind: field::choice::<v1::PciKind, _>(wire.kind, "kind")?,
            parent: parent
                .transpose()
                .map_err(|e| Invalid::here(e).within("parent"))?,
            tags: field::text_map(wire.tags, "tags", EXTRA_SPECS_MAX, EXTRA_SPEC_LENGTH_MAX)?,
        })
    }
}

impl From<&PciRequest> for v1::PciRequest {
    fn from(request: &PciRequest) -> Self {
        Self {
            count: request.count,
            any_of: request.any_of.iter().map(Into::into).collect(),
            policy: v1::PciNumaPolicy::from(request.policy).into(),
        }
    }
}

impl TryFrom<v1::PciRequest> for PciRequest {
    type Error = Invalid;

    fn try_from(wire: v1::PciRequest) -> Result<Self, Invalid> {
        if wire.count == 0 || wire.count as usize > PCI_DEVICES_MAX {
            let rule = format!("must be 1 to {PCI_DEVICES_MAX}");
            return Err(Invalid::new("count", rule));
        }
        let any_of = field::each(wire.any_of, "any_of", ALTERNATIVES_MAX)?;
        if any_of.is_empty() {
            return Err(Invalid::new("any_of", "must have at least one match"));
        }
        let policy = v1::PciNumaPolicy::try_from(wire.policy)
            .map_err(|_| Invalid::new("policy", "is not known"))?;
        Ok(Self {
            count: wire.count,
            any_of,
            policy: policy.into(),
        })
    }
}

impl From<&PciAlias> for v1::PciAlias {
    fn from(alias: &PciAlias) -> Self {
        let policy = alias
            .policy
            .map_or(v1::PciNumaPolicy::Unspecified, Into::into);
        Self {
            name: alias.name.resource_name(),
            any_of: alias.any_of.iter().map(Into::into).collect(),
            policy: policy.into(),
        }
    }
}

impl TryFrom<v1::PciAlias> for PciAlias {
    type Error = Invalid;

    fn try_from(wire: v1::PciAlias) -> Result<Self, Invalid> {
        let any_of = field::each(wire.any_of, "any_of", ALTERNATIVES_MAX)?;
        if any_of.is_empty() {
            return Err(Invalid::new("any_of", "must have at least one match"));
        }
        let policy = match v1::PciNumaPolicy::try_from(wire.policy) {
            Err(_) => return Err(Invalid::new("policy", "is not known")),
            Ok(v1::PciNumaPolicy::Unspecified) => None,
            Ok(policy) => Some(policy.into()),
        };
        Ok(Self {
            name: field::name(&wire.name, "name")?,
            any_of,
            policy,
        })
    }
}

/// Reads aliases, each name once.
pub(super) fn aliases(wire: Vec<v1::PciAlias>, field: &str) -> Result<PciAliases, Invalid> {
    let mut aliases = PciAliases::new();
    for alias in field::each::<_, PciAlias>(wire, field, PCI_REQUESTS_MAX)? {
        if let Some(twice) = aliases.insert(alias.name.clone(), alias) {
            return Err(Invalid::new(
                field,
                format!("{} is there twice", twice.name),
            ));
        }
    }
    Ok(aliases)
}

impl From<&PciMatch> for v1::PciMatch {
    fn from(requested: &PciMatch) -> Self {
        let id = |id: Option<PciId>| id.map(|id| id.to_string()).unwrap_or_default();
        let kind = requested.kind.map_or(v1::PciKind::Unspecified, Into::into);
        Self {
            vendor_id: id(requested.vendor),
            product_id: id(requested.product),
            kind: kind.into(),
            tags: requested.tags.clone(),
        }
    }
}

impl TryFrom<v1::PciMatch> for PciMatch {
    type Error = Invalid;

    fn try_from(wire: v1::PciMatch) -> Result<Self, Invalid> {
        let optional_id = |text: &str, field| (!text.is_empty()).then(|| id(text, field));
        let kind = match v1::PciKind::try_from(wire.kind) {
            Err(_) => return Err(Invalid::new("kind", "is not known")),
            Ok(v1::PciKind::Unspecified) => None,
            Ok(kind) => Some(kind.try_into()?),
        };
        Ok(Self {
            vendor: optional_id(&wire.vendor_id, "vendor_id").transpose()?,
            product: optional_id(&wire.product_id, "product_id").transpose()?,
            kind,
            tags: field::text_map(wire.tags, "tags", EXTRA_SPECS_MAX, EXTRA_SPEC_LENGTH_MAX)?,
        })
    }
}

fn id(text: &str, field: &str) -> Result<PciId, Invalid> {
    text.parse().map_err(|e| Invalid::here(e).within(field))
}
