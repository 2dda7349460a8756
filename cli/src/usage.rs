//! Wrong usage: what is typed cannot be carried out, whatever the cluster holds. Its exit status is 2.
//!
//! clap has found most of it before a command begins; what takes more than one argument to see is
//! found by the command, as [`Usage`].

use berth_domain::refusal::{Code, Refusal};
use berth_process::usage;

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

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::arguments::Arguments;

    fn refused(line: &str) -> Refusal {
        refusal(&Arguments::try_parse_from(line.split(' ')).expect_err(line))
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
            ("berth vm create v --flavor f --kernel k", "--initrd"),
        ] {
            let message = refused(line).message;
            assert!(message.contains(part), "{line}: {message}");
            assert!(!message.contains('\n'), "{line}: {message}");
            assert!(!message.starts_with("error"), "{line}: {message}");
        }
    }
}
