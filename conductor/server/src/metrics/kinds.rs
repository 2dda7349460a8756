//! Kinds of operations as the values of a label.

use berth_domain::operation::Kind;

berth_process::label! {
    /// The kind of an operation.
    pub(super) enum OperationKind {
        Boot = "boot",
        Delete = "delete",
        LiveMigrate = "live_migrate",
        ColdMigrate = "cold_migrate",
        RevertResize = "revert_resize",
        Evacuate = "evacuate",
        Shelve = "shelve",
        Unshelve = "unshelve",
        Stop = "stop",
        Start = "start",
        Reboot = "reboot",
        Rebuild = "rebuild",
        Snapshot = "snapshot",
        ConfirmResize = "confirm_resize",
        DrainHost = "drain_host",
    }
}

impl From<&Kind> for OperationKind {
    fn from(kind: &Kind) -> Self {
        match kind {
            Kind::Boot => Self::Boot,
            Kind::Delete => Self::Delete,
            Kind::LiveMigrate { .. } => Self::LiveMigrate,
            Kind::ColdMigrate { .. } => Self::ColdMigrate,
            Kind::RevertResize { .. } => Self::RevertResize,
            Kind::Evacuate { .. } => Self::Evacuate,
            Kind::Shelve => Self::Shelve,
            Kind::Unshelve => Self::Unshelve,
            Kind::Stop { .. } => Self::Stop,
            Kind::Start => Self::Start,
            Kind::Reboot { .. } => Self::Reboot,
            Kind::Rebuild { .. } => Self::Rebuild,
            Kind::Snapshot { .. } => Self::Snapshot,
            Kind::ConfirmResize { .. } => Self::ConfirmResize,
            Kind::DrainHost(_) => Self::DrainHost,
        }
    }
}
