//! What a member writes: its log with the checkpoints that it was sent, and its table.

use std::collections::BTreeMap;

use berth_replication::effects::{AppliedBatch, Persist};
use berth_replication::{Machine as _, Position, RowChange};
use berth_scheduler::machine::Machine;
use berth_store::{LogStore as _, Membership, TableMeta, TableStore as _};

use super::{Running, Want};
use crate::bug::Bug;
use crate::chance::Chance;

impl Running {
    pub(super) fn persist(
        &mut self,
        persist: Persist,
        bug: Option<Bug>,
        wants: &mut Vec<Want>,
    ) -> Result<(), String> {
        if let Some(index) = persist.install {
            let at = self.received.iter().position(|(i, _)| *i == index);
            let (_, sink) = self
                .received
                .swap_remove(at.ok_or("an unknown checkpoint is installed")?);
            self.received.clear();
            sink.commit(index, 2).map_err(|e| e.to_string())?;
        }
        self.parts
            .log
            .append(persist.batch)
            .map_err(|e| e.to_string())?;
        self.unsynced.push_back(persist.number);
        if bug == Some(Bug::AnswerBeforeSync) {
            self.replica
                .persisted(persist.number)
                .map_err(|e| e.to_string())?;
        }
        wants.push(Want::Sync(persist.number));
        Ok(())
    }

    pub(super) fn write_table(
        &mut self,
        applied: &AppliedBatch<Machine>,
        cluster: &str,
        chance: &mut Chance,
    ) -> Result<(), String> {
        let changes = applied.commands.iter().flat_map(|c| &c.changes);
        let batch: BTreeMap<_, _> = changes
            .map(|c: &RowChange| (c.key.clone(), c.new.clone()))
            .collect();
        let meta = self.meta(applied.position, cluster);
        let table = &mut self.parts.table;
        table
            .write(batch.into_iter().collect(), Some(&meta))
            .map_err(|e| e.to_string())?;
        if chance.percent(30) {
            table.flush().map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    pub(super) fn rebuild_table(&mut self, cluster: &str) -> Result<(), String> {
        let Some(machine) = self.replica.machine() else {
            return Ok(());
        };
        let rows = machine
            .rows()
            .map(|row| (row.key, Some(row.value)))
            .collect();
        let meta = self.meta(self.replica.position(), cluster);
        let table = &mut self.parts.table;
        table.clear().map_err(|e| e.to_string())?;
        table.write(rows, None).map_err(|e| e.to_string())?;
        table.flush().map_err(|e| e.to_string())?;
        table
            .write(Vec::new(), Some(&meta))
            .map_err(|e| e.to_string())?;
        table.flush().map_err(|e| e.to_string())
    }

    fn meta(&self, position: Position, cluster: &str) -> TableMeta {
        TableMeta {
            index: position.index,
            term: position.term,
            state_hash: position.hash.to_bytes().into(),
            rows: position.rows,
            membership: Membership::clone(self.replica.membership()),
            cluster_id: cluster.to_owned(),
        }
    }
}
