//! How cost grows with the inventory: time of queries and memory of a provider, Berth alone.

use std::time::Duration;

use crate::Bench;
use crate::cpu;
use crate::measure::{Server, repeat};
use crate::world;

/// What is asked at each size.
fn queries() -> Vec<(&'static str, String)> {
    let rack = format!("member_of={}", world::rack(0));
    vec![
        ("limit 10", world::plain(Some(10))),
        ("limit 1000", world::plain(Some(1000))),
        (
            "limit 10, a trait of every tenth",
            world::plain_with("required=CUSTOM_GOLD", Some(10)),
        ),
        (
            "limit 10, a trait of ten hosts",
            world::plain_with("required=CUSTOM_RARE", Some(10)),
        ),
        ("limit 10, one rack", world::plain_with(&rack, Some(10))),
        ("room nowhere", world::nowhere()),
    ]
}

pub(crate) async fn growth(bench: &Bench) -> anyhow::Result<()> {
    // What grows is the inventory; more members would only take more memory.
    let berth = bench.berth("growth", 1).await?;
    let server = Server {
        address: berth.address().to_owned(),
        processes: berth.processes(),
    };
    let empty = cpu::resident_bytes(server.processes[0]);
    let sizes = &bench.options.growth;
    let mut rows: Vec<Vec<String>> = vec![Vec::new(); queries().len() + 3];
    let mut filled = 0;
    for &hosts in sizes {
        eprintln!("filling in {} hosts", hosts - filled);
        let trees = (filled..hosts).map(|at| world::flat(at, hosts));
        let (time, calls) = berth.fill(trees.collect()).await?;
        filled = hosts;
        let mut cells = rows.iter_mut();
        let mut tell = |cell: String| cells.next().expect("a row of each").push(cell);
        for (_, path) in queries() {
            let measured = repeat(&server, &path, bench.time().min(Duration::from_secs(1))).await?;
            tell(format!(
                "{:.0} / {:.0} / {:.0}",
                measured.cpu_us(),
                measured.figures.quantile_ms(0.5) * 1000.0,
                measured.figures.quantile_ms(0.99) * 1000.0
            ));
        }
        let resident = cpu::resident_bytes(server.processes[0]).saturating_sub(empty);
        tell(format!("{}", resident / hosts as u64));
        tell(format!("{}", berth.disk_bytes() / hosts as u64));
        tell(format!("{:.0}", calls as f64 / time.as_secs_f64()));
    }
    print(sizes, &rows);
    Ok(())
}

fn print(sizes: &[usize], rows: &[Vec<String>]) {
    println!("### How cost grows: CPU / p50 / p99 of a query in µs, 1 member\n");
    let heads: String = sizes
        .iter()
        .map(|hosts| format!(" {hosts} hosts |"))
        .collect();
    println!("| query |{heads}\n|---|{}", "---|".repeat(sizes.len()));
    let queries = queries();
    let names = queries.iter().map(|(name, _)| *name).chain([
        "memory of the member, bytes a host",
        "disk of the member, bytes a host",
        "calls a second that filled it",
    ]);
    for (name, cells) in names.zip(rows) {
        println!("| {name} | {} |", cells.join(" | "));
    }
    println!();
}
