//! How long a fit takes.

use std::fs;
use std::hint::black_box;
use std::time::{Duration, Instant};

use berth_cli::fit::reader::Field;
use berth_cli::fit::{Options, guest, host};
use berth_domain::numa::{ExactDemand, Ground, Guest, Outline, Strategy, try_fit};
use serde_json::{Value, json};

use super::nova::Nova;

/// How many fits are timed together in Berth: one alone is as short as a look at the clock.
const BATCH: u32 = 16;

/// How long each request is timed, on either side.
const SECONDS: u64 = 3;

/// A request: what is asked of which host.
struct Row {
    name: &'static str,
    /// CPUs of each of the 8 cells that are taken.
    taken: u32,
    cells: u32,
    vcpus: u32,
    policy: &'static str,
    pages: Value,
    requests: Value,
}

fn row(name: &'static str, taken: u32, cells: u32, vcpus: u32) -> Row {
    Row {
        name,
        taken,
        cells,
        vcpus,
        policy: "dedicated",
        pages: Value::Null,
        requests: json!([]),
    }
}

fn rows() -> Vec<Row> {
    let device = |product: &str| {
        json!([{"count": 1, "spec": [{"vendor_id": "8086", "product_id": product}],
                "numa_policy": "socket"}])
    };
    vec![
        row("1 cell x 8, empty host", 0, 1, 8),
        row("2 cells x 8, empty host", 0, 2, 8),
        row("4 cells x 8, empty host", 0, 4, 8),
        Row {
            pages: json!("large"),
            ..row("2 x 8 on large pages, half full", 8, 2, 8)
        },
        Row {
            policy: "shared",
            ..row("2 x 8 floating", 0, 2, 8)
        },
        row("1 x 12, half full: no", 8, 1, 12),
        row("4 x 12, half full: no", 8, 4, 12),
        Row {
            requests: device("1572"),
            ..row("1 x 8 with a device on its socket", 0, 1, 8)
        },
        Row {
            requests: device("ffff"),
            ..row("4 x 4, no such device: no", 0, 4, 4)
        },
    ]
}

/// A host of 2 sockets and 8 cells of 16 CPUs, two threads a core, with a device in every cell.
fn case(row: &Row) -> Value {
    let cell = |id: u32| {
        let first = id * 16;
        let all = format!("{first}-{}", first + 15);
        let cores: Vec<String> = (0..8)
            .map(|core| format!("{}-{}", first + core * 2, first + core * 2 + 1))
            .collect();
        let pinned: Vec<u32> = (first..first + row.taken).collect();
        json!({
            "id": id, "socket": id / 4, "cpuset": all, "pcpuset": all, "siblings": cores,
            "memory_mb": 65536, "memory_usage": 0, "cpu_usage": 0, "pinned_cpus": pinned,
            "mempages": [{"size_kb": 4, "total": 8_388_608}, {"size_kb": 2048, "total": 16384}],
        })
    };
    let device = |id: u32| {
        json!({"address": format!("0000:{id:02x}:00.0"), "vendor_id": "8086",
               "product_id": "1572", "numa_node": id, "dev_type": "type-PCI"})
    };
    let guest = |id: u32| {
        let vcpus: Vec<u32> = (id * row.vcpus..(id + 1) * row.vcpus).collect();
        let (shared, dedicated) = match row.policy {
            "shared" => (vcpus, Vec::new()),
            _ => (Vec::new(), vcpus),
        };
        json!({"cpuset": shared, "pcpuset": dedicated, "memory": 4096, "pagesize": row.pages,
               "cpu_policy": row.policy, "cpu_thread_policy": null})
    };
    json!({
        "host": {"cells": (0..8).map(cell).collect::<Vec<_>>()},
        "instance": {"cells": (0..row.cells).map(guest).collect::<Vec<_>>(),
                     "emulator_threads_policy": null},
        "pci_devices": if row.requests == json!([]) { json!([]) }
                       else { json!((0..8).map(device).collect::<Vec<_>>()) },
        "pci_requests": row.requests,
        "limits": {"cpu": 16, "ram": 1.5},
    })
}

/// Nanoseconds of single fits, and how many are done in a second of CPU time.
struct Times {
    p50: f64,
    p99: f64,
    per_second: f64,
}

/// Times all requests, and prints a table.
pub(crate) fn run(mut nova: Option<&mut Nova>, is_test: bool) {
    let time = Duration::from_millis(if is_test { 20 } else { SECONDS * 1000 });
    println!("\n| request | Berth p50, p99 µs | fits/s | Nova p50, p99 µs | fits/s | ratio |");
    println!("|---|---|---|---|---|---|");
    for row in rows() {
        let mut case = case(&row);
        let berth = berth(&case, row.name.ends_with(": no"), time);
        let own = format!(
            "{:.2}, {:.2} | {:.0}",
            berth.p50 / 1e3,
            berth.p99 / 1e3,
            berth.per_second
        );
        let theirs = nova.as_deref_mut().map_or_else(
            || "| |".to_owned(),
            |nova| {
                case["times"] = json!(if is_test { 2 } else { 20_000 });
                case["seconds"] = json!(time.as_secs_f64());
                let nova = times_of(nova.ask(&case));
                format!(
                    "{:.0}, {:.0} | {:.2} | {:.0}",
                    nova.p50 / 1e3,
                    nova.p99 / 1e3,
                    nova.per_second,
                    berth.per_second / nova.per_second
                )
            },
        );
        println!("| {} | {own} | {theirs} |", row.name);
    }
}

fn times_of(answer: Value) -> Times {
    let list = answer["ns"]
        .as_array()
        .unwrap_or_else(|| panic!("{answer}"));
    let mut each: Vec<f64> = list.iter().filter_map(Value::as_f64).collect();
    let total: f64 = each.iter().sum();
    let per_second = each.len() as f64 * 1e9 / total;
    each.sort_by(f64::total_cmp);
    Times {
        p50: at(&each, 50),
        p99: at(&each, 99),
        per_second,
    }
}

fn at(sorted: &[f64], percent: usize) -> f64 {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

/// Times what the scheduler does for one host: the guest's needs once, the host's outline once.
fn berth(case: &Value, is_refused: bool, time: Duration) -> Times {
    let field = Field::new(case);
    let host = host::read(&field, Options::default()).expect("a good host");
    let wishes = guest::read(&field)
        .expect("a good guest")
        .expect("no flavor");
    let outline = Outline::new(&host.topology, &host.usage, &host.limits);
    let ground = Ground {
        topology: &host.topology,
        usage: &host.usage,
        outline: &outline,
    };
    let demand = ExactDemand {
        topology: wishes.topology.as_ref(),
        pci: &wishes.pci,
        ..ExactDemand::default()
    };
    let once = || try_fit(ground, &Guest::new(demand), Strategy::Spread);
    assert_eq!(once().is_none(), is_refused);
    let mut each = Vec::new();
    let (begin, before) = (Instant::now(), on_cpu());
    while begin.elapsed() < time {
        let start = Instant::now();
        for _ in 0..BATCH {
            black_box(once());
        }
        each.push(start.elapsed().as_nanos() as f64 / f64::from(BATCH));
    }
    let taken = (on_cpu() - before).as_secs_f64();
    let per_second = each.len() as f64 * f64::from(BATCH) / taken;
    each.sort_by(f64::total_cmp);
    Times {
        p50: at(&each, 50),
        p99: at(&each, 99),
        per_second,
    }
}

/// Returns how long this thread was on a CPU.
fn on_cpu() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
    let first = text.split_whitespace().next().and_then(|n| n.parse().ok());
    Duration::from_nanos(first.expect("nanoseconds"))
}
