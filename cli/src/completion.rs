//! `berth completion`: completes commands, options, formats and columns in a shell.
//!
//! Not here: names of the cluster. They would need a call for each key, and certificates.

use clap::{Arg, CommandFactory as _};

use crate::arguments::{Arguments, Completion};
use crate::{output, subject};

/// Prints the script of a shell.
pub fn run(arguments: &Completion) {
    let mut script = Vec::new();
    let mut command = with_columns(Arguments::command(), "");
    clap_complete::generate(arguments.shell, &mut command, "berth", &mut script);
    output::script(&String::from_utf8_lossy(&script));
}

/// Returns the command line in which each list has an option of its own for its order, with its columns: the
/// option of all commands knows none.
fn with_columns(command: clap::Command, within: &str) -> clap::Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|below| below.get_name().to_owned())
        .collect();
    names.into_iter().fold(command, |command, name| {
        let words = format!("{within} {name}");
        command.mut_subcommand(name, |below| {
            let columns = subject::columns(words.trim());
            let below = match columns.is_empty() {
                true => below,
                false => below.arg(order(&columns)),
            };
            with_columns(below, &words)
        })
    })
}

fn order(columns: &[&str]) -> Arg {
    let up = columns.iter().map(|column| output::typed(column));
    let down = up.clone().map(|column| format!("-{column}"));
    // clap takes static texts alone, and the program ends behind the script.
    let values: Vec<&'static str> = up.chain(down).map(|value| &*value.leak()).collect();
    Arg::new("sort")
        .long("sort")
        .value_name("COLUMN")
        .help("Column to sort the list by")
        .value_parser(clap::builder::PossibleValuesParser::new(values))
}
