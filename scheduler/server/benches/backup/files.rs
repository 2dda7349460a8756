//! Backups as `berth cluster backup` makes them, and `berth backup verify` verifies them.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use berth_backup::{Chain, Header, Reader};
use berth_files::Draft;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::{BackupEnd, BackupRequest};
use berth_scheduler::Machine;
use berth_scheduler::machine::Level;

use crate::fault::{Outcome, fault};
use crate::process::{BACK_UP, run_self};

/// The size of a buffer of a file.
const BUFFER_BYTES: usize = 256 << 10;

fn open(path: &Path) -> Outcome<Reader<BufReader<File>>> {
    let file = BufReader::with_capacity(BUFFER_BYTES, File::open(path)?);
    Ok(Reader::new(file)?)
}

/// Makes a backup in a process of its own, as `berth cluster backup` does, so that what it takes is no
/// part of the program that times claims; returns how long that took. With the file of an earlier one it
/// is an increment that follows it.
pub(crate) async fn back_up(from: &str, file: &Path, since: Option<&Path>) -> Outcome<Duration> {
    let mut arguments: Vec<OsString> = vec![BACK_UP.into(), from.into(), file.into()];
    arguments.extend(since.map(OsString::from));
    Ok(run_self(arguments).await?.took)
}

/// Is the process that makes a backup: of the scheduler at an address, of which it writes a file, after an
/// earlier one.
pub(crate) fn save(from: &str, file: &Path, since: Option<&Path>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime starts");
    match runtime.block_on(write(from, file, since)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes a backup, synchronises and names it, and verifies its checksums.
async fn write(from: &str, file: &Path, since: Option<&Path>) -> Outcome<()> {
    let after = since.map(open).transpose()?;
    let after = after.map(|earlier| end_of(earlier.header()));
    let mut client = ClusterServiceClient::connect(from.to_owned()).await?;
    let mut stream = client.backup(BackupRequest { after }).await?.into_inner();
    let mut draft = Draft::create(file)?;
    while let Some(message) = stream.message().await? {
        draft.write_all(&message.data)?;
    }
    draft.commit(true)?;
    open(file)?.finish()?;
    Ok(())
}

fn end_of(header: &Header) -> BackupEnd {
    BackupEnd {
        cluster_id: header.cluster_id.clone(),
        index: header.end.index,
        term: header.end.term,
        state_hash: header.end.state_hash.clone().into(),
        rows: header.end.rows,
    }
}

/// Verifies a full backup.
pub(crate) fn verify(file: &Path) -> ExitCode {
    let verified = || -> Outcome<()> {
        let mut chain = Chain::<Machine>::new(Level::default());
        chain.add(open(file)?)?;
        match chain.finish()?.position.rows {
            0 => Err(fault("the backup has no rows")),
            _ => Ok(()),
        }
    };
    match verified() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
