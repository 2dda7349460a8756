//! The command line. The help texts are here; each command is implemented in the noun's file.

use std::path::PathBuf;

use berth_domain::ownership::ProjectName;
use berth_domain::pci::PciMatch;
use berth_domain::vm::LabelSelector;
use berth_process::Encryption;
use berth_proto::convert::ownership::write_project;
use berth_scheduler::Profile;
use berth_scheduler::moment::Moment;
use berth_tls::Tls;
use clap::{Args, Parser, Subcommand};

pub use self::apply::Apply;
pub use self::audit::{Audit, AuditList};
pub use self::backup::{Backup, ClusterBackup, ClusterRecovery};
pub use self::certs::{
    Certs, From as CertsFrom, Hypervisor as CertsHypervisor, Init as CertsInit,
    Issue as CertsIssue, Renew as CertsRenew,
};
pub use self::completion::Completion;
pub use self::console::Console;
pub use self::cpu_model::{Cpu, CpuGroup};
pub use self::disk::{DiskArgument, suggested_format};
pub use self::escape_key::EscapeKey;
pub use self::explain::Explain;
pub use self::first_boot::FirstBoot;
pub use self::history::HistoryPart;
pub use self::host::{Host, HostCheck, HostPmem};
pub use self::image::{Image, ImageAdd, ImageFormat};
pub use self::log_level::{LogLevel, Programs};
pub use self::metadata::{MetadataOptions, NewMetadata};
pub use self::moves::{DrainOptions, HostMoves, Moves};
pub use self::network::{Network, NetworkCreate};
pub use self::output::OutputOptions;
pub use self::placement::{
    Candidates, Class, Group, GroupPolicy, Order, Provider, ProviderFilter, ProviderList, Trait,
};
pub use self::planner::{Balance, Capacity, Domain, Iallocator, Score, Text, Verify};
pub use self::policy::{Aggregate, AvailabilityZone, Policy, PolicyScope, ServerGroup};
pub use self::power::Power;
pub use self::replay::Replay;
pub use self::restart::Restart;
pub use self::selection::Selection;
pub use self::support::{Support, SupportBundle};
pub use self::top::Top;
pub use self::transfer::Transfer;
pub use self::volume::{Volume, VolumeCreate};
pub use self::watch::{Watch, WatchKind};
pub use self::web::Web;
use crate::output::Format;
pub use crate::placement::arguments::Placement;
use crate::usage::Usage;

mod apply;
mod audit;
mod backup;
mod certs;
mod completion;
mod console;
mod cpu_model;
mod disk;
mod escape_key;
mod explain;
mod first_boot;
mod help;
mod history;
mod host;
mod image;
mod log_level;
mod metadata;
mod moves;
pub(crate) mod names;
mod network;
mod output;
mod placement;
mod planner;
mod policy;
mod power;
mod replay;
mod restart;
mod selection;
mod size;
mod support;
mod top;
mod transfer;
mod volume;
mod watch;
mod web;

/// Manage virtual machines, placed down to the CPU and the memory page
#[derive(Debug, Parser)]
#[command(name = "berth", version, propagate_version = true)]
#[command(help_template = help::template(), subcommand_value_name = "COMMAND")]
#[command(after_help = "\
Details of a command:       berth help COMMAND
A first demonstration:      berth demo
A cluster to try out:       berth dev

Exit status: 0 success, 1 refused or failed, 2 wrong usage, 3 no server could
be reached, 4 a negative result: no candidates, two sides differ, a failure
would not be survived, a replay differs, `apply --dry-run` finds a difference,
or no leader answers `cluster status`.
Any other read that one scheduler answered from its own state is a success, and
standard error says so.

With -o json or yaml, a command that changed something and has no record to
show prints {\"name\", \"result\"}. A refusal or failure is one object, the last
line (or document) on standard error, behind the progress:
  {\"error\": {\"code\", \"reason\", \"message\", \"metadata\", \"hint\"}}
and that a read is stale is one too:
  {\"stale\": {\"address\", \"member_id\", \"revision\", \"age_ms\", \"leader_id\", …}}
as is that a backup is read:
  {\"backup\": {\"files\", \"cluster_id\", \"revision\", \"time_ms\"}}
or a support bundle:
  {\"bundle\": {\"file\", \"cluster_id\", \"created_ms\", \"revision\", …}}")]
pub struct Arguments {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
pub struct Global {
    /// Addresses of the schedulers, HOST or HOST:PORT; any of them leads to the leader
    #[arg(
        long,
        global = true,
        env = "BERTH_SCHEDULER",
        value_delimiter = ',',
        value_name = "ADDRESS",
        help_heading = help::GLOBAL
    )]
    #[arg(default_value = "127.0.0.1:7100")]
    pub scheduler: Vec<String>,
    /// File with the certificates of the trusted authorities
    ///
    /// With --tls-cert and --tls-key, every connection is encrypted and both ends authenticate.
    #[arg(
        long,
        global = true,
        env = "BERTH_TLS_CA",
        value_name = "FILE",
        help_heading = help::GLOBAL
    )]
    pub tls_ca: Option<PathBuf>,
    /// File with the client certificate
    #[arg(
        long,
        global = true,
        env = "BERTH_TLS_CERT",
        value_name = "FILE",
        help_heading = help::GLOBAL
    )]
    pub tls_cert: Option<PathBuf>,
    /// File with the private key of the client certificate
    #[arg(
        long,
        global = true,
        env = "BERTH_TLS_KEY",
        value_name = "FILE",
        help_heading = help::GLOBAL
    )]
    pub tls_key: Option<PathBuf>,
    /// Have one scheduler answer from its own state, with or without a leader
    ///
    /// The first scheduler that answers is read; standard error states its member, its revision and how
    /// old that may be. For commands that only read.
    #[arg(long, global = true, help_heading = help::GLOBAL)]
    pub stale: bool,
    /// File of a backup to read instead of the schedulers (repeatable)
    ///
    /// A full backup and its increments, in order. No scheduler is called; standard error states which
    /// state is shown. For commands that only read.
    #[arg(long, global = true, value_name = "FILE", help_heading = help::GLOBAL)]
    pub backup: Vec<PathBuf>,
    /// File of a support bundle to read instead of the schedulers
    ///
    /// No scheduler is called; standard error states what is shown. For commands that only read.
    #[arg(long, global = true, value_name = "FILE", help_heading = help::GLOBAL)]
    pub bundle: Option<PathBuf>,
    /// Revision, or time as 2026-11-27T18:42:31Z, to read the state of
    ///
    /// Of the files of --backup, or, for a revision, of a scheduler as far back as its log reaches.
    /// Standard error states which state is shown. For commands that only read.
    #[arg(long, global = true, value_name = "REVISION|TIME", help_heading = help::GLOBAL)]
    pub at: Option<Moment>,
    /// Options of the output.
    #[command(flatten)]
    pub output: OutputOptions,
}

impl Global {
    /// Returns the format of the output.
    #[must_use]
    pub fn format(&self) -> Format {
        self.output.output.format
    }

    /// Returns the revision at which schedulers are read, if one is named.
    #[must_use]
    pub fn revision(&self) -> Option<u64> {
        match self.at {
            Some(Moment::Revision(revision)) if !self.reads_files() => Some(revision),
            Some(Moment::Revision(_) | Moment::Time(..)) | None => None,
        }
    }

    /// Returns whether files are read instead of schedulers.
    #[must_use]
    pub fn reads_files(&self) -> bool {
        !self.backup.is_empty() || self.bundle.is_some()
    }

    /// Opens the certificates that were given; nothing if none were.
    ///
    /// # Errors
    ///
    /// They cannot be read, or some of the three files are missing.
    pub fn certificates(&self) -> anyhow::Result<Option<Tls>> {
        let encryption = Encryption {
            ca: self.tls_ca.clone(),
            cert: self.tls_cert.clone(),
            key: self.tls_key.clone(),
        };
        if encryption.is_configured() && encryption.files().is_none() {
            let message = "--tls-ca, --tls-cert and --tls-key go together: give all three";
            return Err(Usage(message.to_owned()).into());
        }
        Ok(encryption.files().map(Tls::open).transpose()?)
    }
}

/// The commands, one per noun.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show, cordon, drain, fence and remove hosts
    #[command(subcommand)]
    Host(Host),
    /// Create, show and delete flavors
    #[command(subcommand)]
    Flavor(Flavor),
    /// Create, show and delete aliases of PCI functions
    #[command(subcommand)]
    PciAlias(PciAlias),
    /// Add, copy, show and remove disk images
    #[command(subcommand)]
    Image(Image),
    /// Create, show and delete networks of VMs
    #[command(subcommand)]
    Network(Network),
    /// Create, move, show, stop and delete virtual machines
    #[command(subcommand)]
    Vm(Vm),
    /// Make the cluster have what files declare
    Apply(Apply),
    /// Show, watch and abort migrations
    #[command(subcommand)]
    Migration(Migration),
    /// Group hosts into aggregates and availability zones
    #[command(subcommand)]
    Aggregate(Aggregate),
    /// Show the availability zones
    #[command(subcommand)]
    AvailabilityZone(AvailabilityZone),
    /// Show what the CPUs of hosts have in common
    #[command(subcommand)]
    Cpu(Cpu),
    /// Create, show and delete affinity groups of VMs
    #[command(subcommand)]
    ServerGroup(ServerGroup),
    /// Show and change the scheduling policy
    #[command(subcommand)]
    Policy(Policy),
    /// Show, wait for and cancel operations
    #[command(subcommand)]
    Operation(Operation),
    /// Show, change and back up the cluster
    #[command(subcommand)]
    Cluster(Cluster),
    /// Show and verify backups offline
    #[command(subcommand)]
    Backup(Backup),
    /// Create, show and change resource providers
    #[command(subcommand)]
    Provider(Provider),
    /// Import from another OpenStack Placement
    #[command(subcommand)]
    Placement(Placement),
    /// Find allocation candidates, or explain why there are none
    Candidates(Box<Candidates>),
    /// Create, show and delete resource classes
    #[command(subcommand)]
    Class(Class),
    /// Create, show and delete traits
    #[command(subcommand)]
    Trait(Trait),
    /// Check offline whether guests fit on hosts
    Fit(Fit),
    /// Run a whole cluster with simulated hosts in this process
    Dev(Dev),
    /// Demonstrate a boot and a live migration step by step
    Demo(Demo),
    /// Find what is wrong, from the own options to the VMs
    #[command(after_help = "\
Checks in this order: the addresses and the certificate of this command, each
scheduler, all of them together (cluster, leader, members, quorum, clocks,
versions, backups), the conductors, the hosts, the VMs. Changes nothing.
`berth host check` has the agents check their hosts.

Exit status: 0 when no check failed, whatever is warned of, otherwise 1.")]
    Doctor,
    /// Explain the resources of the API and their fields
    Explain(Explain),
    /// Print a script that completes commands in a shell
    Completion(Completion),
    /// Follow changes of VMs, hosts, claims and operations
    Watch(Watch),
    /// Show the cluster on the whole screen as it changes
    Top(Top),
    /// Log a browser in to the page of the cluster
    #[command(subcommand)]
    Web(Web),
    /// Show the requests of users and their outcome
    #[command(subcommand)]
    Audit(Audit),
    /// Check that the failure of each host would be survived
    Verify(Verify),
    /// Rate the distribution of VMs over hosts
    Score(Score),
    /// Plan and run live migrations that balance the hosts
    Balance(Balance),
    /// Count how many more VMs of a flavor fit
    Capacity(Capacity),
    /// Replay recorded decisions under another policy or fleet
    Replay(Box<Replay>),
    /// Answer an allocation request of Ganeti
    Iallocator(Iallocator),
    /// Show and change the log levels of programs that run
    #[command(subcommand)]
    LogLevel(LogLevel),
    /// Collect what helps to find a fault
    #[command(subcommand)]
    Support(Support),
    /// Create, renew and show TLS certificates
    #[command(subcommand)]
    Certs(Certs),
    /// Create, show and delete volumes of persistent memory
    #[command(subcommand)]
    Volume(Volume),
}

/// Arguments of `berth fit`.
#[derive(Clone, Copy, Debug, Args)]
#[command(after_help = "\
Reads one case per line from standard input: a host and a guest. Writes one
response per line: the assignment of the guest, or why it does not fit. The
format is described in docs/fit.md.
Example:
  berth fit < cases.jsonl

Exit status: 0 when every line has a response, also where guests do not fit.")]
pub struct Fit {
    /// Rules by which cores are chosen for isolated threads
    #[arg(long, value_enum, default_value = "nova")]
    pub thread_rules: ThreadRules,
    /// Never assign memory of a NUMA node twice, except by the ratio
    #[arg(long)]
    pub exact_memory: bool,
}

/// Rules for isolated threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ThreadRules {
    /// The rules of OpenStack Nova
    Nova,
    /// Any free core that is dedicated as a whole
    Sensible,
}

/// Verbs of flavors.
#[derive(Debug, Subcommand)]
pub enum Flavor {
    /// Create a flavor
    #[command(after_help = "\
Example: two vCPUs with a host CPU each, in 2 MiB pages:
  berth flavor create pinned --vcpus 2 --memory-mib 512 \\
      --spec hw:cpu_policy=dedicated --spec hw:mem_page_size=2048

All extra specs are described in docs/flavors.md; the most used are
hw:numa_nodes, hw:cpu_policy, hw:mem_page_size, hw:cpu_thread_policy,
hw:emulator_threads_policy, trait:NAME")]
    Create {
        /// Name of the flavor
        flavor: String,
        /// Number of virtual CPUs
        #[arg(long)]
        vcpus: u32,
        /// Size of the memory: in MiB, or with a unit, as 2G
        #[arg(long, visible_alias = "memory", value_name = "MIB", value_parser = size::mib)]
        memory_mib: u64,
        /// Disk space that is counted on the host: in GiB, or with a unit, as 1T
        #[arg(
            long,
            visible_alias = "disk",
            value_name = "GIB",
            default_value = "0",
            value_parser = size::gib
        )]
        disk_gib: u64,
        /// Extra spec of the flavor (repeatable)
        #[arg(long = "spec", value_name = "KEY=VALUE", value_parser = key_value)]
        specs: Vec<(String, String)>,
        /// The project that it belongs to
        #[command(flatten)]
        project: InProject,
    },
    /// List all flavors
    #[command(after_help = "\
Flavors with dedicated CPUs:
  berth flavor list --filter 'extra_specs.\"hw:cpu_policy\" = dedicated'")]
    List(Selection),
    /// Show one flavor
    Show {
        /// Name of the flavor
        flavor: String,
    },
    /// Delete a flavor; its VMs keep their copy
    Delete {
        /// Name of the flavor
        flavor: String,
    },
}

/// Verbs of PCI aliases.
#[derive(Debug, Subcommand)]
pub enum PciAlias {
    /// Create a PCI alias, which cannot be changed afterwards
    #[command(after_help = "\
Example: a virtual function of either of two cards, on the socket of the guest:
  berth pci-alias create nic --policy socket \\
      --match vendor_id=8086,product_id=154c,kind=vf \\
      --match vendor_id=15b3,product_id=101e,kind=vf
  berth flavor create fast --vcpus 4 --memory-mib 1024 \\
      --spec pci_passthrough:alias=nic:1

Keys of a match: vendor_id and product_id (four hexadecimal digits), kind
(pci, vf or pf), physical_network, live_migratable (yes or no), tag:NAME. All
given keys must match. A flavor or image with hw:pci_numa_affinity_policy
overrides --policy. The agent's configuration defines which functions a host
offers: see docs/pci.md.")]
    Create {
        /// Name of the alias
        alias: String,
        /// Properties of a matching function (repeatable; any one match is enough)
        #[arg(long = "match", value_name = "KEY=VALUE,…", required = true)]
        #[arg(value_parser = crate::pci_match::parse_match)]
        any_of: Vec<PciMatch>,
        /// Required distance from the NUMA nodes of the guest
        #[arg(long, value_enum)]
        policy: Option<PciPolicy>,
    },
    /// List all PCI aliases
    List,
    /// Show one PCI alias
    Show {
        /// Name of the alias
        alias: String,
    },
    /// Delete a PCI alias; its VMs keep their functions
    Delete {
        /// Name of the alias
        alias: String,
    },
}

/// The NUMA affinity of a PCI function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PciPolicy {
    /// On a NUMA node of the guest
    Required,
    /// On a NUMA node of the guest if possible, else anywhere
    Preferred,
    /// On a NUMA node of the guest, or one without a known node (the default)
    Legacy,
    /// On a socket of the guest's NUMA nodes
    Socket,
}

/// Verbs of VMs.
#[derive(Debug, Subcommand)]
pub enum Vm {
    /// Create and boot a VM
    #[command(after_help = "\
From a kernel in the hosts' image directory:
  berth vm create db --flavor pinned --kernel vmlinuz --initrd initrd.gz
From a disk image, on a bridge:
  berth vm create web --flavor small --disk debian.qcow2:4 \\
      --nic br0=52:54:00:00:00:01")]
    Create(Box<VmCreate>),
    /// List virtual machines
    #[command(after_help = "\
VMs in production with more than 8 vCPUs:
  berth vm list --filter 'labels.env = prod AND spec.flavor.vcpus > 8'")]
    List {
        /// Only the VMs on this host
        #[arg(long)]
        host: Option<String>,
        /// Only the VMs of this project
        #[arg(long)]
        project: Option<ProjectName>,
        /// Only the VMs with this label, of any value or of the given one (repeatable: with all of them)
        #[arg(long = "label", value_name = "KEY[=VALUE]")]
        labels: Vec<LabelSelector>,
        /// The entries that are shown
        #[command(flatten)]
        selection: Selection,
    },
    /// Show a VM and the NUMA nodes, CPUs and pages it uses
    Show {
        /// Name of the VM
        vm: String,
    },
    /// Show what became of a VM, by which commands, and who requested them
    ///
    /// It goes as far back as the log of the scheduler that answers: to the older of its two
    /// checkpoints. For each choice of a host it shows the next best ones. VMs that had this name
    /// before are part of it.
    History {
        /// Name of the VM
        vm: String,
        /// Which part of it is shown
        #[command(flatten)]
        part: HistoryPart,
    },
    /// Move a VM to another host, live unless --cold is given
    Migrate {
        /// Name of the VM
        vm: String,
        /// Name of the destination host (default: the best one)
        #[arg(long)]
        host: Option<String>,
        /// Stop the VM, move it with its disks, and start it if it ran
        #[arg(long)]
        cold: bool,
        /// Keep the source until `berth vm confirm-resize` or `revert-resize`
        #[arg(long, requires = "cold")]
        verify: bool,
        /// Only show the host and the resources that would be chosen
        #[arg(long, visible_alias = "dry-run", conflicts_with_all = ["no_wait", "request_id"])]
        validate_only: bool,
        /// Options of the transfer
        #[command(flatten)]
        transfer: Transfer,
        /// Options of the operation
        #[command(flatten)]
        run: Run,
    },
    /// Verbs that leave it on its host
    #[command(flatten)]
    Power(Power),
    /// Verbs that move it while it is stopped
    #[command(flatten)]
    Moves(Moves),
    /// Set when a VM is started again by itself
    ///
    /// What is not given stays as it is; a new VM has leave, leave, priority 50 and 3 restarts within an
    /// hour. A guest that shuts itself down stays off. On another host a VM is started only once its own is
    /// proven dead (`berth host fence`, or the policy host.self_fence_ms). When its restarts within an
    /// hour are used up, it is left STOPPED.
    #[command(after_help = "\
  berth vm set-restart db --on-crash restart --restart-priority 90
  berth vm set-restart web --on-host-failure restart
`berth vm show` shows the policy, and why the VM cannot be started elsewhere.")]
    SetRestart {
        /// Name of the VM
        vm: String,
        /// When it is started again
        #[command(flatten)]
        restart: Restart,
    },
    /// Set the labels, the description and the protection of VMs
    ///
    /// What is not given stays as it is, other labels too. It is possible while an operation works on a VM.
    /// A VM that is protected can neither be deleted nor rebuilt; everything else is done to it as ever.
    #[command(after_help = "\
  berth vm set db web --label team=blue --label example.com/tier=1
  berth vm set db --remove-label team --description \"orders, primary\"
  berth vm set db --protect
`berth vm list --label team=blue` lists the VMs with a label.")]
    Set {
        /// Names of the VMs
        #[arg(value_name = "VM", required = true)]
        vms: Vec<String>,
        /// What changes
        #[command(flatten)]
        metadata: MetadataOptions,
        /// Idempotency key: a repeated request changes nothing again
        #[arg(long, value_name = "UUID")]
        request_id: Option<uuid::Uuid>,
    },
    /// Stop VMs and delete them with their disks
    ///
    /// A VM that is protected is not deleted: `berth vm set --unprotect` lifts the protection.
    Delete {
        /// Names of the VMs
        #[arg(value_name = "VM", required = true)]
        vms: Vec<String>,
        /// Options of the operation
        #[command(flatten)]
        run: Run,
    },
    /// Print the output of a guest's serial console, or type on it
    Console(Console),
}

/// Arguments of `berth vm create`.
#[derive(Debug, Args)]
pub struct VmCreate {
    /// Name of the VM
    pub vm: String,
    /// Name of the flavor
    #[arg(long)]
    pub flavor: String,
    /// Kernel to boot: an image, or a file in the hosts' image directory
    #[arg(long)]
    pub kernel: Option<String>,
    /// Initial RAM disk, if the kernel needs one: an image, or a file in the hosts' image directory
    #[arg(long, requires = "kernel")]
    pub initrd: Option<String>,
    /// Command line of the kernel
    #[arg(long, default_value = "console=ttyS0", requires = "kernel")]
    pub cmdline: String,
    /// Disk from an image or a file in the hosts' image directory, its size, and the format (repeatable)
    ///
    /// The default format is that of the image. For a file of the hosts it is qcow2 if its name ends with
    /// .qcow2, else raw. A host refuses a file that has another one.
    #[arg(long = "disk", value_name = "IMAGE:GIB[:qcow2|raw]", value_parser = disk::read)]
    pub disks: Vec<DiskArgument>,
    /// Network interface on a bridge of the host (repeatable)
    #[arg(long = "nic", value_name = "BRIDGE=MAC", value_parser = key_value)]
    pub nics: Vec<(String, String)>,
    /// Network interface on a network of the cluster, after those of --nic (repeatable)
    ///
    /// Without a MAC address one is chosen.
    #[arg(long = "network", value_name = "NETWORK[=MAC]")]
    pub networks: Vec<String>,
    /// Property of the image, such as hw_cpu_policy=dedicated (repeatable)
    #[arg(long = "image-property", value_name = "KEY=VALUE", value_parser = key_value)]
    pub image_properties: Vec<(String, String)>,
    /// Server group that the VM joins
    #[arg(long, value_name = "GROUP")]
    pub server_group: Option<String>,
    /// Availability zone that the VM stays in
    #[arg(long, value_name = "ZONE")]
    pub availability_zone: Option<String>,
    /// Volume to attach by name or id, as a disk or nvdimm; ro is read-only (repeatable)
    #[arg(long = "volume", value_name = "VOLUME[:disk|nvdimm[:ro]]", value_parser = crate::volume_argument::attachment)]
    pub volumes: Vec<crate::volume_argument::VolumeArgument>,
    /// Name of the host to run on (default: the best one)
    #[arg(long)]
    pub host: Option<String>,
    /// Only show the host and the resources that would be chosen
    #[arg(long, visible_alias = "dry-run", conflicts_with_all = ["no_wait", "request_id"])]
    pub validate_only: bool,
    /// The project that it belongs to
    #[command(flatten)]
    pub project: InProject,
    /// What is written on it
    #[command(flatten)]
    pub metadata: NewMetadata,
    /// What the guest is given for its first boot
    #[command(flatten)]
    pub first_boot: FirstBoot,
    /// When it is started again by itself
    #[command(flatten)]
    pub restart: Restart,
    /// Options of the operation
    #[command(flatten)]
    pub run: Run,
}

/// Option of what is created.
#[derive(Clone, Debug, Default, Args)]
pub struct InProject {
    /// Project that it belongs to: a-z, 0-9 and '-' [default: default]
    #[arg(long, env = "BERTH_PROJECT", value_name = "PROJECT")]
    pub project: Option<ProjectName>,
}

impl InProject {
    /// Returns it as it is requested.
    #[must_use]
    pub fn to_wire(&self) -> String {
        write_project(self.project.as_ref())
    }
}

/// Options of a long operation.
#[derive(Debug, Args)]
pub struct Run {
    /// Return at once and print the operation's id
    #[arg(long)]
    pub no_wait: bool,
    /// Idempotency key: a repeated request returns the first response
    #[arg(long, value_name = "UUID")]
    pub request_id: Option<uuid::Uuid>,
}

/// Verbs of migrations.
#[derive(Debug, Subcommand)]
pub enum Migration {
    /// List migrations, the latest last
    #[command(after_help = "\
The last ten that failed and left a host:
  berth migration list --filter 'state = FAILED AND source = h1' --limit 10")]
    List {
        /// Only the migrations of this VM
        #[arg(long)]
        vm: Option<String>,
        /// The entries that are shown
        #[command(flatten)]
        selection: Selection,
    },
    /// Show a migration with its CPU pins before and after
    Show {
        /// Id of the migration, or name of a VM for its latest one
        migration: String,
    },
    /// Watch a migration until it ends
    Watch {
        /// Id of the migration, or name of a VM for its latest one
        migration: String,
    },
    /// Abort a migration, also during the transfer
    Abort {
        /// Id of the migration, or name of a VM for its latest one
        migration: String,
    },
    /// Complete a migration soon, by post-copy or by pausing the guest
    ForceComplete {
        /// Id of the migration, or name of a VM for its latest one
        migration: String,
    },
}

/// Verbs of operations.
#[derive(Debug, Subcommand)]
pub enum Operation {
    /// List long-running operations
    #[command(after_help = "\
Boots that failed for the lack of capacity:
  berth operation list --filter 'boot:* AND failed.reason = NO_VALID_HOST'")]
    List {
        /// Only the operations that are still running
        #[arg(long)]
        running: bool,
        /// The entries that are shown
        #[command(flatten)]
        selection: Selection,
    },
    /// Show an operation with the log of its steps, and those that are ahead
    Show {
        /// Id of the operation
        operation: String,
    },
    /// Wait for the end of an operation and print its steps
    Wait {
        /// Id of the operation
        operation: String,
    },
    /// Cancel an operation
    ///
    /// What it has done is undone, until the guest starts to move; a transfer in progress is stopped if
    /// the hypervisors can still stop it. A drain begins no more moves: those in progress go on, and
    /// then the host is uncordoned if this drain has cordoned it. An operation that has ended stays as
    /// it is, and the command fails.
    Cancel {
        /// Id of the operation
        operation: String,
    },
}

/// Verbs of the cluster of schedulers.
#[derive(Debug, Subcommand)]
pub enum Cluster {
    /// Show the members, their progress, the leader and the conductors
    #[command(after_help = "\
Exit status: 0 when a leader answers, 4 when none does. What is known without
one is shown all the same. 3 when no scheduler is reached.")]
    Status,
    /// Show what the answering member retains in memory, and how much that may become
    Memory,
    /// Back up the replicated state into a file
    Backup(ClusterBackup),
    /// Show and end the recovery of a cluster that was restored
    #[command(subcommand)]
    Recovery(ClusterRecovery),
    /// Remove a member for good; its data directory cannot rejoin
    RemoveMember {
        /// Number of the member
        member: u64,
    },
    /// Record where a member is reached that does not run
    ///
    /// A member that starts at another address is recorded there by itself, within seconds. This is for
    /// one that cannot reach the others to say where it is.
    UpdateMember {
        /// Number of the member
        member: u64,
        /// Where the others reach it
        #[arg(long, value_name = "HOST:PORT")]
        address: String,
    },
    /// Transfer leadership to another member
    TransferLeader {
        /// Number of the member
        member: u64,
    },
    /// List the registered conductors with their service versions
    Services,
    /// Remove a conductor that is gone
    RemoveConductor {
        /// Name of the conductor
        conductor: String,
    },
    /// Replace the key with which grants to conductors are signed
    RotateGrantKey,
    /// Revoke a certificate, as that of a host that was stolen
    #[command(after_help = "\
No program of the cluster accepts the certificate any more, and each closes the
open connections of its bearer: schedulers within a second, conductors, agents
and controllers within ten. The permissions of other certificates with the same
name stay: issue a new one with berth certs issue or renew.")]
    RevokeCertificate {
        /// File of the certificate, or its SHA-256 as berth certs show --format json shows it
        certificate: String,
        /// Reason, for the list
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// End the revocation of a certificate
    ReinstateCertificate {
        /// File of the certificate, or its SHA-256
        certificate: String,
    },
    /// List the revoked certificates
    RevokedCertificates,
    /// Show the versions of all programs and finalize an upgrade
    #[command(subcommand)]
    Upgrade(Upgrade),
}

/// Verbs of upgrades.
#[derive(Debug, Subcommand)]
pub enum Upgrade {
    /// Show the cluster version and the programs that are behind
    Status,
    /// Raise the cluster version; older programs cannot return afterwards
    Finalize {
        /// Cluster version to raise to (default: the leader's)
        #[arg(long, value_name = "VERSION")]
        to: Option<u32>,
        /// Older conductor that is gone and is removed (repeatable)
        #[arg(long, value_name = "CONDUCTOR")]
        gone: Vec<String>,
        /// Only check whether it would succeed
        #[arg(long)]
        validate_only: bool,
    },
}

/// Arguments of `berth dev`.
#[derive(Debug, Args)]
pub struct Dev {
    /// Number of schedulers to run
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=5))]
    pub schedulers: u8,
    /// Number of simulated hosts to run
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(0..=64))]
    pub hosts: u16,
    /// Port of the first scheduler; the other programs use the following ones
    /// [default: 7100, or any free ones with --ephemeral]
    #[arg(long)]
    pub port: Option<u16>,
    /// Directory for the data (default: a temporary one)
    #[arg(long)]
    pub data_dir: Option<PathBuf>,
    /// Run one scheduler with its data in memory, and a conductor only if there are hosts
    #[arg(long, conflicts_with_all = ["data_dir", "schedulers"])]
    pub ephemeral: bool,
    /// Address on which the first scheduler serves the page of the cluster
    #[arg(long, value_name = "HOST:PORT")]
    pub page_listen: Option<String>,
    /// Address on which the first scheduler serves OpenStack Placement's REST API
    #[arg(long, value_name = "HOST:PORT")]
    pub placement_listen: Option<String>,
    /// Policy profile that authorizes callers of the REST API
    #[arg(
        long,
        value_name = "PROFILE",
        value_enum,
        requires = "placement_listen"
    )]
    pub placement_profile: Option<Profile>,
    /// File with the tokens of the REST API's callers (default: no authentication)
    #[arg(long, value_name = "FILE", requires = "placement_listen")]
    pub placement_tokens: Option<PathBuf>,
}

/// Arguments of `berth demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// Keep the cluster running afterwards until Ctrl-C
    #[arg(long)]
    pub keep: bool,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    if key.is_empty() {
        return Err("the part before '=' is empty".to_owned());
    }
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_arguments_are_well_formed() {
        Arguments::command().debug_assert();
    }
}
