//! Backups as `berth cluster backup` makes them, and `berth backup verify` verifies them.

use std::fs::{self, File};
use std::io::{BufReader, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use berth_backup::{Chain, Header, Reader};
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::{BackupEnd, BackupRequest};
use berth_scheduler::Machine;
use berth_scheduler::machine::Level;
use tonic::transport::Channel;

use crate::fault::{Outcome, fault};

/// The size of a buffer of a file.
const BUFFER_BYTES: usize = 256 << 10;

fn open(path: &Path) -> Outcome<Reader<BufReader<File>>> {
    let file = BufReader::with_capacity(BUFFER_BYTES, File::open(path)?);
    Ok(Reader::new(file)?)
}

/// Writes a backup beside the file, verifies its checksums, synchronises and renames it; returns how long
/// that took. With the file of an earlier one it is an increment that follows it.
pub(crate) async fn back_up(from: Channel, file: &Path, since: Option<&Path>) -> Outcome<Duration> {
    let begun = Instant::now();
    let after = since.map(open).transpose()?;
    let after = after.map(|earlier| end_of(earlier.header()));
    let mut client = ClusterServiceClient::new(from);
    let mut stream = client.backup(BackupRequest { after }).await?.into_inner();
    let part = file.with_extension("part");
    let mut out = File::create(&part)?;
    while let Some(message) = stream.message().await? {
        out.write_all(&message.data)?;
    }
    let (part, file) = (part.clone(), file.to_owned());
    let written = tokio::task::spawn_blocking(move || -> Outcome<()> {
        open(&part)?.finish()?;
        out.sync_all()?;
        Ok(fs::rename(&part, &file)?)
    });
    written.await??;
    Ok(begun.elapsed())
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
