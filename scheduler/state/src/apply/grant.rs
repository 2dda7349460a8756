//! The keys with which grants are signed. Their secrets come inside the command: the leader that
//! proposes it draws them.

use berth_domain::grant::{GrantKey, GrantSeed};
use berth_domain::refusal::Refusal;
use berth_domain::version::{CLUSTER_TOO_OLD, ServiceVersion};

use crate::refusals::precondition;
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    /// The number is that of the next key, so that one that was proposed twice replaces it once.
    pub(super) fn replace_grant_key(
        &mut self,
        number: u32,
        seed: GrantSeed,
    ) -> Result<Reply, Refusal> {
        if !self.may_write(ServiceVersion::GRANTS) {
            let present = self.state.header.cluster_version;
            let needed = ServiceVersion::GRANTS;
            let message =
                format!("grants require cluster version {needed}, the cluster is at {present}");
            return Err(precondition(CLUSTER_TOO_OLD, message)
                .with("cluster_version", present)
                .with("needed_version", needed));
        }
        let [present, _] = self.state.header.grant_keys;
        if number != present.map_or(0, |key| key.number).saturating_add(1) {
            return Ok(Reply::None);
        }
        let key = GrantKey {
            number,
            seed,
            created_at: self.now(),
        };
        self.state.header.grant_keys = [Some(key), present];
        Ok(Reply::None)
    }
}
