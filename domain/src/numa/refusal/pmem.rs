//! What is missing of the persistent memory that a guest requests.

use std::fmt;

use crate::pmem::{CLASS_PREFIX, PmemNumaPolicy, PmemRequest};

/// Namespaces that a guest requests and does not get.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PmemShortfall {
    /// The request.
    pub request: PmemRequest,
    /// How near it must be.
    pub policy: PmemNumaPolicy,
    /// How many such namespaces are requested.
    pub requested: u64,
    /// How many are free; where they must be on one cell, on the one that has most.
    pub available: u64,
}

impl PmemShortfall {
    /// Returns what is requested, as text for people.
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
                "no NUMA node has more than {available} free {what}, guest NUMA node 0 needs {requested} on \
                 its own (hw:pmem_numa_policy=required)"
            ),
            PmemNumaPolicy::Required => write!(
                f,
                "guest NUMA node 0 does not fit on a NUMA node with all of its pmem namespaces \
                 (hw:pmem_numa_policy=required)"
            ),
        }
    }
}
