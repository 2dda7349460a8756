//! What an import plans to do. Method: small worlds, and the part of the plan that they are about.

use berth_cli::placement::plan::{ImportOptions, Plan, plan};
use berth_cli::placement::world::{Consumer, Here, Provider, World};
use berth_domain::id::{ConsumerId, Generation, ProviderId};
use berth_domain::import::Origin;
use berth_domain::inventory::Inventory;
use berth_domain::name::HostName;
use berth_domain::resource::{ResourceClass, Trait};
use uuid::Uuid;

fn id(number: u128) -> ProviderId {
    ProviderId(Uuid::from_u128(number))
}

fn who(number: u128) -> ConsumerId {
    ConsumerId(Uuid::from_u128(number))
}

fn class(name: &str) -> ResourceClass {
    ResourceClass::new(name).unwrap()
}

/// A provider with these classes, at generation 3.
fn provider(name: &str, parent: Option<u128>, classes: &[&str]) -> Provider {
    let inventories = classes.iter().map(|c| (class(c), Inventory::exact(8)));
    Provider {
        name: name.to_owned(),
        parent: parent.map(id),
        generation: Generation(3),
        inventories: inventories.collect(),
        traits: Default::default(),
        aggregates: Default::default(),
    }
}

/// A consumer of one unit, at generation 2.
fn consumer(from: u128, of: &str) -> Consumer {
    Consumer {
        generation: Generation(2),
        project: "p".to_owned(),
        user: "u".to_owned(),
        consumer_type: None,
        allocations: [(id(from), [(class(of), 1)].into())].into(),
    }
}

fn world(providers: &[(u128, Provider)], consumers: &[(u128, Consumer)]) -> World {
    World {
        providers: providers.iter().map(|(n, p)| (id(*n), p.clone())).collect(),
        consumers: consumers
            .iter()
            .map(|(n, c)| (who(*n), c.clone()))
            .collect(),
        ..World::default()
    }
}

/// What Berth holds when all of a world was taken over.
fn taken_over(world: World) -> Here {
    let origin = |generation| Origin {
        source: "there".to_owned(),
        generation,
    };
    let providers = world.providers.iter();
    let consumers = world.consumers.iter();
    Here {
        standard_classes: ["VCPU", "DISK_GB"].map(class).into(),
        provider_origins: providers
            .map(|(id, p)| (*id, origin(p.generation)))
            .collect(),
        consumer_origins: consumers
            .map(|(id, c)| (*id, origin(c.generation)))
            .collect(),
        world,
        ..Here::default()
    }
}

fn with(delete: bool, overwrite: bool) -> ImportOptions {
    ImportOptions {
        source: "there".to_owned(),
        overwrite,
        delete,
    }
}

fn reasons(plan: &Plan) -> Vec<&str> {
    plan.conflicts.iter().map(|c| c.reason).collect()
}

fn written(plan: &Plan) -> Vec<u128> {
    plan.providers.iter().map(|p| p.id.0.as_u128()).collect()
}

#[test]
fn parents_come_first_and_nothing_is_done_twice() {
    let there = world(
        &[
            (1, provider("c", Some(2), &["VCPU"])),
            (2, provider("b", Some(3), &[])),
            (3, provider("a", None, &[])),
        ],
        &[(9, consumer(1, "VCPU"))],
    );
    let all = plan(&there, &taken_over(World::default()), &with(false, false));
    assert_eq!((written(&all), all.consumers.len()), (vec![3, 2, 1], 1));
    assert_eq!(reasons(&all), [""; 0]);
    assert!(all.consumers[0].seen.is_none());
    let again = plan(&there, &taken_over(there.clone()), &with(true, true));
    assert!(again.is_empty());
    assert_eq!((again.same, again.new), ((3, 1), (0, 0)));
}

/// Goal: only what an import from this source made, and what has not changed since, is overwritten; the
/// caller can allow more. Method: a change there, and each state here.
#[test]
fn what_others_own_is_left_alone() {
    let before = world(
        &[(1, provider("a", None, &["VCPU"]))],
        &[(9, consumer(1, "VCPU"))],
    );
    let mut there = before.clone();
    for provider in there.providers.values_mut() {
        provider.generation = Generation(5);
    }
    for consumer in there.consumers.values_mut() {
        consumer.generation = Generation(5);
    }
    let check = |change: fn(&mut Here), expected: &[&str]| {
        let mut here = taken_over(before.clone());
        change(&mut here);
        let careful = plan(&there, &here, &with(false, false));
        assert_eq!(reasons(&careful), expected);
        let done = careful.providers.len() + careful.consumers.len();
        assert_eq!(done, 2 - expected.len());
        assert_eq!(plan(&there, &here, &with(false, true)).providers.len(), 1);
    };
    check(|_| {}, &[]);
    check(|here| here.provider_origins.clear(), &["NOT_IMPORTED"]);
    check(
        |here| here.provider_origins.get_mut(&id(1)).unwrap().source = "other".to_owned(),
        &["OTHER_SOURCE"],
    );
    check(
        |here| {
            here.world.providers.get_mut(&id(1)).unwrap().generation = Generation(4);
            here.world.consumers.get_mut(&who(9)).unwrap().generation = Generation(3);
        },
        &["CHANGED_HERE", "CHANGED_HERE"],
    );
}

#[test]
fn what_cannot_be_leaves_out_what_needs_it() {
    let there = world(
        &[
            (1, provider("taken", None, &["VCPU"])),
            (2, provider("below", Some(1), &["VCPU"])),
            (3, provider("new kind", None, &["QCPU"])),
            (4, provider("host", None, &["VCPU"])),
            (5, provider("good", None, &["VCPU"])),
        ],
        &[
            (9, consumer(2, "VCPU")),
            (8, consumer(4, "VCPU")),
            (7, consumer(5, "VCPU")),
        ],
    );
    let here = world(
        &[
            (6, provider("taken", None, &[])),
            (4, provider("host", None, &[])),
        ],
        &[],
    );
    let mut here = Here {
        hosts: [(id(4), HostName::new("host").unwrap())].into(),
        ..taken_over(here)
    };
    here.provider_origins.clear();
    let all = plan(&there, &here, &with(true, true));
    let mut reasons_given = reasons(&all);
    reasons_given.sort_unstable();
    let expected = [
        "NAME_TAKEN",
        "PARENT_LEFT_OUT",
        "PROVIDER_LEFT_OUT",
        "PROVIDER_LEFT_OUT",
        "PROVIDER_READ_ONLY",
        "UNKNOWN_NAME",
    ];
    // --overwrite takes no name away from what the source knows nothing of.
    assert_eq!(reasons_given, expected);
    assert_eq!((written(&all), all.consumers.len()), (vec![5], 1));
}

#[test]
fn names_are_exchanged_by_giving_them_up_first() {
    let before = world(
        &[(1, provider("a", None, &[])), (2, provider("b", None, &[]))],
        &[],
    );
    let there = world(
        &[(1, provider("b", None, &[])), (2, provider("a", None, &[]))],
        &[],
    );
    let all = plan(&there, &taken_over(before.clone()), &with(false, false));
    assert_eq!(
        (&all.nameless[..], written(&all)),
        (&[id(2), id(1)][..], vec![1, 2])
    );
    // A name of what no longer exists there is free only if that is deleted here.
    let there = world(
        &[(3, provider("a", None, &[])), (2, provider("b", None, &[]))],
        &[],
    );
    let kept = plan(&there, &taken_over(before.clone()), &with(false, false));
    assert_eq!((reasons(&kept), kept.kept), (vec!["NAME_TAKEN"], (1, 0)));
    let all = plan(&there, &taken_over(before), &with(true, false));
    assert_eq!(
        (&all.nameless[..], &all.gone[..]),
        (&[id(1)][..], &[id(1)][..])
    );
}

/// Goal: a class can be removed from a provider together with its allocations. Method: the consumer moves
/// to another class; the provider is written twice.
#[test]
fn inventories_stay_until_no_consumer_takes_from_them() {
    let before = world(
        &[(1, provider("a", None, &["VCPU"]))],
        &[(9, consumer(1, "VCPU"))],
    );
    let mut there = world(
        &[(1, provider("a", None, &["DISK_GB"]))],
        &[(9, consumer(1, "DISK_GB"))],
    );
    there.providers.get_mut(&id(1)).unwrap().generation = Generation(6);
    let all = plan(&there, &taken_over(before), &with(false, false));
    let classes = |at: usize, of: &Plan| {
        let import = [&of.providers[0], &of.finally[0]][at];
        (import.seen, import.inventories.len())
    };
    assert_eq!(classes(0, &all), (Some(Generation(3)), 2));
    assert_eq!(classes(1, &all), (Some(Generation(6)), 1));
}

#[test]
fn what_is_gone_goes_leaves_first_and_only_if_it_is_unchanged() {
    let before = world(
        &[
            (1, provider("a", None, &["VCPU"])),
            (2, provider("b", Some(1), &["VCPU"])),
            (3, provider("c", None, &["VCPU"])),
        ],
        &[(9, consumer(2, "VCPU"))],
    );
    let mut here = taken_over(before);
    here.world.providers.get_mut(&id(3)).unwrap().generation = Generation(4);
    let there = World::default();
    let kept = plan(&there, &here, &with(false, false));
    assert!(kept.is_empty());
    assert_eq!(kept.kept, (3, 1));
    let all = plan(&there, &here, &with(true, false));
    assert_eq!((&all.gone[..], all.leaving()), (&[id(2), id(1)][..], 1));
    assert_eq!(reasons(&all), ["CHANGED_HERE"]);
    // What another source brought is not this one's to take away.
    let elsewhere = ImportOptions {
        source: "elsewhere".to_owned(),
        ..with(true, true)
    };
    assert!(plan(&there, &here, &elsewhere).is_empty());
}

#[test]
fn custom_names_are_made_once() {
    let there = World {
        classes: [class("CUSTOM_A"), class("CUSTOM_B")].into(),
        traits: [Trait::new("CUSTOM_T").unwrap()].into(),
        ..World::default()
    };
    let mut here = taken_over(World::default());
    here.world.classes.insert(class("CUSTOM_A"));
    let all = plan(&there, &here, &with(false, false));
    assert_eq!(all.classes, [class("CUSTOM_B")]);
    assert_eq!(all.traits.len(), 1);
}
