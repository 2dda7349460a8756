//! Which commands read from one scheduler where there is no leader.
//!
//! Not here: what such an answer is worth (`stale`), and the calls (`session`).

use crate::arguments::{
    Aggregate, Audit, AvailabilityZone, Class, Cluster, ClusterRecovery, Command, Cpu, Flavor,
    Host, Image, Migration, Network, Operation, PciAlias, Policy, Provider, ServerGroup, Trait,
    Upgrade, Vm, Volume,
};
use crate::stale::Reading;

/// Returns how a command reads; `is_stale` and `at` are what its options say.
#[must_use]
pub fn reading(command: &Command, is_stale: bool, at: Option<u64>) -> Reading {
    if let Some(revision) = at {
        return Reading::Revision(revision);
    }
    match (is_stale, shows_what_is(command)) {
        (true, _) => Reading::Stale,
        (false, true) => Reading::LeaderOrStale,
        (false, false) => Reading::Leader,
    }
}

/// Returns whether a command shows, or collects, what is recorded: an operator needs that when the leader is
/// lost. Each of them changes nothing. What is computed of the state, as whether a failure would be survived,
/// is acted upon, and what only a leader has is shown by a leader: these are not among them.
fn shows_what_is(command: &Command) -> bool {
    match command {
        Command::Vm(verb) => matches!(verb, Vm::List { .. } | Vm::Show { .. } | Vm::History { .. }),
        Command::Host(verb) => {
            matches!(
                verb,
                Host::List { .. } | Host::Show { .. } | Host::History { .. }
            )
        }
        Command::Flavor(verb) => matches!(verb, Flavor::List(_) | Flavor::Show { .. }),
        Command::Image(verb) => matches!(verb, Image::List | Image::Show { .. }),
        Command::Network(verb) => matches!(verb, Network::List | Network::Show { .. }),
        Command::PciAlias(verb) => matches!(verb, PciAlias::List | PciAlias::Show { .. }),
        Command::Migration(verb) => matches!(verb, Migration::List { .. } | Migration::Show { .. }),
        Command::Aggregate(verb) => matches!(verb, Aggregate::List(_) | Aggregate::Show { .. }),
        Command::AvailabilityZone(AvailabilityZone::List) => true,
        Command::Cpu(Cpu::Baseline(_) | Cpu::Models(_)) => true,
        Command::ServerGroup(verb) => {
            matches!(verb, ServerGroup::List(_) | ServerGroup::Show { .. })
        }
        Command::Policy(verb) => matches!(verb, Policy::Show { .. }),
        Command::Operation(verb) => matches!(verb, Operation::List { .. } | Operation::Show { .. }),
        Command::Provider(verb) => matches!(verb, Provider::List(_) | Provider::Show { .. }),
        Command::Class(verb) => matches!(verb, Class::List),
        Command::Trait(verb) => matches!(verb, Trait::List { .. }),
        Command::Volume(verb) => {
            matches!(
                verb,
                Volume::List { .. } | Volume::Show { .. } | Volume::Capacity { .. }
            )
        }
        // Refusals, which are part of the list, are in the memory of a leader.
        Command::Audit(verb) => matches!(verb, Audit::Show { .. }),
        Command::Cluster(verb) => matches!(
            verb,
            Cluster::Status
                | Cluster::Memory
                | Cluster::Services
                | Cluster::RevokedCertificates
                | Cluster::Recovery(ClusterRecovery::Status)
                | Cluster::Upgrade(Upgrade::Status)
        ),
        // It reads where the programs are.
        Command::LogLevel(_) => true,
        Command::Support(_) | Command::Doctor => true,
        Command::Apply(_)
        | Command::Backup(_)
        | Command::Placement(_)
        | Command::Candidates(_)
        | Command::Fit(_)
        | Command::Dev(_)
        | Command::Demo(_)
        | Command::Explain(_)
        | Command::Completion(_)
        | Command::Watch(_)
        | Command::Top(_)
        | Command::Web(_)
        | Command::Verify(_)
        | Command::Score(_)
        | Command::Balance(_)
        | Command::Capacity(_)
        | Command::Replay(_)
        | Command::Iallocator(_)
        | Command::Certs(_) => false,
    }
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
    fn only_what_shows_records_falls_back() {
        for line in [
            "berth cluster status",
            "berth vm list",
            "berth vm list --host h1",
            "berth vm list --label team=blue",
            "berth vm show a",
            "berth host list",
            "berth host list --memory",
            "berth host show h1",
            "berth support bundle",
            "berth cluster services",
            "berth cluster memory",
            "berth cluster recovery status",
            "berth cluster upgrade status",
            "berth cluster revoked-certificates",
            "berth policy show --host h1",
            "berth operation list",
            "berth flavor show a",
            "berth audit show 7",
            "berth vm history a",
            "berth volume list",
            "berth provider list",
            "berth log-level show",
            "berth log-level set debug --all-members",
        ] {
            assert_eq!(of(line), Reading::LeaderOrStale, "{line}");
        }
        for line in [
            "berth audit list",
            "berth policy unset memory.ratio",
            "berth flavor delete a",
            "berth operation cancel 6f1c6f0e-3a0e-4c39-8a51-4a8c3b6b1f10",
            "berth score",
            "berth vm delete a",
            "berth vm set a --protect",
            "berth vm migrate a",
            "berth host cordon h1",
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
