//! Goal: no image passes that makes QEMU open another file than its declared base, or that is not what it is
//! declared to be; no bytes make the parser fail.
//!
//! Method: a table of attacks, of which each is refused in every declaration; what is sound passes; random
//! bytes and mutations of both, against a second reading of the header that shares no code with the first.

use std::ffi::CString;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::conformance::images::{DISK_BYTES, attacks, over, sound};

const SECRET: &str = "/etc/shadow";
const BASE: &str = "/var/lib/berth/images/base";

fn base() -> Base<'static> {
    Base::File(Path::new(BASE), DiskFormat::Raw)
}

fn qcow2(base: Base<'static>) -> Declared<'static> {
    Declared {
        format: DiskFormat::Qcow2,
        base,
        size: Size::AtMost(DISK_BYTES),
        source: Source::User,
    }
}

fn raw(source: Source) -> Declared<'static> {
    Declared {
        format: DiskFormat::Raw,
        base: Base::None,
        size: Size::Any,
        source,
    }
}

fn checked(bytes: &[u8], declared: &Declared<'_>) -> Result<(), Fault> {
    check(bytes, bytes.len() as u64, declared).map(|_| ())
}

/// Whatever Berth declares, no attack is opened as qcow2; and Berth's own raw image is never anything else.
#[test]
fn every_attack_is_refused() {
    let all = attacks(Path::new(SECRET), Path::new(BASE));
    assert!(all.len() >= 40, "{}", all.len());
    for attack in &all {
        for source in [Source::User, Source::Berth] {
            for base in [Base::None, base()] {
                let declared = Declared {
                    source,
                    ..qcow2(base)
                };
                let fault = checked(&attack.bytes, &declared).expect_err(attack.name);
                assert!(!fault.to_string().contains('\n'), "{fault}");
                assert!(!fault.hint().is_empty());
            }
        }
        checked(&attack.bytes, &raw(Source::Berth)).expect(attack.name);
    }
    // What is to have its base replaced may name any, and nothing else passes either.
    for attack in &all {
        let passes = checked(&attack.bytes, &qcow2(Base::Replaced)).is_ok();
        let is_name = attack.name.starts_with("backing") || attack.name.starts_with("base");
        assert!(is_name || !passes, "{}", attack.name);
    }
}

#[test]
fn what_is_sound_passes_as_what_it_is() {
    let based = || over(sound(), BASE.as_bytes(), Some("raw"));
    assert_eq!(checked(&sound(), &qcow2(Base::None)), Ok(()));
    assert_eq!(checked(&based(), &qcow2(base())), Ok(()));
    assert_eq!(checked(&based(), &qcow2(Base::Replaced)), Ok(()));
    assert!(checked(&based(), &qcow2(Base::None)).is_err());
    for no_base in [base(), Base::Replaced] {
        assert!(checked(&sound(), &qcow2(no_base)).is_err());
    }
    let other = Base::File(Path::new(BASE), DiskFormat::Qcow2);
    assert!(checked(&based(), &qcow2(other)).is_err(), "of raw bytes");
    let longer = Base::File(Path::new("/var/lib/berth/images/base2"), DiskFormat::Raw);
    assert!(checked(&based(), &qcow2(longer)).is_err());
    // Without a format QEMU would guess it.
    let guessed = over(sound(), BASE.as_bytes(), None);
    assert!(checked(&guessed, &qcow2(base())).is_err());
    // An encrypted disk of a guest is plain bytes to its host.
    let luks = b"LUKS\xba\xbe\0\x01".repeat(512);
    assert_eq!(checked(&luks, &raw(Source::User)), Ok(()));
    assert_eq!(checked(&[0; 512], &raw(Source::User)), Ok(()));
}

/// A file that is declared raw and begins as another format is a mistake, unless a guest wrote it.
#[test]
fn each_known_format_is_named_with_a_remedy() {
    let all = attacks(Path::new(SECRET), Path::new(BASE));
    for known in Known::ALL {
        if known == Known::Luks {
            continue;
        }
        let attack = all.iter().find(|a| recognize(&a.bytes) == Some(known));
        let bytes = &attack.unwrap_or_else(|| panic!("no {known:?}")).bytes;
        let fault = checked(bytes, &raw(Source::User)).expect_err("a mistake");
        let said = fault.to_string();
        assert!(said.contains("declared raw"), "{said}");
        assert!(said.contains(known.name()), "{said}");
        let hint = fault.hint();
        let is_right = match known == Known::Qcow2 {
            true => hint.contains(":qcow2"),
            false => hint.contains(&format!("qemu-img convert -O qcow2 -f {}", known.name())),
        };
        assert!(is_right, "{hint}");
    }
    let plain = checked(&[7; 512], &qcow2(Base::None)).expect_err("it is raw");
    assert_eq!(
        plain.to_string(),
        "it is declared qcow2, and it seems to be raw"
    );
    assert!(plain.hint().contains(":raw"));
}

#[test]
fn sizes_are_held_to_what_is_declared() {
    let sized = |size| Declared {
        size,
        ..qcow2(Base::None)
    };
    for (size, is_right) in [
        (Size::Exactly(DISK_BYTES), true),
        (Size::Exactly(DISK_BYTES + 1), false),
        (Size::Exactly(DISK_BYTES - 1), false),
        (Size::AtMost(DISK_BYTES), true),
        (Size::AtMost(DISK_BYTES - 1), false),
        (Size::Any, true),
    ] {
        assert_eq!(
            checked(&sound(), &sized(size)).is_ok(),
            is_right,
            "{size:?}"
        );
        let raw = Declared {
            size,
            ..raw(Source::User)
        };
        assert_eq!(check(&[], DISK_BYTES, &raw).is_ok(), is_right, "{size:?}");
    }
}

/// What is no file is not read: a pipe without a writer would block for ever.
#[test]
fn what_is_no_file_is_refused_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    let mode = rustix::fs::Mode::RUSR;
    let name = CString::new(pipe.as_os_str().as_bytes()).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &*name, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    for path in [pipe, "/dev/zero".into(), directory.path().into()] {
        let (sender, receiver) = mpsc::channel();
        let inspected = path.clone();
        std::thread::spawn(move || sender.send(inspect(&inspected, &raw(Source::Berth))));
        let refused = receiver.recv_timeout(Duration::from_secs(10));
        let refused = refused.expect("it does not wait").unwrap_err();
        assert!(refused.to_string().contains("no regular file"), "{refused}");
    }
    let absent = inspect(&directory.path().join("x"), &raw(Source::User)).unwrap_err();
    assert!(absent.to_string().ends_with("x is not there"), "{absent}");
}

#[test]
fn formats_are_recorded_and_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let (images, writer) = (directory.path(), Uuid::nil());
    assert_eq!(record::read(images, "golden.qcow2"), Ok(None));
    let longest = "x".repeat(255);
    for name in ["golden.qcow2", &longest] {
        for format in [DiskFormat::Raw, DiskFormat::Qcow2] {
            record::write(images, name, format, writer).unwrap();
            assert_eq!(record::read(images, name), Ok(Some(format)));
        }
    }
    let records = images.join(record::DIRECTORY);
    assert_eq!(std::fs::read_dir(&records).unwrap().count(), 2);
    std::fs::write(records.join("golden.qcow2"), "vmdk").unwrap();
    let fault = record::read(images, "golden.qcow2").unwrap_err();
    assert!(fault.to_string().contains("states no format"), "{fault}");
}

/// Reads a header as QEMU's `qcow2_open` does, without any of its checks: the name of its backing file, up to
/// a zero, and whether it has a data file.
fn as_qemu(bytes: &[u8]) -> (Option<Vec<u8>>, bool) {
    let field = |at: usize, length: usize| {
        (at..at + length).fold(0_u128, |value, at| {
            value << 8 | u128::from(bytes.get(at).copied().unwrap_or(0))
        })
    };
    let (offset, length) = (field(8, 8), field(16, 4));
    let name = (offset != 0).then(|| {
        let name = bytes.iter().skip(offset as usize).take(length as usize);
        name.take_while(|byte| **byte != 0).copied().collect()
    });
    let is_v3 = field(4, 4) == 3;
    let mut has_data_file = is_v3 && field(72, 8) & 0b100 != 0;
    let mut at = if is_v3 { field(100, 4) } else { 72 };
    let end = if offset == 0 {
        bytes.len() as u128
    } else {
        offset
    };
    while at + 8 <= end.min(bytes.len() as u128) {
        let (kind, length) = (field(at as usize, 4), field(at as usize + 4, 4));
        has_data_file |= kind == 0x4441_5441;
        if kind == 0 {
            break;
        }
        at += 8 + length.next_multiple_of(8);
    }
    (name, has_data_file)
}

fn assert_safe(bytes: &[u8]) {
    for declared in [qcow2(Base::None), qcow2(base()), qcow2(Base::Replaced)] {
        if checked(bytes, &declared).is_err() {
            continue;
        }
        let (name, has_data_file) = as_qemu(bytes);
        assert!(!has_data_file);
        match declared.base {
            Base::None => assert_eq!(name, None),
            Base::File(path, _) => assert_eq!(name.as_deref(), Some(path.as_os_str().as_bytes())),
            Base::Replaced => assert!(name.is_some()),
        }
    }
    assert_eq!(checked(bytes, &raw(Source::Berth)), Ok(()));
}

fn start() -> impl Strategy<Value = Vec<u8>> {
    let mut all: Vec<Vec<u8>> = attacks(Path::new(SECRET), Path::new(BASE))
        .into_iter()
        .map(|attack| attack.bytes)
        .collect();
    all.extend([sound(), over(sound(), BASE.as_bytes(), Some("raw"))]);
    prop::sample::select(all)
}

/// Where the fields and extensions are that decide; other positions are drawn too.
fn position() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 0..160_usize, 1 => 0x1000..0x1100_usize, 1 => any::<usize>()]
}

/// A value that is at the border of something, or any.
fn value() -> impl Strategy<Value = u8> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(4),
        Just(0x7f),
        Just(0xff),
        any::<u8>()
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn random_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        assert_safe(&bytes);
        assert_safe(&[b"QFI\xfb\0\0\0\x03", &bytes[..]].concat());
    }

    #[test]
    fn mutated_headers_are_safe(
        bytes in start(),
        changes in prop::collection::vec((position(), value()), 0..6),
        cut in prop::option::weighted(0.2, 0..5000_usize),
    ) {
        let mut bytes = bytes;
        if let Some(length) = cut {
            bytes.truncate(length);
        }
        let length = bytes.len().max(1);
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at % length) {
                *byte = value;
            }
        }
        assert_safe(&bytes);
    }

    #[test]
    fn every_field_is_read_as_qemu_reads_it(
        bytes in start(), at in 0..20_usize, field in any::<u64>(), shift in 0..64_u32,
    ) {
        let mut bytes = bytes;
        if let Some(place) = bytes.get_mut(at * 8..at * 8 + 8) {
            place.copy_from_slice(&(field >> shift).to_be_bytes());
        }
        assert_safe(&bytes);
    }
}
