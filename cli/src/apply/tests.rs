//! Goal: what is read is what is declared, whatever is wrong is named by its place, and what becomes of each
//! kind of resource follows from the difference alone.
//!
//! Method: documents as they are written by hand and as `show` prints them; plans of them beside messages as a
//! scheduler returns them.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::aggregate::Aggregate;
use berth_domain::flavor::Flavor;
use berth_domain::pci::PciAlias;
use berth_domain::policy::SchedulingPolicy;
use berth_domain::server_group::ServerGroup;
use berth_domain::vm::Vm;
use berth_proto::policy::v1 as policy;
use berth_proto::scheduler::v1 as scheduler;
use berth_proto::types::v1 as wire;
use prost_reflect::prost::Message as _;
use serde_json::{Value, json};

use super::document::{self, Declared, Source};
use super::existing::of_vm;
use super::kind::{DERIVED, Kind};
use super::plan::{Action, Entry, Existing, VmStatus, World, plan, references};
use super::resource::Resource;
use super::settings::Settings;
use super::source;
use crate::usage::Usage;
use crate::{server_group, support};

const FLAVOR: &str = "
kind: Flavor
name: small
vcpus: 1
memory_mib: 512
extra_specs: {\"hw:cpu_policy\": dedicated}
";
const ALIAS: &str = "
kind: PciAlias
name: nic
any_of: [{vendor_id: \"8086\", kind: virtual}]
policy: required
";
const NETWORK: &str = "
kind: Network
name: front
physical_network: physnet1
vlan: 120
";
const AGGREGATE: &str = "
kind: Aggregate
name: east
hosts: [h2, h1]
metadata: {availability_zone: east}
";
const GROUP: &str = "
kind: ServerGroup
name: web
policy: anti-affinity
";
const POLICY: &str = "
kind: SchedulingPolicy
settings: {scheduling.hosts: pack, memory.ratio: 1.5}
hosts: {h1: {cpu.ratio: \"8.0\"}}
";
const VM: &str = "
kind: Vm
name: web-1
flavor: small
boot: {kernel: {kernel: vmlinuz, cmdline: console=ttyS0}}
disks:
- image: debian-12
  size_gib: 4
nics: [{bridge: br0}, {network: front}]
server_group: web
labels: {app: web}
restart_policy: {on_crash: restart}
";

fn all() -> [&'static str; 7] {
    [VM, POLICY, GROUP, AGGREGATE, NETWORK, ALIAS, FLAVOR]
}

fn read(text: &str) -> Result<Vec<Declared>, Usage> {
    let source = Source {
        name: "a.yaml".to_owned(),
        text: text.to_owned(),
    };
    document::read(&[source])
}

#[track_caller]
fn one(text: &str) -> Declared {
    let mut read = read(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(read.len(), 1, "{text}");
    read.remove(0)
}

/// Returns a world in which everything that is declared exists.
fn world(declared: &[Declared]) -> World {
    let mut world = World {
        hosts: hosts(),
        ..World::default()
    };
    for one in declared {
        world.references.extend(references(&one.resource));
        let existing = Existing {
            resource: one.resource.clone(),
            generation: 1,
            vm: (one.resource.kind() == Kind::Vm).then(VmStatus::default),
        };
        let key = (one.resource.kind(), one.name.clone());
        world.existing.insert(key, existing);
    }
    world
}

/// The hosts that these documents name, and one more.
fn hosts() -> BTreeSet<String> {
    ["h1", "h2", "h3"].map(str::to_owned).into()
}

fn actions(entries: &[Entry]) -> Vec<(Kind, &str, Action)> {
    let entries = entries.iter();
    entries
        .map(|entry| (entry.key.0, &*entry.key.1, entry.action))
        .collect()
}

#[test]
fn documents_are_in_the_order_in_which_they_are_carried_out() {
    let declared = read(&all().join("---")).unwrap();
    let world = World {
        hosts: hosts(),
        ..World::default()
    };
    let entries = plan(declared, &world);
    let create = |kind, name| (kind, name, Action::Create);
    let expected = [
        create(Kind::PciAlias, "nic"),
        create(Kind::Network, "front"),
        create(Kind::Flavor, "small"),
        create(Kind::Aggregate, "east"),
        create(Kind::ServerGroup, "web"),
        create(Kind::SchedulingPolicy, ""),
        create(Kind::Vm, "web-1"),
    ];
    assert_eq!(actions(&entries), expected);
    assert_eq!(expected.map(|(kind, ..)| kind), Kind::ALL);
    assert!(entries.iter().all(|entry| entry.obstacle.is_none()));
}

#[test]
fn what_is_as_declared_is_unchanged() {
    let declared = read(&all().join("---")).unwrap();
    let world = world(&declared);
    for entry in plan(declared, &world) {
        assert_eq!(entry.action, Action::Unchanged, "{entry:?}");
        assert!(entry.differences.is_empty() && entry.obstacle.is_none());
    }
}

/// Goal: each kind of bad document is refused with its place and its field. Method: a table of them.
#[test]
fn what_is_wrong_is_named() {
    let deep = format!("kind: Flavor\nname: {}{}", "[".repeat(500), "]".repeat(500));
    let bomb: String = (1..20)
        .map(|n| format!("a{n}: &a{n} [*a{0}, *a{0}, *a{0}, *a{0}]\n", n - 1))
        .collect();
    let bomb = format!("a0: &a0 [x, x]\n{bomb}");
    let many = "kind: Flavor\n---\n".repeat(document::DOCUMENTS_MAX + 1);
    let vm = |more: &str| format!("{VM}{more}");
    let cases: &[(&str, &str)] = &[
        ("{", "a.yaml: it cannot be read as YAML or JSON"),
        ("- a", "a.yaml, document 1: it must have fields"),
        ("text", "a.yaml, document 1: it must have fields"),
        ("name: a", "a.yaml, document 1: kind: is missing"),
        (
            "kind: flavor",
            "kind: must be one of PciAlias, Network, Flavor, Aggregate, ServerGroup, SchedulingPolicy, Vm",
        ),
        ("kind: [Flavor]", "kind: must be one of"),
        ("kind: Router\nname: a", "not \"Router\""),
        ("kind: Network\nname: a", "physical_network"),
        (
            "kind: Network\nname: a\nphysical_network: p\nvlan: 0",
            "vlan: must be 1 to 4094",
        ),
        ("kind: Flavor\nvcpus: 1", "Flavor: name: is missing"),
        ("kind: Flavor\nname: 7", "name: must be a text"),
        (
            "kind: Flavor\nname: a b\nvcpus: 1\nmemory_mib: 1",
            "Flavor a b: name",
        ),
        ("kind: Flavor\nname: vms/a\nvcpus: 1\nmemory_mib: 1", "name"),
        ("kind: Flavor\nname: a\nvcpus: 0\nmemory_mib: 1", "vcpus"),
        (
            "kind: Flavor\nname: a\nvcpu: 1",
            "vcpu: is not known; known fields are creator",
        ),
        (
            "kind: Flavor\nname: a\nvcpus: \"1\"",
            "vcpus: must be a whole number from 0 to 4294967295",
        ),
        (
            "kind: Flavor\nname: a\nvcpus: 1.5",
            "vcpus: must be a whole number",
        ),
        (
            "kind: Flavor\nname: a\nvcpus: -1",
            "vcpus: must be a whole number",
        ),
        (
            "kind: Flavor\nname: a\nvcpus: 99999999999",
            "vcpus: must be a whole number",
        ),
        ("kind: Flavor\nname: a\nvcpus: 1\nvcpus: 2", "duplicate"),
        (
            "kind: Flavor\nname: a\nextra_specs: {a: 1}",
            "extra_specs.a: must be a text",
        ),
        (
            "kind: Flavor\nname: a\nextra_specs: [a]",
            "extra_specs: must have fields",
        ),
        (
            "kind: Flavor\nname: a\nvcpus: 1\nmemory_mib: 1\nextra_specs: {\"hw:x\": y}",
            "hw:x",
        ),
        ("kind: PciAlias\nname: a", "any_of"),
        (
            "kind: PciAlias\nname: a\nany_of: {}",
            "any_of: must be a list",
        ),
        (
            "kind: PciAlias\nname: a\nany_of: [{vendor: x, vendor_id: y}]",
            "vendor_id: is there twice",
        ),
        (
            "kind: PciAlias\nname: a\nany_of: [{bus: x}]",
            "any_of[0].bus: is not known",
        ),
        (
            "kind: Aggregate\nname: a\nhosts: h1",
            "hosts: must be a list",
        ),
        ("kind: Aggregate\nname: a\nhosts: [a b]", "hosts"),
        ("kind: ServerGroup\nname: a", "policy"),
        (
            "kind: ServerGroup\nname: a\npolicy: near",
            "policy: must be one of AFFINITY, ANTI_AFFINITY",
        ),
        (
            "kind: ServerGroup\nname: a\npolicy: UNSPECIFIED",
            "policy: must be one of",
        ),
        ("kind: SchedulingPolicy", "settings: has no setting"),
        (
            "kind: SchedulingPolicy\nsettings: {a: b}",
            "is not known; known keys are",
        ),
        (
            "kind: SchedulingPolicy\nsettings: {memory.ratio: x}",
            "memory.ratio",
        ),
        (
            "kind: SchedulingPolicy\nsettings: {memory.ratio: [1]}",
            "memory.ratio: must be a text or a number",
        ),
        (
            "kind: SchedulingPolicy\nhosts: {h1: {scheduling.hosts: pack}}",
            "hosts.h1.scheduling.hosts: is of the whole cluster",
        ),
        (
            "kind: SchedulingPolicy\ngroups: {a b: {cpu.ratio: 1.0}}",
            "groups.a b",
        ),
        (
            "kind: SchedulingPolicy\nweights: {}",
            "weights: is not known",
        ),
        ("kind: Vm\nname: a\nflavor: f", "boot: is missing"),
        ("kind: Vm\nname: a\nboot: Disk", "flavor: is missing"),
        (
            "kind: Vm\nname: a\nflavor: f\nboot: {disk: {}, kernel: {kernel: k}}",
            "boot.kernel: excludes another field",
        ),
        (
            "kind: Vm\nname: a\nflavor: f\nboot: {}",
            "boot: must be a kernel or a disk",
        ),
        (
            "kind: Vm\nname: a\nflavor: f\nboot: Floppy",
            "boot: must have fields",
        ),
        (
            &vm("protected: \"yes\"\n"),
            "protected: must be true or false",
        ),
        (&vm("protected: yes\n"), "protected: must be true or false"),
        (&vm("disk: []\n"), "disk: is not known"),
        (&vm("spec: {flavor: other}\n"), "flavor: is there twice"),
        (
            &vm("restarts: {policy: null, more: 1}\n"),
            "restarts.more: is not known",
        ),
        (&vm("vm: {name: x}\n"), "name: is there twice"),
        (&vm("vm: 3\n"), "vm: must have fields"),
        (&vm("spec: 3\n"), "spec: must have fields"),
        (&vm("hints: x\n"), "hints: must have fields"),
        (&vm("restarts: []\n"), "restarts: must have fields"),
        (
            "kind: Flavor\nname: a\nname: b\n",
            "duplicate mapping key: name at line 3",
        ),
        (
            "kind: SchedulingPolicy\nhosts: {h1: {cpu.ratio: 8.0}, hosts/h1: {cpu.ratio: 3.0}}",
            "is there twice",
        ),
        (&VM.replace("app: web", "app: a b"), "labels.app"),
        (
            &VM.replace("size_gib: 4", "size: 4"),
            "disks[0].size: is not known",
        ),
        (
            &VM.replace("on_crash: restart", "on_crash: 1"),
            "restart_policy.on_crash: must be a text",
        ),
        (
            &vm("first_boot: {user_data: 1}\n"),
            "first_boot.user_data: must be a text",
        ),
        (
            &format!("{FLAVOR}---{FLAVOR}"),
            "document 2: Flavor small is declared in a.yaml, document 1 too",
        ),
        (
            &format!("{POLICY}---{POLICY}"),
            "SchedulingPolicy is declared in",
        ),
        (&deep, "it cannot be read as YAML or JSON"),
        (&bomb, "it cannot be read as YAML or JSON"),
        (&many, "more than 1000 documents"),
    ];
    for (text, part) in cases {
        let shown: String = text.chars().take(200).collect();
        let refused = read(text).err().map(|error| error.to_string());
        let refused = refused.unwrap_or_else(|| panic!("taken: {shown}"));
        assert!(refused.contains(part), "{shown}\n{refused}");
        assert!(refused.starts_with("a.yaml"), "{refused}");
        assert!(!refused.contains('\n'), "{refused}");
    }
}

#[test]
fn several_faults_are_reported_at_once() {
    let refused = read("kind: Flavor\n---\nname: a\n---\nkind: X").unwrap_err();
    for document in 1..=3 {
        let place = format!("a.yaml, document {document}: ");
        assert!(refused.0.contains(&place), "{refused}");
    }
    let many = "---\nname: a\n".repeat(20);
    assert!(read(&many).unwrap_err().0.ends_with("and 12 more faults"));
}

#[test]
fn json_and_the_names_of_the_api_are_read_too() {
    let flavor = one(FLAVOR);
    let text = json!({
        "kind": "Flavor", "name": "flavors/small", "vcpus": 1, "memoryMib": "512", "project": "default",
        "extraSpecs": {"hw:cpu_policy": "dedicated"}, "creator": "operator:ann",
    });
    assert_eq!(one(&text.to_string()).resource, flavor.resource);
    let group = one("{kind: ServerGroup, name: web, policy: POLICY_ANTI_AFFINITY}");
    assert_eq!(group.resource, one(GROUP).resource);
    assert!(read("").unwrap().is_empty() && read("# nothing\n---\n").unwrap().is_empty());
}

/// Goal: the example of the document is one, of every kind, and the ignored fields are listed there.
#[test]
fn the_documented_example_is_read() {
    let text = include_str!("../../../docs/apply.md");
    let example = text.split("```yaml\n").nth(1).unwrap();
    let declared = read(example.split("```").next().unwrap()).unwrap();
    let kinds: BTreeSet<Kind> = declared.iter().map(|one| one.resource.kind()).collect();
    assert_eq!(kinds, BTreeSet::from(Kind::ALL));
    let world = World {
        hosts: hosts(),
        ..World::default()
    };
    let entries = plan(declared, &world);
    assert!(entries.iter().all(|entry| entry.obstacle.is_none()));
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Vm) {
        let row = format!("| `{}` |", kind.as_str());
        let row = text.lines().find(|line| line.starts_with(&row)).unwrap();
        for field in kind.output_only() {
            assert!(row.contains(&format!("`{field}`")), "{field}: {row}");
        }
    }
}

/// Goal: no new field of a VM is neither declared nor left out on purpose; of the other kinds the message itself
/// is read, and the compiler names their fields.
#[test]
fn every_field_of_a_vm_has_its_place() {
    let template = Kind::Vm.message();
    let is_declared = |name: &str| template.get_field_by_name(name).is_some();
    for field in support::descriptor("berth.scheduler.v1.Vm").fields() {
        let is_known = Kind::Vm.output_only().contains(&field.name())
            || is_declared(field.name())
            || ["name", "spec"].contains(&field.name());
        assert!(is_known, "{}", field.name());
    }
    for field in support::descriptor("berth.type.v1.VmSpec").fields() {
        let is_known = is_declared(field.name()) || DERIVED.contains(&field.name());
        assert!(is_known, "{}", field.name());
    }
}

/// Messages as a scheduler returns them, with the value that `show` prints of each.
fn shown() -> Vec<(Value, Existing)> {
    let time = || prost_types::Timestamp {
        seconds: 7,
        nanos: 0,
    };
    let of = |resource| Existing {
        resource,
        generation: 0,
        vm: None,
    };
    let alias = wire::PciAlias {
        name: "pciAliases/nic".to_owned(),
        any_of: vec![wire::PciMatch {
            vendor_id: "8086".to_owned(),
            product_id: "154c".to_owned(),
            kind: wire::PciKind::Virtual.into(),
            tags: [("physical_network".to_owned(), "a".to_owned())].into(),
        }],
        policy: wire::PciNumaPolicy::Socket.into(),
    };
    let flavor = wire::Flavor {
        name: "flavors/small".to_owned(),
        vcpus: 2,
        memory_mib: 64,
        disk_gib: 4,
        extra_specs: [("hw:cpu_policy".to_owned(), "dedicated".to_owned())].into(),
        project: "blue".to_owned(),
        creator: "operator:ann".to_owned(),
    };
    let aggregate = policy::Aggregate {
        name: "aggregates/east".to_owned(),
        uid: "6f1c6f0e-3a0e-4c39-8a51-4a8c3b6b1f10".to_owned(),
        hosts: vec!["hosts/h1".to_owned()],
        metadata: [("availability_zone".to_owned(), "east".to_owned())].into(),
        generation: 4,
        create_time: Some(time()),
    };
    let group = policy::ServerGroup {
        name: "serverGroups/web".to_owned(),
        policy: policy::server_group::Policy::AntiAffinity.into(),
        max_server_per_host: 2,
        create_time: Some(time()),
        member_count: 3,
        project: "default".to_owned(),
        creator: "operator:ann".to_owned(),
        separate_time: Some(time()),
    };
    let network = wire::Network {
        name: "networks/front".to_owned(),
        physical_network: "physnet1".to_owned(),
        vlan: Some(120),
        mtu: None,
        description: "front ends".to_owned(),
        project: "default".to_owned(),
        creator: "operator:ann".to_owned(),
        create_time: Some(time()),
        vm_count: 1,
        host_count: 2,
    };
    let vm = vm_of_api(&flavor, time());
    let domain = |vm: &scheduler::Vm| Vm::try_from(vm.clone()).unwrap();
    let settings = SchedulingPolicy::default();
    let mut group_value = {
        let group = ServerGroup::try_from(group.clone()).unwrap();
        server_group::value(&group, 3)
    };
    group_value["members"] = json!([{"vm": "a", "hosts": ["h1"]}]);
    vec![
        (
            serde_json::to_value(PciAlias::try_from(alias.clone()).unwrap()).unwrap(),
            of(Resource::PciAlias(alias)),
        ),
        (
            crate::network::value(network.clone()).unwrap(),
            of(Resource::of_network(network)),
        ),
        (
            serde_json::to_value(Flavor::try_from(flavor.clone()).unwrap()).unwrap(),
            of(Resource::of_flavor(flavor)),
        ),
        (
            serde_json::to_value(Aggregate::try_from(aggregate.clone()).unwrap()).unwrap(),
            of(Resource::of_aggregate(aggregate)),
        ),
        (group_value, of(Resource::of_server_group(group))),
        (
            crate::policy::value(&settings),
            of(Resource::SchedulingPolicy(Settings::of(&settings))),
        ),
        (
            json!({"vm": domain(&vm), "claims": [], "restart_obstacle": "x"}),
            of_vm(vm),
        ),
    ]
}

fn vm_of_api(flavor: &wire::Flavor, time: prost_types::Timestamp) -> scheduler::Vm {
    let kernel = wire::KernelBoot {
        kernel: "vmlinuz@0123456789ab".to_owned(),
        initrd: String::new(),
        cmdline: "console=ttyS0".to_owned(),
    };
    let disk = |image: &str| wire::Disk {
        image: Some(image.to_owned()),
        format: wire::disk::Format::Qcow2.into(),
        size_gib: 2,
        seed: false,
    };
    let seed = wire::Disk {
        image: None,
        format: wire::disk::Format::Raw.into(),
        size_gib: 0,
        seed: true,
    };
    let spec = wire::VmSpec {
        flavor: Some(flavor.clone()),
        boot: Some(wire::BootSource {
            source: Some(wire::boot_source::Source::Kernel(kernel)),
        }),
        disks: vec![disk("debian-12@0123456789ab"), seed],
        nics: vec![
            wire::Nic {
                bridge: "br0".to_owned(),
                mac: "52:54:00:00:00:01".to_owned(),
                ..wire::Nic::default()
            },
            wire::Nic {
                mac: "52:54:00:00:00:02".to_owned(),
                network: "networks/front".to_owned(),
                network_link: Some(wire::NetworkLink {
                    physical_network: "physnet1".to_owned(),
                    vlan: Some(120),
                    mtu: None,
                }),
                ..wire::Nic::default()
            },
        ],
        image_properties: [("hw_cpu_policy".to_owned(), "dedicated".to_owned())].into(),
        server_group: "serverGroups/web".to_owned(),
        availability_zone: "east".to_owned(),
        volumes: vec![wire::VolumeAttachment {
            volume: "volumes/db-00000000000000000000000000000002".to_owned(),
            attached_as: wire::volume_attachment::As::Nvdimm.into(),
            read_only: true,
        }],
        ..wire::VmSpec::default()
    };
    scheduler::Vm {
        name: "vms/web-1".to_owned(),
        uid: "6f1c6f0e-3a0e-4c39-8a51-4a8c3b6b1f10".to_owned(),
        spec: Some(spec),
        state: scheduler::vm::State::Active.into(),
        host: "hosts/h1".to_owned(),
        generation: 3,
        create_time: Some(time),
        project: "blue".to_owned(),
        creator: "operator:ann".to_owned(),
        restart_policy: Some(wire::RestartPolicy {
            on_crash: wire::restart_policy::Action::Restart.into(),
            on_host_failure: 0,
            priority: Some(70),
            per_hour_max: None,
        }),
        restart_times: vec![time],
        labels: [("app".to_owned(), "web".to_owned())].into(),
        description: "front".to_owned(),
        protected: true,
        ..scheduler::Vm::default()
    }
}

/// Goal: what `show` prints of each kind, with its kind beside it, is a document of what is there.
#[test]
fn what_show_prints_is_unchanged() {
    let mut kinds = BTreeSet::new();
    for (mut value, existing) in shown() {
        let kind = existing.resource.kind();
        value["kind"] = json!(kind.as_str());
        let declared = one(&value.to_string());
        let key = (kind, declared.name.clone());
        let world = World {
            existing: BTreeMap::from([(key, existing)]),
            ..World::default()
        };
        let entries = plan(vec![declared], &world);
        let entry = &entries[0];
        assert_eq!(entry.action, Action::Unchanged, "{entry:#?}");
        kinds.insert(kind);
    }
    assert_eq!(kinds, BTreeSet::from(Kind::ALL));
}

/// Goal: what a plan shows of a resource can be declared again.
#[test]
fn values_are_documents() {
    for (_, existing) in shown() {
        let kind = existing.resource.kind();
        let mut value = existing.resource.to_value();
        value["kind"] = json!(kind.as_str());
        if kind != Kind::SchedulingPolicy {
            value["name"] = json!("a");
        }
        assert_eq!(
            one(&value.to_string()).resource.to_value(),
            existing.resource.to_value()
        );
    }
}

/// Goal: what a VM leaves open is what it has.
#[test]
fn what_is_left_open_is_no_difference() {
    let (mut value, existing) = shown().pop().unwrap();
    let spec = &mut value["vm"]["spec"];
    spec["disks"] = json!([{"image": "debian-12", "size_gib": 2}]);
    spec["nics"] = json!([{"bridge": "br0"}, {"network": "front"}]);
    spec["boot"]["Kernel"]["kernel"] = json!("vmlinuz");
    spec["image_properties"] = json!({});
    spec["flavor"] = json!("small");
    value["kind"] = json!("Vm");
    let check = |value: &Value, expected: &[&str]| {
        let declared = one(&value.to_string());
        let key = (Kind::Vm, declared.name.clone());
        let world = World {
            existing: BTreeMap::from([(key, existing.clone())]),
            ..World::default()
        };
        let entry = plan(vec![declared], &world).remove(0);
        let fields: Vec<&str> = entry.differences.iter().map(|d| &*d.field).collect();
        assert_eq!(fields, expected, "{entry:#?}");
    };
    check(&value, &[]);
    let mut other = value.clone();
    other["vm"]["spec"]["disks"][0]["image"] = json!("debian-13");
    other["vm"]["spec"]["image_properties"] = json!({"hw_cpu_policy": "shared"});
    check(
        &other,
        &["disks[0].image", "image_properties.hw_cpu_policy"],
    );
}

/// Goal: a difference is changed in place exactly where a request does that; otherwise the command is named that
/// does. Method: each kind with a field that changes.
#[test]
fn each_difference_is_a_change_or_an_obstacle() {
    let cases: &[(&str, &str, &str, &str, Option<&str>)] = &[
        (
            FLAVOR,
            "vcpus: 1",
            "vcpus: 2",
            "vcpus",
            Some("berth flavor delete small"),
        ),
        (
            ALIAS,
            "required",
            "legacy",
            "policy",
            Some("berth pci-alias delete nic"),
        ),
        (
            NETWORK,
            "vlan: 120",
            "vlan: 121",
            "vlan",
            Some("berth network delete front"),
        ),
        (
            GROUP,
            "anti-affinity",
            "affinity",
            "policy",
            Some("berth server-group delete web"),
        ),
        (AGGREGATE, "[h2, h1]", "[h1, h3]", "hosts", None),
        (
            AGGREGATE,
            "zone: east",
            "zone: west",
            "metadata.availability_zone",
            None,
        ),
        (POLICY, "pack", "spread", "settings.scheduling.hosts", None),
        (POLICY, "8.0", "4.0", "hosts.h1.cpu.ratio", None),
        (
            VM,
            "flavor: small",
            "flavor: big",
            "flavor",
            Some("berth vm resize web-1 --flavor big"),
        ),
        (
            VM,
            "image: debian-12",
            "image: debian-13",
            "disks[0].image",
            Some("berth vm rebuild web-1 --image debian-13"),
        ),
        (
            VM,
            "size_gib: 4",
            "size_gib: 5",
            "disks[0].size_gib",
            Some("berth vm delete web-1"),
        ),
        (
            VM,
            "server_group: web",
            "",
            "server_group",
            Some("berth vm delete web-1"),
        ),
        (VM, "app: web", "tier: front", "labels.app", None),
        (
            VM,
            "on_crash: restart",
            "on_crash: leave",
            "restart_policy.on_crash",
            None,
        ),
        (VM, "labels:", "protected: true\nlabels:", "protected", None),
        (
            VM,
            "labels:",
            "description: a\nlabels:",
            "description",
            None,
        ),
    ];
    for (text, old, new, field, command) in cases {
        let world = world(&[one(text)]);
        let changed = one(&text.replace(old, new));
        let entry = plan(vec![changed], &world).remove(0);
        let expected = match command {
            Some(_) => Action::RecreateNeeded,
            None => Action::Change,
        };
        assert_eq!(entry.action, expected, "{entry:#?}");
        let differs = entry.differences.iter().any(|d| d.field == *field);
        assert!(differs, "{field}: {entry:#?}");
        let hint = entry.obstacle.map(|obstacle| obstacle.hint);
        match command {
            Some(command) => assert!(hint.unwrap().contains(command), "{field}"),
            None => assert_eq!(hint, None, "{field}"),
        }
    }
}

/// Goal: a policy is compared by the keys that are declared, and no others.
#[test]
fn other_settings_are_left_alone() {
    let declared = one(POLICY);
    let mut policy = SchedulingPolicy::default();
    for (key, value) in [("scheduling.hosts", "pack"), ("balance.hold_ms", "7")] {
        policy.set(berth_domain::policy::Setting::parse(key, value).unwrap());
    }
    let existing = Existing {
        resource: Resource::SchedulingPolicy(Settings::of(&policy)),
        generation: 2,
        vm: None,
    };
    let world = World {
        existing: [((Kind::SchedulingPolicy, String::new()), existing)].into(),
        ..World::default()
    };
    let entry = plan(vec![declared], &world).remove(0);
    let fields: Vec<(&str, &Value)> = entry
        .differences
        .iter()
        .map(|d| (&*d.field, &d.new))
        .collect();
    let expected = [
        ("hosts.h1.cpu.ratio", &json!("8.0")),
        ("settings.memory.ratio", &json!("1.5")),
    ];
    assert_eq!(fields, expected);
}

#[test]
fn what_a_vm_names_has_to_be_there() {
    let vm = || one(VM);
    let entry = |declared, world: &World| plan(declared, world).pop().unwrap();
    let obstacle = entry(vec![vm()], &World::default()).obstacle.unwrap();
    assert!(obstacle.message.contains("Flavor small"), "{obstacle:?}");
    let world = World {
        references: [(Kind::Flavor, "small".to_owned())].into(),
        ..World::default()
    };
    let obstacle = entry(vec![vm()], &world).obstacle.unwrap();
    assert!(obstacle.message.contains("ServerGroup web"), "{obstacle:?}");
    let obstacle = entry(vec![vm(), one(GROUP)], &world).obstacle.unwrap();
    assert!(obstacle.message.contains("Network front"), "{obstacle:?}");
    let all = vec![vm(), one(GROUP), one(NETWORK)];
    assert_eq!(entry(all, &world).obstacle, None);
}

/// Goal: what a hint names helps. Method: differences of which one command makes only a part, or none.
#[test]
fn a_hint_is_for_all_that_differs() {
    let two = VM.replace(
        "- image: debian-12",
        "- {size_gib: 1, format: raw}\n- image: debian-12",
    );
    let resized = VmStatus {
        is_resized: true,
        ..VmStatus::default()
    };
    for (text, old, new, status, command) in [
        // A rebuild takes an image for each disk.
        (
            &*two,
            "debian-12",
            "debian-13",
            None,
            "berth vm delete web-1",
        ),
        (
            VM,
            "image: debian-12\n  size_gib: 4",
            "image: debian-13\n  size_gib: 5",
            None,
            "berth vm delete web-1",
        ),
        (
            VM,
            "br0}, {network: front}]\nserver_group: web",
            "br1}, {network: front}]",
            None,
            "berth vm delete web-1",
        ),
        (
            VM,
            "flavor: small",
            "flavor: big",
            Some(&resized),
            "berth vm revert-resize web-1",
        ),
    ] {
        let mut world = world(&[one(text)]);
        for existing in world.existing.values_mut() {
            existing.vm = status.cloned().or_else(|| existing.vm.take());
        }
        let entry = plan(vec![one(&text.replace(old, new))], &world).remove(0);
        let hint = entry.obstacle.expect("an obstacle").hint;
        assert!(hint.contains(command), "{new}: {hint}");
    }
}

/// Goal: nothing is half applied because something that is named does not exist. Method: each kind that names
/// others, where it changes and where it is new.
#[test]
fn what_is_named_has_to_be_there_before_anything_is_changed() {
    for (text, change, named) in [
        (AGGREGATE, ("east", "east"), "host h"),
        (AGGREGATE, ("[h2, h1]", "[h3, h1]"), "host h"),
        (POLICY, ("8.0", "4.0"), "host h1"),
        (
            "kind: SchedulingPolicy\ngroups: {east: {cpu.ratio: 8.0}}\n",
            ("8.0", "4.0"),
            "Aggregate east",
        ),
    ] {
        let mut world = world(&[one(text)]);
        world.hosts.clear();
        world.references.clear();
        if change.0 == change.1 {
            world.existing.clear();
        }
        let entry = plan(vec![one(&text.replace(change.0, change.1))], &world).remove(0);
        let message = entry.obstacle.expect("an obstacle").message;
        assert!(
            message.starts_with(&format!("it names {named}")),
            "{message}"
        );
    }
}

#[test]
fn labelled_vms_that_are_not_declared_are_deleted() {
    let declared = vec![one(VM)];
    let mut world = world(&declared);
    world.references = [
        (Kind::Flavor, "small".to_owned()),
        (Kind::ServerGroup, "web".to_owned()),
    ]
    .into();
    for (name, protected) in [("web-2", false), ("web-3", true)] {
        let Resource::Vm(template) = &declared[0].resource else {
            panic!("{declared:?}");
        };
        let mut template = (**template).clone();
        template.protected = protected;
        let existing = Existing {
            resource: Resource::Vm(Box::new(template)),
            generation: 0,
            vm: Some(VmStatus::default()),
        };
        world.existing.insert((Kind::Vm, name.to_owned()), existing);
    }
    world.labelled = ["web-1", "web-2", "web-3"].map(str::to_owned).into();
    let entries = plan(declared, &world);
    let expected = [
        (Kind::Vm, "web-1", Action::Unchanged),
        (Kind::Vm, "web-2", Action::Delete),
        (Kind::Vm, "web-3", Action::Delete),
    ];
    assert_eq!(actions(&entries), expected);
    assert_eq!(entries[1].obstacle, None);
    let hint = &entries[2].obstacle.as_ref().unwrap().hint;
    assert!(hint.contains("berth vm set web-3 --unprotect"), "{hint}");
}

/// Goal: a VM that a run which was broken off left behind is seen as what it is.
#[test]
fn how_far_a_vm_is_counts() {
    let check = |status: VmStatus| {
        let declared = vec![one(VM)];
        let mut world = world(&declared);
        for existing in world.existing.values_mut() {
            existing.vm = Some(status.clone());
        }
        plan(declared, &world).remove(0)
    };
    let building = check(VmStatus {
        building: Some("operations/7".to_owned()),
        ..VmStatus::default()
    });
    assert_eq!(building.action, Action::Unchanged);
    let note = building.note.clone();
    assert!(note.unwrap().contains("operation 7"));
    let failed = check(VmStatus {
        is_failed: true,
        ..VmStatus::default()
    });
    assert!(failed.is_failed() && !building.is_failed());
    assert!(failed.note.unwrap().contains("berth vm delete web-1"));
    let deleting = check(VmStatus {
        is_deleting: true,
        ..VmStatus::default()
    });
    assert!(deleting.obstacle.unwrap().message.contains("being deleted"));
}

/// Goal: what a guest is given for its first boot is sent, and in no plan.
#[test]
fn the_first_boot_is_in_no_plan() {
    let text = format!("{VM}first_boot: {{user_data: \"#!/bin/sh\\nhunter2\"}}\n");
    let declared = one(&text);
    let Resource::Vm(template) = &declared.resource else {
        panic!("{declared:?}");
    };
    let first_boot = template.first_boot.as_ref().unwrap();
    assert_eq!(&first_boot.user_data[..], b"#!/bin/sh\nhunter2");
    assert!(first_boot.encoded_len() > 0);
    let entry = plan(vec![declared], &World::default()).remove(0);
    assert!(!format!("{:?}", entry.differences).contains("hunter2"));
}

#[test]
fn files_are_bounded_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["b.yml", "a.json", "c.yaml", "d.txt"] {
        std::fs::write(path(name), name).unwrap();
    }
    let read = |paths: &[std::path::PathBuf]| source::read(paths);
    let texts: Vec<String> = read(&[folder.path().to_owned()])
        .unwrap()
        .into_iter()
        .map(|source| source.text)
        .collect();
    assert_eq!(texts, ["a.json", "b.yml", "c.yaml"]);
    let length = usize::try_from(source::FILE_BYTES_MAX).unwrap() + 1;
    std::fs::write(path("long"), vec![b'#'; length]).unwrap();
    std::fs::write(path("bytes"), b"\xff").unwrap();
    // What cannot be read is not left out of a directory: VMs that it declares would be deleted by --prune.
    for directory in ["empty", "broken", "socket", "a.yaml"] {
        std::fs::create_dir(path(directory)).unwrap();
    }
    std::os::unix::fs::symlink("none", path("broken").join("a.yaml")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(path("socket").join("a.yaml")).unwrap();
    assert_eq!(read(&[folder.path().to_owned()]).unwrap().len(), 3);
    for (name, part) in [
        ("broken", "broken/a.yaml: No such file"),
        ("socket", "socket/a.yaml: it is no file"),
        ("long", "it has more than 1048576 bytes"),
        ("bytes", "no text in UTF-8"),
        ("none", "No such file"),
        ("empty", "no *.yaml"),
    ] {
        let refused = read(&[path(name)]).unwrap_err().to_string();
        assert!(refused.contains(part), "{refused}");
        assert!(refused.contains(name), "{refused}");
    }
}
