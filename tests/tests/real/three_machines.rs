//! "Three machines": the documentation's commands, typed on machines in network namespaces.
//!
//! Method: `docs/three-machines.md` is read, and each block is typed into the shell of the machine
//! that its first line names, in order: ```` ```sh m1 ````. A block marked `until` is repeated
//! until it prints what the next ```` ```text ```` block shows; one marked `fails` must fail. A
//! `text` block after any other must be what was printed. In it `…` is anything, and columns may
//! be wider or narrower.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use berth_tests::lab::{Lab, Machine};
use berth_tests::processes::{Programs, eventually};
use serde_json::Value;

use crate::PROGRAMS;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/three-machines.md");
const RUNBOOKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations.md");

/// How a block is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Once,
    Until,
    Fails,
}

/// A block of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) machine: String,
    how: How,
    pub(crate) commands: String,
    /// What it prints, if that is shown.
    shown: Option<String>,
}

/// Returns the blocks of a document.
pub(crate) fn blocks(document: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        let Some(tags) = line.strip_prefix("```") else {
            continue;
        };
        let inside = lines.by_ref().take_while(|line| !line.starts_with("```"));
        let text: String = inside.map(|line| format!("{line}\n")).collect();
        match tags.split_whitespace().collect::<Vec<_>>()[..] {
            ["sh", machine, ref how @ ..] => blocks.push(Block {
                machine: machine.to_owned(),
                how: match how {
                    [] => How::Once,
                    ["until"] => How::Until,
                    ["fails"] => How::Fails,
                    _ => panic!("a tag that is not known: {line}"),
                },
                commands: text,
                shown: None,
            }),
            ["text"] => blocks.last_mut().expect("commands before it").shown = Some(text),
            _ => panic!("neither commands nor what they print: {line}"),
        }
    }
    blocks
}

/// Returns whether `printed` is what is `shown`.
fn is_shown(shown: &str, printed: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        let words = text
            .lines()
            .flat_map(|line| line.split_whitespace().chain(["\n"]));
        words.map(str::to_owned).collect()
    };
    let (shown, printed) = (words(shown.trim()), words(printed.trim()));
    let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
    let printed: Vec<&str> = printed.iter().map(String::as_str).collect();
    matches(&shown, &printed)
}

fn matches(shown: &[&str], printed: &[&str]) -> bool {
    match (shown, printed) {
        ([], []) => true,
        // Anything, also nothing; a line of its own may stand for no line.
        (["…", "\n", rest @ ..], _) if matches(rest, printed) => true,
        (["…", rest @ ..], _) if matches(rest, printed) => true,
        (["…", ..], [_, behind @ ..]) => matches(shown, behind),
        ([first, rest @ ..], [word, behind @ ..]) => first == word && matches(rest, behind),
        ([], [_, ..]) | ([_, ..], []) => false,
    }
}

/// A shell on a machine, into which a person types.
pub(crate) struct Shell {
    pub(crate) machine: String,
    pub(crate) directory: PathBuf,
    child: Child,
    input: ChildStdin,
    typed: u32,
}

impl Shell {
    fn open(machine: &Machine, programs: &Programs) -> Self {
        Self::open_with(machine, programs.directory())
    }

    /// As [`Self::open`], with programs from another directory.
    pub(crate) fn open_with(machine: &Machine, programs: &Path) -> Self {
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!(
            "{}:{path}:/usr/sbin:/sbin:/usr/bin:/bin",
            programs.display()
        );
        // One that knows jobs by their names, as `kill %berth-scheduler`.
        let mut shell = machine.command("bash");
        shell.env("PATH", path);
        Self::run(machine.name(), machine.directory(), shell)
    }

    /// Opens the shell that a command runs, with a directory that the test sees under the same path.
    pub(crate) fn run(machine: &str, beside: &Path, mut shell: Command) -> Self {
        let directory = beside.join("home");
        fs::create_dir(&directory).expect("a directory");
        let log = fs::File::create(beside.join("shell.log")).expect("a log");
        shell.env_remove("BERTH_SCHEDULER").env("NO_COLOR", "1");
        let mut child = shell
            .stdin(Stdio::piped())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .expect("a shell");
        let mut shell = Self {
            machine: machine.to_owned(),
            input: child.stdin.take().expect("it is piped"),
            directory,
            child,
            typed: 0,
        };
        let enter = format!("cd {}", shell.directory.display());
        let _ = shell.command(&enter);
        shell
    }

    /// Types commands, waits until they are done, and returns whether the last of them succeeded,
    /// and what all of them printed.
    pub(crate) fn command(&mut self, commands: &str) -> (bool, String) {
        self.typed += 1;
        let beside = self
            .directory
            .parent()
            .expect("it is the machine's")
            .to_owned();
        let printed = beside.join(format!("printed-{}", self.typed));
        let status = beside.join(format!("status-{}", self.typed));
        let (out, done) = (printed.display(), status.display());
        // Not in a subshell: what is exported stays. What is started beside goes on. A shell that a person
        // types into forgets jobs that have ended before each prompt.
        let text = format!(
            "jobs >/dev/null\n{{\n{commands}\n}} >{out} 2>&1\necho $? >{done}.part; mv {done}.part {done}\n"
        );
        self.input
            .write_all(text.as_bytes())
            .expect("the shell reads");
        let code = eventually(
            &format!("the end of {commands:?} on {}", self.machine),
            || {
                if let Some(ended) = self.child.try_wait().expect("a child") {
                    // A command of a block has failed.
                    let printed = fs::read_to_string(&printed).unwrap_or_default();
                    panic!("the shell ended with {ended}: {commands:?} printed {printed}");
                }
                fs::read_to_string(&status)
            },
        );
        let printed = fs::read_to_string(&printed).unwrap_or_default();
        (code.trim() == "0", printed)
    }

    pub(crate) fn type_block(&mut self, block: &Block) {
        match block.how {
            How::Once => {
                // Each line for itself, so that none of them fails unseen.
                let (good, printed) = self.command(&format!("set -e\n{}set +e", block.commands));
                assert!(good, "{block:?} printed {printed}");
                if let Some(shown) = &block.shown {
                    assert!(is_shown(shown, &printed), "{block:?} printed {printed}");
                }
            }
            How::Fails => {
                let (good, printed) = self.command(&block.commands);
                assert!(!good, "{block:?} printed {printed}");
                if let Some(shown) = &block.shown {
                    assert!(is_shown(shown, &printed), "{block:?} printed {printed}");
                }
            }
            How::Until => {
                let shown = block.shown.as_ref().expect("what to wait for");
                eventually("what is shown", || {
                    let (_, printed) = self.command(&block.commands);
                    is_shown(shown, &printed).then_some(()).ok_or(printed)
                });
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Three machines, on which everything was typed.
struct Typed {
    shells: Vec<Shell>,
    _lab: Lab,
    _programs: Programs,
}

impl Typed {
    fn on_three_machines(blocks: &[Block]) -> Self {
        let programs = Programs::new(PROGRAMS);
        let lab = Lab::builder()
            .machine("m1")
            .machine("m2")
            .machine("m3")
            .start();
        let lab = lab.expect("three machines");
        let machines = lab.machines().iter();
        let mut shells: Vec<Shell> = machines.map(|m| Shell::open(m, &programs)).collect();
        for block in blocks {
            let shell = shells
                .iter_mut()
                .find(|shell| shell.machine == block.machine);
            shell.expect("one of the three").type_block(block);
        }
        Self {
            shells,
            _lab: lab,
            _programs: programs,
        }
    }
}

/// Goal: whoever types the documentation's commands gets what it promises.
pub(crate) fn the_documented_commands_work_on_three_machines() {
    let document = fs::read_to_string(DOCUMENT).expect("the document");
    let blocks = blocks(&document);
    assert!(blocks.len() > 10, "{blocks:#?}");
    let mut typed = Typed::on_three_machines(&blocks);
    let shells = &mut typed.shells;

    // What the commands were for.
    let pins = |vm: &str, shell: &mut Shell| -> (Value, Vec<Value>) {
        let (_, printed) = shell.command(&format!("berth vm show {vm} --output json"));
        let shown: Value = serde_json::from_str(&printed).expect("JSON");
        let cells = shown["claims"][0]["assignment"]["cells"]
            .as_array()
            .cloned();
        let pins = cells.into_iter().flatten().flat_map(|cell| {
            let pins = cell["pins"].as_object().cloned().unwrap_or_default();
            pins.into_iter().map(|(_, cpu)| cpu).collect::<Vec<_>>()
        });
        (shown["vm"]["host"].clone(), pins.collect())
    };
    let mut taken = Vec::new();
    for (vm, host, count) in [
        ("a", "m3", 2),
        ("b", "m3", 2),
        ("c", "m2", 3),
        ("d", "m3", 1),
    ] {
        let (at, pins) = pins(vm, &mut shells[0]);
        assert_eq!((at, pins.len()), (Value::from(host), count), "{vm}");
        for cpu in pins {
            let place = (host, cpu);
            assert!(!taken.contains(&place), "{place:?} twice");
            taken.push(place);
        }
    }
}

/// Goal: an operator who follows a runbook gets what it promises, and the guests go on whatever is lost. Method: the
/// cluster of the other document, up to its first guests; then every block of every runbook, in order.
pub(crate) fn the_runbooks_work_on_three_machines() {
    let [first, runbooks] = [DOCUMENT, RUNBOOKS].map(|document| {
        let document = fs::read_to_string(document).expect("the document");
        blocks(&document)
    });
    let is_move = |block: &Block| block.commands.contains("berth vm migrate");
    let setup = first.into_iter().take_while(|block| !is_move(block));
    let blocks: Vec<Block> = setup.chain(runbooks).collect();
    assert!(blocks.len() > 35, "{blocks:#?}");
    let typed = Typed::on_three_machines(&blocks);
    let guests = typed.shells.iter().map(|shell| {
        let guests = fs::read_to_string(shell.directory.join("guests.json")).unwrap_or_default();
        ["a", "b"].map(|vm| guests.contains(&format!("\"vm\":\"{vm}\"")))
    });
    let guests: Vec<_> = guests.collect();
    assert_eq!(guests, [[false, false], [false, false], [true, true]]);
}

/// Goal: what is shown is compared by its words, and leaves open what it says it does.
pub(crate) fn what_is_shown_is_compared() {
    let printed = " A   B\n 1   x\n 2   y z\n";
    for good in [
        "A B\n1 x\n2 y z",
        "…\n2 y z",
        "A …\n… x\n…",
        "…",
        "A B\n1 x\n…\n2 y z",
    ] {
        assert!(is_shown(good, printed), "{good}");
    }
    for bad in [
        "A B",
        "A B\n1 x",
        "…\n2 y",
        "A B 1 x\n2 y z",
        "A B\n1 …\n3 y z",
    ] {
        assert!(!is_shown(bad, printed), "{bad}");
    }
}
