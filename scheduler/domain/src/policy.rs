//! What the cluster's operators prefer when a guest could go to several hosts or cells, set at run
//! time and kept in the replicated state.
//!
//! It is not a rule: whatever it says, a guest that fits somewhere is placed. How its weights are
//! put together is for the choice of a host to say.
//!
//! Invariant: a cluster in which nothing was set prefers what [`SchedulingPolicy::default`] says.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::flavor::{Flavor, Wishes};
use crate::id::Generation;
use crate::instance::PageSize;
use crate::numa::Strategy;
use crate::transfer::{self, HOSTS_TRIED_DEFAULT, HOSTS_TRIED_MAX, TimeoutAction, TransferPolicy};

/// The shortest time after which an agent that is cut off stops its guests.
pub const SELF_FENCE_MS_MIN: u64 = 5_000;
/// The longest.
pub const SELF_FENCE_MS_MAX: u64 = 3_600_000;

/// The greatest weight.
pub const WEIGHT_MAX: u16 = 1000;

/// What is preferred.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SchedulingPolicy {
    /// Hosts: the emptiest or the fullest first.
    pub hosts: Strategy,
    /// Cells of the chosen host: the emptiest or the fullest first.
    pub cells: Strategy,
    /// How much each weigher says.
    pub weights: Weights,
    /// What guests with CPUs of their own get as `hw:mem_page_size` where flavor and image do not
    /// say; absent: nothing, so that they take small pages as in OpenStack.
    #[serde(default)]
    pub mem_page_size: Option<DefaultPages>,
    /// How guests are moved.
    #[serde(default)]
    pub migration: MigrationPolicy,
    /// How long after its last report that was answered an agent stops its guests by itself, so that
    /// they can be started elsewhere; absent: it does not. From [`SELF_FENCE_MS_MIN`] to
    /// [`SELF_FENCE_MS_MAX`].
    #[serde(default)]
    pub self_fence_ms: Option<u64>,
    /// Changes with every change; 0 as long as nothing was set.
    pub generation: Generation,
}

/// How guests are moved, where a migration does not say.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MigrationPolicy {
    /// How they are sent.
    pub transfer: TransferPolicy,
    /// How many hosts are tried when they refuse, at most [`HOSTS_TRIED_MAX`].
    pub hosts_tried_max: u32,
}

impl Default for MigrationPolicy {
    fn default() -> Self {
        Self {
            transfer: TransferPolicy::default(),
            hosts_tried_max: HOSTS_TRIED_DEFAULT,
        }
    }
}

impl MigrationPolicy {
    /// Returns all that is wrong with it.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = self.transfer.faults("migration.");
        if !(1..=HOSTS_TRIED_MAX).contains(&self.hosts_tried_max) {
            let rule = format!("must be from 1 to {HOSTS_TRIED_MAX}");
            faults.push(Fault::new(
                "migration.hosts_tried",
                self.hosts_tried_max,
                rule,
            ));
        }
        faults
    }
}

/// Pages of guests that do not say which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DefaultPages {
    /// The smallest size.
    Small,
    /// Any size but the smallest.
    Large,
    /// Any size.
    Any,
}

impl DefaultPages {
    /// Returns the value of `hw:mem_page_size`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
            Self::Any => "any",
        }
    }
}

/// How much each weigher says when hosts are compared: shares of each other, each at most
/// [`WEIGHT_MAX`]. With 0 it says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Weights {
    /// How full the host is.
    pub load: u16,
    /// How tightly the guest's cells sit, where cells are packed.
    pub numa: u16,
    /// How many PCI functions lie idle under a guest that asks for none.
    pub pci: u16,
    /// Whether wholly free cells stay so.
    pub fragmentation: u16,
    /// How many members of the guest's server group are near, for the soft policies.
    pub soft_affinity: u16,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            load: 100,
            // Says nothing while cells are spread.
            numa: 1000,
            pci: 10,
            fragmentation: 0,
            // A wish that a person wrote down comes before what is merely tidy.
            soft_affinity: 1000,
        }
    }
}

/// One thing that can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Setting {
    /// [`SchedulingPolicy::hosts`].
    Hosts(Strategy),
    /// [`SchedulingPolicy::cells`].
    Cells(Strategy),
    /// [`SchedulingPolicy::mem_page_size`].
    MemPageSize(Option<DefaultPages>),
    /// [`Weights::load`].
    Load(u16),
    /// [`Weights::numa`].
    Numa(u16),
    /// [`Weights::pci`].
    Pci(u16),
    /// [`Weights::fragmentation`].
    Fragmentation(u16),
    /// [`Weights::soft_affinity`].
    SoftAffinity(u16),
    /// [`TransferPolicy::bandwidth_mib_per_s_max`].
    MigrationBandwidth(Option<u32>),
    /// [`TransferPolicy::downtime_ms_max`].
    MigrationDowntime(Option<u32>),
    /// [`TransferPolicy::auto_converge`].
    MigrationAutoConverge(bool),
    /// [`TransferPolicy::post_copy`].
    MigrationPostCopy(bool),
    /// [`TransferPolicy::timeout_ms`].
    MigrationTimeout(Option<u64>),
    /// [`TransferPolicy::timeout_action`].
    MigrationTimeoutAction(TimeoutAction),
    /// [`MigrationPolicy::hosts_tried_max`].
    MigrationHostsTried(u32),
    /// [`SchedulingPolicy::self_fence_ms`].
    SelfFence(Option<u64>),
}

/// Every key, in the order in which they are shown.
pub const KEYS: [&str; 16] = [
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
];

impl Setting {
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
            _ => {
                let known = KEYS.join(", ");
                let rule = format!("is not known; known keys are {known}");
                return Err(Fault::new("key", key, rule));
            }
        })
    }

    /// Reads settings, and says all that is wrong with them.
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
    /// Takes a setting.
    pub fn set(&mut self, setting: Setting) {
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
        }
    }

    /// Returns every key with its value, in the order in which they are shown.
    #[must_use]
    pub fn settings(&self) -> [(&'static str, String); 16] {
        let weights = &self.weights;
        let transfer = &self.migration.transfer;
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
        ];
        let mut values = values.into_iter();
        KEYS.map(|key| (key, values.next().unwrap_or_default()))
    }

    /// Adds to the copy of a flavor that a new VM gets what the cluster says where flavor and image,
    /// together these wishes, do not. Returns whether there was something to add.
    pub fn complete(&self, flavor: &mut Flavor, wishes: &Wishes) -> bool {
        let cells = wishes.topology.iter().flat_map(|topology| &topology.cells);
        let mut open = cells.filter(|cell| cell.cpu_policy.is_exclusive());
        let says_nothing = open.any(|cell| cell.page_size == PageSize::Unspecified);
        let Some(pages) = self.mem_page_size.filter(|_| says_nothing) else {
            return false;
        };
        let (key, value) = ("hw:mem_page_size", pages.as_str());
        flavor.extra_specs.insert(key.to_owned(), value.to_owned());
        true
    }

    /// Returns whether anything was set ever.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.generation != Generation::default()
    }

    /// Returns whether no weight is greater than may be, and nothing else out of bounds.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        let w = &self.weights;
        let all = [w.load, w.numa, w.pci, w.fragmentation, w.soft_affinity];
        let fences = self.self_fence_ms;
        all.into_iter().all(|weight| weight <= WEIGHT_MAX)
            && self.migration.faults().is_empty()
            && fences.is_none_or(|ms| (SELF_FENCE_MS_MIN..=SELF_FENCE_MS_MAX).contains(&ms))
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
    let number = number(key, value, least, most).map_err(|fault| {
        let rule = format!("must be none, or a whole number from {least} to {most}");
        Fault { rule, ..fault }
    });
    number.map(Some)
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
                _ => "7",
            };
            let mut policy = SchedulingPolicy::default();
            policy.set(Setting::parse(key, value).unwrap());
            assert_eq!(policy.settings()[at], (key, value.to_owned()));
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
        let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 4, "{told:#?}");
        assert_eq!(
            told[0],
            "scheduling.hosts = \"stack\": must be spread or pack"
        );
        let known = told[3].split("known keys are ").nth(1).unwrap();
        assert_eq!(known, KEYS.join(", "));
    }
}
