//! The `berth-compute-agent` process. Everything is in the library, so that other programs can be
//! an agent too.

use std::process::ExitCode;

fn main() -> ExitCode {
    berth_compute_agent::main(std::env::args_os().collect())
}
