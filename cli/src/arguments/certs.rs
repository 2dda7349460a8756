//! The arguments of `berth certs`.

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
Each machine gets ca.pem and its own two files, and its programs are
configured with them: [tls] in their configuration, or --tls-ca, --tls-cert
and --tls-key. ca-key.pem stays where it is. The permissions of each role, and
the use of other certificates, are described in docs/security.md.")]
pub enum Certs {
    /// Create an authority in a new directory
    #[command(after_help = "\
Creates DIR/ca.pem, which goes to every machine, and DIR/ca-key.pem, which
signs certificates and should be on no machine of the cluster.")]
    Init(Init),
    /// Issue a certificate and its key
    #[command(after_help = "\
Creates DIR/ROLE-NAME.pem and DIR/ROLE-NAME-key.pem. The name identifies its
owner:
  agent            the host's name, as berth host list shows it
  conductor        the conductor's name, as berth cluster status shows it
  scheduler        any name, such as that of the machine
  operator         a person or a script with all permissions
  reader           a person or a script with read access
  csi-controller   a controller of volumes
Clients verify the DNS name or IP address of a server, which must be in its
certificate: --dns and --ip. Without either, the name itself is used as DNS
name. The names of PMEM-CSI are accepted too: --role csi-controller --name
pmem-registry, and --role agent --name pmem-node-controller with a --dns for
each of its hosts.")]
    Issue(Issue),
    /// Make the certificates of a host's libvirtd and QEMU
    #[command(after_help = "\
Creates a directory as /etc/pki of the host is to have it: CA, libvirt and
qemu. libvirtd uses its certificate where other hosts dial it (qemu+tls), QEMU
uses its own for the memory and the disks of guests that move. No program of
Berth accepts either. Use an authority of their own:
  berth certs init hypervisors
  berth certs hypervisor hypervisors --name m2 --dns m2
Before they expire, make new ones with --out in another directory, and replace
the files on the host.")]
    Hypervisor(Hypervisor),
    /// Renew certificates with new keys
    #[command(after_help = "\
Running programs reload renewed files within seconds. In the same directory,
one command is enough:
  berth certs renew certs certs/agent-host-1.pem
On other machines, copy both files over the old ones, in any order.")]
    Renew(Renew),
    /// Show the owners and the validity of certificates
    Show {
        /// Paths of certificates or directories with certificates
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
}

/// Arguments of `berth certs init`.
#[derive(Debug, Args)]
pub struct Init {
    /// Directory to create for the authority
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Name of the authority
    #[arg(long, default_value = "Berth authority")]
    pub name: String,
    /// Validity of the authority in days
    #[arg(long, default_value_t = AUTHORITY_DAYS)]
    pub days: u32,
}

/// The authority of a new certificate.
#[derive(Debug, Args)]
pub struct From {
    /// Directory of the authority
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// File with the authority's key (default: DIR/ca-key.pem)
    #[arg(long, value_name = "FILE")]
    pub ca_key: Option<PathBuf>,
    /// Validity of the certificate in days
    #[arg(long, default_value_t = DAYS)]
    pub days: u32,
}

/// Arguments of `berth certs issue`.
#[derive(Debug, Args)]
pub struct Issue {
    /// The authority.
    #[command(flatten)]
    pub from: From,
    /// Role of the certificate's owner
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub role: String,
    /// Name of the certificate's owner
    #[arg(long)]
    pub name: String,
    /// DNS name of the server (repeatable)
    #[arg(long, value_name = "NAME")]
    pub dns: Vec<String>,
    /// IP address of the server (repeatable)
    #[arg(long, value_name = "ADDRESS")]
    pub ip: Vec<IpAddr>,
    /// Directory for the two files (default: that of the authority)
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

impl Issue {
    /// Returns the role.
    ///
    /// # Errors
    ///
    /// When the role is unknown.
    pub fn role(&self) -> anyhow::Result<Role> {
        Ok(self.role.parse()?)
    }
}

/// Arguments of `berth certs hypervisor`.
#[derive(Debug, Args)]
pub struct Hypervisor {
    /// The authority.
    #[command(flatten)]
    pub from: From,
    /// Name of the host
    #[arg(long)]
    pub name: String,
    /// DNS name by which other hosts dial it (repeatable; default: its name)
    #[arg(long, value_name = "NAME")]
    pub dns: Vec<String>,
    /// IP address by which other hosts dial it (repeatable)
    #[arg(long, value_name = "ADDRESS")]
    pub ip: Vec<IpAddr>,
    /// Directory to create (default: DIR/hypervisor-NAME)
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Arguments of `berth certs renew`.
#[derive(Debug, Args)]
pub struct Renew {
    /// The authority.
    #[command(flatten)]
    pub from: From,
    /// Files of the certificates to renew
    #[arg(value_name = "FILE", required_unless_present = "all")]
    pub files: Vec<PathBuf>,
    /// Renew all certificates in the authority's directory
    #[arg(long, conflicts_with = "files")]
    pub all: bool,
}
