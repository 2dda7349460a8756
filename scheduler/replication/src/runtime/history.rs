//! What a backup reads of a member: its state with its place in the log, and entries of the log.
//!
//! Both come from the owner's task and need no leader. A state is a clone of persistent maps, and
//! entries are read a part at a time, so that the owner is never occupied for long.

use raft::eraftpb::Entry;
use tokio::sync::oneshot;

use super::handle::{Handle, ReadError, Request};
use crate::effects::Replaced;
use crate::history::{HistoryError, Reached};
use crate::machine::Machine;

/// How many bytes of the log are copied in one turn of the owner.
const PART_BYTES: u64 = 1 << 20;

impl<M: Machine> Handle<M> {
    /// Returns this member's applied state as it is, with its place in the log and the membership
    /// there.
    ///
    /// # Errors
    ///
    /// It has none yet, or is stopping.
    pub async fn snapshot(&self) -> Result<Replaced<M>, ReadError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.requests.send(Request::Snapshot(reply)).await;
        sent.map_err(|_| ReadError::Stopped)?;
        answer.await.unwrap_or(Err(ReadError::Stopped))
    }

    /// Returns all applied entries behind `reached`, up to the index `last`.
    ///
    /// The bytes are shared with the log in memory; they are not copied, but kept from being freed.
    ///
    /// # Errors
    ///
    /// Why the log does not give them.
    pub async fn log_between(
        &self,
        reached: Reached,
        last: u64,
    ) -> Result<Vec<Entry>, HistoryError> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut next = reached;
        loop {
            let part = self.log_part(next).await?;
            let taken = part.into_iter().take_while(|entry| entry.index <= last);
            let before = entries.len();
            entries.extend(taken);
            let Some(end) = entries.get(before..).and_then(<[Entry]>::last) else {
                return Ok(entries);
            };
            next = Reached {
                index: end.index,
                term: end.term,
                hash: None,
            };
            if end.index >= last {
                return Ok(entries);
            }
        }
    }

    async fn log_part(&self, after: Reached) -> Result<Vec<Entry>, HistoryError> {
        let (reply, answer) = oneshot::channel();
        let bytes_max = PART_BYTES;
        let request = Request::Log {
            after,
            bytes_max,
            reply,
        };
        let sent = self.requests.send(request).await;
        sent.map_err(|_| HistoryError::Stopped)?;
        answer.await.unwrap_or(Err(HistoryError::Stopped))
    }
}
