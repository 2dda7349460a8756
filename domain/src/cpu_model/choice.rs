//! Which CPU a flavor or an image chooses, and what that demands of a host.

use std::fmt;
use std::sync::Arc;

use super::guest_cpu::GuestCpu;
use super::host_cpu::{CpuMismatch, HostCpu};
use crate::name::{AggregateName, CpuModelName};

/// Whose hosts a baseline is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BaselineScope {
    /// All hosts of the cluster.
    Cluster,
    /// The hosts of an aggregate.
    Aggregate(AggregateName),
}

/// Which CPU a flavor or an image chooses.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CpuModelChoice {
    /// What the host gives by default: the model of its own CPU where guests run on it, and the
    /// emulator's own where they are emulated.
    #[default]
    HostDefault,
    /// The model of the host's CPU.
    HostModel,
    /// The host's CPU itself.
    HostPassthrough,
    /// The best CPU that all hosts of a group can give.
    Baseline(BaselineScope),
    /// A model by its name.
    Named(CpuModelName),
}

/// What a guest demands of a host as a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuDemand {
    /// What the host gives by default.
    HostDefault,
    /// The model of the host's CPU.
    HostModel,
    /// The host's CPU itself.
    HostPassthrough,
    /// A baseline that is not computed yet: only the state knows the hosts. No host gives it.
    Baseline(BaselineScope),
    /// This CPU.
    Exactly {
        /// The CPU.
        cpu: Arc<GuestCpu>,
        /// Whether the guest runs with it, rather than is to be started.
        is_running: bool,
    },
    /// The guest runs, and what it was started with is not recorded.
    Unrecorded,
}

impl CpuModelChoice {
    /// Reads `host-model`, `host-passthrough`, `baseline`, `baseline:AGGREGATE`, or the name of a model.
    ///
    /// # Errors
    ///
    /// The allowed values.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rule = "must be host-model, host-passthrough, baseline, baseline:AGGREGATE, or the name \
                    of a CPU model as libvirt knows it";
        match text {
            "host-model" => return Ok(Self::HostModel),
            "host-passthrough" => return Ok(Self::HostPassthrough),
            "baseline" => return Ok(Self::Baseline(BaselineScope::Cluster)),
            // Their use is a mistake of hosts' settings elsewhere.
            "custom" | "maximum" | "none" => return Err(rule.to_owned()),
            _ => {}
        }
        if let Some(name) = text.strip_prefix("baseline:") {
            let name = AggregateName::new(name).map_err(|_| rule.to_owned())?;
            return Ok(Self::Baseline(BaselineScope::Aggregate(name)));
        }
        let model = CpuModelName::new(text).map_err(|_| rule.to_owned())?;
        Ok(Self::Named(model))
    }

    /// Returns what a guest demands that is to be started.
    #[must_use]
    pub fn demand(&self) -> CpuDemand {
        match self {
            Self::HostDefault => CpuDemand::HostDefault,
            Self::HostModel => CpuDemand::HostModel,
            Self::HostPassthrough => CpuDemand::HostPassthrough,
            Self::Baseline(scope) => CpuDemand::Baseline(scope.clone()),
            Self::Named(model) => CpuDemand::Exactly {
                cpu: Arc::new(GuestCpu::named(model.clone())),
                is_running: false,
            },
        }
    }
}

impl fmt::Display for CpuModelChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostDefault => f.write_str("default"),
            Self::HostModel => f.write_str("host-model"),
            Self::HostPassthrough => f.write_str("host-passthrough"),
            Self::Baseline(BaselineScope::Cluster) => f.write_str("baseline"),
            Self::Baseline(BaselineScope::Aggregate(name)) => write!(f, "baseline:{name}"),
            Self::Named(model) => model.fmt(f),
        }
    }
}

impl CpuDemand {
    /// Returns the demand of a guest that runs with this CPU.
    #[must_use]
    pub fn running(cpu: Option<&Arc<GuestCpu>>) -> Self {
        match cpu {
            Some(cpu) => Self::Exactly {
                cpu: cpu.clone(),
                is_running: true,
            },
            None => Self::Unrecorded,
        }
    }

    /// Returns whether a host has to report its CPU for it.
    #[must_use]
    pub fn needs_report(&self) -> bool {
        match self {
            Self::HostDefault | Self::Unrecorded => false,
            Self::HostModel | Self::HostPassthrough | Self::Baseline(_) | Self::Exactly { .. } => {
                true
            }
        }
    }

    /// Checks whether a host that reports this gives it.
    ///
    /// # Errors
    ///
    /// What is missing.
    pub fn check(&self, host: Option<&HostCpu>) -> Result<(), CpuMismatch> {
        match (self, host) {
            (Self::HostDefault | Self::Unrecorded, _) => Ok(()),
            (_, None) | (Self::Baseline(_), _) => Err(CpuMismatch::NotReported),
            (Self::HostModel | Self::HostPassthrough, Some(_)) => Ok(()),
            (Self::Exactly { cpu, is_running }, Some(host)) => host.check(cpu, *is_running),
        }
    }

    /// Returns what a guest is started with on a host that was checked; nothing where that is left to
    /// the driver. `is_emulated` says whether guests of the host are.
    #[must_use]
    pub fn given(&self, host: Option<&HostCpu>, is_emulated: bool) -> Option<Arc<GuestCpu>> {
        let host = host?;
        match self {
            Self::HostDefault if is_emulated => None,
            Self::HostDefault | Self::HostModel => Some(host.host_model.clone()),
            Self::HostPassthrough => Some(Arc::new(host.passthrough())),
            Self::Exactly { cpu, .. } => Some(cpu.clone()),
            Self::Baseline(_) | Self::Unrecorded => None,
        }
    }
}
