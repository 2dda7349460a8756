//! A volume prepared on the host, once for all its users there, and the reverse.

use std::path::Path;

use berth_domain::refusal::{Code, Refusal};
use berth_proto::convert::csi::{Access, FileSystem, Usage};
use berth_proto::csi::v1::{NodeStageVolumeResponse, NodeUnstageVolumeResponse};

use super::request::Stage;
use super::{no_volume, require_volume};
use crate::host::{Host, Local, Mount};

/// What is written down of a path where a volume is staged begins so.
const STAGED: &str = "staged";

/// Returns what is written down of a path where a file system is staged.
pub(super) fn staged(file_system: FileSystem, flags: &[String]) -> String {
    format!("{STAGED} {file_system} {}", flags.join(","))
}

/// Returns whether a volume is staged at a path, as far as is written down.
pub(super) fn is_staged(volume: &Local, path: &Path) -> bool {
    let how = volume.targets.get(&*path.to_string_lossy());
    how.is_some_and(|how| how.starts_with(STAGED))
}

pub(super) fn stage(host: &dyn Host, request: &Stage) -> Result<NodeStageVolumeResponse, Refusal> {
    let volume = require_volume(host, &request.volume)?;
    let Usage { access, .. } = request.usage.of(volume.is_kata)?;
    match access {
        // The device is there; there is nothing to be made ready.
        Access::Block => {}
        Access::Mount { file_system, flags } => {
            let how = staged(file_system, &flags);
            note(host, &volume, &request.path, &how)?;
            let mount = Mount {
                file_system,
                flags,
                readonly: false,
            };
            done_or_undone(host, &volume, &request.path, || {
                host.mount(&volume, &request.path, &mount)
            })?;
        }
    }
    Ok(NodeStageVolumeResponse {})
}

pub(super) fn unstage(
    host: &dyn Host,
    id: &str,
    path: &Path,
) -> Result<NodeUnstageVolumeResponse, Refusal> {
    let Some(volume) = host.known(id)? else {
        return Err(no_volume(id));
    };
    let shown = path.to_string_lossy();
    let how = volume.targets.get(&*shown);
    // What is not recorded may be there too: its record may have been lost. The folder is the
    // caller's.
    if how.is_none_or(|how| how.starts_with(STAGED)) {
        if how.is_none() {
            check_ours(host, &volume, path)?;
        }
        host.unmount(&volume, path)?;
    }
    if how.is_some_and(|how| how.starts_with(STAGED)) {
        host.note(&volume.id, &shown, None)?;
    }
    Ok(NodeUnstageVolumeResponse {})
}

/// Checks that a path without a record for this volume is no other's, and shows nothing else.
pub(super) fn check_ours(host: &dyn Host, volume: &Local, path: &Path) -> Result<(), Refusal> {
    let (id, shown) = (&volume.id, path.display());
    let code = Code::FailedPrecondition;
    if let Some(other) = host.owner(&path.to_string_lossy())? {
        let message = format!("{shown} is where volume {other} is used, not {id}");
        return Err(Refusal::new(code, "USED_BY_ANOTHER", message));
    }
    if host.is_mounted(path)? && !host.shows(volume, path)? {
        let message = format!("what is mounted at {shown} is not volume {id}");
        return Err(Refusal::new(code, "MOUNTED_BY_ANOTHER", message));
    }
    Ok(())
}

/// Writes down how a volume is used at a path; refused where it is used otherwise there already.
pub(super) fn note(host: &dyn Host, volume: &Local, path: &Path, how: &str) -> Result<(), Refusal> {
    let shown = path.to_string_lossy();
    match volume.targets.get(&*shown) {
        None => {
            check_ours(host, volume, path)?;
            host.note(&volume.id, &shown, Some(how))
        }
        Some(before) if before == how => Ok(()),
        // After a crash of the machine nothing is left of it.
        Some(_) if !host.is_mounted(path)? => host.note(&volume.id, &shown, Some(how)),
        Some(before) => {
            let message = format!(
                "volume {} is used at {shown} already, as {before:?}, not as {how:?}",
                volume.id
            );
            Err(Refusal::new(Code::AlreadyExists, "USED_OTHERWISE", message))
        }
    }
}

/// Does what was written down; where that fails and nothing is mounted, it is written down no more.
pub(super) fn done_or_undone(
    host: &dyn Host,
    volume: &Local,
    path: &Path,
    work: impl FnOnce() -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let done = work();
    if done.is_err() && matches!(host.is_mounted(path), Ok(false)) {
        let shown = path.to_string_lossy();
        if let Err(error) = host.note(&volume.id, &shown, None) {
            tracing::warn!(volume = %volume.id, path = %shown, %error, "volume stays recorded as used");
        }
    }
    done
}
