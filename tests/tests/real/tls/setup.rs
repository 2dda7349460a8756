//! The documented setup: `docs/security.md`, "Setting it up on three machines".
//!
//! Goal: whoever types those commands has a cluster, with machines that are known by name. Method: the
//! commands are read from the document and typed on machines in network namespaces. Before a line, `m1$`
//! says on which machine it is typed; what goes on is what the document leaves to
//! `docs/three-machines.md`.

use std::fs;
use std::path::{Path, PathBuf};

use berth_tests::lab::{Lab, Machine, Process};
use berth_tests::processes::{Answer, Programs, eventually};

use crate::PROGRAMS;

const SECURITY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/security.md");
const MACHINES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/three-machines.md");

pub(crate) fn the_documented_setup_starts() {
    let document = fs::read_to_string(SECURITY).expect("the document");
    let section = document.split("## Setting it up on three machines").nth(1);
    let section = section.and_then(|rest| rest.split("\n## ").next());
    let blocks = blocks(section.expect("the section"));
    let [make, start, look] = &blocks[..] else {
        panic!("three blocks: {blocks:#?}");
    };
    let programs = Programs::new(PROGRAMS);
    let own = tempfile::tempdir().expect("a folder");
    let mut made = std::process::Command::new("sh");
    let made = made.args(["-e", "-c", make]).current_dir(own.path());
    made.env("PATH", path(&programs));
    let made = made.output().expect("a shell");
    assert!(made.status.success(), "{made:?}");

    let lab = Lab::builder().machine("m1").machine("m2").machine("m3");
    let lab = lab.start().expect("three machines");
    let homes: Vec<PathBuf> = lab
        .machines()
        .iter()
        .map(|machine| home(machine, &own.path().join("certs")))
        .collect();
    let mut running: Vec<Process> = Vec::new();
    let mut type_it = |machine: &str, commands: &str| {
        let number = running.len();
        let found = lab.get(machine).expect("a machine");
        let text = format!(
            "cd {} && {commands}",
            found.directory().join("home").display()
        );
        let path = path(&programs);
        let process = found.spawn_with(
            &format!("typed-{number}"),
            &["sh", "-e", "-c", &text],
            &[("PATH", &path)],
        );
        running.push(process.expect("a shell"));
    };
    // What the agent is told beside its certificates.
    let before = fs::read_to_string(MACHINES).expect("the document");
    let before = before
        .split("```sh m2\n")
        .find(|text| text.contains("cat >agent.toml"));
    let before = before.and_then(|text| text.split("berth-compute-agent").next());
    let before = before
        .expect("the agent's files")
        .replace("insecure_listen = true\n", "");
    let typed = typed(start);
    assert_eq!(typed.len(), 5, "{typed:#?}");
    let written = format!("{before}\ntouch written\n");
    type_it("m2", &written);
    eventually("the agent's files", || {
        fs::metadata(homes[1].join("written"))
    });
    for (machine, commands) in &typed {
        type_it(machine, commands);
    }

    let asked = |more: &str| {
        let m1 = lab.get("m1").expect("a machine");
        let mut shell = m1.command("sh");
        let text = format!("cd {} && {look}{more}", homes[0].display());
        shell.args(["-e", "-c", &text]).env("PATH", path(&programs));
        Answer::of(shell)
    };
    eventually("a cluster of two with a conductor", || {
        let answer = asked("");
        let said = &answer.stdout;
        let voters = said.matches(" voter ").count() + said.matches(" voter\n").count();
        let complete = answer.status == Some(0)
            && said.contains("m1:7100")
            && said.contains("m2:7100")
            && said.contains("conductor-1")
            && voters >= 2;
        complete.then_some(()).ok_or(format!("{answer:#?}"))
    });
    eventually("a host that is up", || {
        let answer = asked("berth host list\n");
        let up = answer
            .stdout
            .lines()
            .any(|line| line.contains("m2") && line.contains("UP"));
        up.then_some(()).ok_or(format!("{answer:#?}"))
    });
    drop(running);
}

/// Returns the blocks of commands of a section.
fn blocks(section: &str) -> Vec<String> {
    let parts = section.split("```sh\n").skip(1);
    parts
        .map(|part| part.split("```").next().unwrap_or_default().to_owned())
        .collect()
}

/// Returns what is typed where, of a block in which `m1$` stands before what is typed on m1.
fn typed(block: &str) -> Vec<(String, String)> {
    let mut typed: Vec<(String, String)> = Vec::new();
    for line in block.lines() {
        let prompt = line
            .split_once("$ ")
            .filter(|(machine, _)| machine.len() == 2);
        match (prompt, typed.last_mut()) {
            (Some((machine, command)), _) => {
                typed.push((machine.to_owned(), format!("{command}\n")))
            }
            (None, Some((_, commands))) => commands.push_str(&format!("{line}\n")),
            (None, None) => panic!("nobody knows where {line:?} is typed"),
        }
    }
    typed
}

/// Makes the directory of a machine in which things are typed: with the authority's certificate and the
/// files of its programs.
fn home(machine: &Machine, certs: &Path) -> PathBuf {
    let home = machine.directory().join("home");
    fs::create_dir(&home).expect("a directory");
    let own: &[&str] = match machine.name() {
        "m1" => &["scheduler-m1", "conductor-conductor-1", "operator-ann"],
        "m2" => &["scheduler-m2", "agent-m2"],
        _ => &["scheduler-m3", "agent-m3"],
    };
    let files = own
        .iter()
        .flat_map(|stem| [format!("{stem}.pem"), format!("{stem}-key.pem")]);
    for file in files.chain(["ca.pem".to_owned()]) {
        fs::copy(certs.join(&file), home.join(&file)).expect("a file that was made");
    }
    home
}

fn path(programs: &Programs) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let own = programs.directory().display();
    format!("{own}:{path}:/usr/sbin:/sbin:/usr/bin:/bin")
}
