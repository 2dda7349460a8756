//! The options of the output, which every command has.

use clap::Args;

use super::help;
use crate::output::{Choice, Output, OutputParser, SortKey, Subject};

/// Options of the output.
#[derive(Debug, Args)]
pub struct OutputOptions {
    /// Format of the output, for people or for programs
    ///
    /// Fields of custom= are those of the JSON: a field of a field is written with a dot, and `name` is the
    /// name of the resource. An unknown one is an error that lists those there are. With json and yaml,
    /// errors are in the format too.
    #[arg(
        long,
        short,
        global = true,
        value_name = "FORMAT",
        default_value = "table",
        value_parser = OutputParser,
        help_heading = help::OUTPUT
    )]
    pub output: Output,
    /// Leave the header line of tables out
    #[arg(long, global = true, help_heading = help::OUTPUT)]
    pub no_headers: bool,
    /// Column to sort a list by; with '-' before it, the largest first
    ///
    /// Of a table one of its columns, of any other format a field of the JSON. Numbers are sorted as
    /// numbers, also within names: h2 stands before h10.
    #[arg(
        long,
        global = true,
        value_name = "COLUMN",
        allow_hyphen_values = true,
        help_heading = help::OUTPUT
    )]
    pub sort: Option<SortKey>,
}

impl OutputOptions {
    /// Returns how the output of a command is requested, which shows this.
    #[must_use]
    pub fn choice(&self, subject: Subject) -> Choice {
        Choice::new(
            self.output.clone(),
            self.no_headers,
            self.sort.clone(),
            subject,
        )
    }
}
