//! Wrong usage of a command line, for programs: clap prints it for people.
//!
//! Not here: how it is rendered, which each program does as its other refusals.

use std::ffi::OsString;

use clap::error::ErrorKind;

/// Returns what is wrong, in one line.
#[must_use]
pub fn message(error: &clap::Error) -> String {
    let text = match error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // The rest is the help.
        true => "a command is missing".to_owned(),
        false => error.render().to_string(),
    };
    let message = text.strip_prefix("error: ").unwrap_or(&text);
    let message = message.split("\n\nUsage:").next().unwrap_or_default();
    let words: Vec<&str> = message.split_whitespace().collect();
    words.join(" ")
}

/// Returns the format of the output that arguments request which clap refused, as it is typed.
#[must_use]
pub fn output_format(arguments: &[OsString]) -> Option<&str> {
    let mut words = arguments.iter().filter_map(|word| word.to_str());
    while let Some(word) = words.next() {
        if matches!(word, "-o" | "--output") {
            return words.next();
        }
        let beside = word.strip_prefix("--output=");
        let short = || word.strip_prefix("-o").filter(|_| !word.starts_with("--"));
        if let Some(format) = beside.or_else(short) {
            return Some(format.strip_prefix('=').unwrap_or(format));
        }
    }
    None
}

/// Returns whether arguments that clap refused request output for programs, of one that knows JSON alone.
#[must_use]
pub fn wants_json(arguments: &[OsString]) -> bool {
    output_format(arguments) == Some("json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_recognised() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        for line in [
            "berth -o json x",
            "berth x --output json",
            "berth x --output=json",
            "berth -o=json",
            "berth -ojson",
        ] {
            assert!(wants_json(&words(line)), "{line}");
        }
        for line in [
            "berth",
            "berth -o",
            "berth -o table json",
            "berth vm show json",
        ] {
            assert!(!wants_json(&words(line)), "{line}");
        }
        for line in ["berth -o yaml", "berth -oyaml x", "berth x --output=yaml"] {
            assert_eq!(output_format(&words(line)), Some("yaml"), "{line}");
        }
    }
}
