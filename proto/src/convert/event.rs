//! Events of changes.

use std::sync::Arc;

use berth_domain::event::{Change, Event, Kind, Name, Record};

use super::audit;
use super::field::{self, Invalid, choices};
use super::name::ResourceName;
use crate::event::v1;
use crate::event::v1::event::Change as Wire;
use crate::event::v1::record::Record as WireRecord;

choices!(Kind => v1::Kind { Vm, Migration, Host, Claim, Operation, Audit });

/// Reads the name of a record, as `vms/a`: its collection is its kind.
///
/// # Errors
///
/// When it is no name of something that can be watched.
pub fn read_name(text: &str, field: &str) -> Result<Name, Invalid> {
    let collection = text.split('/').next().unwrap_or_default();
    match collection {
        "vms" => field::name(text, field).map(Name::Vm),
        "migrations" => field::name(text, field).map(Name::Migration),
        "hosts" => field::name(text, field).map(Name::Host),
        "claims" => field::name(text, field).map(Name::Claim),
        "operations" => field::name(text, field).map(Name::Operation),
        "auditEntries" => audit::read_name(text, field).map(Name::Audit),
        _ => Err(Invalid::new(
            field,
            "must begin with vms/, migrations/, hosts/, claims/, operations/ or auditEntries/",
        )),
    }
}

/// Returns the name of a record on the wire.
#[must_use]
pub fn write_name(name: &Name) -> String {
    match name {
        Name::Vm(name) => name.resource_name(),
        Name::Migration(id) => id.resource_name(),
        Name::Host(name) => name.resource_name(),
        Name::Claim(id) => id.resource_name(),
        Name::Operation(id) => id.resource_name(),
        Name::Audit(revision) => audit::write_name(*revision),
    }
}

impl From<&Record> for v1::Record {
    fn from(record: &Record) -> Self {
        let record = match record {
            Record::Vm(vm) => WireRecord::Vm((&**vm).into()),
            Record::Migration(migration) => WireRecord::Migration((&**migration).into()),
            Record::Host(host) => WireRecord::Host((&**host).into()),
            Record::Claim(claim) => WireRecord::Claim((&**claim).into()),
            Record::Operation(operation) => WireRecord::Operation((&**operation).into()),
            Record::Audit(entry) => WireRecord::Audit((&**entry).into()),
        };
        Self {
            record: Some(record),
        }
    }
}

impl TryFrom<v1::Record> for Record {
    type Error = Invalid;

    fn try_from(wire: v1::Record) -> Result<Self, Invalid> {
        let record = wire
            .record
            .ok_or_else(|| Invalid::here("must be a record of a known kind"))?;
        Ok(match record {
            WireRecord::Vm(vm) => Self::Vm(Arc::new(vm.try_into()?)),
            WireRecord::Migration(migration) => Self::Migration(Arc::new(migration.try_into()?)),
            WireRecord::Host(host) => Self::Host(Arc::new(host.try_into()?)),
            WireRecord::Claim(claim) => Self::Claim(Arc::new(claim.try_into()?)),
            WireRecord::Operation(operation) => Self::Operation(Arc::new(operation.try_into()?)),
            WireRecord::Audit(entry) => Self::Audit(Arc::new(entry.try_into()?)),
        })
    }
}

impl From<&Event> for v1::Event {
    fn from(event: &Event) -> Self {
        let name = event.change.name();
        Self {
            revision: event.revision,
            kind: v1::Kind::from(name.kind()).into(),
            name: write_name(&name),
            change: Some(match &event.change {
                Change::Put(record) => Wire::Put(record.into()),
                Change::Deleted(_) => Wire::Deleted(v1::Deleted {}),
            }),
        }
    }
}

impl TryFrom<v1::Event> for Event {
    type Error = Invalid;

    fn try_from(wire: v1::Event) -> Result<Self, Invalid> {
        let name = read_name(&wire.name, "name")?;
        if field::choice::<v1::Kind, Kind>(wire.kind, "kind")? != name.kind() {
            return Err(Invalid::new("kind", "must be the kind of the name"));
        }
        let change = match wire.change {
            Some(Wire::Put(record)) => {
                let record: Record = field::required(Some(record), "put")?;
                if record.name() != name {
                    return Err(Invalid::new("put", "must be the record of the name"));
                }
                Change::Put(record)
            }
            Some(Wire::Deleted(_)) => Change::Deleted(name),
            None => return Err(Invalid::new("change", "is required")),
        };
        Ok(Self {
            revision: wire.revision,
            change,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a name has its kind, is written as it was read, and others are refused.
    #[test]
    fn names_say_their_kind() {
        let id = "01234567-89ab-7def-8123-456789abcdef";
        let names = ["vms/a", "hosts/h1", "auditEntries/7"]
            .map(str::to_owned)
            .into_iter();
        let ids = ["migrations", "claims", "operations"].map(|c| format!("{c}/{id}"));
        let mut kinds = Vec::new();
        for text in names.chain(ids) {
            let name = read_name(&text, "name").expect("a name");
            assert_eq!(write_name(&name), text);
            kinds.push(name.kind());
        }
        kinds.sort_unstable();
        assert_eq!(kinds, Kind::ALL);
        for text in ["", "vms", "vms/-", "claims/7", "flavors/a", "a"] {
            assert!(read_name(text, "names[0]").is_err(), "{text:?}");
        }
    }

    /// Goal: an event that contradicts itself is refused.
    #[test]
    fn events_are_of_one_record() {
        let event = Event {
            revision: 7,
            change: Change::Deleted(read_name("vms/a", "name").expect("a name")),
        };
        let wire = v1::Event::from(&event);
        assert_eq!(Event::try_from(wire.clone()), Ok(event));
        let other_kind = v1::Event {
            kind: v1::Kind::Host.into(),
            ..wire.clone()
        };
        let nothing = v1::Event {
            change: None,
            ..wire
        };
        for wrong in [other_kind, nothing] {
            assert!(Event::try_from(wrong.clone()).is_err(), "{wrong:?}");
        }
    }
}
