//! The history of a VM or of a host: what changed, by which command, and who requested it.
//!
//! Not here: where it is read from (the log of a scheduler, or backups), and what is shown of it.

use crate::audit;
use crate::event::Record;
use crate::id::TimeMs;
use crate::name::{HostName, VmName};

/// Whose history it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Every VM of this name, one after the other.
    Vm(VmName),
    /// A host.
    Host(HostName),
}

impl Subject {
    /// Returns whether a record is about it: the VM, its claims, operations and migrations; the host,
    /// the claims on it, and what moves VMs to it and from it.
    #[must_use]
    pub fn concerns(&self, record: &Record) -> bool {
        match self {
            Self::Vm(name) => vm_of(record) == Some(name),
            Self::Host(name) => is_about_host(record, name),
        }
    }
}

fn vm_of(record: &Record) -> Option<&VmName> {
    match record {
        Record::Vm(vm) => Some(&vm.name),
        Record::Migration(migration) => Some(&migration.vm),
        Record::Claim(claim) => Some(&claim.vm),
        Record::Operation(operation) => operation.vm(),
        Record::Audit(entry) => entry.request.vm.as_ref(),
        Record::Host(_) => None,
    }
}

fn is_about_host(record: &Record, name: &HostName) -> bool {
    match record {
        Record::Host(host) => host.name == *name,
        Record::Claim(claim) => claim.host == *name,
        Record::Migration(migration) => {
            migration.source == *name || migration.destination.as_ref() == Some(name)
        }
        // Those of VMs are seen by their claims.
        Record::Operation(operation) => operation.drain().is_some_and(|drain| drain.host == *name),
        Record::Audit(entry) => {
            let choice = entry.request.choice.as_ref();
            entry.request.host.as_ref() == Some(name)
                || choice.is_some_and(|choice| choice.host == *name)
        }
        Record::Vm(_) => false,
    }
}

/// A record that a command made, changed or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The record before it; absent for a new one.
    pub before: Option<Record>,
    /// The record after it; absent for a deleted one.
    pub after: Option<Record>,
}

impl Changed {
    /// Returns the record: as it became, or as it was before it was deleted.
    #[must_use]
    pub fn record(&self) -> Option<&Record> {
        self.after.as_ref().or(self.before.as_ref())
    }
}

/// What one command did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The revision of the command.
    pub revision: u64,
    /// When, in replicated time.
    pub at: TimeMs,
    /// Who requested it, as far as it is known.
    pub principal: String,
    /// What was done, as `BeginBoot`: the name of the replicated command.
    pub command: String,
    /// What the audit has of the request and of how a host was chosen; absent for what no client
    /// requested, and for the steps of operations.
    pub request: Option<audit::Entry>,
    /// The records that changed.
    pub changes: Vec<Changed>,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::audit::{Chosen, Outcome, RequestSummary};

    fn audited(vm: Option<&str>, host: Option<&str>, chosen: Option<&str>) -> Record {
        let name = |text: &str| HostName::new(text).unwrap();
        let choice = chosen.map(|host| {
            Arc::new(Chosen {
                host: name(host),
                hosts: 1,
                passed: 1,
                tried: 1,
                ranking: Vec::new(),
            })
        });
        Record::Audit(Arc::new(audit::Entry {
            revision: 7,
            at: TimeMs(1),
            principal: "ann".to_owned(),
            request: RequestSummary {
                method: "ScheduleVm".to_owned(),
                request_id: None,
                vm: vm.map(|text| VmName::new(text).unwrap()),
                host: host.map(name),
                summary: String::new(),
                choice,
            },
            outcome: Outcome::Accepted { operation: None },
        }))
    }

    /// Goal: a request is in the history of its VM, of the host that it names and of the one that was
    /// chosen, and in no other. Method: the full product of what it may name.
    #[test]
    fn a_request_is_in_the_histories_of_what_it_is_about() {
        let vm = Subject::Vm(VmName::new("a").unwrap());
        let host = Subject::Host(HostName::new("a").unwrap());
        let names = [None, Some("a"), Some("b")];
        for of_vm in names {
            for named in names {
                for chosen in names {
                    let record = audited(of_vm, named, chosen);
                    assert_eq!(vm.concerns(&record), of_vm == Some("a"));
                    let is_host = named == Some("a") || chosen == Some("a");
                    assert_eq!(host.concerns(&record), is_host, "{record:?}");
                }
            }
        }
    }
}
