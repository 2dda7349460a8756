//! Writes of what hosts report in a recovery, and the indexes that follow from them and from the hosts:
//! which hosts are quiet or dead, and where orphans are.
//!
//! Invariant: outside of a recovery the writes of hosts without orphans cost a few comparisons here.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_domain::host::Host;
use berth_domain::name::HostName;
use berth_domain::recovery::{RecoveredHost, SettledVm};

use super::{Journal, Transaction};
use crate::recovery::is_dead;
use crate::row::{Change, Key, Row};

impl<J: Journal> Transaction<'_, J> {
    pub(crate) fn put_recovered_host(&mut self, report: RecoveredHost) -> Arc<RecoveredHost> {
        let report = Arc::new(report);
        let name = &report.host;
        let recovered = &mut self.state.recovered_hosts;
        let old = recovered.insert(name.clone(), report.clone());
        self.forget_quiet(old.as_deref());
        self.follow_quiet(name);
        self.journal.record(|| Change {
            key: Key::RecoveredHost(name.clone()),
            old: old.map(Row::RecoveredHost),
            new: Some(Row::RecoveredHost(report.clone())),
        });
        report
    }

    pub(crate) fn remove_recovered_host(&mut self, name: &HostName) {
        let old = self.state.recovered_hosts.remove(name);
        self.forget_quiet(old.as_deref());
        self.journal.record(|| Change {
            key: Key::RecoveredHost(name.clone()),
            old: old.map(Row::RecoveredHost),
            new: None,
        });
    }

    pub(crate) fn put_settled_vm(&mut self, settled: SettledVm) {
        let settled = Arc::new(settled);
        let number = settled.number;
        let old = self.state.settled_vms.insert(number, settled.clone());
        self.journal.record(|| Change {
            key: Key::SettledVm(number),
            old: old.map(Row::SettledVm),
            new: Some(Row::SettledVm(settled)),
        });
    }

    pub(crate) fn remove_settled_vm(&mut self, number: u32) {
        let old = self.state.settled_vms.remove(&number);
        self.journal.record(|| Change {
            key: Key::SettledVm(number),
            old: old.map(Row::SettledVm),
            new: None,
        });
    }

    /// Brings the indexes up to a host that was written or removed; `old` is its row of before.
    pub(super) fn follow_host(&mut self, name: &HostName, old: Option<&Host>) {
        let host = self.state.hosts.get(name).map(|view| view.host.clone());
        let none = BTreeSet::new();
        let before = old.map_or(&none, |host| &host.orphans);
        let after = host.as_deref().map_or(&none, |host| &host.orphans);
        let index = &mut self.state.index;
        for uuid in before.difference(after) {
            index.orphans.remove(&(*uuid, name.clone()));
        }
        for uuid in after.difference(before) {
            index.orphans.insert((*uuid, name.clone()));
        }
        let is_dead = host.as_deref().is_some_and(is_dead);
        match (is_dead, index.dead.contains(name)) {
            (true, false) => drop(index.dead.insert(name.clone())),
            (false, true) => drop(index.dead.remove(name)),
            (true, true) | (false, false) => {}
        }
        self.follow_quiet(name);
    }

    /// Forgets when a host was quiet by a report that counts no more.
    fn forget_quiet(&mut self, old: Option<&RecoveredHost>) {
        if let Some(old) = old {
            let entry = (old.quiet_at, old.host.clone());
            self.state.index.quiet.remove(&entry);
        }
    }

    /// Records when a host was quiet, if it has reported and a guest may run there.
    fn follow_quiet(&mut self, name: &HostName) {
        let Some(report) = self.state.recovered_hosts.get(name) else {
            return;
        };
        let entry = (report.quiet_at, name.clone());
        let view = self.state.hosts.get(name);
        let quiet = &mut self.state.index.quiet;
        match view.is_some_and(|view| !is_dead(&view.host)) {
            true => drop(quiet.insert(entry)),
            false => drop(quiet.remove(&entry)),
        }
    }
}
