//! The `berth-conductor` process. Everything is in the library, so that other programs can be a
//! conductor too.

use std::process::ExitCode;

fn main() -> ExitCode {
    berth_conductor::main(std::env::args_os().collect())
}
