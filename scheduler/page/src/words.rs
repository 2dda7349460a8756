//! The named values of the API as words, and how serious each is.

use berth_proto::host::v1::Host;
use berth_proto::host::v1::host::Liveness;
use berth_proto::policy::v1::host_memory::Violation;
use berth_proto::scheduler::v1::{migration, vm};
use berth_proto::types::v1::claim;
use maud::{Markup, html};

/// How serious something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Note,
    Bad,
    Plain,
}

impl Tone {
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Note => "note",
            Self::Bad => "bad",
            Self::Plain => "plain",
        }
    }
}

/// Returns a word that is marked.
pub(crate) fn badge((word, tone): (&str, Tone)) -> Markup {
    html! { span class={ "badge " (tone.class()) } { (word) } }
}

/// Returns the state of a host: the first that applies.
pub(crate) fn host(host: &Host) -> (&'static str, Tone) {
    if host.fence.is_some() {
        return ("FENCED", Tone::Bad);
    }
    match host.liveness() {
        Liveness::Down => ("DOWN", Tone::Bad),
        Liveness::Unspecified => ("UNKNOWN", Tone::Note),
        Liveness::Up if host.unreported => ("UNREPORTED", Tone::Note),
        Liveness::Up if host.cordoned => ("CORDONED", Tone::Note),
        Liveness::Up if !host.shape_refused.is_empty() => ("SHAPE_REFUSED", Tone::Bad),
        Liveness::Up => ("UP", Tone::Good),
    }
}

pub(crate) fn vm(state: vm::State) -> (&'static str, Tone) {
    match state {
        vm::State::Unspecified => ("UNKNOWN", Tone::Note),
        vm::State::Building => ("BUILDING", Tone::Note),
        vm::State::Active => ("ACTIVE", Tone::Good),
        vm::State::Migrating => ("MIGRATING", Tone::Note),
        vm::State::Deleting => ("DELETING", Tone::Note),
        vm::State::Error => ("ERROR", Tone::Bad),
        vm::State::Stopped => ("STOPPED", Tone::Plain),
        vm::State::Resized => ("RESIZED", Tone::Note),
        vm::State::Shelved => ("SHELVED", Tone::Plain),
    }
}

pub(crate) fn claim(state: claim::State) -> (&'static str, Tone) {
    match state {
        claim::State::Unspecified => ("UNKNOWN", Tone::Note),
        claim::State::Held => ("HELD", Tone::Note),
        claim::State::Active => ("ACTIVE", Tone::Good),
        claim::State::Releasing => ("RELEASING", Tone::Note),
    }
}

pub(crate) fn migration(state: migration::State) -> (&'static str, Tone) {
    match state {
        migration::State::Unspecified => ("UNKNOWN", Tone::Note),
        migration::State::Preparing => ("PREPARING", Tone::Note),
        migration::State::Running => ("RUNNING", Tone::Note),
        migration::State::Unsettled => ("UNSETTLED", Tone::Bad),
        migration::State::Completed => ("COMPLETED", Tone::Good),
        migration::State::Failed => ("FAILED", Tone::Bad),
        migration::State::Verifying => ("VERIFYING", Tone::Note),
        migration::State::Reverted => ("REVERTED", Tone::Plain),
    }
}

/// Returns whether a migration has not ended.
pub(crate) fn is_open(state: migration::State) -> bool {
    match state {
        migration::State::Preparing
        | migration::State::Running
        | migration::State::Unsettled
        | migration::State::Verifying => true,
        migration::State::Unspecified
        | migration::State::Completed
        | migration::State::Failed
        | migration::State::Reverted => false,
    }
}

pub(crate) fn migration_kind(kind: migration::Kind) -> &'static str {
    match kind {
        // It is absent in records of the first version.
        migration::Kind::Unspecified | migration::Kind::Live => "live",
        migration::Kind::Cold => "cold",
        migration::Kind::Evacuation => "evacuation",
    }
}

pub(crate) fn violation(violation: Violation) -> Option<(&'static str, Tone)> {
    match violation {
        Violation::Unspecified | Violation::None => None,
        Violation::Soft => Some(("SOFT", Tone::Note)),
        Violation::Hard => Some(("HARD", Tone::Bad)),
    }
}
