//! The arguments of `berth cpu`.

use clap::{Args, Subcommand};

/// Verbs of CPU models.
#[derive(Debug, Subcommand)]
pub enum Cpu {
    /// Show the best CPU that all hosts of a group can give to VMs
    #[command(after_help = "\
VMs of a flavor with hw:cpu_model=baseline, or hw:cpu_model=baseline:GROUP,
get this CPU when they are started, and can be moved live between all hosts
of the group. The list shows which features of each host they do not have.
Example:
  berth cpu baseline
  berth cpu baseline --group rack1")]
    Baseline(CpuGroup),
    /// List the CPU models that the hosts of a group can give to VMs
    #[command(after_help = "\
A VM of a flavor with hw:cpu_model=MODEL is placed on hosts that can give it
the model as it is.
Example:
  berth cpu models --group rack1")]
    Models(CpuGroup),
}

/// A group of hosts.
#[derive(Debug, Args)]
pub struct CpuGroup {
    /// Only the hosts of this aggregate, instead of all hosts
    #[arg(long, value_name = "AGGREGATE")]
    pub group: Option<String>,
}
