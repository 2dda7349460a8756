//! The command `berth`. Everything is in the library, so that tests can embed it.

use std::process::ExitCode;

fn main() -> ExitCode {
    berth_cli::main(std::env::args_os().collect())
}
