//! The help of `berth` itself, with the commands in groups: clap has none for subcommands.
//!
//! Invariant: every command is in one group, with the first line of its own help; a test holds it.

use std::fmt::Write as _;

use clap::Subcommand as _;
use clap::builder::{StyledStr, Styles};

use super::Command;

/// The heading of the options that every command has.
pub(super) const GLOBAL: &str = "Global options";

/// The heading of those of them that are about the output.
pub(super) const OUTPUT: &str = "Output options";

/// The groups in order, each with its commands.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "VMs",
        &[
            "vm",
            "flavor",
            "image",
            "network",
            "server-group",
            "pci-alias",
            "migration",
            "operation",
        ],
    ),
    ("Hosts", &["host", "aggregate", "availability-zone", "cpu"]),
    (
        "Cluster",
        &[
            "cluster",
            "apply",
            "backup",
            "policy",
            "top",
            "web",
            "watch",
            "audit",
            "log-level",
            "support",
            "certs",
        ],
    ),
    (
        "Placement",
        &["provider", "candidates", "class", "trait", "placement"],
    ),
    (
        "Planning",
        &["verify", "score", "balance", "capacity", "replay"],
    ),
    ("Volumes", &["volume"]),
    (
        "Tools",
        &[
            "dev",
            "demo",
            "doctor",
            "explain",
            "fit",
            "iallocator",
            "completion",
        ],
    ),
];

/// Returns all commands, as clap knows them.
fn commands() -> clap::Command {
    Command::augment_subcommands(clap::Command::new("berth"))
}

/// Returns the template of the help: the groups stand where clap would list the commands.
pub(super) fn template() -> StyledStr {
    let styles = Styles::styled();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let commands = commands();
    let names = commands.get_subcommands().map(|c| c.get_name().len());
    let width = names.max().unwrap_or(0);
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();
    for (group, names) in GROUPS {
        let _ = writeln!(text, "{header}{group}:{header:#}");
        for name in *names {
            let about = commands.find_subcommand(name).and_then(|c| c.get_about());
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {literal}{name:<width$}{literal:#}  {about}");
        }
        text.push('\n');
    }
    let _ = write!(
        text,
        "{header}{GLOBAL}:{header:#}\n{{options}}{{after-help}}"
    );
    text.into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{Arg, CommandFactory as _};

    use super::*;
    use crate::arguments::Arguments;

    /// The width of a terminal for which the first page is laid out.
    const COLUMNS: usize = 80;

    /// Words that mean nothing to a user without the project's history.
    const BANNED: &[&str] = &[
        "told", "tell", "tells", "asked", "asks", "wanted", "wants", "liking", "errand", "nobody",
        "somebody", "anybody", "whoever", "whose", "anew", "room", "face", "cell", "cells",
    ];

    /// Calls `check` with every command below this one, and the words that lead to it.
    fn walk(command: &clap::Command, path: &str, check: &mut impl FnMut(&str, &clap::Command)) {
        check(path, command);
        for sub in command.get_subcommands() {
            if sub.get_name() != "help" {
                walk(sub, &format!("{path} {}", sub.get_name()), check);
            }
        }
    }

    fn each(mut check: impl FnMut(&str, &clap::Command)) {
        let mut command = Arguments::command();
        command.build();
        walk(&command, "berth", &mut check);
    }

    /// Returns the words of a text, without the values and names that stand for themselves: options,
    /// keys and whatever stands between backticks or is indented as an example.
    fn words(text: &str) -> BTreeSet<String> {
        let prose = text.split('`').step_by(2).collect::<Vec<_>>().join(" ");
        let lines = prose.lines().filter(|line| !line.starts_with("  "));
        let words = lines.flat_map(str::split_whitespace);
        let words = words.filter(|word| !word.starts_with("--"));
        words
            .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()))
            .map(str::to_lowercase)
            .collect()
    }

    fn check_words(what: &str, text: &str) {
        let words = words(text);
        for word in BANNED {
            assert!(!words.contains(*word), "{what}: {word:?} in {text:?}");
        }
    }

    fn check_sentence(what: &str, text: &str) {
        let first = text.chars().next();
        assert!(first.is_some_and(char::is_uppercase), "{what}: {text:?}");
        assert!(!text.ends_with('.'), "{what}: a final stop in {text:?}");
        check_words(what, text);
    }

    /// Goal: no command is missing from the groups, and each is in one.
    #[test]
    fn every_command_is_in_one_group() {
        let grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        let distinct: BTreeSet<&str> = grouped.iter().copied().collect();
        assert_eq!(grouped.len(), distinct.len(), "a command is in two groups");
        let commands = commands();
        let all: BTreeSet<&str> = commands.get_subcommands().map(|c| c.get_name()).collect();
        assert_eq!(distinct, all);
    }

    /// Goal: the first page shows each command with its own first line, and fits a terminal.
    #[test]
    fn the_first_page_lists_the_groups() {
        let page = Arguments::command().render_help().to_string();
        for (group, _) in GROUPS {
            assert!(page.contains(&format!("\n{group}:\n")), "{page}");
        }
        assert!(page.contains(&format!("\n{GLOBAL}:\n")), "{page}");
        let commands = commands();
        for command in commands.get_subcommands() {
            let about = command
                .get_about()
                .map(ToString::to_string)
                .unwrap_or_default();
            let mut lines = page.lines().map(str::split_whitespace);
            let is_listed = lines.any(|mut words| {
                words.next() == Some(command.get_name()) && words.eq(about.split_whitespace())
            });
            assert!(is_listed, "{}: {page}", command.get_name());
        }
        let head = page.split(&format!("{GLOBAL}:")).next().unwrap_or_default();
        for line in head.lines() {
            assert!(line.chars().count() <= COLUMNS, "{line}");
        }
    }

    /// Goal: every command says what it does, in the imperative: its first word is a verb.
    #[test]
    fn every_command_has_help() {
        let mut verbs = BTreeSet::new();
        each(|path, command| {
            let about = command
                .get_about()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(about.split_whitespace().count() >= 3, "{path}: {about:?}");
            check_sentence(path, &about);
            for text in [command.get_long_about(), command.get_after_help()] {
                check_words(path, &text.map(ToString::to_string).unwrap_or_default());
            }
            let after = command.get_after_help().map(ToString::to_string);
            for line in after.unwrap_or_default().lines() {
                assert!(line.chars().count() < COLUMNS, "{path}: {line:?}");
            }
            verbs.extend(about.split_whitespace().next().map(str::to_owned));
        });
        let third_person = |verb: &&String| verb.ends_with('s') && !verb.ends_with("ss");
        assert_eq!(verbs.iter().find(third_person), None, "not the imperative");
    }

    /// Goal: every option and argument is described by a phrase of its own.
    #[test]
    fn every_option_has_help() {
        each(|path, command| {
            for option in command.get_arguments() {
                let what = format!("{path} {}", option.get_id());
                let help = option
                    .get_help()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                let is_builtin = ["help", "version"].contains(&option.get_id().as_str());
                let enough = if is_builtin { 2 } else { 3 };
                assert!(
                    help.split_whitespace().count() >= enough,
                    "{what}: {help:?}"
                );
                check_sentence(&what, &help);
                let long = option.get_long_help().map(ToString::to_string);
                check_words(&what, &long.unwrap_or_default());
                for value in option.get_possible_values() {
                    let help = value.get_help().map(ToString::to_string);
                    if let Some(help) = help.filter(|_| !value.is_hide_set()) {
                        check_sentence(&format!("{what}={}", value.get_name()), &help);
                    }
                }
            }
        });
    }

    /// Goal: in every command the options of all commands stand under headings of their own, and no
    /// other option does.
    #[test]
    fn global_options_have_a_heading() {
        each(|path, command| {
            let is_ours = |arg: &&Arg| !["help", "version"].contains(&arg.get_id().as_str());
            for option in command.get_arguments().filter(is_ours) {
                let heading = option.get_help_heading();
                let is_headed = [Some(GLOBAL), Some(OUTPUT)].contains(&heading);
                assert_eq!(
                    option.is_global_set(),
                    is_headed,
                    "{path} {}",
                    option.get_id()
                );
            }
        });
    }
}
