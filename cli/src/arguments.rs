//! What can be typed. The help texts here teach the command; what they do is in the noun's file.

use std::path::PathBuf;

use berth_domain::pci::PciMatch;
use berth_process::Encryption;
use berth_scheduler::Profile;
use berth_tls::Tls;
use clap::{Args, Parser, Subcommand};

pub use self::audit::{Audit, AuditList};
pub use self::certs::{
    Certs, From as CertsFrom, Init as CertsInit, Issue as CertsIssue, Renew as CertsRenew,
};
pub use self::moves::{DrainHow, HostMoves, Moves};
pub use self::placement::{
    Candidates, Class, Group, GroupPolicy, Order, Provider, ProviderList, Qualities, Trait,
};
pub use self::planner::{Balance, Capacity, Domain, Iallocator, Score, Text, Verify};
pub use self::policy::{Aggregate, AvailabilityZone, Policy, PolicyScope, ServerGroup};
pub use self::power::Power;
pub use self::transfer::Transfer;
pub use self::volume::{Volume, VolumeCreate};
pub use self::watch::{Watch, WatchKind};
use crate::output::Format;
pub use crate::placement::arguments::Placement;

mod audit;
mod certs;
mod moves;
mod placement;
mod planner;
mod policy;
mod power;
mod transfer;
mod volume;
mod watch;

/// Places and moves virtual machines, down to the CPU and the memory page.
#[derive(Debug, Parser)]
#[command(name = "berth", version, propagate_version = true)]
#[command(after_help = "\
Try it without any host:    berth demo
Keep a cluster to play:     berth dev
Exit status: 0 done, 1 refused or failed, 2 wrong usage, 3 nobody answered,
4 the answer is no: there are no candidates, two sides differ, or a failure would not be
survived.
With --output json, what is refused or fails is one JSON object on standard error:
  {\"error\": {\"code\", \"reason\", \"message\", \"metadata\", \"hint\"}}")]
pub struct Arguments {
    /// What holds for every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What holds for every command.
#[derive(Debug, Args)]
pub struct Global {
    /// Ask these schedulers; any one that answers leads to the leader
    #[arg(
        long,
        global = true,
        env = "BERTH_SCHEDULER",
        value_delimiter = ',',
        value_name = "ADDRESS"
    )]
    #[arg(default_value = "127.0.0.1:7100")]
    pub scheduler: Vec<String>,
    /// Trust the authorities in this file
    ///
    /// With --tls-cert and --tls-key, every connection is encrypted and both ends show who they are.
    #[arg(
        long,
        global = true,
        env = "BERTH_TLS_CA",
        value_name = "FILE",
        help_heading = "Certificates"
    )]
    pub tls_ca: Option<PathBuf>,
    /// Show this certificate
    #[arg(
        long,
        global = true,
        env = "BERTH_TLS_CERT",
        value_name = "FILE",
        help_heading = "Certificates"
    )]
    pub tls_cert: Option<PathBuf>,
    /// This is its key
    #[arg(
        long,
        global = true,
        env = "BERTH_TLS_KEY",
        value_name = "FILE",
        help_heading = "Certificates"
    )]
    pub tls_key: Option<PathBuf>,
    /// Print tables for people or JSON for programs
    #[arg(long, short, global = true, value_enum, default_value = "table")]
    pub output: Format,
}

impl Global {
    /// Opens the certificates that were given; nothing if none were.
    ///
    /// # Errors
    ///
    /// What is wrong with them.
    pub fn certificates(&self) -> anyhow::Result<Option<Tls>> {
        let encryption = Encryption {
            ca: self.tls_ca.clone(),
            cert: self.tls_cert.clone(),
            key: self.tls_key.clone(),
        };
        if encryption.is_told() && encryption.files().is_none() {
            anyhow::bail!("--tls-ca, --tls-cert and --tls-key go together: give all three");
        }
        Ok(encryption.files().map(Tls::open).transpose()?)
    }
}

/// The nouns.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Look at hosts and keep guests off them
    #[command(subcommand)]
    Host(Host),
    /// Make and look at flavors: the sizes and wishes of guests
    #[command(subcommand)]
    Flavor(Flavor),
    /// Make and look at PCI aliases: names for PCI functions that flavors ask for
    #[command(subcommand)]
    PciAlias(PciAlias),
    /// Boot, move, look at and delete virtual machines
    #[command(subcommand)]
    Vm(Vm),
    /// Look at migrations
    #[command(subcommand)]
    Migration(Migration),
    /// Say what hosts have in common: zones, and what flavors ask for
    #[command(subcommand)]
    Aggregate(Aggregate),
    /// Look at the availability zones
    #[command(subcommand)]
    AvailabilityZone(AvailabilityZone),
    /// Keep VMs together, or apart
    #[command(subcommand)]
    ServerGroup(ServerGroup),
    /// Look at what is preferred when a guest could go to several hosts, and change it
    #[command(subcommand)]
    Policy(Policy),
    /// Look at long operations, wait for them, cancel them
    #[command(subcommand)]
    Operation(Operation),
    /// Look at the schedulers and change who belongs to them
    #[command(subcommand)]
    Cluster(Cluster),
    /// Make and look at resource providers
    #[command(subcommand)]
    Provider(Provider),
    /// Take over what another OpenStack Placement holds, and compare both
    #[command(subcommand)]
    Placement(Placement),
    /// Find allocation candidates: ways to take resources from providers, or why there is none
    Candidates(Box<Candidates>),
    /// Make and look at the resource classes that providers may have
    #[command(subcommand)]
    Class(Class),
    /// Make and look at the traits that providers may have
    #[command(subcommand)]
    Trait(Trait),
    /// Say whether guests would fit on hosts, from JSON lines, without any cluster
    Fit(Fit),
    /// Run three schedulers, a conductor and simulated hosts in this process, on loopback
    Dev(Dev),
    /// Run the same, and tell the story of a boot and a live migration, checking every step
    Demo(Demo),
    /// Follow what happens to VMs, migrations, hosts, claims and operations
    Watch(Watch),
    /// Look at who asked for what, when, and what was decided
    #[command(subcommand)]
    Audit(Audit),
    /// Say whether the failure of each host would be survived, and whether memory is overcommitted
    Verify(Verify),
    /// Say how well VMs are distributed, in one number
    Score(Score),
    /// Plan moves that distribute VMs better or make room, and carry them out
    Balance(Balance),
    /// Say how many more VMs of a flavor fit, now and after a failure
    Capacity(Capacity),
    /// Answer a request of Ganeti's IAllocator protocol, without any cluster
    Iallocator(Iallocator),
    /// Make the certificates by which the parts of a cluster know each other
    #[command(subcommand)]
    Certs(Certs),
    /// Make, look at and delete volumes of persistent memory
    #[command(subcommand)]
    Volume(Volume),
}

/// Would it fit?
#[derive(Clone, Copy, Debug, Args)]
#[command(after_help = "\
Reads one case per line from standard input: a host and a guest. Writes one answer per line,
which says where the guest would go, or why it does not fit. The format is in docs/fit.md.
Example:
  berth fit < cases.jsonl

Exit status: 0 when all lines were answered, also where guests do not fit.")]
pub struct Fit {
    /// Choose the cores for isolated threads by these rules
    #[arg(long, value_enum, default_value = "nova")]
    pub thread_rules: ThreadRules,
    /// Promise no memory of a cell twice, other than by the ratio
    #[arg(long)]
    pub exact_memory: bool,
}

/// Rules for isolated threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ThreadRules {
    /// Those of OpenStack Nova
    Nova,
    /// Any core may hold one that is dedicated as a whole and free
    Sensible,
}

/// Verbs of hosts.
#[derive(Debug, Subcommand)]
pub enum Host {
    /// List hosts with what is free
    List {
        /// Show what was measured of their memory instead
        #[arg(long)]
        memory: bool,
    },
    /// Show one host: its cells, sockets, and which CPU is whose
    Show {
        /// The host
        host: String,
    },
    /// Place nothing new on a host; what runs there goes on
    Cordon {
        /// The host
        host: String,
    },
    /// Place guests on a host again
    Uncordon {
        /// The host
        host: String,
    },
    /// What moves its VMs away
    #[command(flatten)]
    Moves(HostMoves),
    /// Prove that a host is off, so that its guests can be started elsewhere
    ///
    /// Runs the fence command of the conductor. Nothing is placed on the host until its agent is
    /// back and none of the guests that it lost runs there.
    Fence {
        /// The host
        host: String,
        /// Do nothing, but take my word that it is off: I have seen it
        #[arg(long)]
        confirm_off: bool,
    },
    /// Forget a host that holds nothing
    Remove {
        /// The host
        host: String,
    },
    /// Look after a host's persistent memory
    #[command(subcommand)]
    Pmem(HostPmem),
}

/// Verbs of a host's persistent memory.
#[derive(Debug, Subcommand)]
pub enum HostPmem {
    /// Say that a namespace is lost for good, while a claim has it
    ///
    /// Its agent then starts without it, and the host can be removed. Should the namespace come back,
    /// it is erased before anybody is given it.
    WriteOff {
        /// The host
        host: String,
        /// The name of the namespace
        namespace: String,
    },
}

/// Verbs of flavors.
#[derive(Debug, Subcommand)]
pub enum Flavor {
    /// Make a flavor
    #[command(after_help = "\
Example: two vCPUs with a host CPU each, in 2 MiB pages:
  berth flavor create pinned --vcpus 2 --memory-mib 512 \\
      --spec hw:cpu_policy=dedicated --spec hw:mem_page_size=2048

All specs with their values are in docs/flavors.md; the most used are
hw:numa_nodes, hw:cpu_policy, hw:mem_page_size, hw:cpu_thread_policy,
hw:emulator_threads_policy, trait:NAME")]
    Create {
        /// The flavor's name
        flavor: String,
        /// How many virtual CPUs
        #[arg(long)]
        vcpus: u32,
        /// How much memory, in MiB
        #[arg(long)]
        memory_mib: u64,
        /// How much disk space to count, in GiB
        #[arg(long, default_value_t = 0)]
        disk_gib: u64,
        /// Add a wish (can be repeated)
        #[arg(long = "spec", value_name = "KEY=VALUE", value_parser = key_value)]
        specs: Vec<(String, String)>,
    },
    /// List flavors
    List,
    /// Show one flavor
    Show {
        /// The flavor
        flavor: String,
    },
    /// Delete a flavor; VMs made from it keep theirs
    Delete {
        /// The flavor
        flavor: String,
    },
}

/// Verbs of PCI aliases.
#[derive(Debug, Subcommand)]
pub enum PciAlias {
    /// Make a PCI alias; it never changes
    #[command(after_help = "\
Example: a virtual function of two kinds of cards, on the socket of the guest:
  berth pci-alias create nic --policy socket \\
      --match vendor_id=8086,product_id=154c,kind=vf \\
      --match vendor_id=15b3,product_id=101e,kind=vf
  berth flavor create fast --vcpus 4 --memory-mib 1024 --spec pci_passthrough:alias=nic:1

Keys of a match: vendor_id and product_id (four hexadecimal digits), kind (pci, vf or pf),
physical_network, live_migratable (yes or no), tag:NAME. All that are given must be so.
A flavor or image that says hw:pci_numa_affinity_policy overrides --policy.
Which functions a host offers is said in its agent's configuration: see docs/pci.md.")]
    Create {
        /// The alias's name
        alias: String,
        /// What a function must be like (can be repeated: one of them is enough)
        #[arg(long = "match", value_name = "KEY=VALUE,…", required = true)]
        #[arg(value_parser = crate::pci_alias::parse_match)]
        any_of: Vec<PciMatch>,
        /// How near it must be to the host cells that the guest sits on
        #[arg(long, value_enum)]
        policy: Option<PciPolicy>,
    },
    /// List PCI aliases
    List,
    /// Show one PCI alias
    Show {
        /// The alias
        alias: String,
    },
    /// Delete a PCI alias; VMs made with it keep their functions
    Delete {
        /// The alias
        alias: String,
    },
}

/// How near a PCI function must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PciPolicy {
    /// On one of the guest's host cells
    Required,
    /// There, or anywhere if there is none
    Preferred,
    /// There, or where its cell is not known (the default)
    Legacy,
    /// On the socket of one of them
    Socket,
}

/// Verbs of VMs.
#[derive(Debug, Subcommand)]
pub enum Vm {
    /// Boot a VM
    #[command(after_help = "\
From a kernel in the hosts' image directory:
  berth vm create db --flavor pinned --kernel vmlinuz --initrd initrd.gz
From a disk image, on a bridge:
  berth vm create web --flavor small --disk debian.qcow2:4 --nic br0=52:54:00:00:00:01")]
    Create(Box<VmCreate>),
    /// List VMs
    List {
        /// Only those on this host
        #[arg(long)]
        host: Option<String>,
    },
    /// Show one VM and where its cells sit
    Show {
        /// The VM
        vm: String,
    },
    /// Move a VM to another host, while it runs unless --cold is given
    Migrate {
        /// The VM
        vm: String,
        /// Move it to this host rather than to the best
        #[arg(long)]
        host: Option<String>,
        /// Stop it for the move, take its disks along, and start it there if it ran
        #[arg(long)]
        cold: bool,
        /// With --cold: keep what it had until `berth vm confirm-resize` or `revert-resize`
        #[arg(long, requires = "cold")]
        verify: bool,
        /// Only say where it would go, and what it would get there, or why it would not
        #[arg(long, visible_alias = "dry-run", conflicts_with_all = ["no_wait", "request_id"])]
        validate_only: bool,
        /// How to send it
        #[command(flatten)]
        transfer: Transfer,
        /// How to go about it
        #[command(flatten)]
        run: Run,
    },
    /// What is done to it where it is
    #[command(flatten)]
    Power(Power),
    /// What moves it while it does not run
    #[command(flatten)]
    Moves(Moves),
    /// Stop a VM and take it away, with its disks
    Delete {
        /// The VM
        vm: String,
        /// How to go about it
        #[command(flatten)]
        run: Run,
    },
    /// Print what the guest has written to its serial console
    Console {
        /// The VM
        vm: String,
        /// Go on printing
        #[arg(long, short)]
        follow: bool,
    },
}

/// What a new VM is.
#[derive(Debug, Args)]
pub struct VmCreate {
    /// The VM's name
    pub vm: String,
    /// The flavor
    #[arg(long)]
    pub flavor: String,
    /// Boot this kernel, a file in the hosts' image directory
    #[arg(long, requires = "initrd")]
    pub kernel: Option<String>,
    /// With this initial RAM disk
    #[arg(long, requires = "kernel")]
    pub initrd: Option<String>,
    /// And this command line
    #[arg(long, default_value = "console=ttyS0", requires = "kernel")]
    pub cmdline: String,
    /// Attach a disk: an image in the hosts' image directory and its size (can be repeated)
    #[arg(long = "disk", value_name = "IMAGE:GIB", value_parser = disk)]
    pub disks: Vec<(String, u64)>,
    /// Plug a network interface into a bridge of the host (can be repeated)
    #[arg(long = "nic", value_name = "BRIDGE=MAC", value_parser = key_value)]
    pub nics: Vec<(String, String)>,
    /// Tell a property of the image, as hw_cpu_policy=dedicated (can be repeated)
    #[arg(long = "image-property", value_name = "KEY=VALUE", value_parser = key_value)]
    pub image_properties: Vec<(String, String)>,
    /// Let it join this server group
    #[arg(long, value_name = "GROUP")]
    pub server_group: Option<String>,
    /// Keep it in this availability zone
    #[arg(long, value_name = "ZONE")]
    pub availability_zone: Option<String>,
    /// Attach a volume, by its name or its id, as a disk or as an nvdimm; ro: read-only (can be repeated)
    #[arg(long = "volume", value_name = "VOLUME[:disk|nvdimm[:ro]]", value_parser = crate::vm::attachment)]
    pub volumes: Vec<crate::vm::Wanted>,
    /// Put it on this host rather than on the best
    #[arg(long)]
    pub host: Option<String>,
    /// Only say where it would go, and what it would get there, or why it would not
    #[arg(long, visible_alias = "dry-run", conflicts_with_all = ["no_wait", "request_id"])]
    pub validate_only: bool,
    /// How to go about it
    #[command(flatten)]
    pub run: Run,
}

/// How to go about something long.
#[derive(Debug, Args)]
pub struct Run {
    /// Return at once with the operation's name
    #[arg(long)]
    pub no_wait: bool,
    /// Recognise this request when it is repeated: the first answer is given again
    #[arg(long, value_name = "UUID")]
    pub request_id: Option<uuid::Uuid>,
}

/// Verbs of migrations.
#[derive(Debug, Subcommand)]
pub enum Migration {
    /// List migrations, the latest last
    List {
        /// Only those of this VM
        #[arg(long)]
        vm: Option<String>,
    },
    /// Show one migration with the pins before and after
    Show {
        /// The migration's id
        migration: String,
    },
    /// Watch one migration until it has ended
    Watch {
        /// The migration's id
        migration: String,
    },
    /// Give a migration up, also while the guest is being sent
    Abort {
        /// The migration's id
        migration: String,
    },
    /// Have a migration end soon, by post-copy or with the guest standing still
    ForceComplete {
        /// The migration's id
        migration: String,
    },
}

/// Verbs of operations.
#[derive(Debug, Subcommand)]
pub enum Operation {
    /// List operations
    List {
        /// Only those that still run
        #[arg(long)]
        running: bool,
    },
    /// Show one operation with the log of its steps
    Show {
        /// The operation's id
        operation: String,
    },
    /// Wait for the end of one and show its steps as they happen
    Wait {
        /// The operation's id
        operation: String,
    },
    /// Give one up; heeded until the guest begins to move
    Cancel {
        /// The operation's id
        operation: String,
    },
}

/// Verbs of the cluster of schedulers.
#[derive(Debug, Subcommand)]
pub enum Cluster {
    /// Show members, leader, how far each is, and the services that registered
    Status,
    /// Take a member out for good; its data directory cannot come back
    RemoveMember {
        /// The member's number
        member: u64,
    },
    /// Make another member the leader
    TransferLeader {
        /// The member's number
        member: u64,
    },
    /// List the conductors that registered, with their service versions
    Services,
    /// Forget a conductor that is gone
    RemoveConductor {
        /// The conductor's name
        conductor: String,
    },
    /// See who runs which version, and finish an upgrade
    #[command(subcommand)]
    Upgrade(Upgrade),
}

/// Verbs of upgrades.
#[derive(Debug, Subcommand)]
pub enum Upgrade {
    /// Show the cluster version, and who is behind the newest
    Status,
    /// Raise the cluster version; there is no way back to older programs
    Finalize {
        /// Raise it to this, not to what the leader can do
        #[arg(long, value_name = "VERSION")]
        to: Option<u32>,
        /// A conductor that is older, but gone: it is forgotten (can be repeated)
        #[arg(long, value_name = "CONDUCTOR")]
        gone: Vec<String>,
        /// Only say whether it could be done
        #[arg(long)]
        validate_only: bool,
    },
}

/// What `berth dev` runs.
#[derive(Debug, Args)]
pub struct Dev {
    /// How many schedulers
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=5))]
    pub schedulers: u8,
    /// How many simulated hosts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(0..=64))]
    pub hosts: u16,
    /// The first scheduler's port; the others, the conductor and the agents follow
    /// [default: 7100, or any free ones with --ephemeral]
    #[arg(long)]
    pub port: Option<u16>,
    /// Keep the data here instead of in a temporary directory
    #[arg(long)]
    pub data_dir: Option<PathBuf>,
    /// Run one scheduler whose data is in memory, and no conductor unless there are hosts: begins
    /// in a moment and leaves nothing behind
    #[arg(long, conflicts_with_all = ["data_dir", "schedulers"])]
    pub ephemeral: bool,
    /// Serve OpenStack Placement's REST API on this address, from the first scheduler
    #[arg(long, value_name = "HOST:PORT")]
    pub placement_listen: Option<String>,
    /// Let callers of the REST API do what this profile says
    #[arg(
        long,
        value_name = "PROFILE",
        value_enum,
        requires = "placement_listen"
    )]
    pub placement_profile: Option<Profile>,
    /// Know callers of the REST API by the tokens in this file; without it they are believed
    #[arg(long, value_name = "FILE", requires = "placement_listen")]
    pub placement_tokens: Option<PathBuf>,
}

/// How `berth demo` tells its story.
#[derive(Debug, Args)]
pub struct Demo {
    /// Leave the cluster running afterwards, until Ctrl-C
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

fn disk(text: &str) -> Result<(String, u64), String> {
    let (image, size) = text.rsplit_once(':').ok_or("expected IMAGE:GIB")?;
    let size = size
        .parse()
        .map_err(|_| format!("{size:?} is not a whole number of GiB"))?;
    Ok((image.to_owned(), size))
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
