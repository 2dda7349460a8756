//! `--check-config` of every server: a configuration is checked, and nothing is started.

use std::fs;
use std::path::Path;

use berth_tests::processes::{Answer, Programs};

use crate::PROGRAMS;

const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");

/// The servers, and their samples.
const SERVERS: [(&str, &str); 5] = [
    ("berth-scheduler", "scheduler.toml"),
    ("berth-conductor", "conductor.toml"),
    ("berth-compute-agent", "compute-agent.toml"),
    ("berth-csi-controller", "csi-controller.toml"),
    ("berth-csi-operator", "csi-operator.toml"),
];

/// Goal: a configuration is judged as at the start, and the directory of the data is not touched.
#[test]
fn every_server_checks_its_configuration() {
    let programs = Programs::new(PROGRAMS);
    let folder = tempfile::tempdir().expect("a folder");
    for (program, sample) in SERVERS {
        let check = |file: &Path| {
            let mut command = programs.command(program);
            command.arg("--config").arg(file).arg("--check-config");
            Answer::of(command)
        };
        let sample = Path::new(SAMPLES).join(sample);
        let good = check(&sample).with_status(0);
        assert_eq!(good.stdout, "the configuration is valid\n", "{program}");

        let text = fs::read_to_string(&sample).expect("a sample");
        for (line, fault) in [
            ("lissten = 1\n", "unknown key lissten"),
            ("log_filter = \"[\"\n", "is not a log filter"),
        ] {
            let key = line.split(' ').next().expect("a key");
            let others = text.lines().filter(|other| !other.starts_with(key));
            let others: String = others.map(|other| format!("{other}\n")).collect();
            let file = folder.path().join("wrong.toml");
            fs::write(&file, format!("{line}{others}")).expect("a file");
            check(&file).with_status(2).saying(&[fault]);
        }
    }
}
