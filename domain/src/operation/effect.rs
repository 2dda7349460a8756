//! What a step means for the replicated state.
//!
//! Not here: what it does there. That is the state's.

use serde::{Deserialize, Serialize};

use crate::claim::Claim;
use crate::id::ClaimId;
use crate::migration;
use crate::numa::Assignment;
use crate::refusal::Refusal;

/// What is known of a guest at the end of an operation on its own host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum GuestPower {
    /// Nothing was done that could have changed it.
    Unchanged,
    /// It runs.
    On,
    /// It does not run; its disks are whole.
    Off,
    /// It does not run, and its disks were being recreated: neither old nor new.
    Broken,
}

/// What a step means for the state; committed together with the step's entry.
///
/// It lives here because conductors name it and the replicated state carries it out.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Effect {
    /// Nothing beyond its entry in the log.
    None,
    /// The next candidate was chosen: its claim is held for the operation.
    HoldClaim(Claim),
    /// The destination's agent confirmed the claim.
    ConfirmClaim {
        /// Which.
        claim: ClaimId,
    },
    /// The destination's agent fitted otherwise: the old is released and the new held, in one.
    SwapClaim {
        /// Which.
        claim: ClaimId,
        /// The exact CPUs and pages from now on.
        assignment: Assignment,
    },
    /// The operation's claim is given back.
    ReleaseClaim {
        /// Which.
        claim: ClaimId,
        /// Whether its host refused and is not tried again.
        exclude: bool,
    },
    /// The guest runs on its first host: claim and VM become ACTIVE, the operation is done.
    CompleteBoot,
    /// The boot was undone: the VM is in ERROR without a claim, the operation is done.
    FailBoot(Refusal),
    /// The point of no return: the migration is RUNNING.
    BeginTransfer,
    /// The migration was given up before anything moved; its claim is released, the operation done.
    RefuseMigration(Refusal),
    /// The state of the guest on the two hypervisors; a final one settles claims and ends the
    /// operation.
    Settle {
        /// The event.
        event: migration::Event,
        /// What it waits for, or why it failed.
        refusal: Option<Refusal>,
    },
    /// The guest is deleted: claims are released, the VM is removed, the operation is done.
    CompleteDelete,
    /// The VM is on its destination: a cold migration or an evacuation is done, or waits to be
    /// verified.
    CompleteMove,
    /// The VM is on its source again: the claim on the destination is released, the operation
    /// done.
    CompleteRevert,
    /// The guest is stopped: the claim is released, the VM is SHELVED, the operation done.
    CompleteShelve,
    /// The guest runs on the host that was newly chosen: claim and VM are ACTIVE, the operation
    /// done.
    CompleteUnshelve,
    /// No host accepted the guest: it remains SHELVED, the operation is done.
    FailUnshelve(Refusal),
    /// The operation on the VM's own host is done: the VM has its guest's state, its claim remains.
    EndPower {
        /// How the guest is.
        power: GuestPower,
        /// Why it failed, if it did.
        refusal: Option<Refusal>,
    },
    /// The old disks are deleted: the VM's images are those of the rebuild.
    BeginRebuild,
    /// The source of a cold migration is cleaned up: the claim there is released, the operation
    /// done.
    CompleteConfirm,
}

impl Effect {
    /// Returns why the operation failed or waits, where the effect says so.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::FailBoot(refusal)
            | Self::RefuseMigration(refusal)
            | Self::FailUnshelve(refusal) => Some(refusal),
            Self::Settle { refusal, .. } | Self::EndPower { refusal, .. } => refusal.as_ref(),
            Self::None
            | Self::HoldClaim(_)
            | Self::ConfirmClaim { .. }
            | Self::SwapClaim { .. }
            | Self::ReleaseClaim { .. }
            | Self::CompleteBoot
            | Self::BeginTransfer
            | Self::CompleteDelete
            | Self::CompleteMove
            | Self::CompleteRevert
            | Self::CompleteShelve
            | Self::CompleteUnshelve
            | Self::BeginRebuild
            | Self::CompleteConfirm => None,
        }
    }

    /// Returns the same to be changed.
    pub fn refusal_mut(&mut self) -> Option<&mut Refusal> {
        match self {
            Self::FailBoot(refusal)
            | Self::RefuseMigration(refusal)
            | Self::FailUnshelve(refusal) => Some(refusal),
            Self::Settle { refusal, .. } | Self::EndPower { refusal, .. } => refusal.as_mut(),
            Self::None
            | Self::HoldClaim(_)
            | Self::ConfirmClaim { .. }
            | Self::SwapClaim { .. }
            | Self::ReleaseClaim { .. }
            | Self::CompleteBoot
            | Self::BeginTransfer
            | Self::CompleteDelete
            | Self::CompleteMove
            | Self::CompleteRevert
            | Self::CompleteShelve
            | Self::CompleteUnshelve
            | Self::BeginRebuild
            | Self::CompleteConfirm => None,
        }
    }

    /// Returns it with its refusal [as records keep it](Refusal::as_record).
    #[must_use]
    pub fn as_record(&self, is_bounded: bool) -> Self {
        let mut record = self.clone();
        if let Some(refusal) = record.refusal_mut() {
            *refusal = refusal.as_record(is_bounded);
        }
        record
    }
}

/// Which effect, without its content: what the [table](super::table) of operations names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EffectName {
    /// [`Effect::None`].
    None,
    /// [`Effect::HoldClaim`].
    HoldClaim,
    /// [`Effect::ConfirmClaim`].
    ConfirmClaim,
    /// [`Effect::SwapClaim`].
    SwapClaim,
    /// [`Effect::ReleaseClaim`].
    ReleaseClaim,
    /// [`Effect::CompleteBoot`].
    CompleteBoot,
    /// [`Effect::FailBoot`].
    FailBoot,
    /// [`Effect::BeginTransfer`].
    BeginTransfer,
    /// [`Effect::RefuseMigration`].
    RefuseMigration,
    /// [`Effect::Settle`].
    Settle,
    /// [`Effect::CompleteDelete`].
    CompleteDelete,
    /// [`Effect::CompleteMove`].
    CompleteMove,
    /// [`Effect::CompleteRevert`].
    CompleteRevert,
    /// [`Effect::CompleteShelve`].
    CompleteShelve,
    /// [`Effect::CompleteUnshelve`].
    CompleteUnshelve,
    /// [`Effect::FailUnshelve`].
    FailUnshelve,
    /// [`Effect::EndPower`].
    EndPower,
    /// [`Effect::BeginRebuild`].
    BeginRebuild,
    /// [`Effect::CompleteConfirm`].
    CompleteConfirm,
}

impl Effect {
    /// Returns which effect it is.
    #[must_use]
    pub fn name(&self) -> EffectName {
        match self {
            Self::None => EffectName::None,
            Self::HoldClaim(_) => EffectName::HoldClaim,
            Self::ConfirmClaim { .. } => EffectName::ConfirmClaim,
            Self::SwapClaim { .. } => EffectName::SwapClaim,
            Self::ReleaseClaim { .. } => EffectName::ReleaseClaim,
            Self::CompleteBoot => EffectName::CompleteBoot,
            Self::FailBoot(_) => EffectName::FailBoot,
            Self::BeginTransfer => EffectName::BeginTransfer,
            Self::RefuseMigration(_) => EffectName::RefuseMigration,
            Self::Settle { .. } => EffectName::Settle,
            Self::CompleteDelete => EffectName::CompleteDelete,
            Self::CompleteMove => EffectName::CompleteMove,
            Self::CompleteRevert => EffectName::CompleteRevert,
            Self::CompleteShelve => EffectName::CompleteShelve,
            Self::CompleteUnshelve => EffectName::CompleteUnshelve,
            Self::FailUnshelve(_) => EffectName::FailUnshelve,
            Self::EndPower { .. } => EffectName::EndPower,
            Self::BeginRebuild => EffectName::BeginRebuild,
            Self::CompleteConfirm => EffectName::CompleteConfirm,
        }
    }
}

impl EffectName {
    /// Returns the effect, if it has no content.
    #[must_use]
    pub fn plain(self) -> Option<Effect> {
        let effect = match self {
            Self::None => Effect::None,
            Self::CompleteBoot => Effect::CompleteBoot,
            Self::BeginTransfer => Effect::BeginTransfer,
            Self::CompleteDelete => Effect::CompleteDelete,
            Self::CompleteMove => Effect::CompleteMove,
            Self::CompleteRevert => Effect::CompleteRevert,
            Self::CompleteShelve => Effect::CompleteShelve,
            Self::CompleteUnshelve => Effect::CompleteUnshelve,
            Self::BeginRebuild => Effect::BeginRebuild,
            Self::CompleteConfirm => Effect::CompleteConfirm,
            Self::HoldClaim
            | Self::ConfirmClaim
            | Self::SwapClaim
            | Self::ReleaseClaim
            | Self::FailBoot
            | Self::RefuseMigration
            | Self::Settle
            | Self::FailUnshelve
            | Self::EndPower => return None,
        };
        Some(effect)
    }

    /// Returns the effect of giving up for this reason, once nothing is left of what was done, if it
    /// is one.
    #[must_use]
    pub fn giving_up(self, refusal: Refusal) -> Option<Effect> {
        let effect = match self {
            Self::FailBoot => Effect::FailBoot(refusal),
            Self::RefuseMigration => Effect::RefuseMigration(refusal),
            Self::FailUnshelve => Effect::FailUnshelve(refusal),
            Self::EndPower => Effect::EndPower {
                power: GuestPower::Unchanged,
                refusal: Some(refusal),
            },
            Self::None
            | Self::HoldClaim
            | Self::ConfirmClaim
            | Self::SwapClaim
            | Self::ReleaseClaim
            | Self::CompleteBoot
            | Self::BeginTransfer
            | Self::Settle
            | Self::CompleteDelete
            | Self::CompleteMove
            | Self::CompleteRevert
            | Self::CompleteShelve
            | Self::CompleteUnshelve
            | Self::BeginRebuild
            | Self::CompleteConfirm => return None,
        };
        Some(effect)
    }
}
