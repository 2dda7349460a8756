//! What the files of a guest have to be before QEMU or `qemu-img` opens them.
//!
//! | file | format | lies over |
//! |---|---|---|
//! | an image | as its user declares, or as Berth wrote it | nothing |
//! | a guest's disk | qcow2 | the image of its specification, in that image's format |
//! | a draft | that of the disk's image | nothing |
//!
//! Not here: how a file is read (`image`).

use std::path::Path;

use berth_domain::vm::{Disk, DiskFormat};

use crate::domain::DomainSpec;
use crate::error::Error;
use crate::image::{self, Base, Declared, Size, Source, inspect, record};
use crate::xml::Settings;

/// Inspects the image of a disk, if it has one.
pub(super) fn image(disk: &Disk, size: Size, settings: &Settings) -> Result<(), Error> {
    let Some(name) = &disk.image else {
        return Ok(());
    };
    let path = settings.image(name)?;
    let recorded = record::read(&settings.image_dir, name)?;
    if let Some(recorded) = recorded
        && recorded != disk.format
    {
        let (is, declared) = (recorded.as_str(), disk.format.as_str());
        let why = format!("Berth wrote it as {is}, and it is declared {declared}");
        let record = record::path(&settings.image_dir, name);
        let hint = format!(
            "use it for a disk of format {is}, as in `--disk {name}:GIB:{is}`; if it was replaced by \
             another file since, delete {}",
            record.display()
        );
        return Err(image::refused(&path, &why, hint));
    }
    let declared = Declared {
        format: disk.format,
        base: Base::None,
        size,
        source: match recorded {
            Some(_) => Source::Berth,
            None => Source::User,
        },
    };
    inspect(&path, &declared)
}

/// Inspects a guest's own disk.
pub(super) fn disk(guest: &DomainSpec, index: usize, settings: &Settings) -> Result<(), Error> {
    let (disk, file) = (&guest.spec.disks[index], settings.disk(guest.uid, index));
    layer(&file, disk, settings)
}

/// Inspects a file that is to be a guest's own disk.
pub(super) fn layer(file: &Path, disk: &Disk, settings: &Settings) -> Result<(), Error> {
    let image = disk.image.as_ref().map(|name| settings.image(name));
    let image = image.transpose()?;
    let base = match &image {
        Some(image) => Base::File(image, disk.format),
        None => Base::None,
    };
    inspect(file, &declared(disk, base)).map_err(|error| {
        let remedy = "rebuild the VM, or put back the disk from a backup";
        let hint = match &image {
            Some(image) => format!(
                "{remedy}; if its image was moved there, run `qemu-img rebase -u -f qcow2 -F {} -b {} {}`",
                disk.format.as_str(),
                image.display(),
                file.display()
            ),
            None => remedy.to_owned(),
        };
        with_hint(error, hint)
    })
}

/// Inspects a disk that came from another host, before its base is replaced.
pub(super) fn fetched(file: &Path, disk: &Disk) -> Result<(), Error> {
    let base = match disk.image {
        Some(_) => Base::Replaced,
        None => Base::None,
    };
    inspect(file, &declared(disk, base)).map_err(|error| {
        let hint = "examine the disk on the host that sent it: Berth writes no such disks";
        with_hint(error, hint.to_owned())
    })
}

/// Inspects a copy of a disk that is to be an image.
pub(super) fn draft(file: &Path, format: DiskFormat, size: Size) -> Result<(), Error> {
    let declared = Declared {
        format,
        base: Base::None,
        size,
        source: Source::Berth,
    };
    inspect(file, &declared)
}

fn declared<'a>(disk: &Disk, base: Base<'a>) -> Declared<'a> {
    Declared {
        format: DiskFormat::Qcow2,
        base,
        size: Size::Exactly(disk.size_bytes()),
        source: Source::Berth,
    }
}

fn with_hint(error: Error, remedy: String) -> Error {
    let mut error = error;
    if let Error::ImageRefused { hint, .. } = &mut error {
        *hint = remedy;
    }
    error
}
