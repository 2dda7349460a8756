//! Settings of the cluster, of groups and of hosts, whatever their terms are.

use std::collections::BTreeMap;

use berth_domain::policy::{TERMS_MAX, Terms};

use super::field::{self, Invalid};
use super::name::ResourceName;

/// Writes the terms of the cluster, unless they are empty.
pub(super) fn write_cluster<T: Terms, W: for<'a> From<&'a T>>(terms: &T) -> Option<W> {
    (!terms.is_empty()).then(|| terms.into())
}

/// Writes the terms of groups or hosts.
pub(super) fn write<N: ResourceName, T, W: for<'a> From<&'a T>>(
    terms: &BTreeMap<N, T>,
) -> BTreeMap<String, W> {
    let each = terms.iter();
    each.map(|(name, terms)| (name.resource_name(), terms.into()))
        .collect()
}

/// Reads the terms of groups or hosts.
pub(super) fn read<N: ResourceName + Ord, T: From<W>, W>(
    wire: BTreeMap<String, W>,
    field: &str,
) -> Result<BTreeMap<N, T>, Invalid> {
    field::bounded(wire.len(), field, TERMS_MAX)?;
    let each = wire.into_iter();
    each.map(|(name, terms)| Ok((field::name(&name, field)?, terms.into())))
        .collect()
}
