//! `berth backup`: looks into files of backups and verifies them. Calls no server.
//!
//! | module | contents |
//! |---|---|
//! | `refusal` | why a file is refused, with a reason and what to do |
//! | `show` | what a backup holds, for people and for programs |
//!
//! Not here: making backups, which is in `cluster`.
//!
//! Invariant: nothing is reported of a file before all of its checksums are verified.

pub(crate) mod refusal;
pub(crate) mod show;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use berth_backup::{Access, Chain, Item, Reader, Summary};
use berth_codec::table_name;
use berth_domain::refusal::Refusal;
use berth_replication::Machine as _;
use berth_scheduler::Machine;
use berth_scheduler::machine::Level;
use serde_json::json;

use crate::arguments::Backup;
use crate::output::{self, Format};

/// The size of a buffer of a file.
const BUFFER_BYTES: usize = 256 << 10;

/// The permissions of group and others.
const FOREIGN: u32 = 0o077;

/// Runs a verb of `berth backup`.
///
/// # Errors
///
/// Why a file is refused.
pub fn run(command: Backup, format: Format) -> anyhow::Result<()> {
    match command {
        Backup::Inspect { files } => inspect(&files, format),
        Backup::Verify { files } => verify(&files, format),
    }
}

/// What a file holds.
pub(crate) struct Contents {
    pub(crate) path: PathBuf,
    pub(crate) summary: Summary,
    /// The number of rows of each table.
    pub(crate) tables: BTreeMap<&'static str, u64>,
}

/// Opens a backup.
///
/// # Errors
///
/// It cannot be read, or its header is no sound one.
pub(crate) fn open(path: &Path) -> Result<Reader<BufReader<File>>, Refusal> {
    let opened = File::open(path);
    let file = opened.map_err(|error| refusal::of_file(Access::Read, path, &error))?;
    let metadata = file.metadata();
    if metadata.as_ref().is_ok_and(fs::Metadata::is_dir) {
        return Err(refusal::of_directory(path));
    }
    if let Ok(metadata) = metadata
        && metadata.is_file()
        && metadata.permissions().mode() & FOREIGN != 0
    {
        output::message(format!(
            "warning: {} is readable for other users (mode {:04o}), and holds secrets: run chmod 600 on it",
            path.display(),
            metadata.permissions().mode() & 0o7777
        ));
    }
    let reader = Reader::new(BufReader::with_capacity(BUFFER_BYTES, file));
    reader.map_err(|error| refusal::of_read(path, &error))
}

/// Reads a whole file and verifies its checksums.
///
/// # Errors
///
/// It is no sound backup.
pub(crate) fn summary(path: &Path) -> Result<Summary, Refusal> {
    let summary = open(path)?.finish();
    summary.map_err(|error| refusal::of_read(path, &error))
}

fn contents(path: &Path) -> Result<Contents, Refusal> {
    let mut reader = open(path)?;
    let mut tables = BTreeMap::new();
    let refused = |error| refusal::of_read(path, &error);
    while let Some(item) = reader.next().map_err(refused)? {
        if let Item::Row(row) = item {
            *tables
                .entry(table_name(&row.key).unwrap_or("unknown"))
                .or_default() += 1;
        }
    }
    Ok(Contents {
        path: path.to_owned(),
        summary: reader.finish().map_err(refused)?,
        tables,
    })
}

fn inspect(files: &[PathBuf], format: Format) -> anyhow::Result<()> {
    let all = files.iter().map(|path| contents(path));
    let all = all.collect::<Result<Vec<_>, Refusal>>()?;
    if format.is_of_value() {
        return output::value(&all.iter().map(show::contents_json).collect::<Vec<_>>());
    }
    show::print(&all);
    Ok(())
}

fn verify(files: &[PathBuf], format: Format) -> anyhow::Result<()> {
    let mut chain = Chain::<Machine>::new(Level::default());
    let mut summaries = Vec::new();
    for path in files {
        let added = chain.add(open(path)?);
        let summary = added.map_err(|error| refusal::of_verify(path, &error))?;
        summaries.push(summary);
    }
    let last = files.last().map_or(Path::new(""), PathBuf::as_path);
    let verified = chain.finish();
    let verified = verified.map_err(|error| refusal::of_verify(last, &error))?;
    let position = verified.position;
    let revision = verified.machine.state().revision();
    let hosts = verified.machine.state().hosts().len();
    let vms = verified.machine.state().vms().len();
    if format.is_of_value() {
        return output::value(&json!({
            "files": files,
            "index": position.index,
            "term": position.term,
            "revision": revision,
            "state_hash": position.hash.to_string(),
            "rows": position.rows,
            "commands": verified.commands,
            "hosts": hosts,
            "vms": vms,
        }));
    }
    output::fields(&[
        (
            "verified",
            format!("{} of {} files", summaries.len(), files.len()),
        ),
        ("revision", revision.to_string()),
        ("log index", position.index.to_string()),
        ("state hash", position.hash.to_string()),
        ("rows", verified.machine.rows().count().to_string()),
        ("replayed", format!("{} commands", verified.commands)),
        ("hosts", hosts.to_string()),
        ("VMs", vms.to_string()),
    ]);
    Ok(())
}
