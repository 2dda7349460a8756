//! A gate before and behind the programs that an agent runs: whoever comes to it is held there.
//!
//! An agent that waits for a program is at a known step of its work, and stays there until it is
//! killed. Each program is moved aside, and a script in its place runs it.
//!
//! What this is not: a stand-in. What passes the gate is the program itself, with its arguments, its
//! input and its exit status.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::site::eventually;

/// What an agent runs for volumes.
const PROGRAMS: [&str; 6] = ["ndctl", "lvm", "mkfs.ext4", "mkfs.xfs", "mount", "umount"];

/// Where the programs themselves are.
const ASIDE: &str = "/lab/aside";

/// Where the gate is told whom to hold, and tells who is there.
const ROOM: &str = "/run/gate";

/// How many can be held at a time.
const PLACES: usize = 2;

/// What stands in the place of each program. Everything but the program is done by the shell itself.
const SCRIPT: &str = r#"#!/bin/sh
name=${0##*/}
words="$name $* "
hold() {
    for place in /run/gate/wanted.*; do
        { read -r step && read -r about; } 2>/dev/null <$place || continue
        case "$1 $words" in "$step "*"$about"*) ;; *) continue ;; esac
        number=${place##*.}
        mv $place /run/gate/taken.$number 2>/dev/null || continue
        echo $$ >/run/gate/pid.$number && mv /run/gate/pid.$number /run/gate/here.$number
        read -r _ </run/gate/go.$number
        return
    done
}
hold before
/lab/aside/$name "$@"
status=$?
hold after
exit $status
"#;

/// The gate of this machine.
#[derive(Debug)]
pub(crate) struct Gate(());

/// Whom to hold: the first one that comes to a step, `before` or `after` and how its command begins,
/// and whose command is about this.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) step: String,
    /// Any part of what the command goes on with.
    pub(crate) about: String,
}

/// A program that is held. It has its place in the agent's order of things: one that changes devices
/// has their lock.
#[derive(Debug)]
pub(crate) struct Held {
    pid: Pid,
    number: usize,
}

impl Gate {
    /// Puts the gate up.
    pub(crate) fn make() -> Self {
        fs::create_dir_all(ASIDE).unwrap();
        fs::create_dir_all(ROOM).unwrap();
        for name in PROGRAMS {
            let program = find(name);
            fs::rename(&program, Path::new(ASIDE).join(name)).unwrap();
            fs::write(&program, SCRIPT).unwrap();
            fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        }
        for number in 0..PLACES {
            let mut make = Command::new("mkfifo");
            assert!(make.arg(room("go", number)).status().unwrap().success());
        }
        Self(())
    }

    /// Has those held that come to these steps.
    pub(crate) fn close(&self, steps: &[Step]) {
        assert!(steps.len() <= PLACES);
        for (number, step) in steps.iter().enumerate() {
            for left in ["taken", "here"] {
                let _ = fs::remove_file(room(left, number));
            }
            let text = format!("{}\n{}\n", step.step, step.about);
            fs::write(room("new", number), text).unwrap();
            fs::rename(room("new", number), room("wanted", number)).unwrap();
        }
    }

    /// Waits until somebody is held for each of these steps.
    #[track_caller]
    pub(crate) fn wait(&self, steps: &[Step]) -> Vec<Held> {
        let held = steps.iter().enumerate().map(|(number, step)| {
            let pid = eventually("somebody at the gate", || {
                let here = fs::read_to_string(room("here", number));
                here.map_err(|_| format!("nobody was at {step:?}"))
            });
            let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
            Held { pid, number }
        });
        held.collect()
    }
}

impl Held {
    /// Lets it go on.
    pub(crate) fn release(&self) {
        // Whoever reads is there: it said so.
        let go = fs::OpenOptions::new()
            .write(true)
            .open(room("go", self.number));
        go.unwrap().write_all(b"\n").unwrap();
    }

    /// Ends it, and what it has started, with `SIGKILL`.
    pub(crate) fn kill(&self) {
        kill_process_group(self.pid, Signal::KILL).unwrap();
    }
}

fn room(name: &str, number: usize) -> PathBuf {
    Path::new(ROOM).join(format!("{name}.{number}"))
}

/// Finds a program where agents look for it.
fn find(name: &str) -> PathBuf {
    let places = ["/usr/sbin", "/usr/bin"].map(|place| Path::new(place).join(name));
    let mut there = places.into_iter().filter(|path| path.exists());
    there.next().unwrap_or_else(|| panic!("no program {name}"))
}
