//! Goal: the 20 components are htools', and the sums follow every change. Method: a slow second
//! computation straight from the lines of the text, by the formulas and nothing of the model; the
//! installed `hbal`, where there is one; and random moves, after which the sums are compared with
//! a computation from scratch.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use berth_ganeti::model::{Cluster, Move, NodeIndex, Options, RatioSource, Rules, Status};
use berth_ganeti::score::{COMPONENTS, Score, Totals};
use berth_ganeti::text::{Document, NodeRole, PolicyOwner, parse};
use common::{Random, random_text, samples};

/// As released htools: no memory ratio.
fn released() -> Options {
    Options {
        rules: Rules {
            ratio: RatioSource::Ignored,
            ..Rules::default()
        },
        ..Options::default()
    }
}

fn prefixes(document: &Document, kind: &str, colon: &str) -> Vec<String> {
    let tags = document.tags.iter().filter_map(|t| t.strip_prefix(kind));
    tags.filter(|t| !t.is_empty())
        .map(|t| format!("{t}{colon}"))
        .collect()
}

fn chosen(tags: &[String], prefixes: &[String]) -> Vec<String> {
    let has = |tag: &&String| prefixes.iter().any(|p| tag.starts_with(p.as_str()));
    tags.iter().filter(has).cloned().collect()
}

/// Computes the components from the lines alone.
fn naively(document: &Document) -> [f64; 20] {
    let exclusion = prefixes(document, "htools:iextags:", "");
    let desired = prefixes(document, "htools:desiredlocation:", "");
    let location = prefixes(document, "htools:nlocation:", ":");
    let mut columns: Vec<Vec<f64>> = vec![Vec::new(); 13];
    let mut result = [0.0; 20];
    let mut pairs: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (at, node) in document.nodes.iter().enumerate() {
        let primaries: Vec<_> = document
            .instances
            .iter()
            .filter(|i| i.primary == at)
            .collect();
        let secondaries: Vec<_> = document
            .instances
            .iter()
            .filter(|i| i.secondary == Some(at))
            .collect();
        let real = |list: &[&berth_ganeti::text::InstanceLine]| {
            list.iter().filter(|i| !i.forthcoming).count() as f64
        };
        let (here, copies) = (real(&primaries), real(&secondaries));
        if node.unknown || node.role == NodeRole::Offline {
            result[4] += here + copies;
            result[5] += here;
            continue;
        }
        let policy = document.policies.iter().rev();
        let mut policy = policy.filter(|(o, _)| *o == PolicyOwner::Group(node.group));
        let spindle_ratio = policy.next().map_or(32.0, |(_, p)| p.spindle_ratio);
        let down = |status| {
            use Status::{AdminDown, AdminOffline, ErrorDown, UserDown};
            [AdminDown, AdminOffline, ErrorDown, UserDown].contains(&status)
        };
        let off = |i: &berth_ganeti::text::InstanceLine| i.status == Status::AdminOffline;
        let local = |i: &berth_ganeti::text::InstanceLine| {
            ["drbd", "plain"].contains(&i.disk_template.word())
        };
        let total = node.total_memory;
        let runs = primaries
            .iter()
            .filter(|i| !i.forthcoming && !down(i.status));
        let recorded = total as i64 - node.node_memory - runs.map(|i| i.memory).sum::<i64>();
        let unallocated = recorded - (recorded - node.free_memory).max(0);
        let mut peers: BTreeMap<usize, i64> = BTreeMap::new();
        for i in secondaries
            .iter()
            .filter(|i| i.auto_balance && !off(i) && !i.forthcoming)
        {
            *peers.entry(i.primary).or_default() += i.memory;
        }
        let reserved = peers.values().copied().max().unwrap_or(0);
        if node.free_memory < reserved {
            result[2] += here + copies;
        }
        let idle = primaries.iter().filter(|i| i.forthcoming || down(i.status));
        let promised = node.free_memory - idle.map(|i| i.memory).sum::<i64>();
        let both = || primaries.iter().chain(&secondaries);
        let promised_disk: i64 = both()
            .filter(|i| i.forthcoming && local(i))
            .map(|i| i.disk)
            .sum();
        let cpus = |all: bool| {
            let counted = primaries
                .iter()
                .filter(|i| !off(i) && (all || !i.forthcoming));
            let used = node.node_cpus + counted.map(|i| i.vcpus).sum::<i64>();
            used as f64 / node.total_cpus / node.cpu_speed
        };
        let spindles = |all: bool| {
            let counted = both().filter(|i| local(i) && (all || !i.forthcoming));
            let used: i64 = counted.map(|i| i.spindle_use).sum();
            let used = if node.exclusive_storage { 0 } else { used };
            used as f64 / (spindle_ratio * node.spindles as f64)
        };
        let disk = |promised: i64| {
            if node.exclusive_storage {
                return node.free_spindles as f64 / node.spindles as f64;
            }
            (node.free_disk - promised) as f64 / node.total_disk
        };
        let row = [
            unallocated as f64 / total,
            disk(0),
            reserved as f64 / total,
            cpus(false),
            here,
            here,
            here + copies,
            here,
            spindles(false),
            promised as f64 / total,
            disk(promised_disk),
            cpus(true),
            spindles(true),
        ];
        for (column, value) in columns.iter_mut().zip(row) {
            column.push(value);
        }
        let mut tags: BTreeMap<String, usize> = BTreeMap::new();
        let domains: BTreeSet<String> = chosen(&node.tags, &location).into_iter().collect();
        for i in &primaries {
            for tag in chosen(&i.tags, &exclusion) {
                *tags.entry(tag.clone()).or_default() += 1;
                for domain in domains.iter().filter(|_| !i.forthcoming) {
                    *pairs.entry((domain.clone(), tag.clone())).or_default() += 1;
                }
            }
            if i.forthcoming {
                continue;
            }
            let wished: BTreeSet<String> = chosen(&i.tags, &desired).into_iter().collect();
            result[17] += wished.difference(&domains).count() as f64;
            if let Some(other) = i.secondary {
                let there = chosen(&document.nodes[other].tags, &location);
                result[17] += there.iter().filter(|d| domains.contains(*d)).count() as f64;
            }
        }
        result[11] += (tags.values().sum::<usize>() - tags.len()) as f64;
        result[19] += reserved as f64 / total;
    }
    result[18] = (pairs.values().sum::<usize>() - pairs.len()) as f64;
    let at = [0, 1, 3, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16];
    for (component, column) in at.iter().zip(columns) {
        let count = column.len() as f64;
        let mean = column.iter().sum::<f64>() / count;
        let square = column.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count;
        result[*component] = square.sqrt();
    }
    result
}

fn compare(name: &str, text: &str, expected: &[f64; 20], tolerance: f64) {
    let document = parse(text).unwrap_or_else(|e| panic!("{name}: {e}"));
    let score = Score::new(&Cluster::new(&document, &released()), None);
    for (at, (component, _)) in COMPONENTS.iter().enumerate() {
        let (found, expected) = (score.components[at], expected[at]);
        let same = (found - expected).abs() < tolerance || found.is_nan() && expected.is_nan();
        assert!(
            same,
            "{name}: {component} is {found}, and should be {expected}\n{text}"
        );
    }
}

#[test]
fn every_component_is_that_of_the_slow_computation() {
    for (name, text) in samples() {
        compare(&name, &text, &naively(&parse(&text).unwrap()), 1e-9);
    }
    for seed in 0..1_000 {
        let text = random_text(seed);
        let expected = naively(&parse(&text).unwrap());
        compare(&format!("seed {seed}"), &text, &expected, 1e-9);
    }
}

#[test]
fn every_component_is_that_of_the_installed_hbal() {
    let Some(hbal) = common::hbal() else { return };
    let mut texts = samples();
    texts.extend((0..60).map(|seed| (format!("seed {seed}"), random_text(seed))));
    let mut compared = 0;
    for (name, text) in texts {
        if let Some(expected) = hbal.components(&text) {
            compare(&name, &text, &expected, 2e-8);
            compared += 1;
        }
    }
    assert!(compared > 30, "only {compared} were compared");
}

#[test]
fn the_sums_follow_every_change() {
    for seed in 0..60 {
        let document = parse(&random_text(seed)).unwrap();
        let mut cluster = Cluster::new(&document, &Options::default());
        let group = cluster.node(NodeIndex(0)).group;
        let mut totals = Totals::new(&cluster, group);
        let mut random = Random::new(seed);
        let start = cluster.clone();
        let mut changes = Vec::new();
        for _ in 0..200 {
            let instance = cluster
                .instance_indexes()
                .nth(random.below(cluster.instances().len()));
            let target = NodeIndex(random.below(cluster.nodes().len()) as u32);
            let what = match random.below(6) {
                0 => Move::Failover,
                1 => Move::FailoverTo(target),
                2 => Move::ReplacePrimary(target),
                3 => Move::ReplaceSecondary(target),
                4 => Move::ReplaceAndFailover(target),
                _ => Move::FailoverAndReplace(target),
            };
            let Ok(change) = cluster.draft_move(instance.unwrap(), what, random.below(4) == 0)
            else {
                continue;
            };
            let promised = totals.score_after(&cluster, &change);
            totals.apply(&cluster, &change);
            cluster.apply(&change);
            assert_eq!(totals.score().to_bits(), promised.to_bits());
            changes.push(change);
            let anew = Score::new(&cluster, Some(group)).total;
            let same = (anew - promised).abs() < 1e-9 || anew.is_nan();
            assert!(
                same,
                "seed {seed}: {promised} by sums, {anew} anew, after {what:?}"
            );
        }
        rebuilt_is_the_same(&document, &cluster, seed);
        for change in changes.iter().rev() {
            cluster.revert(change);
        }
        assert!(
            cluster == start,
            "seed {seed}: reverting does not lead back"
        );
    }
}

/// Writes the cluster, reads it again, and compares the nodes.
fn rebuilt_is_the_same(document: &Document, cluster: &Cluster, seed: u64) {
    let text = cluster.render(document);
    let again = parse(&text).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let rebuilt = Cluster::new(&again, &Options::default());
    for node in cluster.node_indexes() {
        if cluster.node(node).offline && document.nodes[node.at()].unknown {
            continue;
        }
        let mut kept = *cluster.state(node);
        let mut read = *rebuilt.state(node);
        // Judged by the reported memory when read, and what is down is promised twice.
        (kept.fails_n1, read.fails_n1) = (false, false);
        (kept.forthcoming_memory, read.forthcoming_memory) = (0, 0);
        assert_eq!(kept, read, "seed {seed}: {}", cluster.node(node).name);
        assert_eq!(cluster.lists(node), rebuilt.lists(node), "seed {seed}");
    }
    assert_eq!(
        cluster.location_exclusion(None),
        rebuilt.location_exclusion(None)
    );
}
