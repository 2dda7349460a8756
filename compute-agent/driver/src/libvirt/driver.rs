//! [`LibvirtDriver`]: QEMU guests through libvirt.
//!
//! Guests are transient domains with Berth's record in their metadata. A transient domain
//! survives a restart of libvirtd and of the agent, since its QEMU runs on and libvirtd keeps its
//! state on the side; it is gone after a crash of the host or a power-off of the guest. That is
//! intended: whether such a guest is started again, and where, is the cluster's decision,
//! never that of a host that comes back with an old definition.
//!
//! Disks and console logs lie in a directory that the hosts share; or each has its own, and then
//! libvirt copies the disks, while the console log starts empty. Hosts whose guests move between each
//! other have the same paths, since the source writes the destination's XML.
//!
//! Invariant: only domains with Berth's metadata are listed, stopped or moved.

mod power;
mod snapshot;
mod travel;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_domain::agent::{DomainState as State, DomainStatus, Side};
use berth_domain::cpu_model::{GuestCpu, HostCpu};
use berth_domain::id::{ClaimId, MigrationId, VmUid};
use berth_domain::name::{PmemName, VmName};
use berth_domain::network::{BridgeMapping, BridgeType, HostNetwork};
use berth_domain::pmem::PmemDevice;
use berth_domain::signals::GuestMemory;
use berth_domain::transfer::{DiskCopy, TransferProgress};
use berth_domain::vm::BootSource;

use super::awaited::Awaited;
use super::connection::Version;
use super::error::error_of;
use super::memory::Looks;
use super::{
    Connection, Domain, DomainState, Kind, Migration, XmlView, console, cpu, disk, ending, inspect,
    network, paused, peer, progress, running, send,
};
use crate::arrivals::Arrival;
use crate::disks::{DiskReader, DiskWriter};
use crate::domain::{DomainSpec, Draft, Ending, Force, Known, Other, Sending};
use crate::driver::{Chunk, ConsoleInput, ConsoleLog, Driver, Eraser, Info};
use crate::error::Error;
use crate::image::Size;
use crate::request::FreePages;
use crate::xml::{self, NAMESPACE, Running, Settings};

pub use super::peer::{has_parameters, uri_host};

/// `VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT`.
const MIGRATION_OUT: u64 = 5;

/// The longest path of a socket that the kernel takes, with its end.
const SOCKET_PATH_MAX: usize = 107;

/// Returns the free pages of the host.
pub type FreePagesSource = Box<dyn Fn() -> Result<FreePages, Error> + Send + Sync>;

/// Checks that QEMU on this host can encrypt migrations.
pub type TlsCheck = Box<dyn Fn() -> Result<(), Error> + Send + Sync>;

/// What the driver learns of its host from others.
pub struct HostSources {
    /// The free pages.
    pub free_pages: FreePagesSource,
    /// Whether migrations can be encrypted.
    pub tls: TlsCheck,
}

/// How the driver is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// The hypervisor, as `qemu:///system`.
    pub uri: String,
    /// What other hosts dial to send guests here, as `qemu+tcp://h1/system`.
    pub migration_uri: String,
    /// What all guests have in common.
    pub settings: Settings,
    /// The program that makes disks.
    pub qemu_img: PathBuf,
    /// Where the networks' devices are listed, `/sys/class/net`.
    pub network_devices: PathBuf,
    /// The kernel's files about processes, `/proc`.
    pub proc: PathBuf,
    /// The logs of QEMU's processes, as libvirt writes them.
    pub log_dir: PathBuf,
    /// The most that a transfer may take of the network.
    pub bandwidth_mib_per_s_max: Option<u64>,
}

/// Why the driver cannot be used as it is set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The kernel takes no socket with so long a path.
    #[error("runtime_dir {} is too long by {excess} characters for console sockets", .path.display())]
    RuntimeDirTooLong {
        /// The directory.
        path: PathBuf,
        /// By how much.
        excess: usize,
    },
}

/// QEMU guests through libvirt.
pub struct LibvirtDriver {
    pub(super) config: Config,
    host: HostSources,
    eraser: Box<dyn Eraser>,
    connection: Mutex<Option<Connection>>,
    looks: Looks,
    /// Guests whose transfer was requested to stop: libvirt sometimes reports then that the other side
    /// broke off, which it did for that reason.
    stop_requested: Mutex<BTreeSet<VmUid>>,
    awaited: Awaited,
}

impl LibvirtDriver {
    /// Returns the driver; it connects upon the first request.
    ///
    /// # Errors
    ///
    /// When it cannot work with this configuration.
    pub fn new(
        config: Config,
        host: HostSources,
        eraser: Box<dyn Eraser>,
    ) -> Result<Self, ConfigError> {
        let socket = config.settings.console_socket(VmUid(uuid::Uuid::nil()));
        let excess = socket.as_os_str().len().saturating_sub(SOCKET_PATH_MAX);
        if excess > 0 {
            return Err(ConfigError::RuntimeDirTooLong {
                path: config.settings.runtime_dir,
                excess,
            });
        }
        Ok(Self {
            config,
            host,
            eraser,
            connection: Mutex::new(None),
            looks: Looks::default(),
            stop_requested: Mutex::default(),
            awaited: Awaited::default(),
        })
    }

    fn stop_requested(&self) -> MutexGuard<'_, BTreeSet<VmUid>> {
        // The set is whole between any two statements.
        let set = self.stop_requested.lock();
        set.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the connection, a new one if the last was lost.
    pub(super) fn connection(&self) -> Result<Connection, Error> {
        // The lock guards a handle that is replaced as a whole.
        let mut slot = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = slot.as_ref().filter(|c| c.is_alive()) {
            return Ok(connection.clone());
        }
        let connection = Connection::open(&self.config.uri).map_err(|e| error_of(&e))?;
        *slot = Some(connection.clone());
        Ok(connection)
    }

    pub(super) fn find(&self, vm: VmUid) -> Result<Option<Domain>, Error> {
        self.connection()?
            .find_domain(&vm.to_string())
            .map_err(|e| error_of(&e))
    }

    /// Finds a domain that is to be changed: one of Berth's.
    pub(super) fn find_ours(&self, vm: VmUid) -> Result<Option<Domain>, Error> {
        let Some(domain) = self.find(vm)? else {
            return Ok(None);
        };
        let is_ours = self.record(&domain)?.is_some();
        if is_ours || self.has_ended(&domain)? {
            return Ok(Some(domain));
        }
        Err(Error::refused(format!(
            "domain {} was not started by Berth and is left alone",
            domain.name()
        )))
    }

    /// Returns whether nothing is left of a domain but its name, if that: a transient one that
    /// has stopped is about to be forgotten, and its metadata is gone already.
    fn has_ended(&self, domain: &Domain) -> Result<bool, Error> {
        match self.state(domain)? {
            State::Absent => Ok(true),
            // A domain that is gone by now was one of those.
            State::Stopped => Ok(!domain.is_persistent().unwrap_or(false)),
            State::Starting
            | State::Running
            | State::Paused
            | State::Prepared
            | State::MigratingIn
            | State::MigratingOut
            | State::PostCopyBroken => Ok(false),
        }
    }

    /// Returns where a domain is; absent if it went away meanwhile.
    pub(super) fn state(&self, domain: &Domain) -> Result<State, Error> {
        self.query_state(domain).map(|(state, _)| state)
    }

    /// Returns where a domain is, and how far the transfer is that sends it away.
    fn query_state(&self, domain: &Domain) -> Result<(State, Option<TransferProgress>), Error> {
        let status = match domain.status() {
            Ok(status) => status,
            Err(error) if error.kind() == Kind::NoDomain => return Ok((State::Absent, None)),
            Err(error) => return Err(error_of(&error)),
        };
        let state = match status.state {
            DomainState::ShutOff | DomainState::Crashed => return Ok((State::Stopped, None)),
            DomainState::Paused if status.reason == paused::POST_COPY_FAILED => {
                return Ok((State::PostCopyBroken, None));
            }
            DomainState::Running if status.reason == running::POST_COPY_FAILED => {
                return Ok((State::PostCopyBroken, None));
            }
            // It runs here, but not by itself yet.
            DomainState::Running if status.reason == running::POST_COPY => {
                return Ok((State::MigratingIn, None));
            }
            // It runs there; between two looks the job may have no figures.
            DomainState::Paused if status.reason == paused::POST_COPY => State::MigratingOut,
            DomainState::Paused | DomainState::Suspended => State::Paused,
            DomainState::Running
            | DomainState::Blocked
            | DomainState::ShuttingDown
            | DomainState::NoState => State::Running,
        };
        match domain.job() {
            Ok(job) if job.is_running() => {
                let operation = job.all.get("operation").copied();
                let out = operation == Some(MIGRATION_OUT) && status.reason != paused::STARTING_UP;
                Ok(if out {
                    (State::MigratingOut, Some(progress::of(&job, status)))
                } else {
                    (state, None)
                })
            }
            Ok(_) => Ok((state, None)),
            // libvirt reports nothing about the job of a domain that is being received, but this.
            Err(error) if error.kind() == Kind::OperationInvalid && state == State::Paused => {
                Ok((State::MigratingIn, None))
            }
            Err(error) => match error.kind() {
                Kind::NoDomain => Ok((State::Absent, None)),
                Kind::Unavailable => Err(error_of(&error)),
                // The state is known; that its job is not is no reason to drop it.
                Kind::OperationInvalid
                | Kind::Timeout
                | Kind::DomainExists
                | Kind::NoMetadata
                | Kind::OperationFailed
                | Kind::OperationAborted
                | Kind::Unsupported
                | Kind::InvalidArgument
                | Kind::MigrateUnsafe
                | Kind::ResourceBusy
                | Kind::Other => Ok((state, None)),
            },
        }
    }

    /// Returns Berth's record of a domain; nothing for one that is not Berth's, or that has ended.
    pub(super) fn record(&self, domain: &Domain) -> Result<Option<DomainSpec>, Error> {
        let element = match domain.metadata(NAMESPACE) {
            Ok(element) => element,
            // libvirt returns the last kind for a transient domain that has just stopped.
            Err(error)
                if matches!(
                    error.kind(),
                    Kind::NoMetadata | Kind::NoDomain | Kind::OperationInvalid
                ) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error_of(&error)),
        };
        xml::metadata::parse(&element)
            .map(Some)
            .map_err(|error| Error::refused(format!("domain {}: {error}", domain.name())))
    }

    /// Returns what libvirt has added to a guest that is to leave.
    fn running(domain: &Domain, destination: &DomainSpec) -> Result<Running, Error> {
        let read = |view| domain.xml(view).map_err(|error| error_of(&error));
        let damaged = |error: xml::ReadError| Error::refused(error.to_string());
        let places = match destination.assignment.pmem.is_empty() {
            true => Vec::new(),
            false => xml::places(&read(XmlView::Live)?).map_err(damaged)?,
        };
        // What libvirt compares the destination with, which is not always what it shows of the guest.
        let cpu = xml::cpu::running(&read(XmlView::Migratable)?).map_err(damaged)?;
        Ok(Running { places, cpu })
    }

    /// Refuses a destination at which the guest would be recorded with another CPU than it has.
    fn require_same_cpu(&self, domain: &Domain, destination: &DomainSpec) -> Result<(), Error> {
        let cpu = |guest: &DomainSpec| guest.cpu.clone();
        let here = self.record(domain)?.and_then(|record| cpu(&record));
        let there = cpu(destination);
        if here == there {
            return Ok(());
        }
        let shown = |cpu: Option<Arc<GuestCpu>>| {
            cpu.map_or_else(|| "that of its host".to_owned(), |cpu| cpu.to_string())
        };
        Err(Error::refused(format!(
            "a guest that runs keeps its CPU: it is {}, and at the destination it would be {}",
            shown(here),
            shown(there)
        )))
    }

    /// Returns libvirt's choices for a transfer.
    fn migration(
        &self,
        domain: &Domain,
        destination_uri: &str,
        destination: &DomainSpec,
        sending: &Sending,
    ) -> Result<Migration, Error> {
        let policy = &sending.policy;
        let bandwidth = policy.bandwidth_mib_per_s_max.map(u64::from);
        let targets = sending.copies.iter();
        let targets = targets.map(|copy| xml::disk_target(copy.index as usize));
        let running = Self::running(domain, destination)?;
        let destination_xml = xml::taken_over(destination, &self.config.settings, &running)?;
        Ok(Migration {
            destination_xml: Some(destination_xml),
            bandwidth_mib_per_s_max: bandwidth.or(self.config.bandwidth_mib_per_s_max),
            copied_disks: targets.collect(),
            // The agents compared the identities of their storage.
            disks_are_shared: true,
            auto_converge: policy.auto_converge,
            post_copy: policy.post_copy,
            tls: sending.tls,
            tls_destination: sending.tls.then(|| uri_host(destination_uri)).flatten(),
            ..Migration::default()
        })
    }

    pub(super) fn wrong_state(vm: VmUid, state: State, attempted: &'static str) -> Error {
        Error::WrongState {
            vm,
            state,
            attempted,
        }
    }

    fn require_file(path: &Path) -> Result<(), Error> {
        if path.exists() {
            return Ok(());
        }
        Err(Error::refused(format!("{} is not there", path.display())))
    }

    /// Checks that this host can give the guest its CPU. libvirt does so too when a guest is started, after
    /// its disks were made, and not at all when one arrives: there it relies on QEMU.
    pub(super) fn check_cpu(&self, guest: &DomainSpec) -> Result<(), Error> {
        match &guest.cpu {
            Some(cpu) => cpu::require(
                &self.connection()?,
                cpu::platform(&self.config.settings),
                cpu,
            ),
            None => Ok(()),
        }
    }

    fn libvirt_version(&self) -> Result<Version, Error> {
        let version = self.connection()?.library_version();
        version.map_err(|e| error_of(&e))
    }

    /// Looks at everything outside libvirt that the guest needs on this host.
    pub(super) fn check_surroundings(&self, guest: &DomainSpec) -> Result<(), Error> {
        let settings = &self.config.settings;
        if let BootSource::Kernel { kernel, initrd, .. } = &guest.spec.boot {
            Self::require_file(&settings.image(kernel)?)?;
            if !initrd.is_empty() {
                Self::require_file(&settings.image(initrd)?)?;
            }
        }
        for disk in &guest.spec.disks {
            inspect::image(disk, Size::Any, settings)?;
        }
        for nic in &guest.spec.nics {
            let devices = &self.config.network_devices;
            let Some(attachment) = &nic.network else {
                let bridge = &nic.bridge;
                if !network::is_bridge(&devices.join(bridge), BridgeType::Linux) {
                    return Err(Error::refused(format!("this host has no bridge {bridge}")));
                }
                continue;
            };
            // The kernel would ignore a VLAN that the bridge does not know.
            let mapping = guest.bridge_to(attachment)?;
            network::check(devices, mapping, self.libvirt_version()?, attachment)
                .map_err(Error::refused)?;
        }
        Ok(())
    }
}

impl Driver for LibvirtDriver {
    fn info(&self) -> Result<Info, Error> {
        let connection = self.connection()?;
        let libvirt = connection.library_version().map_err(|e| error_of(&e))?;
        let qemu = connection.hypervisor_version().map_err(|e| error_of(&e))?;
        Ok(Info {
            driver: "libvirt".to_owned(),
            hypervisor: format!("QEMU {qemu} through libvirt {libvirt}"),
            version: qemu.to_string(),
            migration_uri: self.config.migration_uri.clone(),
        })
    }

    fn networks(&self, mappings: &[BridgeMapping]) -> Result<Vec<HostNetwork>, Error> {
        let devices = &self.config.network_devices;
        Ok(network::reached(devices, mappings, self.libvirt_version()?))
    }

    fn cpu(&self) -> Result<Option<HostCpu>, Error> {
        cpu::host_cpu(&self.connection()?, cpu::platform(&self.config.settings))
    }

    fn ending(&self, vm: &VmName) -> Option<Ending> {
        ending::of(&self.config.log_dir, vm)
    }

    fn create(&self, guest: &DomainSpec) -> Result<(), Error> {
        if let Some(domain) = self.find(guest.uid)? {
            let record = self.record(&domain)?;
            let claim = record.and_then(|r| r.claim);
            let same = claim == guest.claim && self.state(&domain)? == State::Running;
            return if same {
                Ok(())
            } else {
                Err(Error::Exists {
                    vm: guest.uid,
                    claim,
                })
            };
        }
        let settings = &self.config.settings;
        let xml = xml::domain(guest, settings)?;
        self.check_surroundings(guest)?;
        self.check_cpu(guest)?;
        let created = disk::make(guest, settings, &self.config.qemu_img).and_then(|()| {
            let created = self.connection()?.create(&xml);
            created.map(drop).map_err(|e| error_of(&e))
        });
        if let Err(error) = &created
            && !error.is_unknown()
        {
            // What a refused guest leaves is garbage; failing to remove it has no effect on any
            // guest, and the refusal is what matters.
            if let Err(leftover) = disk::remove(guest.uid, settings) {
                tracing::warn!(vm = %guest.vm, error = %leftover, "files of a refused guest were not removed");
            }
        }
        created
    }

    fn destroy(&self, vm: VmUid) -> Result<(), Error> {
        if let Some(domain) = self.find_ours(vm)? {
            let state = self.state(&domain)?;
            match state {
                State::MigratingIn | State::MigratingOut => {
                    return Err(Self::wrong_state(vm, state, "destroy"));
                }
                State::Absent => {}
                State::Starting
                | State::Running
                | State::Paused
                | State::Prepared
                | State::PostCopyBroken
                | State::Stopped => stop(&domain)?,
            }
        }
        disk::remove(vm, &self.config.settings)
    }

    fn domain(&self, vm: VmUid) -> Result<DomainStatus, Error> {
        let Some(domain) = self.find(vm)? else {
            return Ok(DomainStatus::absent());
        };
        let record = self.record(&domain)?;
        let (state, progress) = self.query_state(&domain)?;
        if state == State::Absent {
            return Ok(DomainStatus::absent());
        }
        if state == State::Running {
            disk::arrived(vm, &self.config.settings);
            self.awaited.examine(vm, || domain.completed_job());
        }
        let vcpu_cpus = match domain.xml(XmlView::Live) {
            Ok(xml) => xml::read::vcpu_cpus(&xml).map_err(|e| Error::refused(e.to_string()))?,
            Err(error) if error.kind() == Kind::NoDomain => return Ok(DomainStatus::absent()),
            Err(error) => return Err(error_of(&error)),
        };
        Ok(DomainStatus {
            state,
            claim: record.as_ref().and_then(|r| r.claim),
            epoch: record.as_ref().map(|r| r.epoch),
            vcpu_cpus,
            migration_error: None,
            progress,
        })
    }

    fn domains(&self) -> Result<Vec<Known>, Error> {
        let mut known = Vec::new();
        for domain in self.connection()?.domains().map_err(|e| error_of(&e))? {
            let Some(record) = self.record(&domain)? else {
                continue;
            };
            let state = self.state(&domain)?;
            if state == State::Running {
                self.awaited.examine(record.uid, || domain.completed_job());
            }
            if state != State::Absent {
                known.push(Known {
                    domain: record,
                    state,
                });
            }
        }
        known.sort_by_key(|k| k.domain.uid);
        Ok(known)
    }

    fn prepare_incoming(&self, guest: &DomainSpec, copies: &[DiskCopy]) -> Result<(), Error> {
        if let Some(domain) = self.find(guest.uid)? {
            let state = self.state(&domain)?;
            if state != State::Absent {
                return Err(Self::wrong_state(guest.uid, state, "prepare to receive"));
            }
        }
        self.check_surroundings(guest)?;
        self.check_cpu(guest)?;
        let settings = &self.config.settings;
        let is_copied = |index: usize| copies.iter().any(|c| c.index as usize == index);
        for index in (0..guest.spec.disks.len()).filter(|index| !is_copied(*index)) {
            inspect::disk(guest, index, settings)?;
        }
        // The directory of the log is shared and there; where it is not, a guest without disks
        // can still come.
        for directory in [&settings.directory(guest.uid), &settings.runtime_dir] {
            std::fs::create_dir_all(directory).map_err(|error| {
                Error::refused(format!("{} cannot be made: {error}", directory.display()))
            })?;
        }
        self.awaited.expect(guest.uid);
        if copies.is_empty() {
            return Ok(());
        }
        let made = disk::make_to_receive(guest, copies, settings, &self.config.qemu_img);
        if made.is_err()
            && let Err(leftover) = disk::remove_arriving(guest.uid, settings)
        {
            tracing::warn!(vm = %guest.vm, error = %leftover, "files of incomplete disks were not removed");
        }
        made
    }

    fn cancel_incoming(&self, vm: VmUid) -> Result<(), Error> {
        self.forget_incoming(vm)?;
        disk::remove_arriving(vm, &self.config.settings)
    }

    fn forget_incoming(&self, vm: VmUid) -> Result<(), Error> {
        self.awaited.forget(vm);
        let Some(domain) = self.find(vm)? else {
            return Ok(());
        };
        match self.state(&domain)? {
            State::Absent => Ok(()),
            // It does not run, and nothing brings it back; while it is here, the migration could
            // not be settled.
            State::Stopped => self.find_ours(vm)?.map_or(Ok(()), |ours| stop(&ours)),
            state @ (State::Starting
            | State::PostCopyBroken
            | State::Running
            | State::Paused
            | State::MigratingOut
            | State::MigratingIn
            | State::Prepared) => Err(Self::wrong_state(vm, state, "stop expecting")),
        }
    }

    fn check_tls(&self) -> Result<(), Error> {
        (self.host.tls)()
    }

    fn check_peer(&self, uri: &str) -> Result<(), Error> {
        peer::check(uri)
    }

    fn migrate(
        &self,
        vm: VmUid,
        destination_uri: &str,
        destination: &DomainSpec,
        sending: &Sending,
    ) -> Result<(), Error> {
        peer::check_uri(destination_uri)?;
        let domain = self.find_ours(vm)?.ok_or(Error::Absent { vm })?;
        self.require_same_cpu(&domain, destination)?;
        let settings = &self.config.settings;
        let migration = self.migration(&domain, destination_uri, destination, sending)?;
        disk::leaves(vm, !sending.copies.is_empty(), settings)?;
        let downtime = sending.policy.downtime_ms_max;
        self.stop_requested().remove(&vm);
        let Err(error) = send::migrate(&domain, destination_uri, &migration, downtime) else {
            return disk::remove_left(vm, settings);
        };
        let error = match error.kind() {
            Kind::NoDomain => Error::Absent { vm },
            Kind::OperationAborted => Error::Aborted { vm },
            Kind::Unavailable
            | Kind::DomainExists
            | Kind::NoMetadata
            | Kind::OperationInvalid
            | Kind::OperationFailed
            | Kind::Timeout
            | Kind::Unsupported
            | Kind::InvalidArgument
            | Kind::MigrateUnsafe
            | Kind::ResourceBusy
            | Kind::Other => error_of(&error),
        };
        if error.is_unknown() || matches!(error, Error::Absent { .. }) {
            return Err(error);
        }
        // libvirt also fails when only the last message of the other side was lost: the guest is then
        // paused here, or gone.
        match self.domain(vm)?.state {
            State::Running => {
                disk::stayed(vm, settings);
                match self.stop_requested().remove(&vm) {
                    true => Err(Error::Aborted { vm }),
                    false => Err(error),
                }
            }
            state @ (State::Absent
            | State::Starting
            | State::Paused
            | State::MigratingOut
            | State::MigratingIn
            | State::Prepared
            | State::Stopped
            | State::PostCopyBroken) => Err(Error::Unreachable {
                message: format!(
                    "the transfer failed and the guest is {} here: {error}",
                    state.as_str()
                ),
            }),
        }
    }

    fn abort(&self, vm: VmUid) -> Result<(), Error> {
        let Some(domain) = self.find(vm)? else {
            return Ok(());
        };
        if send::is_post_copy(&domain) {
            let attempted = "stop the post-copy of";
            return Err(Self::wrong_state(vm, State::MigratingOut, attempted));
        }
        // Before it is: the transfer may have ended by the time that libvirt replies.
        self.stop_requested().insert(vm);
        let result = domain.abort_job();
        if result.is_err() {
            self.stop_requested().remove(&vm);
        }
        match result {
            Ok(()) => Ok(()),
            Err(error) if matches!(error.kind(), Kind::OperationInvalid | Kind::NoDomain) => Ok(()),
            Err(error) => Err(error_of(&error)),
        }
    }

    fn force_complete(&self, vm: VmUid, how: Force) -> Result<(), Error> {
        let Some(domain) = self.find(vm)? else {
            return Ok(());
        };
        if self.state(&domain)? != State::MigratingOut || send::is_post_copy(&domain) {
            return Ok(());
        }
        send::force(&domain, how).map_err(|error| error_of(&error))
    }

    fn release(&self, vm: VmUid) -> Result<(), Error> {
        if let Some(domain) = self.find_ours(vm)? {
            let state = self.state(&domain)?;
            match state {
                State::Absent => {}
                State::Paused | State::Stopped => stop(&domain)?,
                State::Starting
                | State::PostCopyBroken
                | State::Running
                | State::MigratingOut
                | State::MigratingIn
                | State::Prepared => return Err(Self::wrong_state(vm, state, "release")),
            }
        }
        disk::remove_left(vm, &self.config.settings)
    }

    fn shutdown(&self, vm: VmUid) -> Result<(), Error> {
        self.power_button(vm)
    }

    fn stop(&self, vm: VmUid) -> Result<(), Error> {
        self.power_off(vm)
    }

    fn start(&self, guest: &DomainSpec) -> Result<(), Error> {
        self.power_on(guest)
    }

    fn make_disks(&self, guest: &DomainSpec) -> Result<(), Error> {
        self.remake_disks(guest)
    }

    fn copy_disk(&self, guest: &DomainSpec, disk: usize, draft: &Draft) -> Result<(), Error> {
        self.copy_to_draft(guest, disk, draft)
    }

    fn publish_image(&self, draft: &Draft) -> Result<(), Error> {
        snapshot::publish(draft, &self.config.settings)
    }

    fn drop_image(&self, draft: &Draft) -> Result<bool, Error> {
        snapshot::discard(draft, &self.config.settings)
    }

    fn others(&self) -> Result<Vec<Other>, Error> {
        let mut others = Vec::new();
        for domain in self.connection()?.domains().map_err(|e| error_of(&e))? {
            // One of ours whose record cannot be read is listed too, rather than skipped.
            if matches!(self.record(&domain), Ok(Some(_))) || self.has_ended(&domain)? {
                continue;
            }
            let uuid = domain.uuid().map_err(|e| error_of(&e))?;
            others.push(Other {
                uuid: uuid.parse().unwrap_or_default(),
                name: domain.name(),
            });
        }
        others.sort_by_key(|other| other.uuid);
        Ok(others)
    }

    fn erase(&self, device: &PmemDevice) -> Result<(), Error> {
        self.eraser.erase(device)
    }

    fn take_arrivals(&self) -> Vec<Arrival> {
        self.awaited.take()
    }

    fn erased_bytes(&self) -> BTreeMap<PmemName, u64> {
        self.eraser.erased_bytes()
    }

    fn evict(&self, vm: VmUid, claim: Option<ClaimId>) -> Result<(), Error> {
        let Some(domain) = self.find(vm)? else {
            return Ok(());
        };
        if self
            .record(&domain)?
            .is_none_or(|record| record.claim != claim)
        {
            return Ok(());
        }
        self.power_off(vm)
    }

    fn free_pages(&self) -> Result<FreePages, Error> {
        (self.host.free_pages)()
    }

    fn guest_memory(&self) -> Result<BTreeMap<VmName, GuestMemory>, Error> {
        let Config { uri, proc, .. } = &self.config;
        self.looks.guest_memory(uri, proc)
    }

    fn read_disks(
        &self,
        vm: VmUid,
        disks: usize,
        migration: MigrationId,
    ) -> Result<DiskReader, Error> {
        self.open_disks(vm, disks, migration)
    }

    fn receive_disks(
        &self,
        guest: &DomainSpec,
        migration: MigrationId,
    ) -> Result<Option<DiskWriter>, Error> {
        self.take_disks(guest, migration)
    }

    fn drop_disks(&self, vm: VmUid, migration: MigrationId, side: Side) -> Result<(), Error> {
        self.delete_disks(vm, migration, side)
    }

    fn console_read(&self, vm: VmUid, offset: u64) -> Result<Chunk, Error> {
        self.find(vm)?.ok_or(Error::Absent { vm })?;
        console::read(&self.config.settings.console_log(vm), offset)
    }

    fn console_log(&self, vm: VmUid) -> Result<ConsoleLog, Error> {
        self.find(vm)?.ok_or(Error::Absent { vm })?;
        console::log(&self.config.settings.console_log(vm))
    }

    fn console_open(&self, vm: VmUid) -> Result<Box<dyn ConsoleInput>, Error> {
        self.find(vm)?.ok_or(Error::Absent { vm })?;
        let input = console::Input::open(&self.config.settings.console_socket(vm))?;
        Ok(Box::new(input))
    }
}

/// Stops a domain; one that is gone already is stopped.
pub(super) fn stop(domain: &Domain) -> Result<(), Error> {
    match domain.destroy() {
        Ok(()) => Ok(()),
        Err(error) if matches!(error.kind(), Kind::NoDomain | Kind::OperationInvalid) => Ok(()),
        Err(error) => Err(error_of(&error)),
    }
}
