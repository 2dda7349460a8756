//! Every table on terminals of several widths.
//!
//! Goal: no id and no word of a head is split, whatever the width, and a terminal that states none is shown
//! what a pipe is. Method: `script` runs every command on a pseudo terminal, with responses of the server
//! that answers everything; the words of its output are those that a pipe gets.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use super::Site;
use super::commands::COMMANDS;

/// The widths of the terminals: unknown, a telephone's, the usual one, a wide one.
const WIDTHS: [usize; 4] = [0, 40, 80, 120];

/// Runs all commands, one after the other, on a terminal of this width or into a pipe; returns what each
/// writes to standard output.
fn outputs(site: &Site, width: Option<usize>) -> Vec<String> {
    let berth = env!("CARGO_BIN_EXE_berth");
    let run = |command: &&str| {
        format!(
            "{berth} --scheduler {} {command} 2>/dev/null; echo end-of-output;",
            site.address
        )
    };
    let all: String = COMMANDS.iter().map(run).collect();
    let output = match width {
        None => Command::new("sh")
            .args(["-c", &all])
            .stdin(Stdio::null())
            .output(),
        Some(width) => {
            let file = tempfile::NamedTempFile::new().expect("a file");
            // Longer than an argument of `script` should be.
            std::fs::write(file.path(), format!("stty cols {width} rows 24; {all}"))
                .expect("written");
            let shell = format!("sh {}", file.path().display());
            let mut command = Command::new("script");
            command.args(["--quiet", "--return", "--command", &shell, "/dev/null"]);
            command.stdin(Stdio::null()).output()
        }
    };
    let text = String::from_utf8(output.expect("it runs").stdout).expect("text");
    let text = text.replace('\r', "");
    let mut outputs: Vec<String> = text.split("end-of-output\n").map(str::to_owned).collect();
    outputs.truncate(COMMANDS.len());
    outputs
}

fn words(text: &str) -> BTreeSet<String> {
    // The time that a migration took goes on.
    let is_stable = |word: &&str| word.parse::<f64>().is_err();
    text.split_whitespace()
        .filter(is_stable)
        .map(str::to_uppercase)
        .collect()
}

#[test]
fn no_word_is_split_at_any_width() {
    let site = Site::start();
    let piped = outputs(&site, None);
    assert_eq!(piped.len(), COMMANDS.len());
    let mut tables = 0;
    for width in WIDTHS {
        let shown = outputs(&site, Some(width));
        assert_eq!(shown.len(), COMMANDS.len(), "at {width}");
        for ((command, pipe), terminal) in COMMANDS.iter().zip(&piped).zip(&shown) {
            let (expected, seen) = (words(pipe), words(terminal));
            let split: Vec<_> = expected.difference(&seen).collect();
            assert!(
                split.is_empty(),
                "{command} at {width}: {split:?} in\n{terminal}"
            );
            tables += usize::from(width == 40 && terminal != pipe);
            if width == 0 {
                assert_eq!(
                    pipe.lines().count(),
                    terminal.lines().count(),
                    "{command}:\n{terminal}"
                );
            }
        }
    }
    assert!(
        tables > 20,
        "{tables} outputs are laid out for a narrow terminal"
    );
}
