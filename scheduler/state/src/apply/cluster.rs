//! Naming the cluster.

use berth_domain::id::ClusterId;
use berth_domain::refusal::Refusal;

use crate::refusals::precondition;
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn bootstrap(&mut self, cluster: ClusterId) -> Result<Reply, Refusal> {
        match self.state.header.cluster {
            Some(known) if known != cluster => Err(precondition(
                "CLUSTER_EXISTS",
                format!("this is cluster {known} already"),
            )
            .with("cluster", known)),
            Some(_) | None => {
                self.state.header.cluster = Some(cluster);
                Ok(Reply::None)
            }
        }
    }
}
