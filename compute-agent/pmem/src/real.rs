//! A host's own namespaces: listed by `ndctl`, erased by `daxio`.
//!
//! A device is erased piece by piece, each by a program of its own with a time limit: so there is
//! progress, an erase that was cut off continues from the last whole piece, and one that hangs is
//! noticed. Which device it is is looked up by the namespace's name when the erase begins: the
//! kernel numbers devices anew at each start.
//!
//! Known behaviour of daxio, and what the code therefore does:
//!
//! * Where the device is missing it makes a plain file of that name in `/dev`: the path is checked
//!   at before.
//! * A length beyond the end is cut silently, and it succeeds: the count that it prints
//!   is compared with what it was to write.
//! * It overwrites past the caches, so that what it has done is there after a loss of power.
//! * It reads a variable of its environment that leaves that out: it gets none.
//!
//! Invariant: an erase writes to its device only while it is ERASING, through one program at a time.

mod erase;

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::command;
use crate::config::Configured;
use crate::discovery::{self, Discovery, PathKind};
use crate::memory::{Error, Order, Pmem, Progress};
use crate::ndctl;
use crate::versions::{Answer, Part, Versions};

/// How the programs are found and used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The program that lists namespaces; looked for on the usual path if it is a bare name.
    pub ndctl: PathBuf,
    /// The program that erases.
    pub daxio: PathBuf,
    /// Where devices are.
    pub devices: PathBuf,
    /// Root of the kernel's files about itself and processes.
    pub proc: PathBuf,
    /// Timeout of a program that only reads.
    pub tell_limit: Duration,
    /// How much is erased at a time; rounded up to the alignment.
    pub piece_bytes: u64,
    /// How long that may take.
    pub piece_limit: Duration,
    /// How many namespaces are erased at the same time.
    pub parallel: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ndctl: "ndctl".into(),
            daxio: "daxio".into(),
            devices: "/dev".into(),
            proc: "/proc".into(),
            tell_limit: Duration::from_secs(30),
            piece_bytes: 1 << 30,
            // Slower than 2 MiB a second is not slow but stuck.
            piece_limit: Duration::from_secs(600),
            parallel: 2,
        }
    }
}

/// A host's own persistent memory. What it erases is stopped when it is dropped.
#[derive(Debug)]
pub struct Real {
    host: Arc<Host>,
    erases: erase::Erases,
}

/// What both the calls and the erases look at.
#[derive(Debug)]
struct Host {
    settings: Settings,
    configured: Configured,
}

impl Real {
    /// Returns this host's memory. Nothing is looked at yet.
    #[must_use]
    pub fn new(configured: Configured, settings: Settings) -> Self {
        let host = Arc::new(Host {
            settings,
            configured,
        });
        let erases = erase::Erases::new(host.clone());
        Self { host, erases }
    }
}

impl Host {
    fn list(&self, stop: &AtomicBool) -> Result<Vec<ndctl::Entry>, Error> {
        let settings = &self.settings;
        let output = command::run(
            &settings.ndctl,
            &ndctl::ARGUMENTS,
            settings.tell_limit,
            stop,
        )?;
        Ok(ndctl::read(&output.stdout)?)
    }

    fn discover(&self, stop: &AtomicBool) -> Result<Discovery, Error> {
        if self.configured.is_empty() {
            return Ok(Discovery::default());
        }
        let entries = self.list(stop)?;
        let directory = &self.settings.devices;
        Ok(discovery::compare(
            &self.configured,
            &entries,
            directory,
            &path_kind,
        ))
    }

    fn ask(&self, program: &Path, argument: &str) -> Answer {
        let limit = self.settings.tell_limit;
        let stop = AtomicBool::new(false);
        let output = command::run(program, &[argument], limit, &stop);
        let output = output.map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

/// Returns the type of a path; a link is followed.
fn path_kind(path: &Path) -> PathKind {
    match fs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_char_device() => PathKind::Device,
        Ok(_) => PathKind::Other,
        Err(error) if error.kind() == io::ErrorKind::NotFound => PathKind::Nothing,
        Err(_) => PathKind::Other,
    }
}

impl Pmem for Real {
    fn versions(&self) -> Versions {
        let settings = &self.host.settings;
        let release = settings.proc.join("sys/kernel/osrelease");
        let kernel = fs::read_to_string(&release)
            .map_err(|error| format!("cannot read {}: {error}", release.display()));
        Versions::default()
            .with(Part::Linux, kernel)
            .with(Part::Ndctl, self.host.ask(&settings.ndctl, "--version"))
            .with(Part::Daxio, self.host.ask(&settings.daxio, "--version"))
    }

    fn discover(&self) -> Result<Discovery, Error> {
        self.host.discover(&AtomicBool::new(false))
    }

    fn start_erase(&self, order: &Order) -> Result<Progress, Error> {
        if self.host.configured.label(&order.namespace).is_none() {
            let namespace = order.namespace.clone();
            return Err(Error::NotConfigured { namespace });
        }
        self.erases.start(order)
    }

    fn erases(&self) -> Vec<Progress> {
        self.erases.all()
    }

    fn abort_erase(&self, namespace: &str) {
        self.erases.abort(namespace);
    }
}
