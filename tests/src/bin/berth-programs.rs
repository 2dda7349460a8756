//! All programs of Berth in one, for tests that need real processes.
//!
//! A test gets the path of this binary from cargo, but not those of other packages' binaries. It
//! behaves as the program whose name it was started under (`berth`, `berth-scheduler`,
//! `berth-conductor`, `berth-compute-agent`, `berth-csi-controller`, `berth-csi-operator`), and otherwise takes
//! that name as its first argument. `berth-dist`, with which packages are made, and the stand-in for `grpcurl`, for the
//! documentation's commands, are here too.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    if let Some(code) = run(&arguments) {
        return code;
    }
    if arguments.len() > 1 {
        arguments.remove(0);
        if let Some(code) = run(&arguments) {
            return code;
        }
    }
    eprintln!(
        "usage: berth-programs \
         berth|berth-scheduler|berth-conductor|berth-compute-agent|berth-csi-controller|berth-csi-operator …"
    );
    ExitCode::from(2)
}

/// Runs the program that the first argument names, if it names one.
fn run(arguments: &[OsString]) -> Option<ExitCode> {
    let name = Path::new(arguments.first()?).file_name()?.to_str()?;
    let arguments = arguments.to_vec();
    match name {
        "berth" => Some(berth_cli::main(arguments)),
        "berth-scheduler" => Some(berth_scheduler::main(arguments)),
        "berth-conductor" => Some(berth_conductor::main(arguments)),
        "berth-compute-agent" => Some(berth_compute_agent::main(arguments)),
        "berth-csi-controller" => Some(berth_csi_controller::main(arguments)),
        "berth-csi-operator" => Some(berth_csi_operator::main(arguments)),
        "berth-dist" => Some(berth_dist::main(arguments)),
        "grpcurl" => Some(berth_tests::processes::grpcurl::main(arguments)),
        _ => None,
    }
}
