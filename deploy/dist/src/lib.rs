//! What packages have besides programs; `deploy/packages/build` calls it.
//!
//! | module | contents |
//! |---|---|
//! | [`programs`] | the programs, each with its command line |
//! | [`man`] | their manual pages |
//! | [`crates`] | the crates that they are made of |
//! | [`sbom`] | bills of materials |
//!
//! Not here: packages. The script makes them, and knows which programs are in which.
//!
//! Invariant: equal arguments and equal sources give equal bytes; no clock is read.

pub mod crates;
pub mod man;
pub mod programs;
pub mod sbom;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
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
    /// Write a bill of materials of each package, as FILE.cdx.json beside it
    ///
    /// Standard input has a line for each: its file, the SHA-256 of that, its package URL, its programs, and
    /// the package URLs of the libraries in it, separated by tabs; of programs and libraries there can be
    /// several, separated by spaces.
    Sbom {
        /// Read the crates of the workspace in this directory
        #[arg(long)]
        workspace: PathBuf,
        /// Time at which the packages are made, as 2026-11-27T18:42:31Z
        #[arg(long)]
        time: String,
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
        Command::Sbom { workspace, time } => write_bills(workspace, time),
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

fn write_bills(workspace: &Path, time: &str) -> anyhow::Result<()> {
    let lines = io::read_to_string(io::stdin()).context("standard input")?;
    let subjects = lines.lines().map(subject);
    let subjects = subjects.collect::<anyhow::Result<Vec<_>>>()?;
    let programs = subjects.iter().flat_map(|(_, subject)| &subject.programs);
    let crates = crates::Crates::read(workspace, &programs.cloned().collect())?;
    for (file, subject) in &subjects {
        let bill = sbom::bill(subject, &crates, time).with_context(|| file.clone())?;
        let name = format!("{file}.cdx.json");
        let text = serde_json::to_string_pretty(&bill)? + "\n";
        fs::write(&name, text).context(name)?;
    }
    Ok(())
}

/// Reads a line of standard input: the file, and what is in it.
fn subject(line: &str) -> anyhow::Result<(String, sbom::Subject)> {
    let fields: Vec<&str> = line.split('\t').collect();
    let &[file, sha256, purl, programs, libraries] = fields.as_slice() else {
        bail!("five fields are expected, not {}: {line:?}", fields.len());
    };
    let several =
        |text: &str| -> BTreeSet<String> { text.split_whitespace().map(str::to_owned).collect() };
    let subject = sbom::Subject {
        purl: purl.to_owned(),
        sha256: sha256.to_owned(),
        programs: several(programs),
        libraries: several(libraries),
    };
    Ok((file.to_owned(), subject))
}
