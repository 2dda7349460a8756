//! Many hosts, and guests that come and go: `cargo bench -p berth-selection --bench fleet -- packing`
//! says how full the hosts get, `… -- scale` what a decision costs.

mod packing;
mod report;
mod scale;
mod world;

fn main() {
    let arguments = std::env::args().skip(1).filter(|a| !a.starts_with('-'));
    let arguments: Vec<String> = arguments.collect();
    match arguments.first().map(String::as_str) {
        Some("packing") => packing::run(&arguments[1..]),
        Some("scale") => scale::run(),
        // `cargo test --benches` and `cargo bench` of everything come here: the quick one.
        None => scale::run(),
        Some(other) => eprintln!("{other} is neither packing nor scale"),
    }
}
