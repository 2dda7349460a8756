//! The Python client: built, installed and tested with the programs of this test run.
//!
//! Goal: what `clients/python/README.md` and `docs/python.md` promise. Method: the wheel is built from a copy of the
//! repository without a network, installed into a new environment, and the client's own tests run there with
//! real schedulers, conductors and agents; its types are checked strictly.
//!
//! What it is not: the tests themselves; they are in `clients/python/tests`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use berth_tests::lab::python_client;
use berth_tests::processes::{Answer, Programs};

use crate::PROGRAMS;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Files with tests that mostly wait for elections and timeouts: each runs beside the others.
const SLOW: [&str; 5] = [
    "test_leader.py",
    "test_lost_answers.py",
    "test_members.py",
    "test_tls.py",
    "test_unknown.py",
];

/// What is installed beside the client, to test it.
const TOOLS: [&str; 4] = ["pytest", "mypy", "types-protobuf", "types-grpcio"];

pub(crate) fn the_client_is_built_installed_and_tested() {
    let folder = tempfile::tempdir().expect("a folder");
    let wheel = build(folder.path());
    let bin = install(folder.path(), &wheel);
    let programs = Programs::new(PROGRAMS);
    let mut types = Command::new(bin.join("mypy"));
    types
        .args(["--strict", "--package", "berth_client"])
        // Its cache is made beside it.
        .current_dir(folder.path());
    let tests = groups().into_iter().map(|files| {
        let mut pytest = Command::new(bin.join("pytest"));
        pytest
            .args(["-p", "no:cacheprovider", "--tb=short", "-rs"])
            .args(files)
            .current_dir(Path::new(ROOT).join("clients/python"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("BERTH_BIN", programs.directory());
        for name in ["SCHEDULER", "TLS_CA", "TLS_CERT", "TLS_KEY"] {
            pytest.env_remove(format!("BERTH_{name}"));
        }
        pytest
    });
    let commands: Vec<Command> = std::iter::once(types).chain(tests).collect();
    let answers: Vec<Answer> = thread::scope(|scope| {
        let running: Vec<_> = commands
            .into_iter()
            .map(|command| scope.spawn(|| Answer::of(command)))
            .collect();
        let ended = running.into_iter();
        ended
            .map(|one| one.join().expect("a command that ends"))
            .collect()
    });
    for answer in &answers {
        let shown = format!("{}\n{}\n{}", answer.command, answer.stdout, answer.stderr);
        assert_eq!(answer.status, Some(0), "{shown}");
        assert!(!answer.stdout.contains("skipped"), "{shown}");
    }
}

/// Builds the wheel as the documents say, from a copy: a build leaves files beside its sources.
fn build(folder: &Path) -> PathBuf {
    for part in ["clients/python", "proto/berth"] {
        copy(&Path::new(ROOT).join(part), &folder.join(part));
    }
    let output = folder.join("wheels");
    let mut pip = pip(&python_client().join("bin"));
    pip.args(["wheel", "--no-index", "--no-build-isolation", "--no-deps"])
        .arg("--wheel-dir")
        .arg(&output)
        .arg(folder.join("clients/python"));
    let _ = Answer::of(pip).with_status(0);
    let made: Vec<PathBuf> = entries(&output);
    assert_eq!(made.len(), 1, "{made:?}");
    made[0].clone()
}

/// Installs it into a new environment, of which the programs' directory is returned.
fn install(folder: &Path, wheel: &Path) -> PathBuf {
    let environment = folder.join("environment");
    let mut venv = Command::new(python_client().join("bin/python"));
    venv.args(["-m", "venv"]).arg(&environment);
    let _ = Answer::of(venv).with_status(0);
    let bin = environment.join("bin");
    let mut pip = pip(&bin);
    pip.args(["install", "--no-index", "--find-links"])
        .arg(python_client().join("wheels"))
        .arg(wheel)
        .args(TOOLS);
    let _ = Answer::of(pip).with_status(0);
    bin
}

fn pip(bin: &Path) -> Command {
    let mut pip = Command::new(bin.join("pip"));
    pip.args(["--quiet", "--disable-pip-version-check"]);
    pip
}

/// Returns the files with tests: those that mostly wait by themselves, all others together.
fn groups() -> Vec<Vec<PathBuf>> {
    let files = entries(&Path::new(ROOT).join("clients/python/tests"));
    let is_test = |file: &&PathBuf| name(file).starts_with("test_");
    let files: Vec<PathBuf> = files.iter().filter(is_test).cloned().collect();
    let is_slow = |file: &PathBuf| SLOW.contains(&&*name(file));
    let (slow, others): (Vec<PathBuf>, Vec<PathBuf>) = files.into_iter().partition(is_slow);
    assert_eq!(slow.len(), SLOW.len(), "{slow:?}");
    let alone = slow.into_iter().map(|file| vec![file]);
    alone.chain([others]).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in entries(from) {
        let target = to.join(name(&entry));
        match entry.is_dir() {
            true => copy(&entry, &target),
            false => drop(fs::copy(&entry, &target).expect("a readable file")),
        }
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    paths
}

fn name(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
