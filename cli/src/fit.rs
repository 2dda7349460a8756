//! `berth fit`: cases from standard input, one JSON object per line; one response per line.
//!
//! The format of a case is described in `docs/fit.md`. No server is called: a case carries the host
//! and the guest, and the very same search runs that places guests.
//!
//! | module | contents |
//! |---|---|
//! | [`reader`] | the reading of fields, and the error that names them |
//! | [`host`] | the host's side of a case |
//! | [`guest`] | the guest's side |
//! | [`response`] | what is written |
//! | [`json`] | JSON in which no key is there twice |
//!
//! Invariant: every line that is not blank has one answer, whatever it holds; what is wrong with
//! one line is reported in its response, and the next one is read.

#[cfg(test)]
mod fuzz;
pub mod guest;
pub mod host;
pub mod json;
pub mod reader;
pub mod response;
#[cfg(test)]
mod tests;

use std::io::{BufRead, BufWriter, Read as _, Write};

use berth_domain::numa::{ExactDemand, Ground, Guest, Outline, Strategy, ThreadRules, fit};
use serde_json::Value;

use self::reader::{Field, Invalid};
use self::response::Response;
use crate::{arguments, output};

/// The longest line that is read: a host has at most some megabytes, and what is read takes some
/// times as much memory.
pub const LINE_LENGTH_MAX: u64 = 16 * 1024 * 1024;

/// The options of all cases.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Which cores may hold isolated vCPUs.
    pub threads: ThreadRules,
    /// Whether no memory of a cell is assigned twice.
    pub exact_memory: bool,
}

/// Answers what comes on standard input.
///
/// # Errors
///
/// See [`run`].
pub fn run_stdin(options: arguments::Fit) -> anyhow::Result<()> {
    let options = Options {
        threads: match options.thread_rules {
            arguments::ThreadRules::Nova => ThreadRules::Nova,
            arguments::ThreadRules::Sensible => ThreadRules::Sensible,
        },
        exact_memory: options.exact_memory,
    };
    let output = BufWriter::new(output::json_lines());
    run(std::io::stdin().lock(), output, options)
}

/// Answers every line.
///
/// # Errors
///
/// When reading or writing fails.
pub fn run(input: impl BufRead, mut output: impl Write, options: Options) -> anyhow::Result<()> {
    let mut input = input;
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = input.by_ref().take(LINE_LENGTH_MAX + 1);
        if limited.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if line.len() as u64 > LINE_LENGTH_MAX && line.last() != Some(&b'\n') {
            line = Vec::new();
            input.skip_until(b'\n')?;
            let message = format!("the line is longer than {LINE_LENGTH_MAX} bytes");
            let response = response::error(&Value::Null, "INVALID_JSON", &message);
            serde_json::to_writer(&mut output, &response)?;
            output.write_all(b"\n")?;
            continue;
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        serde_json::to_writer(&mut output, &respond(&line, options))?;
        output.write_all(b"\n")?;
    }
    output.flush()?;
    Ok(())
}

/// Returns the answer to one line.
#[must_use]
pub fn respond(line: &[u8], options: Options) -> Value {
    let case: Value = match json::read(line) {
        Ok(case) => case,
        Err(error) => {
            let message = format!("the line is not JSON: {error}");
            return response::error(&Value::Null, "INVALID_JSON", &message);
        }
    };
    let id = case.get("id").cloned().unwrap_or(Value::Null);
    match evaluate(&Field::new(&case), options) {
        Ok(response) => response.to_json(&id),
        Err(Fault::Invalid(invalid)) => response::error(&id, "INVALID_CASE", &invalid.to_string()),
        Err(Fault::Flavor(message)) => response::error(&id, "INVALID_FLAVOR", &message),
    }
}

/// Why a case cannot be evaluated.
enum Fault {
    /// The case is wrong.
    Invalid(Invalid),
    /// Its flavor is refused.
    Flavor(String),
}

impl From<Invalid> for Fault {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

fn evaluate(case: &Field<'_>, options: Options) -> Result<Response, Fault> {
    let host = host::read(case, options)?;
    let guest = guest::read(case)?.map_err(Fault::Flavor)?;
    let strategy = if case.get("pack").flag()?.unwrap_or(false) {
        Strategy::Pack
    } else {
        Strategy::Spread
    };
    let outline = Outline::new(&host.topology, &host.usage, &host.limits);
    let ground = Ground {
        topology: &host.topology,
        usage: &host.usage,
        outline: &outline,
    };
    let demand = ExactDemand {
        topology: guest.topology.as_ref(),
        pci: &guest.pci,
        ..ExactDemand::default()
    };
    Ok(match fit(ground, &Guest::new(demand), strategy) {
        Ok(assignment) => Response::Fits {
            topology: guest.topology,
            assignment,
        },
        Err(refusal) => Response::Refused(refusal),
    })
}
