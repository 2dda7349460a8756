//! Histories of VMs and hosts.

use berth_domain::event::{Name, Record};
use berth_domain::history::{Changed, Entry, Subject};

use super::event::read_name;
use super::field::{self, Invalid};
use crate::event::v1;

/// The longest name of a command or principal, in bytes.
const WORD_MAX: usize = 256;
/// The most records that one command changes of a VM or a host.
const CHANGES_MAX: usize = 1 << 20;

/// Reads whose history is requested.
///
/// # Errors
///
/// When it is neither a VM nor a host.
pub fn read_subject(text: &str, field: &str) -> Result<Subject, Invalid> {
    match read_name(text, field)? {
        Name::Vm(name) => Ok(Subject::Vm(name)),
        Name::Host(name) => Ok(Subject::Host(name)),
        Name::Migration(_) | Name::Claim(_) | Name::Operation(_) | Name::Audit(_) => {
            Err(Invalid::new(field, "must be of a VM or of a host"))
        }
    }
}

impl From<&Changed> for v1::RecordChange {
    fn from(changed: &Changed) -> Self {
        Self {
            before: changed.before.as_ref().map(Into::into),
            after: changed.after.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<v1::RecordChange> for Changed {
    type Error = Invalid;

    fn try_from(wire: v1::RecordChange) -> Result<Self, Invalid> {
        let changed = Self {
            before: field::optional(wire.before, "before")?,
            after: field::optional(wire.after, "after")?,
        };
        let name = |record: &Option<Record>| record.as_ref().map(Record::name);
        match (name(&changed.before), name(&changed.after)) {
            (None, None) => Err(Invalid::here("must have a record before or after")),
            (Some(before), Some(after)) if before != after => {
                Err(Invalid::new("after", "must be the record that was before"))
            }
            (Some(_), _) | (None, Some(_)) => Ok(changed),
        }
    }
}

impl From<&Entry> for v1::HistoryEntry {
    fn from(entry: &Entry) -> Self {
        Self {
            revision: entry.revision,
            time: Some(field::timestamp(entry.at)),
            principal: entry.principal.clone(),
            command: entry.command.clone(),
            request: entry.request.as_ref().map(Into::into),
            changes: entry.changes.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::HistoryEntry> for Entry {
    type Error = Invalid;

    fn try_from(wire: v1::HistoryEntry) -> Result<Self, Invalid> {
        field::bounded(wire.principal.len(), "principal", WORD_MAX)?;
        field::bounded(wire.command.len(), "command", WORD_MAX)?;
        Ok(Self {
            revision: wire.revision,
            at: field::time(wire.time, "time")?,
            principal: wire.principal,
            command: wire.command,
            request: field::optional(wire.request, "request")?,
            changes: field::each(wire.changes, "changes", CHANGES_MAX)?,
        })
    }
}
