//! Listings: those that real programs printed, and those that nobody should print.
//!
//! The files under `testdata` were printed by ndctl 76.1 in a guest with two NVDIMMs: `single.json`
//! by `create-namespace`, which is the form of older versions for a lone namespace; `plain.json` by
//! `list -N`; `in-regions.json` by `list -NRDFvi`; `people.json` by `list -NRDFui`, with sizes
//! written for people; `raw-in-regions.json` before namespaces were made; `asked.json` by what this
//! crate asks.

use std::collections::BTreeMap;
use std::path::Path;

use berth_pmem::Configured;
use berth_pmem::discovery::{Discovery, PathKind, compare};
use berth_pmem::ndctl::{Entry, Error, Mode, Namespace, read};

fn testdata(name: &str) -> Vec<u8> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    std::fs::read(directory.join(name)).unwrap()
}

fn by_dev(output: &[u8]) -> BTreeMap<String, Namespace> {
    let namespace = |entry| match entry {
        Entry::Read(namespace) => namespace,
        Entry::Odd { .. } => panic!("{entry:?}"),
    };
    let entries = read(output).unwrap().into_iter().map(namespace);
    entries.map(|n| (n.dev.clone(), n)).collect()
}

fn first() -> Namespace {
    Namespace {
        dev: "namespace0.0".into(),
        name: Some("ns0".into()),
        uuid: Some("d116688c-e9dd-41d3-8414-a14758530137".into()),
        mode: Mode::Devdax,
        is_enabled: true,
        size_bytes: 130_023_424,
        align_bytes: Some(2 << 20),
        devices: vec!["dax0.0".into()],
        numa_node: Some(0),
        region: Some("region0".into()),
    }
}

#[test]
fn a_lone_namespace_is_one_object() {
    let found = by_dev(&testdata("single.json"));
    let mut expected = first();
    expected.numa_node = None;
    assert_eq!(found, BTreeMap::from([("namespace0.0".into(), expected)]));
}

#[test]
fn a_plain_list_lacks_nodes() {
    let found = by_dev(&testdata("plain.json"));
    let names: Vec<_> = found.values().map(|n| n.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["ns0", "ns1", "fs0"]);
    assert!(found.values().all(|n| n.numa_node.is_none()));
    assert_eq!(found["namespace0.1"].devices, ["dax0.1"]);
    assert_eq!(found["namespace1.0"].mode, Mode::Fsdax);
    assert_eq!(found["namespace1.0"].region.as_deref(), Some("region1"));
}

#[test]
fn namespaces_are_found_in_regions() {
    let found = by_dev(&testdata("in-regions.json"));
    assert_eq!(found["namespace0.0"], first());
    assert_eq!(found["namespace1.0"].numa_node, Some(2));
    assert_eq!(found["namespace1.0"].region.as_deref(), Some("region1"));
    let idle = &found["namespace0.2"];
    assert_eq!((idle.is_enabled, idle.size_bytes), (false, 0));
    assert_eq!((idle.mode.clone(), idle.name.clone()), (Mode::Raw, None));
    assert_eq!(found.len(), 5);
    assert_eq!(by_dev(&testdata("raw-in-regions.json")).len(), 2);
    // Inside of buses, as several of them are listed.
    let inner = String::from_utf8(testdata("in-regions.json")).unwrap();
    let buses = format!("[{{\"dev\":\"ndbus1\"}},{{\"dev\":\"ndbus0\",\"buses\":[{inner}]}}]");
    assert_eq!(by_dev(buses.as_bytes()), found);
}

#[test]
fn nothing_is_no_namespaces() {
    for output in ["", " \n", "[]", "[\n]\n", "{\"dev\":\"ndbus0\"}"] {
        assert_eq!(read(output.as_bytes()), Ok(Vec::new()), "{output:?}");
    }
}

#[test]
fn what_is_no_listing_is_told() {
    let whole = testdata("in-regions.json");
    let outputs: [&[u8]; 6] = [
        b"Segmentation fault\n",
        b"{\"dev\":",
        &whole[..whole.len() / 2],
        b"\xff\xfe\x00",
        b"[{}]]",
        "[".repeat(100_000).leak().as_bytes(),
    ];
    for output in outputs {
        let error = read(output).unwrap_err();
        assert!(matches!(error, Error::NotJson { .. }), "{error}");
        assert!(error.to_string().len() < 1000, "{error}");
    }
    for output in [
        "7",
        "null",
        "\"ns0\"",
        "{}",
        "[[1]]",
        "{\"namespaces\":5}",
        "{\"x\":[]}",
    ] {
        let error = read(output.as_bytes()).unwrap_err();
        assert!(matches!(error, Error::NotAList { .. }), "{output}: {error}");
    }
    let many = format!("[{}{{}}]", "{\"dev\":\"namespace0.0\"},".repeat(8193));
    assert_eq!(read(many.as_bytes()), Err(Error::TooMany));
}

/// Reads `ns0` with a property replaced by `value`, or taken away.
fn with(key: &str, value: Option<&str>) -> Entry {
    let text = String::from_utf8(testdata("single.json")).unwrap();
    let mut object: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&text).unwrap();
    object.remove(key);
    if let Some(value) = value {
        object.insert(key.to_owned(), serde_json::from_str(value).unwrap());
    }
    let text = serde_json::to_string(&object).unwrap();
    read(text.as_bytes()).unwrap().remove(0)
}

#[test]
fn an_odd_property_makes_an_odd_namespace() {
    for (key, value, expected) in [
        (
            "size",
            Some("\"124.00 MiB (130.02 MB)\""),
            "its size is the text \"124.00 MiB (130.02 MB)\", not a number of bytes: ndctl was called for human-readable output",
        ),
        ("size", Some("-1"), "its size is -1, not a number of bytes"),
        (
            "size",
            Some("1.5"),
            "its size is 1.5, not a number of bytes",
        ),
        (
            "size",
            Some("99999999999999999999999"),
            "its size is 1e+23, not a number of bytes",
        ),
        ("size", Some("[]"), "its size is [], not a number of bytes"),
        ("size", None, "it has no property size"),
        ("mode", None, "it has no property mode"),
        ("mode", Some("5"), "its mode is 5, not a text"),
        ("dev", None, "it has no property dev"),
        ("name", Some("{}"), "its name is {}, not a text"),
        ("numa_node", Some("-2"), "its numa_node is -2"),
        ("numa_node", Some("\"0\""), "its numa_node is \"0\""),
        (
            "numa_node",
            Some("4294967296"),
            "its numa_node is 4294967296",
        ),
        ("daxregion", Some("7"), "its daxregion is no object"),
        (
            "daxregion",
            Some("{\"devices\":{}}"),
            "its devices are no list",
        ),
        (
            "daxregion",
            Some("{\"devices\":[1]}"),
            "one of its devices is no object",
        ),
        (
            "daxregion",
            Some("{\"devices\":[{}]}"),
            "one of its devices has no chardev",
        ),
        (
            "daxregion",
            Some("{\"devices\":[{\"chardev\":\"dax0.0/../sda\"}]}"),
            "its character device is \"dax0.0/../sda\", not like dax0.0",
        ),
        (
            "chardev",
            Some("\"../sda\""),
            "its character device is \"../sda\", not like dax0.0",
        ),
    ] {
        match with(key, value) {
            Entry::Odd { why, name, .. } => {
                assert_eq!(why, expected);
                assert_eq!(name.is_none(), key == "name", "{key} {value:?}");
            }
            Entry::Read(namespace) => panic!("{key} {value:?}: {namespace:?}"),
        }
    }
}

#[test]
fn what_may_be_there_or_not_is_not_missed() {
    let changed = |key, value, change: fn(&mut Namespace)| {
        let mut expected = first();
        expected.numa_node = None;
        change(&mut expected);
        assert_eq!(with(key, value), Entry::Read(expected), "{key} {value:?}");
    };
    changed("new_in_99", Some("{\"a\":[1]}"), |_| {});
    changed("numa_node", Some("-1"), |_| {});
    changed("numa_node", Some("3"), |n| n.numa_node = Some(3));
    changed("name", Some("\"\""), |n| n.name = None);
    changed("uuid", None, |n| n.uuid = None);
    changed("state", Some("\"disabled\""), |n| n.is_enabled = false);
    // Aligned as the strictest says.
    changed("align", Some("1073741824"), |n| {
        n.align_bytes = Some(1 << 30)
    });
    changed("align", None, |_| {});
    changed("daxregion", None, |n| n.devices = Vec::new());
    changed("mode", Some("\"dax\""), |n| {
        n.mode = Mode::Other("dax".into())
    });
    let ram = "{\"devices\":[{\"chardev\":\"dax0.0\",\"size\":4096,\"mode\":\"system-ram\"}]}";
    changed("daxregion", Some(ram), |n| {
        n.mode = Mode::SystemRam;
        n.size_bytes = 4096;
    });
    let two = "{\"devices\":[{\"chardev\":\"dax0.0\"},{\"chardev\":\"dax0.1\"}]}";
    changed("daxregion", Some(two), |n| n.devices.push("dax0.1".into()));
}

#[test]
fn sizes_for_people_are_refused_with_their_namespace() {
    let entries = read(&testdata("people.json")).unwrap();
    assert_eq!(entries.len(), 2);
    assert!(
        entries
            .iter()
            .all(|entry| matches!(entry, Entry::Odd { .. }))
    );
}

proptest::proptest! {
    #[test]
    fn no_output_makes_it_fail(cut in 0_usize..3600, byte in 0_u8..=255) {
        let mut output = testdata("in-regions.json");
        let cut = cut % output.len();
        output[cut] = byte;
        let _ = read(&output);
    }
}

fn discover(option: &str, output: &str, look: &dyn Fn(&Path) -> PathKind) -> Discovery {
    let entries = read(output.as_bytes()).unwrap();
    compare(
        &Configured::parse(option).unwrap(),
        &entries,
        Path::new("/dev"),
        look,
    )
}

fn device(_: &Path) -> PathKind {
    PathKind::Device
}

#[test]
fn the_real_listing_is_what_guests_can_be_given() {
    let output = String::from_utf8(testdata("in-regions.json")).unwrap();
    let discovery = discover("128m:ns0,SMALL:ns1", &output, &device);
    assert_eq!(discovery.refused, []);
    assert_eq!(discovery.check_start(), Ok(()));
    let record = discovery.record("ns0").unwrap();
    assert_eq!(record.class().as_str(), "CUSTOM_PMEM_NAMESPACE_128M");
    assert_eq!(record.size_bytes, 130_023_424);
    assert_eq!(record.path, Path::new("/dev/dax0.0"));
    assert_eq!(record.numa_node, Some(0));
    assert_eq!(record.region.as_deref(), Some("region0"));
    let record = discovery.record("ns1").unwrap();
    assert_eq!(
        (record.size_bytes, record.align_bytes),
        (65_011_712, 2 << 20)
    );
}

/// Returns a listing of `x`, with such properties.
fn listing(properties: &str) -> String {
    format!("{{\"dev\":\"namespace0.0\",\"name\":\"x\",\"mode\":\"devdax\",{properties}}}")
}

/// What a namespace that can be used has.
const GOOD: &str = "\"size\":4096,\"align\":4096,\"chardev\":\"dax0.0\"";

/// Holds that `x` is refused with these words, and whether that stops a start.
#[track_caller]
fn is_refused(output: &str, look: &dyn Fn(&Path) -> PathKind, stops: bool, expected: &str) {
    let discovery = discover("SMALL:x", output, look);
    assert_eq!(discovery.usable, [], "{output}");
    let said = discovery.refused[0].to_string();
    let told = said.strip_prefix("SMALL:x: ").unwrap();
    assert!(told.starts_with(expected), "{told}");
    let stopped = discovery.check_start().err().map(|error| error.to_string());
    assert_eq!(stopped, stops.then_some(said), "{output}");
}

#[test]
fn what_the_host_does_not_have_as_configured_stops_a_start() {
    let stops = |output: &str, expected: &str| is_refused(output, &device, true, expected);
    let absent = "this host has no namespace of that name (ndctl list -Ni)";
    stops("", absent);
    stops(&listing(GOOD).replace("\"x\"", "\"y\""), absent);
    let second = listing("\"size\":4096").replace("space0.0", "space1.0");
    stops(
        &format!("[{},{second}]", listing(GOOD)),
        "this host has 2 namespaces of that name (namespace0.0, namespace1.0); names must be unique",
    );
    for mode in ["fsdax", "raw", "sector", "memory"] {
        let expected = format!(
            "it is in mode {mode}; guests can use namespaces in mode devdax only (ndctl \
             create-namespace --mode=devdax)"
        );
        stops(&listing(GOOD).replace("devdax", mode), &expected);
    }
    let ram = "\"size\":4096,\"daxregion\":{\"devices\":[{\"chardev\":\"dax0.0\",\
               \"mode\":\"system-ram\"}]}";
    stops(&listing(ram), "it is in mode system-ram;");
    let nameless = listing(GOOD).replace("\"x\"", "\"\"");
    let discovery = discover("SMALL:namespace0.0", &nameless, &device);
    let said = discovery.check_start().unwrap_err().to_string();
    assert!(
        said.contains("what the kernel calls a namespace without a name"),
        "{said}"
    );
}

#[test]
fn what_may_pass_is_refused_and_leaves_the_start() {
    let leaves = |output: &str, expected: &str| is_refused(output, &device, false, expected);
    let off = listing(GOOD).replace("devdax", "raw");
    let off = off.replace("}", ",\"state\":\"disabled\"}");
    leaves(
        &off,
        "it is switched off; switch it on with ndctl enable-namespace",
    );
    let second = listing(GOOD).replace("\"x\"", "\"y\"");
    let shared = format!(
        "[{},{}]",
        listing(GOOD),
        second.replace("space0.0", "space1.0")
    );
    leaves(
        &shared,
        "ndctl list reports /dev/dax0.0 for another namespace too",
    );
    let two = "\"size\":4096,\"align\":4096,\"daxregion\":{\"devices\":\
               [{\"chardev\":\"dax0.0\"},{\"chardev\":\"dax0.1\"}]}";
    for (properties, expected) in [
        (
            "\"size\":\"4 KiB\"",
            "the output of ndctl list about it cannot be parsed: its size is the text",
        ),
        (
            "\"size\":0,\"align\":4096,\"chardev\":\"dax0.0\"",
            "its size is 0",
        ),
        (
            "\"size\":4096,\"chardev\":\"dax0.0\"",
            "ndctl list does not report its alignment",
        ),
        (
            "\"size\":4096,\"align\":0,\"chardev\":\"dax0.0\"",
            "ndctl list does not report its alignment",
        ),
        (
            "\"size\":4096,\"align\":8192,\"chardev\":\"dax0.0\"",
            "its size, 4096 bytes, is no multiple of its alignment, 8192 bytes",
        ),
        (
            "\"size\":6144,\"align\":4096,\"chardev\":\"dax0.0\"",
            "its size, 6144 bytes, is no multiple",
        ),
        (
            "\"size\":4096,\"align\":4096",
            "it has no character device; is the kernel module device_dax loaded?",
        ),
        (
            two,
            "it has 2 character devices, and a guest can use one (daxctl list)",
        ),
    ] {
        leaves(&listing(properties), expected);
    }
    let nothing = |_: &Path| PathKind::Nothing;
    let gone = "its character device /dev/dax0.0 is missing";
    is_refused(&listing(GOOD), &nothing, false, gone);
    let other = |_: &Path| PathKind::Other;
    is_refused(
        &listing(GOOD),
        &other,
        false,
        "/dev/dax0.0 is not a character device",
    );
}

#[test]
fn what_is_asked_has_nodes_and_devices() {
    let output = String::from_utf8(testdata("asked.json")).unwrap();
    let discovery = discover("A:ns0|ns1|ns2", &output, &device);
    let found: Vec<_> = discovery
        .usable
        .iter()
        .map(|r| (r.name.as_str(), r.path.to_str().unwrap(), r.numa_node))
        .collect();
    // The kernel counted the regions as it found them.
    let expected = [
        ("ns0", "/dev/dax1.0", Some(0)),
        ("ns1", "/dev/dax1.1", Some(0)),
        ("ns2", "/dev/dax0.0", Some(2)),
    ];
    assert_eq!(found, expected);
}

#[test]
fn one_that_cannot_be_used_leaves_the_others() {
    let output = String::from_utf8(testdata("in-regions.json")).unwrap();
    let look = |path: &Path| match path.ends_with("dax0.0") {
        true => PathKind::Nothing,
        false => PathKind::Device,
    };
    let discovery = discover("A:ns0|ns1,B:fs0|gone", &output, &look);
    let usable: Vec<&str> = discovery.usable.iter().map(|r| r.name.as_str()).collect();
    let refused: Vec<&str> = discovery.refused.iter().map(|r| r.name.as_str()).collect();
    assert_eq!((usable, refused), (vec!["ns1"], vec!["fs0", "gone", "ns0"]));
    let said = discovery.check_start().unwrap_err().to_string();
    assert!(said.starts_with("B:fs0: it is in mode fsdax;"), "{said}");
    assert!(said.ends_with("; B:gone: this host has no namespace of that name (ndctl list -Ni)"));
}
