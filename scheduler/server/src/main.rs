//! The `berth-scheduler` process. Everything is in the library, so that other programs can be a
//! member too.

use std::process::ExitCode;

fn main() -> ExitCode {
    berth_scheduler::main(std::env::args_os().collect())
}
