//! The `berth-csi-operator` process. Everything is in the library, so that tests can run it too.

use std::process::ExitCode;

fn main() -> ExitCode {
    berth_csi_operator::main(std::env::args_os().collect())
}
