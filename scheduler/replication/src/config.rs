//! The settings of a replica. All of them are plain numbers: a replica reads no clock and no
//! source of randomness but the seed given here.

/// How a replica behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// The Raft id of this member.
    pub id: u64,
    /// The cluster.
    pub cluster_id: String,
    /// Where the randomised election timeouts come from.
    pub seed: u64,
    /// A follower that hears nothing for this many ticks, up to twice as many, calls an election.
    pub election_ticks: usize,
    /// The leader sends a heartbeat each time so many ticks have passed.
    pub heartbeat_ticks: usize,
    /// A read that was not confirmed after so many ticks is repeated.
    pub read_retry_ticks: u64,
    /// A read that was not confirmed after so many ticks fails.
    pub read_timeout_ticks: u64,
    /// The most bytes of entries in one message.
    pub message_bytes_max: u64,
    /// A checkpoint is due when the log has grown by this much, or by the size of the last
    /// checkpoint, whichever is more.
    pub checkpoint_bytes: u64,
    /// A checkpoint is due after so many entries, too: replaying them takes time.
    pub checkpoint_entries: u64,
    /// The leader has its state hash compared every so many commands.
    pub hash_commands: u64,
    /// A learner that lacks at most this many entries has caught up.
    pub promote_gap: u64,
    /// Whether to check every invariant of the state after each batch; for tests, it is slow.
    pub check_invariants: bool,
}

impl Config {
    /// Returns the usual settings for this member.
    pub fn new(id: u64, cluster_id: impl Into<String>) -> Self {
        Self {
            id,
            cluster_id: cluster_id.into(),
            seed: id,
            election_ticks: 20,
            heartbeat_ticks: 2,
            read_retry_ticks: 6,
            read_timeout_ticks: 60,
            message_bytes_max: 1 << 20,
            checkpoint_bytes: 32 << 20,
            checkpoint_entries: 200_000,
            hash_commands: 1024,
            promote_gap: 64,
            check_invariants: false,
        }
    }
}
