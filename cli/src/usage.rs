//! Wrong usage: what is typed cannot be carried out, whatever the cluster holds. Its exit status is 2.
//!
//! clap has found most of it before a command begins; what takes more than one argument to see is
//! found by the command, as [`Usage`].

use berth_domain::refusal::{Code, Refusal};
use berth_process::usage;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};

/// The reason of wrong usage.
pub const USAGE: &str = "USAGE";

/// Arguments that do not go together, or do not mean anything.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

impl Usage {
    /// Returns the refusal of these arguments, for programs.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        Refusal::new(Code::InvalidArgument, USAGE, &*self.0)
    }
}

/// Returns the refusal of arguments that clap refuses, in one line.
#[must_use]
pub fn refusal(error: &clap::Error) -> Refusal {
    Refusal::new(Code::InvalidArgument, USAGE, usage::message(error))
        .with_hint("`--help` behind the command describes its arguments")
}

/// Returns the same refusal, whose usage has no arguments that the environment or a default has given:
/// clap shows them as if they had to be typed.
#[must_use]
pub fn without_defaults(mut error: clap::Error, mut command: clap::Command) -> clap::Error {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else {
        return error;
    };
    let mut text = usage.to_string();
    command.build();
    let given = command.get_arguments().filter(|argument| {
        argument.get_env().is_some() || !argument.get_default_values().is_empty()
    });
    for argument in given.filter(|argument| argument.get_long().is_some()) {
        text = text.replace(&format!(" {argument}"), "");
    }
    let usage = ContextValue::StyledStr(StyledStr::from(text));
    error.insert(ContextKind::Usage, usage);
    error
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::arguments::Arguments;

    fn refused(line: &str) -> Refusal {
        refusal(&Arguments::try_parse_from(line.split(' ')).expect_err(line))
    }

    /// Goal: the usage that is shown has what has to be typed, and not the schedulers' addresses.
    #[test]
    fn what_has_a_default_is_not_shown_as_required() {
        let line = ["berth", "operation", "show"];
        let error = Arguments::try_parse_from(line).expect_err("no operation");
        let shown = without_defaults(error, Arguments::command()).to_string();
        assert!(
            shown.contains("Usage: berth operation show <OPERATION>"),
            "{shown}"
        );
    }

    /// Goal: each kind of wrong usage is one line that names what is wrong.
    #[test]
    fn what_clap_refuses_is_one_line() {
        for (line, part) in [
            ("berth", "a command is missing"),
            ("berth vm", "a command is missing"),
            ("berth nothing", "'nothing'"),
            ("berth vm list --nothing", "'--nothing'"),
            ("berth vm show", "<VM>"),
            ("berth flavor create f --vcpus x --memory-mib 1", "'x'"),
            ("berth flavor create f --vcpus 1 --memory 1X", "'1X'"),
            ("berth vm create v --flavor f --initrd i", "--kernel"),
        ] {
            let message = refused(line).message;
            assert!(message.contains(part), "{line}: {message}");
            assert!(!message.contains('\n'), "{line}: {message}");
            assert!(!message.starts_with("error"), "{line}: {message}");
        }
    }
}
