//! The arguments of planning: `verify`, `score`, `balance`, `capacity`, `iallocator`.
//!
//! Each answers for the cluster, or with `--text` for a file in the format of Ganeti's htools,
//! without any cluster.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Arguments of `berth verify`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
For each host: whether all its VMs would fit on the others if it failed, with
their CPUs, pages, PCI functions and persistent memory. proven: by a plan,
which `berth host evacuate` follows; refuted: a bound rules every plan out;
unknown: the budget ended before a plan. Also for each host: whether its
memory is overcommitted beyond its ratio, whether its guests have more vCPUs
than may share its CPUs, and whether its swap is large enough.
Examples:
  berth verify
  berth verify h3 --plan
  berth verify --zones
  berth verify --text cluster.data --output json

Exit status: 0 when every failure would be survived and no memory is
overcommitted beyond its ratio, else 4.")]
pub struct Verify {
    /// Names of the hosts (or zones with --zones, aggregates with --aggregates)
    pub names: Vec<String>,
    /// Check the failure of whole availability zones
    #[arg(long, conflicts_with = "aggregates")]
    pub zones: bool,
    /// Check the failure of whole aggregates
    #[arg(long)]
    pub aggregates: bool,
    /// Show the evacuation plans
    #[arg(long)]
    pub plan: bool,
    /// Show every host; of more than 40 those that are well are only counted
    #[arg(long)]
    pub all: bool,
    /// Maximum number of placements tried for one verdict
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub budget: u64,
    /// File to evaluate instead of the cluster
    #[command(flatten)]
    pub text: Text,
}

/// Arguments of `berth score`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The score is 0 where all hosts are equally full, and has no maximum: lower is
better. Hosts that are filled unevenly make up less than 1 in most clusters.
Each guest on a host without a proof of N+1 adds 1, and each on a host that is
down, cordoned or fenced 20. With --text it is htools' score of the file.
All components are described in docs/balancing.md.")]
pub struct Score {
    /// File to evaluate instead of the cluster
    #[command(flatten)]
    pub text: Text,
}

/// Arguments of `berth balance`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Shows the moves, the gain of each, and the score before and after, where 0 is
best and lower is better (berth help score). Moves of one set run at the same
time. With --execute they run as live migrations; before each set the plan is
compared with the cluster, and the rest is skipped where they differ.
Examples:
  berth balance
  berth balance --execute
  berth balance --room-for big
  berth balance --text cluster.data --output json")]
pub struct Balance {
    /// Run the planned migrations
    #[arg(long, conflicts_with = "text")]
    pub execute: bool,
    /// Skip the confirmation before the migrations
    #[arg(long, short, requires = "execute")]
    pub yes: bool,
    /// Minimum gain in score of a single move
    #[arg(long, value_name = "SCORE")]
    pub gain_min: Option<f64>,
    /// Score up to which nothing is planned
    #[arg(long, value_name = "SCORE", conflicts_with = "text")]
    pub threshold: Option<f64>,
    /// Use of memory, CPUs or disk up to which nothing is planned, such as 0.8
    #[arg(long, value_name = "SHARE", conflicts_with = "text")]
    pub usage: Option<f64>,
    /// Maximum number of planned moves
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub moves_max: u32,
    /// Plan moves that make a VM of this flavor fit instead
    #[arg(
        id = "room_for",
        long = "room-for",
        value_name = "FLAVOR",
        conflicts_with = "text"
    )]
    pub space_for: Option<String>,
    /// Number of VMs that must fit
    #[arg(long, value_name = "N", default_value_t = 1, requires = "room_for")]
    pub count: u32,
    /// File to evaluate instead of the cluster
    #[command(flatten)]
    pub text: Text,
    /// Keep disks in place and only fail over to the secondary
    #[arg(long, requires = "text")]
    pub no_disk_moves: bool,
    /// Only move instances of offline nodes
    #[arg(long, requires = "text")]
    pub evac_mode: bool,
    /// File to write the cluster after the moves to
    #[arg(long, value_name = "FILE", requires = "text")]
    pub save: Option<PathBuf>,
}

/// Arguments of `berth capacity`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Places VMs until none fits any more, and names the missing resource; then
again for the failure of each host, after its VMs were placed elsewhere.
Examples:
  berth capacity small
  berth capacity small --ratio 1 --ratio 1.5 --ratio 2
  berth capacity --text cluster.data --memory 6000 --disk 1024 --vcpus 1 \\
      --disk-template ext")]
pub struct Capacity {
    /// Name of the flavor
    #[arg(required_unless_present = "text", conflicts_with = "text")]
    pub flavor: Option<String>,
    /// Memory ratio instead of the configured one (repeatable without --text)
    #[arg(long, value_name = "RATIO")]
    pub ratio: Vec<f64>,
    /// Skip the count after a host failure
    #[arg(long)]
    pub no_n1: bool,
    /// Continue with smaller shapes when the first no longer fits
    #[arg(long)]
    pub tiered: bool,
    /// File to evaluate instead of the cluster
    #[command(flatten)]
    pub text: Text,
    /// Memory of one instance in MiB
    #[arg(long, value_name = "MIB", requires = "text")]
    pub memory: Option<i64>,
    /// Disk of one instance in MiB
    #[arg(long, value_name = "MIB", requires = "text")]
    pub disk: Option<i64>,
    /// Number of vCPUs of one instance
    #[arg(long, value_name = "N", requires = "text")]
    pub vcpus: Option<i64>,
    /// Disk template of one instance, such as drbd, plain or ext
    #[arg(long, value_name = "TEMPLATE", requires = "text")]
    pub disk_template: Option<String>,
}

/// A file in the text format of Ganeti's htools.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Ganeti")]
pub struct Text {
    /// File in the text format of Ganeti's htools to evaluate instead of a cluster
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// Decide as released htools do: free memory must stay above zero
    #[arg(long, requires = "text")]
    pub strict: bool,
    /// Only the nodes of this group
    #[arg(long, short = 'G', value_name = "GROUP", requires = "text")]
    pub group: Option<String>,
    /// Node that is treated as offline (repeatable)
    #[arg(long, short = 'O', value_name = "NODE", requires = "text")]
    pub offline: Vec<String>,
    /// Tag prefix of instances that are kept apart (repeatable)
    #[arg(long, value_name = "PREFIX", value_delimiter = ',', requires = "text")]
    pub exclusion_tags: Vec<String>,
    /// Exclude the dynamic utilisation from the score
    #[arg(long, requires = "text")]
    pub ignore_dynu: bool,
}

/// Arguments of `berth iallocator`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Reads a request of Ganeti's IAllocator protocol and prints the response on one
line, like hail, without any cluster of Berth. To use it in a Ganeti cluster,
link a script that runs `berth iallocator` as
/usr/lib/ganeti/iallocators/berth. The memory ratio is `memory-ratio` of an
ipolicy.

Exit status: 0 also for a negative response, 1 when the request cannot be read.")]
pub struct Iallocator {
    /// File with the request, or - for standard input
    pub request: PathBuf,
    /// File in htools' text format with the cluster, instead of the one in the request
    #[arg(long, short = 't', value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// Decide exactly as released htools do
    #[arg(long)]
    pub strict: bool,
    /// Skip the check that every node can still be evacuated
    #[arg(long)]
    pub no_capacity_checks: bool,
}

/// The hosts that fail together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Domain {
    /// One host.
    Host,
    /// The hosts of a zone.
    Zone,
    /// The hosts of an aggregate.
    Aggregate,
}

impl Verify {
    /// Returns the failure domain.
    #[must_use]
    pub fn domain(&self) -> Domain {
        match (self.zones, self.aggregates) {
            (true, _) => Domain::Zone,
            (false, true) => Domain::Aggregate,
            (false, false) => Domain::Host,
        }
    }
}
