//! What has ended is forgotten by count, the oldest first, so that the state stays bounded.

pub use berth_domain::bound::ENDED_MAX;
/// How many done operations are remembered.
pub use berth_domain::bound::ENDED_MAX as DONE_MAX;

use crate::transaction::{Journal, Transaction};

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
