//! What is wrong with something that a person wrote: which field, which value, which rule.
//!
//! Faults are collected, not thrown: the author of a flavor gets all of them at once. How they are
//! refused is in [`crate::fault`], which re-exports [`Fault`].

use std::fmt;

/// The longest part of a value that is repeated back.
const VALUE_MAX: usize = 80;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// The field, as `extra_specs.hw:numa_nodes`.
    pub field: String,
    /// Its value, cut to a bounded length.
    pub value: String,
    /// What is allowed.
    pub rule: String,
}

impl Fault {
    /// Returns a fault; `rule` states what is allowed, as "must be at least 1".
    pub fn new(
        field: impl Into<String>,
        value: impl fmt::Display,
        rule: impl Into<String>,
    ) -> Self {
        Self {
            field: field.into(),
            value: value.to_string().chars().take(VALUE_MAX).collect(),
            rule: rule.into(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {:?}: {}", self.field, self.value, self.rule)
    }
}
