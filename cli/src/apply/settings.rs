//! The scheduling policy as it is declared: settings by their keys, for the cluster, for groups and for hosts.
//!
//! Only the keys that a document names are compared and set: the policy of a cluster is there always, and each
//! of its settings has a value.
//!
//! Invariant: values are as the policy shows them, so that the same value is the same text.

use std::collections::BTreeMap;

use berth_domain::name::{AggregateName, HostName};
use berth_domain::policy::{SchedulingPolicy, Scope, Setting};
use berth_proto::convert::Invalid;
use serde_json::{Map, Value, json};

use crate::policy;
use crate::session::short;

/// Settings by their keys.
pub(super) type Keys = BTreeMap<String, String>;

/// The settings of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    /// Of the cluster.
    pub(super) cluster: Keys,
    /// Of aggregates.
    pub(super) groups: BTreeMap<String, Keys>,
    /// Of hosts.
    pub(super) hosts: BTreeMap<String, Keys>,
}

impl Settings {
    /// Reads the fields of a document.
    ///
    /// # Errors
    ///
    /// All fields that are not known, and all values that are none.
    pub(super) fn read(fields: &Map<String, Value>) -> Result<Self, Vec<Invalid>> {
        let mut settings = Self::default();
        let mut faults = Vec::new();
        for (name, value) in fields {
            let read = match name.as_str() {
                "settings" => keys(value, &Scope::Cluster).map(|keys| settings.cluster = keys),
                "groups" => each(value, group).map(|groups| settings.groups = groups),
                "hosts" => each(value, host).map(|hosts| settings.hosts = hosts),
                _ => {
                    let rule = "is not known; known fields are groups, hosts, settings";
                    Err(vec![Invalid::here(rule)])
                }
            };
            let wrong = read.err().into_iter().flatten();
            faults.extend(wrong.map(|invalid| invalid.within(name)));
        }
        if settings == Self::default() && faults.is_empty() {
            let rule = "has no setting: declare at least one";
            faults.push(Invalid::new("settings", rule));
        }
        match faults.is_empty() {
            true => Ok(settings),
            false => Err(faults),
        }
    }

    /// Returns all settings of a policy.
    pub(super) fn of(policy: &SchedulingPolicy) -> Self {
        let owned = |settings: Vec<(&str, String)>| -> Keys {
            let settings = settings.into_iter();
            settings
                .map(|(key, value)| (key.to_owned(), value))
                .collect()
        };
        let scoped = |all: BTreeMap<String, Vec<(&'static str, String)>>| {
            let all = all.into_iter();
            all.map(|(name, settings)| (name, owned(settings)))
                .collect()
        };
        Self {
            cluster: owned(policy.settings().into()),
            groups: scoped(policy::by_name(&policy.memory.groups, &policy.cpu.groups)),
            hosts: scoped(policy::by_name(&policy.memory.hosts, &policy.cpu.hosts)),
        }
    }

    /// Returns what of these settings `named` names too.
    pub(super) fn named_by(&self, named: &Self) -> Self {
        let common = |of: &Keys, named: &Keys| -> Keys {
            let keys = of.iter().filter(|(key, _)| named.contains_key(*key));
            keys.map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        };
        let scoped = |of: &BTreeMap<String, Keys>, named: &BTreeMap<String, Keys>| {
            let both = named.iter().filter_map(|(name, keys)| {
                let keys = common(of.get(name)?, keys);
                (!keys.is_empty()).then(|| (name.clone(), keys))
            });
            both.collect()
        };
        Self {
            cluster: common(&self.cluster, &named.cluster),
            groups: scoped(&self.groups, &named.groups),
            hosts: scoped(&self.hosts, &named.hosts),
        }
    }

    /// Returns what of these settings `other` has not, or has with another value.
    pub(super) fn beyond(&self, other: &Self) -> Self {
        let more = |of: &Keys, other: Option<&Keys>| -> Keys {
            let other = |key| other.and_then(|keys| keys.get(key));
            let keys = of.iter().filter(|(key, value)| other(*key) != Some(*value));
            keys.map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        };
        let scoped = |of: &BTreeMap<String, Keys>, other: &BTreeMap<String, Keys>| {
            let each = of.iter();
            let each = each.map(|(name, keys)| (name.clone(), more(keys, other.get(name))));
            each.filter(|(_, keys)| !keys.is_empty()).collect()
        };
        Self {
            cluster: more(&self.cluster, Some(&other.cluster)),
            groups: scoped(&self.groups, &other.groups),
            hosts: scoped(&self.hosts, &other.hosts),
        }
    }

    /// Returns them as a value with the fields of a document, those that have something.
    pub(super) fn to_value(&self) -> Value {
        let mut fields = Map::new();
        let parts = [
            ("settings", json!(self.cluster), self.cluster.is_empty()),
            ("groups", json!(self.groups), self.groups.is_empty()),
            ("hosts", json!(self.hosts), self.hosts.is_empty()),
        ];
        for (name, value, _) in parts.into_iter().filter(|(_, _, is_empty)| !is_empty) {
            fields.insert(name.to_owned(), value);
        }
        Value::Object(fields)
    }
}

fn group(name: &str) -> Result<Scope, Invalid> {
    let name = name.strip_prefix("aggregates/").unwrap_or(name);
    let name = AggregateName::new(name).map_err(Invalid::here)?;
    Ok(Scope::Group(name))
}

fn host(name: &str) -> Result<Scope, Invalid> {
    let name = name.strip_prefix("hosts/").unwrap_or(name);
    let name = HostName::new(name).map_err(Invalid::here)?;
    Ok(Scope::Host(name))
}

/// Reads settings of groups or hosts.
fn each(
    value: &Value,
    scope: impl Fn(&str) -> Result<Scope, Invalid>,
) -> Result<BTreeMap<String, Keys>, Vec<Invalid>> {
    let mut all = BTreeMap::new();
    for (name, value) in object(value)? {
        let within = |invalid: Invalid| vec![invalid.within(name)];
        let scope = scope(name).map_err(within)?;
        let read = keys(value, &scope);
        let read = read.map_err(|faults| -> Vec<Invalid> {
            faults
                .into_iter()
                .map(|invalid| invalid.within(name))
                .collect()
        })?;
        let is_there = all.insert(short(name).to_owned(), read).is_some();
        if is_there {
            return Err(vec![Invalid::new(name, "is there twice")]);
        }
    }
    all.retain(|_, keys| !keys.is_empty());
    Ok(all)
}

fn object(value: &Value) -> Result<&Map<String, Value>, Vec<Invalid>> {
    let fields = value.as_object();
    fields.ok_or_else(|| vec![Invalid::here("must have fields, as `key: value`")])
}

/// Reads settings by their keys, as the policy shows them.
fn keys(value: &Value, scope: &Scope) -> Result<Keys, Vec<Invalid>> {
    let mut typed = Keys::new();
    for (key, value) in object(value)? {
        let text = match value {
            Value::String(text) => text.clone(),
            // Most values are numbers, and have one form as a text.
            Value::Number(number) => number.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                return Err(vec![Invalid::new(key, "must be a text or a number")]);
            }
        };
        typed.insert(key.clone(), text);
    }
    let mut settings = Keys::new();
    let mut faults = Vec::new();
    for (key, value) in typed {
        let one = Keys::from([(key.clone(), value)]);
        match Setting::parse_scoped(scope, &one, &[]) {
            Ok(parsed) => settings.extend(parsed.iter().map(shown)),
            Err(wrong) => {
                let wrong = wrong.into_iter();
                faults.extend(wrong.map(|fault| Invalid::new(&key, fault.rule)));
            }
        }
    }
    match faults.is_empty() {
        true => Ok(settings),
        false => Err(faults),
    }
}

/// Returns a setting as the policy shows it.
fn shown(setting: &Setting) -> (String, String) {
    let text = setting.describe();
    let (key, value) = text.split_once('=').unwrap_or((&text, ""));
    (key.to_owned(), value.to_owned())
}
