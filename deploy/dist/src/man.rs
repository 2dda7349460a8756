//! Manual pages of programs, one for each command, from the definitions of their command lines.
//!
//! What it is not: a second text. Every sentence of a page is one of `--help`, but for the headings and
//! what the table of programs says of files.
//!
//! Invariant: examples and tables keep their lines; `man --warnings` has nothing to say.

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::programs::{self, Program};

/// What is written at the foot of each page.
const MANUAL: &str = "Berth manual";

/// A page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The name of its file, as `berth-vm-create.1`.
    pub file: String,
    /// Its source, in the language of `man(7)`.
    pub text: String,
}

/// Returns the pages of a program: its own, and one for each of its commands.
///
/// # Panics
///
/// Never: the pages are written into memory.
#[must_use]
pub fn pages(program: &Program, date: &str) -> Vec<Page> {
    let mut pages = Vec::new();
    collect(program, &built(program), None, date, &mut pages);
    pages
}

/// Returns the command line with everything that clap adds to it.
fn built(program: &Program) -> Command {
    let command = (program.command)().disable_help_subcommand(true);
    let mut command = command.subcommand_help_heading("COMMANDS");
    command.build();
    command
}

/// Returns the commands of a command that have a page.
fn commands(command: &Command) -> impl Iterator<Item = &Command> {
    let commands = command.get_subcommands();
    commands.filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
}

fn collect(
    program: &Program,
    command: &Command,
    above: Option<&str>,
    date: &str,
    pages: &mut Vec<Page>,
) {
    let name = page_name(command);
    let text = render(program, command, above, date);
    pages.push(Page {
        file: format!("{name}.{}", program.section),
        text,
    });
    for sub in commands(command) {
        collect(program, sub, Some(&name), date, pages);
    }
}

fn page_name(command: &Command) -> String {
    let name = command.get_display_name();
    name.unwrap_or_else(|| command.get_name()).to_owned()
}

fn render(program: &Program, command: &Command, above: Option<&str>, date: &str) -> String {
    let man = Man::new(command.clone())
        .title(page_name(command).to_uppercase())
        .section(program.section)
        .date(date)
        .source(format!("berth {}", env!("CARGO_PKG_VERSION")))
        .manual(MANUAL);
    let mut head = Vec::new();
    let mut options = Vec::new();
    let mut commands_of_it = Vec::new();
    man.render_title(&mut head).expect(IN_MEMORY);
    man.render_name_section(&mut head).expect(IN_MEMORY);
    let usage = usage(command).to_writer(&mut head);
    usage.expect(IN_MEMORY);
    man.render_description_section(&mut head).expect(IN_MEMORY);
    man.render_options_section(&mut options).expect(IN_MEMORY);
    if commands(command).next().is_some() {
        let out = &mut commands_of_it;
        man.render_subcommands_section(out).expect(IN_MEMORY);
    }
    let text = [head, indent_paragraphs(options), commands_of_it].concat();
    let mut text = String::from_utf8(text).expect("roff of texts is text");
    text.push_str(&ending(program, command, above).render());
    // Each part has been written like a page of its own.
    let preamble = Roff::new().render();
    let text = preamble.clone() + &text.replace(&preamble, "");
    let lines = text.lines().map(|line| line.trim_end().to_owned() + "\n");
    lines.collect()
}

const IN_MEMORY: &str = "writing into memory does not fail";

/// Returns the synopsis: the usage that `--help` prints.
fn usage(command: &Command) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    for (at, form) in usages(command).iter().enumerate() {
        if at > 0 {
            roff.control("br", []);
        }
        let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
        let rest = form.strip_prefix(name);
        roff.text(match rest {
            Some(rest) => vec![bold(name), roman(rest)],
            None => vec![roman(form)],
        });
    }
    roff
}

/// Returns each form of a command as it is typed.
fn usages(command: &Command) -> Vec<String> {
    let usage = command.clone().render_usage().to_string();
    let forms = usage
        .lines()
        .map(|line| line.trim_start_matches("Usage:").trim());
    let forms = forms.filter(|form| !form.is_empty()).map(str::to_owned);
    forms.collect()
}

/// Keeps the second paragraph of an option's help below the option.
fn indent_paragraphs(options: Vec<u8>) -> Vec<u8> {
    let options = String::from_utf8(options).expect("roff of texts is text");
    options.replace("\n\n", "\n.IP\n").into_bytes()
}

/// Returns what stands behind the options and commands.
fn ending(program: &Program, command: &Command, above: Option<&str>) -> Roff {
    let mut roff = Roff::new();
    let after = command.get_after_long_help();
    if let Some(after) = after.or_else(|| command.get_after_help()) {
        roff.control("SH", ["NOTES"]).control("nf", []);
        for line in after.to_string().lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
    }
    if above.is_none() && !program.files.is_empty() {
        roff.control("SH", ["FILES"]);
        for (file, purpose) in program.files {
            roff.control("TP", []).text([bold(*file)]);
            roff.text([roman(*purpose)]);
        }
    }
    let others = programs::ALL.iter().filter(|p| p.name != program.name);
    let others = others.map(|p| (p.name, p.section));
    let see: Vec<_> = match above {
        Some(above) => vec![(above, program.section)],
        None => others.collect(),
    };
    roff.control("SH", ["SEE ALSO"]);
    for (at, (name, section)) in (1..).zip(&see) {
        let end = if at == see.len() { "" } else { "," };
        roff.text([bold(*name), roman(format!("({section}){end}"))]);
    }
    roff
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const DATE: &str = "2026-11-27";

    /// Calls `check` with every command of every program, and its page.
    fn each(mut check: impl FnMut(&Command, &Page)) {
        for program in programs::ALL {
            let pages = pages(program, DATE);
            walk(program, &built(program), &pages, &mut check);
        }
    }

    fn walk(
        program: &Program,
        command: &Command,
        pages: &[Page],
        check: &mut impl FnMut(&Command, &Page),
    ) {
        // The words that are typed, joined.
        let typed = command.get_bin_name().unwrap_or_else(|| command.get_name());
        let file = format!("{}.{}", typed.replace(' ', "-"), program.section);
        let page = pages.iter().find(|page| page.file == file);
        check(command, page.unwrap_or_else(|| panic!("no page {file}")));
        for sub in command.get_subcommands() {
            if sub.get_name() != "help" {
                walk(program, sub, pages, check);
            }
        }
    }

    /// Returns the words that a reader of the page sees, with single spaces between them.
    fn words_of(page: &str) -> String {
        let lines = page.lines().filter_map(|line| match line {
            _ if line.starts_with('.') => None,
            _ => Some(line.trim_start_matches("\\&")),
        });
        let text = lines.collect::<Vec<_>>().join("\n");
        let text = text.replace("\\fB", "").replace("\\fI", "");
        let text = text.replace("\\fR", "").replace("\\-", "-");
        let text = text.replace("\\*(Aq", "'").replace("\\\\", "\\");
        spaced(&text.replace("\\&", ""))
    }

    fn spaced(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Goal: every command has a page of its own, and no page is of no command.
    #[test]
    fn every_command_has_a_page() {
        let mut of_commands = BTreeSet::new();
        each(|command, page| {
            assert!(of_commands.insert(page.file.clone()), "{} twice", page.file);
            let about = command.get_about().expect("a test of the help holds it");
            let name = page.file.rsplit_once('.').expect("a section").0;
            let line = format!("\n.SH NAME\n{name} - {about}\n");
            let text = page.text.replace("\\-", "-").replace("\\*(Aq", "'");
            assert!(text.contains(&line), "{}: {text}", page.file);
        });
        let all = programs::ALL
            .iter()
            .flat_map(|program| pages(program, DATE));
        let all: BTreeSet<_> = all.map(|page| page.file).collect();
        assert_eq!(of_commands, all);
        assert!(all.len() > 100, "{}", all.len());
    }

    /// Goal: a page says what `--help` says. Method: each sentence of the help stands on the page.
    #[test]
    fn a_page_says_what_help_says() {
        each(|command, page| {
            let shown = words_of(&page.text);
            let has = |what: &str, text: &str| {
                let text = spaced(text);
                assert!(
                    shown.contains(&text),
                    "{} {what}: {text:?} is not in {shown}",
                    page.file
                );
            };
            for form in usages(command) {
                has("usage", &form);
            }
            let about = command.get_long_about().or_else(|| command.get_about());
            has("about", &about.map(ToString::to_string).unwrap_or_default());
            let after = command.get_after_help().map(ToString::to_string);
            has("after", &after.unwrap_or_default());
            for option in command.get_arguments().filter(|a| !a.is_hide_set()) {
                let help = option.get_long_help().or_else(|| option.get_help());
                has("help", &help.map(ToString::to_string).unwrap_or_default());
                if let Some(long) = option.get_long() {
                    has("option", &format!("--{long}"));
                }
                let values = option.get_possible_values();
                for value in values.iter().filter(|value| !value.is_hide_set()) {
                    has("value", value.get_name());
                }
                if let Some(variable) = option.get_env() {
                    has("environment", &variable.to_string_lossy());
                }
            }
            for sub in commands(command) {
                let about = sub.get_about().map(ToString::to_string);
                has("command", &about.unwrap_or_default());
            }
        });
    }

    /// Goal: examples are copied from a page line by line.
    #[test]
    fn lines_behind_the_help_are_kept() {
        let mut count = 0;
        each(|command, page| {
            let after = command.get_after_help().map(ToString::to_string);
            for line in after.unwrap_or_default().lines() {
                let text = page.text.replace("\\-", "-").replace("\\*(Aq", "'");
                let text = text.replace("\\&", "").replace("\\\\", "\\");
                assert!(
                    text.lines().any(|l| l == line.trim_end()),
                    "{}: {line:?}",
                    page.file
                );
                count += 1;
            }
        });
        assert!(count > 50, "{count}");
    }
}
