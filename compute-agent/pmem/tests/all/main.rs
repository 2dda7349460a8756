//! The integration tests of persistent memory, in one binary.
//!
//! | module | what it tests |
//! |---|---|
//! | `ndctl` | listings of ndctl |
//! | `programs` | host programs that are missing, fail, hang or print garbage |
//! | `simulated` | the simulated memory |
//! | `volumes` | volumes over simulated memory |

mod ndctl;
mod programs;
mod simulated;
mod volumes;
