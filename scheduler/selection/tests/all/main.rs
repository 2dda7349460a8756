//! The integration tests of the choice of a host, in one binary.
//!
//! | module | what it tests |
//! |---|---|
//! | `balance` | balancing, defragmentation and capacity |
//! | `candidates` | allocation candidates |
//! | `choice` | which host is chosen |
//! | `explanation` | why no host can take a guest |
//! | `failover` | proofs of N+1 |
//! | `pmem` | persistent memory in the choice |

mod balance;
mod candidates;
mod choice;
mod explanation;
mod failover;
mod pmem;
