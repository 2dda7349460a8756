//! The volumes of a VM: how they are typed, found and shown.

use berth_domain::vm::{AttachedAs, VolumeAttachment};
use berth_proto::types::v1 as wire;
use berth_proto::volume::v1::GetVolumeRequest;
use berth_proto::volume::v1::volume_service_client::VolumeServiceClient;

use crate::ask;
use crate::session::{Session, resource};

/// Reads a volume and what the guest is to see of it: a disk, unless that is said.
///
/// # Errors
///
/// When no volume is named.
pub fn attachment(text: &str) -> Result<(String, AttachedAs), String> {
    let said = AttachedAs::ALL.into_iter().find_map(|what| {
        let volume = text.strip_suffix(&what.to_string())?.strip_suffix(':')?;
        Some((volume, what))
    });
    // A name may hold a colon itself.
    let (volume, what) = said.unwrap_or((text, AttachedAs::Disk));
    match volume {
        "" => Err("expected the name or the id of a volume".to_owned()),
        volume => Ok((volume.to_owned(), what)),
    }
}

/// Returns the volumes as a VM is asked for with them.
///
/// # Errors
///
/// When there is no such volume.
pub(super) async fn find(
    session: &Session,
    wanted: &[(String, AttachedAs)],
) -> anyhow::Result<Vec<wire::VolumeAttachment>> {
    let mut found = Vec::new();
    for (volume, attached_as) in wanted {
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
        let answer = ask!(session, VolumeServiceClient, get_volume, request)?;
        found.push(wire::VolumeAttachment {
            volume: answer.volume.unwrap_or_default().name,
            attached_as: wire::volume_attachment::As::from(*attached_as).into(),
        });
    }
    Ok(found)
}

/// Returns whether a text is the id of a volume rather than its name.
fn is_id(text: &str) -> bool {
    let number = text.rsplit_once('-').map(|(_, number)| number);
    let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    number.is_some_and(|number| number.len() == 32 && number.chars().all(is_digit))
}

/// Returns a volume of a VM as one line.
pub(super) fn line(attachment: &VolumeAttachment) -> String {
    format!("{} as {}", attachment.volume, attachment.attached_as)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_a_colon() {
        let read = |text| attachment(text).map(|(name, what)| (name, what.to_string()));
        let good = |name: &str, what: &str| Ok((name.to_owned(), what.to_owned()));
        assert_eq!(read("data"), good("data", "disk"));
        assert_eq!(read("data:nvdimm"), good("data", "nvdimm"));
        assert_eq!(read("a:b:disk"), good("a:b", "disk"));
        assert_eq!(read("a:b"), good("a:b", "disk"));
        assert!(read("").is_err() && read(":nvdimm").is_err());
    }

    #[test]
    fn ids_are_told_from_names() {
        assert!(is_id("db-00000000000000000000000000000002"));
        assert!(!is_id("db-2") && !is_id("pvc-0a") && !is_id("db"));
    }
}
