//! Options of `berth apply`.

use std::path::PathBuf;

use berth_domain::vm::LabelSelector;
use clap::Args;

/// Arguments of `berth apply`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
A file has documents of YAML, or JSON, with one resource each: what its `show`
prints with -o yaml, and a line with its kind, which is Flavor, PciAlias,
Network, Aggregate, ServerGroup, SchedulingPolicy or Vm. docs/apply.md has
examples.

Example: what differs; make it so; delete VMs that are not declared any more:
  berth apply -f web.yaml --dry-run
  berth apply -f web.yaml
  berth apply -f web.yaml --prune app=web

A difference that no request makes in place, as in a flavor, is shown with the
command that does, and nothing is changed.

Exit status: 0 when all is as declared, 4 with --dry-run when it is not, 1 when
something was refused or failed, 2 for a file that cannot be read.")]
pub struct Apply {
    /// File, directory, or `-` for standard input (repeatable)
    ///
    /// Of a directory, its files named *.yaml, *.yml and *.json, in the order of their names.
    #[arg(short = 'f', long = "file", value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Only show what would be changed
    #[arg(long)]
    pub dry_run: bool,
    /// Delete the VMs with this label that are not declared: KEY or KEY=VALUE (repeatable)
    ///
    /// Several must all match. Only VMs have labels: other resources are not deleted.
    #[arg(long, value_name = "KEY[=VALUE]")]
    pub prune: Vec<LabelSelector>,
    /// Prune even though no declared VM has the label
    #[arg(long, requires = "prune")]
    pub prune_all: bool,
    /// Delete without a confirmation
    #[arg(long)]
    pub yes: bool,
}
