//! What can be typed of where guests go: aggregates, zones, server groups, the scheduling policy.

use berth_domain::fault::Fault;
use berth_domain::server_group::GroupPolicy as GroupRule;
use clap::{Args, Subcommand};

use super::key_value;

/// Verbs of aggregates of hosts.
#[derive(Debug, Subcommand)]
pub enum Aggregate {
    /// Make an aggregate
    #[command(after_help = "\
Example: an availability zone, and hosts with fast disks that a flavor asks for:
  berth aggregate create rack1 --zone east
  berth aggregate add-host rack1 h1 h2
  berth aggregate create fast --metadata ssd=true
  berth aggregate add-host fast h2
  berth flavor create quick --vcpus 2 --memory-mib 512 \\
      --spec aggregate_instance_extra_specs:ssd=true
  berth vm create db --flavor quick --disk debian.qcow2:4 --availability-zone east

A host is in one zone at most, and may be in any number of other aggregates.")]
    Create {
        /// The aggregate's name
        aggregate: String,
        /// Make it this availability zone: the same as --metadata availability_zone=ZONE
        #[arg(long)]
        zone: Option<String>,
        /// Say what its hosts have in common (can be repeated)
        #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
        metadata: Vec<(String, String)>,
    },
    /// List aggregates
    List,
    /// Show one aggregate with its hosts
    Show {
        /// The aggregate
        aggregate: String,
    },
    /// Delete an aggregate without hosts
    Delete {
        /// The aggregate
        aggregate: String,
    },
    /// Put hosts into an aggregate
    AddHost {
        /// The aggregate
        aggregate: String,
        /// The hosts
        #[arg(required = true)]
        hosts: Vec<String>,
    },
    /// Take hosts out of an aggregate; refused where a VM asked for the zone that it would leave
    RemoveHost {
        /// The aggregate
        aggregate: String,
        /// The hosts
        #[arg(required = true)]
        hosts: Vec<String>,
    },
    /// Change what the hosts have in common; what is not named stays
    Set {
        /// The aggregate
        aggregate: String,
        /// What to add or replace
        #[arg(value_name = "KEY=VALUE", value_parser = key_value)]
        metadata: Vec<(String, String)>,
        /// Make it this availability zone
        #[arg(long)]
        zone: Option<String>,
        /// Take this key away (can be repeated)
        #[arg(long, value_name = "KEY")]
        unset: Vec<String>,
        /// Only if the aggregate is at this generation, as `berth aggregate show` tells it
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
    /// Make a server group
    #[command(after_help = "\
Example: no two web servers on one host:
  berth server-group create web --policy anti-affinity
  berth vm create web1 --flavor small --disk debian.qcow2:4 --server-group web

  affinity             all members on one host
  anti-affinity        at most --max-server-per-host members on one host
  soft-affinity        on few hosts, where that is possible
  soft-anti-affinity   on many hosts, where that is possible

The hard policies hold at any time, also while members move.")]
    Create {
        /// The group's name
        group: String,
        /// What it asks of its members' hosts: affinity, anti-affinity, soft-affinity or
        /// soft-anti-affinity
        #[arg(long, value_parser = group_policy)]
        policy: GroupRule,
        /// How many members one host may have, for anti-affinity [default: 1]
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
        max_server_per_host: Option<u32>,
    },
    /// List server groups
    List,
    /// Show one server group, its members and where they are
    Show {
        /// The group
        group: String,
    },
    /// Delete a server group without members
    Delete {
        /// The group
        group: String,
    },
}

/// For what a policy is set.
#[derive(Clone, Debug, Default, Args)]
pub struct PolicyScope {
    /// For the hosts of this aggregate alone: `memory.` keys
    #[arg(long, value_name = "AGGREGATE", conflicts_with = "host")]
    pub group: Option<String>,
    /// For this host alone: `memory.` keys
    #[arg(long)]
    pub host: Option<String>,
}

/// Verbs of the scheduling policy.
#[derive(Debug, Subcommand)]
pub enum Policy {
    /// Show every setting with its value, or what holds of one host's memory and who said so
    Show {
        /// Show what holds of this host's memory
        #[arg(long)]
        host: Option<String>,
    },
    /// Change settings; what is not named stays
    #[command(after_help = "\
Example: fill hosts one after the other, and their cells too:
  berth policy set scheduling.hosts=pack scheduling.cells=pack

  scheduling.hosts, scheduling.cells      spread (emptiest first) or pack (fullest first)
  scheduling.weight.load                  0 to 1000: how full the host is
  scheduling.weight.numa                  how tightly its cells sit, where cells are packed
  scheduling.weight.pci                   keeps hosts with PCI functions for who asks for them
  scheduling.weight.fragmentation         keeps large holes
  scheduling.weight.soft_affinity         server groups with a soft policy
  flavor.mem_page_size                    none, small, large or any: pages of new guests with CPUs
                                          of their own that do not say which
  memory.ratio                            1.0 to 16.0: how many bytes of guests' memory one byte of a
                                          host's may hold
  memory.mem_node_mib                     what a node itself needs; none: what its agent says
  failover.admission                      off, warn or refuse: new guests that leave no room for
                                          those of a host that dies
  balance.threshold, balance.hold_ms, balance.gain_min
                                          when guests are moved so that hosts are loaded evenly

Example: a rack whose guests may have half as much memory again as it has, but one host:
  berth policy set memory.ratio=1.5 --group rack1
  berth policy set memory.ratio=1.0 --host h7

It holds from the next choice on; guests that run stay where they are.")]
    Set {
        /// What to set
        #[arg(required = true, value_name = "KEY=VALUE", value_parser = key_value)]
        settings: Vec<(String, String)>,
        /// For what it is set
        #[command(flatten)]
        scope: PolicyScope,
        /// Only if the policy is at this generation, as `berth policy show` tells it
        #[arg(long)]
        generation: Option<u64>,
    },
    /// Take settings back: the default holds again, or what the group or the cluster says
    Unset {
        /// What to take back
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<String>,
        /// For what it is taken back
        #[command(flatten)]
        scope: PolicyScope,
        /// Only if the policy is at this generation, as `berth policy show` tells it
        #[arg(long)]
        generation: Option<u64>,
    },
}

fn group_policy(text: &str) -> Result<GroupRule, String> {
    text.parse().map_err(|fault: Fault| fault.rule)
}
