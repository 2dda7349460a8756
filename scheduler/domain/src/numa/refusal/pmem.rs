//! What is missing of the persistent memory that a guest asks for.

use std::fmt;

use crate::pmem::{CLASS_PREFIX, PmemNumaPolicy, PmemRequest};

/// Namespaces that a guest asks for and does not get.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PmemShortfall {
    /// What is asked for.
    pub request: PmemRequest,
    /// How near it must be.
    pub policy: PmemNumaPolicy,
    /// How many such namespaces are asked for.
    pub requested: u64,
    /// How many are free; where they must be on one cell, on the one that has most.
    pub available: u64,
}

impl PmemShortfall {
    /// Returns what is asked for, for people.
    pub(super) fn what(&self) -> String {
        let class = self.request.class.as_str();
        let label = class.strip_prefix(CLASS_PREFIX).unwrap_or(class);
        match self.request.shape {
            Some(shape) => format!(
                "pmem namespaces {label} of {} bytes, aligned to {}",
                shape.size_bytes, shape.align_bytes
            ),
            None => format!("pmem namespaces {label}"),
        }
    }
}

impl fmt::Display for PmemShortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.what();
        let (requested, available) = (self.requested, self.available);
        match self.policy {
            PmemNumaPolicy::Preferred => {
                write!(f, "{available} free {what}, the guest needs {requested}")
            }
            PmemNumaPolicy::Required if available < requested => write!(
                f,
                "no cell has more than {available} free {what}, guest cell 0 needs {requested} on \
                 its own (hw:pmem_numa_policy=required)"
            ),
            PmemNumaPolicy::Required => write!(
                f,
                "guest cell 0 does not fit on a cell with all of its pmem namespaces \
                 (hw:pmem_numa_policy=required)"
            ),
        }
    }
}
