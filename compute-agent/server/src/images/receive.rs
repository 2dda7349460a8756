//! An image as it comes, part by part, from a conductor, from another agent, or from a file of this host.
//!
//! Invariant: bounded. Who sends faster than the disk takes it waits; an image that is broken off leaves
//! nothing.

use berth_domain::grant::ImageGrant;
use berth_domain::image::{ImageContent, ImageFile, Sha256};
use berth_domain::refusal::{Code, Refusal};
use berth_proto::convert::image::{IMAGE_PIECE_MAX, IMAGE_ZEROS_MAX};
use berth_proto::image::v1::ImagePiece;
use berth_proto::image::v1::image_piece::Piece;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::store::{Expected, ImagePart, ImageStore};

/// How many parts may wait for the disk.
const WAITING_MAX: usize = 4;

/// What comes next of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    /// A part.
    Part(ImagePart),
    /// That was all.
    Done,
    /// Nothing more, although it is not complete, and why where that is known.
    Broken(Option<Refusal>),
}

/// Reads a message with a part. One that is too long breaks the image off.
pub(super) fn read(piece: ImagePiece) -> Incoming {
    match piece.piece {
        Some(Piece::Data(bytes)) if bytes.len() > IMAGE_PIECE_MAX => {
            let message = format!("a part of an image may have {IMAGE_PIECE_MAX} bytes at most");
            Incoming::Broken(Some(invalid(message)))
        }
        // Otherwise it might never end.
        Some(Piece::Data(bytes)) if bytes.is_empty() => Incoming::Broken(None),
        Some(Piece::Zeros(0)) => Incoming::Broken(None),
        Some(Piece::Zeros(count)) if count > IMAGE_ZEROS_MAX => {
            let message = format!("a part of an image may be {IMAGE_ZEROS_MAX} zeros at most");
            Incoming::Broken(Some(invalid(message)))
        }
        Some(Piece::Data(bytes)) => Incoming::Part(ImagePart::Data(bytes.into())),
        Some(Piece::Zeros(count)) => Incoming::Part(ImagePart::Zeros(count)),
        Some(Piece::Done(_)) => Incoming::Done,
        None => Incoming::Broken(None),
    }
}

/// An image on its way to the disk, which a thread of its own writes.
pub(super) struct Received {
    parts: mpsc::Sender<Incoming>,
    written: JoinHandle<Result<ImageContent, Refusal>>,
}

impl Received {
    /// Begins to write an image. `turn` is held as long as the thread works.
    pub(super) fn begin(
        store: ImageStore,
        image: ImageFile,
        expected: Expected,
        turn: OwnedSemaphorePermit,
    ) -> Self {
        let (parts, incoming) = mpsc::channel(WAITING_MAX);
        let written = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            write(&store, &image, expected, incoming)
        });
        Self { parts, written }
    }

    /// Has written what comes next; returns whether more is expected.
    pub(super) async fn push(&mut self, incoming: Incoming) -> bool {
        let is_part = matches!(incoming, Incoming::Part(_));
        // A writer that has ended early says why at the end.
        self.parts.send(incoming).await.is_ok() && is_part
    }

    /// Waits until all of it is written.
    ///
    /// # Errors
    ///
    /// Why the image did not come to be.
    pub(super) async fn end(self) -> Result<ImageContent, Refusal> {
        let Self { parts, written } = self;
        drop(parts);
        written.await.unwrap_or_else(|_| Err(panicked()))
    }
}

fn write(
    store: &ImageStore,
    image: &ImageFile,
    expected: Expected,
    mut incoming: mpsc::Receiver<Incoming>,
) -> Result<ImageContent, Refusal> {
    let mut writer = store.begin(image, expected)?;
    loop {
        match incoming.blocking_recv() {
            Some(Incoming::Part(part)) => writer.write(&part)?,
            Some(Incoming::Done) => return writer.finish(),
            Some(Incoming::Broken(why)) => return Err(why.unwrap_or_else(|| broken(image))),
            None => return Err(broken(image)),
        }
    }
}

/// Makes a copy of another file of the image directory.
///
/// # Errors
///
/// Why there is none.
pub(super) async fn copy(
    store: ImageStore,
    grant: &ImageGrant,
    file: String,
    sha256: Option<Sha256>,
    turn: OwnedSemaphorePermit,
    stopping: CancellationToken,
) -> Result<ImageContent, Refusal> {
    let (image, format) = (grant.file.clone(), grant.format);
    let copied = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let (mut reader, source) = store.open_other(&file, format)?;
        let expected = Expected {
            format,
            source,
            length_bytes: None,
            sha256,
            replaces: false,
        };
        let mut writer = store.begin(&image, expected)?;
        while let Some(part) = reader.next()? {
            if stopping.is_cancelled() {
                return Err(super::stopping());
            }
            writer.write(&part)?;
        }
        writer.finish()
    });
    copied.await.unwrap_or_else(|_| Err(panicked()))
}

fn broken(image: &ImageFile) -> Refusal {
    let message = format!("image {} was broken off before its end", image.name());
    Refusal::new(Code::FailedPrecondition, "IMAGE_INCOMPLETE", message)
        .with_hint("repeat the request")
}

fn invalid(message: String) -> Refusal {
    Refusal::new(Code::InvalidArgument, "INVALID_IMAGE", message)
}

fn panicked() -> Refusal {
    Refusal::new(
        Code::Internal,
        "IMAGE_STORE_FAILED",
        "writing the image panicked",
    )
}
