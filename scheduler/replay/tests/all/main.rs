//! Tests of replays on histories that the scheduler's own decisions make.
//!
//! | module | what it tests |
//! |---|---|
//! | `common` | a leader in this process that records what it decides, and backups of it |
//! | `script` | requests in an order that is the same in every run |
//! | `same` | the same policy leads to the recorded decisions, and a planted fault is noticed |

mod common;
mod same;
mod script;
