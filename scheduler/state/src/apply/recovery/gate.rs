//! What is refused while the cluster recovers: everything that starts, moves or deletes a guest, a
//! volume or what is left of one. The state does not know yet where guests are.

use berth_domain::refusal::{Code, Refusal};

use crate::command::Command;
use crate::state::State;
use crate::transaction::{Journal, Transaction};

/// The reason of a refusal while the cluster recovers.
pub const RECOVERING: &str = "RECOVERING";

impl<J: Journal> Transaction<'_, J> {
    /// Refuses a command that has to wait for the end of the recovery.
    pub(in crate::apply) fn examine_recovery(&self, command: &Command) -> Result<(), Refusal> {
        match is_permitted(command) {
            true => Ok(()),
            false => self.state.examine_recovered(),
        }
    }
}

impl State {
    /// Refuses what has to wait for the end of a recovery.
    ///
    /// # Errors
    ///
    /// The cluster recovers.
    pub fn examine_recovered(&self) -> Result<(), Refusal> {
        if !self.is_recovering() {
            return Ok(());
        }
        let message = "the cluster recovers: its state is older than its hosts, and what they run is \
                       not settled yet";
        Err(
            Refusal::new(Code::FailedPrecondition, RECOVERING, message).with_hint(
                "`berth cluster recovery status` shows what is missing or in conflict; it ends \
                 by itself when nothing is",
            ),
        )
    }
}

/// Returns whether a command neither changes guests nor depends on where they are.
fn is_permitted(command: &Command) -> bool {
    match command {
        Command::Bootstrap { .. }
        | Command::RegisterHost { .. }
        | Command::SetLiveness { .. }
        | Command::SetCordon { .. }
        | Command::FenceHost { .. }
        | Command::ReportGuests { .. }
        | Command::EndRecovery { .. }
        | Command::RegisterService(_)
        | Command::UnregisterService { .. }
        // None is held.
        | Command::RenewLeases { .. }
        | Command::CreateFlavor(_)
        | Command::DeleteFlavor { .. }
        | Command::CreateAggregate(_)
        | Command::UpdateAggregate { .. }
        | Command::DeleteAggregate { .. }
        | Command::CreateServerGroup(_)
        | Command::DeleteServerGroup { .. }
        | Command::SetPolicy(_)
        | Command::CreatePciAlias(_)
        | Command::DeletePciAlias { .. }
        | Command::CreateImage(_)
        | Command::CompleteImage { .. }
        | Command::SetImageCopy { .. }
        | Command::CreateProvider { .. }
        | Command::UpdateProvider { .. }
        | Command::DeleteProvider { .. }
        | Command::SetInventories { .. }
        | Command::PutInventory { .. }
        | Command::DeleteInventory { .. }
        | Command::DeleteInventories { .. }
        | Command::SetTraits { .. }
        | Command::DeleteTraits { .. }
        | Command::SetAggregates { .. }
        | Command::SetAllocations { .. }
        | Command::DeleteAllocations { .. }
        | Command::Reshape { .. }
        | Command::Batch { .. }
        | Command::CreateClass { .. }
        | Command::RenameClass { .. }
        | Command::DeleteClass { .. }
        | Command::CreateTrait { .. }
        | Command::DeleteTrait { .. }
        | Command::ImportProviders { .. }
        | Command::ImportConsumers { .. }
        | Command::SetRestartPolicy { .. }
        | Command::UpdateVm { .. }
        | Command::NoteVolumes { .. }
        | Command::FinalizeUpgrade { .. }
        | Command::ReplaceGrantKey { .. }
        | Command::RevokeCertificate(_)
        | Command::ReinstateCertificate { .. } => true,
        Command::RemoveHost { .. }
        | Command::BeginBoot { .. }
        | Command::BeginMigration { .. }
        | Command::BeginDrain { .. }
        | Command::MoveDrained { .. }
        | Command::RecordDrained { .. }
        | Command::BeginDelete { .. }
        | Command::BeginPower { .. }
        | Command::OpenConsole { .. }
        | Command::BeginMove { .. }
        | Command::ConfirmResize { .. }
        | Command::BeginRevertResize { .. }
        | Command::BeginShelve { .. }
        | Command::BeginUnshelve { .. }
        | Command::TakeLease { .. }
        | Command::CancelOperation { .. }
        | Command::Advance { .. }
        | Command::ForceComplete { .. }
        | Command::NoteReality { .. }
        | Command::NoteErasures { .. }
        | Command::WriteOffPmem { .. }
        | Command::CreateVolume { .. }
        | Command::DeleteVolume { .. }
        // Which VMs have it, or are on one of this name, is not known yet.
        | Command::DeleteImage { .. }
        | Command::CreateNetwork(_)
        | Command::DeleteNetwork { .. } => false,
    }
}
