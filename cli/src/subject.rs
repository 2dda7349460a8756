//! What each command shows: where the name of a resource is in its value, and the columns of its list.
//!
//! Not here: how it is shown.
//!
//! Invariant: every command is listed once; a test holds it.

use std::collections::BTreeSet;

use crate::output::Subject;
use crate::{
    aggregate, audit, certs, class, cluster, cpu_model, flavor, host, image, log_level, migration,
    network, operation, pci_alias, provider, revocation, server_group, traits, vm, volume,
};

/// What a command does before its value is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Reads,
    Changes,
}

use Effect::{Changes, Reads};

/// Fields that name a resource in the next command, the first one that there is.
type Names = &'static [&'static str];

/// Nothing that the next command would name: numbers, a plan, a stream, or a format of its own.
const NONE: Names = &[];
const NAME: Names = &["name"];
const ID: Names = &["id"];
const HOST: Names = &["host.name", "host", "name"];
/// The operation if it was not waited for, else the VM; the chosen host if nothing is changed.
const VM: Names = &["operation", "vm.name", "name", "host"];
const PROVIDER: Names = &["provider.id", "name", "id"];
const OPERATION: Names = &["operation"];
const FINGERPRINT: Names = &["fingerprint", "name"];
const ENTRY: Names = &["entry"];

/// Every command, in the order of the help.
const COMMANDS: &[(&str, Effect, Names)] = &[
    ("vm create", Changes, VM),
    ("vm list", Reads, NAME),
    ("vm show", Reads, VM),
    ("vm history", Reads, NONE),
    ("vm migrate", Changes, VM),
    ("vm stop", Changes, VM),
    ("vm start", Changes, VM),
    ("vm reboot", Changes, VM),
    ("vm rebuild", Changes, VM),
    ("vm snapshot", Changes, VM),
    ("vm resize", Changes, VM),
    ("vm confirm-resize", Changes, VM),
    ("vm revert-resize", Changes, VM),
    ("vm evacuate", Changes, VM),
    ("vm shelve", Changes, VM),
    ("vm unshelve", Changes, VM),
    ("vm set-restart", Changes, VM),
    ("vm set", Changes, VM),
    ("vm delete", Changes, VM),
    ("vm console", Reads, NONE),
    ("apply", Changes, NONE),
    ("flavor create", Changes, NAME),
    ("flavor list", Reads, NAME),
    ("flavor show", Reads, NAME),
    ("flavor delete", Changes, NAME),
    ("image add", Changes, NAME),
    ("image list", Reads, NAME),
    ("image show", Reads, NAME),
    ("image copy", Changes, HOST),
    ("image remove", Changes, NAME),
    ("network create", Changes, NAME),
    ("network list", Reads, NAME),
    ("network show", Reads, NAME),
    ("network delete", Changes, NAME),
    ("server-group create", Changes, NAME),
    ("server-group list", Reads, NAME),
    ("server-group show", Reads, NAME),
    ("server-group delete", Changes, NAME),
    ("pci-alias create", Changes, NAME),
    ("pci-alias list", Reads, NAME),
    ("pci-alias show", Reads, NAME),
    ("pci-alias delete", Changes, NAME),
    ("migration list", Reads, ID),
    ("migration show", Reads, ID),
    ("migration watch", Reads, NONE),
    ("migration abort", Changes, ID),
    ("migration force-complete", Changes, ID),
    ("operation list", Reads, ID),
    ("operation show", Reads, ID),
    ("operation wait", Reads, ID),
    ("operation cancel", Changes, ID),
    ("host list", Reads, HOST),
    ("host show", Reads, HOST),
    ("host history", Reads, NONE),
    ("host check", Reads, NONE),
    ("host cordon", Changes, HOST),
    ("host uncordon", Changes, HOST),
    ("host drain", Changes, OPERATION),
    ("host evacuate", Changes, OPERATION),
    ("host fence", Changes, HOST),
    ("host remove", Changes, HOST),
    ("host pmem write-off", Changes, NONE),
    ("aggregate create", Changes, NAME),
    ("aggregate list", Reads, NAME),
    ("aggregate show", Reads, NAME),
    ("aggregate delete", Changes, NAME),
    ("aggregate add-host", Changes, NAME),
    ("aggregate remove-host", Changes, NAME),
    ("aggregate set", Changes, NAME),
    ("availability-zone list", Reads, &["zone"]),
    ("cpu baseline", Reads, NONE),
    ("cpu models", Reads, &["cpu_model"]),
    ("cluster status", Reads, NONE),
    ("cluster memory", Reads, NONE),
    ("cluster backup", Changes, NONE),
    ("cluster recovery status", Reads, NONE),
    ("cluster recovery end", Changes, NONE),
    ("cluster remove-member", Changes, NAME),
    ("cluster update-member", Changes, NAME),
    ("cluster transfer-leader", Changes, NAME),
    ("cluster services", Reads, NAME),
    ("cluster remove-conductor", Changes, NAME),
    ("cluster rotate-grant-key", Changes, NONE),
    ("cluster revoke-certificate", Changes, FINGERPRINT),
    ("cluster reinstate-certificate", Changes, FINGERPRINT),
    ("cluster revoked-certificates", Reads, FINGERPRINT),
    ("cluster upgrade status", Reads, NONE),
    ("cluster upgrade finalize", Changes, NONE),
    ("backup inspect", Reads, NONE),
    ("backup verify", Reads, NONE),
    ("policy show", Reads, NONE),
    ("policy set", Changes, NONE),
    ("policy unset", Changes, NONE),
    ("top", Reads, NONE),
    ("web login", Changes, NONE),
    ("watch", Reads, NONE),
    ("audit list", Reads, ENTRY),
    ("audit show", Reads, ENTRY),
    ("log-level show", Reads, NONE),
    ("log-level set", Changes, NONE),
    ("log-level reset", Changes, NONE),
    ("support bundle", Changes, NONE),
    ("certs init", Changes, NONE),
    ("certs issue", Changes, NONE),
    ("certs hypervisor", Changes, NONE),
    ("certs renew", Changes, NONE),
    ("certs show", Reads, NONE),
    ("provider list", Reads, PROVIDER),
    ("provider watch", Reads, NONE),
    ("provider show", Reads, PROVIDER),
    ("provider create", Changes, PROVIDER),
    ("provider update", Changes, PROVIDER),
    ("provider set-inventories", Changes, PROVIDER),
    ("provider set-traits", Changes, PROVIDER),
    ("provider set-aggregates", Changes, PROVIDER),
    ("provider delete", Changes, PROVIDER),
    ("candidates", Reads, NONE),
    ("class list", Reads, NAME),
    ("class create", Changes, NAME),
    ("class rename", Changes, NAME),
    ("class delete", Changes, NAME),
    ("trait list", Reads, NAME),
    ("trait create", Changes, NAME),
    ("trait delete", Changes, NAME),
    ("placement import", Changes, NONE),
    ("placement compare", Reads, NONE),
    ("verify", Reads, NONE),
    ("score", Reads, NONE),
    ("balance", Changes, NONE),
    ("capacity", Reads, NONE),
    ("replay", Reads, NONE),
    ("volume create", Changes, ID),
    ("volume list", Reads, ID),
    ("volume show", Reads, ID),
    ("volume delete", Changes, NAME),
    ("volume capacity", Reads, NONE),
    ("volume plan-room", Reads, NONE),
    ("dev", Changes, NONE),
    ("demo", Changes, NONE),
    ("fit", Reads, NONE),
    ("iallocator", Reads, NONE),
    ("doctor", Reads, NONE),
    ("explain", Reads, NONE),
    ("completion", Reads, NONE),
];

/// Returns what the command of these words shows.
pub(crate) fn of(command: &str) -> Subject {
    let listed = COMMANDS.iter().find(|(words, _, _)| *words == command);
    let (_, effect, names) = listed.copied().unwrap_or((command, Changes, NONE));
    Subject {
        names,
        columns: columns(command),
        changes: effect == Changes,
    }
}

/// Returns the columns of the list that a command shows; none if it shows something else.
pub(crate) fn columns(command: &str) -> Vec<&'static str> {
    match command {
        "vm list" => vm::COLUMNS.all(),
        "flavor list" => flavor::COLUMNS.all(),
        "image list" => image::COLUMNS.all(),
        "network list" => network::COLUMNS.all(),
        "server-group list" => server_group::COLUMNS.all(),
        "pci-alias list" => pci_alias::COLUMNS.all(),
        "migration list" => migration::COLUMNS.all(),
        "operation list" => operation::COLUMNS.all(),
        "host list" => {
            // The memory of hosts is another list of the same command.
            let mut all = [host::COLUMNS.all(), host::SIGNALS.all()].concat();
            let mut seen = BTreeSet::new();
            all.retain(|column| seen.insert(*column));
            all
        }
        "host check" => host::check::COLUMNS.all(),
        "aggregate list" => aggregate::COLUMNS.all(),
        "availability-zone list" => aggregate::ZONES.all(),
        "cpu models" => cpu_model::MODELS.all(),
        "cluster services" => cluster::SERVICES.all(),
        "cluster revoked-certificates" => revocation::COLUMNS.all(),
        "audit list" => audit::COLUMNS.all(),
        "log-level show" => log_level::COLUMNS.all(),
        "certs show" => certs::COLUMNS.all(),
        "provider list" => provider::COLUMNS.all(),
        "class list" => class::COLUMNS.all(),
        "trait list" => traits::COLUMNS.all(),
        "volume list" => volume::COLUMNS.all(),
        _ => Vec::new(),
    }
}

/// Returns the words of a command, as they were typed.
pub(crate) fn words(matches: &clap::ArgMatches) -> String {
    let mut words = Vec::new();
    let mut matches = Some(matches);
    while let Some((word, below)) = matches.and_then(clap::ArgMatches::subcommand) {
        words.push(word);
        matches = Some(below);
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::arguments::Arguments;

    fn leaves(command: &clap::Command, within: &str, all: &mut Vec<String>) {
        let subcommands = command.get_subcommands();
        let subcommands: Vec<_> = subcommands.filter(|c| c.get_name() != "help").collect();
        if subcommands.is_empty() {
            all.push(within.trim().to_owned());
        }
        for below in subcommands {
            leaves(below, &format!("{within} {}", below.get_name()), all);
        }
    }

    /// Goal: a new command needs a decision, and those that list something are ordered.
    #[test]
    fn every_command_is_listed_once() {
        let mut all = Vec::new();
        leaves(&Arguments::command(), "", &mut all);
        all.sort_unstable();
        let mut listed: Vec<&str> = COMMANDS.iter().map(|(words, _, _)| *words).collect();
        listed.sort_unstable();
        assert_eq!(listed, all);
        let lists = all.iter().filter(|words| words.ends_with(" list"));
        let unordered: Vec<_> = lists.filter(|words| columns(words).is_empty()).collect();
        assert!(unordered.is_empty(), "lists without columns: {unordered:?}");
    }

    /// Goal: a column can be typed: no two of a list are the same, and each is one word.
    #[test]
    fn columns_of_a_list_differ() {
        for (words, effect, _) in COMMANDS {
            let typed: Vec<String> = columns(words)
                .into_iter()
                .map(crate::output::typed)
                .collect();
            assert!(typed.is_empty() || *effect == Reads, "{words}");
            let is_word = |name: &String| !name.is_empty() && !name.contains([' ', ',']);
            assert!(typed.iter().all(is_word), "{words}: {typed:?}");
            let mut distinct = typed.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), typed.len(), "{words}: {typed:?}");
        }
    }
}
