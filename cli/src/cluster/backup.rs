//! `berth cluster backup`: has a scheduler send a backup, and writes it into a file or to standard output.
//!
//! ```text
//!   scheduler ─▶ messages ─▶ channel ─▶ reader, which verifies ─▶ file, under another name until the end
//! ```
//!
//! Invariant: a file has its name only after every byte of it was verified and is on the disk; an earlier
//! file of the name is replaced on request only.

use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use berth_backup::{Access, ReadError, Reader, Remedy, Summary};
use berth_domain::refusal::{Code, Refusal};
use berth_files::Draft;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::{BackupEnd, BackupRequest, BackupResponse};
use bytes::{Buf as _, Bytes};
use tokio::sync::mpsc;
use tonic::Streaming;

use crate::arguments::ClusterBackup;
use crate::backup::{self, refusal, show};
use crate::session::{Session, ended};
use crate::{call, output};

/// Messages that wait for the disk.
const WAITING_MAX: usize = 8;

/// The size of the buffer in front of the file.
const BUFFER_BYTES: usize = 256 << 10;

/// After how many bytes the progress is drawn again.
const PROGRESS_BYTES: u64 = 4 << 20;

/// Where a backup goes.
enum Target {
    File(PathBuf),
    Stdout,
}

/// Runs the command.
///
/// # Errors
///
/// The scheduler's refusal, or why the file cannot be written.
pub(super) async fn run(session: &Session, args: ClusterBackup) -> anyhow::Result<()> {
    let target = match args.file.as_os_str() == "-" {
        true => Target::Stdout,
        false => Target::File(args.file),
    };
    if let (Target::File(path), Some(since)) = (&target, &args.since) {
        check_replaced(path, since)?;
    }
    let after = args
        .since
        .map(|path| tokio::task::spawn_blocking(move || end_of(&path)));
    let after = match after {
        Some(reading) => Some(reading.await.context("the earlier backup was not read")??),
        None => None,
    };
    // Before the scheduler has any work.
    let out = open(&target, args.force)?;
    let request = BackupRequest { after };
    let stream = call!(any: session, ClusterServiceClient, backup, request)?;
    let (summary, out) = receive(stream, out).await?;
    if let (Out::File(draft), Target::File(path)) = (out, &target) {
        let draft = draft.into_inner().map_err(io::IntoInnerError::into_error);
        let named = draft.and_then(|draft| draft.commit(args.force));
        named.map_err(|error| refusal::of_file(Access::Write, path, &error))?;
    }
    report(session, &target, &summary)
}

/// Refuses an increment in the place of what it needs: the backup that it follows, or any full one.
fn check_replaced(path: &Path, since: &Path) -> Result<(), Refusal> {
    let (Ok(there), Ok(followed)) = (path.metadata(), since.metadata()) else {
        return Ok(());
    };
    let is_followed = (there.dev(), there.ino()) == (followed.dev(), followed.ino());
    // What is no backup is replaced as any file.
    let is_full = || backup::open(path).is_ok_and(|reader| reader.header().after.is_none());
    if !is_followed && (!there.is_file() || !is_full()) {
        return Ok(());
    }
    let what = match is_followed {
        true => "is the backup that the increment follows",
        false => "is a full backup",
    };
    let message = format!(
        "{} {what}: increments of it would be of no use without it",
        path.display()
    );
    let refusal = Refusal::new(Code::FailedPrecondition, "BACKUP_NEEDED", message);
    Err(refusal.with_hint("name another file for the increment"))
}

/// Reads where an earlier backup ends, and verifies all of it: an increment of a damaged file would be
/// of no use.
fn end_of(path: &Path) -> Result<BackupEnd, Refusal> {
    let header = backup::summary(path)?.header;
    if header.redacted {
        let message = format!(
            "{} is of a support bundle, which no increment follows",
            path.display()
        );
        let Remedy { reason, hint } = Remedy::REDACTED;
        let refusal = Refusal::new(Code::FailedPrecondition, reason, message);
        return Err(refusal.with_hint(hint));
    }
    Ok(BackupEnd {
        cluster_id: header.cluster_id,
        index: header.end.index,
        term: header.end.term,
        state_hash: header.end.state_hash.into(),
        rows: header.end.rows,
    })
}

/// What a backup is written to.
enum Out {
    File(BufWriter<Draft>),
    Stdout(io::Stdout),
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.write(bytes),
            Self::Stdout(stdout) => stdout.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.flush(),
            Self::Stdout(stdout) => stdout.flush(),
        }
    }
}

fn open(target: &Target, force: bool) -> Result<Out, Refusal> {
    let path = match target {
        Target::File(path) => path,
        Target::Stdout => return stdout(),
    };
    if !force && path.symlink_metadata().is_ok_and(|there| there.is_file()) {
        let error = io::ErrorKind::AlreadyExists.into();
        let refusal = refusal::of_file(Access::Write, path, &error);
        return Err(refusal.with_hint("name another file, or replace this one with --force"));
    }
    let draft = Draft::create(path).map_err(|error| {
        let refusal = refusal::of_file(Access::Write, path, &error);
        if error.kind() == io::ErrorKind::WouldBlock {
            refusal.with_hint("wait until the process has ended that writes this file")
        } else if error.kind() == io::ErrorKind::InvalidInput {
            refusal.with_hint("name a regular file, or - for standard output")
        } else {
            refusal
        }
    })?;
    Ok(Out::File(BufWriter::with_capacity(BUFFER_BYTES, draft)))
}

fn stdout() -> Result<Out, Refusal> {
    match output::bytes() {
        Some(stdout) => Ok(Out::Stdout(stdout)),
        None => {
            let message =
                "the backup was not begun: standard output is a terminal, and a backup is no text";
            let refusal = Refusal::new(Code::InvalidArgument, "OUTPUT_IS_A_TERMINAL", message);
            Err(refusal.with_hint("name a file, or send standard output into a file or a program"))
        }
    }
}

/// Writes what a stream brings while it is verified. Returns what it was.
async fn receive(
    mut stream: Streaming<BackupResponse>,
    out: Out,
) -> anyhow::Result<(Summary, Out)> {
    let (parts, received) = mpsc::channel(WAITING_MAX);
    let writing = tokio::task::spawn_blocking(move || write(received, out));
    let mut progress = Progress::default();
    let end = loop {
        match stream.message().await {
            Ok(Some(message)) => {
                progress.add(message.data.len());
                if parts.send(message.data).await.is_err() {
                    // The writer has failed, and says why.
                    break None;
                }
            }
            Ok(None) => break None,
            Err(status) => break Some(ended(&status)),
        }
    };
    drop(parts);
    progress.clear();
    let written = writing.await.context("the backup was not written")?;
    match end {
        Some(refusal) => Err(refusal.into()),
        None => Ok(written?),
    }
}

fn write(received: mpsc::Receiver<Bytes>, out: Out) -> Result<(Summary, Out), Refusal> {
    let mut tee = Tee {
        received,
        part: Bytes::new(),
        out,
        failed: None,
    };
    let read = Reader::new(&mut tee).and_then(Reader::finish);
    if let Some(error) = tee.failed {
        return Err(not_written(&error));
    }
    let summary = read.map_err(|error| arrived_damaged(&error))?;
    tee.out.flush().map_err(|error| not_written(&error))?;
    Ok((summary, tee.out))
}

fn not_written(error: &io::Error) -> Refusal {
    let message = format!("the backup was not written: {error}");
    Refusal::new(Code::FailedPrecondition, "FILE_UNUSABLE", message)
        .with_hint("write it to a disk with enough space, or into another directory")
}

fn arrived_damaged(error: &ReadError) -> Refusal {
    let message = format!("the backup did not arrive whole: {error}");
    Refusal::new(Code::Internal, "BACKUP_INCOMPLETE", message)
        .with_hint("repeat the command, maybe at another scheduler")
}

/// Reads what was received, and writes whatever is read.
struct Tee {
    received: mpsc::Receiver<Bytes>,
    part: Bytes,
    out: Out,
    /// Why it cannot be written.
    failed: Option<io::Error>,
}

impl Read for Tee {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() {
            match self.received.blocking_recv() {
                Some(part) => self.part = part,
                None => return Ok(0),
            }
        }
        let count = self.part.len().min(buffer.len());
        self.part.copy_to_slice(&mut buffer[..count]);
        if let Err(error) = self.out.write_all(&buffer[..count]) {
            let kind = error.kind();
            self.failed = Some(error);
            return Err(kind.into());
        }
        Ok(count)
    }
}

/// How much has arrived, on a terminal.
#[derive(Default)]
struct Progress {
    bytes: u64,
    drawn: u64,
}

impl Progress {
    fn add(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if self.bytes - self.drawn >= PROGRESS_BYTES && output::can_redraw() {
            self.drawn = self.bytes;
            output::redraw(&format!("{} received", show::size(self.bytes)));
        }
    }

    fn clear(&self) {
        if self.drawn > 0 {
            output::redraw("");
        }
    }
}

fn report(session: &Session, target: &Target, summary: &Summary) -> anyhow::Result<()> {
    let mut value = show::summary_json(summary);
    let name = match target {
        Target::File(path) => {
            value["file"] = serde_json::json!(path);
            path.display().to_string()
        }
        Target::Stdout => "standard output".to_owned(),
    };
    if let (true, Target::File(_)) = (session.for_programs(), target) {
        return output::value(&value);
    }
    // Standard output may hold the backup.
    let header = &summary.header;
    let sentence = format!(
        "{} backup of member {} at revision {} is in {name}: {}, {}",
        header.kind().as_str(),
        header.member_id,
        header.revision,
        show::content(summary),
        show::size(summary.bytes)
    );
    output::note(session.output, sentence, &value);
    Ok(())
}
