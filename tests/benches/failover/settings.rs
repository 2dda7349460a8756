//! What both sides are told of elections: etcd's defaults, which are Berth's too.

/// How often a leader reports.
pub(crate) const HEARTBEAT_MS: u64 = 100;
/// After how long without a report, up to twice that, an election begins.
pub(crate) const ELECTION_MS: u64 = 1000;
/// The interval of Berth's Raft clock.
const TICK_MS: u64 = 50;

/// Returns the configuration of a scheduler.
pub(crate) fn berth() -> String {
    format!(
        "raft_tick_ms = {TICK_MS}\nraft_heartbeat_ticks = {}\nraft_election_ticks = {}\n",
        HEARTBEAT_MS / TICK_MS,
        ELECTION_MS / TICK_MS
    )
}
