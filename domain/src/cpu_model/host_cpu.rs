//! What the hypervisor of a host offers to guests as a CPU, and whether that suffices for one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::guest_cpu::{CpuMode, GuestCpu};
use crate::name::{CpuFeature, CpuModelName, CpuVendor};

/// How many features a message names.
const NAMED_MAX: usize = 6;

/// What the hypervisor of a host offers to guests as a CPU, as its agent reports.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostCpu {
    /// The closest description of the host's CPU that can be moved between hosts: libvirt's
    /// `host-model`.
    pub host_model: Arc<GuestCpu>,
    /// All features of that.
    pub features: BTreeSet<CpuFeature>,
    /// Every model that the hypervisor knows, with the features of it that the host lacks; none for a
    /// model that guests can be given as it is.
    pub models: BTreeMap<CpuModelName, BTreeSet<CpuFeature>>,
}

/// Why a host cannot give a guest a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuMismatch {
    /// Its agent does not report what its hypervisor offers.
    NotReported,
    /// Its hypervisor does not know the model.
    UnknownModel(CpuModelName),
    /// Its CPU is of another vendor.
    Vendor {
        /// The guest's.
        requested: CpuVendor,
        /// The host's, if it is known.
        actual: Option<CpuVendor>,
    },
    /// It lacks features.
    Features {
        /// Which.
        missing: BTreeSet<CpuFeature>,
        /// The model that the guest has.
        model: CpuModelName,
        /// Whether the guest runs, rather than is to be started.
        is_running: bool,
    },
    /// The guest sees its host's own CPU, and this one is another.
    Passthrough {
        /// The guest's.
        requested: CpuModelName,
        /// The host's.
        actual: CpuModelName,
    },
}

impl HostCpu {
    /// Returns whether the description is consistent: the features of the host's model are those of its
    /// named model, plus and minus what the description says, and it lacks none that it has.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        let own = &self.host_model;
        own.mode == CpuMode::Custom
            && own.is_consistent()
            && own.required.is_subset(&self.features)
            && self.models.get(&own.model) == Some(&own.disabled)
            && (self.models.values()).all(|lacking| lacking.is_disjoint(&self.features))
    }

    /// Returns all features of the named model of this host's CPU.
    pub(super) fn features_of_model(&self) -> BTreeSet<CpuFeature> {
        let own = &self.host_model;
        let kept = self.features.difference(&own.required);
        kept.chain(&own.disabled).cloned().collect()
    }

    /// Returns what a guest sees that is passed this host's CPU through.
    #[must_use]
    pub fn passthrough(&self) -> GuestCpu {
        GuestCpu {
            mode: CpuMode::HostPassthrough,
            ..(*self.host_model).clone()
        }
    }

    /// Checks whether a guest can be given this CPU here, as libvirt's `compare` does: the vendor is the
    /// same where it is set, and the host has every feature.
    ///
    /// # Errors
    ///
    /// What is missing.
    pub fn check(&self, cpu: &GuestCpu, is_running: bool) -> Result<(), CpuMismatch> {
        let own = &self.host_model;
        if cpu.mode == CpuMode::HostPassthrough {
            let is_same = own.model == cpu.model
                && own.vendor == cpu.vendor
                && own.required == cpu.required
                && own.disabled == cpu.disabled;
            return match is_same {
                true => Ok(()),
                false => Err(CpuMismatch::Passthrough {
                    requested: cpu.model.clone(),
                    actual: own.model.clone(),
                }),
            };
        }
        if let Some(requested) = &cpu.vendor
            && own.vendor.as_ref() != Some(requested)
        {
            return Err(CpuMismatch::Vendor {
                requested: requested.clone(),
                actual: own.vendor.clone(),
            });
        }
        let Some(lacking) = self.models.get(&cpu.model) else {
            return Err(CpuMismatch::UnknownModel(cpu.model.clone()));
        };
        let of_model = lacking.difference(&cpu.disabled);
        let beyond = cpu.required.difference(&self.features);
        let missing: BTreeSet<_> = of_model.chain(beyond).cloned().collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(CpuMismatch::Features {
                missing,
                model: cpu.model.clone(),
                is_running,
            }),
        }
    }
}

/// Returns the first of these names, and how many others there are.
fn few(features: &BTreeSet<CpuFeature>) -> String {
    let named: Vec<&str> = features
        .iter()
        .take(NAMED_MAX)
        .map(CpuFeature::as_str)
        .collect();
    match features.len().saturating_sub(NAMED_MAX) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

impl CpuMismatch {
    /// Returns whether a cause is one of these.
    #[must_use]
    pub fn is_cause(cause: &str) -> bool {
        let all = [
            "CPU_NOT_REPORTED",
            "CPU_MODEL_UNKNOWN",
            "CPU_VENDOR",
            "CPU_FEATURES",
            "CPU_DIFFERS",
        ];
        all.contains(&cause)
    }

    /// Returns the cause for programs.
    #[must_use]
    pub fn cause(&self) -> &'static str {
        match self {
            Self::NotReported => "CPU_NOT_REPORTED",
            Self::UnknownModel(_) => "CPU_MODEL_UNKNOWN",
            Self::Vendor { .. } => "CPU_VENDOR",
            Self::Features { .. } => "CPU_FEATURES",
            Self::Passthrough { .. } => "CPU_DIFFERS",
        }
    }
}

impl fmt::Display for CpuMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReported => f.write_str("its agent does not report its CPU"),
            Self::UnknownModel(model) => {
                write!(f, "its hypervisor does not know CPU model {model}")
            }
            Self::Vendor {
                requested,
                actual: Some(actual),
            } => write!(
                f,
                "its CPU is of vendor {actual}, the guest's of {requested}"
            ),
            Self::Vendor { requested, .. } => write!(
                f,
                "its CPU is of an unknown vendor, the guest's of {requested}"
            ),
            Self::Features {
                missing,
                is_running: true,
                ..
            } => write!(f, "it lacks {}, needed by the running guest", few(missing)),
            Self::Features { missing, model, .. } => {
                write!(f, "it lacks {}, needed by CPU model {model}", few(missing))
            }
            Self::Passthrough { requested, actual } if requested == actual => write!(
                f,
                "its CPU, {actual} too, has other features than the one that the guest is passed \
                 through"
            ),
            Self::Passthrough { requested, actual } => write!(
                f,
                "its CPU is {actual}, the guest is passed through {requested}"
            ),
        }
    }
}
