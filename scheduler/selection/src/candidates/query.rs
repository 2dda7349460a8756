//! The query for allocation candidates: the query parameters of OpenStack Placement, in types.
//!
//! It does not know how they are written in a URL or a message: their parser builds this.
//!
//! Invariant: a query that [`Query::validate`] passes can be answered; the bounds that it states
//! keep the work for one query in proportion to the query.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use berth_domain::allocation::Resources;
use berth_domain::id::{AggregateId, ProviderId};
use berth_domain::resource::Trait;

/// The greatest number of groups and of resource classes in all groups together, and of subtrees.
///
/// Every one of them is a choice at every tree; a flavor has a handful.
pub const CHOICES_MAX: usize = 256;

/// The greatest number of trait requirements of the group without a suffix.
///
/// Its providers meet them together, which is kept as a set of bits.
pub const TOGETHER_MAX: usize = 128;

/// Names a group of a query; empty for the one whose resources may come from several providers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Suffix(Arc<str>);

impl Suffix {
    /// Returns the suffix with this text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the group's resources may come from several providers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&str> for Suffix {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl Borrow<str> for Suffix {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Suffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Suffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// What is requested together of one provider or, without a suffix, of one tree and its sharers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// How much of which class. Empty only in a group with a suffix: a provider that is there for
    /// its qualities and its place in the tree.
    pub resources: Resources,
    /// Of each set, at least one trait is there.
    pub required: Vec<BTreeSet<Trait>>,
    /// None of these traits is there.
    pub forbidden: BTreeSet<Trait>,
    /// The provider is in at least one aggregate of each set.
    pub member_of: Vec<BTreeSet<AggregateId>>,
    /// The provider is in none of these aggregates.
    pub forbidden_aggregates: BTreeSet<AggregateId>,
    /// The tree of this provider, which need not be its root, is the only one that serves.
    pub in_tree: Option<ProviderId>,
}

/// How the groups with a suffix share providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupPolicy {
    /// One provider may serve several of them.
    None,
    /// Each has a provider of its own.
    Isolate,
}

/// In which order candidates come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By the identifiers of the roots: the same for the same providers, on every machine.
    #[default]
    Stable,
    /// As [`Self::Stable`], but beginning elsewhere for each seed and with few candidates of each
    /// tree before the others have had their turn, so that a limit does not favour some hosts.
    Rotated {
        /// Chosen by the caller, another one for each query.
        seed: u64,
    },
}

/// A query for allocation candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The request groups, by suffix.
    pub groups: BTreeMap<Suffix, Group>,
    /// How the groups with a suffix share providers; absent is as [`GroupPolicy::None`].
    pub group_policy: Option<GroupPolicy>,
    /// The root of the tree has all these traits.
    pub root_required: BTreeSet<Trait>,
    /// The root of the tree has none of these traits.
    pub root_forbidden: BTreeSet<Trait>,
    /// Of the providers of each set of groups, one is above all the others or is them.
    pub same_subtree: Vec<BTreeSet<Suffix>>,
    /// At most so many candidates.
    pub limit: Option<u32>,
    /// Whether a candidate may take from several providers of one tree (from version 1.29).
    pub nested: bool,
    /// In which order they come.
    pub order: Order,
}

impl Default for Query {
    /// Returns a query for nothing, over nested trees, without a limit.
    fn default() -> Self {
        Self {
            groups: BTreeMap::new(),
            group_policy: None,
            root_required: BTreeSet::new(),
            root_forbidden: BTreeSet::new(),
            same_subtree: Vec::new(),
            limit: None,
            nested: true,
            order: Order::default(),
        }
    }
}

/// Why a query cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The query requests nothing.
    #[error("no group wants any resources: give at least one of them `resources`")]
    NoResources,
    /// The group without a suffix wants no resources.
    #[error("the group without a suffix wants no resources: give it `resources`, or leave it out")]
    NoUnsuffixedResources,
    /// An amount of zero.
    #[error("group {suffix:?} wants 0 of {class}: want at least 1, or leave the class out")]
    Zero {
        /// The group.
        suffix: Suffix,
        /// The class.
        class: String,
    },
    /// More than can be searched for.
    #[error(
        "the query has {choices} groups and resource classes, or subtrees: ask for at most {CHOICES_MAX}"
    )]
    TooManyChoices {
        /// How many.
        choices: usize,
    },
    /// More trait requirements than can be kept apart.
    #[error(
        "the group without a suffix has {count} requirements of traits: ask for at most {TOGETHER_MAX}"
    )]
    TooManyTraits {
        /// How many.
        count: usize,
    },
    /// A subtree of a group that does not exist.
    #[error("`same_subtree` names {suffix:?}: name suffixes of groups of this query")]
    UnknownSuffix {
        /// The name.
        suffix: Suffix,
    },
    /// A limit of zero.
    #[error("the limit is 0: ask for at least 1 candidate, or give no limit")]
    NoLimit,
}

impl Query {
    /// Checks that the query can be answered.
    ///
    /// # Errors
    ///
    /// The first rule that it breaks.
    pub fn validate(&self) -> Result<(), Invalid> {
        if self.groups.values().all(|g| g.resources.is_empty()) {
            return Err(Invalid::NoResources);
        }
        let choices = self
            .groups
            .values()
            .map(|g| g.resources.len().max(1))
            .sum::<usize>();
        let choices = choices.max(self.same_subtree.len());
        if choices > CHOICES_MAX {
            return Err(Invalid::TooManyChoices { choices });
        }
        if let Some(group) = self.groups.get("") {
            if group.resources.is_empty() {
                return Err(Invalid::NoUnsuffixedResources);
            }
            let count = group.required.len();
            if count > TOGETHER_MAX {
                return Err(Invalid::TooManyTraits { count });
            }
        }
        for (suffix, group) in &self.groups {
            if let Some((class, _)) = group.resources.iter().find(|(_, amount)| **amount == 0) {
                return Err(Invalid::Zero {
                    suffix: suffix.clone(),
                    class: class.to_string(),
                });
            }
        }
        let named = self.same_subtree.iter().flatten();
        for suffix in named {
            if suffix.is_empty() || !self.groups.contains_key(suffix) {
                return Err(Invalid::UnknownSuffix {
                    suffix: suffix.clone(),
                });
            }
        }
        if self.limit == Some(0) {
            return Err(Invalid::NoLimit);
        }
        Ok(())
    }
}
