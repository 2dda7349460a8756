//! What names a row: one byte for its table, then what is unique within it.
//!
//! Invariant: a byte never changes its table, and two rows never have one key.

use berth_domain::event::Name;
use berth_domain::id::{ClaimId, MigrationId, OperationId, ProviderId};
use berth_domain::name::{HostName, VmName};
use berth_state::Key;
use bytes::{BufMut as _, Bytes, BytesMut};
use uuid::Uuid;

/// Returns the key of a row.
#[must_use]
pub fn encode_key(key: &Key) -> Bytes {
    let mut bytes = BytesMut::with_capacity(24);
    match key {
        Key::Header => bytes.put_u8(0),
        Key::Host(name) => put(&mut bytes, 1, name.as_str().as_bytes()),
        Key::Provider(id) => put(&mut bytes, 2, id.0.as_bytes()),
        Key::Consumer(id) => put(&mut bytes, 3, id.0.as_bytes()),
        Key::Flavor(name) => put(&mut bytes, 4, name.as_str().as_bytes()),
        Key::Service(name) => put(&mut bytes, 5, name.as_str().as_bytes()),
        Key::Vm(name) => put(&mut bytes, 6, name.as_str().as_bytes()),
        Key::Claim(id) => put(&mut bytes, 7, id.0.as_bytes()),
        Key::Migration(id) => put(&mut bytes, 8, id.0.as_bytes()),
        Key::Operation(id) => put(&mut bytes, 9, id.0.as_bytes()),
        Key::Request(name) => {
            put(&mut bytes, 10, name.id.0.as_bytes());
            // The length keeps method and principal apart, whatever they hold.
            let length = u32::try_from(name.method.len()).expect("a method has a short name");
            bytes.put_u32(length);
            bytes.put_slice(name.method.as_bytes());
            bytes.put_slice(name.principal.as_bytes());
        }
        Key::Class(name) => put(&mut bytes, 11, name.as_str().as_bytes()),
        Key::Trait(name) => put(&mut bytes, 12, name.as_str().as_bytes()),
        Key::Policy => bytes.put_u8(20),
        Key::PciAlias(name) => put(&mut bytes, 13, name.as_str().as_bytes()),
        Key::ServerGroup(name) => put(&mut bytes, 21, name.as_str().as_bytes()),
        Key::Aggregate(name) => put(&mut bytes, 22, name.as_str().as_bytes()),
        // Most significant byte first: in the order of the revisions.
        Key::Audit(revision) => put(&mut bytes, 23, &revision.to_be_bytes()),
        Key::Volume(id) => put(&mut bytes, 24, id.as_str().as_bytes()),
        Key::RevokedCertificate(fingerprint) => put(&mut bytes, 25, &fingerprint.0),
        Key::RecoveredHost(name) => put(&mut bytes, 26, name.as_str().as_bytes()),
        Key::SettledVm(number) => put(&mut bytes, 27, &number.to_be_bytes()),
        Key::Image(name) => put(&mut bytes, 28, name.as_str().as_bytes()),
        Key::Network(name) => put(&mut bytes, 29, name.as_str().as_bytes()),
    }
    bytes.freeze()
}

/// What a key names, of what is followed by those who watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// A resource provider.
    Provider(ProviderId),
    /// A record of which changes are sent as events.
    Record(Name),
}

/// Returns what a key names, for those tables whose changes are watched; nothing for the others.
#[must_use]
pub fn decode_watched_key(key: &[u8]) -> Option<Watched> {
    let (table, name) = key.split_first()?;
    let text = || std::str::from_utf8(name).ok();
    let uuid = || Uuid::from_slice(name).ok();
    Some(Watched::Record(match table {
        1 => Name::Host(HostName::new(text()?).ok()?),
        2 => return Some(Watched::Provider(ProviderId(uuid()?))),
        6 => Name::Vm(VmName::new(text()?).ok()?),
        7 => Name::Claim(ClaimId(uuid()?)),
        8 => Name::Migration(MigrationId(uuid()?)),
        9 => Name::Operation(OperationId(uuid()?)),
        23 => Name::Audit(u64::from_be_bytes(name.try_into().ok()?)),
        _ => return None,
    }))
}

/// Returns the name of the table that a key belongs to; nothing for one that this build does not know.
#[must_use]
pub fn table_name(key: &[u8]) -> Option<&'static str> {
    Some(match key.first()? {
        0 => "header",
        1 => "hosts",
        2 => "providers",
        3 => "consumers",
        4 => "flavors",
        5 => "services",
        6 => "vms",
        7 => "claims",
        8 => "migrations",
        9 => "operations",
        10 => "requests",
        11 => "classes",
        12 => "traits",
        13 => "pci_aliases",
        20 => "policy",
        21 => "server_groups",
        22 => "aggregates",
        23 => "audit",
        24 => "volumes",
        25 => "revoked_certificates",
        26 => "recovered_hosts",
        27 => "settled_vms",
        28 => "images",
        29 => "networks",
        _ => return None,
    })
}

fn put(bytes: &mut BytesMut, table: u8, name: &[u8]) {
    bytes.put_u8(table);
    bytes.put_slice(name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watched_keys_are_read_as_they_were_written() {
        let (vm, host) = (VmName::new("a").unwrap(), HostName::new("h").unwrap());
        let id = Uuid::from_u128;
        let records = [
            (Key::Vm(vm.clone()), Name::Vm(vm)),
            (Key::Host(host.clone()), Name::Host(host)),
            (Key::Claim(ClaimId(id(1))), Name::Claim(ClaimId(id(1)))),
            (
                Key::Migration(MigrationId(id(2))),
                Name::Migration(MigrationId(id(2))),
            ),
            (
                Key::Operation(OperationId(id(3))),
                Name::Operation(OperationId(id(3))),
            ),
        ];
        let records = records
            .into_iter()
            .chain([(Key::Audit(300), Name::Audit(300))]);
        for (key, name) in records {
            let watched = decode_watched_key(&encode_key(&key));
            assert_eq!(watched, Some(Watched::Record(name)));
        }
        let provider = ProviderId(id(4));
        assert_eq!(
            decode_watched_key(&encode_key(&Key::Provider(provider))),
            Some(Watched::Provider(provider))
        );
        assert_eq!(decode_watched_key(&encode_key(&Key::Header)), None);
        assert_eq!(decode_watched_key(&[]), None);
    }
}
