//! The arguments of `berth replay`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use berth_domain::name::{FlavorName, HostName};
use berth_replay::FlavorChange;
use berth_replay::changes::LIKE_MAX;
use clap::Args;

use super::key_value;

/// Arguments of `berth replay`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The files are a full backup and the increments that follow it, in order. They
are verified as by `berth backup verify`, and no server is called. First each
recorded choice of a host is made again under the recorded policy: it has to
be the same. With --policy, --flavor, --without or --add-like the recorded
requests are also decided on a state of their own with these changes, and the
report says what would differ: refusals, hosts, use and stranded CPUs, moves.
Examples:
  berth replay monday.backup tuesday.backup
  berth replay monday.backup tuesday.backup \\
      --policy scheduling.hosts=pack --policy scheduling.cells=pack
  berth replay monday.backup tuesday.backup --flavor big:memory_mib=8192
  berth replay monday.backup tuesday.backup --without h7 --add-like h1=2

Requests that were refused are not in backups, so a replay cannot say which of
them would succeed. See docs/replay.md.

Exit status: 0 when the recorded decisions are the same again, also if the
changes lead to others; 1 when a file or a change is refused; 4 when a
recorded decision differs for no known cause.")]
pub struct Replay {
    /// Paths of the files, a full backup first
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Setting of the policy to hold throughout (repeatable)
    ///
    /// The keys are those of `berth policy set`. A setting of the cluster holds from the beginning,
    /// whatever was set for it meanwhile; settings of groups and hosts stay as recorded.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub policy: Vec<(String, String)>,
    /// Change of a flavor (repeatable)
    ///
    /// KEY is vcpus, memory_mib, disk_gib or an extra spec, which an empty value removes.
    #[arg(long, value_name = "NAME:KEY=VALUE", value_parser = flavor)]
    pub flavor: Vec<FlavorSetting>,
    /// Host to leave out (repeatable)
    ///
    /// A host with VMs in the full backup takes no further ones; these stay until they leave.
    #[arg(long, value_name = "HOST", value_parser = host)]
    pub without: Vec<HostName>,
    /// Host to add N copies of (repeatable)
    #[arg(long, value_name = "HOST=N", value_parser = host_count)]
    pub add_like: Vec<(HostName, u32)>,
    /// Maximum number of cases that are described, of each kind
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub examples: usize,
}

/// One change of a flavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorSetting {
    flavor: FlavorName,
    change: FlavorChange,
}

impl Replay {
    /// Returns the changes of flavors; of several of one key the last holds.
    #[must_use]
    pub fn flavors(&self) -> BTreeMap<FlavorName, FlavorChange> {
        let mut all: BTreeMap<FlavorName, FlavorChange> = BTreeMap::new();
        for FlavorSetting { flavor, change } in &self.flavor {
            let known = all.entry(flavor.clone()).or_default();
            known.vcpus = change.vcpus.or(known.vcpus);
            known.memory_mib = change.memory_mib.or(known.memory_mib);
            known.disk_gib = change.disk_gib.or(known.disk_gib);
            known.extra_specs.extend(change.extra_specs.clone());
        }
        all
    }
}

fn flavor(text: &str) -> Result<FlavorSetting, String> {
    let (name, setting) = text.split_once(':').ok_or("expected NAME:KEY=VALUE")?;
    let flavor = FlavorName::new(name).map_err(|error| error.to_string())?;
    let (key, value) = key_value(setting)?;
    let mut change = FlavorChange::default();
    match key.as_str() {
        "vcpus" => change.vcpus = Some(number(&key, &value)?),
        "memory_mib" => change.memory_mib = Some(number(&key, &value)?),
        "disk_gib" => change.disk_gib = Some(number(&key, &value)?),
        _ => drop(change.extra_specs.insert(key, value)),
    }
    Ok(FlavorSetting { flavor, change })
}

fn number<N: std::str::FromStr>(key: &str, value: &str) -> Result<N, String> {
    value
        .parse()
        .map_err(|_| format!("{key} {value:?} is not a number in its range"))
}

fn host(text: &str) -> Result<HostName, String> {
    HostName::new(text).map_err(|error| error.to_string())
}

fn host_count(text: &str) -> Result<(HostName, u32), String> {
    let (name, count) = key_value(text)?;
    let count = number("the number of hosts", &count)?;
    if !(1..=LIKE_MAX).contains(&count) {
        return Err(format!("the number of hosts is from 1 to {LIKE_MAX}"));
    }
    Ok((host(&name)?, count))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::arguments::{Arguments, Command};

    fn parse(line: &str) -> Result<super::Replay, String> {
        let parsed = Arguments::try_parse_from(line.split_whitespace());
        let command = parsed.map_err(|error| error.to_string())?.command;
        let Command::Replay(args) = command else {
            return Err("another command".to_owned());
        };
        Ok(*args)
    }

    /// Goal: several settings of one flavor are one change.
    #[test]
    fn settings_of_a_flavor_are_joined() {
        let args = parse(
            "berth replay a --flavor big:vcpus=4 --flavor big:hw:cpu_policy=dedicated --flavor \
             big:vcpus=8",
        );
        let flavors = args.expect("good arguments").flavors();
        let big = flavors.values().next().expect("one flavor");
        assert_eq!(
            (flavors.len(), big.vcpus, big.memory_mib),
            (1, Some(8), None)
        );
        assert_eq!(big.extra_specs["hw:cpu_policy"], "dedicated");
    }

    #[test]
    fn bad_changes_are_refused() {
        for (line, why) in [
            ("berth replay", "required"),
            ("berth replay a --flavor big", "NAME:KEY=VALUE"),
            ("berth replay a --flavor big:vcpus=-1", "is not a number"),
            ("berth replay a --flavor ?:vcpus=1", "flavor name"),
            ("berth replay a --without ?", "host name"),
            ("berth replay a --add-like h1", "KEY=VALUE"),
            ("berth replay a --add-like h1=0", "from 1 to"),
            ("berth replay a --add-like h1=x", "is not a number"),
            ("berth replay a --policy pack", "KEY=VALUE"),
        ] {
            let refused = parse(line).expect_err(line);
            assert!(refused.contains(why), "{line}: {refused}");
        }
    }
}
