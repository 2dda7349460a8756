//! What the state knows of the cluster as a whole: one small record beside all the tables.

use berth_domain::grant::GrantKeys;
use berth_domain::id::{ClusterId, Epoch, TimeMs};
use berth_domain::recovery::Recovery;
use berth_domain::version::ServiceVersion;

/// The record; every command changes it, for the revision at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The cluster; absent before it was bootstrapped.
    pub cluster: Option<ClusterId>,
    /// What commands and rows may hold, and what they mean: that of programs of this version.
    pub cluster_version: ServiceVersion,
    /// Replicated time: the greatest that any command carried.
    pub time: TimeMs,
    /// The log index of the latest command.
    pub revision: u64,
    /// The greatest epoch given to any lease.
    pub epoch: Epoch,
    /// How many requests were remembered so far; numbers them.
    pub requests: u64,
    /// A request that is not remembered is refused if its id is not younger than this; see
    /// [`crate::request`].
    pub forgotten: TimeMs,
    /// The keys with which grants are signed, the present one first; absent until the leader made one.
    pub grant_keys: GrantKeys,
    /// The revision of the last change of the revoked certificates; 0 before the first.
    pub revoked_revision: u64,
    /// The latest recovery, if there was any.
    pub recovery: Option<Recovery>,
}

impl Default for Header {
    fn default() -> Self {
        Self {
            cluster: None,
            cluster_version: ServiceVersion::OLDEST,
            time: TimeMs::default(),
            revision: 0,
            epoch: Epoch::default(),
            requests: 0,
            forgotten: TimeMs::default(),
            grant_keys: [None; 2],
            revoked_revision: 0,
            recovery: None,
        }
    }
}
