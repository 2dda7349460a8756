//! `berth completion`: completes commands and options in a shell.
//!
//! Not here: names of the cluster. They would need a call for each key, and certificates.

use clap::CommandFactory as _;

use crate::arguments::{Arguments, Completion};
use crate::output;

/// Prints the script of a shell.
pub fn run(arguments: &Completion) {
    let mut script = Vec::new();
    let mut command = Arguments::command();
    clap_complete::generate(arguments.shell, &mut command, "berth", &mut script);
    output::script(&String::from_utf8_lossy(&script));
}
