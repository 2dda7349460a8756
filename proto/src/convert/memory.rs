//! How far memory is over-committed: the policy, and what is reported of a host.

use berth_domain::memory::{MemoryVerdict, MemoryViolation};
use berth_domain::policy::memory::{EffectiveMemory, MemoryTerms};
use berth_domain::policy::{MemoryPolicy, Source};

use super::field::{self, Invalid};
use super::name::ResourceName;
use super::scoped;
use crate::policy::v1;
use crate::policy::v1::host_memory::Violation as WireViolation;
use crate::policy::v1::memory_source::Kind;

scoped::scoped_policy!(
    MemoryPolicy,
    MemoryTerms {
        ratio_milli,
        mem_node_mib
    },
    "a ratio or an amount of memory is out of its bounds, or terms say nothing"
);

impl From<&Source> for v1::MemorySource {
    fn from(source: &Source) -> Self {
        let (kind, group) = match source {
            Source::Host => (Kind::Host, String::new()),
            Source::Group(name) => (Kind::Group, name.resource_name()),
            Source::Cluster => (Kind::Cluster, String::new()),
            Source::Default => (Kind::Default, String::new()),
            Source::Agent => (Kind::Agent, String::new()),
        };
        Self {
            kind: kind.into(),
            group,
        }
    }
}

impl TryFrom<v1::MemorySource> for Source {
    type Error = Invalid;

    fn try_from(wire: v1::MemorySource) -> Result<Self, Invalid> {
        match Kind::try_from(wire.kind) {
            Ok(Kind::Host) => Ok(Self::Host),
            Ok(Kind::Group) => Ok(Self::Group(field::name(&wire.group, "group")?)),
            Ok(Kind::Cluster) => Ok(Self::Cluster),
            Ok(Kind::Default) => Ok(Self::Default),
            Ok(Kind::Agent) => Ok(Self::Agent),
            Ok(Kind::Unspecified) | Err(_) => Err(Invalid::new("kind", "must be a known value")),
        }
    }
}

/// Writes the reported memory of a host.
#[must_use]
pub fn write_host_memory(said: &EffectiveMemory, verdict: &MemoryVerdict) -> v1::HostMemory {
    let books = &verdict.books;
    let violation = match verdict.violation {
        MemoryViolation::None => WireViolation::None,
        MemoryViolation::Soft => WireViolation::Soft,
        MemoryViolation::Hard => WireViolation::Hard,
    };
    v1::HostMemory {
        ratio_milli: u32::try_from(books.ratio.milli()).unwrap_or(u32::MAX),
        ratio_from: Some((&said.ratio_from).into()),
        mem_node_mib: books.mem_node_mib,
        mem_node_from: Some((&said.mem_node_from).into()),
        total_mib: books.total_mib,
        available_mib: books.available_mib(),
        used_mib: books.taken.total_mib(),
        running_mib: verdict.running.total_mib(),
        exact_mib: books.taken.exact_mib,
        huge_mib: books.taken.huge_mib,
        swap_needed_mib: books.swap_needed_mib(),
        violation: violation.into(),
        explanation: verdict.to_string(),
    }
}
