//! The PCI functions of a guest that is to move while it runs: whether it can, and which ones it
//! needs on the other side.
//!
//! A function keeps state of its own, which the hypervisor can carry over only where the function's
//! driver helps, and only to a function of the same model. Both sides must state it: the alias, by
//! `live_migratable=yes`, and the agents' `device_spec` of each function.

use std::collections::BTreeSet;

use crate::claim::Claim;
use crate::host::Host;
use crate::pci::{LIVE_MIGRATABLE, PciAddress, PciDevice, PciId, PciRequest};
use crate::refusal::{Code, Refusal};
use crate::vm::VmSpec;

/// The reason of a refusal for such a function.
pub const REASON: &str = "PCI_NOT_LIVE_MIGRATABLE";

/// Returns what the guest requests elsewhere: as many functions, of the models that it has.
pub(super) fn requests(
    spec: &VmSpec,
    claim: &Claim,
    source: &Host,
) -> Result<Vec<PciRequest>, Refusal> {
    let given = spec.pci.iter().zip(&claim.assignment.pci);
    given
        .map(|(request, addresses)| {
            let devices = addresses.iter().map(|a| (*a, find(source, *a)));
            let devices: Vec<_> = devices.collect();
            for (address, device) in &devices {
                can_move(spec, claim, request, *address, *device)?;
            }
            let models = devices.iter().filter_map(|(_, d)| *d);
            let models: BTreeSet<_> = models.map(|d| (d.vendor, d.product)).collect();
            of_models(claim, request, &models)
        })
        .collect()
}

fn find(host: &Host, address: PciAddress) -> Option<&PciDevice> {
    let all = host.report.topology.pci();
    all.iter().find(|device| device.address == address)
}

fn can_move(
    spec: &VmSpec,
    claim: &Claim,
    request: &PciRequest,
    address: PciAddress,
    device: Option<&PciDevice>,
) -> Result<(), Refusal> {
    let mut aliases = spec.pci_aliases.values();
    let alias = aliases.find(|alias| alias.any_of == request.any_of);
    let alias = alias.map_or_else(String::new, |alias| format!(" {}", alias.name));
    let why = if !request.is_live_migratable() {
        format!("its alias{alias} does not say {LIVE_MIGRATABLE}=yes")
    } else if !device.is_some_and(PciDevice::is_live_migratable) {
        let host = &claim.host;
        format!("the agent of host {host} does not say {LIVE_MIGRATABLE} of it any more")
    } else {
        return Ok(());
    };
    Err(Refusal::new(
        Code::FailedPrecondition,
        REASON,
        format!(
            "vm {} cannot be moved while it runs: it has PCI function {address}, and {why}",
            claim.vm
        ),
    )
    .with_hint(format!(
        "a VM with such a function can be moved while it runs where its alias was made with \
         {LIVE_MIGRATABLE}=yes, and the device_spec of both agents has {LIVE_MIGRATABLE} = true"
    ))
    .with("vm", &claim.vm)
    .with("pci_function", address))
}

/// Returns the request for functions of the one model that the guest has.
fn of_models(
    claim: &Claim,
    request: &PciRequest,
    models: &BTreeSet<(PciId, PciId)>,
) -> Result<PciRequest, Refusal> {
    let mut models = models.iter();
    let (Some((vendor, product)), None) = (models.next(), models.next()) else {
        let message = format!(
            "vm {} cannot be moved while it runs: of the functions that it has for {request}, not \
             all are of one model",
            claim.vm
        );
        return Err(Refusal::new(Code::FailedPrecondition, REASON, message).with("vm", &claim.vm));
    };
    let mut narrowed = request.clone();
    narrowed.any_of.retain_mut(|alternative| {
        let fits = alternative
            .vendor
            .replace(*vendor)
            .is_none_or(|v| v == *vendor);
        fits && alternative
            .product
            .replace(*product)
            .is_none_or(|p| p == *product)
    });
    Ok(narrowed)
}
