//! Names and addresses on the command line: what can be none is refused as wrong usage, before anything is
//! called.
//!
//! Not here: whether there is something of that name.
//!
//! Invariant: every argument with a text has a rule here, by the name of its value, or is listed as free with
//! the reason; a test holds it.

use std::any::TypeId;

use berth_domain::name::{
    AggregateName, FlavorName, HostName, ImageName, NetworkName, PciAliasName, PhysicalNetworkName,
    PmemName, RegionName, ServerGroupName, ServiceName, VmName, ZoneName,
};
use berth_domain::resource::ResourceClass;
use berth_proto::client;
use clap::{Arg, Command};

/// What a text has to be.
type Rule = fn(&str) -> Result<(), String>;

/// Rules by the name of a value.
const RULES: &[(&str, Rule)] = &[
    ("AGGREGATE", |text| {
        name(text, "aggregates/", AggregateName::new)
    }),
    ("ALIAS", |text| name(text, "pciAliases/", PciAliasName::new)),
    ("CLASS", |text| name(text, "", ResourceClass::new)),
    ("CONDUCTOR", |text| {
        name(text, "services/", ServiceName::new)
    }),
    ("FLAVOR", |text| name(text, "flavors/", FlavorName::new)),
    ("GROUP", |text| {
        name(text, "serverGroups/", ServerGroupName::new)
    }),
    ("IMAGE", |text| name(text, "images/", ImageName::new)),
    ("HOST", |text| name(text, "hosts/", HostName::new)),
    ("HOSTS", |text| name(text, "hosts/", HostName::new)),
    ("HOST:PORT", address),
    // Its id, or the name of a VM.
    ("MIGRATION", |text| name(text, "migrations/", VmName::new)),
    ("NETWORK", |text| name(text, "networks/", NetworkName::new)),
    ("NETWORK[=MAC]", |text| {
        name(
            text.split('=').next().unwrap_or(text),
            "networks/",
            NetworkName::new,
        )
    }),
    ("PHYSICAL_NETWORK", |text| {
        name(text, "", PhysicalNetworkName::new)
    }),
    ("NAMESPACE", |text| name(text, "", PmemName::new)),
    ("OPERATION", |text| name(text, "operations/", id)),
    ("REGION", |text| name(text, "", RegionName::new)),
    ("VM", |text| name(text, "vms/", VmName::new)),
    ("ZONE", |text| name(text, "", ZoneName::new)),
];

/// Arguments whose value has the name of a rule and another meaning: below this command.
const OTHERS: &[(&str, &str)] = &[
    // Groups of Ganeti.
    ("verify", "GROUP"),
    ("score", "GROUP"),
    ("balance", "GROUP"),
    ("capacity", "GROUP"),
    // A file of the hosts, or an image of the cluster.
    ("vm", "IMAGE"),
    // Where it listens, which may be port 0.
    ("dev", "HOST:PORT"),
];

/// Checks a name, which may stand behind its collection.
fn name<N, E: ToString>(
    text: &str,
    collection: &str,
    new: impl Fn(&str) -> Result<N, E>,
) -> Result<(), String> {
    let short = text.strip_prefix(collection).unwrap_or(text);
    new(short).map(drop).map_err(|error| error.to_string())
}

/// Checks the id of an operation, of which the beginning is enough.
fn id(text: &str) -> Result<(), &'static str> {
    let is_part = |c: char| c.is_ascii_hexdigit() || c == '-';
    let is_id = (1..=36).contains(&text.len()) && text.chars().all(is_part);
    match is_id && !text.starts_with('-') {
        true => Ok(()),
        false => Err("expected an id of an operation, or its beginning"),
    }
}

fn address(text: &str) -> Result<(), String> {
    let is_complete = text.rsplit(']').next().is_some_and(|end| end.contains(':'));
    match is_complete && client::is_address(&format!("http://{text}")) {
        true => Ok(()),
        false => Err("expected HOST:PORT, with a port from 1 to 65535".to_owned()),
    }
}

/// Returns the command line with the rules of its arguments.
pub(crate) fn with_rules(command: Command) -> Command {
    command.mut_subcommands(|command| {
        let top = command.get_name().to_owned();
        with_rules_below(command, &top)
    })
}

fn with_rules_below(command: Command, top: &str) -> Command {
    let command = command.mut_args(|arg| match rule(top, &arg) {
        None => arg,
        Some(rule) => arg.value_parser(move |text: &str| rule(text).map(|()| text.to_owned())),
    });
    command.mut_subcommands(|command| with_rules_below(command, top))
}

/// Returns the rule of an argument below a command, if it has one.
fn rule(top: &str, arg: &Arg) -> Option<Rule> {
    let value = value_name(arg);
    // Other types have a parser of their own.
    let is_text = arg.get_value_parser().type_id() == TypeId::of::<String>();
    if !is_text || OTHERS.contains(&(top, &value)) {
        return None;
    }
    let known = RULES.iter().find(|(of, _)| *of == value);
    known.map(|(_, rule)| *rule)
}

/// Returns the name of the value of an argument, as help shows it.
fn value_name(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    match names.first() {
        Some(name) => name.to_string(),
        None => arg.get_id().as_str().to_uppercase(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::arguments::Arguments;

    /// Texts without a rule, by the name of their value, and why.
    const FREE: &[(&str, &str)] = &[
        (
            "CERTIFICATE",
            "a file, or a fingerprint that is checked with it",
        ),
        ("CMDLINE", "of a kernel"),
        (
            "DISPLAY_NAME",
            "of OpenStack Placement, where it may hold anything",
        ),
        ("ENTRY", "checked where it is read, with its forms"),
        (
            "EXPRESSION",
            "a filter, read with the fields of what it selects",
        ),
        ("FILE", "of a host, checked there"),
        ("FILTER", "checked by the program, whose rules it is"),
        ("IMAGE", "of a VM: a file of the hosts, or an image"),
        ("INITRD", "a file of the hosts"),
        ("KERNEL", "a file of the hosts"),
        (
            "KEY",
            "of metadata, of a label, which is read with its form, or of a policy that knows its keys",
        ),
        ("METHOD", "of an audit filter"),
        (
            "NAME",
            "of a certificate, a trait, a volume or a record, each checked with its forms",
        ),
        ("NAMES", "of what fails together, checked by the scheduler"),
        ("NAME,NAME", "groups of a query of OpenStack Placement"),
        ("NEW_NAME", "of a class, checked by the scheduler"),
        ("NODE", "of Ganeti"),
        ("PARENT", "a provider"),
        (
            "PATH",
            "of a message or a field, checked with those there are",
        ),
        ("PREFIX", "of names"),
        ("PRINCIPAL", "of an audit filter"),
        ("PROVIDER", "its name may hold anything"),
        ("QUERY", "of OpenStack Placement"),
        ("REASON", "a text for people"),
        ("ROLE", "checked where it is read, with the roles"),
        ("TEMPLATE", "of Ganeti"),
        ("TEXT", "a text for people"),
        ("TIME", "checked where it is read, with its forms"),
        ("TRAIT", "alternatives of traits"),
        ("URL", "of another server, checked where it is dialled"),
        ("UUID", "alternatives of aggregates"),
        ("VOLUME", "its name may hold anything"),
        ("ADDRESS", "checked where it is dialled, with its forms"),
    ];

    /// Calls `check` with each argument with a text, and the words of its command.
    fn each(command: &Command, words: &[&str], check: &mut impl FnMut(&[&str], &Arg)) {
        for arg in command.get_arguments() {
            let is_text = arg.get_value_parser().type_id() == TypeId::of::<String>();
            if is_text && arg.get_action().takes_values() && !arg.is_global_set() {
                check(words, arg);
            }
        }
        for sub in command
            .get_subcommands()
            .filter(|sub| sub.get_name() != "help")
        {
            each(sub, &[words, &[sub.get_name()]].concat(), check);
        }
    }

    #[test]
    fn every_text_has_a_rule_or_is_free() {
        let mut ruled = 0;
        let command = Arguments::command();
        each(&command, &[], &mut |words, arg| {
            let value = value_name(arg);
            if rule(words[0], arg).is_some() {
                ruled += 1;
                return;
            }
            let is_other = OTHERS.contains(&(words[0], &*value));
            let is_free = FREE.iter().any(|(of, _)| *of == value);
            assert!(
                is_free || is_other,
                "{words:?}: {value} has no rule in {}",
                file!()
            );
        });
        assert!(ruled > 60, "{ruled}");
    }

    /// Goal: each argument with a rule refuses what can be no name, with the exit status of wrong usage, and
    /// takes what can. Method: every such argument of every command alone; what else the command needs is
    /// missing, and clap reports a wrong value before that.
    #[test]
    fn every_name_is_checked() {
        let command = Arguments::command();
        let mut checked = 0;
        each(&command, &[], &mut |words, arg| {
            if rule(words[0], arg).is_none() {
                return;
            }
            let is_address = value_name(arg) == "HOST:PORT";
            for bad in [
                "",
                "é",
                "a b",
                "-",
                "a/b/c",
                "a;b",
                "*",
                "../x",
                "\u{202e}x",
            ] {
                let error = parse(words, arg, bad);
                assert_eq!(
                    error,
                    Some(clap::error::ErrorKind::ValueValidation),
                    "{words:?} {arg}: {bad:?}"
                );
                checked += 1;
            }
            for good in ["h1", "a.b-c_d"].iter().filter(|_| !is_address) {
                let upper = good.to_uppercase().replace(['.', '-'], "_");
                let uuid = "6f1c6f0e-3a0e-4c39-8a51-4a8c3b6b1f10";
                let good = match &*value_name(arg) {
                    "CLASS" => &upper,
                    "OPERATION" => uuid,
                    _ => good,
                };
                let error = parse(words, arg, good);
                assert_ne!(
                    error,
                    Some(clap::error::ErrorKind::ValueValidation),
                    "{words:?} {arg}: {good}"
                );
            }
        });
        assert!(checked > 500, "{checked}");
    }

    /// Returns why a command with one argument is refused.
    fn parse(words: &[&str], arg: &Arg, value: &str) -> Option<clap::error::ErrorKind> {
        let mut line = vec!["berth".to_owned()];
        line.extend(words.iter().map(ToString::to_string));
        match arg.get_long() {
            Some(long) => line.push(format!("--{long}={value}")),
            None => {
                // Positional ones before it.
                let before = arg.get_index().unwrap_or(1).saturating_sub(1);
                line.push("--".to_owned());
                line.extend((0..before).map(|_| "x".to_owned()));
                line.push(value.to_owned());
            }
        }
        let command = with_rules(Arguments::command());
        command
            .try_get_matches_from(line)
            .err()
            .map(|error| error.kind())
    }

    #[test]
    fn names_may_stand_behind_their_collection() {
        let command = || with_rules(Arguments::command());
        for line in [
            "berth vm show vms/a",
            "berth host show hosts/h1",
            "berth cluster remove-conductor services/c1",
            "berth migration show a",
            "berth operation show 6f1c",
            "berth verify --text f --group é",
            "berth cluster update-member 2 --address m2:7100",
            "berth cluster update-member 2 --address [::1]:7100",
        ] {
            let parsed = command().try_get_matches_from(line.split(' '));
            let is_wrong =
                parsed.is_err_and(|e| e.kind() == clap::error::ErrorKind::ValueValidation);
            assert!(!is_wrong, "{line}");
        }
    }
}
