//! A name for PCI functions of one kind, so that flavors need not know vendors and numbers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{PciMatch, PciNumaPolicy};
use crate::name::PciAliasName;

/// What a name in `pci_passthrough:alias` stands for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PciAlias {
    /// Who it is.
    pub name: PciAliasName,
    /// What each function must be like: one of these, at least one.
    pub any_of: Vec<PciMatch>,
    /// How near each must be, where neither flavor nor image says; absent is
    /// [`PciNumaPolicy::Legacy`].
    pub policy: Option<PciNumaPolicy>,
}

/// Aliases by their names.
pub type PciAliases = BTreeMap<PciAliasName, PciAlias>;
