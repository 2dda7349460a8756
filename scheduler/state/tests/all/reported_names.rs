//! Goal: custom names that reports of hosts bring go with them, whatever else happens, so that no host
//! can make the state grow by what it reports.
//!
//! Method: hosts report, report again, go; clients create, use and delete the same names. The world
//! checks after each command that every name that only reports brought has a provider.

use berth_domain::bound::REPORTED_NAMES_MAX;
use berth_domain::host::HostReport;
use berth_domain::id::Generation;
use berth_domain::name::PmemName;
use berth_domain::pmem::{Label, PmemNamespace};
use berth_domain::topology::CellId;
use berth_domain::version::ServiceVersion;
use berth_state::command::{Command, ProviderInventories};
use berth_testkit::state::placement::*;
use berth_testkit::state::*;

/// A report with these custom traits.
fn with_traits<'n>(names: impl IntoIterator<Item = &'n str>) -> HostReport {
    HostReport {
        traits: names.into_iter().map(quality).collect(),
        ..report(topology(2, 3, 1))
    }
}

/// Returns the custom names of the state.
fn names(world: &World) -> Vec<String> {
    let classes = world.state.classes().keys().map(ToString::to_string);
    let traits = world.state.custom_traits().keys().map(ToString::to_string);
    classes.chain(traits).collect()
}

fn numbered(round: usize, count: usize) -> HostReport {
    let names: Vec<String> = (0..count).map(|n| format!("CUSTOM_{round}_{n}")).collect();
    with_traits(names.iter().map(String::as_str))
}

fn remove(host: &str) -> Command {
    Command::RemoveHost {
        host: host_name(host),
    }
}

/// Returns a report with a namespace of each of these labels.
fn with_namespaces<'l>(labels: impl IntoIterator<Item = &'l str>) -> HostReport {
    let namespaces = labels.into_iter().enumerate();
    let namespaces = namespaces.map(|(number, label)| PmemNamespace {
        name: PmemName::new(&format!("ns{number}")).unwrap(),
        class: Label::parse(label).unwrap().class(),
        size_bytes: 1 << 30,
        align_bytes: 2 << 20,
        path: format!("/dev/ns{number}"),
        cell: Some(CellId(0)),
        region: "region0".to_owned(),
        trouble: String::new(),
    });
    report(topology(2, 3, 1).with_pmem(namespaces.collect()).unwrap())
}

#[test]
fn a_host_that_reports_new_names_each_time_holds_only_the_last() {
    let mut world = World::with_hosts(0);
    for round in 0..20 {
        let report = numbered(round, REPORTED_NAMES_MAX);
        world.register("h1", report).unwrap();
        assert_eq!(names(&world).len(), REPORTED_NAMES_MAX, "round {round}");
    }
    let class = Label::parse("SMALL").unwrap().class().to_string();
    world.register("h1", with_namespaces(["SMALL"])).unwrap();
    assert_eq!(names(&world), [class]);
    world.run(remove("h1")).unwrap();
    assert!(names(&world).is_empty(), "what a host brought went with it");
}

#[test]
fn a_name_goes_with_its_last_host() {
    let mut world = World::with_hosts(0);
    for host in ["h1", "h2"] {
        world.register(host, with_traits(["CUSTOM_A"])).unwrap();
    }
    world.run(remove("h1")).unwrap();
    assert_eq!(names(&world), ["CUSTOM_A"]);
    world.register("h2", with_traits(["CUSTOM_B"])).unwrap();
    assert_eq!(names(&world), ["CUSTOM_B"]);
}

/// Goal: what a client created stays, whether a host had reported the name before or does so later.
#[test]
fn a_client_that_creates_the_name_owns_it() {
    for created_first in [true, false] {
        let mut world = World::with_hosts(0);
        let class = Label::parse("SMALL").unwrap().class().to_string();
        let report = HostReport {
            traits: [quality("CUSTOM_A")].into(),
            ..with_namespaces(["SMALL"])
        };
        if !created_first {
            world.register("h1", report.clone()).unwrap();
        }
        for create in [new_class(&class), new_trait("CUSTOM_A")] {
            world.run(create).unwrap();
        }
        if created_first {
            world.register("h1", report).unwrap();
        }
        world.run(remove("h1")).unwrap();
        assert_eq!(names(&world), [class.clone(), "CUSTOM_A".to_owned()]);
    }
}

/// Goal: a reported name that a client's provider has too goes with the last of its providers, whatever
/// command that provider loses it by.
#[test]
fn every_command_that_takes_a_name_from_a_provider_counts() {
    let class_name = Label::parse("SMALL").unwrap().class().to_string();
    let bare = ProviderInventories {
        generation: Generation(2),
        inventories: exact(&[]),
    };
    let number = 1;
    let one = provider(number);
    let losses: [&[Command]; 7] = [
        &[delete(number)],
        &[
            inventories(number, 2, &[]),
            traits(number, 3, &["HW_CPU_X86_AVX"]),
        ],
        &[
            Command::DeleteInventories { provider: one },
            Command::DeleteTraits { provider: one },
        ],
        &[
            Command::DeleteInventory {
                provider: one,
                class: class(&class_name),
            },
            Command::DeleteTraits { provider: one },
        ],
        &[
            Command::Reshape {
                inventories: [(one, bare)].into(),
                consumers: Vec::new(),
            },
            Command::DeleteTraits { provider: one },
        ],
        &[Command::Batch {
            writes: vec![delete(number)],
        }],
        &[
            Command::RenameClass {
                from: class(&class_name),
                to: class("CUSTOM_OWN"),
            },
            delete(number),
            Command::DeleteClass {
                class: class("CUSTOM_OWN"),
            },
        ],
    ];
    for commands in losses {
        let mut world = World::with_hosts(0);
        let report = HostReport {
            traits: [quality("CUSTOM_A")].into(),
            ..with_namespaces(["SMALL"])
        };
        world.register("h1", report).unwrap();
        world.run(create(number, None)).unwrap();
        let owned = [(class_name.as_str(), 4)];
        world.run(inventories(number, 0, &owned)).unwrap();
        world.run(traits(number, 1, &["CUSTOM_A"])).unwrap();
        world.run(remove("h1")).unwrap();
        assert_eq!(names(&world), [class_name.clone(), "CUSTOM_A".to_owned()]);
        for command in commands {
            world.run(command.clone()).unwrap();
        }
        assert!(
            names(&world).is_empty(),
            "{:?}: {commands:?}",
            names(&world)
        );
    }
}

/// Goal: a batch that is refused after a provider has lost a name loses nothing.
#[test]
fn a_refused_batch_removes_no_name() {
    let mut world = World::with_hosts(0);
    world.register("h1", with_traits(["CUSTOM_A"])).unwrap();
    world.run(create(1, None)).unwrap();
    world.run(traits(1, 0, &["CUSTOM_A"])).unwrap();
    world.run(remove("h1")).unwrap();
    let writes = vec![delete(1), delete(2)];
    world.run(Command::Batch { writes }).unwrap_err();
    assert_eq!(names(&world), ["CUSTOM_A"]);
}

/// Goal: a report that no guest can use brings no class that nothing has.
#[test]
fn a_class_that_no_provider_gets_is_not_created() {
    let mut world = World::with_hosts(0);
    let report = HostReport {
        driver: "none".to_owned(),
        ..with_namespaces(["SMALL"])
    };
    assert!(!report.runs_guests());
    world.register("h1", report).unwrap();
    assert!(names(&world).is_empty(), "{:?}", names(&world));
}

#[test]
fn before_the_cluster_version_names_stay_and_are_not_limited() {
    let before = ServiceVersion(ServiceVersion::REPORTED_NAMES.0 - 1);
    let mut world = World::at_version(before, 0);
    let many = numbered(0, REPORTED_NAMES_MAX + 1);
    world.register("h1", many).unwrap();
    world.register("h1", with_traits(["CUSTOM_A"])).unwrap();
    let count = REPORTED_NAMES_MAX + 2;
    assert_eq!(names(&world).len(), count);
    let version = ServiceVersion::CURRENT;
    let gone = Default::default();
    world
        .run(Command::FinalizeUpgrade { version, gone })
        .unwrap();
    world.run(remove("h1")).unwrap();
    assert_eq!(names(&world).len(), count, "who created them is not known");
}

#[test]
fn too_many_names_of_a_report_are_refused() {
    let mut world = World::with_hosts(0);
    world
        .register("h1", numbered(0, REPORTED_NAMES_MAX))
        .unwrap();
    let too_many = numbered(1, REPORTED_NAMES_MAX + 1);
    for host in ["h1", "h2"] {
        let refused = world.register(host, too_many.clone()).unwrap_err();
        assert_eq!(refused.reason, "TOO_MANY_REPORTED_NAMES");
        assert_eq!(refused.metadata["host"], host);
        assert!(refused.hint.is_some());
    }
    // Classes and traits count together, and standard traits do not.
    let mut full = numbered(2, REPORTED_NAMES_MAX - 1);
    full.traits.insert(quality("HW_CPU_X86_AVX"));
    full.topology = with_namespaces(["SMALL", "SMALL"]).topology;
    world.register("h1", full.clone()).unwrap();
    full.topology = with_namespaces(["SMALL", "LARGE"]).topology;
    let refused = world.register("h1", full).unwrap_err();
    assert_eq!(refused.reason, "TOO_MANY_REPORTED_NAMES");
}

/// Goal: a host whose new shape is refused keeps the classes of the old one, and cannot add as many
/// traits as if it had none.
#[test]
fn a_refused_shape_does_not_double_the_names() {
    let mut world = World::with_hosts(0);
    let labels: Vec<String> = (0..200).map(|number| format!("L{number}")).collect();
    let report = with_namespaces(labels.iter().map(String::as_str));
    world.register("h1", report).unwrap();
    world.boot("a", &pinned(1), "h1");
    // The CPUs of the guest are shared from now on.
    let mut other = numbered(0, 200);
    other.topology = topology(2, 0, 4).into();
    let refused = world.register("h1", other.clone()).unwrap_err();
    assert_eq!(refused.reason, "TOO_MANY_REPORTED_NAMES");
    other.traits = numbered(0, REPORTED_NAMES_MAX - 200).traits;
    world.register("h1", other).unwrap();
    assert!(world.view("h1").host.shape_refused.is_some());
    assert_eq!(names(&world).len(), REPORTED_NAMES_MAX);
}
