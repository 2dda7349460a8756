//! The watch's messages as changes of the model, and how old the model is.
//!
//! Not here: the stream ([`source`](super::source)).
//!
//! Invariant: what is shown is complete up to one revision. A snapshot is built beside the model that is
//! shown and takes its place as a whole, and the changes of a revision wait until all of it has come.

use std::time::Duration;

use berth_proto::event::v1::WatchResponse;

use super::model::Model;
use crate::watch::incoming::{Incoming, Step};

/// How the stream is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connection {
    /// It is in step with the cluster.
    Live,
    /// It sends the records as they are: so many have come.
    Listing(usize),
    /// It sends what changed while there was none.
    CatchingUp,
    /// There is none.
    Lost {
        /// When it was lost, by the clock of the program.
        since: Duration,
        /// The scheduler that is tried.
        trying: String,
        /// Why the last attempt failed.
        why: String,
    },
}

/// The model, and what is to become of it.
#[derive(Debug)]
pub struct Feed {
    model: Model,
    /// The revision of the model; 0 before the first snapshot.
    revision: u64,
    incoming: Incoming,
    /// The model that a snapshot makes.
    next: Option<Model>,
    connection: Connection,
}

impl Default for Feed {
    fn default() -> Self {
        Self {
            model: Model::default(),
            revision: 0,
            incoming: Incoming::new(0),
            next: None,
            connection: Connection::Listing(0),
        }
    }
}

impl Feed {
    /// Returns the model that is shown.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Returns the revision up to which the model is complete.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns how the stream is.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Returns whether the model is shown although it may be outdated.
    #[must_use]
    pub fn is_old(&self) -> bool {
        self.connection != Connection::Live
    }

    /// Shows this model as the cluster: for pictures of clusters that no scheduler serves.
    pub fn replace(&mut self, model: Model) {
        self.model = model;
        self.connection = Connection::Live;
    }

    /// A scheduler accepted a watch that continues after this revision; from 0 on it sends a snapshot.
    pub fn opened(&mut self, after: u64) {
        self.incoming = Incoming::new(after);
        self.next = (after == 0).then(Model::default);
        self.connection = match after {
            0 => Connection::Listing(0),
            _ => Connection::CatchingUp,
        };
    }

    /// The stream ended, or none could be opened.
    pub fn lost(&mut self, now: Duration, trying: String, why: String) {
        let since = match self.connection {
            Connection::Lost { since, .. } => since,
            Connection::Live | Connection::Listing(_) | Connection::CatchingUp => now,
        };
        self.next = None;
        self.connection = Connection::Lost { since, trying, why };
    }

    /// Applies a message.
    ///
    /// # Errors
    ///
    /// The message is invalid.
    pub fn take(&mut self, message: WatchResponse) -> anyhow::Result<()> {
        let Step {
            snapshot,
            changes,
            is_in_step,
        } = self.incoming.take(message)?;
        let model = self.next.as_mut().unwrap_or(&mut self.model);
        for event in snapshot.into_iter().chain(changes) {
            model.apply(event.change);
        }
        if let Connection::Listing(_) = self.connection {
            self.connection = Connection::Listing(model.record_count());
        }
        if is_in_step {
            self.model = self
                .next
                .take()
                .unwrap_or_else(|| std::mem::take(&mut self.model));
            self.connection = Connection::Live;
        }
        if self.next.is_none() {
            self.revision = self.incoming.revision();
        }
        Ok(())
    }
}
