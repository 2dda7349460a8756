//! Arbitrary images.

use super::*;
use berth_domain::id::ImageUid;
use berth_domain::image::{IMAGE_BYTES_MAX, Image, ImageContent, Sha256};
use berth_domain::name::ImageName;

pub(crate) fn image() -> impl Strategy<Value = Image> {
    let bytes = || 0..=IMAGE_BYTES_MAX;
    let content =
        (bytes(), bytes(), any::<[u8; 32]>()).prop_map(|(length_bytes, virtual_bytes, sum)| {
            ImageContent {
                length_bytes,
                virtual_bytes,
                sha256: Sha256(sum),
            }
        });
    let format = select(vec![DiskFormat::Qcow2, DiskFormat::Raw]);
    let properties = btree_map(".{0,8}", ".{0,8}", 0..3).prop_map(ImageProperties);
    let copies = btree_set(NAME.prop_map(|name| HostName::new(&name).unwrap()), 0..4);
    let rest = (option::of(content), copies, ownership(), 0..1_u64 << 40);
    (NAME, any::<u128>(), format, properties, rest).prop_map(
        |(name, uid, format, properties, (content, copies, ownership, at))| Image {
            name: ImageName::new(&name).unwrap(),
            uid: ImageUid(Uuid::from_u128(uid)),
            format,
            properties,
            content,
            copies,
            ownership,
            created_at: TimeMs(at),
        },
    )
}
