//! What can be typed of planning: `verify`, `score`, `balance`, `capacity`, `iallocator`.
//!
//! Each answers for the cluster, or with `--text` for a file in the format of Ganeti's htools,
//! without any cluster.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Would a failure be survived?
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
For each host: would all its VMs find places on the others if it failed, with their CPUs, pages,
PCI functions and persistent memory? proven: by a plan, which `berth host evacuate` follows;
refuted: a bound shows that there is none; unknown: none was found within the budget.
And for each host: is its memory given away beyond its ratio, and would its swap do?
Examples:
  berth verify
  berth verify h3 --plan
  berth verify --zones
  berth verify --text cluster.data --output json

Exit status: 0 when every failure would be survived and no memory is given away beyond its ratio,
4 when not.")]
pub struct Verify {
    /// Only these hosts (zones with --zones, aggregates with --aggregates)
    pub names: Vec<String>,
    /// Let all hosts of an availability zone fail together
    #[arg(long, conflicts_with = "aggregates")]
    pub zones: bool,
    /// Let all hosts of an aggregate fail together
    #[arg(long)]
    pub aggregates: bool,
    /// Show the plans
    #[arg(long)]
    pub plan: bool,
    /// Try so many placements at most for one verdict
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub budget: u64,
    /// Ask this file instead of the cluster
    #[command(flatten)]
    pub text: Text,
}

/// How good is the distribution?
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Less is better. The components are those of Ganeti's htools, and further ones for what the cluster
knows beyond; docs/balancing.md says what each is.")]
pub struct Score {
    /// Ask this file instead of the cluster
    #[command(flatten)]
    pub text: Text,
}

/// Plan moves that make the distribution better.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Shows the moves, why each helps, and the score before and after. Moves of one set run at the same
time. With --execute they are carried out by live migration; what is planned is compared with what
is, before each set, and the rest is left where they differ.
Examples:
  berth balance
  berth balance --execute
  berth balance --room-for big
  berth balance --text cluster.data --output json")]
pub struct Balance {
    /// Carry it out
    #[arg(long, conflicts_with = "text")]
    pub execute: bool,
    /// Go on without asking for a confirmation
    #[arg(long, short, requires = "execute")]
    pub yes: bool,
    /// Make no move that gains less than this
    #[arg(long, value_name = "SCORE")]
    pub gain_min: Option<f64>,
    /// Do nothing while the score is not above this
    #[arg(long, value_name = "SCORE", conflicts_with = "text")]
    pub threshold: Option<f64>,
    /// Do nothing while no host has more taken of its memory, CPUs or disk than this, as 0.8
    #[arg(long, value_name = "SHARE", conflicts_with = "text")]
    pub usage: Option<f64>,
    /// Plan at most so many moves
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub moves_max: u32,
    /// Make room for a VM of this flavor instead
    #[arg(long, value_name = "FLAVOR", conflicts_with = "text")]
    pub room_for: Option<String>,
    /// For so many of them
    #[arg(long, value_name = "N", default_value_t = 1, requires = "room_for")]
    pub count: u32,
    /// Ask this file instead of the cluster
    #[command(flatten)]
    pub text: Text,
    /// Do not touch disks: only fail over to the secondary
    #[arg(long, requires = "text")]
    pub no_disk_moves: bool,
    /// Only move what touches a node that is offline
    #[arg(long, requires = "text")]
    pub evac_mode: bool,
    /// Write the cluster after the moves to this file
    #[arg(long, value_name = "FILE", requires = "text")]
    pub save: Option<PathBuf>,
}

/// How many more fit?
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Places VMs until none fits any more, and says what was missing; then once more for every host that
might fail, after its VMs were placed elsewhere.
Examples:
  berth capacity small
  berth capacity small --ratio 1 --ratio 1.5 --ratio 2
  berth capacity --text cluster.data --memory 6000 --disk 1024 --vcpus 1 --disk-template ext")]
pub struct Capacity {
    /// VMs of this flavor
    #[arg(required_unless_present = "text", conflicts_with = "text")]
    pub flavor: Option<String>,
    /// At this memory ratio rather than the one that is set (can be repeated without --text)
    #[arg(long, value_name = "RATIO")]
    pub ratio: Vec<f64>,
    /// Leave out what would fit after a failure
    #[arg(long)]
    pub no_n1: bool,
    /// Go on with smaller shapes where no more of the first fits
    #[arg(long)]
    pub tiered: bool,
    /// Ask this file instead of the cluster
    #[command(flatten)]
    pub text: Text,
    /// Memory of one instance
    #[arg(long, value_name = "MIB", requires = "text")]
    pub memory: Option<i64>,
    /// Disk of one instance
    #[arg(long, value_name = "MIB", requires = "text")]
    pub disk: Option<i64>,
    /// vCPUs of one instance
    #[arg(long, value_name = "N", requires = "text")]
    pub vcpus: Option<i64>,
    /// Disk template of one instance, as drbd, plain or ext
    #[arg(long, value_name = "TEMPLATE", requires = "text")]
    pub disk_template: Option<String>,
}

/// A file in htools' format.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Ganeti")]
pub struct Text {
    /// Ask this file in the text format of Ganeti's htools; no cluster is asked
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// Decide as released htools do: what is free must stay above zero, not at zero
    #[arg(long, requires = "text")]
    pub strict: bool,
    /// Only this group of nodes
    #[arg(long, short = 'G', value_name = "GROUP", requires = "text")]
    pub group: Option<String>,
    /// Take this node for offline (can be repeated)
    #[arg(long, short = 'O', value_name = "NODE", requires = "text")]
    pub offline: Vec<String>,
    /// Keep instances apart that share a tag with this prefix (can be repeated)
    #[arg(long, value_name = "PREFIX", value_delimiter = ',', requires = "text")]
    pub exclusion_tags: Vec<String>,
    /// Leave the number of instances out of the score
    #[arg(long, requires = "text")]
    pub ignore_dynu: bool,
}

/// Answer Ganeti as its allocator.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Reads a request of Ganeti's IAllocator protocol and answers it on one line, as hail does, so that a
Ganeti cluster can use it: link a script that runs `berth iallocator` as
/usr/lib/ganeti/iallocators/berth. A ratio of memory is read as `memory-ratio` of an ipolicy.

Exit status: 0 also where the answer is no, 1 when the request cannot be read.")]
pub struct Iallocator {
    /// The request; - for standard input
    pub request: PathBuf,
    /// Take the cluster from this file in htools' text format, and only the request from the other
    #[arg(long, short = 't', value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// Decide as released htools do
    #[arg(long)]
    pub strict: bool,
    /// Do not ask that every node can be evacuated afterwards
    #[arg(long)]
    pub no_capacity_checks: bool,
}

/// What fails together.
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
    /// Returns what fails together.
    #[must_use]
    pub fn domain(&self) -> Domain {
        match (self.zones, self.aggregates) {
            (true, _) => Domain::Zone,
            (false, true) => Domain::Aggregate,
            (false, false) => Domain::Host,
        }
    }
}
