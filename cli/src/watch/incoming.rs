//! The messages of a watch as complete revisions.
//!
//! Not here: what is done with the events, which printing and the model of `berth top` do in their own way.
//!
//! Invariant: an event is returned once, and not before all events of its revision have come: a watch that
//! breaks off within a revision is sent all of it again.

use berth_domain::event::Event;
use berth_proto::event::v1::WatchResponse;
use berth_proto::event::v1::watch_response::Phase;

/// What a message completes.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// Records as they are.
    pub(crate) snapshot: Vec<Event>,
    /// Changes of revisions that are complete.
    pub(crate) changes: Vec<Event>,
    /// Whether the snapshot, or what changed before the watch began, is complete with it.
    pub(crate) is_in_step: bool,
}

/// The state of a stream.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// The revision to continue from.
    revision: u64,
    /// Events of a revision that has not come to its end.
    open: Vec<Event>,
}

impl Incoming {
    /// Returns that of a watch which continues after a revision.
    pub(crate) fn new(revision: u64) -> Self {
        Self {
            revision,
            open: Vec::new(),
        }
    }

    /// Returns the revision up to which everything was returned; 0 within a snapshot.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The stream ended: what was open is sent again.
    pub(crate) fn interrupt(&mut self) {
        self.open.clear();
    }

    /// Takes a message.
    ///
    /// # Errors
    ///
    /// An event of it is invalid.
    pub(crate) fn take(&mut self, message: WatchResponse) -> anyhow::Result<Step> {
        let phase = message.phase();
        let mut step = Step {
            is_in_step: phase == Phase::InStep,
            ..Step::default()
        };
        for wire in message.events {
            let event = Event::try_from(wire)?;
            match phase {
                Phase::Snapshot => step.snapshot.push(event),
                Phase::Unspecified | Phase::InStep | Phase::Changes | Phase::Progress => {
                    self.open.push(event);
                }
            }
        }
        let complete = self
            .open
            .partition_point(|e| e.revision <= message.revision);
        step.changes = self.open.drain(..complete).collect();
        self.revision = message.revision;
        Ok(step)
    }
}
