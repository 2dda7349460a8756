//! Filters on the messages of the API.
//!
//! Goal: a filter selects what it says, of every type of field, and anything that could fail is refused
//! before. Method: tables of each operator with each type; random expressions of which a second, naive
//! reading on the generated types has the result.

use std::collections::BTreeMap;

use berth_proto::filter::Filter;
use berth_proto::host::v1::{Host, HostReport, HostSummary};
use berth_proto::operation::v1::operation::{Kind, Outcome};
use berth_proto::operation::v1::{BootOperation, DrainHostOperation, Operation};
use berth_proto::policy::v1::{Aggregate, HostCpu};
use berth_proto::scheduler::v1::{Migration, Vm, migration, vm};
use berth_proto::types::v1::{
    Disk, Flavor, HostTopology, Refusal, TransferPolicy, VmSpec, VolumeAttachment, disk,
};
use berth_proto::volume::v1::{Volume, VolumeParameters};
use proptest::prelude::*;
use prost::{Message, Name};
use prost_types::Timestamp;

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
    entries.iter().map(owned).collect()
}

fn disk(image: Option<&str>, size_gib: u64, format: disk::Format) -> Disk {
    Disk {
        image: image.map(str::to_owned),
        format: format.into(),
        size_gib,
        seed: false,
    }
}

fn sample() -> Vm {
    Vm {
        name: "vms/web1".to_owned(),
        uid: "01234567-89ab-cdef-0123-456789abcdef".to_owned(),
        spec: Some(VmSpec {
            flavor: Some(Flavor {
                name: "flavors/small".to_owned(),
                vcpus: 4,
                memory_mib: 4096,
                extra_specs: map(&[("hw:cpu_policy", "dedicated")]),
                ..Flavor::default()
            }),
            disks: vec![
                disk(Some("debian.qcow2"), 4, disk::Format::Qcow2),
                disk(None, 0, disk::Format::Raw),
            ],
            volumes: vec![VolumeAttachment {
                volume: "volumes/v1".to_owned(),
                ..VolumeAttachment::default()
            }],
            ..VmSpec::default()
        }),
        state: vm::State::Error.into(),
        host: "hosts/h1".to_owned(),
        error: Some(Refusal {
            reason: "NO_VALID_HOST".to_owned(),
            causes: [("MEMORY".to_owned(), 3)].into(),
            ..Refusal::default()
        }),
        generation: u64::MAX,
        create_time: Some(Timestamp {
            seconds: 1_793_491_200,
            nanos: 500_000_000,
        }),
        restart_times: vec![
            Timestamp::default(),
            Timestamp {
                seconds: 9,
                nanos: 0,
            },
        ],
        labels: map(&[("env", "prod"), ("example.com/tier", ""), ("n", "a*b")]),
        description: "orders, primary".to_owned(),
        protected: true,
        ..Vm::default()
    }
}

fn check<M: Message + Name>(message: &M, table: &[(&str, bool)]) {
    for (text, is_met) in table {
        let filter = Filter::new::<M>(text).unwrap_or_else(|invalid| panic!("{text}: {invalid}"));
        assert_eq!(filter.matches(message), *is_met, "{text}");
        if !text.trim().is_empty() {
            let negated = Filter::new::<M>(&format!("NOT ({text})")).unwrap();
            assert_eq!(negated.matches(message), !is_met, "NOT ({text})");
        }
    }
}

#[test]
fn texts_and_names_are_compared() {
    check(
        &sample(),
        &[
            ("", true),
            ("  ", true),
            ("name = web1", true),
            ("name = vms/web1", true),
            ("name = web", false),
            ("name != web", true),
            ("name = web*", true),
            ("name = *1", true),
            ("name = *eb*", true),
            ("name != web*", false),
            ("name < web2", true),
            ("name >= web1", true),
            ("name > web1", false),
            ("name <= \"web1\"", true),
            ("host = h1", true),
            ("host = hosts/*", true),
            ("host = hosts/h2", false),
            ("host:*", true),
            ("host != \"\"", true),
            ("claim = \"\"", true),
            ("claim:*", false),
            ("claim != x", true),
            ("operation = \"\"", true),
            ("description = \"orders, primary\"", true),
            ("description = '*primary'", true),
            ("description = h1", false),
            ("spec.flavor.name = small", true),
            ("project = default", true),
            ("project != default", false),
            ("project = d*", true),
            ("project:*", false),
        ],
    );
}

#[test]
fn numbers_booleans_and_enums_are_compared() {
    check(
        &sample(),
        &[
            ("spec.flavor.vcpus = 4", true),
            ("spec.flavor.vcpus = \"4\"", true),
            ("spec.flavor.vcpus != 4", false),
            ("spec.flavor.vcpus < 4", false),
            ("spec.flavor.vcpus <= 4", true),
            ("spec.flavor.vcpus > 3", true),
            ("spec.flavor.vcpus >= 5", false),
            ("spec.flavor.vcpus > -1", true),
            ("spec.flavor.disk_gib = 0", true),
            ("spec.flavor.disk_gib:*", false),
            ("generation = 18446744073709551615", true),
            ("generation > 9223372036854775807", true),
            ("protected = true", true),
            ("protected != true", false),
            ("protected = false", false),
            ("state = ERROR", true),
            ("state = STATE_ERROR", true),
            ("state = Error", true),
            ("state = error", true),
            ("state != ACTIVE", true),
            ("state:*", true),
            ("guest_trouble.absence != SHUT_DOWN", false),
        ],
    );
    for state in [vm::State::Active, vm::State::Shelved] {
        let vm = Vm {
            state: state.into(),
            ..sample()
        };
        let full = state.as_str_name();
        let text = format!("state = {full} AND state = {}", &full[6..]);
        check(&vm, &[(&text, true)]);
    }
}

#[test]
fn times_are_compared() {
    check(
        &sample(),
        &[
            ("create_time > 2026-11-01T00:00:00Z", true),
            ("create_time = 2026-11-01T00:00:00.5Z", true),
            ("create_time = \"2026-11-01T01:00:00.500+01:00\"", true),
            ("create_time <= 2026-10-31T23:59:59-00:30", true),
            ("create_time < 2026-11-01T00:00:00.500000001Z", true),
            ("create_time != 2026-11-01T00:00:00Z", true),
            ("create_time:*", true),
            ("restarts_used_up_time > 1970-01-01T00:00:00Z", false),
            ("restarts_used_up_time != 1970-01-01T00:00:00Z", false),
            ("restarts_used_up_time:*", false),
            ("restart_times:1970-01-01T00:00:09Z", true),
            ("restart_times:1970-01-01T00:00:08Z", false),
        ],
    );
}

#[test]
fn maps_lists_and_messages_are_tested() {
    check(
        &sample(),
        &[
            ("labels:env", true),
            ("labels:e*", true),
            ("labels:team", false),
            ("labels:*", true),
            ("labels:\"example.com/tier\"", true),
            ("labels.\"example.com/tier\" = \"\"", true),
            ("labels.env = prod", true),
            ("labels.env:prod", true),
            ("labels.env:*", true),
            ("labels.\"example.com/tier\":*", true),
            ("labels.team:*", false),
            ("labels.env = p*", true),
            ("labels.env != prod", false),
            ("labels.env > a", true),
            ("labels.team = prod", false),
            ("labels.team != prod", false),
            ("labels.team = \"\"", false),
            ("labels.n = \"a\\*b\"", true),
            (
                "spec.flavor.extra_specs.\"hw:cpu_policy\" = dedicated",
                true,
            ),
            ("spec.disks:*", true),
            ("spec.nics:*", false),
            ("spec.disks.image:debian.qcow2", true),
            ("spec.disks.image:debian*", true),
            ("spec.disks.image:*", true),
            ("spec.disks.size_gib:0", true),
            ("spec.disks.size_gib:4", true),
            ("spec.disks.size_gib:5", false),
            ("spec.disks.format:RAW", true),
            ("spec.volumes.volume:v1", true),
            ("error:*", true),
            ("error.reason = NO_VALID_HOST", true),
            ("error.causes.MEMORY > 2", true),
            ("error.causes.MEMORY:3", true),
            ("error.causes.CPU < 1", false),
            ("guest_trouble:*", false),
            ("guest_trouble.claim = \"\"", false),
        ],
    );
}

#[test]
fn expressions_are_combined() {
    check(
        &sample(),
        &[
            ("state = ERROR AND host = h1", true),
            ("state = ERROR AND host = h2", false),
            ("state = ACTIVE OR host = h1", true),
            ("state = ACTIVE OR host = h2 OR protected = true", true),
            ("-state = ACTIVE", true),
            ("NOT state = ERROR AND host = h1", false),
            ("NOT (state = ACTIVE AND host = h1)", true),
            ("state = ACTIVE OR (host = h1 AND NOT claim:*)", true),
            ("NOT labels.team = prod", true),
        ],
    );
}

#[test]
fn other_lists_are_filtered() {
    let summary = HostSummary {
        host: Some(Host {
            name: "hosts/h1".to_owned(),
            cordoned: true,
            report: Some(HostReport {
                driver: "libvirt".to_owned(),
                traits: vec!["HW_CPU_X86_AVX2".to_owned(), "CUSTOM_A".to_owned()],
                topology: Some(HostTopology::default()),
                ..HostReport::default()
            }),
            ..Host::default()
        }),
        used: [("VCPU".to_owned(), 7), ("PCPU".to_owned(), 0)].into(),
        cpu: Some(HostCpu {
            ratio_milli: 4000,
            ..HostCpu::default()
        }),
        ..HostSummary::default()
    };
    check(
        &summary,
        &[
            ("host.name = h1 AND host.cordoned = true", true),
            ("host.report.traits:HW_CPU_X86_AVX2", true),
            ("host.report.traits:CUSTOM_*", true),
            ("host.report.traits:CUSTOM_B", false),
            ("host.report.traits:*", true),
            ("host.orphans:*", false),
            ("host.report.topology:*", true),
            ("used.VCPU > 6", true),
            ("used.PCPU = 0", true),
            ("used.PCPU:*", true),
            ("used.MEMORY_MB = 0", false),
            ("cpu.ratio_milli = 4000", true),
            ("memory:*", false),
        ],
    );
    let operation = Operation {
        kind: Some(Kind::Boot(BootOperation {})),
        done: true,
        outcome: Some(Outcome::Failed(Refusal {
            reason: "NO_VALID_HOST".to_owned(),
            ..Refusal::default()
        })),
        excluded_hosts: vec!["hosts/h1".to_owned()],
        ..Operation::default()
    };
    check(
        &operation,
        &[
            ("boot:*", true),
            ("delete:*", false),
            ("succeeded:*", false),
            ("failed.reason = NO_*", true),
            ("excluded_hosts:h1", true),
            ("excluded_hosts:h2", false),
            ("drain_host.parallel_max < 5", false),
        ],
    );
    let drain = Operation {
        kind: Some(Kind::DrainHost(DrainHostOperation::default())),
        ..Operation::default()
    };
    check(&drain, &[("drain_host.parallel_max < 5", true)]);
    let aggregate = Aggregate {
        hosts: vec!["hosts/h1".to_owned(), "hosts/h2".to_owned()],
        metadata: map(&[("availability_zone", "east")]),
        ..Aggregate::default()
    };
    check(
        &aggregate,
        &[
            ("hosts:h2", true),
            ("hosts:h3", false),
            ("metadata.availability_zone = east", true),
        ],
    );
}

/// Goal: the default of a kind is what it stands for, and what has presence is not its default.
#[test]
fn defaults_stand_for_what_is_documented() {
    let migration = |kind: migration::Kind| Migration {
        kind: kind.into(),
        ..Migration::default()
    };
    check(
        &migration(migration::Kind::Unspecified),
        &[
            ("kind = LIVE", true),
            ("kind != LIVE", false),
            ("kind = COLD", false),
        ],
    );
    check(
        &migration(migration::Kind::Cold),
        &[("kind = LIVE", false), ("kind = COLD", true)],
    );
    let volume = |erase_after| Volume {
        parameters: Some(VolumeParameters {
            erase_after,
            ..VolumeParameters::default()
        }),
        ..Volume::default()
    };
    check(
        &volume(None),
        &[
            ("kind = PERSISTENT", true),
            ("parameters.erase_after = false", false),
            ("parameters.erase_after:*", false),
        ],
    );
    check(
        &volume(Some(false)),
        &[
            ("parameters.erase_after = false", true),
            ("parameters.erase_after:*", true),
        ],
    );
    let sent = Migration {
        transfer: Some(TransferPolicy::default()),
        ..Migration::default()
    };
    check(&sent, &[("transfer:*", true), ("resize:*", false)]);
}

#[test]
fn faults_state_the_position_and_what_there_is() {
    for (text, parts) in [
        (
            "nothing = 1",
            &["at byte 1: Vm has no field \"nothing\"; it has name, uid, spec"][..],
        ),
        (
            "state = ERROR AND spec.flavour.vcpus = 1",
            &["at byte 24", "VmSpec has no field", "it has flavor"],
        ),
        ("restart_obstacle = x", &["has no field"]),
        ("name.x = 1", &["at byte 6: name has no fields"]),
        (
            "create_time.seconds = 1",
            &["at byte 13: create_time has no fields"],
        ),
        (
            "state = GONE",
            &[
                "at byte 9: state is one of BUILDING, ACTIVE",
                "RESIZED, SHELVED, not \"GONE\"",
            ],
        ),
        ("state = UNSPECIFIED", &["state is one of"]),
        ("state = A*", &["state is one of", "not \"A*\""]),
        ("state > ACTIVE", &["at byte 7: state has no order"]),
        (
            "protected = yes",
            &["protected is true or false, not \"yes\""],
        ),
        ("protected < true", &["protected has no order"]),
        (
            "spec.flavor.vcpus = x",
            &["at byte 21: vcpus is a whole number without a unit, not \"x\""],
        ),
        ("spec.flavor.vcpus = 4G", &["whole number"]),
        ("spec.flavor.vcpus = 1.5", &["whole number"]),
        ("spec.flavor.vcpus = 4*", &["whole number"]),
        ("spec.flavor.vcpus = \"\"", &["whole number"]),
        (
            "spec.flavor.vcpus = 999999999999999999999",
            &["whole number"],
        ),
        (
            "spec.flavor.vcpus:4",
            &["vcpus has one value: = and != compare it"],
        ),
        ("name:web", &["name has one value"]),
        (
            "create_time > yesterday",
            &["create_time is a moment, as \"2026-11-01T00:00:00Z\", not \"yesterday\""],
        ),
        ("create_time > 2026-11-01", &["is a moment"]),
        ("create_time > 2026-11-01T00:00:00", &["is a moment"]),
        ("create_time > 2026-13-01T00:00:00Z", &["is a moment"]),
        (
            "create_time > +99999999999999-01-01T00:00:00Z",
            &["is a moment"],
        ),
        ("create_time > 2026-11-01T00:00:00*", &["is a moment"]),
        ("labels = x", &["at byte 8: labels is a map"]),
        ("labels.a.b = x", &["at byte 10: a has no fields"]),
        ("spec = x", &["at byte 6: spec is a message"]),
        ("spec:flavor", &["at byte 6: a message is compared"]),
        ("spec.disks = x", &["disks is a message"]),
        (
            "spec.disks.size_gib > 4",
            &["at byte 21: size_gib has several values"],
        ),
        ("name = *", &["at byte 8: name:* is whether name is set"]),
        ("name != \"**\"", &["name:* is whether name is set"]),
        (
            "name < web*",
            &["at byte 8: * stands for any text with = != : only"],
        ),
        (
            "spec.boot.disk.x = 1",
            &["DiskBoot has no field \"x\"; it has none"],
        ),
        ("state = ACTIVE OR", &["at byte 18: the name of a field"]),
    ] {
        let invalid = Filter::new::<Vm>(text).expect_err(text);
        assert_eq!(invalid.path, "filter", "{text}");
        for part in parts {
            assert!(invalid.rule.contains(part), "{text}: {invalid}");
        }
        assert!(invalid.rule.len() < 1000, "{text}: {invalid}");
    }
    let invalid = Filter::new::<HostSummary>("host.report.cpu:*").unwrap_err();
    assert!(
        invalid.rule.contains("HostReport has no field"),
        "{invalid}"
    );
}

#[test]
fn a_filter_knows_what_it_reads() {
    let filter =
        Filter::new::<Vm>("state = ERROR AND NOT (spec.flavor.vcpus > 1 OR error:*)").unwrap();
    for (field, is_read) in [
        ("state", true),
        ("spec", true),
        ("error", true),
        ("host", false),
    ] {
        assert_eq!(filter.reads(field), is_read, "{field:?}");
    }
    assert!(!filter.reads_besides("spec", "flavor"));
    for more in [
        "spec:*",
        "spec.disks:*",
        "spec.flavor:* AND spec.cpu_shape:*",
    ] {
        let filter = Filter::new::<Vm>(more).unwrap();
        assert!(filter.reads_besides("spec", "flavor"), "{more}");
    }
    assert!(Filter::new::<Vm>("").unwrap().is_empty());
}

/// A VM with few values of each field, so that comparisons often meet.
fn any_vm() -> impl Strategy<Value = Vm> {
    let label = prop::collection::btree_map("[ab]", "[xy]{0,2}", 0..3);
    let disk = prop::option::of("[ab]{0,2}")
        .prop_map(|image| disk(image.as_deref(), 0, disk::Format::Raw));
    let flavor = prop::option::of(0..3_u32);
    let time = prop::option::of((-1..2_i64, 0..2_i32));
    let disks = prop::collection::vec(disk, 0..3);
    (
        "[ab]{0,2}",
        0..4_i32,
        flavor,
        time,
        label,
        disks,
        any::<bool>(),
    )
        .prop_map(|(host, state, vcpus, time, labels, disks, protected)| Vm {
            remains_on: format!("hosts/{host}"),
            state,
            spec: vcpus.map(|vcpus| VmSpec {
                flavor: Some(Flavor {
                    vcpus,
                    ..Flavor::default()
                }),
                disks,
                ..VmSpec::default()
            }),
            create_time: time.map(|(seconds, nanos)| Timestamp { seconds, nanos }),
            labels,
            protected,
            ..Vm::default()
        })
}

/// A comparison with its naive reading.
#[derive(Clone, Debug)]
enum Atom {
    Vcpus(usize, i64),
    Remains(usize, String),
    State(bool, usize),
    Protected(bool),
    Created(usize, usize),
    Label(String, usize, String),
    HasLabel(String),
    HasImage(String),
    HasSpec,
}

const ORDERED: [&str; 6] = ["=", "!=", "<", "<=", ">", ">="];
const STATES: [&str; 3] = ["BUILDING", "ACTIVE", "MIGRATING"];
const TIMES: [(&str, i64, i32); 3] = [
    ("1969-12-31T23:59:59Z", -1, 0),
    ("1970-01-01T00:00:00Z", 0, 0),
    ("1970-01-01T00:00:00.000000001Z", 0, 1),
];

fn compared<T: PartialOrd>(left: &T, operator: usize, right: &T) -> bool {
    match ORDERED[operator] {
        "=" => left == right,
        "!=" => left != right,
        "<" => left < right,
        "<=" => left <= right,
        ">" => left > right,
        _ => left >= right,
    }
}

impl Atom {
    fn text(&self) -> String {
        match self {
            Self::Vcpus(operator, n) => format!("spec.flavor.vcpus {} {n}", ORDERED[*operator]),
            Self::Remains(operator, text) => {
                format!("remains_on {} \"hosts/{text}\"", ORDERED[*operator])
            }
            Self::State(is_equal, n) => {
                format!(
                    "state {} {}",
                    if *is_equal { "=" } else { "!=" },
                    STATES[*n]
                )
            }
            Self::Protected(value) => format!("protected = {value}"),
            Self::Created(operator, n) => {
                format!("create_time {} {}", ORDERED[*operator], TIMES[*n].0)
            }
            Self::Label(key, operator, value) => {
                format!("labels.{key} {} \"{value}\"", ORDERED[*operator])
            }
            Self::HasLabel(key) => format!("labels:{key}"),
            Self::HasImage(beginning) => format!("spec.disks.image:{beginning}*"),
            Self::HasSpec => "spec:*".to_owned(),
        }
    }

    fn is_met_by(&self, vm: &Vm) -> bool {
        let spec = vm.spec.as_ref();
        match self {
            Self::Vcpus(operator, n) => spec.is_some_and(|spec| {
                let vcpus = spec.flavor.as_ref().unwrap().vcpus;
                compared(&i64::from(vcpus), *operator, n)
            }),
            Self::Remains(operator, text) => {
                compared(&vm.remains_on, *operator, &format!("hosts/{text}"))
            }
            Self::State(is_equal, n) => {
                let number = i32::try_from(*n).unwrap() + 1;
                (vm.state == number) == *is_equal
            }
            Self::Protected(value) => vm.protected == *value,
            Self::Created(operator, n) => vm.create_time.as_ref().is_some_and(|time| {
                let (_, seconds, nanos) = TIMES[*n];
                compared(&(time.seconds, time.nanos), *operator, &(seconds, nanos))
            }),
            Self::Label(key, operator, value) => {
                let label = vm.labels.get(key);
                label.is_some_and(|label| compared(label, *operator, value))
            }
            Self::HasLabel(key) => vm.labels.contains_key(key),
            Self::HasImage(beginning) => spec.is_some_and(|spec| {
                let mut images = spec.disks.iter().filter_map(|disk| disk.image.as_ref());
                images.any(|image| image.starts_with(beginning))
            }),
            Self::HasSpec => spec.is_some(),
        }
    }
}

#[derive(Clone, Debug)]
enum Tree {
    Atom(Atom),
    Not(Box<Tree>),
    All(Vec<Tree>),
    Any(Vec<Tree>),
}

impl Tree {
    fn text(&self) -> String {
        let join = |all: &[Self], word: &str| {
            let all: Vec<String> = all.iter().map(|one| format!("({})", one.text())).collect();
            all.join(word)
        };
        match self {
            Self::Atom(atom) => atom.text(),
            Self::Not(inner) => format!("-({})", inner.text()),
            Self::All(all) => join(all, " AND "),
            Self::Any(any) => join(any, " OR "),
        }
    }

    fn count(&self) -> usize {
        match self {
            Self::Atom(_) => 1,
            Self::Not(inner) => inner.count(),
            Self::All(all) | Self::Any(all) => all.iter().map(Self::count).sum(),
        }
    }

    fn is_met_by(&self, vm: &Vm) -> bool {
        match self {
            Self::Atom(atom) => atom.is_met_by(vm),
            Self::Not(inner) => !inner.is_met_by(vm),
            Self::All(all) => all.iter().all(|one| one.is_met_by(vm)),
            Self::Any(any) => any.iter().any(|one| one.is_met_by(vm)),
        }
    }
}

fn atom() -> impl Strategy<Value = Atom> {
    prop_oneof![
        (0..6_usize, -1..4_i64).prop_map(|(o, n)| Atom::Vcpus(o, n)),
        (0..6_usize, "[ab]{0,2}").prop_map(|(o, t)| Atom::Remains(o, t)),
        (any::<bool>(), 0..3_usize).prop_map(|(e, n)| Atom::State(e, n)),
        any::<bool>().prop_map(Atom::Protected),
        (0..6_usize, 0..3_usize).prop_map(|(o, n)| Atom::Created(o, n)),
        ("[ab]", 0..6_usize, "[xy]{0,2}").prop_map(|(k, o, v)| Atom::Label(k, o, v)),
        "[ab]".prop_map(Atom::HasLabel),
        "[ab]{1,2}".prop_map(Atom::HasImage),
        Just(Atom::HasSpec),
    ]
}

fn tree() -> impl Strategy<Value = Tree> {
    atom()
        .prop_map(Tree::Atom)
        .prop_recursive(4, 24, 3, |inner| {
            prop_oneof![
                inner.clone().prop_map(|inner| Tree::Not(Box::new(inner))),
                prop::collection::vec(inner.clone(), 2..4).prop_map(Tree::All),
                prop::collection::vec(inner, 2..4).prop_map(Tree::Any),
            ]
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_naive_reading_agrees(vm in any_vm(), tree in tree()) {
        let text = tree.text();
        // As many comparisons as a filter may have.
        prop_assume!(text.len() <= 2048 && tree.count() <= 64);
        let filter = Filter::new::<Vm>(&text).unwrap();
        prop_assert_eq!(filter.matches(&vm), tree.is_met_by(&vm), "{}", text);
    }

    /// Goal: no comparison of whatever field with whatever value panics.
    #[test]
    fn nothing_panics(
        path in prop::collection::vec(prop::sample::select(vec![
            "spec", "flavor", "error", "hosts", "disks", "labels", "metadata", "causes", "name",
            "state", "missing", "x", "create_time", "restart_times", "vcpus", "policy",
        ]), 1..6),
        operator in prop::sample::select(vec!["=", "!=", "<", ">=", ":"]),
        value in ".{0,12}|[-+0-9TZ:.*]{0,30}",
    ) {
        let value = value.replace(['\\', '"'], "");
        let text = format!("{} {operator} \"{value}\"", path.join("."));
        if let Ok(filter) = Filter::new::<Vm>(&text) {
            let _ = filter.matches(&sample());
        }
    }
}
