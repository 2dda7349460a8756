//! The volumes of a VM: how they are looked up and shown.

use berth_domain::vm::VolumeAttachment;
use berth_proto::types::v1 as wire;
use berth_proto::volume::v1::GetVolumeRequest;
use berth_proto::volume::v1::volume_service_client::VolumeServiceClient;

use crate::read;
use crate::session::{Session, resource};
use crate::volume_argument::VolumeArgument;

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
    fn ids_differ_from_names() {
        assert!(is_id("db-00000000000000000000000000000002"));
        assert!(!is_id("db-2") && !is_id("pvc-0a") && !is_id("db"));
    }
}
