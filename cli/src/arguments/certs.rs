//! What can be typed about certificates.

use std::net::IpAddr;
use std::path::PathBuf;

use berth_tls::Role;
use berth_tls::authority::{AUTHORITY_DAYS, DAYS};
use clap::{Args, Subcommand};

/// Verbs of certificates.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
A cluster with certificates, from nothing:
  berth certs init certs
  berth certs issue certs --role scheduler --name m1 --dns m1 --ip 10.0.0.1
  berth certs issue certs --role conductor --name conductor-1 --dns m1
  berth certs issue certs --role agent --name host-1 --dns m1
  berth certs issue certs --role operator --name ann
Each machine gets ca.pem and its own two files, and its programs are told of them: [tls] in
their configuration, or --tls-ca, --tls-cert and --tls-key. ca-key.pem stays where it is.
Who may do what is in docs/security.md, and so is how to bring certificates of your own.")]
pub enum Certs {
    /// Make an authority in a new directory
    #[command(after_help = "\
Makes DIR/ca.pem, which goes to every machine, and DIR/ca-key.pem, which makes certificates and
should be on no machine of the cluster.")]
    Init(Init),
    /// Make a certificate and its key
    #[command(after_help = "\
Makes DIR/ROLE-NAME.pem and DIR/ROLE-NAME-key.pem. The name is what others know somebody by:
  agent            the host's name, as berth host list shows it
  conductor        the conductor's name, as berth cluster status shows it
  scheduler        any, as that of the machine
  operator         a person or a script that may do everything
  reader           a person or a script that may only look
  csi-controller   a controller of volumes
Servers are dialled by a name or an address, which must be in their certificate: --dns and --ip.
Without either, the name itself is taken for it.
PMEM-CSI's names are taken too: --role csi-controller --name pmem-registry, and --role agent
--name pmem-node-controller with a --dns for each host that it speaks for.")]
    Issue(Issue),
    /// Make certificates anew for whom they were made before, each with a new key
    #[command(after_help = "\
Running programs take them within seconds, once they are in the files that they were told of. In
the same directory that is all:
  berth certs renew certs certs/agent-host-1.pem
Elsewhere the two files are copied over; it does not matter in which order.")]
    Renew(Renew),
    /// Show certificates: whose they are, and for how long they hold
    Show {
        /// Files, or directories of them
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
}

/// An authority.
#[derive(Debug, Args)]
pub struct Init {
    /// The directory
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Call the authority so
    #[arg(long, default_value = "Berth authority")]
    pub name: String,
    /// For how many days it holds
    #[arg(long, default_value_t = AUTHORITY_DAYS)]
    pub days: u32,
}

/// Where an authority is.
#[derive(Debug, Args)]
pub struct From {
    /// The authority's directory
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// The authority's key, where it is not DIR/ca-key.pem
    #[arg(long, value_name = "FILE")]
    pub ca_key: Option<PathBuf>,
    /// For how many days a certificate holds
    #[arg(long, default_value_t = DAYS)]
    pub days: u32,
}

/// A new certificate.
#[derive(Debug, Args)]
pub struct Issue {
    /// From whom.
    #[command(flatten)]
    pub from: From,
    /// What it is for
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub role: String,
    /// For whom
    #[arg(long)]
    pub name: String,
    /// By this name it is dialled (can be repeated)
    #[arg(long, value_name = "NAME")]
    pub dns: Vec<String>,
    /// By this address it is dialled (can be repeated)
    #[arg(long, value_name = "ADDRESS")]
    pub ip: Vec<IpAddr>,
    /// Write the two files here
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

impl Issue {
    /// Returns what it is for.
    ///
    /// # Errors
    ///
    /// When it is no role.
    pub fn role(&self) -> anyhow::Result<Role> {
        Ok(self.role.parse()?)
    }
}

/// Certificates to be made anew.
#[derive(Debug, Args)]
pub struct Renew {
    /// From whom.
    #[command(flatten)]
    pub from: From,
    /// The certificates
    #[arg(value_name = "FILE", required_unless_present = "all")]
    pub files: Vec<PathBuf>,
    /// All of the authority's directory
    #[arg(long, conflicts_with = "files")]
    pub all: bool,
}
