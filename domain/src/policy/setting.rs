//! What can be set of the policy: keys, and the values as they are typed and shown.
//!
//! Invariant: what is shown of a setting can be typed, and sets the same again.

use std::collections::BTreeMap;

use super::balance::{GAIN_MIN_MILLI_MAX, HOLD_MS_MAX, THRESHOLD_MILLI_MAX};
use super::cpu::{CPU_RATIO_MILLI_MAX, CPU_RATIO_MILLI_MIN, CPU_RESERVED_MAX};
use super::memory::{MEM_NODE_MIB_MAX, RATIO_MILLI_MAX, RATIO_MILLI_MIN};
use super::{
    Admission, DEAD_TIMEOUT_S_MAX, DEAD_TIMEOUT_S_MIN, DefaultPages, SELF_FENCE_MS_MAX,
    SELF_FENCE_MS_MIN, SchedulingPolicy, Scope, WEIGHT_MAX, decimal,
};
use crate::fault::Fault;
use crate::host_rule::CPU_RATIO_MILLI_DEFAULT;
use crate::numa::Strategy;
use crate::transfer::{self, HOSTS_TRIED_MAX, TimeoutAction};

/// One thing that can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Setting {
    /// [`SchedulingPolicy::hosts`].
    Hosts(Strategy),
    /// [`SchedulingPolicy::cells`].
    Cells(Strategy),
    /// [`SchedulingPolicy::mem_page_size`].
    MemPageSize(Option<DefaultPages>),
    /// [`Weights::load`](super::Weights::load).
    Load(u16),
    /// [`Weights::numa`](super::Weights::numa).
    Numa(u16),
    /// [`Weights::pci`](super::Weights::pci).
    Pci(u16),
    /// [`Weights::fragmentation`](super::Weights::fragmentation).
    Fragmentation(u16),
    /// [`Weights::soft_affinity`](super::Weights::soft_affinity).
    SoftAffinity(u16),
    /// [`TransferPolicy::bandwidth_mib_per_s_max`](crate::transfer::TransferPolicy::bandwidth_mib_per_s_max).
    MigrationBandwidth(Option<u32>),
    /// [`TransferPolicy::downtime_ms_max`](crate::transfer::TransferPolicy::downtime_ms_max).
    MigrationDowntime(Option<u32>),
    /// [`TransferPolicy::auto_converge`](crate::transfer::TransferPolicy::auto_converge).
    MigrationAutoConverge(bool),
    /// [`TransferPolicy::post_copy`](crate::transfer::TransferPolicy::post_copy).
    MigrationPostCopy(bool),
    /// [`TransferPolicy::timeout_ms`](crate::transfer::TransferPolicy::timeout_ms).
    MigrationTimeout(Option<u64>),
    /// [`TransferPolicy::timeout_action`](crate::transfer::TransferPolicy::timeout_action).
    MigrationTimeoutAction(TimeoutAction),
    /// [`MigrationPolicy::hosts_tried_max`](super::MigrationPolicy::hosts_tried_max).
    MigrationHostsTried(u32),
    /// [`SchedulingPolicy::self_fence_ms`].
    SelfFence(Option<u64>),
    /// [`SchedulingPolicy::dead_member_timeout_s`].
    DeadMember(Option<u64>),
    /// [`MemoryTerms::ratio_milli`](super::memory::MemoryTerms::ratio_milli).
    MemoryRatio(Option<u32>),
    /// [`MemoryTerms::mem_node_mib`](super::memory::MemoryTerms::mem_node_mib).
    MemNode(Option<u64>),
    /// [`CpuTerms::ratio_milli`](super::cpu::CpuTerms::ratio_milli).
    CpuRatio(Option<u32>),
    /// [`CpuTerms::reserved`](super::cpu::CpuTerms::reserved).
    CpuReserved(Option<u32>),
    /// [`FailoverPolicy::admission`](super::FailoverPolicy::admission).
    FailoverAdmission(Admission),
    /// [`BalancePolicy::threshold_milli`](super::BalancePolicy::threshold_milli).
    BalanceThreshold(Option<u32>),
    /// [`BalancePolicy::hold_ms`](super::BalancePolicy::hold_ms).
    BalanceHold(u64),
    /// [`BalancePolicy::gain_min_milli`](super::BalancePolicy::gain_min_milli).
    BalanceGainMin(u32),
}

/// Every key, in the order in which they are shown.
pub const KEYS: [&str; 25] = [
    "scheduling.hosts",
    "scheduling.cells",
    "scheduling.weight.load",
    "scheduling.weight.numa",
    "scheduling.weight.pci",
    "scheduling.weight.fragmentation",
    "scheduling.weight.soft_affinity",
    "flavor.mem_page_size",
    "migration.bandwidth_mib_s",
    "migration.downtime_ms",
    "migration.auto_converge",
    "migration.post_copy",
    "migration.timeout_ms",
    "migration.timeout_action",
    "migration.hosts_tried",
    "host.self_fence_ms",
    "member.dead_timeout_s",
    "memory.ratio",
    "memory.mem_node_mib",
    "cpu.ratio",
    "cpu.reserved",
    "failover.admission",
    "balance.threshold",
    "balance.hold_ms",
    "balance.gain_min",
];

/// The keys that can be set for a group or a host too.
pub const SCOPED_KEYS: [&str; 4] = [
    "memory.ratio",
    "memory.mem_node_mib",
    "cpu.ratio",
    "cpu.reserved",
];

impl Setting {
    /// Returns the key under which it is set.
    #[must_use]
    pub fn key(&self) -> &'static str {
        match self {
            Self::Hosts(_) => "scheduling.hosts",
            Self::Cells(_) => "scheduling.cells",
            Self::Load(_) => "scheduling.weight.load",
            Self::Numa(_) => "scheduling.weight.numa",
            Self::Pci(_) => "scheduling.weight.pci",
            Self::Fragmentation(_) => "scheduling.weight.fragmentation",
            Self::SoftAffinity(_) => "scheduling.weight.soft_affinity",
            Self::MemPageSize(_) => "flavor.mem_page_size",
            Self::MigrationBandwidth(_) => "migration.bandwidth_mib_s",
            Self::MigrationDowntime(_) => "migration.downtime_ms",
            Self::MigrationAutoConverge(_) => "migration.auto_converge",
            Self::MigrationPostCopy(_) => "migration.post_copy",
            Self::MigrationTimeout(_) => "migration.timeout_ms",
            Self::MigrationTimeoutAction(_) => "migration.timeout_action",
            Self::MigrationHostsTried(_) => "migration.hosts_tried",
            Self::SelfFence(_) => "host.self_fence_ms",
            Self::DeadMember(_) => "member.dead_timeout_s",
            Self::MemoryRatio(_) => "memory.ratio",
            Self::MemNode(_) => "memory.mem_node_mib",
            Self::CpuRatio(_) => "cpu.ratio",
            Self::CpuReserved(_) => "cpu.reserved",
            Self::FailoverAdmission(_) => "failover.admission",
            Self::BalanceThreshold(_) => "balance.threshold",
            Self::BalanceHold(_) => "balance.hold_ms",
            Self::BalanceGainMin(_) => "balance.gain_min",
        }
    }

    /// Returns it as `KEY=VALUE`, as it is typed. What unsets a setting has the value that holds then.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut policy = SchedulingPolicy::default();
        policy.set(*self);
        let key = self.key();
        let settings = policy.settings().into_iter();
        let value = settings
            .filter(|(of, _)| *of == key)
            .map(|(_, value)| value);
        format!("{key}={}", value.collect::<String>())
    }

    /// Reads a setting as it is typed.
    ///
    /// # Errors
    ///
    /// The key is not known, or the value is none of its own.
    pub fn parse(key: &str, value: &str) -> Result<Self, Fault> {
        Ok(match key {
            "scheduling.hosts" => Self::Hosts(strategy(key, value)?),
            "scheduling.cells" => Self::Cells(strategy(key, value)?),
            "scheduling.weight.load" => Self::Load(weight(key, value)?),
            "scheduling.weight.numa" => Self::Numa(weight(key, value)?),
            "scheduling.weight.pci" => Self::Pci(weight(key, value)?),
            "scheduling.weight.fragmentation" => Self::Fragmentation(weight(key, value)?),
            "scheduling.weight.soft_affinity" => Self::SoftAffinity(weight(key, value)?),
            "flavor.mem_page_size" => Self::MemPageSize(pages(key, value)?),
            "migration.bandwidth_mib_s" => Self::MigrationBandwidth(number_or_none(
                key,
                value,
                1,
                transfer::BANDWIDTH_MIB_PER_S_MAX,
            )?),
            "migration.downtime_ms" => {
                Self::MigrationDowntime(number_or_none(key, value, 1, transfer::DOWNTIME_MS_MAX)?)
            }
            "migration.auto_converge" => Self::MigrationAutoConverge(switch(key, value)?),
            "migration.post_copy" => Self::MigrationPostCopy(switch(key, value)?),
            "migration.timeout_ms" => Self::MigrationTimeout(number_or_none(
                key,
                value,
                transfer::TIMEOUT_MS_MIN,
                transfer::TIMEOUT_MS_MAX,
            )?),
            "migration.timeout_action" => {
                let action = TimeoutAction::parse(value);
                let rule = "must be abort, force-complete or post-copy";
                let action = action.ok_or_else(|| Fault::new(key, value, rule))?;
                Self::MigrationTimeoutAction(action)
            }
            "migration.hosts_tried" => {
                Self::MigrationHostsTried(number(key, value, 1, HOSTS_TRIED_MAX)?)
            }
            "host.self_fence_ms" => Self::SelfFence(number_or_none(
                key,
                value,
                SELF_FENCE_MS_MIN,
                SELF_FENCE_MS_MAX,
            )?),
            "member.dead_timeout_s" => Self::DeadMember(number_or_none(
                key,
                value,
                DEAD_TIMEOUT_S_MIN,
                DEAD_TIMEOUT_S_MAX,
            )?),
            _ => return Self::parse_reserve(key, value),
        })
    }

    /// Reads a setting of memory, of shared CPUs, of the failover headroom, or of balancing.
    fn parse_reserve(key: &str, value: &str) -> Result<Self, Fault> {
        Ok(match key {
            "memory.ratio" => {
                let (least, most) = (RATIO_MILLI_MIN, RATIO_MILLI_MAX);
                Self::MemoryRatio(Some(decimal_number(key, value, least, most)?))
            }
            "memory.mem_node_mib" => {
                Self::MemNode(number_or_none(key, value, 0, MEM_NODE_MIB_MAX)?)
            }
            "cpu.ratio" => {
                let (least, most) = (CPU_RATIO_MILLI_MIN, CPU_RATIO_MILLI_MAX);
                Self::CpuRatio(Some(decimal_number(key, value, least, most)?))
            }
            "cpu.reserved" => Self::CpuReserved(number_or_none(key, value, 0, CPU_RESERVED_MAX)?),
            "failover.admission" => {
                let admission = Admission::parse(value);
                let rule = "must be off, warn or refuse";
                Self::FailoverAdmission(admission.ok_or_else(|| Fault::new(key, value, rule))?)
            }
            "balance.threshold" if value == "none" => Self::BalanceThreshold(None),
            "balance.threshold" => {
                let number = decimal_number(key, value, 1, THRESHOLD_MILLI_MAX);
                Self::BalanceThreshold(Some(number.map_err(or_none)?))
            }
            "balance.hold_ms" => Self::BalanceHold(number(key, value, 0, HOLD_MS_MAX)?),
            "balance.gain_min" => {
                Self::BalanceGainMin(decimal_number(key, value, 1, GAIN_MIN_MILLI_MAX)?)
            }
            _ => {
                let known = KEYS.join(", ");
                let rule = format!("is not known; known keys are {known}");
                return Err(Fault::new("key", key, rule));
            }
        })
    }

    /// Returns the setting that takes back what was set of a key, for the cluster or, where that
    /// can be, for a group or a host.
    ///
    /// # Errors
    ///
    /// The key is not known.
    pub fn unset(key: &str) -> Result<Self, Fault> {
        match key {
            "memory.ratio" => return Ok(Self::MemoryRatio(None)),
            "cpu.ratio" => return Ok(Self::CpuRatio(None)),
            _ => {}
        }
        let defaults = SchedulingPolicy::default().settings();
        let found = defaults.into_iter().find(|(known, _)| *known == key);
        Self::parse(key, &found.map(|(_, value)| value).unwrap_or_default())
    }

    /// Reads settings for a group or a host, and returns all their faults.
    ///
    /// # Errors
    ///
    /// One fault for each that is wrong.
    pub fn parse_scoped(
        scope: &Scope,
        settings: &BTreeMap<String, String>,
        unset: &[String],
    ) -> Result<Vec<Self>, Vec<Fault>> {
        let mut good = Vec::new();
        let mut faults = Vec::new();
        let set = settings.iter().map(|(key, value)| (key, Some(value)));
        for (key, value) in set.chain(unset.iter().map(|key| (key, None))) {
            let is_known = KEYS.contains(&key.as_str());
            let verdict = match value {
                _ if is_known && *scope != Scope::Cluster && !is_scoped(key) => {
                    let keys = SCOPED_KEYS.join(", ");
                    let rule = format!("is of the whole cluster; only {keys} can be of {scope}");
                    Err(Fault::new("key", key, rule))
                }
                None if settings.contains_key(key) => {
                    Err(Fault::new("key", key, "is both set and unset"))
                }
                Some(value) => Self::parse(key, value),
                None => Self::unset(key),
            };
            match verdict {
                Ok(setting) => good.push(setting),
                Err(fault) => faults.push(fault),
            }
        }
        if faults.is_empty() {
            Ok(good)
        } else {
            Err(faults)
        }
    }

    /// Reads settings, and returns all their faults.
    ///
    /// # Errors
    ///
    /// One fault for each that is wrong.
    pub fn parse_all(settings: &BTreeMap<String, String>) -> Result<Vec<Self>, Vec<Fault>> {
        let mut good = Vec::new();
        let mut faults = Vec::new();
        for (key, value) in settings {
            match Self::parse(key, value) {
                Ok(setting) => good.push(setting),
                Err(fault) => faults.push(fault),
            }
        }
        if faults.is_empty() {
            Ok(good)
        } else {
            Err(faults)
        }
    }
}

impl SchedulingPolicy {
    /// Takes a setting for the cluster.
    pub fn set(&mut self, setting: Setting) {
        self.set_for(&Scope::Cluster, setting);
    }

    /// Takes a setting. The scope matters to those of [`SCOPED_KEYS`]; what else
    /// [`Setting::parse_scoped`] lets through is of the cluster.
    pub fn set_for(&mut self, scope: &Scope, setting: Setting) {
        match setting {
            Setting::Hosts(strategy) => self.hosts = strategy,
            Setting::Cells(strategy) => self.cells = strategy,
            Setting::MemPageSize(pages) => self.mem_page_size = pages,
            Setting::Load(weight) => self.weights.load = weight,
            Setting::Numa(weight) => self.weights.numa = weight,
            Setting::Pci(weight) => self.weights.pci = weight,
            Setting::Fragmentation(weight) => self.weights.fragmentation = weight,
            Setting::SoftAffinity(weight) => self.weights.soft_affinity = weight,
            Setting::MigrationBandwidth(most) => {
                self.migration.transfer.bandwidth_mib_per_s_max = most;
            }
            Setting::MigrationDowntime(most) => self.migration.transfer.downtime_ms_max = most,
            Setting::MigrationAutoConverge(on) => self.migration.transfer.auto_converge = on,
            Setting::MigrationPostCopy(on) => self.migration.transfer.post_copy = on,
            Setting::MigrationTimeout(ms) => self.migration.transfer.timeout_ms = ms,
            Setting::MigrationTimeoutAction(action) => {
                self.migration.transfer.timeout_action = action;
            }
            Setting::MigrationHostsTried(most) => self.migration.hosts_tried_max = most,
            Setting::SelfFence(ms) => self.self_fence_ms = ms,
            Setting::DeadMember(seconds) => self.dead_member_timeout_s = seconds,
            Setting::MemoryRatio(ratio) => {
                self.memory.change(scope, |terms| terms.ratio_milli = ratio);
            }
            Setting::MemNode(mib) => self.memory.change(scope, |terms| terms.mem_node_mib = mib),
            Setting::CpuRatio(ratio) => self.cpu.change(scope, |terms| terms.ratio_milli = ratio),
            Setting::CpuReserved(cpus) => self.cpu.change(scope, |terms| terms.reserved = cpus),
            Setting::FailoverAdmission(admission) => self.failover.admission = admission,
            Setting::BalanceThreshold(score) => self.balance.threshold_milli = score,
            Setting::BalanceHold(ms) => self.balance.hold_ms = ms,
            Setting::BalanceGainMin(gain) => self.balance.gain_min_milli = gain,
        }
    }

    /// Returns every key with its value for the cluster, in the order in which they are shown.
    #[must_use]
    pub fn settings(&self) -> [(&'static str, String); 25] {
        let weights = &self.weights;
        let transfer = &self.migration.transfer;
        let (memory, cpu) = (&self.memory.cluster, &self.cpu.cluster);
        let balance = &self.balance;
        let values = [
            text(self.hosts).to_owned(),
            text(self.cells).to_owned(),
            weights.load.to_string(),
            weights.numa.to_string(),
            weights.pci.to_string(),
            weights.fragmentation.to_string(),
            weights.soft_affinity.to_string(),
            self.mem_page_size
                .map_or("none", DefaultPages::as_str)
                .to_owned(),
            none_or(transfer.bandwidth_mib_per_s_max),
            none_or(transfer.downtime_ms_max),
            transfer.auto_converge.to_string(),
            transfer.post_copy.to_string(),
            none_or(transfer.timeout_ms),
            transfer.timeout_action.as_str().to_owned(),
            self.migration.hosts_tried_max.to_string(),
            none_or(self.self_fence_ms),
            none_or(self.dead_member_timeout_s),
            decimal::show(memory.ratio_milli.unwrap_or(RATIO_MILLI_MIN).into()),
            none_or(memory.mem_node_mib),
            decimal::show(cpu.ratio_milli.unwrap_or(CPU_RATIO_MILLI_DEFAULT).into()),
            none_or(cpu.reserved),
            self.failover.admission.as_str().to_owned(),
            none_or(
                balance
                    .threshold_milli
                    .map(|score| decimal::show(score.into())),
            ),
            balance.hold_ms.to_string(),
            decimal::show(balance.gain_min_milli.into()),
        ];
        let mut values = values.into_iter();
        KEYS.map(|key| (key, values.next().unwrap_or_default()))
    }
}

fn text(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Spread => "spread",
        Strategy::Pack => "pack",
    }
}

fn strategy(key: &str, value: &str) -> Result<Strategy, Fault> {
    match value {
        "spread" => Ok(Strategy::Spread),
        "pack" => Ok(Strategy::Pack),
        _ => Err(Fault::new(key, value, "must be spread or pack")),
    }
}

fn pages(key: &str, value: &str) -> Result<Option<DefaultPages>, Fault> {
    match value {
        "none" => Ok(None),
        "small" => Ok(Some(DefaultPages::Small)),
        "large" => Ok(Some(DefaultPages::Large)),
        "any" => Ok(Some(DefaultPages::Any)),
        _ => Err(Fault::new(key, value, "must be none, small, large or any")),
    }
}

fn none_or(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

fn switch(key: &str, value: &str) -> Result<bool, Fault> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Fault::new(key, value, "must be true or false")),
    }
}

fn number<N>(key: &str, value: &str, least: N, most: N) -> Result<N, Fault>
where
    N: std::str::FromStr + PartialOrd + std::fmt::Display + Copy,
{
    let plain = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    let number = value
        .parse()
        .ok()
        .filter(|n| plain && (least..=most).contains(n));
    number.ok_or_else(|| {
        let rule = format!("must be a whole number from {least} to {most}");
        Fault::new(key, value, rule)
    })
}

fn number_or_none<N>(key: &str, value: &str, least: N, most: N) -> Result<Option<N>, Fault>
where
    N: std::str::FromStr + PartialOrd + std::fmt::Display + Copy,
{
    if value == "none" {
        return Ok(None);
    }
    number(key, value, least, most).map(Some).map_err(or_none)
}

/// Adds that a value may be `none`.
fn or_none(fault: Fault) -> Fault {
    let rule = fault.rule.replacen("must be", "must be none, or", 1);
    Fault { rule, ..fault }
}

/// Reads a number with up to three decimals as thousandths.
fn decimal_number(key: &str, value: &str, least: u32, most: u32) -> Result<u32, Fault> {
    let number = decimal::parse(value).and_then(|milli| u32::try_from(milli).ok());
    let number = number.filter(|milli| (least..=most).contains(milli));
    number.ok_or_else(|| {
        let (least, most) = (decimal::show(least.into()), decimal::show(most.into()));
        let rule = format!("must be a number from {least} to {most} with up to three decimals");
        Fault::new(key, value, rule)
    })
}

fn is_scoped(key: &str) -> bool {
    SCOPED_KEYS.contains(&key)
}

fn weight(key: &str, value: &str) -> Result<u16, Fault> {
    let plain = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    let number = value.parse().ok().filter(|w| plain && *w <= WEIGHT_MAX);
    number.ok_or_else(|| {
        let rule = format!("must be a whole number from 0 to {WEIGHT_MAX}");
        Fault::new(key, value, rule)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is shown can be set, and setting it changes what is shown. Method: every key,
    /// with another value than the default.
    #[test]
    fn what_is_shown_can_be_set() {
        for (at, key) in KEYS.into_iter().enumerate() {
            let value = match at {
                0 | 1 => "pack",
                7 => "any",
                10 => "false",
                11 => "true",
                12 | 15 => "5000",
                13 => "force-complete",
                16 => "3600",
                17 | 19 => "1.25",
                21 => "refuse",
                22 | 24 => "0.125",
                _ => "7",
            };
            let mut policy = SchedulingPolicy::default();
            let setting = Setting::parse(key, value).unwrap();
            policy.set(setting);
            assert_eq!(policy.settings()[at], (key, value.to_owned()));
            assert_eq!(setting.describe(), format!("{key}={value}"));
            let differ = policy
                .settings()
                .into_iter()
                .zip(SchedulingPolicy::default().settings());
            assert_eq!(differ.filter(|(a, b)| a != b).count(), 1, "{key}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_at_once() {
        let settings = [
            ("scheduling.hosts", "stack"),
            ("scheduling.weight.load", "1001"),
            ("scheduling.weight.pci", "+1"),
            ("scheduling.weight.numa", "1000"),
            ("sheduling.hosts", "pack"),
        ];
        let settings = settings.map(|(k, v)| (k.to_owned(), v.to_owned()));
        let faults = Setting::parse_all(&settings.into()).unwrap_err();
        let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), 4, "{texts:#?}");
        assert_eq!(
            texts[0],
            "scheduling.hosts = \"stack\": must be spread or pack"
        );
        let known = texts[3].split("known keys are ").nth(1).unwrap();
        assert_eq!(known, KEYS.join(", "));
    }

    /// Goal: numbers that are none, or out of bounds, are refused with the bounds. Method: a table.
    #[test]
    fn bad_numbers_of_rules_are_refused() {
        let ratio = "must be a number from 1.0 to 16.0 with up to three decimals";
        let node = "must be none, or a whole number from 0 to 1073741824";
        let cpu = "must be a number from 0.1 to 64.0 with up to three decimals";
        let cpus = "must be none, or a whole number from 0 to 8192";
        let gain = "must be a number from 0.001 to 1000.0 with up to three decimals";
        let threshold =
            "must be none, or a number from 0.001 to 1000000.0 with up to three decimals";
        for (key, value, rule) in [
            ("memory.ratio", "-1.5", ratio),
            ("memory.ratio", "NaN", ratio),
            ("memory.ratio", "0", ratio),
            ("memory.ratio", "0.999", ratio),
            ("memory.ratio", "16.001", ratio),
            ("memory.ratio", "1e1", ratio),
            ("memory.ratio", "none", ratio),
            ("memory.mem_node_mib", "-1", node),
            ("memory.mem_node_mib", "1073741825", node),
            ("memory.mem_node_mib", "1.5", node),
            ("cpu.ratio", "0", cpu),
            ("cpu.ratio", "0.099", cpu),
            ("cpu.ratio", "64.001", cpu),
            ("cpu.ratio", "none", cpu),
            ("cpu.ratio", "-4", cpu),
            ("cpu.reserved", "-1", cpus),
            ("cpu.reserved", "0.5", cpus),
            ("cpu.reserved", "8193", cpus),
            (
                "member.dead_timeout_s",
                "9",
                "must be none, or a whole number from 10 to 2592000",
            ),
            ("failover.admission", "on", "must be off, warn or refuse"),
            ("balance.gain_min", "0", gain),
            ("balance.threshold", "0", threshold),
            (
                "balance.hold_ms",
                "1s",
                "must be a whole number from 0 to 604800000",
            ),
        ] {
            let fault = Setting::parse(key, value).unwrap_err();
            assert_eq!(fault.to_string(), format!("{key} = {value:?}: {rule}"));
        }
    }

    /// Goal: every key can be taken back, and what is of the cluster is not set for a host.
    #[test]
    fn what_was_set_is_taken_back() {
        let keys = KEYS.map(str::to_owned);
        let back = Setting::parse_scoped(&Scope::Cluster, &BTreeMap::new(), &keys).unwrap();
        let mut policy = SchedulingPolicy::default();
        for (key, value) in [
            ("memory.ratio", "2"),
            ("cpu.ratio", "4"),
            ("cpu.reserved", "0"),
            ("balance.hold_ms", "9"),
            ("member.dead_timeout_s", "3600"),
            ("scheduling.hosts", "pack"),
        ] {
            policy.set(Setting::parse(key, value).unwrap());
        }
        for setting in back {
            policy.set(setting);
        }
        assert_eq!(policy, SchedulingPolicy::default());
        let host = Scope::Host(crate::name::HostName::new("h7").unwrap());
        let faults = Setting::parse_scoped(&host, &BTreeMap::new(), &keys).unwrap_err();
        assert_eq!(faults.len(), KEYS.len() - SCOPED_KEYS.len());
        assert_eq!(
            faults[0].to_string(),
            "key = \"scheduling.hosts\": is of the whole cluster; only memory.ratio, \
             memory.mem_node_mib, cpu.ratio, cpu.reserved can be of host h7"
        );
        let both = [("memory.ratio".to_owned(), "1.5".to_owned())];
        let faults = Setting::parse_scoped(&host, &both.into(), &keys[17..18]).unwrap_err();
        assert!(
            faults[0].to_string().ends_with("is both set and unset"),
            "{faults:?}"
        );
    }
}
