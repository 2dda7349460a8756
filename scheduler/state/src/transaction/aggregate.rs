//! Writes to aggregates: what they say follows into the views of their hosts, and what the policy says
//! of them as groups.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_domain::aggregate::{Aggregate, HostAggregates};
use berth_domain::name::{AggregateName, HostName};

use super::{Journal, Transaction};
use crate::row::{Change, Key, Row};

impl<J: Journal> Transaction<'_, J> {
    /// Writes an aggregate, and what it says of its hosts.
    pub(crate) fn put_aggregate(&mut self, aggregate: Aggregate) -> Arc<Aggregate> {
        let aggregate = Arc::new(aggregate);
        let name = aggregate.name.clone();
        let old = self.state.aggregates.insert(name, aggregate.clone());
        self.move_aggregate(old.as_deref(), Some(&aggregate));
        self.journal.record(|| Change {
            key: Key::Aggregate(aggregate.name.clone()),
            old: old.map(Row::Aggregate),
            new: Some(Row::Aggregate(aggregate.clone())),
        });
        aggregate
    }

    pub(crate) fn remove_aggregate(&mut self, name: &AggregateName) {
        let old = self.state.aggregates.remove(name);
        self.move_aggregate(old.as_deref(), None);
        self.journal.record(|| Change {
            key: Key::Aggregate(name.clone()),
            old: old.map(Row::Aggregate),
            new: None,
        });
    }

    fn move_aggregate(&mut self, old: Option<&Aggregate>, new: Option<&Aggregate>) {
        let mut touched = BTreeSet::new();
        if let Some(aggregate) = old {
            for host in &aggregate.hosts {
                let index = &mut self.state.index.host_aggregates;
                if let Some(names) = index.get_mut(host) {
                    names.remove(&aggregate.name);
                    if names.is_empty() {
                        index.remove(host);
                    }
                }
                touched.insert(host.clone());
            }
        }
        if let Some(aggregate) = new {
            for host in &aggregate.hosts {
                let names = self.state.index.host_aggregates.entry(host.clone());
                names.or_default().insert(aggregate.name.clone());
                touched.insert(host.clone());
            }
        }
        for host in touched {
            let said = self.said_of(&host);
            // While the state is put together from rows, the host may come later.
            if let Some(view) = self.state.hosts.get_mut(&host)
                && view.aggregates != said
            {
                Arc::make_mut(view).set_aggregates(said);
            }
            self.settle_rule(&host);
        }
    }

    /// Returns what the aggregates of a host say of it.
    pub(super) fn said_of(&self, host: &HostName) -> Arc<HostAggregates> {
        let aggregates = self.state.aggregates_of(host);
        Arc::new(HostAggregates::of(aggregates.map(|aggregate| &**aggregate)))
    }
}
