//! Requests, read and doubted.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use berth_proto::convert::Invalid;
use berth_proto::convert::csi::{Origin, Parameters, Usage, capability, parameters};
use berth_proto::csi::v1::{NodePublishVolumeRequest, NodeStageVolumeRequest, VolumeCapability};
use berth_proto::volume::v1::VolumeKind;

use crate::host::Local;

/// The longest id that is looked up.
const ID_LENGTH_MAX: usize = 256;
/// The longest path, as the kernel takes it.
const PATH_LENGTH_MAX: usize = 4095;

/// A volume that is to be staged.
pub(super) struct Stage {
    pub(super) volume: String,
    pub(super) path: PathBuf,
    pub(super) usage: RequestedUsage,
}

/// A volume that is to be published.
pub(super) struct Publish {
    pub(super) volume: String,
    /// Where it is staged; absent for one that is made for a pod.
    pub(super) staging: Option<PathBuf>,
    pub(super) target: PathBuf,
    pub(super) readonly: bool,
    pub(super) usage: RequestedUsage,
    pub(super) context: BTreeMap<String, String>,
}

/// How it is to be used; what is possible depends on the volume.
pub(super) struct RequestedUsage {
    capability: VolumeCapability,
    is_cache: bool,
}

impl RequestedUsage {
    fn read(
        capability: Option<VolumeCapability>,
        context: &BTreeMap<String, String>,
    ) -> Result<Self, Invalid> {
        let capability =
            capability.ok_or_else(|| Invalid::new("volume_capability", "is required"))?;
        let model = context.get("persistencyModel").map(String::as_str);
        let usage = Self {
            capability,
            is_cache: model == Some("cache"),
        };
        // What no volume can be is wrong also of one that is not there.
        usage.of(false)?;
        Ok(usage)
    }

    /// Returns how a volume is to be used.
    pub(super) fn of(&self, is_kata: bool) -> Result<Usage, Invalid> {
        let volume = capability::Volume {
            is_cache: self.is_cache,
            is_kata,
        };
        let read = capability::usage(self.capability.clone(), volume);
        read.map_err(|e| e.within("volume_capability"))
    }
}

impl Stage {
    pub(super) fn read(request: NodeStageVolumeRequest) -> Result<Self, Invalid> {
        let volume = volume_id(request.volume_id)?;
        let path = path(request.staging_target_path, "staging_target_path")?;
        let usage = RequestedUsage::read(request.volume_capability, &request.volume_context)?;
        Parameters::read(Origin::Context, request.volume_context)?;
        Ok(Self {
            volume,
            path,
            usage,
        })
    }
}

impl Publish {
    pub(super) fn read(request: NodePublishVolumeRequest) -> Result<Self, Invalid> {
        let volume = volume_id(request.volume_id)?;
        let target = path(request.target_path, "target_path")?;
        let usage = RequestedUsage::read(request.volume_capability, &request.volume_context)?;
        let staging = match request.staging_target_path {
            staging if staging.is_empty() => None,
            staging => Some(path(staging, "staging_target_path")?),
        };
        Ok(Self {
            volume,
            staging,
            target,
            readonly: request.readonly,
            usage,
            context: request.volume_context,
        })
    }

    /// Returns the parameters of a volume for a pod, if this requests one. Where that is not stated, an
    /// existing volume decides; and one that is missing, was neither provisioned nor staged, and has a
    /// size, is meant to be one.
    pub(super) fn ephemeral(&self, there: Option<&Local>) -> Result<Option<Parameters>, Invalid> {
        let stated = parameters::requested_ephemeral(&self.context);
        let guessed = || match there {
            Some(volume) => volume.is_ephemeral,
            None => {
                self.staging.is_none()
                    && !parameters::is_provisioned(&self.context)
                    && self.context.contains_key("size")
            }
        };
        let origin = match stated.unwrap_or_else(guessed) {
            true => Origin::Pod,
            false => Origin::Context,
        };
        let read = Parameters::read(origin, self.context.clone())?;
        Ok((read.kind == VolumeKind::Ephemeral).then_some(read))
    }
}

/// Reads the id of a volume.
pub(super) fn volume_id(id: String) -> Result<String, Invalid> {
    let id = required(id, "volume_id")?;
    let is_path = id.starts_with('/') || id.split('/').any(|part| part == "..");
    if id.len() > ID_LENGTH_MAX || id.contains(char::is_control) || is_path {
        let rule = format!(
            "must have at most {ID_LENGTH_MAX} bytes, without control characters, and must not be a \
             path that is absolute or goes up"
        );
        return Err(Invalid::new("volume_id", rule));
    }
    Ok(id)
}

/// Reads a path at which something is mounted or unmounted.
pub(super) fn path(path: String, field: &str) -> Result<PathBuf, Invalid> {
    let path = known_path(path, field)?;
    match Path::new(&path).is_absolute() {
        true => Ok(path.into()),
        false => Err(Invalid::new(field, "must be an absolute path")),
    }
}

/// Reads a path that is only looked up among those of a volume.
pub(super) fn known_path(path: String, field: &str) -> Result<String, Invalid> {
    let path = required(path, field)?;
    let mut parts = Path::new(&path).components();
    let goes_up = parts.any(|part| part == Component::ParentDir);
    if goes_up || path.len() > PATH_LENGTH_MAX || path.contains(char::is_control) {
        let rule = format!(
            "must be a path of at most {PATH_LENGTH_MAX} bytes, without control characters and .."
        );
        return Err(Invalid::new(field, rule));
    }
    Ok(path)
}

/// Reads a text that must be there.
pub(super) fn required(text: String, field: &str) -> Result<String, Invalid> {
    match text.is_empty() {
        true => Err(Invalid::new(field, "is required")),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no path leaves the folder that it is below, and no id is taken for a path.
    #[test]
    fn paths_and_ids_go_nowhere_else() {
        for good in ["/var/lib/kubelet/pods/a/mount", "/a", "/a/..b/c.."] {
            assert!(path(good.to_owned(), "target_path").is_ok(), "{good}");
        }
        for bad in ["", "a/b", "/a/../b", "/..", "/a/..", "/a\0b", "/a\nb"] {
            assert!(path(bad.to_owned(), "target_path").is_err(), "{bad:?}");
        }
        assert!(known_path("some/path".to_owned(), "volume_path").is_ok());
        for bad in ["", "../a", "/a/../b", "a\0"] {
            assert!(
                known_path(bad.to_owned(), "volume_path").is_err(),
                "{bad:?}"
            );
        }
        for good in ["csi-0123", "a..b", "pvc/1"] {
            assert!(volume_id(good.to_owned()).is_ok(), "{good}");
        }
        for bad in ["", "/etc", "..", "../a", "a/../../b", "a\0b"] {
            assert!(volume_id(bad.to_owned()).is_err(), "{bad:?}");
        }
    }
}
