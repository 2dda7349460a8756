//! The table of what came with which cluster version, held complete, and what is made of it.

use berth_domain::version::ServiceVersion;
use berth_proto::format::{Fault, Fitted, Format, Stored, replicated};
use berth_proto::host::v1::HostReport;
use berth_proto::state::v1::envelope::Command;
use berth_proto::state::v1::{Envelope, RegisterHost};
use berth_proto::types::v1::{HostCell, HostTopology, PciDevice, PciKind};
use berth_proto::volume::v1::{DeviceMode, Extent, Region};
use prost::Message as _;

/// Goal: a command, a field or a named value without a line in the table fails here, with the line
/// that is missing. Method: everything that can be reached from commands and rows.
#[test]
fn everything_that_is_stored_stands_in_the_table() {
    let problems = replicated().problems();
    assert!(
        problems.is_empty(),
        "proto/replicated_format.txt does not agree with the messages:\n{}",
        problems.join("\n")
    );
}

/// Goal: bytes need what the newest part of them needs, be it a command, a field deep inside, a
/// named value or a key of a map, and say which. Method: a table in which these came later.
#[test]
fn the_newest_part_is_found_and_named() {
    let old = report();
    let needs = |change: &str, bytes: &[u8]| {
        let newest = table(change).newest(Stored::Command, bytes);
        let newest = newest.expect("well-formed bytes");
        (newest.version.0, newest.what)
    };
    let bytes = command(old.clone());
    assert_eq!(needs("", &bytes), (1, String::new()));
    for (change, what) in [
        (
            "2 berth.state.v1.Envelope register_host",
            "berth.state.v1.Envelope.register_host",
        ),
        (
            "3 berth.host.v1.HostReport driver",
            "berth.host.v1.HostReport.driver",
        ),
        (
            "2 berth.type.v1.HostCell socket",
            "berth.type.v1.HostCell.socket",
        ),
        (
            "3 berth.type.v1.PciKind PCI_KIND_VIRTUAL",
            "berth.type.v1.PciKind.PCI_KIND_VIRTUAL",
        ),
    ] {
        let version = change[..1].parse().expect("a digit");
        assert_eq!(
            needs(change, &bytes),
            (version, what.to_owned()),
            "{change}"
        );
    }
    // What has its default value does not lie in the bytes, and an older program reads it so.
    assert_eq!(needs("3 berth.host.v1.HostReport storage_id", &bytes).0, 1);
}

/// Goal: what may be left out is left out, alone and without a trace; what may not be is told.
#[test]
fn only_what_may_be_left_out_is() {
    let bytes = command(report());
    let starred = "3* berth.host.v1.HostReport driver disk_gib";
    let fit = |change: &str, version| {
        let fitted = table(change).fit(Stored::Command, &bytes, ServiceVersion(version));
        fitted.expect("well-formed bytes")
    };
    assert_eq!(fit(starred, 3), Fitted::AsTheyAre);
    let Fitted::Shortened(shorter) = fit(starred, 2) else {
        panic!("{:?}", fit(starred, 2));
    };
    let read = Envelope::decode(shorter).expect("a command");
    let without = HostReport {
        driver: String::new(),
        disk_gib: 0,
        ..report()
    };
    assert_eq!(read.encode_to_vec(), command(without));
    let both = format!("{starred}\n2 berth.type.v1.HostCell socket");
    assert!(matches!(fit(&both, 2), Fitted::Shortened(_)));
    let Fitted::TooNew(newest) = fit(&both, 1) else {
        panic!("the socket may not be left out");
    };
    assert_eq!(newest.what, "berth.type.v1.HostCell.socket");
}

/// Goal: an agent whose host has regions for volumes registers before the upgrade is finalized, without
/// them.
#[test]
fn regions_are_left_out_of_an_older_cluster() {
    let region = Region {
        name: "region0".to_owned(),
        mode: DeviceMode::Direct.into(),
        capacity_bytes: 1 << 30,
        align_bytes: 1 << 30,
        foreign: vec![Extent::default()],
        ..Region::default()
    };
    let with = HostReport {
        regions: vec![region],
        ..report()
    };
    let fitted = replicated().fit(Stored::Command, &command(with), ServiceVersion(2));
    let Fitted::Shortened(shorter) = fitted.expect("well-formed bytes") else {
        panic!("they may be left out");
    };
    let read = Envelope::decode(shorter).expect("a command");
    assert_eq!(read.encode_to_vec(), command(report()));
}

/// Goal: what a newer program wrote is noticed, not skipped as protobuf would; damaged bytes too.
/// Method: unknown fields and values added by hand, and every way to cut the bytes.
#[test]
fn what_is_not_known_is_refused() {
    let format = replicated();
    let bytes = command(report());
    let field = [&bytes[..], &[0xfa, 0x3f, 0x01, 0x2a]].concat();
    let fault = format.newest(Stored::Command, &field).expect_err("unknown");
    assert_eq!(
        fault,
        Fault::Field {
            message: "berth.state.v1.Envelope".to_owned(),
            number: 1023,
        }
    );
    let mut strange = report();
    strange.topology.as_mut().expect("a topology").pci_devices[0].kind = 99;
    let fault = format.newest(Stored::Command, &command(strange));
    assert_eq!(
        fault.expect_err("unknown").to_string(),
        "berth.type.v1.PciKind has value 99, which this build does not know"
    );
    for end in 1..bytes.len() {
        // Cut between two fields of the envelope it is a message still.
        let _ = format.newest(Stored::Command, &bytes[..end]);
    }
    let deep = (0..200).fold(Vec::new(), |inner: Vec<u8>, _| {
        let batch = [&[0x0a], &length(inner.len())[..], &inner].concat();
        [&[0x9a, 0x03], &length(batch.len())[..], &batch].concat()
    });
    assert!(format.newest(Stored::Command, &deep).is_err());
}

/// Goal: faults of the table itself are told with their line.
#[test]
fn a_wrong_table_is_told() {
    let format = Format::new("x berth.a b\n1\n9 berth.a b\n1 berth.a c\n1 berth.a c\n");
    let told = format.problems().join("\n");
    for part in [
        "line 1 does not begin",
        "line 2 does not begin",
        "line 3 names version 9",
        "line 5 names c of berth.a once more",
        "gone: b of berth.a",
        "add: 4 berth.state.v1.Envelope at_ms principal",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

/// Returns the table in which everything was there from the beginning, but what these lines say.
fn table(lines: &str) -> Format {
    let real = include_str!("../../replicated_format.txt");
    let moved = |owner: &str, item: &str| {
        lines.lines().any(|line| {
            let mut words = line.split(' ').skip(1);
            words.next() == Some(owner) && words.any(|word| word == item)
        })
    };
    let mut text = String::new();
    for line in real
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
    {
        let mut words = line.split(' ').skip(1);
        let owner = words.next().expect("a name");
        let kept: Vec<_> = words.filter(|item| !moved(owner, item)).collect();
        text += &format!("1 {owner} {}\n", kept.join(" "));
    }
    let format = Format::new(&format!("{text}{lines}\n"));
    assert!(format.problems().is_empty(), "{:?}", format.problems());
    format
}

fn report() -> HostReport {
    let cell = HostCell {
        id: 1,
        socket: Some(1),
        ..HostCell::default()
    };
    let device = PciDevice {
        kind: PciKind::Virtual.into(),
        ..PciDevice::default()
    };
    HostReport {
        driver: "sim".to_owned(),
        disk_gib: 7,
        topology: Some(HostTopology {
            cells: vec![cell],
            pci_devices: vec![device],
            ..HostTopology::default()
        }),
        ..HostReport::default()
    }
}

fn command(report: HostReport) -> Vec<u8> {
    let register = RegisterHost {
        host: "hosts/h1".to_owned(),
        report: Some(report),
        ..RegisterHost::default()
    };
    let envelope = Envelope {
        at_ms: 5,
        command: Some(Command::RegisterHost(register)),
        ..Envelope::default()
    };
    envelope.encode_to_vec()
}

fn length(bytes: usize) -> Vec<u8> {
    let mut text = Vec::new();
    prost::encoding::encode_varint(bytes as u64, &mut text);
    text
}
