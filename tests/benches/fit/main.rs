//! The fit beside OpenStack Nova's, and both beside a solver that tries everything.
//!
//! Goal: how often Nova and Berth find a fit where there is one, and how long both take for typical
//! guests. Method: random cases from a seed (those of `berth_testkit::fit`), written as
//! `berth fit` reads them, are answered by `berth_cli::fit` in this process and by
//! `numa_fit_instance_to_host` in a Python process (`tests/nova/fit.py`); the solver says what is
//! true. Then each of a list of requests is timed in both, one after the other, on one thread, in
//! CPU time, without the reading of the case.
//!
//! What it needs for the comparison: a Python with `nova==34.0.0`. Without it Berth is measured
//! alone.
//!
//!   python3 -m venv VENV && VENV/bin/pip install nova==34.0.0
//!   BERTH_NOVA_PYTHON=VENV/bin/python cargo bench -p berth-tests --bench fit
//!
//!   BERTH_FIT_CASES   random cases with up to 4 host cells (default 3000), a fifteenth of that
//!                     with 16
//!   BERTH_FIT_SEED    the first seed (default 1)

mod agree;
mod nova;
mod speed;
mod write;

use nova::Nova;

fn main() {
    // `cargo test --benches` runs this without --bench: one small round then.
    let is_test = !std::env::args().any(|argument| argument == "--bench");
    let mut nova = Nova::start();
    if nova.is_none() {
        println!("Nova is left out: set BERTH_NOVA_PYTHON to a Python with nova==34.0.0 installed");
    }
    let cases = if is_test {
        150
    } else {
        number("BERTH_FIT_CASES", 3000)
    };
    let seed = number("BERTH_FIT_SEED", 1);
    agree::run(nova.as_mut(), seed, cases);
    speed::run(nova.as_mut(), is_test);
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}
