//! Before a call that starts or prepares a guest, its host has the images that the guest is made from.

use berth_domain::agent::{Call, Failure};
use berth_domain::image::ImageFile;
use berth_domain::refusal::Code;
use berth_domain::vm::VmSpec;
use berth_saga::AgentCall;

use super::fetch;
use crate::driver::Tools;
use crate::scheduler::images::Which;

/// Returns the images that the host of a call has to have.
pub(crate) fn needs(call: &Call) -> Vec<ImageFile> {
    let spec: &VmSpec = match call {
        Call::SpawnVm { spec, .. }
        | Call::StartVm { spec, .. }
        | Call::CheckCanLiveMigrateDestination { spec, .. }
        | Call::MakeDisks { spec, .. } => spec,
        Call::FetchDisks(fetch) => &fetch.spec,
        Call::DestroyVm
        | Call::GetDomain
        | Call::CheckCanLiveMigrateSource { .. }
        | Call::FitLiveMigration { .. }
        | Call::PreLiveMigration { .. }
        | Call::LiveMigration { .. }
        | Call::RollbackLiveMigrationAtDestination { .. }
        | Call::PostLiveMigrationAtSource { .. }
        | Call::StopVm { .. }
        | Call::SettleVm
        | Call::AbortLiveMigration { .. }
        | Call::ForceCompleteLiveMigration { .. }
        | Call::CopyDisk { .. }
        | Call::PublishImage { .. }
        | Call::DropImage { .. }
        | Call::DropDisks { .. } => return Vec::new(),
    };
    let mut files: Vec<ImageFile> = spec
        .image_files()
        .filter_map(|file| file.parse().ok())
        .collect();
    files.sort_unstable();
    files.dedup();
    files
}

/// Has the host of a call fetch the images that it needs and does not have.
///
/// # Errors
///
/// As a call of its agent; the call itself was not made.
pub(crate) async fn ensure(
    tools: &Tools,
    call: &AgentCall,
    images: &[ImageFile],
) -> Result<(), Failure> {
    for image in images {
        match fetch(tools, Which::File(image), &call.host, &call.address).await {
            Ok(_) => {}
            // Of a cluster that was restored from before it was added: the host may have it.
            Err(Failure::Refused(refusal)) if refusal.code == Code::NotFound => {}
            // It has the image since its guest ran there: no scheduler is needed to start it.
            Err(Failure::Unreachable { message }) if is_on_its_host(&call.call) => {
                tracing::warn!(%image, host = %call.host, message, "an image is not looked for");
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

/// Returns whether a call is about a guest that was on its host before.
fn is_on_its_host(call: &Call) -> bool {
    matches!(call, Call::StartVm { .. })
}
