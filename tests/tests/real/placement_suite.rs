//! OpenStack Placement's own test suite, run against Berth.
//!
//! Goal: clients of OpenStack Placement cannot tell the difference. Method: every file of the
//! suite in the package openstack-placement, each against an empty server of its own under the
//! profile that the file wants; `placement/suite.py` says how.

use std::path::{Path, PathBuf};
use std::process::Command;

use berth_tests::processes::Programs;

use crate::PROGRAMS;

/// So many files the suite has, and so many of its tests a client can send.
const FILES: &str = "in 79 files";
const TESTS: u32 = 1315;

pub(crate) fn openstacks_own_suite_passes() {
    let programs = Programs::new(PROGRAMS);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("placement/suite.py");
    let python: PathBuf = berth_tests::lab::placement_python();
    let output = Command::new(python)
        .arg(script)
        .arg("--berth")
        .arg(programs.path("berth"))
        .output()
        .expect("the suite runs");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{told}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let sum = told.lines().last().unwrap_or_default();
    let passed = sum.split(' ').next().and_then(|count| count.parse().ok());
    assert!(passed.is_some_and(|passed: u32| passed >= TESTS), "{sum}");
    assert!(sum.contains(FILES), "{sum}");
}
