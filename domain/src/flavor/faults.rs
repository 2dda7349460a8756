//! The faults of a flavor and an image, collected.
//!
//! A fault is *open* where the properties of some image could heal it: a flavor with
//! `hw:cpu_thread_policy` and no policy is of use with images that set `hw_cpu_policy=dedicated`.
//! Open faults do not keep a flavor from being made, only guests.

use std::fmt;

use super::EXTRA_SPEC_LENGTH_MAX;
use crate::fault::Fault;

#[derive(Debug, Default)]
pub(super) struct Faults {
    certain: Vec<Fault>,
    open: Vec<Fault>,
}

impl Faults {
    pub(super) fn add(&mut self, field: &str, value: impl fmt::Display, rule: impl Into<String>) {
        self.certain.push(Fault::new(cut(field), value, rule));
    }

    /// Adds a fault that an image could heal if `open`.
    pub(super) fn add_if_closed(
        &mut self,
        open: bool,
        field: &str,
        value: impl fmt::Display,
        rule: impl Into<String>,
    ) {
        if open {
            self.open.push(Fault::new(cut(field), value, rule));
        } else {
            self.add(field, value, rule);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.certain.is_empty() && self.open.is_empty()
    }

    /// Returns the faults that no image heals.
    pub(super) fn certain(self) -> Vec<Fault> {
        self.certain
    }

    /// Returns all faults.
    pub(super) fn all(mut self) -> Vec<Fault> {
        self.certain.append(&mut self.open);
        self.certain
    }
}

/// The field names a key that may be of any length.
fn cut(field: &str) -> String {
    field.chars().take(EXTRA_SPEC_LENGTH_MAX + 32).collect()
}
