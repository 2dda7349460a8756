//! A volume shown at a path, and the reverse. One that is for a single pod is claimed and made
//! when it is published, and removed when it is unpublished.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use berth_domain::refusal::{Code, Refusal};
use berth_proto::convert::csi::{Access, Usage};
use berth_proto::csi::v1::{NodePublishVolumeResponse, NodeUnpublishVolumeResponse};

use super::request::Publish;
use super::stage::{check_ours, done_or_undone, is_staged, note};
use super::{blocking, no_volume};
use crate::host::{Host, Local, Mount};

/// What is written down of a path where a volume is published begins so.
const PUBLISHED: &str = "published";

pub(super) async fn publish(
    host: &Arc<dyn Host>,
    request: Publish,
) -> Result<NodePublishVolumeResponse, Refusal> {
    let id = request.volume.clone();
    let there = blocking(host, move |host| host.find(&id)).await?;
    let ephemeral = request.ephemeral(there.as_ref())?;
    let volume = match (there, &ephemeral) {
        (Some(volume), _) => volume,
        (None, Some(parameters)) => {
            request.usage.of(parameters.kata_containers)?;
            host.claim(&request.volume, parameters).await?
        }
        (None, None) => return Err(no_volume(&request.volume)),
    };
    if volume.is_ephemeral != ephemeral.is_some() {
        let (is, requested) = match volume.is_ephemeral {
            true => ("made for a pod", "one that is not"),
            false => ("not made for a pod", "one that is"),
        };
        let message = format!("volume {} is {is}, and {requested} is requested", volume.id);
        return Err(Refusal::new(Code::AlreadyExists, "USED_OTHERWISE", message));
    }
    blocking(host, move |host| show(host, &request, &volume)).await
}

/// Shows a volume that is there.
fn show(
    host: &dyn Host,
    request: &Publish,
    volume: &Local,
) -> Result<NodePublishVolumeResponse, Refusal> {
    let usage = request.usage.of(volume.is_kata)?;
    let readonly = request.readonly || usage.readonly;
    let target = &request.target;
    check_single(host, volume, &usage, target)?;
    match &usage.access {
        Access::Block => {
            note(host, volume, target, &published("block", &[], readonly))?;
            done_or_undone(host, volume, target, || {
                host.bind_device(volume, target, readonly)
            })?;
        }
        Access::Mount { file_system, flags } => {
            let staging = match &request.staging {
                _ if volume.is_ephemeral => None,
                Some(staging) => Some(check_staged(volume, staging)?),
                None => return Err(not_staged(volume, "staging_target_path is not set")),
            };
            let how = published(&file_system.to_string(), flags, readonly);
            note(host, volume, target, &how)?;
            let mount = Mount {
                file_system: *file_system,
                flags: flags.clone(),
                readonly,
            };
            done_or_undone(host, volume, target, || match staging {
                None => host.mount(volume, target, &mount),
                Some(staging) => {
                    // After a crash of the machine it is not mounted there any more.
                    let staged = Mount {
                        readonly: false,
                        ..mount
                    };
                    host.mount(volume, staging, &staged)?;
                    host.bind(volume, staging, target, readonly)
                }
            })?;
        }
    }
    Ok(NodePublishVolumeResponse {})
}

fn published(what: &str, flags: &[String], readonly: bool) -> String {
    let mode = if readonly { "ro" } else { "rw" };
    format!("{PUBLISHED} {what} {mode} {}", flags.join(","))
}

fn is_published(how: &str) -> bool {
    how.starts_with(PUBLISHED)
}

fn check_staged<'a>(volume: &Local, staging: &'a Path) -> Result<&'a Path, Refusal> {
    match is_staged(volume, staging) {
        true => Ok(staging),
        false => Err(not_staged(volume, &format!("not at {}", staging.display()))),
    }
}

fn not_staged(volume: &Local, why: &str) -> Refusal {
    let message = format!("volume {} is not staged: {why}", volume.id);
    Refusal::new(Code::FailedPrecondition, "NOT_STAGED", message)
}

/// Checks that no other path shows a volume that was requested for one path alone.
fn check_single(
    host: &dyn Host,
    volume: &Local,
    usage: &Usage,
    target: &Path,
) -> Result<(), Refusal> {
    if !usage.single {
        return Ok(());
    }
    let others = volume.targets.iter().filter(|(_, how)| is_published(how));
    for (other, _) in others {
        let other = Path::new(other);
        if other != target && host.is_mounted(other)? {
            let message = format!(
                "volume {} is published at {} already, and SINGLE_NODE_SINGLE_WRITER allows one \
                 path",
                volume.id,
                other.display()
            );
            let code = Code::FailedPrecondition;
            return Err(Refusal::new(code, "PUBLISHED_ELSEWHERE", message));
        }
    }
    Ok(())
}

pub(super) async fn unpublish(
    host: &Arc<dyn Host>,
    id: String,
    path: PathBuf,
) -> Result<NodeUnpublishVolumeResponse, Refusal> {
    let volume_id = id.clone();
    let there = blocking(host, move |host| hide(host, &volume_id, &path)).await?;
    // One that was claimed and not made yet is not on this host, but has to go too.
    if there.is_none_or(|volume| volume.is_ephemeral) {
        host.give_back(&id).await?;
    }
    Ok(NodeUnpublishVolumeResponse {})
}

/// Takes away what shows a volume at a path; returns the volume.
fn hide(host: &dyn Host, id: &str, path: &Path) -> Result<Option<Local>, Refusal> {
    let Some(volume) = host.known(id)? else {
        return match host.is_mounted(path)? {
            false => Ok(None),
            true => Err(no_volume(id)),
        };
    };
    let shown = path.to_string_lossy();
    let how = volume.targets.get(&*shown);
    if how.is_none_or(|how| is_published(how)) {
        // What is not recorded may be there too: its record may have been lost.
        if how.is_none() {
            check_ours(host, &volume, path)?;
        }
        host.unmount(&volume, path)?;
        host.remove(path)?;
    }
    if how.is_some_and(|how| is_published(how)) {
        host.note(&volume.id, &shown, None)?;
    }
    Ok(Some(volume))
}
