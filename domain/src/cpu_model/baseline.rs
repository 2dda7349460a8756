//! The best CPU that every host of a group can give.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::guest_cpu::{CpuMode, GuestCpu};
use super::host_cpu::HostCpu;
use crate::name::{CpuFeature, CpuModelName, CpuVendor, HostName};

/// The best CPU that every host of a group can give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// The CPU.
    pub cpu: Arc<GuestCpu>,
    /// All features of it.
    pub features: BTreeSet<CpuFeature>,
}

impl Baseline {
    /// Returns the features of a host that guests with the baseline do not have.
    #[must_use]
    pub fn lost_of(&self, host: &HostCpu) -> BTreeSet<CpuFeature> {
        host.features.difference(&self.features).cloned().collect()
    }
}

/// Why there is no baseline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaselineFault {
    /// No host of the group reports its CPU.
    NoHosts,
    /// Two hosts are of different vendors, or one is of an unknown one.
    Vendors([(HostName, Option<CpuVendor>); 2]),
    /// No model of one host is known to the hypervisors of all others; by example.
    Models {
        /// The model.
        model: CpuModelName,
        /// A host whose hypervisor does not know it.
        host: HostName,
    },
}

impl fmt::Display for BaselineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHosts => f.write_str("no host of it reports its CPU"),
            Self::Vendors([a, b]) => {
                let vendor = |(host, vendor): &(HostName, Option<CpuVendor>)| match vendor {
                    Some(vendor) => format!("that of host {host} is of vendor {vendor}"),
                    None => format!("that of host {host} is of an unknown vendor"),
                };
                write!(
                    f,
                    "CPUs of different vendors have nothing in common: {}, {}",
                    vendor(a),
                    vendor(b)
                )
            }
            Self::Models { model, host } => write!(
                f,
                "the hypervisor of host {host} does not know CPU model {model}, and there is no \
                 other that all of them know"
            ),
        }
    }
}

/// The distinct CPUs of a group, each with the first host that has it.
type Kinds<'a> = Vec<(&'a HostName, &'a Arc<HostCpu>)>;

/// Returns the best CPU that all of these hosts can give: all features that they have in common, as the
/// nearest model of one of them that all of them know. Its features are those of libvirt's `baseline`.
///
/// # Errors
///
/// There is none.
pub fn baseline<'a>(
    hosts: impl Iterator<Item = (&'a HostName, &'a Arc<HostCpu>)>,
) -> Result<Baseline, BaselineFault> {
    let kinds = kinds(hosts);
    let Some((first, others)) = kinds.split_first() else {
        return Err(BaselineFault::NoHosts);
    };
    let vendor = |(_, cpu): &(&HostName, &Arc<HostCpu>)| cpu.host_model.vendor.clone();
    let differs = |other: &&(&HostName, &Arc<HostCpu>)| vendor(other) != vendor(first);
    if let Some(other) = others.iter().find(differs) {
        let of_vendor = |kind: &(&HostName, &Arc<HostCpu>)| (kind.0.clone(), vendor(kind));
        return Err(BaselineFault::Vendors([first, other].map(of_vendor)));
    }
    let mut features = first.1.features.clone();
    for (_, cpu) in others {
        features.retain(|feature| cpu.features.contains(feature));
    }
    let cpu = Arc::new(nearest(&kinds, &features)?);
    Ok(Baseline { cpu, features })
}

/// Returns the distinct CPUs. Hosts whose CPUs are alike usually share one, so that few are compared.
fn kinds<'a>(hosts: impl Iterator<Item = (&'a HostName, &'a Arc<HostCpu>)>) -> Kinds<'a> {
    let mut kinds: Kinds<'a> = Vec::new();
    for (host, cpu) in hosts {
        let is_known = kinds.iter().any(|(_, known)| Arc::ptr_eq(known, cpu))
            || kinds.iter().any(|(_, known)| *known == cpu);
        if !is_known {
            kinds.push((host, cpu));
        }
    }
    kinds
}

/// Returns these features as the nearest of the hosts' own models that all hosts know; of equally near
/// ones the first by name.
fn nearest(kinds: &Kinds<'_>, common: &BTreeSet<CpuFeature>) -> Result<GuestCpu, BaselineFault> {
    let mut unknown = None;
    let mut best: Option<(usize, GuestCpu)> = None;
    for (_, candidate) in kinds {
        let model = &candidate.host_model.model;
        let without = |(_, cpu): &&(&HostName, &Arc<HostCpu>)| !cpu.models.contains_key(model);
        if let Some((host, _)) = kinds.iter().find(without) {
            unknown = unknown.or_else(|| Some((model.clone(), (*host).clone())));
            continue;
        }
        let of_model = candidate.features_of_model();
        let cpu = GuestCpu {
            mode: CpuMode::Custom,
            model: model.clone(),
            vendor: candidate.host_model.vendor.clone(),
            required: common.difference(&of_model).cloned().collect(),
            disabled: of_model.difference(common).cloned().collect(),
        };
        let distance = cpu.required.len() + cpu.disabled.len();
        let is_nearer = best
            .as_ref()
            .is_none_or(|(least, of_best)| (distance, &cpu.model) < (*least, &of_best.model));
        if is_nearer {
            best = Some((distance, cpu));
        }
    }
    best.map(|(_, cpu)| cpu).ok_or_else(|| {
        let (model, host) = unknown.expect("each candidate is taken or unknown to a host");
        BaselineFault::Models { model, host }
    })
}
