//! Raft: the replica as a pure core, and the task that drives it
