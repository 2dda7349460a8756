//! `berth iallocator`: Ganeti asks, one line of JSON answers.

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

/// The bytes of a file as they are asked for.
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

/// Does what was typed.
///
/// # Errors
///
/// What cannot be read of the request, or of the text.
pub fn iallocator(asked: Iallocator) -> anyhow::Result<()> {
    let (name, file): (String, Box<dyn Read>) = if asked.request == Path::new("-") {
        ("standard input".to_owned(), Box::new(std::io::stdin()))
    } else {
        let name = asked.request.display().to_string();
        let file = File::open(&asked.request);
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
    let placed = |error: Error| {
        let (line, column) = (error.line, error.column);
        anyhow!("{name}:{line}:{column}: {}", error.fault)
    };
    let value = parsed.map_err(placed)?;
    let instead = match &asked.text {
        Some(path) => Some(document(path)?),
        None => None,
    };
    let request = read(&value, instead).map_err(placed)?;
    let terms = Terms {
        options: Options {
            rules: Rules {
                memory: rule(asked.strict),
                ratio: RatioSource::Policy,
            },
            ..Options::default()
        },
        no_capacity_checks: asked.no_capacity_checks,
    };
    output::print(&format!("{}\n", answer(&request, &terms).line()));
    Ok(())
}
