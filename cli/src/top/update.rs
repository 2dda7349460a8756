//! What arrives from the cluster, and what becomes of the program's state with it.

use std::time::Duration;

use berth_domain::id::MigrationId;
use berth_domain::transfer::TransferProgress;
use berth_proto::event::v1::WatchResponse;

use super::app::App;
use super::feed::Connection;
use super::hosts::Aggregates;
use super::overview::{Status, Verdicts};

/// What arrives.
#[derive(Debug)]
pub enum Update {
    /// A scheduler accepted a watch that continues after this revision.
    Opened(u64),
    /// A message of the watch.
    Message(Box<WatchResponse>),
    /// There is no watch.
    Lost {
        /// The scheduler that is tried.
        trying: String,
        /// Why the last attempt failed.
        why: String,
    },
    /// What schedulers say of themselves, or why that is not known.
    Status(Result<Status, String>),
    /// The aggregates of each host.
    Aggregates(Aggregates),
    /// What would fail, or why that is not known.
    Verdicts(Result<Verdicts, String>),
    /// How far a transfer is, and the time that is left in milliseconds.
    Transfer(MigrationId, Box<TransferProgress>, Option<u64>),
}

/// Verdicts are worked out by themselves in a cluster of at most so many hosts: the time grows with the
/// square of their number.
const VERIFIED_HOSTS_MAX: usize = 1_000;
/// How often at most.
const VERIFY_PERIOD: Duration = Duration::from_secs(60);

impl App {
    /// Takes what arrived.
    ///
    /// # Errors
    ///
    /// The watch sent what this program does not understand.
    pub fn update(&mut self, update: Update, now: Duration) -> anyhow::Result<()> {
        match update {
            Update::Opened(after) => self.feed.opened(after),
            Update::Message(message) => self.feed.take(*message)?,
            Update::Lost { trying, why } => self.feed.lost(now, trying, why),
            Update::Status(status) => self.overview.status.record(status, now),
            Update::Aggregates(aggregates) => self.aggregates = aggregates,
            Update::Verdicts(verdicts) => {
                self.overview.is_verifying = false;
                self.overview.verdicts.record(verdicts, now);
                self.overview.last_verified = Some((self.feed.revision(), now));
            }
            Update::Transfer(id, progress, left) => {
                self.transfers.insert(id, (*progress, left));
            }
        }
        Ok(())
    }

    /// Returns whether the verdicts are to be worked out again: something changed, and some time passed.
    pub fn is_verification_due(&mut self, now: Duration) -> bool {
        let hosts = self.feed.model().host_count();
        self.overview.verifies = hosts <= VERIFIED_HOSTS_MAX;
        let is_live = *self.feed.connection() == Connection::Live;
        if !is_live || !self.overview.verifies || self.overview.is_verifying {
            return false;
        }
        let revision = self.feed.revision();
        let last = self.overview.last_verified;
        last.is_none_or(|(verified, at)| {
            verified != revision && now.saturating_sub(at) >= VERIFY_PERIOD
        })
    }

    /// Returns whether what is shown changes as time passes.
    #[must_use]
    pub fn shows_time(&self) -> bool {
        let mut operations = self.feed.model().operations();
        self.feed.is_old() || operations.any(|operation| !operation.is_done())
    }
}
