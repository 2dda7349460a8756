//! What helps against refusals whose sender does not say it: which command lists what there is, and what
//! to do where no scheduler answers.
//!
//! Not here: hints of the scheduler, which are about the state it refuses in and stay as they are.

use berth_domain::refusal::Refusal;
use berth_proto::client;
use berth_proto::status::OUTCOME_UNKNOWN;

/// Which command lists the records of a kind, by the reason that names one that does not exist.
const LISTS: &[(&str, &str)] = &[
    ("AGGREGATE_NOT_FOUND", "aggregate list"),
    ("AVAILABILITY_ZONE_NOT_FOUND", "availability-zone list"),
    ("CLASS_NOT_FOUND", "class list"),
    ("FLAVOR_NOT_FOUND", "flavor list"),
    ("HOST_NOT_FOUND", "host list"),
    ("IMAGE_NOT_FOUND", "image list"),
    ("MEMBER_NOT_FOUND", "cluster status"),
    ("MIGRATION_NOT_FOUND", "migration list"),
    ("NETWORK_NOT_FOUND", "network list"),
    ("OPERATION_NOT_FOUND", "operation list"),
    ("PCI_ALIAS_NOT_FOUND", "pci-alias list"),
    ("PROVIDER_NOT_FOUND", "provider list"),
    ("SERVER_GROUP_NOT_FOUND", "server-group list"),
    ("TRAIT_NOT_FOUND", "trait list"),
    ("VM_NOT_FOUND", "vm list"),
    ("VOLUME_NOT_FOUND", "volume list"),
];

/// Adds what helps to a refusal without a hint.
pub(crate) fn with_hint(refusal: Refusal) -> Refusal {
    // One of a member that was tried before is about something else than what became of the command.
    if refusal.hint.is_some() && refusal.reason != OUTCOME_UNKNOWN {
        return refusal;
    }
    match hint(&refusal.reason) {
        Some(hint) => refusal.with_hint(hint),
        None => refusal,
    }
}

fn hint(reason: &str) -> Option<String> {
    if let Some((_, list)) = LISTS.iter().find(|(of, _)| *of == reason) {
        return Some(format!("`berth {list}` shows which there are"));
    }
    let hint = match reason {
        OUTCOME_UNKNOWN => {
            "`berth audit list` shows whether it was carried out, maybe a moment later"
        }
        client::UNREACHABLE => {
            "start one (berth dev, or berth-scheduler), or name one: --scheduler HOST:PORT, or the \
             environment variable BERTH_SCHEDULER"
        }
        "UNIMPLEMENTED" => {
            "another program than a scheduler may listen there, as a conductor or an agent; name the \
             schedulers with --scheduler. An older scheduler does not know each call either"
        }
        client::NO_LEADER => {
            "`berth cluster status` shows which members are reached; a majority has to run to change \
             something, and --stale reads from one of them"
        }
        "CPU_FEATURES" | "CPU_MODEL_UNKNOWN" | "CPU_NOT_REPORTED" => {
            "`berth cpu models` lists what hosts can give"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::arguments::Arguments;

    /// Goal: the commands of hints exist, and take no more words.
    #[test]
    fn the_named_commands_exist() {
        for (reason, list) in LISTS {
            let words = ["berth"].into_iter().chain(list.split(' '));
            let parsed = Arguments::try_parse_from(words);
            assert!(parsed.is_ok(), "{reason}: berth {list}");
        }
    }

    /// Goal: a scheduler that knows better is not contradicted.
    #[test]
    fn a_hint_of_the_scheduler_stays() {
        let refusal = Refusal::not_found("vm", "a");
        assert_eq!(
            with_hint(refusal.clone()).hint.as_deref(),
            Some("`berth vm list` shows which there are")
        );
        let own = with_hint(refusal.with_hint("it was renamed"));
        assert_eq!(own.hint.as_deref(), Some("it was renamed"));
    }
}
