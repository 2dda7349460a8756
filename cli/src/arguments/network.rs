//! Arguments of `berth network`.

use clap::{Args, Subcommand};

use super::InProject;

/// Verbs of networks.
#[derive(Debug, Subcommand)]
pub enum Network {
    /// Create a network, which cannot be changed afterwards
    Create(NetworkCreate),
    /// List all networks
    List,
    /// Show a network and the hosts that can give it to VMs
    Show {
        /// Name of the network
        network: String,
    },
    /// Delete a network that no VM is on
    Delete {
        /// Name of the network
        network: String,
    },
}

/// Arguments of `berth network create`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: a VLAN of what several hosts are cabled to, and a VM on it:
  berth network create web --physical-network physnet1 --vlan 120
  berth vm create db --flavor small --disk debian-12:4 --network web

Each host says in physical_networks of its agent with which bridge it reaches a
physical network. A VM on the network runs only on hosts that do, with a bridge
that can put it into the VLAN and forwards packets of that size: see
docs/networks.md.")]
pub struct NetworkCreate {
    /// Name of the network
    pub network: String,
    /// Physical network that it is on, as hosts name it
    #[arg(long, value_name = "PHYSICAL_NETWORK")]
    pub physical_network: String,
    /// VLAN of the physical network, 1 to 4094 (default: packets without a tag)
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u32).range(1..=4094))]
    pub vlan: Option<u32>,
    /// Largest packet in bytes, which guests are informed of (default: the bridge decides)
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(68..=65535))]
    pub mtu: Option<u32>,
    /// Text for people
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    pub description: String,
    /// The project that it belongs to
    #[command(flatten)]
    pub project: InProject,
}
