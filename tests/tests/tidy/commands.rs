//! Holds the commands of documents, scripts and comments to what can be run: a package, a target or a
//! test that was renamed or moved is found here, and not by the reader who types the command.
//!
//! Goal: each `cargo build|test|run|bench|clippy …` names packages and targets that there are, and
//! filters that some test of the target has. Method: the words of the target are the names of its
//! files, modules and functions; each part of a filter is in one of them.
//!
//! What it is not: a run of the commands.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::{documents, path_is_dir, root};

/// The commands that name packages and targets.
const SUBCOMMANDS: [&str; 6] = ["build", "test", "run", "bench", "clippy", "check"];

/// What ends a command in the middle of a line.
const ENDS: [char; 7] = ['`', '#', '|', ';', ')', '>', '"'];

/// A command as it stands somewhere.
#[derive(Debug, Default)]
struct Typed {
    packages: Vec<String>,
    /// The folder of the kind of target, and its name.
    targets: Vec<(&'static str, String)>,
    is_of_library: bool,
    filters: Vec<String>,
}

/// Folders of packages, by their names.
type Packages = BTreeMap<String, PathBuf>;

#[test]
fn documented_commands_name_what_there_is() {
    let packages = packages();
    let (mut report, mut count) = (String::new(), 0);
    for (file, line, command) in commands() {
        count += 1;
        if let Err(why) = check(&command, &packages) {
            let _ = writeln!(
                report,
                "    {}:{line}: cargo {command}: {why}",
                file.display()
            );
        }
    }
    assert!(
        count > 150,
        "the commands are where this test looks for them"
    );
    assert!(report.is_empty(), "commands that do not work:\n{report}");
}

#[test]
fn a_command_that_does_not_work_is_found() {
    let packages = packages();
    let good = [
        "test -p berth-tests --test tidy",
        "test -p berth-tests --test tidy documented_commands",
        "test -p berth-tests --test tidy commands:: -- --nocapture",
        "build --release -p berth-cli -p berth-scheduler",
        "test --workspace --locked",
    ];
    for command in good {
        assert_eq!(check(command, &packages), Ok(()), "{command}");
    }
    let bad = [
        "build -p berth",
        "test -p berth-tests --test untidy",
        "test -p berth-tests --test tidy nothing_like_it",
        "test -p berth-tests --test tidy commands::nothing_like_it",
        "test -p berth-tests --test tidy -- nothing_like_it",
        "bench -p berth-tests --bench nothing_like_it",
        "run -p berth-store --example nothing_like_it",
    ];
    for command in bad {
        assert!(check(command, &packages).is_err(), "{command}");
    }
}

/// Returns why a command cannot be run, or runs no test.
fn check(command: &str, packages: &Packages) -> Result<(), String> {
    let typed = parse(command);
    let folders = typed.packages.iter().map(|name| {
        let folder = packages.get(name);
        folder.ok_or_else(|| format!("there is no package {name}"))
    });
    let folders = folders.collect::<Result<Vec<_>, String>>()?;
    let mut sources = Vec::new();
    for (kind, name) in &typed.targets {
        let of = folders.iter().find_map(|folder| target(folder, kind, name));
        // Without a package it is that of the working directory, which the text names.
        match of {
            Some(found) => sources.push(found),
            None if folders.is_empty() => {}
            None => return Err(format!("there is no {name} in {kind}")),
        }
    }
    if typed.is_of_library {
        sources.extend(folders.iter().map(|folder| folder.join("src")));
    }
    if sources.is_empty() {
        let all = ["src", "tests"];
        sources.extend(
            folders
                .iter()
                .flat_map(|folder| all.map(|of| folder.join(of))),
        );
    }
    let mut words = BTreeSet::new();
    for source in &sources {
        collect_words(source, &mut words);
    }
    let mut parts = typed.filters.iter().flat_map(|filter| filter.split("::"));
    let has = |part: &str| words.iter().any(|word| word.contains(part));
    match parts.find(|part| !sources.is_empty() && !has(part)) {
        Some(part) => Err(format!("no test has {part:?} in its path")),
        None => Ok(()),
    }
}

fn parse(command: &str) -> Typed {
    let mut typed = Typed::default();
    let words = command.split_whitespace().skip(1);
    // Prose goes on behind a command without a mark.
    let mut words = words.map(|word| word.trim_end_matches(','));
    let is_test = command.starts_with("test");
    while let Some(word) = words.next() {
        let kind = match word {
            "--test" => Some("tests"),
            "--bench" => Some("benches"),
            "--example" => Some("examples"),
            _ => None,
        };
        match word {
            "-p" | "--package" => typed.packages.extend(words.next().map(str::to_owned)),
            "--bin" | "--features" | "--test-threads" | "--skip" | "--profile" => {
                let _ = words.next();
            }
            "--lib" => typed.is_of_library = true,
            // What follows is for the program, which is a test's only sometimes.
            "--" if !is_test => break,
            _ => match kind {
                Some(kind) => {
                    let name = words.next().map(|name| (kind, name.to_owned()));
                    typed.targets.extend(name);
                }
                None if is_test && !word.starts_with('-') => typed.filters.push(word.to_owned()),
                None => {}
            },
        }
    }
    typed
}

/// Returns the file of a target, or the folder with its modules.
fn target(package: &Path, kind: &str, name: &str) -> Option<PathBuf> {
    let folder = package.join(kind).join(name);
    let file = folder.with_extension("rs");
    let modules = folder.is_dir().then_some(folder);
    match file.exists() {
        // The modules of a file are beside it, in a folder of its name.
        true => Some(modules.unwrap_or(file)),
        false => modules,
    }
}

/// Collects the names of files and functions below a folder, or in the one file.
fn collect_words(source: &Path, words: &mut BTreeSet<String>) {
    if let Ok(entries) = fs::read_dir(source) {
        let beside = source.with_extension("rs");
        if beside.exists() {
            collect_words(&beside, words);
        }
        words.extend(source.file_name().map(|n| n.to_string_lossy().into_owned()));
        for entry in entries.flatten() {
            collect_words(&entry.path(), words);
        }
        return;
    }
    if source.extension().is_none_or(|e| e != "rs") {
        return;
    }
    words.extend(source.file_stem().map(|n| n.to_string_lossy().into_owned()));
    let text = fs::read_to_string(source).unwrap_or_default();
    for keyword in ["fn ", "mod "] {
        let names = text.split(keyword).skip(1).map(|rest| {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
            rest[..end.unwrap_or(rest.len())].to_owned()
        });
        words.extend(names.filter(|name| !name.is_empty()));
    }
}

/// Returns all commands with the places where they stand.
fn commands() -> Vec<(PathBuf, usize, String)> {
    let mut all = Vec::new();
    for file in documents().into_iter().chain(scripts_and_sources()) {
        let text = fs::read_to_string(root().join(&file)).unwrap_or_default();
        let is_rust = file.extension().is_some_and(|e| e == "rs");
        for (number, line) in (1..).zip(text.lines()) {
            // In code a command is put together of pieces.
            if is_rust && !line.trim_start().starts_with("//") {
                continue;
            }
            for rest in line.split("cargo ").skip(1) {
                let command = rest.split(ENDS).next().unwrap_or_default();
                let command = command.trim().trim_end_matches(['.', ',', ':']);
                let first = command.split_whitespace().next().unwrap_or_default();
                if SUBCOMMANDS.contains(&first) {
                    all.push((file.clone(), number, command.to_owned()));
                }
            }
        }
    }
    all
}

fn scripts_and_sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    collect(Path::new(""), &mut files);
    files
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(root().join(folder)).expect("a folder is readable");
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = folder.join(&name);
        if path_is_dir(&path) {
            let is_foreign = ["target", "node_modules", "testdata"].contains(&&*name);
            if !is_foreign && !name.starts_with('.') {
                collect(&path, files);
            }
            continue;
        }
        let is_script = folder.starts_with("tests/attacks") || name.ends_with(".py");
        // This file has commands that do not work.
        let is_own = path == Path::new("tests/tests/tidy/commands.rs");
        if (is_script || name.ends_with(".rs")) && !is_own && !name.ends_with(".md") {
            files.push(path);
        }
    }
}

fn packages() -> Packages {
    let text = fs::read_to_string(root().join("Cargo.toml")).expect("there is a manifest");
    let members = text.split("members = [").nth(1).expect("there are members");
    let members = members.split(']').next().expect("the list ends");
    let folders = members.split('"').skip(1).step_by(2);
    let named = folders.map(|folder| {
        let folder = root().join(folder);
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        let name = manifest.split("name = \"").nth(1).expect("it has a name");
        let name = name.split('"').next().expect("the name ends");
        (name.to_owned(), folder)
    });
    named.collect()
}
