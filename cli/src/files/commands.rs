//! Which commands are answered from files, and why others are not.
//!
//! Not here: how a command is answered. Every verb is named, so that a new one needs a decision.
//!
//! Invariant: a command that may change something, or that needs a running cluster, is refused before a
//! file is opened.

use berth_domain::refusal::{Code, Refusal};

use crate::arguments::{
    Aggregate, Audit, AvailabilityZone, Class, Cluster, ClusterRecovery, Command, Cpu, Flavor,
    Host, HostPmem, Image, LogLevel, Migration, Network, Operation, PciAlias, Placement, Policy,
    Provider, ServerGroup, Trait, Upgrade, Vm, Volume,
};

use crate::arguments::Global;
use crate::offline::{NOT_IN_A_BACKUP, not_a_read};

/// Whether a command is answered from files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It reads the state.
    Reads,
    /// It reads what is in the state, and more of which at a running scheduler.
    Status,
    /// It shows what no state has, and a support bundle does; in a backup it is missing for this reason.
    Measured(&'static str),
    /// It would change something.
    Changes,
    /// It shows what only a running cluster has: this.
    Live(&'static str),
    /// It calls no scheduler at all.
    Alone,
}

use Verdict::{Alone, Changes, Live, Measured, Reads, Status};

const DECISIONS: Verdict = Live("decisions are made by the leader and its hosts");
const STREAM: Verdict = Live("nothing happens in a state that was");

/// Refuses a command that is not answered from the files of these options.
///
/// # Errors
///
/// Why it is not.
pub(crate) fn check(command: &Command, global: &Global) -> Result<(), Refusal> {
    let option = match global.bundle {
        Some(_) => "--bundle",
        None => "--backup",
    };
    match verdict(command) {
        Reads | Status => Ok(()),
        Measured(_) if global.bundle.is_some() => Ok(()),
        Changes => Err(not_a_read()),
        Live(why) | Measured(why) => {
            let message = format!("{option} does not answer this command: {why}");
            Err(
                Refusal::new(Code::InvalidArgument, NOT_IN_A_BACKUP, message)
                    .with_hint(format!("repeat the command without {option}")),
            )
        }
        Alone => {
            let message =
                format!("{option} has no meaning for this command, which calls no scheduler");
            Err(
                Refusal::new(Code::InvalidArgument, "BACKUP_UNUSED", message)
                    .with_hint(format!("repeat the command without {option}")),
            )
        }
    }
}

/// Refuses a command that is not answered from the state of a scheduler at a revision.
///
/// # Errors
///
/// Why it is not.
pub(crate) fn check_revision(command: &Command) -> Result<(), Refusal> {
    let is_history = matches!(
        command,
        Command::Vm(Vm::History { .. }) | Command::Host(Host::History { .. })
    );
    let (why, hint) = match verdict(command) {
        Reads if is_history => ("a history is of no single state", "begin it with --after"),
        Reads => return Ok(()),
        Changes => ("it would change something", "leave --at out"),
        Status if matches!(command, Command::Cluster(Cluster::Status)) => {
            ("it is about running schedulers", "leave --at out")
        }
        // The state has most of what they show.
        Status => return Ok(()),
        Live(why) | Measured(why) => (why, "leave --at out"),
        Alone => ("it calls no scheduler", "leave --at out"),
    };
    let message = format!("--at does not go with this command: {why}");
    Err(Refusal::new(Code::InvalidArgument, "REVISION_NOT_A_READ", message).with_hint(hint))
}

/// Returns whether a bundle with a state answers a command from it, rather than from what its schedulers
/// answered.
pub(crate) fn prefers_state(command: &Command) -> bool {
    match verdict(command) {
        Reads => true,
        Status | Measured(_) | Changes | Live(_) | Alone => false,
    }
}

fn verdict(command: &Command) -> Verdict {
    match command {
        Command::Host(verb) => host(verb),
        Command::Flavor(Flavor::List(_) | Flavor::Show { .. }) => Reads,
        Command::Flavor(Flavor::Create { .. } | Flavor::Delete { .. }) => Changes,
        Command::Image(Image::List | Image::Show { .. }) => Reads,
        Command::Image(Image::Add(_) | Image::Copy { .. } | Image::Remove { .. }) => Changes,
        Command::Network(Network::List | Network::Show { .. }) => Reads,
        Command::Network(Network::Create(_) | Network::Delete { .. }) => Changes,
        Command::PciAlias(PciAlias::List | PciAlias::Show { .. }) => Reads,
        Command::PciAlias(PciAlias::Create { .. } | PciAlias::Delete { .. }) => Changes,
        Command::Vm(verb) => vm(verb),
        Command::Migration(Migration::List { .. } | Migration::Show { .. }) => Reads,
        Command::Migration(Migration::Watch { .. }) => STREAM,
        Command::Migration(Migration::Abort { .. } | Migration::ForceComplete { .. }) => Changes,
        Command::Aggregate(Aggregate::List(_) | Aggregate::Show { .. }) => Reads,
        Command::Aggregate(
            Aggregate::Create { .. }
            | Aggregate::Delete { .. }
            | Aggregate::AddHost { .. }
            | Aggregate::RemoveHost { .. }
            | Aggregate::Set { .. },
        ) => Changes,
        Command::AvailabilityZone(AvailabilityZone::List) => Reads,
        Command::Cpu(Cpu::Baseline(_) | Cpu::Models(_)) => Reads,
        Command::ServerGroup(ServerGroup::List(_) | ServerGroup::Show { .. }) => Reads,
        Command::ServerGroup(ServerGroup::Create { .. } | ServerGroup::Delete { .. }) => Changes,
        Command::Policy(Policy::Show { .. }) => Reads,
        Command::Policy(Policy::Set { .. } | Policy::Unset { .. }) => Changes,
        Command::Operation(Operation::List { .. } | Operation::Show { .. }) => Reads,
        Command::Operation(Operation::Wait { .. }) => STREAM,
        Command::Operation(Operation::Cancel { .. }) => Changes,
        Command::Cluster(verb) => cluster(verb),
        Command::Provider(verb) => provider(verb),
        Command::Placement(Placement::Compare(_)) => Reads,
        Command::Placement(Placement::Import(_)) => Changes,
        Command::Class(Class::List) => Reads,
        Command::Class(Class::Create { .. } | Class::Rename { .. } | Class::Delete { .. }) => {
            Changes
        }
        Command::Trait(Trait::List { .. }) => Reads,
        Command::Trait(Trait::Create { .. } | Trait::Delete { .. }) => Changes,
        Command::Watch(_) | Command::Top(_) => STREAM,
        // Refusals are in no state.
        Command::Audit(Audit::List(_)) => Status,
        Command::Audit(Audit::Show { .. }) => Reads,
        Command::Web(_) => Live("the page is served by a scheduler"),
        Command::LogLevel(LogLevel::Show { .. }) => {
            Live("log levels are those of running programs")
        }
        Command::LogLevel(LogLevel::Set { .. } | LogLevel::Reset { .. }) => Changes,
        Command::Doctor => Live("the programs that run are checked"),
        Command::Support(_) => Live("a bundle is made of what schedulers answer"),
        Command::Candidates(_) | Command::Verify(_) | Command::Score(_) | Command::Capacity(_) => {
            Reads
        }
        // Its plan is made of several reads, of which the last must not be older than the first.
        Command::Apply(args) if args.dry_run => {
            Live("what is declared is compared with what is there now")
        }
        Command::Apply(_) => Changes,
        Command::Balance(args) if args.execute => Changes,
        Command::Balance(_) => Reads,
        Command::Volume(verb) => volume(verb),
        Command::Backup(_)
        | Command::Fit(_)
        | Command::Explain(_)
        | Command::Completion(_)
        | Command::Dev(_)
        | Command::Demo(_)
        | Command::Replay(_)
        | Command::Iallocator(_)
        | Command::Certs(_) => Alone,
    }
}

fn host(verb: &Host) -> Verdict {
    match verb {
        // Schedulers know whether hosts are up, and a state does not.
        Host::List { memory: false, .. } => Status,
        Host::Show { .. } | Host::History { .. } => Reads,
        Host::List { memory: true, .. } => {
            Measured("measured memory is reported to the leader only")
        }
        Host::Check(_) => Live("hosts check themselves"),
        Host::Cordon { .. }
        | Host::Uncordon { .. }
        | Host::Moves(_)
        | Host::Fence { .. }
        | Host::Remove { .. }
        | Host::Pmem(HostPmem::WriteOff { .. }) => Changes,
    }
}

fn vm(verb: &Vm) -> Verdict {
    match verb {
        Vm::List { .. } | Vm::Show { .. } | Vm::History { .. } => Reads,
        Vm::Create(args) if args.validate_only => DECISIONS,
        Vm::Migrate {
            validate_only: true,
            ..
        } => DECISIONS,
        Vm::Console(_) => Live("a console is read at the hypervisor"),
        Vm::Create(_)
        | Vm::Migrate { .. }
        | Vm::Power(_)
        | Vm::Moves(_)
        | Vm::SetRestart { .. }
        | Vm::Set { .. }
        | Vm::Delete { .. } => Changes,
    }
}

fn cluster(verb: &Cluster) -> Verdict {
    match verb {
        Cluster::Status
        | Cluster::Services
        | Cluster::RevokedCertificates
        | Cluster::Recovery(ClusterRecovery::Status) => Status,
        Cluster::Memory => Measured("it is about the memory of a running scheduler"),
        Cluster::Backup(_) => Live("a backup is made by a scheduler"),
        Cluster::Upgrade(Upgrade::Status) => Measured("versions are those of running programs"),
        Cluster::Upgrade(Upgrade::Finalize {
            validate_only: true,
            ..
        }) => DECISIONS,
        Cluster::Recovery(ClusterRecovery::End { .. })
        | Cluster::RemoveMember { .. }
        | Cluster::UpdateMember { .. }
        | Cluster::TransferLeader { .. }
        | Cluster::RemoveConductor { .. }
        | Cluster::RotateGrantKey
        | Cluster::RevokeCertificate { .. }
        | Cluster::ReinstateCertificate { .. }
        | Cluster::Upgrade(Upgrade::Finalize { .. }) => Changes,
    }
}

fn provider(verb: &Provider) -> Verdict {
    match verb {
        Provider::List(_) | Provider::Show { .. } => Reads,
        Provider::Watch { .. } => STREAM,
        Provider::Create { .. }
        | Provider::Update { .. }
        | Provider::SetInventories { .. }
        | Provider::SetTraits { .. }
        | Provider::SetAggregates { .. }
        | Provider::Delete { .. } => Changes,
    }
}

fn volume(verb: &Volume) -> Verdict {
    match verb {
        Volume::List { .. }
        | Volume::Show { .. }
        | Volume::Capacity { .. }
        | Volume::PlanSpace { .. } => Reads,
        Volume::Create(_) | Volume::Delete { .. } => Changes,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::arguments::Arguments;

    fn of(line: &str) -> Verdict {
        let line = format!("berth --backup x {line}");
        let arguments = Arguments::try_parse_from(line.split_whitespace());
        let arguments = arguments.unwrap_or_else(|error| panic!("{line}: {error}"));
        verdict(&arguments.command)
    }

    #[test]
    fn what_reads_the_state_is_answered() {
        for line in [
            "vm list",
            "vm show a",
            "host show h1",
            "policy show --host h1",
            "verify --plan",
            "balance",
            "candidates --resources VCPU=1",
            "volume plan-room x --size 1G",
        ] {
            assert_eq!(of(line), Reads, "{line}");
        }
    }

    #[test]
    fn everything_else_is_refused_with_its_reason() {
        for line in [
            "vm set a --protect",
            "vm delete a",
            "vm create a --flavor x --kernel k --initrd i",
            "host cordon h1",
            "balance --execute --yes",
            "cluster rotate-grant-key",
            "cluster upgrade finalize",
            "policy set memory.ratio=1.5",
            "log-level set debug --all-members",
            "log-level reset",
        ] {
            assert_eq!(of(line), Changes, "{line}");
        }
        for line in [
            "watch",
            "top",
            "provider watch",
            "migration watch 6f1c6f0e-3a0e-4c39-8a51-4a8c3b6b1f10",
            "operation wait 6f1c6f0e-3a0e-4c39-8a51-4a8c3b6b1f10",
            "vm console a",
            "vm migrate a --validate-only",
            "cluster backup y",
            "host check h1",
            "support bundle y",
            "log-level show",
        ] {
            assert!(matches!(of(line), Live(_)), "{line}");
        }
        for line in [
            "cluster memory",
            "host list --memory",
            "cluster upgrade status",
        ] {
            assert!(matches!(of(line), Measured(_)), "{line}");
        }
        for line in ["cluster status", "audit list", "host list"] {
            assert_eq!(of(line), Status, "{line}");
        }
        for line in ["backup inspect y", "fit", "dev", "demo", "replay y"] {
            assert_eq!(of(line), Alone, "{line}");
        }
    }

    #[test]
    fn each_refusal_says_what_to_do() {
        for (line, reason) in [
            ("berth --backup x vm delete a", "BACKUP_NOT_A_READ"),
            ("berth --backup x watch", NOT_IN_A_BACKUP),
            ("berth --backup x cluster memory", NOT_IN_A_BACKUP),
            ("berth --bundle x watch", NOT_IN_A_BACKUP),
            ("berth --backup x fit", "BACKUP_UNUSED"),
        ] {
            let arguments = Arguments::try_parse_from(line.split_whitespace()).expect(line);
            let refused = check(&arguments.command, &arguments.global).expect_err(line);
            assert_eq!(refused.reason, reason, "{line}");
            assert!(refused.hint.is_some(), "{line}");
        }
    }
}
