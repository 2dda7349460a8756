//! Aggregates of hosts: sets of hosts with metadata that describes what they have in common, and
//! the availability zones that some of them are.
//!
//! Invariant: a host is in one zone at most, whatever aggregates it is in.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::id::{AggregateId, Generation, TimeMs};
use crate::name::{AggregateName, HostName, ZoneName};

/// The most aggregates.
pub const AGGREGATES_MAX: usize = 10_000;
/// The most hosts of an aggregate.
pub const HOSTS_MAX: usize = 10_000;
/// The most entries of metadata.
pub const METADATA_MAX: usize = 64;
/// The longest key or value of metadata, in bytes.
pub const METADATA_LENGTH_MAX: usize = 255;
/// The key that makes an aggregate an availability zone.
pub const ZONE_KEY: &str = "availability_zone";

/// Hosts with something in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Aggregate {
    /// Its name.
    pub name: AggregateName,
    /// Its identifier, which the root providers of its hosts carry in OpenStack Placement.
    pub id: AggregateId,
    /// Its hosts.
    pub hosts: BTreeSet<HostName>,
    /// What they have in common. Flavors request it.
    pub metadata: BTreeMap<String, String>,
    /// Changes with every change.
    pub generation: Generation,
    /// When it was made.
    pub created_at: TimeMs,
}

/// What is changed of an aggregate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AggregateChange {
    /// Hosts that join it.
    pub add_hosts: BTreeSet<HostName>,
    /// Hosts that leave it.
    pub remove_hosts: BTreeSet<HostName>,
    /// Metadata that is added or replaced.
    pub set: BTreeMap<String, String>,
    /// Keys of metadata that are taken away.
    pub unset: BTreeSet<String>,
    /// The generation that the client saw; absent: whatever it is.
    pub generation: Option<Generation>,
}

impl Aggregate {
    /// Returns the availability zone that it is.
    #[must_use]
    pub fn zone(&self) -> Option<ZoneName> {
        ZoneName::new(self.metadata.get(ZONE_KEY)?).ok()
    }

    /// Returns everything that is wrong with its size and metadata.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let count = self.hosts.len();
        if count > HOSTS_MAX {
            faults.push(Fault::new(
                "hosts",
                count,
                format!("at most {HOSTS_MAX} are allowed"),
            ));
        }
        let count = self.metadata.len();
        if count > METADATA_MAX {
            let rule = format!("at most {METADATA_MAX} entries are allowed");
            faults.push(Fault::new("metadata", count, rule));
        }
        for (key, value) in &self.metadata {
            let field = format!("metadata.{}", key.chars().take(32).collect::<String>());
            let good = |text: &str| (1..=METADATA_LENGTH_MAX).contains(&text.len());
            if !good(key) || !good(value) {
                let rule = format!("key and value must be 1 to {METADATA_LENGTH_MAX} bytes");
                faults.push(Fault::new(field, value, rule));
            } else if key == ZONE_KEY
                && let Err(error) = ZoneName::new(value)
            {
                faults.push(Fault::new(field, value, error.to_string()));
            }
        }
        faults
    }

    /// Returns the aggregate after a change, not validated yet.
    #[must_use]
    pub fn changed(&self, change: &AggregateChange) -> Self {
        let mut changed = self.clone();
        changed.hosts.extend(change.add_hosts.iter().cloned());
        changed
            .hosts
            .retain(|host| !change.remove_hosts.contains(host));
        let set = change.set.iter();
        changed
            .metadata
            .extend(set.map(|(k, v)| (k.clone(), v.clone())));
        changed
            .metadata
            .retain(|key, _| !change.unset.contains(key));
        changed
    }
}

/// The combined metadata of the aggregates of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HostAggregates {
    /// Its availability zone.
    pub zone: Option<ZoneName>,
    /// The values of each key; as in OpenStack Nova, a value with commas is several.
    pub metadata: BTreeMap<String, BTreeSet<String>>,
}

impl HostAggregates {
    /// Returns the combined metadata of these aggregates, for a host that is in all of them.
    pub fn of<'a>(aggregates: impl IntoIterator<Item = &'a Aggregate>) -> Self {
        let mut all = Self::default();
        for aggregate in aggregates {
            all.zone = all.zone.or_else(|| aggregate.zone());
            for (key, value) in &aggregate.metadata {
                let values = all.metadata.entry(key.clone()).or_default();
                values.extend(value.split(',').map(|value| value.trim().to_owned()));
            }
        }
        all
    }
}

/// What a flavor requires of the metadata of a host's aggregates, by key: one of these values.
pub type AggregateSpecs = BTreeMap<String, BTreeSet<String>>;

/// Operators of OpenStack Nova that are not understood here.
const OPERATORS: [&str; 14] = [
    "=", "==", "!=", ">=", "<=", "<in>", "<all-in>", "s!=", "s<", "s<=", "s>", "s>=", "<", ">",
];

/// Reads the value of `aggregate_instance_extra_specs:KEY`: plain text, `s== TEXT`, or
/// `<or> TEXT <or> TEXT`.
///
/// # Errors
///
/// What is allowed.
pub fn parse_spec(value: &str) -> Result<BTreeSet<String>, String> {
    let value = value.trim();
    let (first, rest) = value.split_once(' ').unwrap_or((value, ""));
    let rule = "must be a text, `s== TEXT` or `<or> TEXT <or> TEXT`";
    if OPERATORS.contains(&first) {
        return Err(format!("operator {first} is not supported: it {rule}"));
    }
    let texts: BTreeSet<String> = match first {
        "s==" => [rest.trim().to_owned()].into(),
        "<or>" => rest
            .split("<or>")
            .map(|text| text.trim().to_owned())
            .collect(),
        _ => [value.to_owned()].into(),
    };
    if texts.contains("") {
        return Err(rule.to_owned());
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aggregate(metadata: &[(&str, &str)]) -> Aggregate {
        let metadata = metadata.iter().copied();
        Aggregate {
            name: AggregateName::new("fast").unwrap(),
            id: AggregateId(uuid::Uuid::nil()),
            hosts: BTreeSet::new(),
            metadata: metadata
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .collect(),
            generation: Generation(1),
            created_at: TimeMs(1),
        }
    }

    #[test]
    fn specs_are_plain_texts_and_two_operators() {
        let texts = |value| parse_spec(value).map(|t| t.into_iter().collect::<Vec<_>>().join("|"));
        assert_eq!(texts("true").as_deref(), Ok("true"));
        assert_eq!(texts("s== a b").as_deref(), Ok("a b"));
        assert_eq!(texts("<or> a <or> b").as_deref(), Ok("a|b"));
        for bad in ["", "s==", "<or> a <or>", ">= 4", "<in> x", "s!= y"] {
            assert!(texts(bad).is_err(), "{bad:?}");
        }
        assert!(
            texts("<all-in> a b")
                .unwrap_err()
                .contains("operator <all-in>")
        );
    }

    #[test]
    fn metadata_of_all_aggregates_is_taken_together() {
        let zone = aggregate(&[(ZONE_KEY, "east"), ("disk", "ssd")]);
        let more = aggregate(&[("disk", "nvme, hdd")]);
        let all = HostAggregates::of([&zone, &more]);
        assert_eq!(all.zone.unwrap().as_str(), "east");
        let disks: Vec<_> = all.metadata["disk"].iter().cloned().collect();
        assert_eq!(disks, ["hdd", "nvme", "ssd"]);
    }

    #[test]
    fn too_many_entries_are_reported() {
        let long = "x".repeat(256);
        let many: Vec<String> = (0..65).map(|n| n.to_string()).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|n| (n.as_str(), "v")).collect();
        let bad = [
            aggregate(&[(ZONE_KEY, "a b")]),
            aggregate(&[("k", &long)]),
            aggregate(&[("k", "")]),
            aggregate(&many),
        ];
        for aggregate in bad {
            assert_eq!(aggregate.faults().len(), 1, "{:?}", aggregate.faults());
        }
        assert!(aggregate(&[(ZONE_KEY, "east")]).faults().is_empty());
    }
}
