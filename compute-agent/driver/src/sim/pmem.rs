//! The contents of the namespaces of persistent memory of a simulated host: the last writer.
//!
//! Like real memory it knows no claims. It outlives the guests, the process and the machine, until
//! it is erased; and it detects what must never be, a guest that sees another one's data.

use std::collections::BTreeMap;

use berth_domain::id::VmUid;
use berth_domain::name::PmemName;
use serde::{Deserialize, Serialize};

use crate::domain::DomainSpec;
use crate::error::Error;

/// The namespaces of one host that hold something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    written: BTreeMap<PmemName, VmUid>,
    /// What should not have happened.
    leaks: Vec<String>,
}

impl Contents {
    /// Returns the last writer of each namespace that holds something.
    #[must_use]
    pub fn written(&self) -> &BTreeMap<PmemName, VmUid> {
        &self.written
    }

    /// Returns what should not have happened.
    #[must_use]
    pub fn leaks(&self) -> &[String] {
        &self.leaks
    }

    /// A guest begins to run here, and writes.
    ///
    /// # Errors
    ///
    /// When it would see what another guest wrote.
    pub(super) fn write(&mut self, guest: &DomainSpec) -> Result<(), Error> {
        for device in &guest.assignment.pmem {
            let other = self.written.get(&device.name);
            if let Some(other) = other.filter(|other| **other != guest.uid) {
                let message = format!(
                    "pmem namespace {} still holds what guest {other} wrote, guest {} would see it",
                    device.name, guest.uid
                );
                self.leaks.push(message.clone());
                return Err(Error::Refused { message });
            }
        }
        let names = guest.assignment.pmem.iter().map(|d| d.name.clone());
        self.written.extend(names.map(|name| (name, guest.uid)));
        Ok(())
    }

    /// Nothing is left of what was written. `holder` is the guest that has it now.
    pub(super) fn erase(&mut self, name: &PmemName, holder: Option<VmUid>) {
        if let Some(holder) = holder {
            self.leaks.push(format!(
                "pmem namespace {name} was erased under guest {holder}"
            ));
        }
        self.written.remove(name);
    }
}
