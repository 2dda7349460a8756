//! Calls to the driver as labels: their kinds, and how they ended.

use berth_driver::{Error, Kind};

berth_process::label! {
    /// The kind of a call.
    pub(crate) enum CallKind {
        Create = "create",
        Destroy = "destroy",
        Domain = "domain",
        Domains = "domains",
        Prepare = "prepare",
        Cancel = "cancel",
        CheckTls = "check_tls",
        CheckPeer = "check_peer",
        Migrate = "migrate",
        Abort = "abort",
        Release = "release",
        FreePages = "free_pages",
        Shutdown = "shutdown",
        Stop = "stop",
        Start = "start",
        Force = "force",
        Forget = "forget",
        MakeDisks = "make_disks",
        CopyDisk = "copy_disk",
        PublishImage = "publish_image",
        DropImage = "drop_image",
        Everything = "everything",
        Evict = "evict",
        Erase = "erase",
        FetchDisks = "fetch_disks",
        StopFetch = "stop_fetch",
        DropDisks = "drop_disks",
    }
}

berth_process::label! {
    /// How a call ended.
    pub(crate) enum CallEnd {
        Ok = "ok",
        /// It was carried out, or checked, and refused.
        Refused = "refused",
        /// The hypervisor did not answer.
        Unreachable = "unreachable",
    }
}

impl From<Kind> for CallKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Create => Self::Create,
            Kind::Destroy => Self::Destroy,
            Kind::Domain => Self::Domain,
            Kind::Domains => Self::Domains,
            Kind::Prepare => Self::Prepare,
            Kind::Cancel => Self::Cancel,
            Kind::CheckTls => Self::CheckTls,
            Kind::CheckPeer => Self::CheckPeer,
            Kind::Migrate => Self::Migrate,
            Kind::Abort => Self::Abort,
            Kind::Release => Self::Release,
            Kind::FreePages => Self::FreePages,
            Kind::Shutdown => Self::Shutdown,
            Kind::Stop => Self::Stop,
            Kind::Start => Self::Start,
            Kind::Force => Self::Force,
            Kind::Forget => Self::Forget,
            Kind::MakeDisks => Self::MakeDisks,
            Kind::CopyDisk => Self::CopyDisk,
            Kind::PublishImage => Self::PublishImage,
            Kind::DropImage => Self::DropImage,
            Kind::Everything => Self::Everything,
            Kind::Evict => Self::Evict,
            Kind::Erase => Self::Erase,
            Kind::FetchDisks => Self::FetchDisks,
            Kind::StopFetch => Self::StopFetch,
            Kind::DropDisks => Self::DropDisks,
        }
    }
}

impl<T> From<&Result<T, Error>> for CallEnd {
    fn from(result: &Result<T, Error>) -> Self {
        match result {
            Ok(_) => Self::Ok,
            Err(error) if error.is_unknown() => Self::Unreachable,
            Err(_) => Self::Refused,
        }
    }
}
