//! The volumes of a VM: how they are parsed, looked up and shown.

use berth_domain::vm::{AttachedAs, VolumeAttachment};
use berth_proto::types::v1 as wire;
use berth_proto::volume::v1::GetVolumeRequest;
use berth_proto::volume::v1::volume_service_client::VolumeServiceClient;

use crate::read;
use crate::session::{Session, resource};

/// A volume as it is typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeArgument {
    volume: String,
    attached_as: AttachedAs,
    read_only: bool,
}

/// Parses a volume and how the guest sees it: as a writable disk by default.
///
/// # Errors
///
/// When no volume is named.
pub fn attachment(text: &str) -> Result<VolumeArgument, String> {
    let suffix = AttachedAs::ALL.into_iter().find_map(|what| {
        let (before, read_only) = match text.strip_suffix(":ro") {
            Some(before) if before.ends_with(&format!(":{what}")) => (before, true),
            Some(_) | None => (text, false),
        };
        let volume = before.strip_suffix(&what.to_string())?.strip_suffix(':')?;
        Some((volume, what, read_only))
    });
    // A name may hold a colon itself.
    let (volume, attached_as, read_only) = suffix.unwrap_or((text, AttachedAs::Disk, false));
    match volume {
        "" => Err("expected the name or the id of a volume".to_owned()),
        volume => Ok(VolumeArgument {
            volume: volume.to_owned(),
            attached_as,
            read_only,
        }),
    }
}

/// Looks the volumes of a VM up.
///
/// # Errors
///
/// When there is no such volume.
pub(super) async fn find(
    session: &Session,
    arguments: &[VolumeArgument],
) -> anyhow::Result<Vec<wire::VolumeAttachment>> {
    let mut attachments = Vec::new();
    for argument in arguments {
        let volume = &argument.volume;
        let request = match is_id(volume) {
            true => GetVolumeRequest {
                name: resource("volumes", volume),
                ..Default::default()
            },
            false => GetVolumeRequest {
                display_name: volume.clone(),
                ..Default::default()
            },
        };
        let response = read!(session, VolumeServiceClient, get_volume, request)?;
        attachments.push(wire::VolumeAttachment {
            volume: response.volume.unwrap_or_default().name,
            attached_as: wire::volume_attachment::As::from(argument.attached_as).into(),
            read_only: argument.read_only,
        });
    }
    Ok(attachments)
}

/// Returns whether a text is the id of a volume rather than its name.
fn is_id(text: &str) -> bool {
    let number = text.rsplit_once('-').map(|(_, number)| number);
    let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    number.is_some_and(|number| number.len() == 32 && number.chars().all(is_digit))
}

/// Returns a volume of a VM as one line.
pub(super) fn line(attachment: &VolumeAttachment) -> String {
    let VolumeAttachment {
        volume,
        attached_as,
        read_only,
    } = attachment;
    let how = if *read_only { ", read-only" } else { "" };
    format!("{volume} as {attached_as}{how}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_a_colon() {
        let check = |text, name: &str, what: &str, read_only| {
            let read = attachment(text).unwrap();
            let parsed = (
                &*read.volume,
                &*read.attached_as.to_string(),
                read.read_only,
            );
            assert_eq!(parsed, (name, what, read_only), "{text}");
        };
        check("data", "data", "disk", false);
        check("data:nvdimm", "data", "nvdimm", false);
        check("a:b:disk", "a:b", "disk", false);
        check("a:b", "a:b", "disk", false);
        check("data:disk:ro", "data", "disk", true);
        check("data:nvdimm:ro", "data", "nvdimm", true);
        check("data:ro", "data:ro", "disk", false);
        check("a:ro:disk", "a:ro", "disk", false);
        for text in ["", ":nvdimm", ":disk:ro"] {
            assert!(attachment(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn ids_differ_from_names() {
        assert!(is_id("db-00000000000000000000000000000002"));
        assert!(!is_id("db-2") && !is_id("pvc-0a") && !is_id("db"));
    }
}
