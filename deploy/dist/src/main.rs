//! The program `berth-dist`. Everything is in the library, so that tests can run it too.

use std::process::ExitCode;

fn main() -> ExitCode {
    berth_dist::main(std::env::args_os().collect())
}
