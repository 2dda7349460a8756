//! A name for PCI functions of one kind, so that flavors need not know vendors and numbers.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{LIVE_MIGRATABLE, PciMatch, PciNumaPolicy};
use crate::field_fault::Fault;
use crate::name::PciAliasName;

/// The most alternatives of an alias.
pub const MATCHES_MAX: usize = 16;
/// The most tags of one of them.
pub const TAGS_MAX: usize = 16;
/// The longest key or value of a tag, in characters.
pub const TAG_LENGTH_MAX: usize = 255;

/// What a name in `pci_passthrough:alias` stands for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PciAlias {
    /// Who it is.
    pub name: PciAliasName,
    /// What each function must be like: one of these, at least one.
    pub any_of: Vec<PciMatch>,
    /// How near each must be, where neither flavor nor image sets it; absent is
    /// [`PciNumaPolicy::Legacy`].
    pub policy: Option<PciNumaPolicy>,
}

/// Aliases by their names.
pub type PciAliases = BTreeMap<PciAliasName, PciAlias>;

impl PciAlias {
    /// Checks that there can be functions of this name.
    ///
    /// # Errors
    ///
    /// All faults at once.
    pub fn validate(&self) -> Result<(), Vec<Fault>> {
        let mut faults = Vec::new();
        if !(1..=MATCHES_MAX).contains(&self.any_of.len()) {
            let rule = format!("must have 1 to {MATCHES_MAX} matches");
            faults.push(Fault::new("any_of", self.any_of.len(), rule));
            return Err(faults);
        }
        let mut seen = BTreeSet::new();
        for (index, alternative) in self.any_of.iter().enumerate() {
            let field = format!("any_of[{index}]");
            if alternative == &PciMatch::default() {
                let rule = "must say something: a vendor_id, a product_id, a kind or a tag";
                faults.push(Fault::new(&field, "(empty)", rule));
            } else if !seen.insert(alternative) {
                faults.push(Fault::new(&field, alternative, "is there twice"));
            }
            // Whole physical functions are given only to those that request them by their kind;
            // an alternative without one would be taken to request them too.
            if alternative.kind != self.any_of[0].kind {
                let rule = "must have the same kind as the first match";
                faults.push(Fault::new(format!("{field}.kind"), alternative, rule));
            }
            check_tags(&field, alternative, &mut faults);
        }
        if faults.is_empty() {
            Ok(())
        } else {
            Err(faults)
        }
    }
}

fn check_tags(field: &str, alternative: &PciMatch, faults: &mut Vec<Fault>) {
    let field = format!("{field}.tags");
    if alternative.tags.len() > TAGS_MAX {
        let rule = format!("at most {TAGS_MAX} are allowed");
        faults.push(Fault::new(&field, alternative.tags.len(), rule));
        return;
    }
    for (key, value) in &alternative.tags {
        let is_good = |text: &String| {
            let length = text.chars().count();
            (1..=TAG_LENGTH_MAX).contains(&length) && !text.chars().any(char::is_control)
        };
        if !is_good(key) || !is_good(value) {
            let rule = format!(
                "a tag and its value must have 1 to {TAG_LENGTH_MAX} characters, none of them a \
                 control character"
            );
            faults.push(Fault::new(&field, format!("{key}={value}"), rule));
        } else if key == LIVE_MIGRATABLE && !matches!(value.as_str(), "yes" | "no") {
            let field = format!("{field}.{LIVE_MIGRATABLE}");
            faults.push(Fault::new(field, value, "must be yes or no"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pci::{PciId, PciKind};

    fn vendor(vendor: u16) -> PciMatch {
        PciMatch {
            vendor: Some(PciId(vendor)),
            ..PciMatch::default()
        }
    }

    fn tagged(key: &str, value: &str) -> PciMatch {
        PciMatch {
            tags: [(key.to_owned(), value.to_owned())].into(),
            ..vendor(0x8086)
        }
    }

    /// Goal: each rule refuses with its field. Method: one alias for each.
    #[test]
    fn faults_name_their_field() {
        let kind = |kind| PciMatch {
            kind: Some(kind),
            ..vendor(0x8086)
        };
        let many_tags = PciMatch {
            tags: (0..17).map(|n| (n.to_string(), n.to_string())).collect(),
            ..PciMatch::default()
        };
        let long = "x".repeat(256);
        let cases: [(Vec<PciMatch>, &[&str]); 14] = [
            (vec![vendor(0x8086)], &[]),
            (vec![vendor(0x8086), vendor(0x10de)], &[]),
            (vec![tagged(LIVE_MIGRATABLE, "yes")], &[]),
            (vec![tagged("physical_network", "blue")], &[]),
            (vec![], &["any_of"]),
            ((0..17).map(vendor).collect(), &["any_of"]),
            (vec![PciMatch::default()], &["any_of[0]"]),
            (vec![vendor(1), vendor(1)], &["any_of[1]"]),
            (
                vec![kind(PciKind::Physical), vendor(1)],
                &["any_of[1].kind"],
            ),
            (vec![many_tags], &["any_of[0].tags"]),
            (vec![tagged("", "x")], &["any_of[0].tags"]),
            (vec![tagged("a\n", "x")], &["any_of[0].tags"]),
            (vec![tagged("a", &long)], &["any_of[0].tags"]),
            (
                vec![tagged(LIVE_MIGRATABLE, "Yes")],
                &["any_of[0].tags.live_migratable"],
            ),
        ];
        for (any_of, expected) in cases {
            let alias = PciAlias {
                name: PciAliasName::new("gpu").unwrap(),
                any_of,
                policy: None,
            };
            let faults = alias.validate().err().unwrap_or_default();
            let fields: Vec<_> = faults.iter().map(|f| &*f.field).collect();
            assert_eq!(fields, expected, "{alias:?}");
        }
    }
}
