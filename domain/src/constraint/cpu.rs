//! The host gives the guest the CPU that it is to have, or that it runs with.

use std::sync::Arc;

use super::{Demand, Violation};
use crate::cpu_model::{CpuDemand, GuestCpu};
use crate::host::HostReport;
use crate::host_view::HostView;

/// Refuses a host whose hypervisor lacks a feature or does not know a model, or whose CPU is another
/// one.
///
/// # Errors
///
/// [`Violation::Cpu`].
pub fn check(view: &HostView, demand: &Demand) -> Result<(), Violation> {
    let own = view.host.report.cpu.as_deref();
    demand.cpu.check(own).map_err(Violation::Cpu)
}

/// Returns what a guest is started with on a host that was checked; nothing where that is left to the
/// host's driver.
#[must_use]
pub fn given(report: &HostReport, demand: &CpuDemand) -> Option<Arc<GuestCpu>> {
    demand.given(report.cpu.as_deref(), report.platform.emulates())
}
