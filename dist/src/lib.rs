//! What packages have besides programs; `deploy/packages/build` calls it.
//!
//! | module | contents |
//! |---|---|
//! | [`programs`] | the programs, each with its command line |
//! | [`man`] | their manual pages |
//!
//! Not here: packages. The script makes them, and knows which programs are in which.
//!
//! Invariant: equal arguments and equal sources give equal bytes; no clock is read.

pub mod man;
pub mod programs;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

/// Make what packages have besides programs
#[derive(Debug, Parser)]
#[command(name = "berth-dist", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write the manual pages of every program, as DIRECTORY/PROGRAM/manSECTION/PAGE
    Man {
        /// Create the pages in this directory
        directory: PathBuf,
        /// Date of the pages, as 2026-11-27
        #[arg(long)]
        date: String,
    },
}

/// Runs the program with these arguments, its name first.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => error.exit(),
    };
    match run(&arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("berth-dist: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Man { directory, date } => write_pages(directory, date),
    }
}

fn write_pages(directory: &Path, date: &str) -> anyhow::Result<()> {
    for program in programs::ALL {
        let section = format!("man{}", program.section);
        let section = directory.join(program.name).join(section);
        fs::create_dir_all(&section).with_context(|| format!("{}", section.display()))?;
        for page in man::pages(program, date) {
            let file = section.join(&page.file);
            fs::write(&file, &page.text).with_context(|| format!("{}", file.display()))?;
        }
    }
    Ok(())
}
