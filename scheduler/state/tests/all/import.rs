//! Providers and consumers that are taken over from another Placement.

use berth_domain::id::{ConsumerId, Generation};
use berth_domain::import::{ConsumerImport, GENERATION_MAX, Origin, ProviderImport};
use berth_domain::refusal::Refusal;
use berth_state::Reply;
use berth_state::command::Command;
use berth_testkit::state::placement::*;
use berth_testkit::state::*;

/// A provider with CPUs as it is elsewhere, at generation 40.
fn import(number: u64, parent: Option<u64>, vcpus: u64) -> ProviderImport {
    ProviderImport {
        id: provider(number),
        name: format!("p{number}"),
        parent: parent.map(provider),
        generation: Generation(40),
        inventories: exact(&[("VCPU", vcpus)]),
        traits: [quality("HW_CPU_X86_AVX2")].into(),
        aggregates: [aggregate(1)].into(),
        seen: None,
    }
}

/// A consumer as it is elsewhere, at generation 7.
fn take(number: u64, allocations: &[(u64, &str, u64)]) -> ConsumerImport {
    let update = update(number, None, allocations);
    ConsumerImport {
        id: update.consumer,
        generation: Generation(7),
        project: update.project,
        user: update.user,
        consumer_type: None,
        allocations: update.allocations,
        seen: None,
    }
}

fn providers(world: &mut World, imports: &[ProviderImport]) -> Result<Reply, Refusal> {
    world.run(Command::ImportProviders {
        source: "elsewhere".to_owned(),
        providers: imports.to_vec(),
    })
}

fn consumers(world: &mut World, imports: &[ConsumerImport]) -> Result<Reply, Refusal> {
    world.run(Command::ImportConsumers {
        source: "elsewhere".to_owned(),
        consumers: imports.to_vec(),
    })
}

fn seen(import: &ProviderImport, generation: u64) -> ProviderImport {
    ProviderImport {
        seen: Some(Generation(generation)),
        ..import.clone()
    }
}

/// Goal: a tree and what is taken from it are here as they are there, generations included, also
/// where more is taken than there is. Method: a child with two CPUs of which a consumer has five.
#[test]
fn what_is_taken_over_is_as_it_was() {
    let mut world = World::default();
    let tree = [import(1, None, 8), import(2, Some(1), 2)];
    providers(&mut world, &tree).unwrap();
    let child = world.state.provider(provider(2)).unwrap().clone();
    assert_eq!(child.root, provider(1));
    let origin = |generation| Origin {
        source: "elsewhere".to_owned(),
        generation: Generation(generation),
    };
    assert_eq!(child.origin, Some(origin(40)));
    consumers(&mut world, &[take(1, &[(2, "VCPU", 5), (1, "VCPU", 1)])]).unwrap();
    assert_eq!((used(&world, 1, "VCPU"), used(&world, 2, "VCPU")), (1, 5));
    assert_eq!((generation(&world, 1), generation(&world, 2)), (40, 40));
    let taken = world.state.consumer(consumer(1)).unwrap();
    assert_eq!(taken.generation, Generation(7));
    assert_eq!(taken.origin, Some(origin(7)));

    // From here on it counts as anything else does, and is still known to be taken over.
    assert_eq!(
        set(&mut world, &[update(1, Some(7), &[(1, "VCPU", 2)])]),
        "ok"
    );
    let taken = world.state.consumer(consumer(1)).unwrap();
    assert_eq!(taken.generation, Generation(8));
    assert_eq!(taken.origin, Some(origin(7)));
    assert_eq!(generation(&world, 1), 41);
    let away = ConsumerImport {
        seen: Some(Generation(8)),
        ..take(1, &[])
    };
    consumers(&mut world, &[away]).unwrap();
    assert_eq!(world.state.consumer(consumer(1)), None);
    assert_eq!(
        generation(&world, 1),
        41,
        "an import is no write of a client"
    );
}

/// Goal: a repetition brings what changed there: a generation that went back among others.
#[test]
fn a_second_import_overwrites_what_the_importer_saw() {
    let mut world = World::default();
    let (root, child) = (import(1, None, 8), import(2, Some(1), 2));
    providers(&mut world, &[root.clone(), child.clone()]).unwrap();
    let created_at = world.state.provider(provider(2)).unwrap().created_at;
    world.now += 5;
    let unseen = providers(&mut world, std::slice::from_ref(&root));
    assert_eq!(reason(&unseen), "PROVIDER_GENERATION");
    let other = ProviderImport {
        name: "other".to_owned(),
        generation: Generation(3),
        parent: None,
        ..seen(&child, 40)
    };
    providers(&mut world, &[other]).unwrap();
    let child = world.state.provider(provider(2)).unwrap();
    assert_eq!((child.generation, child.root), (Generation(3), provider(2)));
    assert_eq!(child.created_at, created_at);
    assert!(child.updated_at > created_at);
}

/// Goal: what is below a provider that is moved knows its new root, however the batch is made up.
/// Method: 3 is below 2 is below 1; then 1 is below 2, and 3 stays below 2.
#[test]
fn a_tree_can_be_turned_upside_down() {
    let mut world = World::default();
    let three = [
        import(1, None, 1),
        import(2, Some(1), 1),
        import(3, Some(2), 1),
    ];
    providers(&mut world, &three).unwrap();
    let turned = [import(2, None, 1), import(1, Some(2), 1)].map(|p| seen(&p, 40));
    providers(&mut world, &turned).unwrap();
    for number in 1..=3 {
        assert_eq!(
            world.state.provider(provider(number)).unwrap().root,
            provider(2)
        );
    }
    let around = [import(2, Some(3), 1)].map(|p| seen(&p, 40));
    assert_eq!(reason(&providers(&mut world, &around)), "PARENT_LOOP");
}

/// One that can be taken over, beside another that cannot.
fn good() -> ProviderImport {
    import(9, None, 1)
}

/// Goal: each refusal of a provider leaves everything as it was, also where others of the batch
/// are good, which [`World::run`] sees to. Method: a table.
#[test]
fn providers_that_cannot_be_are_refused() {
    let mut world = World::with_hosts(1);
    let host = world.view("h1").host.provider;
    providers(&mut world, &[import(1, None, 8)]).unwrap();
    consumers(&mut world, &[take(1, &[(1, "VCPU", 1)])]).unwrap();
    let mut check = |import: ProviderImport, expected: &str| {
        let outcome = providers(&mut world, &[good(), import]);
        assert_eq!(reason(&outcome), expected);
    };
    let new_with = |change: fn(&mut ProviderImport)| {
        let mut new = import(2, None, 1);
        change(&mut new);
        new
    };
    check(
        new_with(|p| p.name = String::new()),
        "INVALID_PROVIDER_NAME",
    );
    check(new_with(|p| p.name = "p1".to_owned()), "DUPLICATE_NAME");
    check(new_with(|p| p.name = "p9".to_owned()), "DUPLICATE_NAME");
    check(new_with(|p| p.name = "h1".to_owned()), "DUPLICATE_NAME");
    check(new_with(|p| p.parent = Some(p.id)), "PARENT_NOT_FOUND");
    check(
        new_with(|p| p.parent = Some(provider(8))),
        "PARENT_NOT_FOUND",
    );
    check(
        new_with(|p| p.generation = Generation(GENERATION_MAX + 1)),
        "INVALID_GENERATION",
    );
    check(
        new_with(|p| p.inventories = exact(&[("VCPU", 0)])),
        "INVALID_INVENTORY",
    );
    check(
        new_with(|p| p.inventories = exact(&[("CUSTOM_NO", 1)])),
        "UNKNOWN_RESOURCE_CLASS",
    );
    check(
        new_with(|p| p.traits = [quality("CUSTOM_NO")].into()),
        "UNKNOWN_TRAIT",
    );
    check(
        new_with(|p| p.seen = Some(Generation(1))),
        "PROVIDER_GENERATION",
    );
    check(good(), "PROVIDER_TWICE");
    let hosts = ProviderImport {
        id: host,
        ..import(2, None, 1)
    };
    check(hosts, "PROVIDER_READ_ONLY");
    let emptied = ProviderImport {
        inventories: exact(&[]),
        ..seen(&import(1, None, 8), 40)
    };
    check(emptied, "INVENTORY_IN_USE");
    let nameless = Command::ImportProviders {
        source: String::new(),
        providers: Vec::new(),
    };
    assert_eq!(reason(&world.run(nameless)), "INVALID_SOURCE");
}

/// Goal: as above, for consumers.
#[test]
fn consumers_that_cannot_be_are_refused() {
    let mut world = World::with_hosts(1);
    world.boot("a", &pinned(1), "h1");
    let claim = world.state.vm(&vm_name("a")).unwrap().claim.unwrap();
    let host = world.view("h1").host.provider;
    providers(&mut world, &[import(1, None, 8)]).unwrap();
    let mut check = |import: ConsumerImport, expected: &str| {
        let outcome = consumers(&mut world, &[take(9, &[(1, "VCPU", 1)]), import]);
        assert_eq!(reason(&outcome), expected);
    };
    check(take(2, &[(8, "VCPU", 1)]), "PROVIDER_NOT_FOUND");
    check(take(2, &[(1, "DISK_GB", 1)]), "NO_INVENTORY");
    check(take(2, &[(1, "VCPU", 0)]), "INVALID_ALLOCATION");
    check(take(2, &[(1, "VCPU", u64::MAX)]), "INVALID_ALLOCATION");
    check(take(9, &[(1, "VCPU", 1)]), "CONSUMER_TWICE");
    let mut it = take(2, &[(1, "VCPU", 1)]);
    it.seen = Some(Generation(3));
    check(it.clone(), "CONSUMER_GENERATION");
    it.seen = None;
    it.project = "p".repeat(256);
    check(it.clone(), "INVALID_OWNER");
    it.project = "p".to_owned();
    it.id = ConsumerId(claim.0);
    check(it.clone(), "CONSUMER_READ_ONLY");
    it.id = consumer(2);
    it.allocations = [(host, [(class("VCPU"), 1)].into())].into();
    check(it, "PROVIDER_READ_ONLY");
}
