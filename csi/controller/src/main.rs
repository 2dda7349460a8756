//! The `berth-csi-controller` process. Everything is in the library, so that other programs can be a
//! controller too.

use std::process::ExitCode;

fn main() -> ExitCode {
    berth_csi_controller::main(std::env::args_os().collect())
}
