//! Goal: the 20 components are htools', and the sums follow every change. Method: a slow second
//! computation straight from the lines of the text, by the formulas and nothing of the model; the
//! installed `hbal`, where there is one; and random moves, after which the sums are compared with
//! a computation from scratch.

use std::collections::{BTreeMap, BTreeSet};

use berth_ganeti::model::{Cluster, Move, NodeIndex, Options, RatioSource, Rules, Status};
use berth_ganeti::score::{COMPONENTS, Score, Totals};
use berth_ganeti::text::{Document, InstanceLine, NodeLine, NodeRole, PolicyOwner, parse};
use berth_testkit::ganeti::{Random, hbal, random_text};

use crate::samples::samples;

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

/// A node's line, and the lines of what is there.
struct Here<'a> {
    node: &'a NodeLine,
    spindle_ratio: f64,
    primaries: Vec<&'a InstanceLine>,
    secondaries: Vec<&'a InstanceLine>,
}

fn is_down(instance: &InstanceLine) -> bool {
    use Status::{AdminDown, AdminOffline, ErrorDown, UserDown};
    [AdminDown, AdminOffline, ErrorDown, UserDown].contains(&instance.status)
}

fn is_local(instance: &InstanceLine) -> bool {
    ["drbd", "plain"].contains(&instance.disk_template.word())
}

fn memory<'a>(instances: impl Iterator<Item = &'a &'a InstanceLine>) -> i64 {
    instances.map(|instance| instance.memory).sum()
}

impl<'a> Here<'a> {
    fn new(document: &'a Document, at: usize) -> Self {
        let node = &document.nodes[at];
        let instances = || document.instances.iter();
        let policy = document.policies.iter().rev();
        let mut policy = policy.filter(|(o, _)| *o == PolicyOwner::Group(node.group));
        Here {
            node,
            spindle_ratio: policy.next().map_or(32.0, |(_, p)| p.spindle_ratio),
            primaries: instances().filter(|i| i.primary == at).collect(),
            secondaries: instances().filter(|i| i.secondary == Some(at)).collect(),
        }
    }

    /// Returns how many primaries and secondaries are really there.
    fn counts(&self) -> (f64, f64) {
        let real = |list: &[&InstanceLine]| list.iter().filter(|i| !i.forthcoming).count() as f64;
        (real(&self.primaries), real(&self.secondaries))
    }

    fn reserved(&self) -> i64 {
        let mut peers: BTreeMap<usize, i64> = BTreeMap::new();
        for i in &self.secondaries {
            if i.auto_balance && i.status != Status::AdminOffline && !i.forthcoming {
                *peers.entry(i.primary).or_default() += i.memory;
            }
        }
        peers.values().copied().max().unwrap_or(0)
    }

    fn unallocated(&self) -> i64 {
        let runs = self
            .primaries
            .iter()
            .filter(|i| !i.forthcoming && !is_down(i));
        let recorded = self.node.total_memory as i64 - self.node.node_memory - memory(runs);
        recorded - (recorded - self.node.free_memory).max(0)
    }

    fn cpus(&self, promised: bool) -> f64 {
        let online = self
            .primaries
            .iter()
            .filter(|i| i.status != Status::AdminOffline);
        let counted = online.filter(|i| promised || !i.forthcoming);
        let used = self.node.node_cpus + counted.map(|i| i.vcpus).sum::<i64>();
        used as f64 / self.node.total_cpus / self.node.cpu_speed
    }

    fn spindles(&self, promised: bool) -> f64 {
        let both = self.primaries.iter().chain(&self.secondaries);
        let counted = both.filter(|i| is_local(i) && (promised || !i.forthcoming));
        let used: i64 = counted.map(|i| i.spindle_use).sum();
        let used = if self.node.exclusive_storage { 0 } else { used };
        used as f64 / (self.spindle_ratio * self.node.spindles as f64)
    }

    fn disk(&self, promised: bool) -> f64 {
        if self.node.exclusive_storage {
            return self.node.free_spindles as f64 / self.node.spindles as f64;
        }
        let both = self.primaries.iter().chain(&self.secondaries);
        let coming = both.filter(|i| promised && i.forthcoming && is_local(i));
        let coming: i64 = coming.map(|i| i.disk).sum();
        (self.node.free_disk - coming) as f64 / self.node.total_disk
    }

    fn row(&self) -> [f64; 13] {
        let total = self.node.total_memory;
        let (here, copies) = self.counts();
        let idle = self
            .primaries
            .iter()
            .filter(|i| i.forthcoming || is_down(i));
        let promised = self.node.free_memory - memory(idle);
        [
            self.unallocated() as f64 / total,
            self.disk(false),
            self.reserved() as f64 / total,
            self.cpus(false),
            here,
            here,
            here + copies,
            here,
            self.spindles(false),
            promised as f64 / total,
            self.disk(true),
            self.cpus(true),
            self.spindles(true),
        ]
    }
}

/// Computes the components from the lines alone.
fn naively(document: &Document) -> [f64; 20] {
    let mut columns: Vec<Vec<f64>> = vec![Vec::new(); 13];
    let mut result = [0.0; 20];
    let mut pairs: BTreeMap<(String, String), usize> = BTreeMap::new();
    for at in 0..document.nodes.len() {
        let here = Here::new(document, at);
        let (primaries, secondaries) = here.counts();
        if here.node.unknown || here.node.role == NodeRole::Offline {
            result[4] += primaries + secondaries;
            result[5] += primaries;
            continue;
        }
        let reserved = here.reserved();
        if here.node.free_memory < reserved {
            result[2] += primaries + secondaries;
        }
        result[19] += reserved as f64 / here.node.total_memory;
        for (column, value) in columns.iter_mut().zip(here.row()) {
            column.push(value);
        }
        count_tags(document, &here, &mut result, &mut pairs);
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

/// Counts what the tags of a node and its instances make.
fn count_tags(
    document: &Document,
    here: &Here<'_>,
    result: &mut [f64; 20],
    pairs: &mut BTreeMap<(String, String), usize>,
) {
    let exclusion = prefixes(document, "htools:iextags:", "");
    let desired = prefixes(document, "htools:desiredlocation:", "");
    let location = prefixes(document, "htools:nlocation:", ":");
    let set = |tags: Vec<String>| tags.into_iter().collect::<BTreeSet<String>>();
    let domains = set(chosen(&here.node.tags, &location));
    let mut tags: BTreeMap<String, usize> = BTreeMap::new();
    for i in &here.primaries {
        for tag in chosen(&i.tags, &exclusion) {
            *tags.entry(tag.clone()).or_default() += 1;
            for domain in domains.iter().filter(|_| !i.forthcoming) {
                *pairs.entry((domain.clone(), tag.clone())).or_default() += 1;
            }
        }
        if i.forthcoming {
            continue;
        }
        let wished = set(chosen(&i.tags, &desired));
        result[17] += wished.difference(&domains).count() as f64;
        if let Some(other) = i.secondary {
            let other = &document.nodes[other];
            let there = if other.unknown { &[] } else { &other.tags[..] };
            let there = chosen(there, &location);
            result[17] += there.iter().filter(|d| domains.contains(*d)).count() as f64;
        }
    }
    result[11] += (tags.values().sum::<usize>() - tags.len()) as f64;
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
    let Some(hbal) = hbal() else {
        return;
    };
    let mut texts = samples();
    texts.extend((0..100).map(|seed| (format!("seed {seed}"), random_text(seed))));
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
            let same = (anew - promised).abs() < 1e-7 || anew.is_nan();
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
