//! Random calls to OpenStack Placement and to Berth, whose answers must be the same.
//!
//! Goal: what OpenStack's own suite does not ask is answered as Placement answers it, too. Method:
//! `placement/differential.py`, with one seed and so few steps that it takes half a minute; it
//! holds the differences that are meant.

use std::path::Path;
use std::process::Command;

use berth_tests::lab::placement_python;
use berth_tests::processes::Programs;

use crate::PROGRAMS;

const SEED: &str = "1";
const STEPS: &str = "500";

pub(crate) fn placement_and_berth_answer_alike() {
    let programs = Programs::new(PROGRAMS);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("placement/differential.py");
    let output = Command::new(placement_python())
        .arg(script)
        .args(["--seed", SEED, "--steps", STEPS, "--berth"])
        .arg(programs.path("berth"))
        .output()
        .expect("the script runs");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{told}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // It went all the way.
    let sum = told.lines().last().unwrap_or_default();
    assert!(sum.starts_with(&format!("{STEPS} steps, ")), "{sum}");
}
