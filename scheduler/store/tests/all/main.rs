//! The integration tests of the store, in one binary.
//!
//! `power_cut` is a binary of its own: it needs root, and starts itself as the process that is killed.
//!
//! | module | what it tests |
//! |---|---|
//! | `damage` | opening a damaged directory |
//! | `every_damage` | every single damage to every file of a directory |

mod damage;
mod every_damage;
