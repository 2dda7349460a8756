//! Goal: a file counts as an image only where its bytes are those of the image, whatever happened to it, to
//! its checksum, or to the agent that wrote it; and what does not become an image leaves nothing.
//!
//! Method: every damage of the file with every damage of its checksum, and each way in which an image is not
//! what it has to be, on a real directory.

use berth_domain::id::ImageUid;
use tempfile::TempDir;

use super::*;

const BYTES: &[u8] = b"the bytes of a raw image";

fn store() -> (TempDir, ImageStore) {
    let directory = TempDir::new().unwrap();
    let host = HostName::new("h1").unwrap();
    let store = ImageStore::new(directory.path().to_owned(), host);
    (directory, store)
}

fn image() -> ImageFile {
    ImageFile::new("data".parse().unwrap(), ImageUid(Uuid::from_u128(7)))
}

fn expected(replaces: bool) -> Expected {
    Expected {
        format: DiskFormat::Raw,
        source: Source::User,
        length_bytes: None,
        sha256: None,
        replaces,
    }
}

fn write(store: &ImageStore, bytes: &[u8], expected: Expected) -> Result<ImageContent, Refusal> {
    let mut writer = store.begin(&image(), expected)?;
    writer.write(&ImagePart::Data(bytes.to_owned()))?;
    writer.finish()
}

fn has(store: &ImageStore, content: &ImageContent) -> bool {
    let stopping = CancellationToken::new();
    store.has(&image(), content, &stopping).unwrap()
}

/// What became of the file of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    None,
    Missing,
    Empty,
    Truncated,
    Longer,
    OtherBytes,
    Link,
}

impl Damage {
    const ALL: [Self; 7] = [
        Self::None,
        Self::Missing,
        Self::Empty,
        Self::Truncated,
        Self::Longer,
        Self::OtherBytes,
        Self::Link,
    ];

    fn make(self, path: &Path) {
        let mut bytes = BYTES.to_owned();
        match self {
            Self::None => return,
            Self::Missing => return fs::remove_file(path).unwrap(),
            Self::Empty => bytes.clear(),
            Self::Truncated => bytes.truncate(5),
            Self::Longer => bytes.push(0),
            Self::OtherBytes => bytes[3] ^= 1,
            Self::Link => {
                let aside = path.with_extension("aside");
                fs::rename(path, &aside).unwrap();
                return std::os::unix::fs::symlink(&aside, path).unwrap();
            }
        }
        fs::write(path, bytes).unwrap();
    }
}

/// What became of its checksum; nothing where it is missing, as after a crash, or beside a file that was
/// copied by hand.
const CHECKSUMS_SEEN: [Option<&str>; 4] = [
    None,
    Some(""),
    Some("no checksum"),
    Some("0000000000000000000000000000000000000000000000000000000000000000"),
];

#[test]
fn every_damage_of_every_file_is_found_and_mended() {
    for damage in Damage::ALL {
        for seen in CHECKSUMS_SEEN {
            let (_directory, store) = store();
            let content = write(&store, BYTES, expected(false)).unwrap();
            assert!(has(&store, &content));
            damage.make(&store.path(&image()));
            match seen {
                None => fs::remove_file(store.checksum_path(&image())).unwrap(),
                Some(text) => fs::write(store.checksum_path(&image()), text).unwrap(),
            }
            let is_whole = damage == Damage::None;
            assert_eq!(has(&store, &content), is_whole, "{damage:?} {seen:?}");
            let opened = store.open(&image(), &content, &CancellationToken::new());
            assert_eq!(opened.is_ok(), is_whole, "{damage:?} {seen:?}");
            // It is looked at once.
            let known = store.checksum(&image()) == Some(content.sha256);
            assert_eq!(known, is_whole, "{damage:?} {seen:?}");
            // What is fetched in its place is the image.
            assert_eq!(write(&store, BYTES, expected(true)).unwrap(), content);
            assert!(has(&store, &content), "{damage:?} {seen:?}");
            assert_eq!(fs::read(store.path(&image())).unwrap(), BYTES);
        }
    }
}

/// Goal: bytes that were changed under a checksum are found once they are read.
#[test]
fn a_file_that_was_changed_is_forgotten() {
    let (_directory, store) = store();
    let content = write(&store, BYTES, expected(false)).unwrap();
    Damage::OtherBytes.make(&store.path(&image()));
    store.forget(&image());
    assert!(!has(&store, &content));
    // One that reads well again, as after an error of the disk, is the image.
    fs::write(store.path(&image()), BYTES).unwrap();
    assert!(has(&store, &content));
}

#[test]
fn what_has_the_name_is_not_replaced_by_what_is_added() {
    let (_directory, store) = store();
    let content = write(&store, BYTES, expected(false)).unwrap();
    let refusal = write(&store, b"other bytes, of as much", expected(false)).unwrap_err();
    assert_eq!(refusal.reason, "IMAGE_EXISTS");
    assert!(has(&store, &content));
    assert_eq!(fs::read(store.path(&image())).unwrap(), BYTES);
    assert_eq!(store.checksum(&image()), Some(content.sha256));
}

#[test]
fn what_is_not_as_expected_leaves_nothing() {
    let base = expected(true);
    let qcow2 = DiskFormat::Qcow2;
    let length = BYTES.len() as u64;
    let cases: [(&[u8], Expected, &str); 6] = [
        (
            BYTES,
            Expected {
                sha256: Some(Sha256([7; 32])),
                ..base
            },
            "IMAGE_CHECKSUM",
        ),
        (
            BYTES,
            Expected {
                length_bytes: Some(length + 1),
                ..base
            },
            "IMAGE_CHECKSUM",
        ),
        (
            BYTES,
            Expected {
                length_bytes: Some(length - 1),
                ..base
            },
            "IMAGE_TOO_LARGE",
        ),
        (
            BYTES,
            Expected {
                format: qcow2,
                ..base
            },
            "IMAGE_REFUSED",
        ),
        (b"", base, "IMAGE_REFUSED"),
        (b"QFI\xfb\0\0\0\x03", base, "IMAGE_REFUSED"),
    ];
    for (bytes, expected, reason) in cases {
        let (directory, store) = store();
        let refusal = write(&store, bytes, expected).unwrap_err();
        assert_eq!(refusal.reason, reason, "{expected:?}");
        assert_eq!(names(directory.path()).unwrap(), [""; 0], "{expected:?}");
    }
    // So does one that is broken off.
    let (directory, store) = store();
    let mut writer = store.begin(&image(), base).unwrap();
    writer.write(&ImagePart::Zeros(5)).unwrap();
    assert_eq!(names(directory.path()).unwrap().len(), 1);
    drop(writer);
    assert_eq!(names(directory.path()).unwrap(), [""; 0]);
}

/// Goal: an agent that starts removes what it had not completed, and nothing else: other hosts may share the
/// directory.
#[test]
fn parts_of_this_host_are_removed() {
    let (directory, store) = store();
    let file = image();
    let writer = Uuid::from_u128(1);
    let own = [format!(".{file}.h1.{writer}.part")];
    let others = [
        format!(".{file}.h2.{writer}.part"),
        format!(".{file}.xh1.{writer}.part"),
        format!(".{file}.h1.part"),
        format!(".{file}.h1.{writer}"),
        format!("{file}.h1.{writer}.part"),
        format!(".debian.h1.{writer}.part"),
        file.to_string(),
        "debian.qcow2".to_owned(),
    ];
    for name in own.iter().chain(&others) {
        fs::write(directory.path().join(name), b"bytes").unwrap();
    }
    store.remove_parts().unwrap();
    let mut left = names(directory.path()).unwrap();
    left.sort();
    let mut others = others.to_vec();
    others.sort();
    assert_eq!(left, others);
}
