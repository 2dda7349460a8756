//! What has ended is forgotten by count, the oldest first, so that the state stays bounded.

use crate::transaction::{Journal, Transaction};

/// How many done operations are remembered.
pub const DONE_MAX: usize = 1_000;

/// How many ended migrations are remembered.
pub const ENDED_MAX: usize = 1_000;

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn trim(&mut self) {
        while self.state.index.done.len() > DONE_MAX {
            let Some((_, oldest)) = self.state.index.done.get_min().copied() else {
                return;
            };
            self.remove_operation(oldest);
        }
        while self.state.index.ended.len() > ENDED_MAX {
            let Some((_, oldest)) = self.state.index.ended.get_min().copied() else {
                return;
            };
            self.remove_migration(oldest);
        }
    }
}
