//! What a hypervisor offers to guests as a CPU, as libvirt knows it.
//!
//! libvirt names a model and features for it, in domain capabilities. All features of a model are in its
//! CPU map only; they are read by having libvirt expand the model as if it were a host's CPU.
//!
//! What it is not: libvirt's `baseline` of hypervisors. That one leaves out features that QEMU does not know
//! under their names, so that two hosts could seem alike.
//!
//! Invariant: what is returned is consistent ([`HostCpu::is_consistent`]), whatever libvirt says: which
//! features are required and which are disabled is computed from the expanded sets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::cpu_model::{CpuMode, GuestCpu, HostCpu};
use berth_domain::name::{CpuFeature, CpuModelName};

use super::error::error_of;
use super::{Connection, Kind, Platform};
use crate::error::Error;
use crate::xml::{self, Settings, cpu as cpu_xml};

/// All features of a CPU; nothing where its model cannot be expanded.
pub type Expanded = Option<BTreeSet<CpuFeature>>;

/// Returns what guests are run by.
#[must_use]
pub fn platform(settings: &Settings) -> Platform<'_> {
    Platform {
        emulator: settings.emulator.as_deref(),
        arch: cpu_xml::ARCHITECTURE,
        machine: &settings.machine,
        virt_type: settings.virt_type.as_str(),
    }
}

/// Returns what guests can be given as a CPU; nothing where that is not known, as on other architectures.
/// Takes a millisecond or two for each model that the hypervisor knows, some 60.
///
/// # Errors
///
/// When libvirt fails, or its reply cannot be understood.
pub fn host_cpu(connection: &Connection, platform: Platform<'_>) -> Result<Option<HostCpu>, Error> {
    let capabilities = match connection.domain_capabilities(platform) {
        Ok(capabilities) => capabilities,
        Err(error) if is_definite(error.kind()) => return Ok(None),
        Err(error) => return Err(error_of(&error)),
    };
    let offered = cpu_xml::offered(&capabilities).map_err(|e| Error::refused(e.to_string()))?;
    let Some(own) = offered.host_model else {
        return Ok(None);
    };
    describe(&own, &offered.models, |cpu| expand(connection, cpu))
}

/// Returns whether libvirt has replied that there is no such thing.
fn is_definite(kind: Kind) -> bool {
    match kind {
        Kind::Unsupported | Kind::InvalidArgument => true,
        Kind::Unavailable
        | Kind::NoDomain
        | Kind::DomainExists
        | Kind::NoMetadata
        | Kind::OperationInvalid
        | Kind::OperationFailed
        | Kind::OperationAborted
        | Kind::Timeout
        | Kind::MigrateUnsafe
        | Kind::ResourceBusy
        | Kind::Other => false,
    }
}

/// Returns all features of a CPU by libvirt's map.
///
/// # Errors
///
/// When libvirt cannot be reached, or its reply cannot be understood.
pub fn expand(connection: &Connection, cpu: &GuestCpu) -> Result<Expanded, Error> {
    let expanded = match connection.baseline_cpu(&[cpu_xml::host(cpu)]) {
        Ok(expanded) => expanded,
        Err(error) if error.kind() == Kind::Unavailable => return Err(error_of(&error)),
        Err(_) => return Ok(None),
    };
    let expanded =
        cpu_xml::definition(&expanded).map_err(|error| Error::refused(error.to_string()))?;
    let mut features = expanded.required;
    features.retain(|feature| !cpu.disabled.contains(feature));
    Ok(Some(features))
}

/// Returns what a hypervisor offers that has this CPU itself and knows these models; nothing
/// where the own model cannot be expanded. A model that cannot be expanded is left out.
///
/// # Errors
///
/// Those of the expansion.
pub fn describe<E>(
    own: &GuestCpu,
    models: &BTreeSet<CpuModelName>,
    mut expand: impl FnMut(&GuestCpu) -> Result<Expanded, E>,
) -> Result<Option<HostCpu>, E> {
    let Some(features) = expand(own)? else {
        return Ok(None);
    };
    let Some(of_model) = expand(&GuestCpu::named(own.model.clone()))? else {
        return Ok(None);
    };
    let lacking = |model: BTreeSet<CpuFeature>| -> BTreeSet<CpuFeature> {
        model.difference(&features).cloned().collect()
    };
    let host_model = GuestCpu {
        mode: CpuMode::Custom,
        model: own.model.clone(),
        vendor: own.vendor.clone(),
        required: features.difference(&of_model).cloned().collect(),
        disabled: lacking(of_model),
    };
    let mut known = BTreeMap::new();
    for model in models {
        if let Some(of_model) = expand(&GuestCpu::named(model.clone()))? {
            known.insert(model.clone(), lacking(of_model));
        }
    }
    known.insert(own.model.clone(), host_model.disabled.clone());
    let cpu = HostCpu {
        host_model: Arc::new(host_model),
        features,
        models: known,
    };
    assert!(cpu.is_consistent(), "computed from the same sets: {cpu:?}");
    Ok(Some(cpu))
}

/// Refuses a CPU that guests of this hypervisor cannot be given, with libvirt's reason.
///
/// # Errors
///
/// What is missing, or that libvirt does not reply.
pub(super) fn require(
    connection: &Connection,
    platform: Platform<'_>,
    cpu: &GuestCpu,
) -> Result<(), Error> {
    match cpu.mode {
        CpuMode::Custom => {
            let fits = connection.require_cpu(platform, &xml::cpu::guest(cpu));
            fits.map_err(|error| error_of(&error))
        }
        // libvirt does not compare it: any host has a CPU of its own.
        CpuMode::HostPassthrough => match host_cpu(connection, platform)? {
            Some(own) => own
                .check(cpu, true)
                .map_err(|why| Error::refused(format!("guest CPU cannot be given here: {why}"))),
            None => Ok(()),
        },
    }
}
