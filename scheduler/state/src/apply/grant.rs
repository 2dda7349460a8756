//! The keys with which grants are signed. Their secrets come inside the command: the leader that
//! proposes it draws them.

use berth_domain::grant::{GrantKey, GrantSeed};
use berth_domain::refusal::Refusal;
use berth_domain::version::ServiceVersion;

use crate::refusals::cluster_too_old;
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
            return Err(cluster_too_old(
                "a key for grants",
                present,
                ServiceVersion::GRANTS,
            ));
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
