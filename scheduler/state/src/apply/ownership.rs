//! What a command records as the project and the creator of what it creates.

use berth_domain::ownership::{Ownership, ProjectName};
use berth_domain::version::ServiceVersion;

use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    /// Returns the ownership of a new record; unset as long as older members read what is stored.
    pub(super) fn ownership(&self, project: Option<&ProjectName>) -> Ownership {
        match self.may_write(ServiceVersion::OWNERSHIP) {
            true => Ownership::new(project, self.principal),
            false => Ownership::default(),
        }
    }
}
