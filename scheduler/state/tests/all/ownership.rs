//! Goal: what is created records its project and its creator, once and only from the cluster version on
//! that has them, and the project of a VM is that of its operations and of its claims.

use berth_domain::name::ServerGroupName;
use berth_domain::ownership::{Ownership, ProjectName};
use berth_domain::refusal::Refusal;
use berth_domain::server_group::{GroupPolicy, ServerGroup};
use berth_domain::version::ServiceVersion;
use berth_domain::volume::Volume;
use berth_state::command::Command;
use berth_state::placement::{CLAIM_CONSUMER_TYPE, ConsumerTypes};
use berth_state::{Reply, State};
use berth_testkit::state::*;

const PRINCIPAL: &str = "unverified:test";

fn owned(project: Option<&str>) -> Ownership {
    Ownership {
        project: project.map(project_name),
        creator: String::new(),
    }
}

/// Begins to boot a VM in a project.
fn begin_boot(world: &mut World, vm: &str, project: Option<ProjectName>) -> Result<Reply, Refusal> {
    let mut sketch = world.clone();
    sketch.begin_boot(vm, &pinned(1), "h1").unwrap();
    let (_, mut command) = sketch.executed.pop().unwrap();
    world.ids = sketch.ids;
    if let Command::BeginBoot { project: named, .. } = &mut command {
        *named = project;
    }
    world.run(command)
}

/// Creates one record of each kind in a project, and returns what each has recorded.
fn create_each(world: &mut World, project: Option<&str>) -> Vec<Ownership> {
    let word = project.unwrap_or("none");
    let mut flavor = flavor(&format!("f-{word}"), 1, 64, &[]);
    flavor.ownership = owned(project);
    // The creator is no choice of the client.
    flavor.ownership.creator = "operator:eve".to_owned();
    let name = ServerGroupName::new(&format!("g-{word}")).unwrap();
    let mut group = ServerGroup::new(name, GroupPolicy::AntiAffinity, None).unwrap();
    group.ownership = owned(project);
    world.run(Command::CreateFlavor(flavor.clone())).unwrap();
    world
        .run(Command::CreateServerGroup(group.clone()))
        .unwrap();
    let vm = format!("vm-{word}");
    begin_boot(world, &vm, project.map(project_name)).unwrap();
    let state = &world.state;
    let vm = state.vm(&vm_name(&vm)).unwrap();
    let operation = state.operation(vm.operation.unwrap()).unwrap();
    vec![
        state.flavor(&flavor.name).unwrap().ownership.clone(),
        state.server_group(&group.name).unwrap().ownership.clone(),
        vm.ownership.clone(),
        operation.ownership.clone(),
    ]
}

#[test]
fn each_record_has_its_project_and_its_creator() {
    let mut world = World::with_hosts(1);
    for (project, expected) in [(Some("web"), "web"), (None, "default")] {
        for recorded in create_each(&mut world, project) {
            assert_eq!(recorded.project_name(), expected);
            assert!(recorded.project.is_some());
            assert_eq!(recorded.creator, PRINCIPAL);
        }
    }
    // An operation on a VM belongs to the VM's project, and to its requester.
    world.boot("other", &pinned(1), "h1");
    let operation = operation_id(world.fresh());
    let lease = world.lease();
    let vm = vm_name("other");
    world
        .run(Command::BeginDelete {
            operation,
            vm,
            lease,
        })
        .unwrap();
    let operation = world.state.operation(operation).unwrap();
    assert_eq!(operation.ownership.project_name(), "default");
    assert_eq!(operation.ownership.creator, PRINCIPAL);
}

/// Goal: an older member never reads what it does not know. After `finalize` new records have both, and
/// the older ones stay as they are.
#[test]
fn nothing_is_recorded_before_the_cluster_version_that_has_it() {
    let before = ServiceVersion(ServiceVersion::OWNERSHIP.0 - 1);
    let mut world = World::at_version(before, 1);
    for recorded in create_each(&mut world, Some("web")) {
        assert_eq!(recorded, Ownership::default());
        assert_eq!(recorded.project_name(), "default");
    }
    let gone = std::collections::BTreeSet::new();
    let version = ServiceVersion::OWNERSHIP;
    let finalize = Command::FinalizeUpgrade { version, gone };
    world.run(finalize).unwrap();
    let recorded = create_each(&mut world, None);
    assert!(recorded.iter().all(|one| one.creator == PRINCIPAL));
    let old = world.state.vm(&vm_name("vm-web")).unwrap();
    assert_eq!(old.ownership, Ownership::default());
    assert_eq!(State::from_rows(world.state.rows()).unwrap(), world.state);
}

/// Goal: a volume keeps its project through all of its life.
#[test]
fn a_volume_records_its_project() {
    let commands = by_hand::commands();
    let volume = commands.iter().find_map(|command| {
        let Command::CreateVolume { volume, .. } = command else {
            return None;
        };
        Some((**volume).clone())
    });
    let volume = volume.expect("there is one");
    let is_its_host = |command: &&Command| matches!(command, Command::RegisterHost { host, .. } if *host == volume.replicas[0].host);
    let host = commands.iter().find(is_its_host).expect("there is one");
    let mut world = World::with_hosts(0);
    world.run(host.clone()).unwrap();
    let command = Command::CreateVolume {
        volume: Box::new(Volume {
            ownership: owned(Some("web")),
            ..volume.clone()
        }),
        limit_bytes: 0,
    };
    world.run(command).unwrap();
    let made = world.state.volume(&volume.id).unwrap().ownership.clone();
    assert_eq!(made, Ownership::new(Some(&project_name("web")), PRINCIPAL));
    let command = Command::DeleteVolume {
        volume: volume.id.clone(),
        generation: None,
        forget: false,
    };
    world.run(command).unwrap();
    assert_eq!(world.state.volume(&volume.id).unwrap().ownership, made);
}

/// Goal: what the VMs of a project hold is its usage, under the type of claims, and the VMs of a project
/// are found without a look at those of others.
#[test]
fn the_claims_of_vms_count_to_their_project() {
    let mut world = World::with_hosts(1);
    for (vm, project) in [("a", Some("web")), ("b", Some("web")), ("c", None)] {
        begin_boot(&mut world, vm, project.map(project_name)).unwrap();
    }
    let usage = |project: &str, user: Option<&str>, types: &ConsumerTypes| {
        let usages = world.state.usages(project, user, types);
        let counts = usages.into_iter().map(|(of, usage)| {
            assert_eq!(of.unwrap().as_str(), CLAIM_CONSUMER_TYPE);
            assert_eq!(usage.resources.values().sum::<u64>() % usage.consumers, 0);
            assert!(!usage.resources.is_empty());
            usage.consumers
        });
        counts.sum::<u64>()
    };
    let every = ConsumerTypes::Every;
    assert_eq!(usage("web", None, &every), 2);
    assert_eq!(usage("web", Some("b"), &every), 1);
    assert_eq!(usage("web", Some("c"), &every), 0);
    assert_eq!(usage("default", None, &every), 1);
    assert_eq!(usage("default", None, &ConsumerTypes::Unknown), 0);
    assert_eq!(usage("other", None, &every), 0);
    let vms = world.state.vms_of_project("web").unwrap();
    assert_eq!(
        vms.iter().map(|vm| vm.as_str()).collect::<Vec<_>>(),
        ["a", "b"]
    );
    assert!(world.state.vms_of_project("other").is_none());
}
