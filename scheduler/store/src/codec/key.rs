//! What names a row: one byte for its table, then what is unique within it.
//!
//! Invariant: a byte never changes its table, and two rows never have one key.

use berth_domain::id::{OperationId, ProviderId};
use berth_domain::name::VmName;
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
    }
    bytes.freeze()
}

/// Returns what a key names, for those tables whose changes are watched; nothing for the others.
#[must_use]
pub fn decode_watched_key(key: &[u8]) -> Option<Key> {
    match key.split_first()? {
        (2, id) => Some(Key::Provider(ProviderId(Uuid::from_slice(id).ok()?))),
        (6, name) => Some(Key::Vm(VmName::new(std::str::from_utf8(name).ok()?).ok()?)),
        (9, id) => Some(Key::Operation(OperationId(Uuid::from_slice(id).ok()?))),
        _ => None,
    }
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
        let vm = Key::Vm(VmName::new("a").unwrap());
        let operation = Key::Operation(OperationId(Uuid::from_u128(7)));
        let provider = Key::Provider(ProviderId(Uuid::from_u128(8)));
        for key in [vm, operation, provider] {
            assert_eq!(decode_watched_key(&encode_key(&key)), Some(key));
        }
        assert_eq!(decode_watched_key(&encode_key(&Key::Header)), None);
        assert_eq!(decode_watched_key(&[]), None);
    }
}
