//! What planning costs, and what it gains, from 10 to 4,000 nodes.
//!
//! `cargo bench -p berth-ganeti --bench balance` prints the growth table, for mirrored instances
//! and for shared storage, ten to a node, from a generator with the seed 1. CPU seconds are those
//! of this process for reading the text and planning to the end. Arguments, after `--`:
//!
//! * `--nodes 10,20,40`: these sizes
//! * `--hbal`: the installed `hbal` beside, in the same run
//! * `--check`: looks through every single move once more, one by one, at the end
//! * `--plain`: the descent alone
//! * FILE…: these files and no generated ones

use std::fs;

use berth_ganeti::balance::{Options, Plan, balance, exhaustive};
use berth_ganeti::failover::verify;
use berth_ganeti::model::{Cluster, GroupIndex, Options as Reading};
use berth_ganeti::text::parse;
use berth_testkit::ganeti::{Hbal, skewed_text};

const SIZES: [usize; 8] = [10, 20, 40, 100, 200, 400, 1_000, 4_000];
const GROUP: GroupIndex = GroupIndex(0);

struct Arguments {
    sizes: Vec<usize>,
    files: Vec<String>,
    hbal: bool,
    check: bool,
    plain: bool,
}

fn arguments() -> Arguments {
    let mut found = Arguments {
        sizes: SIZES.to_vec(),
        files: Vec::new(),
        hbal: false,
        check: false,
        plain: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--hbal" => found.hbal = true,
            "--check" => found.check = true,
            "--plain" => found.plain = true,
            "--bench" => {}
            "--nodes" => {
                let sizes = words.next().expect("--nodes takes sizes, such as 10,20");
                let sizes = sizes
                    .split(',')
                    .map(|s| s.parse().expect("a size is a number"));
                found.sizes = sizes.collect();
            }
            file => found.files.push(file.to_owned()),
        }
    }
    found
}

/// Returns the CPU seconds of this process.
fn own_seconds() -> f64 {
    let text = fs::read_to_string("/proc/self/schedstat").expect("Linux tells CPU time");
    let nanoseconds = text
        .split_whitespace()
        .next()
        .and_then(|n| n.parse::<f64>().ok());
    nanoseconds.expect("the first number is nanoseconds") / 1e9
}

/// Returns the CPU seconds of the children that ended.
fn childrens_seconds() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").expect("Linux tells CPU time");
    let fields = text
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    let ticks = fields
        .skip(13)
        .take(2)
        .filter_map(|n| n.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

fn plan(text: &str, options: &Options) -> (Plan, Cluster, f64) {
    let start = own_seconds();
    let document = parse(text).expect("the text is right");
    let mut cluster = Cluster::new(&document, &Reading::default());
    let plan = balance(&mut cluster, GROUP, options);
    (plan, cluster, own_seconds() - start)
}

fn row(name: &str, text: &str, arguments: &Arguments) {
    let mut options = Options::default();
    if arguments.plain {
        options.refinement = 0;
    }
    let (plan, cluster, seconds) = plan(text, &options);
    let start = own_seconds();
    let failing = verify(&cluster).iter().filter(|v| !v.is_ok()).count();
    let verifying = own_seconds() - start;
    print!(
        "| {name} | {} | {seconds:.3} | {} + {} | {:.4} | {:.4} | {verifying:.3} | {failing} |",
        cluster.instances().len(),
        plan.descent,
        plan.steps.len() - plan.descent,
        plan.score_before,
        plan.score_after,
    );
    if arguments.hbal {
        let start = childrens_seconds();
        match Hbal.balanced(text) {
            Some(score) => print!(" {:.2} | {score:.4} |", childrens_seconds() - start),
            None => print!(" - | - |"),
        }
    }
    println!();
    if arguments.check {
        let start = own_seconds();
        match exhaustive::best_move(&cluster, GROUP, &options) {
            Some((_, what, score)) => {
                let gain = plan.score_after - score;
                let (least, kind) = (options.gain_above(plan.score_after), what.kind());
                println!("  the best of all moves ({kind}) gains {gain:.1e} of {least:.0e} needed");
            }
            None => println!("  no move gains"),
        }
        println!("  ({:.1} CPU seconds to look)", own_seconds() - start);
    }
}

fn main() {
    let arguments = arguments();
    print!("| cluster | instances | CPU s | moves: descent + chains | score before | after ");
    print!("| N+1 of all, CPU s | not ok |");
    if arguments.hbal {
        print!(" hbal CPU s | hbal's score |");
    }
    println!();
    for file in &arguments.files {
        let text = fs::read_to_string(file).expect("the file is readable");
        row(file, &text, &arguments);
    }
    if !arguments.files.is_empty() {
        return;
    }
    for mix in ["drbd", "ext"] {
        for nodes in &arguments.sizes {
            let text = skewed_text(1, *nodes, 10, mix);
            row(&format!("{mix} {nodes}"), &text, &arguments);
        }
    }
}
