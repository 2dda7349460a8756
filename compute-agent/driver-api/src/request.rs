//! The calls of the trait `Driver` as values, for cores that do no I/O of their own: the agent's
//! shell performs them on threads, the simulator in a world of simulated hypervisors.

use std::collections::BTreeMap;
use std::fmt;

use berth_domain::agent::{DiskSource, DomainStatus, Fence, Side};
use berth_domain::id::{ClaimId, MigrationId, VmUid};
use berth_domain::pmem::PmemDevice;
use berth_domain::topology::CellId;
use berth_domain::transfer::DiskCopy;

use crate::domain::{DomainSpec, Draft, Force, Known, Other, Sending};

/// Joins a request with its result; chosen by the caller, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A call of the trait `Driver`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// `Driver::create`.
    Create(Box<DomainSpec>),
    /// `Driver::destroy`.
    Destroy(VmUid),
    /// `Driver::domain`.
    Domain(VmUid),
    /// `Driver::domains`.
    Domains,
    /// `Driver::prepare_incoming`.
    Prepare {
        /// The guest.
        domain: Box<DomainSpec>,
        /// The disks that are copied.
        copies: Vec<DiskCopy>,
    },
    /// `Driver::cancel_incoming`.
    Cancel(VmUid),
    /// `Driver::check_tls`, before this guest is sent or received.
    CheckTls(VmUid),
    /// `Driver::check_peer`, before this guest is sent to it.
    CheckPeer(VmUid, String),
    /// `Driver::migrate`.
    Migrate {
        /// The guest.
        vm: VmUid,
        /// Where to.
        destination_uri: String,
        /// What it becomes there.
        destination: Box<DomainSpec>,
        /// How it is sent.
        sending: Box<Sending>,
    },
    /// `Driver::abort`.
    Abort(VmUid),
    /// `Driver::release`.
    Release(VmUid),
    /// `Driver::free_pages`.
    FreePages,
    /// `Driver::shutdown`.
    Shutdown(VmUid),
    /// `Driver::stop`.
    Stop(VmUid),
    /// `Driver::start`.
    Start(Box<DomainSpec>),
    /// `Driver::force_complete`.
    Force(VmUid, Force),
    /// `Driver::forget_incoming`.
    Forget(VmUid),
    /// `Driver::make_disks`.
    MakeDisks(Box<DomainSpec>),
    /// `Driver::copy_disk`.
    CopyDisk {
        /// The guest.
        domain: Box<DomainSpec>,
        /// Which disk, from 0.
        disk: usize,
        /// The draft that it is copied to.
        draft: Draft,
    },
    /// `Driver::publish_image`.
    PublishImage(Draft),
    /// `Driver::drop_image`.
    DropImage(Draft),
    /// `Driver::domains` and `Driver::others`.
    Everything,
    /// `Driver::evict`.
    Evict(VmUid, Option<ClaimId>),
    /// `Driver::erase`, one after the other.
    Erase(Vec<PmemDevice>),
    /// `Driver::receive_disks`, with what `Driver::read_disks` of another host gives. Not for
    /// `berth_driver::perform`: what is between the two is the agent's.
    FetchDisks(Box<Fetch>),
    /// Stops a fetch that goes on; it ends with [`Error::Aborted`](crate::Error::Aborted).
    StopFetch(VmUid),
    /// `Driver::drop_disks`.
    DropDisks(VmUid, MigrationId, Side),
}

/// Disks that are to be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The guest, as it is to be here.
    pub domain: DomainSpec,
    /// The attempt.
    pub migration: MigrationId,
    /// The host that has them.
    pub source: DiskSource,
    /// On whose behalf its agent is called.
    pub fence: Fence,
    /// The most that it may take of the network, in MiB/s.
    pub bandwidth_mib_per_s_max: Option<u32>,
    /// How long it may take.
    pub timeout_ms: u64,
}

/// The kind of a [`Request`], for scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// [`Request::Create`].
    Create,
    /// [`Request::Destroy`].
    Destroy,
    /// [`Request::Domain`].
    Domain,
    /// [`Request::Domains`].
    Domains,
    /// [`Request::Prepare`].
    Prepare,
    /// [`Request::Cancel`].
    Cancel,
    /// [`Request::CheckTls`].
    CheckTls,
    /// [`Request::CheckPeer`].
    CheckPeer,
    /// [`Request::Migrate`].
    Migrate,
    /// [`Request::Abort`].
    Abort,
    /// [`Request::Release`].
    Release,
    /// [`Request::FreePages`].
    FreePages,
    /// [`Request::Shutdown`].
    Shutdown,
    /// [`Request::Stop`].
    Stop,
    /// [`Request::Start`].
    Start,
    /// [`Request::Force`].
    Force,
    /// [`Request::Forget`].
    Forget,
    /// [`Request::MakeDisks`].
    MakeDisks,
    /// [`Request::CopyDisk`].
    CopyDisk,
    /// [`Request::PublishImage`].
    PublishImage,
    /// [`Request::DropImage`].
    DropImage,
    /// [`Request::Everything`].
    Everything,
    /// [`Request::Evict`].
    Evict,
    /// [`Request::Erase`].
    Erase,
    /// [`Request::FetchDisks`].
    FetchDisks,
    /// [`Request::StopFetch`].
    StopFetch,
    /// [`Request::DropDisks`].
    DropDisks,
}

impl Kind {
    /// All kinds, for tables.
    pub const ALL: [Self; 27] = [
        Self::Create,
        Self::Destroy,
        Self::Domain,
        Self::Domains,
        Self::Prepare,
        Self::Cancel,
        Self::CheckTls,
        Self::CheckPeer,
        Self::Migrate,
        Self::Abort,
        Self::Release,
        Self::FreePages,
        Self::Shutdown,
        Self::Stop,
        Self::Start,
        Self::Force,
        Self::Forget,
        Self::MakeDisks,
        Self::CopyDisk,
        Self::PublishImage,
        Self::DropImage,
        Self::Everything,
        Self::Evict,
        Self::Erase,
        Self::FetchDisks,
        Self::StopFetch,
        Self::DropDisks,
    ];
}

impl Request {
    /// Returns which call it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Create(_) => Kind::Create,
            Self::Destroy(_) => Kind::Destroy,
            Self::Domain(_) => Kind::Domain,
            Self::Domains => Kind::Domains,
            Self::Prepare { .. } => Kind::Prepare,
            Self::Cancel(_) => Kind::Cancel,
            Self::CheckTls(_) => Kind::CheckTls,
            Self::CheckPeer(..) => Kind::CheckPeer,
            Self::Migrate { .. } => Kind::Migrate,
            Self::Abort(_) => Kind::Abort,
            Self::Release(_) => Kind::Release,
            Self::FreePages => Kind::FreePages,
            Self::Shutdown(_) => Kind::Shutdown,
            Self::Stop(_) => Kind::Stop,
            Self::Start(_) => Kind::Start,
            Self::Force(..) => Kind::Force,
            Self::Forget(_) => Kind::Forget,
            Self::MakeDisks(_) => Kind::MakeDisks,
            Self::CopyDisk { .. } => Kind::CopyDisk,
            Self::PublishImage(_) => Kind::PublishImage,
            Self::DropImage(_) => Kind::DropImage,
            Self::Everything => Kind::Everything,
            Self::Evict(..) => Kind::Evict,
            Self::Erase(_) => Kind::Erase,
            Self::FetchDisks(_) => Kind::FetchDisks,
            Self::StopFetch(_) => Kind::StopFetch,
            Self::DropDisks(..) => Kind::DropDisks,
        }
    }
}

/// The free pages of each cell by size in KiB, as the host reports now.
pub type FreePages = BTreeMap<CellId, BTreeMap<u64, u64>>;

/// The result of a [`Request`] that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was done.
    Done,
    /// To [`Request::Domain`].
    Status(DomainStatus),
    /// To [`Request::Domains`].
    Domains(Vec<Known>),
    /// To [`Request::FreePages`].
    FreePages(FreePages),
    /// To [`Request::DropImage`].
    Image {
        /// Whether the draft had got its name before.
        published: bool,
    },
    /// To [`Request::Everything`].
    Everything(Vec<Known>, Vec<Other>),
}
