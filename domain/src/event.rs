//! Events: which record changed, and how.
//!
//! It is not the state's own journal: that one records every table, and records before as well as
//! after. Here is what users and programs may follow.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::audit::Entry;
use crate::claim::Claim;
use crate::host::Host;
use crate::id::{ClaimId, MigrationId, OperationId};
use crate::migration::Migration;
use crate::name::{HostName, VmName};
use crate::operation::Operation;
use crate::vm::Vm;

/// What can be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// VMs.
    Vm,
    /// Migrations.
    Migration,
    /// Hosts.
    Host,
    /// Claims.
    Claim,
    /// Operations.
    Operation,
    /// Entries of the audit.
    Audit,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::Vm,
        Self::Migration,
        Self::Host,
        Self::Claim,
        Self::Operation,
        Self::Audit,
    ];

    /// Returns the word for one of them.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Vm => "vm",
            Self::Migration => "migration",
            Self::Host => "host",
            Self::Claim => "claim",
            Self::Operation => "operation",
            Self::Audit => "audit",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// What names a record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Name {
    /// A VM.
    Vm(VmName),
    /// A migration.
    Migration(MigrationId),
    /// A host.
    Host(HostName),
    /// A claim.
    Claim(ClaimId),
    /// An operation.
    Operation(OperationId),
    /// An entry of the audit, by its revision.
    Audit(u64),
}

impl Name {
    /// Returns of which kind its record is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Vm(_) => Kind::Vm,
            Self::Migration(_) => Kind::Migration,
            Self::Host(_) => Kind::Host,
            Self::Claim(_) => Kind::Claim,
            Self::Operation(_) => Kind::Operation,
            Self::Audit(_) => Kind::Audit,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vm(name) => name.fmt(f),
            Self::Migration(id) => id.fmt(f),
            Self::Host(name) => name.fmt(f),
            Self::Claim(id) => id.fmt(f),
            Self::Operation(id) => id.fmt(f),
            Self::Audit(revision) => revision.fmt(f),
        }
    }
}

/// A whole record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A VM.
    Vm(Arc<Vm>),
    /// A migration.
    Migration(Arc<Migration>),
    /// A host.
    Host(Arc<Host>),
    /// A claim.
    Claim(Arc<Claim>),
    /// An operation.
    Operation(Arc<Operation>),
    /// An entry of the audit.
    Audit(Arc<Entry>),
}

impl Record {
    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> Name {
        match self {
            Self::Vm(vm) => Name::Vm(vm.name.clone()),
            Self::Migration(migration) => Name::Migration(migration.id),
            Self::Host(host) => Name::Host(host.name.clone()),
            Self::Claim(claim) => Name::Claim(claim.id),
            Self::Operation(operation) => Name::Operation(operation.id),
            Self::Audit(entry) => Name::Audit(entry.revision),
        }
    }
}

/// What became of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new or has changed.
    Put(Record),
    /// The record was deleted.
    Deleted(Name),
}

impl Change {
    /// Returns which record it is about.
    #[must_use]
    pub fn name(&self) -> Name {
        match self {
            Self::Put(record) => record.name(),
            Self::Deleted(name) => name.clone(),
        }
    }
}

/// A change, and when it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The revision that made it so.
    pub revision: u64,
    /// What became of the record.
    pub change: Change,
}
