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

/// Returns whether arguments that clap refused request output for programs.
#[must_use]
pub fn wants_json(arguments: &[OsString]) -> bool {
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    let apart = words
        .windows(2)
        .any(|pair| matches!(pair, ["-o" | "--output", "json"]));
    apart
        || words
            .iter()
            .any(|word| matches!(*word, "-ojson" | "-o=json" | "--output=json"))
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
            "berth -ojson",
        ] {
            assert!(wants_json(&words(line)), "{line}");
        }
        for line in ["berth", "berth -o table json", "berth vm show json"] {
            assert!(!wants_json(&words(line)), "{line}");
        }
    }
}
