//! One or more operations of every kind, each from a cluster at rest.

use berth_domain::name::{FlavorName, HostName, VmName};
use berth_domain::operation::Kind;
use berth_domain::transfer::TransferOverrides;
use berth_simulation::packet::Wish;

/// An operation, and what came before it.
pub(crate) struct Story {
    pub(crate) name: &'static str,
    /// What is done before, without faults.
    pub(crate) before: &'static [Act],
    /// What is done.
    pub(crate) act: Act,
    /// Whether each host has a storage of its own, so that disks travel with their guests.
    pub(crate) apart: bool,
}

/// Something that is asked for about the one VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Boot,
    Delete,
    Migrate,
    ColdMigrate,
    /// To the greater flavor, to be verified.
    Resize,
    /// To the greater flavor at once.
    ResizeAtOnce,
    Revert,
    Shelve,
    Unshelve,
    /// Its host dies and is fenced; then it is evacuated.
    Evacuate,
    Stop,
    Start,
    Reboot,
    Rebuild,
    /// Of its first disk.
    Snapshot,
    /// A cold migration that waits to be verified.
    MoveToVerify,
    Confirm,
}

const BOOTED: &[Act] = &[Act::Boot];
const STOPPED: &[Act] = &[Act::Boot, Act::Stop];

pub(crate) const STORIES: &[Story] = &[
    story("boot", &[], Act::Boot),
    story("delete", BOOTED, Act::Delete),
    story(
        "delete a shelved vm",
        &[Act::Boot, Act::Shelve],
        Act::Delete,
    ),
    story(
        "delete a resized vm",
        &[Act::Boot, Act::Resize],
        Act::Delete,
    ),
    story("live migration", BOOTED, Act::Migrate),
    story("cold migration", BOOTED, Act::ColdMigrate),
    story("resize", BOOTED, Act::Resize),
    story("resize at once", BOOTED, Act::ResizeAtOnce),
    story("revert a resize", &[Act::Boot, Act::Resize], Act::Revert),
    story("shelve", BOOTED, Act::Shelve),
    story("unshelve", &[Act::Boot, Act::Shelve], Act::Unshelve),
    story("evacuate", BOOTED, Act::Evacuate),
    story("stop", BOOTED, Act::Stop),
    story("start", STOPPED, Act::Start),
    story("start what runs", BOOTED, Act::Start),
    story("reboot", BOOTED, Act::Reboot),
    story("rebuild", BOOTED, Act::Rebuild),
    story("rebuild a stopped vm", STOPPED, Act::Rebuild),
    story("snapshot", BOOTED, Act::Snapshot),
    story("delete a stopped vm", STOPPED, Act::Delete),
    story("cold migration of a stopped vm", STOPPED, Act::ColdMigrate),
    story("shelve a stopped vm", STOPPED, Act::Shelve),
    apart("cold migration with disks", BOOTED, Act::ColdMigrate),
    apart("stopped, with disks", STOPPED, Act::ColdMigrate),
    apart("to be verified, with disks", BOOTED, Act::MoveToVerify),
    apart("confirm with disks", VERIFYING, Act::Confirm),
    apart("revert with disks", VERIFYING, Act::Revert),
    apart("delete what is on two hosts", VERIFYING, Act::Delete),
];

const VERIFYING: &[Act] = &[Act::Boot, Act::MoveToVerify];

const fn story(name: &'static str, before: &'static [Act], act: Act) -> Story {
    Story {
        name,
        before,
        act,
        apart: false,
    }
}

const fn apart(name: &'static str, before: &'static [Act], act: Act) -> Story {
    Story {
        name,
        before,
        act,
        apart: true,
    }
}

/// Returns a story about this kind of operation: a new kind needs one.
fn told_by(kind: &Kind) -> Act {
    match kind {
        Kind::Boot => Act::Boot,
        Kind::Delete => Act::Delete,
        Kind::LiveMigrate { .. } => Act::Migrate,
        Kind::ColdMigrate { .. } => Act::ColdMigrate,
        Kind::RevertResize { .. } => Act::Revert,
        Kind::Evacuate { .. } => Act::Evacuate,
        Kind::Shelve => Act::Shelve,
        Kind::Unshelve => Act::Unshelve,
        Kind::Stop { .. } => Act::Stop,
        Kind::Start => Act::Start,
        Kind::Reboot { .. } => Act::Reboot,
        Kind::Rebuild { .. } => Act::Rebuild,
        Kind::Snapshot { .. } => Act::Snapshot,
        Kind::ConfirmResize { .. } => Act::Confirm,
        Kind::DrainHost(_) => unreachable!("it has no steps: see the drains of the state's tests"),
    }
}

impl Act {
    /// Asserts that an operation is what this story is about, or is told by another of its kind.
    pub(crate) fn check(self, kind: &Kind) {
        let told = told_by(kind);
        let resize = [
            Act::ColdMigrate,
            Act::Resize,
            Act::ResizeAtOnce,
            Act::MoveToVerify,
        ];
        assert!(told == self || (resize.contains(&told) && resize.contains(&self)));
        assert!(STORIES.iter().any(|story| story.act == told), "{kind:?}");
    }

    /// Returns the wish for it; some are asked for by hand.
    pub(crate) fn wish(self, vm: VmName, small: FlavorName, large: FlavorName) -> Option<Wish> {
        let anywhere: Option<HostName> = None;
        Some(match self {
            Self::Boot => Wish::Boot(vm, small, anywhere),
            Self::Delete => Wish::Delete(vm),
            Self::Migrate => Wish::Migrate(vm, anywhere, TransferOverrides::default()),
            Self::ColdMigrate => Wish::ColdMigrate(vm, anywhere),
            Self::Resize => Wish::Resize(vm, large, true),
            Self::ResizeAtOnce => Wish::Resize(vm, large, false),
            Self::Revert => Wish::Revert(vm),
            Self::Shelve => Wish::Shelve(vm),
            Self::Unshelve => Wish::Unshelve(vm, anywhere),
            Self::Evacuate | Self::MoveToVerify => return None,
            Self::Confirm => Wish::Confirm(vm),
            Self::Stop => Wish::Power(vm, Kind::Stop { timeout_ms: 5_000 }),
            Self::Start => Wish::Power(vm, Kind::Start),
            Self::Reboot => Wish::Power(vm, Kind::Reboot { timeout_ms: 0 }),
            Self::Rebuild => Wish::Power(vm, Kind::Rebuild { images: Vec::new() }),
            Self::Snapshot => Wish::Power(
                vm,
                Kind::Snapshot {
                    disk: 0,
                    image: "new.raw".to_owned(),
                },
            ),
        })
    }
}
