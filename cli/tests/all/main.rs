//! The integration tests of the command, in one binary.
//!
//! | module | what it tests |
//! |---|---|
//! | `ganeti` | the program on files of htools, and as an allocator of Ganeti |
//! | `placement_plan` | what an import from OpenStack Placement plans to do |
//! | `placement_source` | how an import reads a Placement that answers oddly |
//! | `terminal` | what others write reaches the terminal escaped |
//! | `top` | the model of `berth top`, over random changes of a state |

mod ganeti;
mod placement_plan;
mod placement_source;
mod terminal;
mod top;
