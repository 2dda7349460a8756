//! Which commands read from one scheduler where there is no leader.
//!
//! Not here: what such an answer is worth (`stale`), and the calls (`session`).

use crate::arguments::{Cluster, Command, Host, Vm};
use crate::stale::Reading;

/// Returns how a command reads; `is_stale` and `at` are what its options say.
#[must_use]
pub fn reading(command: &Command, is_stale: bool, at: Option<u64>) -> Reading {
    if let Some(revision) = at {
        return Reading::Revision(revision);
    }
    match (is_stale, shows_where_vms_are(command)) {
        (true, _) => Reading::Stale,
        (false, true) => Reading::LeaderOrStale,
        (false, false) => Reading::Leader,
    }
}

/// Returns whether a command shows, or collects, what an operator needs when the leader is lost. Each of
/// them changes nothing.
fn shows_where_vms_are(command: &Command) -> bool {
    matches!(
        command,
        Command::Cluster(Cluster::Status)
            | Command::Vm(Vm::List { .. } | Vm::Show { .. })
            | Command::Host(Host::List { .. } | Host::Show { .. })
            | Command::Support(_)
            // It reads where the programs are.
            | Command::LogLevel(_)
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::arguments::Arguments;

    fn of(line: &str) -> Reading {
        let arguments = Arguments::try_parse_from(line.split_whitespace());
        let arguments = arguments.unwrap_or_else(|error| panic!("{line}: {error}"));
        let global = &arguments.global;
        reading(&arguments.command, global.stale, global.revision())
    }

    #[test]
    fn only_what_shows_where_vms_are_falls_back() {
        for line in [
            "berth cluster status",
            "berth vm list",
            "berth vm list --host h1",
            "berth vm show a",
            "berth host list",
            "berth host list --memory",
            "berth host show h1",
            "berth support bundle",
            "berth log-level show",
            "berth log-level set debug --all-members",
        ] {
            assert_eq!(of(line), Reading::LeaderOrStale, "{line}");
        }
        for line in [
            "berth cluster services",
            "berth cluster memory",
            "berth vm delete a",
            "berth vm migrate a",
            "berth host cordon h1",
            "berth operation list",
            "berth verify",
        ] {
            assert_eq!(of(line), Reading::Leader, "{line}");
        }
    }

    #[test]
    fn the_option_is_global() {
        for line in [
            "berth --stale operation list",
            "berth operation list --stale",
            "berth vm list --stale",
            "berth vm delete a --stale",
        ] {
            assert_eq!(of(line), Reading::Stale, "{line}");
        }
        assert_eq!(of("berth vm list --at 7"), Reading::Revision(7));
        assert_eq!(
            of("berth --backup f vm list --at 7"),
            Reading::LeaderOrStale
        );
    }
}
