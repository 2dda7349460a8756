//! The rows that were written last, as they are stored.
//!
//! The state hash takes a row away by its old bytes, and most rows that change were written a moment
//! ago: the header with each command, an operation and its VM with each step. Encoding them again was a
//! tenth of what a command cost each member. So the bytes are kept for a while.
//!
//! Not here: rows. What is not kept is encoded.
//!
//! Invariant: it changes no result, since equal values have equal bytes; tests compare some uses with the
//! encoded value. Bounded: so many rows of so many bytes each.

use berth_state::Change;
use berth_store::row::{Row as StoredRow, RowChange};
use xxhash_rust::xxh3::xxh3_64;

use super::encode_key;
use super::row::encode_value;

/// How many rows are kept. Each key has one place, so that a row replaces another by chance.
const ROWS_MAX: usize = 4096;
/// The largest value that is kept, in bytes: large ones, of hosts, hardly change.
const VALUE_BYTES_MAX: usize = 4096;
/// Where tests run, one of so many uses is compared: each would hide from them what is saved.
const CHECKED_EACH: u64 = 16;

/// The rows that were written last to one state.
#[derive(Debug, Default)]
pub struct RecentRows {
    /// By a hash of the key; empty before the first row.
    places: Vec<Option<StoredRow>>,
    /// How many changes were encoded.
    uses: u64,
}

impl RecentRows {
    /// Returns a change as it is stored. All changes of one state pass through here, in their order.
    #[must_use]
    pub fn encode_change(&mut self, change: &Change) -> RowChange {
        if self.places.is_empty() {
            self.places.resize(ROWS_MAX, None);
        }
        let key = encode_key(&change.key);
        let place = &mut self.places[place_of(&key)];
        let known = place.take_if(|row| row.key == key);
        let old = change.old.as_ref().map(|old| match known {
            Some(row) => row.value,
            None => encode_value(old),
        });
        self.uses = self.uses.wrapping_add(1);
        if cfg!(debug_assertions) && self.uses.is_multiple_of(CHECKED_EACH) {
            let encoded = change.old.as_ref().map(encode_value);
            assert_eq!(old, encoded, "{:?} is not kept as it is", change.key);
        }
        let new = change.new.as_ref().map(encode_value);
        if let Some(value) = new.as_ref().filter(|value| value.len() <= VALUE_BYTES_MAX) {
            *place = Some(StoredRow {
                key: key.clone(),
                value: value.clone(),
            });
        }
        RowChange { key, old, new }
    }
}

fn place_of(key: &[u8]) -> usize {
    let hash = xxh3_64(key) % ROWS_MAX as u64;
    usize::try_from(hash).expect("it is below the number of places")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use berth_domain::id::TimeMs;
    use berth_domain::name::ServerGroupName;
    use berth_domain::ownership::Ownership;
    use berth_domain::server_group::{GroupPolicy, ServerGroup};
    use berth_state::{Key, Row};

    use super::*;
    use crate::encode_change;

    fn group(number: usize, size: usize) -> Arc<ServerGroup> {
        let name = ServerGroupName::new(&format!("g{number}")).expect("a name");
        Arc::new(ServerGroup {
            name,
            policy: GroupPolicy::Affinity,
            max_server_per_host: 0,
            created_at: TimeMs::default(),
            separated_at: None,
            ownership: Ownership {
                project: None,
                creator: "x".repeat(size),
            },
        })
    }

    /// Goal: a change has the same bytes whatever is kept. Method: more rows than there are places, written,
    /// changed, with values that are too large in between, removed and written again.
    #[test]
    fn what_is_kept_changes_nothing() {
        let mut recent = RecentRows::default();
        let sizes = [1, 2, VALUE_BYTES_MAX, 3];
        for number in 0..2 * ROWS_MAX {
            let rows = sizes.map(|size| Row::ServerGroup(group(number, size)));
            let [first, second, large, last] = rows.map(Some);
            let steps = [
                (None, &first),
                (first.as_ref(), &second),
                (second.as_ref(), &large),
                (large.as_ref(), &last),
                (last.as_ref(), &None),
                (None, &first),
            ];
            for (old, new) in steps {
                let change = Change {
                    key: Key::ServerGroup(group(number, 0).name.clone()),
                    old: old.cloned(),
                    new: new.clone(),
                };
                assert_eq!(recent.encode_change(&change), encode_change(&change));
            }
        }
        let kept = recent.places.iter().flatten();
        assert!(kept.clone().count() > ROWS_MAX / 2);
        assert!(
            kept.map(|row| row.value.len())
                .all(|bytes| bytes <= VALUE_BYTES_MAX)
        );
    }
}
