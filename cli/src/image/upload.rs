//! Sends a file to the cluster as an image.
//!
//! Invariant: bounded. No more than a few parts of the file are in memory; zeros are not sent.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::bail;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::TOO_OLD;
use berth_domain::vm::DiskFormat;
use berth_proto::conductor::v1::AddImageRequest;
use berth_proto::conductor::v1::add_image_request::{Open, Request};
use berth_proto::convert::image::IMAGE_PIECE_MAX;
use berth_proto::image::v1::image_piece::{Done, Piece};
use berth_proto::image::v1::{Image, ImagePiece};
use berth_proto::types::v1::disk::Format;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::progress::ProgressLine;
use crate::arguments::ImageAdd;
use crate::output;
use crate::session::{Session, not_begun, resource};
use crate::usage::Usage;

/// How many parts may be on their way.
const AHEAD_MAX: usize = 4;

/// Adds an image, and returns it.
///
/// # Errors
///
/// When the file cannot be read, and the refusal of the conductor.
pub(super) async fn add(session: &Session, options: &ImageAdd) -> anyhow::Result<Image> {
    let format = format(options)?;
    // Before anything is called.
    let source = options.file.as_deref().map(open).transpose()?;
    let open = Open {
        name: resource("images", &options.image),
        format: Format::from(format).into(),
        properties: options.properties.iter().cloned().collect(),
        project: options.project.to_wire(),
        host: options
            .host
            .as_deref()
            .map(|host| resource("hosts", host))
            .unwrap_or_default(),
        file: options.host_file.clone().unwrap_or_default(),
        sha256: options
            .sha256
            .map(|sum| sum.0.to_vec().into())
            .unwrap_or_default(),
    };
    let mut conductor = session.conductor().await?;
    let (sender, receiver) = mpsc::channel(AHEAD_MAX);
    let opening = AddImageRequest {
        request: Some(Request::Open(open)),
    };
    // It has room for the first message.
    let _ = sender.try_send(opening);
    let is_unchecked = source
        .as_ref()
        .is_some_and(|source| source.length.is_none());
    let reading = source.map(|source| read_all(source, sender));
    let added = conductor.add_image(ReceiverStream::new(receiver)).await;
    if let Some(mut reading) = reading {
        // One that still reads has nothing to say: the conductor has refused the image.
        if let Ok(Err(error)) = reading.try_recv() {
            bail!("the image cannot be read: {error}");
        }
    }
    let response = added.map_err(|status| refusal(&status))?;
    if is_unchecked && options.sha256.is_none() {
        output::message(
            "note: whether all of it came is not known; compare the SHA-256 with its \
             publisher's",
        );
    }
    Ok(response.into_inner().image.unwrap_or_default())
}

/// Returns why a conductor did not do it; or that this is not known.
pub(super) fn refusal(status: &Status) -> Refusal {
    if status.code() == tonic::Code::Unimplemented {
        let message = "the conductor is too old for images of the cluster";
        return Refusal::new(Code::FailedPrecondition, TOO_OLD, message)
            .with_hint("upgrade the conductor");
    }
    let refusal = not_begun(status, None);
    match refusal.reason == berth_proto::status::OUTCOME_UNKNOWN {
        true => refusal.with_hint("`berth image list` shows what became of it"),
        false => refusal,
    }
}

/// Returns the declared format, or the one that the name of the file suggests.
fn format(options: &ImageAdd) -> anyhow::Result<DiskFormat> {
    let named = options.host_file.as_ref().map(Path::new);
    let name = options.file.as_deref().or(named);
    let is_stdin = name == Some(Path::new("-"));
    match (options.format, name) {
        (Some(format), _) => Ok(format.into()),
        (None, Some(name)) if !is_stdin => Ok(suggested(name)),
        (None, _) => bail!(Usage(
            "the format of what comes from standard input is not known: give --format qcow2 or \
             --format raw"
                .to_owned()
        )),
    }
}

/// Returns the format that the name of a file suggests.
pub(super) fn suggested(name: &Path) -> DiskFormat {
    match name.extension().is_some_and(|end| end == "qcow2") {
        true => DiskFormat::Qcow2,
        false => DiskFormat::Raw,
    }
}

/// What an image is read from.
struct Source {
    reader: Box<dyn Read + Send>,
    /// Its length, where that is known.
    length: Option<u64>,
}

fn open(path: &Path) -> anyhow::Result<Source> {
    if path == Path::new("-") {
        let reader = Box::new(io::stdin());
        return Ok(Source {
            reader,
            length: None,
        });
    }
    let shown = path.display();
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
    let (known, file) =
        opened.map_err(|error| Usage(format!("{shown} cannot be read: {error}")))?;
    if known.is_dir() {
        bail!(Usage(format!("{shown} is a directory")));
    }
    Ok(Source {
        reader: Box::new(file),
        length: known.is_file().then_some(known.len()),
    })
}

/// Reads a file part by part, and shows how far it is. On a thread of its own, for which the end of the
/// program does not wait: standard input may have no end.
fn read_all(
    source: Source,
    sender: mpsc::Sender<AddImageRequest>,
) -> oneshot::Receiver<io::Result<()>> {
    let (ended, end) = oneshot::channel();
    std::thread::spawn(move || {
        // The command may have ended.
        let _ = ended.send(send_all(source, &sender));
    });
    end
}

fn send_all(mut source: Source, sender: &mpsc::Sender<AddImageRequest>) -> io::Result<()> {
    let mut progress = Progress::new(source.length);
    loop {
        let bytes = next(&mut *source.reader)?;
        let count = bytes.len() as u64;
        if count == 0 {
            progress.check_end()?;
        }
        let piece = match bytes.iter().all(|byte| *byte == 0) {
            true if count == 0 => Piece::Done(Done {}),
            true => Piece::Zeros(count),
            false => Piece::Data(bytes.into()),
        };
        let request = Some(Request::Piece(ImagePiece { piece: Some(piece) }));
        // The conductor says why it takes no more.
        let is_taken = sender.blocking_send(AddImageRequest { request }).is_ok();
        if !is_taken || count == 0 {
            return Ok(());
        }
        progress.add(count);
    }
}

/// Returns the next part, as much as there is; nothing at the end.
fn next(reader: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; IMAGE_PIECE_MAX];
    let read = loop {
        match reader.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read?,
        }
    };
    bytes.truncate(read);
    Ok(bytes)
}

/// How far it is, where the length is known.
struct Progress {
    line: ProgressLine,
    total: Option<u64>,
    sent: u64,
}

impl Progress {
    fn new(total: Option<u64>) -> Self {
        Self {
            line: ProgressLine::new(),
            total,
            sent: 0,
        }
    }

    /// Refuses a file that has another length than when it was opened.
    fn check_end(&self) -> io::Result<()> {
        match self.total {
            Some(total) if self.sent != total => {
                Err(io::Error::other("it was changed while it was read"))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn add(&mut self, count: u64) {
        self.sent += count;
        if let Some(total) = self.total {
            self.line.show(self.sent, total);
        }
    }
}
