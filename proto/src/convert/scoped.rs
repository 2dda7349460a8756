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

/// Implements the conversions of a policy with these terms between domain and wire, where both name it, its
/// terms and their values alike. The rule says what is wrong with one that is out of its bounds.
macro_rules! scoped_policy {
    ($policy:ident, $terms:ident { $($value:ident),+ }, $rule:literal) => {
        impl From<&$terms> for v1::$terms {
            fn from(terms: &$terms) -> Self {
                Self { $($value: terms.$value),+ }
            }
        }

        impl From<v1::$terms> for $terms {
            fn from(wire: v1::$terms) -> Self {
                Self { $($value: wire.$value),+ }
            }
        }

        impl From<&$policy> for v1::$policy {
            fn from(policy: &$policy) -> Self {
                Self {
                    cluster: scoped::write_cluster(&policy.cluster),
                    groups: scoped::write(&policy.groups),
                    hosts: scoped::write(&policy.hosts),
                }
            }
        }

        impl TryFrom<v1::$policy> for $policy {
            type Error = Invalid;

            fn try_from(wire: v1::$policy) -> Result<Self, Invalid> {
                let policy = Self {
                    cluster: wire.cluster.map(Into::into).unwrap_or_default(),
                    groups: scoped::read(wire.groups, "groups")?,
                    hosts: scoped::read(wire.hosts, "hosts")?,
                };
                match policy.is_bounded() {
                    true => Ok(policy),
                    false => Err(Invalid::here($rule)),
                }
            }
        }
    };
}

pub(super) use scoped_policy;
