//! The integration tests of the planner for Ganeti's files, in one binary.
//!
//! | module | what it tests |
//! |---|---|
//! | `balance` | plans beside those of `hbal` |
//! | `capacity` | capacity beside a table of `hspace` |
//! | `debian` | N+1, allocation and capacity beside Debian's htools |
//! | `failover` | local and global N+1 |
//! | `requests` | requests of Ganeti that the tests send |
//! | `samples` | the sample files |
//! | `score` | the 20 components of the score |
//! | `text` | the text format |

mod balance;
mod capacity;
mod debian;
mod failover;
mod requests;
mod samples;
mod score;
mod text;
