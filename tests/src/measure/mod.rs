//! What the benchmarks share.
//!
//! | module | what |
//! |---|---|
//! | [`etcd`] | etcd as the peer: as many members, as many clients |
//! | [`figures`] | counts and latencies of one measured phase |
//! | [`guests`] | hosts and guests that are registered and claimed for by hand |
//! | [`ports`] | free ports of the loopback interface |

pub mod etcd;
pub mod figures;
pub mod guests;
pub mod ports;
