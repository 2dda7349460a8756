//! The arguments of aggregates, zones, server groups and the scheduling policy.

use super::{InProject, Selection};
use berth_domain::fault::Fault;
use berth_domain::server_group::GroupPolicy as GroupRule;
use clap::{Args, Subcommand};

use super::key_value;

/// Verbs of aggregates of hosts.
#[derive(Debug, Subcommand)]
pub enum Aggregate {
    /// Create an aggregate of hosts
    #[command(after_help = "\
Example: an availability zone, and hosts with fast disks that a flavor
requires:
  berth aggregate create rack1 --zone east
  berth aggregate add-host rack1 h1 h2
  berth aggregate create fast --metadata ssd=true
  berth aggregate add-host fast h2
  berth flavor create quick --vcpus 2 --memory-mib 512 \\
      --spec aggregate_instance_extra_specs:ssd=true
  berth vm create db --flavor quick --disk debian.qcow2:4 \\
      --availability-zone east

A host is in one zone at most, and may be in any number of other aggregates.")]
    Create {
        /// Name of the aggregate
        aggregate: String,
        /// Availability zone, the same as --metadata availability_zone=ZONE
        #[arg(long)]
        zone: Option<String>,
        /// Metadata of the aggregate (repeatable)
        #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
        metadata: Vec<(String, String)>,
    },
    /// List all aggregates
    #[command(after_help = "\
Aggregates of a host:
  berth aggregate list --filter 'hosts:h1'")]
    List(Selection),
    /// Show an aggregate with its hosts
    Show {
        /// Name of the aggregate
        aggregate: String,
    },
    /// Delete an aggregate without hosts
    Delete {
        /// Name of the aggregate
        aggregate: String,
    },
    /// Add hosts to an aggregate
    AddHost {
        /// Name of the aggregate
        aggregate: String,
        /// Names of the hosts
        #[arg(required = true)]
        hosts: Vec<String>,
    },
    /// Remove hosts from an aggregate; refused if it moves a VM out of its zone
    RemoveHost {
        /// Name of the aggregate
        aggregate: String,
        /// Names of the hosts
        #[arg(required = true)]
        hosts: Vec<String>,
    },
    /// Change metadata of an aggregate; other keys stay
    Set {
        /// Name of the aggregate
        aggregate: String,
        /// Metadata to add or replace
        #[arg(value_name = "KEY=VALUE", value_parser = key_value)]
        metadata: Vec<(String, String)>,
        /// Availability zone of the aggregate
        #[arg(long)]
        zone: Option<String>,
        /// Metadata key to remove (repeatable)
        #[arg(long, value_name = "KEY")]
        unset: Vec<String>,
        /// Expected generation of the aggregate; refused if it has changed
        #[arg(long)]
        generation: Option<u64>,
    },
}

/// Verbs of availability zones.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum AvailabilityZone {
    /// List the availability zones with their hosts
    List,
}

/// Verbs of server groups.
#[derive(Debug, Subcommand)]
pub enum ServerGroup {
    /// Create a server group
    #[command(after_help = "\
Example: no two web servers on one host:
  berth server-group create web --policy anti-affinity
  berth vm create web1 --flavor small --disk debian.qcow2:4 --server-group web

  affinity             all members on one host
  anti-affinity        at most --max-server-per-host members on one host
  soft-affinity        on few hosts, where that is possible
  soft-anti-affinity   on many hosts, where that is possible

The hard policies hold at all times, also during moves.")]
    Create {
        /// Name of the group
        group: String,
        /// Policy of the group: affinity, anti-affinity, soft-affinity or soft-anti-affinity
        #[arg(long, value_parser = group_policy)]
        policy: GroupRule,
        /// Maximum number of members on one host, for anti-affinity [default: 1]
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
        max_server_per_host: Option<u32>,
        /// The project that it belongs to
        #[command(flatten)]
        project: InProject,
    },
    /// List all server groups
    #[command(after_help = "\
Groups without members:
  berth server-group list --filter 'member_count = 0'")]
    List(Selection),
    /// Show a server group, its members and their hosts
    Show {
        /// Name of the group
        group: String,
    },
    /// Delete a server group without members
    Delete {
        /// Name of the group
        group: String,
    },
}

/// The scope of a setting.
#[derive(Clone, Debug, Default, Args)]
pub struct PolicyScope {
    /// Aggregate with the hosts it applies to, for `memory.` and `cpu.` keys
    #[arg(long, value_name = "AGGREGATE", conflicts_with = "host")]
    pub group: Option<String>,
    /// Name of the only host it applies to, for `memory.` and `cpu.` keys
    #[arg(long)]
    pub host: Option<String>,
}

/// Verbs of the scheduling policy.
#[derive(Debug, Subcommand)]
pub enum Policy {
    /// Show all settings, or those of the memory and CPUs of a host and their sources
    Show {
        /// Host to show the memory and CPU settings of
        #[arg(long)]
        host: Option<String>,
    },
    /// Change settings; other settings stay
    #[command(after_help = "\
Example: fill hosts one after the other, and their NUMA nodes too:
  berth policy set scheduling.hosts=pack scheduling.cells=pack

  scheduling.hosts, scheduling.cells
                                   spread (emptiest first) or pack (fullest)
  scheduling.weight.load           0 to 1000: how full the host is
  scheduling.weight.numa           how full packed NUMA nodes are
  scheduling.weight.pci            keeps PCI functions for guests with them
  scheduling.weight.fragmentation  keeps large free blocks
  scheduling.weight.soft_affinity  server groups with a soft policy
  flavor.mem_page_size             none, small, large or any: default page
                                   size of guests with dedicated CPUs
  memory.ratio                     1.0 to 16.0: guest memory per host memory
  memory.mem_node_mib              memory that the host itself needs; none:
                                   as reported by its agent
  cpu.ratio                        0.1 to 64.0: vCPUs per shared CPU
  cpu.reserved                     shared CPUs that guests are not given; none:
                                   no CPUs
  host.self_fence_ms               none, or 5000 to 3600000: when an agent that
                                   is cut off stops its guests
  member.dead_timeout_s            none, or 10 to 2592000: when a scheduler
                                   that does not answer is removed, if more
                                   failures are then tolerated
  failover.admission               off, warn or refuse: new guests that
                                   break the failover capacity
  balance.threshold, balance.hold_ms, balance.gain_min
                                   when guests are moved to balance hosts

Example: memory overcommitted by one half in a rack, except on one host:
  berth policy set memory.ratio=1.5 --group rack1
  berth policy set memory.ratio=1.0 --host h7

Example: eight vCPUs on each shared CPU, and two CPUs of h7 for itself:
  berth policy set cpu.ratio=8.0
  berth policy set cpu.reserved=2 --host h7

Settings apply to new placements; running guests stay where they are.")]
    Set {
        /// Settings to change
        #[arg(required = true, value_name = "KEY=VALUE", value_parser = key_value)]
        settings: Vec<(String, String)>,
        /// Scope of the settings
        #[command(flatten)]
        scope: PolicyScope,
        /// Expected generation of the policy; refused if it has changed
        #[arg(long)]
        generation: Option<u64>,
    },
    /// Reset settings to those of the group, the cluster or the default
    Unset {
        /// Keys of the settings to reset
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<String>,
        /// Scope of the settings
        #[command(flatten)]
        scope: PolicyScope,
        /// Expected generation of the policy; refused if it has changed
        #[arg(long)]
        generation: Option<u64>,
    },
}

fn group_policy(text: &str) -> Result<GroupRule, String> {
    text.parse().map_err(|fault: Fault| fault.rule)
}
