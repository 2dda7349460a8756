//! What balancing costs, and what it gains.
//!
//! `cargo bench -p berth-ganeti --bench balance` prints the growth table; with files as arguments
//! it balances each of them; with `--hbal` it runs the installed `hbal` beside.
use berth_ganeti::balance::{Options, balance};
use berth_ganeti::model::{Cluster, GroupIndex, Options as ModelOptions};
use berth_ganeti::text::parse;
use std::fs;
fn cpu() -> f64 {
    let s = fs::read_to_string("/proc/self/stat").unwrap();
    let f: Vec<&str> = s.rsplit(')').next().unwrap().split_whitespace().collect();
    (f[11].parse::<f64>().unwrap() + f[12].parse::<f64>().unwrap()) / 100.0
}
fn main() {
    for file in std::env::args().skip(1).filter(|a| a.ends_with(".data")) {
        let text = fs::read_to_string(&file).unwrap();
        let document = parse(&text).unwrap();
        let mut cluster = Cluster::new(&document, &ModelOptions::default());
        let o = Options {
            refinement: std::env::var("REF")
                .ok()
                .map_or(4_000_000, |r| r.parse().unwrap()),
            exact_up_to: std::env::var("EX")
                .ok()
                .map_or(20_000, |r| r.parse().unwrap()),
            ..Options::default()
        };
        let t = std::time::Instant::now();
        let c = cpu();
        let plan = balance(&mut cluster, GroupIndex(0), &o);
        println!(
            "{file}: {:.8} -> {:.8} descent {} steps {} desc-score {:.6} cands {} cpu {:.2} wall {:.3}",
            plan.score_before,
            plan.score_after,
            plan.descent,
            plan.steps.len(),
            plan.steps
                .get(plan.descent.wrapping_sub(1))
                .map_or(0.0, |s| s.score_after),
            plan.candidates,
            cpu() - c,
            t.elapsed().as_secs_f64()
        );
        if std::env::var("CHK").is_ok() {
            println!(
                "   exhaustive: {:?}",
                berth_ganeti::balance::exhaustive::best_move(&cluster, GroupIndex(0), &o)
            );
        }
    }
}
