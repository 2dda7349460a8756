//! What a query for allocation candidates costs: over flat hosts, over trees with 8 NUMA cells,
//! over hosts that are wide, and with sharing providers.
//!
//! `cargo bench -p berth-selection --bench candidates [-- PROVIDERS_MAX]`. It prints, for each
//! query, the candidates found, how many providers were looked at, the wall clock's
//! median and 99th percentile, and the CPU time per query, which a busy machine disturbs least;
//! then what it costs to build the index and to bring it up to date. Not a test: it passes no
//! judgement.

mod world;

use std::collections::BTreeSet;
use std::fs;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_selection::candidates::{
    Bounds, Filter, Group, GroupPolicy, Index, Order, Query, Sources, Suffix,
};
use world::{aggregate, amounts, class, flat, id, nested, shared, traits, wide};

/// How long one row is measured.
const TIME: Duration = Duration::from_millis(400);

fn main() {
    let numbers = std::env::args().filter_map(|text| text.parse().ok());
    let most: usize = numbers.max().unwrap_or(100_000);
    let sizes = || [1_000, 10_000, 100_000].into_iter().filter(|n| *n <= most);
    println!(
        "| providers | query | candidates | steps | p50 µs | p99 µs | CPU µs |\n|---|---|---|---|---|---|---|"
    );
    sizes().for_each(flat_hosts);
    for trees in [1_000, 10_000]
        .into_iter()
        .filter(|trees| trees * 9 <= most)
    {
        nested_hosts(trees);
    }
    wide_hosts(1);
    wide_hosts(1_000.min(most / 9));
    sizes().for_each(shared_disks);
}

fn flat_hosts(hosts: usize) {
    let (sources, index) = build("flat", flat(hosts));
    let plain = Group {
        resources: amounts(&[("VCPU", 2), ("MEMORY_MB", 2048), ("DISK_GB", 20)]),
        ..Group::default()
    };
    let with = |names: &[&str]| Group {
        required: vec![traits(names)],
        ..plain.clone()
    };
    let rack = Group {
        member_of: vec![BTreeSet::from([aggregate(2)])],
        ..plain.clone()
    };
    let one = |amount| Group {
        resources: amounts(&[("VCPU", 2), ("MEMORY_MB", amount)]),
        ..Group::default()
    };
    for limit in [10, 1000] {
        row(
            &index,
            &format!("flat, limit {limit}"),
            &asking(&[("", &plain)], limit),
        );
    }
    for (name, group) in [
        ("a trait of all", with(&["HW_CPU_X86_7"])),
        ("a trait of every tenth", with(&["CUSTOM_GOLD"])),
        ("a trait of ten hosts", with(&["CUSTOM_RARE"])),
        ("one rack", rack),
        ("room on one host only", one(1 << 19)),
        ("room nowhere", one(1 << 22)),
    ] {
        let name = format!("flat, limit 10, {name}");
        row(&index, &name, &asking(&[("", &group)], 10));
    }
    let nowhere = asking(&[("", &one(1 << 22))], 10);
    measure(hosts, "flat, room nowhere, explained", 0, 0, |_| {
        black_box(index.explain(&nowhere));
    });
    lists(&index, hosts);
    follow(sources, index, hosts);
}

/// Measures lists of providers by what they have.
fn lists(index: &Index, hosts: usize) {
    let room = |amount| Filter {
        resources: amounts(&[("MEMORY_MB", amount)]),
        ..Filter::default()
    };
    let having = |name: &str| Filter {
        required: vec![traits(&[name])],
        ..Filter::default()
    };
    for (name, filter) in [
        ("a trait of ten", having("CUSTOM_RARE")),
        ("a trait of every tenth", having("CUSTOM_GOLD")),
        ("room on one host only", room(1 << 19)),
        ("room on every 48th", room(1 << 18)),
        ("room on half of them", room((1 << 18) - 24 * 1024)),
    ] {
        let listed = index.list(&filter).len();
        measure(hosts, &format!("flat, list of {name}"), listed, 0, |_| {
            black_box(index.list(&filter));
        });
    }
}

/// Measures bringing the index up to date after one allocation.
fn follow(mut sources: Sources, mut index: Index, hosts: usize) {
    measure(hosts, "flat, follow one allocation", 0, 0, |round| {
        let used = sources.used.entry(id(round * 7 % hosts)).or_default();
        *Arc::make_mut(used).entry(class("VCPU")).or_default() = round as u64 % 32;
        index.sync(&sources);
    });
}

fn nested_hosts(trees: usize) {
    let (_, index) = build("nested", nested(trees));
    let disk = Group {
        resources: amounts(&[("DISK_GB", 20)]),
        ..Group::default()
    };
    let cell = Group {
        resources: amounts(&[("PCPU", 4), ("MEMORY_MB", 4096)]),
        required: vec![traits(&["HW_NUMA_ROOT"])],
        ..Group::default()
    };
    let part = |name, amount| Group {
        resources: amounts(&[(name, amount)]),
        ..Group::default()
    };
    for limit in [10, 1000] {
        let isolated = Query {
            group_policy: Some(GroupPolicy::Isolate),
            ..asking(&[("", &disk), ("_0", &cell), ("_1", &cell)], limit)
        };
        row(
            &index,
            &format!("8 cells, two isolated, limit {limit}"),
            &isolated,
        );
        let (cpus, memory) = (part("PCPU", 4), part("MEMORY_MB", 4096));
        let mut subtree = asking(&[("", &disk), ("_C", &cpus), ("_M", &memory)], limit);
        subtree.same_subtree = vec![["_C", "_M"].map(Suffix::new).into()];
        row(
            &index,
            &format!("8 cells, same_subtree, limit {limit}"),
            &subtree,
        );
    }
    let names = ["_0", "_1", "_2", "_3", "_4", "_5", "_6"];
    let too_many = Query {
        group_policy: Some(GroupPolicy::Isolate),
        ..asking(&names.map(|name| (name, &cell)), 10)
    };
    row(
        &index,
        "8 cells, seven isolated where six are free",
        &too_many,
    );
}

fn wide_hosts(hosts: usize) {
    let (_, index) = build("wide", wide(hosts));
    let unit = Group {
        resources: amounts(&[("CUSTOM_GPU", 1)]),
        ..Group::default()
    };
    for policy in [GroupPolicy::None, GroupPolicy::Isolate] {
        for groups in 2..=9 {
            let names: Vec<_> = (0..groups).map(|at| format!("_{at}")).collect();
            let groups_of: Vec<_> = names.iter().map(|name| (name.as_str(), &unit)).collect();
            let query = Query {
                group_policy: Some(policy),
                ..asking(&groups_of, 1000)
            };
            row(
                &index,
                &format!("8 devices, {groups} groups, {policy:?}, limit 1000"),
                &query,
            );
        }
    }
}

fn shared_disks(hosts: usize) {
    let (_, index) = build("shared", shared(hosts));
    let disk = Group {
        resources: amounts(&[("DISK_GB", 20)]),
        ..Group::default()
    };
    let all = Group {
        resources: amounts(&[("VCPU", 2), ("MEMORY_MB", 2048), ("DISK_GB", 20)]),
        ..Group::default()
    };
    row(&index, "shared disks, limit 10", &asking(&[("", &all)], 10));
    row(
        &index,
        "shared disks, limit 1000",
        &asking(&[("", &all)], 1000),
    );
    row(
        &index,
        "shared disks alone, limit 1000",
        &asking(&[("", &disk)], 1000),
    );
}

fn asking(groups: &[(&str, &Group)], limit: u32) -> Query {
    let groups = groups.iter();
    Query {
        groups: groups
            .map(|(suffix, group)| (Suffix::new(suffix), (*group).clone()))
            .collect(),
        limit: Some(limit),
        ..Query::default()
    }
}

/// Builds an index and says what that cost.
fn build(name: &str, sources: Sources) -> (Sources, Index) {
    let before = resident_bytes();
    let (start, cpu) = (Instant::now(), cpu_time());
    let mut index = Index::new();
    index.sync(&sources);
    let (wall, cpu) = (start.elapsed(), cpu_time().saturating_sub(cpu));
    let bytes = resident_bytes().saturating_sub(before) / index.len() as u64;
    let memory = match bytes {
        // Memory of the fleet before was used again.
        0..100 => String::new(),
        _ => format!(", about {bytes} bytes each"),
    };
    let count = index.len();
    eprintln!("{name}: {count} providers in {wall:.1?}, {cpu:.1?} of CPU{memory}");
    (sources, index)
}

fn row(index: &Index, name: &str, query: &Query) {
    let mut search = index
        .search(query, Bounds::default())
        .expect("a good query");
    let found = search.by_ref().count();
    let steps = search.steps();
    measure(index.len(), name, found, steps, |round| {
        let order = Order::Rotated { seed: round as u64 };
        let query = Query {
            order,
            ..query.clone()
        };
        black_box(index.candidates(&query, Bounds::default())).expect("within bounds");
    });
}

fn measure(providers: usize, name: &str, found: usize, steps: u64, mut run: impl FnMut(usize)) {
    run(0);
    let (start, cpu) = (Instant::now(), cpu_time());
    let mut micros = Vec::new();
    while start.elapsed() < TIME || micros.len() < 5 {
        let begin = Instant::now();
        run(micros.len());
        micros.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    let cpu = cpu_time().saturating_sub(cpu).as_secs_f64() * 1e6 / micros.len() as f64;
    micros.sort_by(f64::total_cmp);
    let at = |part: f64| micros[((micros.len() - 1) as f64 * part) as usize];
    let (p50, p99) = (at(0.5), at(0.99));
    println!("| {providers} | {name} | {found} | {steps} | {p50:.1} | {p99:.1} | {cpu:.1} |");
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// Returns the memory of this process.
fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text
        .split(' ')
        .nth(1)
        .and_then(|text| text.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}
