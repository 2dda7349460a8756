//! The values of a command that does the same to several resources: they are printed as one list.
//!
//! Invariant: while they are collected, no value is printed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::choice::choice;

static VALUES: Mutex<Option<Values>> = Mutex::new(None);

/// What was collected, and what the next value is of.
#[derive(Debug, Default)]
struct Values {
    vm: String,
    values: Vec<Value>,
}

/// The values that are collected from now on, until they are printed. People are shown each as it comes.
#[derive(Debug)]
pub struct Collected(());

impl Collected {
    /// Begins a list.
    #[must_use]
    pub fn begin() -> Self {
        *values() = choice().output.format.is_of_value().then(Values::default);
        Self(())
    }

    /// Names the VM that the next values are of.
    pub fn of(&self, vm: &str) {
        if let Some(values) = &mut *values() {
            vm.clone_into(&mut values.vm);
        }
    }

    /// Prints the list.
    ///
    /// # Errors
    ///
    /// None that is to be expected.
    pub fn print(self) -> anyhow::Result<()> {
        let collected = values().take();
        match collected {
            Some(collected) => super::value(&collected.values),
            None => Ok(()),
        }
    }
}

pub(super) fn is_begun() -> bool {
    values().is_some()
}

/// Adds a value. One that does not name its VM is given it.
pub(super) fn push(mut value: Value) {
    if let Some(collected) = &mut *values() {
        if let Some(fields) = value.as_object_mut() {
            let vm = fields.entry("vm");
            vm.or_insert_with(|| collected.vm.as_str().into());
        }
        collected.values.push(value);
    }
}

fn values() -> MutexGuard<'static, Option<Values>> {
    // A list is whole whenever its lock is free.
    VALUES.lock().unwrap_or_else(PoisonError::into_inner)
}
