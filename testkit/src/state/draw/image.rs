//! Images, drawn: added, completed, copied and removed.

use berth_domain::id::ImageUid;
use berth_domain::image::{Image, ImageContent, ImageProperties, Sha256};
use berth_domain::name::ImageName;
use berth_domain::ownership::Ownership;
use berth_domain::vm::DiskFormat;
use berth_state::command::Command;

use super::super::{host_name, uuid};
use super::{HOSTS, TimeMs, of};

const NAMES: [&str; 3] = ["debian", "golden", "kernel"];

fn name(pick: u8) -> ImageName {
    ImageName::new(of(&NAMES, pick)).unwrap()
}

/// Returns one of a few images of one of a few names.
fn image(pick: [u8; 4]) -> Image {
    Image {
        name: name(pick[0]),
        uid: ImageUid(uuid(30, u64::from(pick[0] % 3 * 2 + pick[1] % 2))),
        format: match pick[1].is_multiple_of(2) {
            true => DiskFormat::Qcow2,
            false => DiskFormat::Raw,
        },
        properties: ImageProperties([("hw_rng".to_owned(), format!("{}", pick[2] % 2))].into()),
        content: None,
        copies: [].into(),
        ownership: Ownership::default(),
        created_at: TimeMs::default(),
    }
}

fn content(pick: u8) -> ImageContent {
    ImageContent {
        length_bytes: 4096,
        virtual_bytes: 1 << 20,
        sha256: Sha256([pick % 2; 32]),
    }
}

/// Draws a command about images.
pub(super) fn command(pick: [u8; 4]) -> Command {
    let Image { name, uid, .. } = image(pick);
    let host = host_name(of(&HOSTS, pick[2]));
    match pick[3] % 8 {
        0..=2 => Command::CreateImage(image(pick)),
        3 | 4 => Command::CompleteImage {
            image: name,
            uid,
            content: content(pick[2] / 64),
            host,
        },
        5 | 6 => Command::SetImageCopy {
            image: name,
            uid,
            host,
            present: !pick[2].is_multiple_of(3),
        },
        _ => Command::DeleteImage {
            image: name,
            uid: pick[2].is_multiple_of(2).then_some(uid),
        },
    }
}
