//! Tests of replays on histories that the scheduler's own decisions make.
//!
//! | module | what it tests |
//! |---|---|
//! | `common` | a leader in this process that records what it decides, and backups of it |
//! | `script` | requests in an order that is the same in every run |
//! | `same` | the same policy leads to the recorded decisions, and a planted fault is noticed |
//! | `changed` | what another policy, flavor or fleet leads to, checked by running it |
//! | `packing` | the mix of `docs/packing.md`, also of 100,000 decisions |

mod changed;
mod common;
mod packing;
mod same;
mod script;
