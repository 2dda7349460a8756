//! `resources:CLASS`, `trait:NAME`, the same in groups (`resources1:CLASS`, `trait_GPU:NAME`), and
//! `group_policy`.
//!
//! A group is to be answered by one resource provider. A guest takes counted resources of its
//! host's own provider alone, so groups add up there, and providers that must differ are refused.

use std::collections::{BTreeMap, BTreeSet};

use super::faults::Faults;
use super::{Side, text};
use crate::resource::{ResourceClass, Trait};

/// The most of a class that can be requested; what a placement service counts up to.
const AMOUNT_MAX: u64 = i32::MAX as u64;
/// The longest name of a group.
const SUFFIX_LENGTH_MAX: usize = 64;
/// The key of the policy.
pub(super) const POLICY: &str = "group_policy";

/// The rule for a trait of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TraitRule {
    /// The host must have it.
    Required,
    /// The host must not have it.
    Forbidden,
}

impl TraitRule {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Forbidden => "forbidden",
        }
    }
}

/// What the kind of a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Resources,
    Trait,
}

/// All groups of a flavor, and the qualities that an image requires.
#[derive(Default)]
pub(super) struct Groups<'a> {
    resources: Vec<(&'a str, ResourceClass, u64)>,
    /// By field, so that both sides are distinguished.
    traits: Vec<(String, Trait, TraitRule)>,
    /// The groups with a name: whether they hold resources, and one key each.
    named: BTreeMap<&'a str, (bool, &'a str)>,
    is_isolated: Option<bool>,
}

/// Returns the kind and the group of a namespace, if it is one of these: `resources1`.
pub(super) fn namespace(text: &str) -> Option<(Kind, &str)> {
    let (kind, suffix) = if let Some(suffix) = text.strip_prefix("resources") {
        (Kind::Resources, suffix)
    } else {
        (Kind::Trait, text.strip_prefix("trait")?)
    };
    let is_name = suffix
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    (suffix.len() <= SUFFIX_LENGTH_MAX && is_name).then_some((kind, suffix))
}

impl<'a> Groups<'a> {
    pub(super) fn read_policy(&mut self, value: &str) -> Result<(), String> {
        self.is_isolated = Some(match value {
            "none" => false,
            "isolate" => true,
            _ => return Err("must be none or isolate".to_owned()),
        });
        Ok(())
    }

    /// Reads one key of a flavor; `name` is what follows the namespace.
    pub(super) fn read(
        &mut self,
        (kind, group): (Kind, &'a str),
        key: &'a str,
        name: &str,
        value: &str,
    ) -> Result<(), String> {
        match kind {
            Kind::Resources => {
                let class = ResourceClass::new(name).map_err(|invalid| invalid.to_string())?;
                if !class.is_standard() && !class.is_custom() {
                    return Err(format!(
                        "{class} is no standard resource class, and the names of others begin \
                         with CUSTOM_"
                    ));
                }
                let amount = text::number(value, &(0..=AMOUNT_MAX))?;
                self.resources.push((key, class, amount));
            }
            Kind::Trait => self.read_trait(Side::Flavor, key, name, value)?,
        }
        if !group.is_empty() {
            let (has_resources, _) = self.named.entry(group).or_insert((false, key));
            *has_resources |= kind == Kind::Resources;
        }
        Ok(())
    }

    pub(super) fn read_trait(
        &mut self,
        side: Side,
        key: &str,
        name: &str,
        value: &str,
    ) -> Result<(), String> {
        let trait_rule = match (value, side) {
            ("required", _) => TraitRule::Required,
            ("forbidden", Side::Flavor) => TraitRule::Forbidden,
            (_, Side::Flavor) => return Err("must be required or forbidden".to_owned()),
            (_, Side::Image) => return Err("must be required".to_owned()),
        };
        let name = Trait::new(name).map_err(|invalid| invalid.to_string())?;
        if !name.is_standard() && !name.is_custom() {
            return Err(format!(
                "{name} is no standard trait, and the names of others begin with CUSTOM_"
            ));
        }
        self.traits.push((side.field(key), name, trait_rule));
        Ok(())
    }

    /// Returns the keys, classes and amounts.
    pub(super) fn resources(&self) -> impl Iterator<Item = (&'a str, &ResourceClass, u64)> {
        self.resources
            .iter()
            .map(|(key, class, amount)| (*key, class, *amount))
    }

    /// Returns how much of a class is requested in all groups.
    pub(super) fn amount(&self, class: &str) -> u64 {
        let of_class = self
            .resources
            .iter()
            .filter(|(_, c, _)| c.as_str() == class);
        of_class.map(|(_, _, amount)| amount).sum()
    }

    /// Returns whether a class is requested by name, be it none of it.
    pub(super) fn names(&self, class: &str) -> bool {
        self.resources.iter().any(|(_, c, _)| c.as_str() == class)
    }

    /// Returns the field of the first key that requests a class.
    pub(super) fn field(&self, class: &str) -> String {
        let mut of_class = self
            .resources
            .iter()
            .filter(|(_, c, _)| c.as_str() == class);
        let key = of_class.next().map_or("resources", |(key, _, _)| key);
        Side::Flavor.field(key)
    }

    /// Returns what is required of a trait, and the first field that requires it.
    pub(super) fn trait_rule(&self, name: &Trait) -> Option<(&str, TraitRule)> {
        let mut of_name = self.traits.iter().filter(|(_, t, _)| t == name);
        of_name
            .next()
            .map(|(field, _, trait_rule)| (field.as_str(), *trait_rule))
    }

    /// Returns the required and the forbidden qualities.
    pub(super) fn traits(&self, faults: &mut Faults) -> (BTreeSet<Trait>, BTreeSet<Trait>) {
        let of = |which: TraitRule| -> BTreeSet<Trait> {
            let of_kind = self
                .traits
                .iter()
                .filter(|(_, _, trait_rule)| *trait_rule == which);
            of_kind.map(|(_, name, _)| name.clone()).collect()
        };
        let (required, forbidden) = (of(TraitRule::Required), of(TraitRule::Forbidden));
        for (field, name, trait_rule) in &self.traits {
            if *trait_rule == TraitRule::Required && forbidden.contains(name) {
                let rule = "is both required and forbidden";
                faults.add(field, trait_rule.text(), rule);
            }
        }
        (required, forbidden)
    }

    /// Records faults of groups that cannot be answered.
    pub(super) fn check(&self, faults: &mut Faults) {
        for (group, (has_resources, key)) in &self.named {
            if !has_resources {
                let rule = format!(
                    "a group needs resources, as resources{group}:CUSTOM_GPU=1; a trait of the \
                     host is requested with trait:NAME"
                );
                faults.add(&Side::Flavor.field(key), group, rule);
            }
        }
        let field = Side::Flavor.field(POLICY);
        match (self.named.len(), self.is_isolated) {
            (0 | 1, _) | (_, Some(false)) => {}
            (groups, Some(true)) => {
                let rule = format!(
                    "guests take counted resources of their host's own provider alone, so {groups} \
                     groups cannot come from different ones; use none"
                );
                faults.add(&field, "isolate", rule);
            }
            (groups, None) => {
                let rule = format!("must be given with {groups} groups: none");
                faults.add(&field, "", rule);
            }
        }
    }
}
