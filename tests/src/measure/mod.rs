//! What the benchmarks share.
//!
//! | module | what |
//! |---|---|
//! | [`etcd`] | etcd as the peer: as many members, as many clients |
//! | [`figures`] | counts and latencies of one measured phase |
//! | [`ports`] | free ports of the loopback interface |

pub mod etcd;
pub mod figures;
pub mod ports;
