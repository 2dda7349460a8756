//! Writes to the audit.

use std::sync::Arc;

use berth_domain::audit::Entry;

use super::{Journal, Transaction};
use crate::row::{Change, Key, Row};

impl<J: Journal> Transaction<'_, J> {
    pub(crate) fn put_audit(&mut self, entry: Entry) {
        let entry = Arc::new(entry);
        let old = self.state.audit.insert(entry.revision, entry.clone());
        self.journal.record(|| Change {
            key: Key::Audit(entry.revision),
            old: old.map(Row::Audit),
            new: Some(Row::Audit(entry)),
        });
    }

    pub(crate) fn remove_audit(&mut self, revision: u64) {
        let old = self.state.audit.remove(&revision);
        self.journal.record(|| Change {
            key: Key::Audit(revision),
            old: old.map(Row::Audit),
            new: None,
        });
    }
}
