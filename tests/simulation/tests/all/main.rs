//! The simulation, in one program.
//!
//! | module | what |
//! |---|---|
//! | `seeds` | whole clusters under drawn faults, one per seed; planted bugs; upgrades in any order |
//! | `operations` | each fault at each step of each operation |

mod operations;
mod seeds;
