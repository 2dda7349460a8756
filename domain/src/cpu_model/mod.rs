//! CPU models: what a guest sees as its processor, and which hosts can give it that.
//!
//! A guest's CPU is described as libvirt does: a named model, features required beyond it, and features
//! of it that are disabled. An agent reports what its hypervisor offers ([`HostCpu`]); a flavor or an
//! image chooses among that ([`CpuModelChoice`]); a claim records what the guest is started with
//! ([`GuestCpu`]), so that a live migration leads only to hosts that can give it the same.
//!
//! Not here: libvirt's CPU map. Which features a model has is known to hosts, and reported by them.
//!
//! Invariant: the verdicts are libvirt's. `tests/tests/real/cpu_models` compares them with its `compare`
//! and `baseline` for every pair of models.

mod baseline;
mod choice;
mod guest_cpu;
mod host_cpu;

pub use baseline::{Baseline, BaselineFault, baseline};
pub use choice::{BaselineScope, CpuDemand, CpuModelChoice};
pub use guest_cpu::{CpuMode, GuestCpu};
pub use host_cpu::{CpuMismatch, HostCpu};

/// The most features of a CPU, and of a model that a host lacks. libvirt 9 knows some 300 on x86.
pub const FEATURES_MAX: usize = 1024;
/// The most models that an agent reports.
pub const MODELS_MAX: usize = 512;
