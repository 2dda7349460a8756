//! The history of a VM or a host, made of the commands of a replay: what each of them changed of it.
//!
//! It is the same for the log of a member and for backups. Not here: where the commands come from, and
//! the method that serves it.
//!
//! Invariant: an entry has every record of its subject that the command changed, as it was and as it
//! became, and nothing else.

use berth_codec::{self as codec, CodecError, Watched};
use berth_domain::event::Record;
use berth_domain::history::{Changed, Entry, Subject};
use berth_domain::refusal::Refusal;
use berth_replication::replay::Observer;
use berth_replication::{Applied, Row as StoredRow, RowChange};
use berth_state::Reply;
use berth_state::command::Envelope;
use bytes::Bytes;

use crate::feed::record;
use crate::machine::Machine;

/// Takes the entries of one subject out of a replay.
pub struct ChangeLog {
    subject: Subject,
    entries: Vec<Entry>,
    failed: Option<CodecError>,
}

impl ChangeLog {
    /// Begins without an entry.
    #[must_use]
    pub fn new(subject: Subject) -> Self {
        Self {
            subject,
            entries: Vec::new(),
            failed: None,
        }
    }

    /// Returns the entries since the last call, in order.
    ///
    /// # Errors
    ///
    /// A row cannot be read, which is a fault of the program.
    pub fn take(&mut self) -> Result<Vec<Entry>, CodecError> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut self.entries)),
        }
    }

    fn entry(
        &self,
        revision: u64,
        envelope: &Envelope,
        changes: &[RowChange],
    ) -> Result<Option<Entry>, CodecError> {
        let mut request = None;
        let mut own = Vec::new();
        for change in changes {
            let Some(changed) = changed(change)? else {
                continue;
            };
            let concerns = |record: &Option<Record>| {
                record
                    .as_ref()
                    .is_some_and(|record| self.subject.concerns(record))
            };
            if !concerns(&changed.before) && !concerns(&changed.after) {
                continue;
            }
            match (&changed.before, &changed.after) {
                (_, Some(Record::Audit(entry))) => request = Some((**entry).clone()),
                // An old entry of the audit was dropped.
                (Some(Record::Audit(_)), None) => {}
                (_, _) => own.push(changed),
            }
        }
        if request.is_none() && own.is_empty() {
            return Ok(None);
        }
        Ok(Some(Entry {
            revision,
            at: envelope.at,
            principal: envelope.principal.clone(),
            command: envelope.command.name(),
            request,
            changes: own,
        }))
    }
}

/// Returns the record of a row, before and after; nothing where it is of a table without events.
fn changed(change: &RowChange) -> Result<Option<Changed>, CodecError> {
    match codec::decode_watched_key(&change.key) {
        None | Some(Watched::Provider(_)) => return Ok(None),
        Some(Watched::Record(_)) => {}
    }
    let read = |value: &Option<Bytes>| {
        let Some(value) = value else {
            return Ok(None);
        };
        let stored = StoredRow {
            key: change.key.clone(),
            value: value.clone(),
        };
        codec::decode_row(&stored).map(record)
    };
    Ok(Some(Changed {
        before: read(&change.old)?,
        after: read(&change.new)?,
    }))
}

impl Observer<Machine> for ChangeLog {
    fn before(&mut self, _: &Machine, _: u64, _: &Envelope) {}

    fn after(
        &mut self,
        _: &Machine,
        index: u64,
        envelope: &Envelope,
        applied: &Applied<Result<Reply, Refusal>>,
    ) {
        match self.entry(index, envelope, &applied.changes) {
            Ok(entry) => self.entries.extend(entry),
            Err(error) => self.failed = Some(error),
        }
    }
}
