//! Becomes the program whose name it was started under, out of the one that holds all of them.
//!
//! For tests of packages that need small programs which work: unoptimised, all programs together are some hundred
//! megabytes, in each package of each machine.
//!
//! What it is not: a part of what is released.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

/// Where all programs are on a machine of a test.
const PROGRAMS: &str = "/opt/berth-programs";
/// Where they are instead, as where packages are made.
const ELSEWHERE: &str = "BERTH_PROGRAMS";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let programs = std::env::var_os(ELSEWHERE).unwrap_or_else(|| PROGRAMS.into());
    let mut program = Command::new(&programs);
    if let Some(name) = arguments.next() {
        program.arg0(name);
    }
    // Returns only if it fails.
    let error = program.args(arguments).exec();
    eprintln!("{}: {error}", programs.display());
    ExitCode::FAILURE
}
