//! `berth iallocator`: a request of Ganeti, answered by one line of JSON.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;

use anyhow::{Context as _, anyhow};
use berth_ganeti::iallocator::{Terms, answer, read};
use berth_ganeti::json::{Error, Limits, parse};
use berth_ganeti::model::{Options, RatioSource, Rules};

use super::load::{document, rule};
use crate::arguments::Iallocator;
use crate::output;

/// The bytes of a file, read on demand.
struct Bytes {
    reader: BufReader<Box<dyn Read>>,
    /// Why there are no more, where that is not the end.
    failed: Option<std::io::Error>,
}

impl Iterator for Bytes {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        match self.reader.fill_buf() {
            Ok(buffered) => {
                let byte = buffered.first().copied();
                self.reader.consume(usize::from(byte.is_some()));
                byte
            }
            Err(error) => {
                self.failed = Some(error);
                None
            }
        }
    }
}

/// Runs the command.
///
/// # Errors
///
/// The fault of the request or of the text.
pub fn iallocator(args: Iallocator) -> anyhow::Result<()> {
    let (name, file): (String, Box<dyn Read>) = if args.request == Path::new("-") {
        ("standard input".to_owned(), Box::new(std::io::stdin()))
    } else {
        let name = args.request.display().to_string();
        let file = File::open(&args.request);
        let file = file.with_context(|| format!("failed to open {name}"))?;
        (name, Box::new(file))
    };
    let mut bytes = Bytes {
        reader: BufReader::new(file),
        failed: None,
    };
    let parsed = parse(bytes.by_ref(), Limits::default());
    if let Some(error) = bytes.failed {
        return Err(anyhow!(error).context(format!("failed to read {name}")));
    }
    let at_position = |error: Error| {
        let (line, column) = (error.line, error.column);
        anyhow!("{name}:{line}:{column}: {}", error.fault)
    };
    let value = parsed.map_err(at_position)?;
    let instead = match &args.text {
        Some(path) => Some(document(path)?),
        None => None,
    };
    let request = read(&value, instead).map_err(at_position)?;
    let terms = Terms {
        options: Options {
            rules: Rules {
                memory: rule(args.strict),
                ratio: RatioSource::Policy,
            },
            ..Options::default()
        },
        no_capacity_checks: args.no_capacity_checks,
    };
    output::program_line(&answer(&request, &terms).line());
    Ok(())
}
