//! What a scheduler member keeps on disk: Raft log, checkpoints, sled
