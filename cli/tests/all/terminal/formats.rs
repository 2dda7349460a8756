//! The formats of the output, of every command.
//!
//! Goal: YAML is the value of JSON, names are what the next command takes, a custom table has the fields of the
//! JSON, and what a command cannot show is refused before a server is called. Method: each command is run in
//! each format, with responses of the server that answers everything.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

use super::commands::COMMANDS;
use super::{Output, ROUNDS, SITES, Site};

/// What differs between two runs of the same command: it is measured.
const MEASURED: [&str; 4] = ["age_ms", "remaining_ms", "request_id", "metadata"];

/// Runs a check of each command at servers of their own; returns what is wrong.
fn each(check: impl Fn(&Site, &'static str) -> Vec<String> + Sync) -> Vec<String> {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let work = || {
            let site = Site::start();
            let mut wrong = Vec::new();
            while let Some(command) = COMMANDS.get(next.fetch_add(1, Ordering::Relaxed)) {
                wrong.extend(check(&site, command));
            }
            wrong
        };
        let workers: Vec<_> = (0..SITES).map(|_| scope.spawn(work)).collect();
        let wrong = workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("checked"));
        wrong.collect()
    })
}

fn run(site: &Site, command: &str, options: &[&str]) -> Output {
    let words: Vec<&str> = command.split(' ').chain(options.iter().copied()).collect();
    site.berth(&words)
}

fn values(json: &str) -> Vec<Value> {
    let values = serde_json::Deserializer::from_str(json).into_iter();
    values.collect::<Result<_, _>>().expect("JSON")
}

fn documents(yaml: &str) -> Result<Vec<Value>, String> {
    let documents = YamlLoader::load_from_str(yaml).map_err(|error| error.to_string())?;
    Ok(documents.iter().map(to_json).collect())
}

fn to_json(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::Null => Value::Null,
        Yaml::Boolean(is_so) => (*is_so).into(),
        Yaml::Integer(number) => (*number).into(),
        Yaml::Real(text) => serde_json::from_str(text).expect("a number"),
        Yaml::String(text) => text.as_str().into(),
        Yaml::Array(elements) => elements.iter().map(to_json).collect(),
        Yaml::Hash(fields) => {
            let fields = fields.iter().map(|(key, value)| {
                (
                    key.as_str().expect("a key is a string").to_owned(),
                    to_json(value),
                )
            });
            Value::Object(fields.collect())
        }
        Yaml::Alias(_) | Yaml::BadValue => panic!("no value: {yaml:?}"),
    }
}

/// Returns a value without what is measured.
fn stable(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .filter(|(key, _)| !MEASURED.contains(&&***key));
            Value::Object(
                fields
                    .map(|(key, value)| (key.clone(), stable(value)))
                    .collect(),
            )
        }
        Value::Array(elements) => elements.iter().map(stable).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn all_stable(values: &[Value]) -> Vec<Value> {
    values.iter().map(stable).collect()
}

/// Returns the refusal that ends standard error.
fn refusal(output: &Output) -> Vec<Value> {
    let last = output.stderr.lines().last().unwrap_or_default();
    let json: Option<Value> = serde_json::from_str(last).ok();
    let yaml = output.stderr.rsplit("---\n").next().unwrap_or_default();
    let found = json.or_else(|| documents(yaml).ok()?.pop());
    found
        .into_iter()
        .filter(|value| value["error"].is_object())
        .collect()
}

#[test]
fn yaml_is_the_value_of_json() {
    let wrong = each(|site, command| {
        let mut wrong = Vec::new();
        for round in 0..ROUNDS {
            site.state.lock().unwrap().shape.round = round;
            let (json, yaml) = (
                run(site, command, &["-o", "json"]),
                run(site, command, &["-o", "yaml"]),
            );
            let read = documents(&yaml.stdout).map(|read| all_stable(&read));
            let is_same = read == Ok(all_stable(&values(&json.stdout)))
                && all_stable(&refusal(&json)) == all_stable(&refusal(&yaml))
                && json.status == yaml.status;
            if !is_same {
                wrong.push(format!("{command} in round {round}: {json:#?}\n{yaml:#?}"));
            }
        }
        site.state.lock().unwrap().shape.round = 0;
        wrong
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn names_are_for_the_next_command() {
    let named = AtomicUsize::new(0);
    let wrong = each(|site, command| {
        site.state.lock().unwrap().sent.clear();
        let output = run(site, command, &["-o", "name"]);
        let is_called = !site.state.lock().unwrap().sent.is_empty();
        let is_refused =
            output.status == Some(2) && !is_called && output.stderr.contains("resource to name");
        let names: Vec<&str> = output.stdout.lines().collect();
        let is_word = |name: &&str| !name.is_empty() && !name.contains([' ', '/', '"', '{']);
        let needs_name = [" list", " show "]
            .iter()
            .any(|part| command.contains(part));
        let is_named = output.status == Some(0) && !names.is_empty() && names.iter().all(is_word);
        named.fetch_add(usize::from(is_named), Ordering::Relaxed);
        // What failed, or changed nothing that has a name, names nothing.
        let is_fine = output.status == Some(1)
            || is_refused
            || is_named
            || (!needs_name && names.is_empty() && is_called);
        (!is_fine)
            .then(|| format!("{command}: {output:#?}"))
            .into_iter()
            .collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let named = named.into_inner();
    assert!(named > 60, "only {named} commands name something");
}

#[test]
fn custom_tables_have_the_fields_of_the_json() {
    let tables = AtomicUsize::new(0);
    let wrong = each(|site, command| {
        let json = run(site, command, &["-o", "json"]);
        let all = values(&json.stdout);
        let first = all.first().map(|value| value.get(0).unwrap_or(value));
        let field = first
            .and_then(Value::as_object)
            .and_then(|fields| fields.keys().next());
        let Some(field) = field.filter(|_| json.status == Some(0)) else {
            return Vec::new();
        };
        tables.fetch_add(1, Ordering::Relaxed);
        let good = run(site, command, &["-o", &format!("custom={field}")]);
        let header = good.stdout.lines().next().unwrap_or_default();
        let mut wrong = Vec::new();
        if good.status != Some(0)
            || header != field.to_uppercase()
            || good.stdout.lines().count() < 2
        {
            wrong.push(format!("{command}: {good:#?}"));
        }
        let without = run(
            site,
            command,
            &["--no-headers", "-o", &format!("custom={field}")],
        );
        if good.stdout.lines().skip(1).ne(without.stdout.lines()) {
            wrong.push(format!("{command}: {good:#?}\n{without:#?}"));
        }
        let bad = run(site, command, &["-o", "custom=no_such_field"]);
        let is_listed =
            bad.stderr.contains("there is no field `no_such_field`") && bad.stderr.contains(field);
        // Of a stream the next value may have it; of a change it is a warning, since it is done.
        let is_stream = ["watch", "provider watch"].contains(&command)
            || command.starts_with("migration watch");
        let is_change = bad.stderr.contains("warning: there is no field");
        let expected = if is_stream || is_change {
            Some(0)
        } else {
            Some(2)
        };
        if !(is_stream || is_listed) || bad.status != expected {
            wrong.push(format!("{command}: {bad:#?}"));
        }
        wrong
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let tables = tables.into_inner();
    assert!(tables > 80, "only {tables} commands were tried");
}

#[test]
fn lists_are_ordered_and_nothing_else_is() {
    let lists = AtomicUsize::new(0);
    let wrong = each(|site, command| {
        site.state.lock().unwrap().sent.clear();
        let unknown = run(site, command, &["--sort", "no-such-column"]);
        let is_called = !site.state.lock().unwrap().sent.is_empty();
        let mut wrong = Vec::new();
        let is_list = unknown.stderr.contains("to sort by: there are ");
        if unknown.status != Some(2)
            || is_called
            || !(is_list || unknown.stderr.contains("shows no list"))
        {
            wrong.push(format!("{command}: {unknown:#?}"));
        }
        if !is_list {
            return wrong;
        }
        let plain = run(site, command, &[]);
        if plain.status != Some(0) {
            return wrong;
        }
        lists.fetch_add(1, Ordering::Relaxed);
        for options in [["--sort", "name"], ["--sort", "-name"]] {
            let sorted = run(site, command, &options);
            // Each list has a single row here.
            if sorted.status != plain.status
                || sorted.stdout.lines().count() != plain.stdout.lines().count()
            {
                wrong.push(format!("{command}: {plain:#?}\n{sorted:#?}"));
            }
        }
        let unknown = run(site, command, &["-o", "json", "--sort", "no_such_field"]);
        if unknown.status != Some(2) || !unknown.stderr.contains("--sort: there is no field") {
            wrong.push(format!("{command}: {unknown:#?}"));
        }
        wrong
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let lists = lists.into_inner();
    assert!(lists >= 19, "only {lists} lists");
}

/// Goal: `wide` adds columns behind the usual ones, and changes nothing else; without headers the rows stay.
#[test]
fn wide_tables_begin_as_usual() {
    let wider = AtomicUsize::new(0);
    let wrong = each(|site, command| {
        let (usual, wide) = (run(site, command, &[]), run(site, command, &["-o", "wide"]));
        let starts = |(usual, wide): (&str, &str)| {
            let words = |line: &str| {
                line.split_whitespace()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            let is_measured = |word: &String| word.parse::<f64>().is_ok();
            let (usual, wide) = (words(usual), words(wide));
            usual
                .iter()
                .zip(&wide)
                .all(|(usual, wide)| usual == wide || is_measured(usual))
        };
        let pairs = usual.stdout.lines().zip(wide.stdout.lines());
        let is_like = usual.is_like(&wide) && pairs.clone().all(starts);
        let is_wider = pairs.clone().any(|(usual, wide)| usual.len() < wide.len());
        wider.fetch_add(usize::from(is_wider), Ordering::Relaxed);
        let mut wrong = Vec::new();
        if usual.status != Some(0) {
            return wrong;
        }
        if !is_like || (is_wider && !command.contains(" list")) {
            wrong.push(format!("{command}: {usual:#?}\n{wide:#?}"));
        }
        let bare = run(site, command, &["--no-headers"]);
        let is_shorter = bare.stdout.lines().count() < usual.stdout.lines().count();
        if bare.status != usual.status || (command.contains(" list") && !is_shorter) {
            wrong.push(format!("{command}: {usual:#?}\n{bare:#?}"));
        }
        wrong
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let wider = wider.into_inner();
    assert!(wider >= 10, "only {wider} lists are wider");
}

/// Goal: the forms of a list, as they are typed in scripts.
#[test]
fn wide_and_custom_lists_are_as_expected() {
    let site = Site::start();
    let golden = [
        ("flavor list -o wide", FLAVORS_WIDE),
        (
            "flavor list -o custom=name,vcpus,extra_specs,project",
            FLAVORS_CUSTOM,
        ),
        (
            "vm list --no-headers -o custom=name,spec.flavor.vcpus,spec.disks.size_gib,restart_obstacle",
            VMS_BARE,
        ),
        ("host list -o name --sort -name", HOST_NAMES),
        ("flavor show x -o yaml", FLAVOR_YAML),
    ];
    for (command, expected) in golden {
        let output = run(&site, command, &[]);
        assert_eq!(output.stdout, expected, "{command}: {output:#?}");
    }
}

const FLAVORS_WIDE: &str = "\
FLAVOR  VCPUS  MEMORY MIB  DISK GIB  SPECS  PROJECT  CREATOR
x       1      1           1         x=x    x        x
";

const FLAVORS_CUSTOM: &str = "\
NAME  VCPUS  EXTRA_SPECS  PROJECT
x     1      {\"x\":\"x\"}    x
";

const VMS_BARE: &str = "x  1  1  -\n";

const HOST_NAMES: &str = "x\n";

/// Goal: the examples of the document work as they are typed.
#[test]
fn documented_examples_work() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/command-line.md");
    let text = std::fs::read_to_string(document).expect("the document");
    let section = text.split("## Formats\n").nth(1).expect("the section");
    let section = section.split("\n## ").next().unwrap_or(section);
    let site = Site::start();
    let mut typed = 0;
    for line in section
        .lines()
        .filter(|line| line.starts_with("    berth "))
    {
        let mut shell = std::process::Command::new("sh");
        let berth = std::path::Path::new(env!("CARGO_BIN_EXE_berth"));
        let programs = berth.parent().expect("a folder").display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        shell.env("PATH", format!("{programs}:{path}"));
        shell.env("BERTH_SCHEDULER", &site.address);
        let output = shell.args(["-c", line.trim()]).output().expect("sh runs");
        assert!(output.status.success(), "{line}: {output:?}");
        assert!(!output.stdout.is_empty(), "{line}: {output:?}");
        typed += 1;
    }
    assert!(typed >= 9, "{typed} examples");
}

const FLAVOR_YAML: &str = "\
creator: x
disk_gib: 1
extra_specs:
  x: x
memory_mib: 1
name: x
project: x
vcpus: 1
";
