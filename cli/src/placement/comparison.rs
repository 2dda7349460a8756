//! The comparison of both sides. Pure.
//!
//! Everything that the source holds must be here as it is there, and nothing more that came from
//! there. Berth's own records (hosts, claims, what clients created here) are counted, and are no
//! difference.

use std::collections::BTreeMap;
use std::fmt::Display;

use berth_domain::id::{ConsumerId, ProviderId};
use serde::Serialize;

use super::world::{Consumer, Here, Provider, World};

/// The value of things that only exist or not.
const THERE: &str = "there";

/// Both sides, compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// How many of each kind there are.
    pub kinds: Vec<Tally>,
    /// How many differences there are.
    pub count: usize,
    /// The first of them.
    pub differences: Vec<Difference>,
    #[serde(skip)]
    listed_max: usize,
}

/// The counts of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// What.
    pub kind: &'static str,
    /// How many the source has.
    pub source: usize,
    /// How many of those are here as they are there.
    pub same: usize,
    /// How many are here, but otherwise.
    pub different: usize,
    /// How many are not here.
    pub missing: usize,
    /// How many are here and came from the source, but are not there any more.
    pub left_over: usize,
    /// How many are here and have nothing to do with the source.
    pub own: usize,
}

/// One thing that is not the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Of which kind.
    pub kind: &'static str,
    /// What.
    pub item: String,
    /// The value at the source; absent if it does not exist there.
    pub source: Option<String>,
    /// The value here; absent if it does not exist here.
    pub here: Option<String>,
}

/// Compares both sides and lists at most so many differences of each kind.
#[must_use]
pub fn compare(there: &World, here: &Here, source: &str, listed_max: usize) -> Comparison {
    let mut all = Comparison {
        kinds: Vec::new(),
        count: 0,
        differences: Vec::new(),
        listed_max,
    };
    let names = |names: &mut dyn Iterator<Item = String>| -> BTreeMap<String, String> {
        names.map(|name| (name, THERE.to_owned())).collect()
    };
    // A name has no origin: one that only Berth has counts as its own.
    let relation = |_: &String| Relation::Own;
    let classes = [&there.classes, &here.world.classes];
    let [a, b] = classes.map(|all| names(&mut all.iter().map(ToString::to_string)));
    all.tally("custom classes", [&a, &b], relation);
    let traits = [&there.traits, &here.world.traits];
    let [a, b] = traits.map(|all| names(&mut all.iter().map(ToString::to_string)));
    all.tally("custom traits", [&a, &b], relation);
    all.providers(there, here, source);
    all.consumers(there, here, source);
    all
}

impl Comparison {
    /// Returns whether both sides are the same.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.count == 0
    }

    fn providers(&mut self, there: &World, here: &Here, source: &str) {
        let sides = [&there.providers, &here.world.providers];
        let from_source = |id: &ProviderId| {
            let origin = here.provider_origins.get(id);
            origin.is_some_and(|origin| origin.source == source)
        };
        let place = |p: &Provider| {
            let parent = p
                .parent
                .map_or("no provider".to_owned(), |id| id.to_string());
            vec![(String::new(), format!("{}, below {parent}", p.name))]
        };
        self.compare_parts("providers", sides, from_source, place);
        let generation = |p: &Provider| vec![(String::new(), p.generation.to_string())];
        self.compare_parts("provider generations", sides, from_source, generation);
        self.compare_parts("inventories", sides, from_source, inventories);
        self.compare_parts("provider traits", sides, from_source, traits);
        self.compare_parts("aggregate members", sides, from_source, aggregates);
    }

    fn consumers(&mut self, there: &World, here: &Here, source: &str) {
        let sides = [&there.consumers, &here.world.consumers];
        let from_source = |id: &ConsumerId| {
            let origin = here.consumer_origins.get(id);
            origin.is_some_and(|origin| origin.source == source)
        };
        let owner = |c: &Consumer| {
            let kind = c.consumer_type.as_ref();
            let kind = kind.map_or("no type".to_owned(), ToString::to_string);
            let owner = format!("{kind} of project {}, user {}", c.project, c.user);
            vec![(String::new(), owner)]
        };
        self.compare_parts("consumers", sides, from_source, owner);
        let generation = |c: &Consumer| vec![(String::new(), c.generation.to_string())];
        self.compare_parts("consumer generations", sides, from_source, generation);
        self.compare_parts("allocations", sides, from_source, allocations);
    }

    /// Compares the parts of one aspect of things that have an id. Where the thing itself is on one
    /// side only, that is the difference, and its parts are none of their own.
    fn compare_parts<K: Ord + Copy + Display, V>(
        &mut self,
        kind: &'static str,
        [there, here]: [&BTreeMap<K, V>; 2],
        from_source: impl Fn(&K) -> bool,
        parts: impl Fn(&V) -> Vec<(String, String)>,
    ) {
        let first = IDENTITY_KINDS.contains(&kind);
        let sides = [there, here].map(|all| {
            let each = all.iter().flat_map(|(id, it)| {
                let parts = parts(it).into_iter();
                parts.map(|(part, value)| (Part(*id, part), value))
            });
            each.collect::<BTreeMap<_, _>>()
        });
        let relation = |Part(id, _): &Part<K>| match (there.contains_key(id), here.contains_key(id))
        {
            (true, true) => Relation::Compared,
            (false, true) if !from_source(id) => Relation::Own,
            (true | false, true | false) if first => Relation::Compared,
            (true | false, true | false) => Relation::Implied,
        };
        self.tally(kind, [&sides[0], &sides[1]], relation);
    }

    fn tally<K: Ord + Display>(
        &mut self,
        kind: &'static str,
        [there, here]: [&BTreeMap<K, String>; 2],
        relation: impl Fn(&K) -> Relation,
    ) {
        let mut tally = Tally {
            kind,
            source: there.len(),
            ..Tally::default()
        };
        let mut differences = Vec::new();
        let mut differs = |key: &K, source: Option<&String>, here: Option<&String>| {
            if relation(key) == Relation::Implied {
                return;
            }
            self.count += 1;
            if differences.len() < self.listed_max {
                differences.push(Difference {
                    kind,
                    item: key.to_string(),
                    source: source.cloned(),
                    here: here.cloned(),
                });
            }
        };
        for (key, value) in there {
            match here.get(key) {
                Some(other) if other == value => tally.same += 1,
                Some(other) => {
                    tally.different += 1;
                    differs(key, Some(value), Some(other));
                }
                None => {
                    tally.missing += 1;
                    differs(key, Some(value), None);
                }
            }
        }
        for (key, value) in here.iter().filter(|(key, _)| !there.contains_key(key)) {
            if relation(key) == Relation::Own {
                tally.own += 1;
                continue;
            }
            tally.left_over += 1;
            differs(key, None, Some(value));
        }
        self.kinds.push(tally);
        self.differences.append(&mut differences);
    }
}

/// The aspects that show whether a thing exists at all.
const IDENTITY_KINDS: [&str; 2] = ["providers", "consumers"];

/// The meaning of a difference of a part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Relation {
    /// It is one.
    Compared,
    /// The thing itself is on one side only, which is counted already.
    Implied,
    /// It is Berth's own, and none.
    Own,
}

/// A part of a thing; one without a name is the thing itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Part<K>(K, String);

impl<K: Display> Display for Part<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &*self.1 {
            "" => self.0.fmt(f),
            part => write!(f, "{} {part}", self.0),
        }
    }
}

fn inventories(provider: &Provider) -> Vec<(String, String)> {
    let each = provider.inventories.iter();
    each.map(|(class, it)| {
        let value = format!(
            "total {}, reserved {}, {} to {} by {}, ratio {}",
            it.total, it.reserved, it.min_unit, it.max_unit, it.step_size, it.allocation_ratio
        );
        (class.to_string(), value)
    })
    .collect()
}

fn traits(provider: &Provider) -> Vec<(String, String)> {
    let each = provider.traits.iter();
    each.map(|name| (name.to_string(), THERE.to_owned()))
        .collect()
}

fn aggregates(provider: &Provider) -> Vec<(String, String)> {
    let each = provider.aggregates.iter();
    each.map(|id| (id.to_string(), THERE.to_owned())).collect()
}

fn allocations(consumer: &Consumer) -> Vec<(String, String)> {
    let each = consumer.allocations.iter();
    each.flat_map(|(provider, resources)| {
        let each = resources.iter();
        each.map(move |(class, n)| (format!("{class} of {provider}"), n.to_string()))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use berth_domain::id::Generation;
    use berth_domain::import::Origin;
    use berth_domain::inventory::Inventory;
    use berth_domain::resource::ResourceClass;
    use uuid::Uuid;

    use super::*;

    fn id(number: u128) -> ProviderId {
        ProviderId(Uuid::from_u128(number))
    }

    fn provider(name: &str, vcpus: u64) -> Provider {
        let class = ResourceClass::new("VCPU").unwrap();
        Provider {
            name: name.to_owned(),
            parent: None,
            generation: Generation(1),
            inventories: [(class, Inventory::exact(vcpus))].into(),
            traits: Default::default(),
            aggregates: Default::default(),
        }
    }

    /// Goal: a thing that is on one side only is one difference and not one for each of its parts;
    /// what is Berth's own is none. Method: one provider of each fate.
    #[test]
    fn each_difference_is_listed_once() {
        let mut there = World::default();
        for (number, vcpus) in [(1, 8), (2, 8), (3, 8)] {
            let it = provider(&format!("p{number}"), vcpus);
            there.providers.insert(id(number), it);
        }
        let mut here = Here::default();
        // The same; other inventories; (not here); left over; its own.
        for (number, vcpus) in [(1, 8), (2, 9), (4, 8), (5, 8)] {
            let it = provider(&format!("p{number}"), vcpus);
            here.world.providers.insert(id(number), it);
        }
        for number in [1, 2, 4] {
            let origin = Origin {
                source: "elsewhere".to_owned(),
                generation: Generation(1),
            };
            here.provider_origins.insert(id(number), origin);
        }
        let all = compare(&there, &here, "elsewhere", 10);
        let listed: Vec<_> = all
            .differences
            .iter()
            .map(|d| (d.kind, d.source.is_some(), d.here.is_some()))
            .collect();
        let expected = [
            ("providers", true, false),
            ("providers", false, true),
            ("inventories", true, true),
        ];
        assert_eq!((all.count, &listed[..]), (3, &expected[..]));
        let inventories = all.kinds.iter().find(|k| k.kind == "inventories").unwrap();
        let expected = Tally {
            kind: "inventories",
            source: 3,
            same: 1,
            different: 1,
            missing: 1,
            left_over: 1,
            own: 1,
        };
        assert_eq!(*inventories, expected);
        assert!(
            compare(&there, &here, "elsewhere", 0)
                .differences
                .is_empty()
        );
    }
}
