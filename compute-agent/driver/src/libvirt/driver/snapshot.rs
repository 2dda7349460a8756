//! A disk as a new image: copied to a draft, then published.
//!
//! A guest that is off has its disk converted. One that runs has it copied by QEMU while it writes
//! (a block copy): once the copy has caught up, what the guest writes goes to both, and the copy is
//! the disk at the moment at which it is ended. To the guest's file systems that is a power cut:
//! the guest is not quiesced, so what it had not written yet is not there.
//!
//! The guest chose the bytes and its user the name, and neither states the format: it is recorded
//! beside the image.
//!
//! Invariant: an image has its name only once all of it is on stable storage and its format is
//! recorded, and no image is replaced.

use std::fs::{File, Metadata};
use std::io::{Error as IoError, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use berth_domain::agent::DomainState as State;
use berth_domain::vm::{Disk, DiskFormat};

use super::LibvirtDriver;
use crate::domain::{DomainSpec, Draft};
use crate::error::Error;
use crate::image::{Size, record};
use crate::libvirt::disk::{Limits, run};
use crate::libvirt::error::error_of;
use crate::libvirt::{Domain, XmlView, inspect};
use crate::xml::{self, Settings};

/// How long the copying of one disk may take.
const COPY_TIME_MAX: Duration = Duration::from_secs(3_600);

/// What a program may take that copies a disk: it has up to 64 threads, each with a stack.
const COPY_LIMITS: Limits = Limits {
    time: COPY_TIME_MAX,
    address_space: 4 << 30,
};

/// How often a copy is looked at.
const LOOK_PERIOD: Duration = Duration::from_millis(100);

impl LibvirtDriver {
    pub(super) fn copy_to_draft(
        &self,
        guest: &DomainSpec,
        index: usize,
        draft: &Draft,
    ) -> Result<(), Error> {
        let settings = &self.config.settings;
        let disk = guest
            .spec
            .disks
            .get(index)
            .ok_or_else(|| Error::refused(format!("guest {} has no disk {index}", guest.vm)))?;
        let path = draft_file(draft, disk.format, settings);
        if settings.image(&draft.image)?.exists() {
            return Err(image_exists(draft));
        }
        let source = settings.disk(guest.uid, index);
        if !source.exists() {
            return Err(Error::DiskMissing {
                vm: guest.uid,
                index,
                path: source,
            });
        }
        inspect::disk(guest, index, settings)?;
        inspect::image(disk, Size::Any, settings)?;
        let running = match self.stationary(guest.uid, "copy a disk of")? {
            Some(domain) if self.state(&domain)? != State::Absent => Some(domain),
            Some(_) | None => None,
        };
        // A repetition starts from scratch: what an earlier one left may be half a copy.
        remove(&path)?;
        let copied = match running {
            Some(domain) => copy_live(&domain, &target(index), disk, &path),
            None => self.convert(&source, disk, &path),
        };
        let made = copied
            .and_then(|()| inspect::draft(&path, disk.format, Size::Exactly(disk.size_bytes())))
            .and_then(|()| sync(&path));
        if made.is_err() {
            // The refusal is what matters; a leftover is removed with the draft.
            let _ = remove(&path);
        }
        made
    }

    fn convert(&self, source: &Path, disk: &Disk, path: &Path) -> Result<(), Error> {
        let mut command = Command::new(&self.config.qemu_img);
        command.args(["convert", "-q", "-f", "qcow2", "-O"]);
        command.arg(disk.format.as_str()).arg(source).arg(path);
        run(command, COPY_LIMITS)
    }
}

/// Has QEMU copy a disk of a guest that runs.
fn copy_live(domain: &Domain, target: &str, disk: &Disk, path: &Path) -> Result<(), Error> {
    let xml = xml::copy_destination(path, disk.format.as_str());
    domain
        .begin_block_copy(target, &xml)
        .map_err(|e| error_of(&e))?;
    let end = Instant::now() + COPY_TIME_MAX;
    let caught_up = loop {
        let live = domain.xml(XmlView::Live).map_err(|e| error_of(&e))?;
        match xml::read::copy_of(&live, target).map_err(|e| Error::refused(e.to_string()))? {
            xml::read::Copy::CaughtUp => break true,
            xml::read::Copy::Behind if Instant::now() > end => break false,
            xml::read::Copy::Behind => std::thread::sleep(LOOK_PERIOD),
            xml::read::Copy::None => {
                let message = format!("the copying of {target} broke off: see the log of QEMU");
                return Err(Error::refused(message));
            }
        }
    };
    domain.end_block_copy(target).map_err(|e| error_of(&e))?;
    if caught_up {
        return Ok(());
    }
    let seconds = COPY_TIME_MAX.as_secs();
    Err(Error::refused(format!(
        "the copying of {target} did not end within {seconds} s"
    )))
}

/// Gives a draft its name, unless another has it.
pub(super) fn publish(draft: &Draft, settings: &Settings) -> Result<(), Error> {
    let image = settings.image(&draft.image)?;
    let Some((path, here, format)) = find(draft, settings)? else {
        return match look(&image)? {
            // Only publishing takes the draft away, and this operation alone has it.
            Some(_) => Ok(()),
            None => Err(Error::refused(format!(
                "there is no draft of image {:?}",
                draft.image
            ))),
        };
    };
    if look(&image)?.is_some_and(|there| !is_same(&here, &there)) {
        return Err(image_exists(draft));
    }
    inspect::draft(&path, format, Size::Any)?;
    // Before anything can use the image. No other operation makes one of this name meanwhile.
    record::write(&settings.image_dir, &draft.image, format, draft.operation.0)?;
    // A link, because a rename would replace what has the name.
    match std::fs::hard_link(&path, &image) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            if !look(&image)?.is_some_and(|there| is_same(&here, &there)) {
                return Err(image_exists(draft));
            }
        }
        Err(error) => return Err(failed("published", &image, &error)),
    }
    remove(&path)?;
    sync(&settings.image_dir)
}

/// Removes a draft; returns whether it was published before.
pub(super) fn discard(draft: &Draft, settings: &Settings) -> Result<bool, Error> {
    let there = look(&settings.image(&draft.image)?)?;
    let Some((path, here, _)) = find(draft, settings)? else {
        return Ok(there.is_some());
    };
    remove(&path)?;
    Ok(there.is_some_and(|there| is_same(&here, &there)))
}

/// The name states owner and format, and is none that a user can choose: those do not begin with a
/// dot.
fn draft_file(draft: &Draft, format: DiskFormat, settings: &Settings) -> PathBuf {
    let (operation, format) = (draft.operation, format.as_str());
    settings
        .image_dir
        .join(format!(".{operation}.{format}.draft"))
}

/// Returns the file of a draft and its format.
fn find(
    draft: &Draft,
    settings: &Settings,
) -> Result<Option<(PathBuf, Metadata, DiskFormat)>, Error> {
    for format in [DiskFormat::Qcow2, DiskFormat::Raw] {
        let path = draft_file(draft, format, settings);
        if let Some(metadata) = look(&path)? {
            return Ok(Some((path, metadata, format)));
        }
    }
    Ok(None)
}

fn target(index: usize) -> String {
    let letter = (b'a'..=b'z').nth(index).map_or('?', char::from);
    format!("vd{letter}")
}

fn is_same(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

fn look(path: &Path) -> Result<Option<Metadata>, Error> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path, &error)),
    }
}

fn remove(path: &Path) -> Result<(), Error> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("removed", path, &error)),
    }
}

fn sync(path: &Path) -> Result<(), Error> {
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(|error| failed("synced", path, &error))
}

fn failed(what: &str, path: &Path, error: &IoError) -> Error {
    Error::refused(format!("{} cannot be {what}: {error}", path.display()))
}

fn image_exists(draft: &Draft) -> Error {
    Error::ImageExists {
        image: draft.image.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xml::VirtType;
    use berth_domain::id::OperationId;
    use uuid::Uuid;

    fn settings(directory: &Path) -> Settings {
        Settings {
            virt_type: VirtType::Qemu,
            machine: "q35".to_owned(),
            emulator: None,
            image_dir: directory.to_owned(),
            instance_dir: directory.to_owned(),
            runtime_dir: directory.to_owned(),
            disk_cache: "none".to_owned(),
        }
    }

    fn draft(operation: u128) -> Draft {
        Draft {
            operation: OperationId(Uuid::from_u128(operation)),
            image: "new.qcow2".to_owned(),
        }
    }

    /// Goal: an image gets its name once, nothing is replaced, and every call can be repeated.
    #[test]
    fn a_draft_is_published_once_and_never_over_another() {
        let directory = tempfile::tempdir().unwrap();
        let settings = settings(directory.path());
        let (ours, theirs) = (draft(1), draft(2));
        let raw = |draft: &Draft| draft_file(draft, DiskFormat::Raw, &settings);
        let recorded = || record::read(directory.path(), "new.qcow2").unwrap();
        for (draft, content) in [(&ours, "ours"), (&theirs, "theirs")] {
            std::fs::write(raw(draft), content).unwrap();
        }
        publish(&ours, &settings).unwrap();
        publish(&ours, &settings).unwrap();
        assert!(!raw(&ours).exists());
        assert_eq!(recorded(), Some(DiskFormat::Raw), "whatever its name is");
        assert_eq!(publish(&theirs, &settings), Err(image_exists(&theirs)));
        assert_eq!(discard(&theirs, &settings), Ok(false));
        assert_eq!(discard(&ours, &settings), Ok(true));
        let image = settings.image("new.qcow2").unwrap();
        assert_eq!(std::fs::read_to_string(&image).unwrap(), "ours");
        std::fs::remove_file(&image).unwrap();
        assert!(publish(&theirs, &settings).is_err(), "it was removed");
        assert_eq!(discard(&theirs, &settings), Ok(false));

        // Broken off between the two halves of publishing.
        std::fs::write(raw(&ours), "ours").unwrap();
        std::fs::hard_link(raw(&ours), &image).unwrap();
        assert_eq!(discard(&ours, &settings), Ok(true));
        assert!(!raw(&ours).exists() && image.exists());

        // What was made as qcow2 is looked at again before it gets a name.
        let third = draft(3);
        std::fs::remove_file(&image).unwrap();
        std::fs::write(draft_file(&third, DiskFormat::Qcow2, &settings), "raw").unwrap();
        let refused = publish(&third, &settings);
        assert!(
            matches!(refused, Err(Error::ImageRefused { .. })),
            "{refused:?}"
        );
        assert!(!image.exists());
        assert_eq!(discard(&third, &settings), Ok(false));
    }
}
