//! The arguments of `berth explain`.

use clap::Args;

/// Arguments of `berth explain`.
#[derive(Debug, Args)]
#[command(after_help = "\
The names are those of the API: filters, the Python client and gRPC use them.
Examples:
  berth explain                              the resources there are
  berth explain vm                           the fields of a VM
  berth explain vm.spec.flavor.memory_mib    one field
  berth explain vm.state                     the values of a state
  berth explain vm --recursive               every field of a VM, by its path
  berth explain HostCell                     any message of the API")]
pub struct Explain {
    /// Resource, message or field: names with dots between them (default: list the resources)
    pub path: Option<String>,
    /// List every field below it, by its path
    #[arg(long, requires = "path")]
    pub recursive: bool,
}
