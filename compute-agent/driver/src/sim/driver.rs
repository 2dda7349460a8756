//! One simulated hypervisor in a real process: guests in memory, and in a file where one is
//! named, and real time.
//!
//! Not here: how guests are sent to another process or another driver of this one (`transfer`).
//!
//! Invariant: every change of a guest is in the file before it is answered.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use berth_domain::agent::{DomainState, DomainStatus, Side};
use berth_domain::cpu_model::HostCpu;
use berth_domain::id::{ClaimId, MigrationId, TimeMs, VmUid};
use berth_domain::name::{PmemName, VmName};
use berth_domain::network::{BridgeMapping, HostNetwork};
use berth_domain::pmem::PmemDevice;
use berth_domain::signals::{GuestMemory, MemorySignals};
use berth_domain::topology::HostTopology;
use berth_domain::transfer::DiskCopy;
use berth_domain::vm::Disk;

use super::files::Files;
use super::host::{Domain, Host, Phase};
use super::orders::{Moment, Orders};
use super::pmem::Contents;
use super::progress::Underway;
use super::story::Story;
use crate::arrivals::{Arrival, Arrivals};
use crate::disks::{self, DiskReader, DiskWriter, Hooks};
use crate::domain::{DomainSpec, Draft, Ending, Force, Known, Other, Sending};
use crate::driver::{Chunk, ConsoleInput, ConsoleLog, Driver, Info};
use crate::error::Error;
use crate::request::FreePages;

/// How long one side waits for a word of the other.
pub(super) const SOCKET_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a source reports that it is still sending.
pub(super) const PROGRESS_PERIOD: Duration = Duration::from_millis(200);

/// How often the script is read while a call waits.
pub(super) const STORY_PERIOD: Duration = Duration::from_millis(20);

/// The message of what breaks off when the process ends.
pub(super) const STOPPING: &str = "this hypervisor is being stopped";

/// Default of how much persistent memory is erased in a second.
pub const ERASE_MIB_PER_S: u64 = 1 << 20;

/// The largest packet of simulated bridges, in bytes: that of jumbo frames.
const MTU: u32 = 9000;

/// How many guests may come in at the same time; more connections are closed at once.
const INCOMING_MAX: usize = 64;

/// How a simulated hypervisor is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// The shape of the machine that it pretends to be.
    pub topology: Arc<HostTopology>,
    /// Where it listens for guests.
    pub listen: SocketAddr,
    /// What other hosts dial instead of the address that it listens on, as `h1:7400`.
    pub advertise: Option<String>,
    /// Where guests are kept, so that they are there again after a restart of the process.
    pub state_file: Option<PathBuf>,
    /// How long a transfer takes.
    pub transfer: Duration,
    /// How much persistent memory is erased in a second.
    pub erase_mib_per_s: u64,
    /// A file with injected events; see `story`.
    pub story_file: Option<PathBuf>,
    /// Where the disks of its guests are, as files; hosts with the same directory share them. Without
    /// it they have no contents.
    pub disk_dir: Option<PathBuf>,
    /// How much swap space the machine has.
    pub swap_mib: u64,
    /// Whether it has what encrypted transfers take. The encryption itself is simulated too: nothing of
    /// a guest's memory is sent.
    pub can_encrypt: bool,
    /// What it offers to guests as a CPU; nothing: it does not matter to them.
    pub cpu: Option<HostCpu>,
}

impl Config {
    /// Returns a set-up on a free port of loopback, in memory, with short transfers.
    #[must_use]
    pub fn new(topology: Arc<HostTopology>) -> Self {
        Self {
            topology,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertise: None,
            state_file: None,
            transfer: Duration::from_millis(300),
            erase_mib_per_s: ERASE_MIB_PER_S,
            story_file: None,
            disk_dir: None,
            swap_mib: 0,
            can_encrypt: true,
            cpu: None,
        }
    }
}

/// Why a simulated hypervisor did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It cannot listen.
    #[error("the simulated hypervisor cannot listen on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Its file of guests cannot be read.
    #[error("the file of simulated guests {} cannot be read", .path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// One simulated hypervisor.
pub struct SimDriver {
    shared: Arc<Shared>,
    migration_uri: String,
    listener: Option<JoinHandle<()>>,
    address: SocketAddr,
}

pub(super) struct Shared {
    state: Mutex<State>,
    /// Woken when something is to be aborted or everything to stop.
    pub(super) changed: Condvar,
    state_file: Option<PathBuf>,
    pub(super) transfer: Duration,
    erase_mib_per_s: u64,
    files: Files,
    can_encrypt: bool,
    pub(super) arrivals: Arrivals,
}

pub(super) struct State {
    pub(super) host: Host,
    pub(super) aborts: BTreeSet<VmUid>,
    /// How far the transfers are that go out from here.
    pub(super) underway: BTreeMap<VmUid, Underway>,
    incoming: usize,
    pub(super) stopping: bool,
    pub(super) story: Option<Story>,
    pub(super) orders: Orders,
    /// How far the erasing of namespaces is, in bytes.
    erased: BTreeMap<PmemName, u64>,
    /// What of the persistent memory is in the file.
    kept: Contents,
}

impl SimDriver {
    /// Starts to listen, and takes the guests of the state file up again.
    ///
    /// # Errors
    ///
    /// When the address is taken or the file is damaged.
    pub fn start(config: Config) -> Result<Self, StartError> {
        let domains = load(config.state_file.as_deref(), now())?;
        let unsure: Vec<(VmUid, String)> = domains
            .iter()
            .filter_map(|(uid, domain)| match &domain.phase {
                Phase::Switching { destination_uri } => Some((*uid, destination_uri.clone())),
                Phase::Running
                | Phase::Prepared
                | Phase::Receiving
                | Phase::Sending
                | Phase::Stopped
                | Phase::PullingIn
                | Phase::Torn => None,
            })
            .collect();
        let listen_error = |source| StartError::Listen {
            address: config.listen,
            source,
        };
        let listener = TcpListener::bind(config.listen).map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        let contents = load_contents(config.state_file.as_deref())?;
        let mut host = Host::with_domains(config.topology, domains);
        host.set_pmem(contents.clone());
        host.set_swap_mib(config.swap_mib);
        host.set_cpu(config.cpu);
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                host,
                aborts: BTreeSet::new(),
                underway: BTreeMap::new(),
                incoming: 0,
                stopping: false,
                story: config.story_file.map(Story::new),
                orders: Orders::default(),
                erased: BTreeMap::new(),
                kept: contents,
            }),
            changed: Condvar::new(),
            state_file: config.state_file,
            transfer: config.transfer,
            erase_mib_per_s: config.erase_mib_per_s.max(1),
            files: Files {
                directory: config.disk_dir,
            },
            can_encrypt: config.can_encrypt,
            arrivals: Arrivals::default(),
        });
        for (vm, uri) in unsure {
            let shared = shared.clone();
            std::thread::spawn(move || shared.resolve(vm, &uri));
        }
        let accepting = shared.clone();
        Ok(Self {
            shared,
            migration_uri: format!(
                "sim+tcp://{}",
                config.advertise.unwrap_or_else(|| address.to_string())
            ),
            listener: Some(std::thread::spawn(move || accepting.accept(&listener))),
            address,
        })
    }

    /// Lets a running guest crash, as guests do by themselves.
    pub fn crash(&self, vm: VmUid) {
        self.shared.lock().host.crash(now(), vm);
    }
}

/// Types on the console of a guest.
struct Input {
    shared: Arc<Shared>,
    vm: VmUid,
    /// That of the guest that it was opened for.
    log: String,
}

impl ConsoleInput for Input {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let (vm, text) = (self.vm, String::from_utf8_lossy(bytes));
        if !self.is_open() {
            return Err(Error::Absent { vm });
        }
        self.shared
            .change(|host| host.console(vm).map(|console| console.input(now(), &text)))
    }

    fn is_open(&self) -> bool {
        let mut state = self.shared.lock();
        let console = state.host.console(self.vm);
        console.is_ok_and(|console| console.log(now()).id == self.log)
    }
}

impl Drop for SimDriver {
    fn drop(&mut self) {
        self.close();
        if let Some(listener) = self.listener.take() {
            // A panic of the listener was reported when it happened.
            let _ = listener.join();
        }
    }
}

impl Driver for SimDriver {
    fn info(&self) -> Result<Info, Error> {
        Ok(Info {
            driver: "sim".to_owned(),
            hypervisor: format!("simulated {}", env!("CARGO_PKG_VERSION")),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            migration_uri: self.migration_uri.clone(),
        })
    }

    /// Bridges are simulated too: each is there, and does all that a network needs.
    fn networks(&self, mappings: &[BridgeMapping]) -> Result<Vec<HostNetwork>, Error> {
        let reached = mappings.iter().map(|mapping| HostNetwork {
            mapping: mapping.clone(),
            can_tag: true,
            mtu: MTU,
        });
        Ok(reached.collect())
    }

    fn cpu(&self) -> Result<Option<HostCpu>, Error> {
        Ok(self.shared.lock().host.cpu().cloned())
    }

    fn ending(&self, vm: &VmName) -> Option<Ending> {
        self.shared.lock().host.ending(vm)
    }

    fn create(&self, domain: &DomainSpec) -> Result<(), Error> {
        self.shared.meet(Moment::Create)?;
        let is_new = self.shared.lock().host.status(domain.uid).state == DomainState::Absent;
        self.shared.change(|host| host.create(now(), domain))?;
        match is_new {
            true => self.shared.files.make(domain),
            false => Ok(()),
        }
    }

    fn destroy(&self, vm: VmUid) -> Result<(), Error> {
        self.shared.change(|host| host.destroy(vm))?;
        self.shared.files.remove(vm)
    }

    fn domain(&self, vm: VmUid) -> Result<DomainStatus, Error> {
        self.shared.go_on()?;
        let state = self.shared.lock();
        let mut status = state.host.status(vm);
        if status.state == DomainState::MigratingOut {
            status.progress = state.underway.get(&vm).map(|u| u.progress(now()));
        }
        Ok(status)
    }

    fn domains(&self) -> Result<Vec<Known>, Error> {
        self.shared.go_on()?;
        Ok(self.shared.lock().host.known())
    }

    fn prepare_incoming(&self, domain: &DomainSpec, copies: &[DiskCopy]) -> Result<(), Error> {
        self.shared.meet(Moment::Prepare)?;
        self.shared.change(|host| host.prepare(now(), domain))?;
        match copies.is_empty() {
            true => Ok(()),
            false => self.shared.files.make(domain),
        }
    }

    fn cancel_incoming(&self, vm: VmUid) -> Result<(), Error> {
        self.shared.meet(Moment::Cancel)?;
        self.shared.change(|host| host.cancel(vm))
    }

    fn forget_incoming(&self, vm: VmUid) -> Result<(), Error> {
        self.cancel_incoming(vm)
    }

    fn check_peer(&self, uri: &str) -> Result<(), Error> {
        super::transfer::dial(uri).map(drop)
    }

    fn check_tls(&self) -> Result<(), Error> {
        self.shared.check_tls(true)
    }

    fn migrate(
        &self,
        vm: VmUid,
        destination_uri: &str,
        destination: &DomainSpec,
        sending: &Sending,
    ) -> Result<(), Error> {
        let sent = self
            .shared
            .migrate(vm, destination_uri, destination, sending);
        self.shared.lock().underway.remove(&vm);
        if sent.is_ok() && !sending.copies.is_empty() {
            self.shared.files.remove(vm)?;
        }
        sent
    }

    fn abort(&self, vm: VmUid) -> Result<(), Error> {
        let mut state = self.shared.lock();
        match state.underway.get(&vm) {
            Some(underway) if underway.is_post_copy() => {
                return Err(Error::WrongState {
                    vm,
                    state: DomainState::MigratingOut,
                    attempted: "stop the post-copy of",
                });
            }
            Some(_) | None => {}
        }
        state.aborts.insert(vm);
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    fn force_complete(&self, vm: VmUid, how: Force) -> Result<(), Error> {
        let mut state = self.shared.lock();
        match state.underway.get_mut(&vm) {
            Some(underway) => underway.force(vm, how)?,
            None => return Ok(()),
        }
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    fn release(&self, vm: VmUid) -> Result<(), Error> {
        self.shared.change(|host| host.release(vm))
    }

    fn shutdown(&self, vm: VmUid) -> Result<(), Error> {
        self.shared.change(|host| host.shutdown(now(), vm))
    }

    fn stop(&self, vm: VmUid) -> Result<(), Error> {
        self.shared.change(|host| host.stop(vm))
    }

    fn start(&self, domain: &DomainSpec) -> Result<(), Error> {
        self.shared.meet(Moment::Start)?;
        self.shared.files.require(domain)?;
        self.shared.change(|host| host.start(now(), domain))
    }

    fn make_disks(&self, domain: &DomainSpec) -> Result<(), Error> {
        self.shared.change(|host| host.make_disks(domain.uid))?;
        self.shared.files.require_seed(domain)?;
        self.shared.files.make(domain)
    }

    fn copy_disk(&self, domain: &DomainSpec, disk: usize, draft: &Draft) -> Result<(), Error> {
        self.shared.lock().host.copy_disk(domain, disk, draft)
    }

    fn publish_image(&self, draft: &Draft) -> Result<(), Error> {
        self.shared.lock().host.publish_image(draft)
    }

    fn drop_image(&self, draft: &Draft) -> Result<bool, Error> {
        Ok(self.shared.lock().host.drop_image(draft))
    }

    fn free_pages(&self) -> Result<FreePages, Error> {
        self.shared.go_on()?;
        Ok(self.shared.lock().host.free_pages())
    }

    fn console_read(&self, vm: VmUid, offset: u64) -> Result<Chunk, Error> {
        let mut state = self.shared.lock();
        Ok(state.host.console(vm)?.read(now(), offset))
    }

    fn console_log(&self, vm: VmUid) -> Result<ConsoleLog, Error> {
        let mut state = self.shared.lock();
        Ok(state.host.console(vm)?.log(now()))
    }

    fn console_open(&self, vm: VmUid) -> Result<Box<dyn ConsoleInput>, Error> {
        let log = self.console_log(vm)?.id;
        let shared = self.shared.clone();
        Ok(Box::new(Input { shared, vm, log }))
    }

    fn others(&self) -> Result<Vec<Other>, Error> {
        self.shared.go_on()?;
        Ok(self.shared.lock().host.others().to_vec())
    }

    fn evict(&self, vm: VmUid, claim: Option<ClaimId>) -> Result<(), Error> {
        self.shared.change(|host| host.evict(vm, claim))
    }

    fn erase(&self, device: &PmemDevice) -> Result<(), Error> {
        self.shared.meet(Moment::Erase)?;
        let erased = self.shared.erase_slowly(device);
        self.shared.lock().erased.remove(&device.name);
        erased?;
        self.shared.change(|host| {
            host.erase(&device.name);
            Ok(())
        })
    }

    fn take_arrivals(&self) -> Vec<Arrival> {
        self.shared.arrivals.take()
    }

    fn erased_bytes(&self) -> BTreeMap<PmemName, u64> {
        self.shared.lock().erased.clone()
    }

    fn read_disks(
        &self,
        vm: VmUid,
        disks: usize,
        migration: MigrationId,
    ) -> Result<DiskReader, Error> {
        self.shared.require_off(vm, "read the disks of")?;
        match self.shared.files.place(vm, disks) {
            Some(place) => DiskReader::open(vm, &place, migration),
            None => Ok(DiskReader::default()),
        }
    }

    fn receive_disks(
        &self,
        domain: &DomainSpec,
        migration: MigrationId,
    ) -> Result<Option<DiskWriter>, Error> {
        self.shared.require_off(domain.uid, "fetch the disks of")?;
        let (shared, storage) = (self.shared.clone(), self.shared.clone());
        let hooks = Hooks {
            before_piece: Box::new(move || shared.meet(Moment::Fetch)),
            free_space: Box::new(move |directory| {
                storage.go_on()?;
                let free_space = storage.lock().orders.free_space();
                free_space.map_or_else(|| disks::write::free_space(directory), Ok)
            }),
            ..Hooks::default()
        };
        let place = self.shared.files.place(domain.uid, domain.spec.disks.len());
        match place {
            Some(place) => {
                let disks = domain.spec.disks.iter();
                let lengths = disks.map(Disk::size_bytes);
                DiskWriter::begin(place, migration, lengths.collect(), hooks)
            }
            // There is nothing in them.
            None => Ok(None),
        }
    }

    fn drop_disks(&self, vm: VmUid, migration: MigrationId, side: Side) -> Result<(), Error> {
        self.shared.require_off(vm, "delete the disks of")?;
        match self.shared.files.place(vm, 0) {
            Some(place) => disks::drop_disks(&place.directory, migration, side),
            None => Ok(()),
        }
    }

    fn guest_memory(&self) -> Result<BTreeMap<VmName, GuestMemory>, Error> {
        self.shared.go_on()?;
        Ok(self.shared.lock().host.guest_memory())
    }

    fn machine_memory(&self) -> Option<MemorySignals> {
        Some(self.shared.lock().host.machine_memory())
    }

    /// Breaks off transfers and stops listening; guests in the file are kept.
    fn close(&self) {
        self.shared.lock().stopping = true;
        self.shared.changed.notify_all();
        // Wakes the listener, which then sees the mark.
        let _ = TcpStream::connect_timeout(&self.address, SOCKET_TIMEOUT);
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is a single assignment or a pure transition: a panic of
        // another holder leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses what is to be encrypted where that is not possible.
    pub(super) fn check_tls(&self, tls: bool) -> Result<(), Error> {
        match tls && !self.can_encrypt {
            true => Err(Error::refused(
                "this simulated hypervisor is set up without encryption: set sim.can_encrypt = true",
            )),
            false => Ok(()),
        }
    }

    /// Carries out the injected events.
    pub(super) fn go_on(&self) -> Result<(), Error> {
        let mut state = self.lock();
        let Some(mut story) = state.story.take() else {
            return Ok(());
        };
        let State { host, orders, .. } = &mut *state;
        let result = story.go_on(now(), host, orders);
        state.story = Some(story);
        if result? {
            self.save(&mut state)?;
        }
        Ok(())
    }

    /// Holds or refuses a call, as the injected events state.
    fn meet(&self, moment: Moment) -> Result<(), Error> {
        loop {
            self.go_on()?;
            let mut state = self.lock();
            if state.orders.take_refusal(moment) {
                return Err(Error::refused(format!(
                    "{moment:?} is refused by an injected fault"
                )));
            }
            if !state.orders.is_held(moment) {
                return Ok(());
            }
            if state.stopping {
                return Err(Error::refused(STOPPING));
            }
            drop(self.changed.wait_timeout(state, STORY_PERIOD));
        }
    }

    /// Refuses what is not done to the disks of a guest that uses them.
    fn require_off(&self, vm: VmUid, attempted: &'static str) -> Result<(), Error> {
        self.go_on()?;
        match self.lock().host.status(vm).state {
            DomainState::Absent | DomainState::Stopped => Ok(()),
            state @ (DomainState::Starting
            | DomainState::Running
            | DomainState::Paused
            | DomainState::MigratingOut
            | DomainState::MigratingIn
            | DomainState::Prepared
            | DomainState::PostCopyBroken) => Err(Error::WrongState {
                vm,
                state,
                attempted,
            }),
        }
    }

    /// Changes the host and keeps the change.
    pub(super) fn change<T>(
        &self,
        change: impl FnOnce(&mut Host) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut state = self.lock();
        let result = change(&mut state.host);
        self.save(&mut state)?;
        result
    }

    /// Writes what the next run is to find.
    fn save(&self, state: &mut State) -> Result<(), Error> {
        let Some(path) = self.state_file.as_deref() else {
            return Ok(());
        };
        if state.kept != *state.host.pmem() {
            save(&contents_file(path), state.host.pmem())?;
            state.kept = state.host.pmem().clone();
        }
        let domains: Vec<&Domain> = state.host.domains().values().collect();
        save(path, &domains)
    }

    /// Takes as long as overwriting a namespace does.
    fn erase_slowly(&self, device: &PmemDevice) -> Result<(), Error> {
        let begun = Instant::now();
        let bytes_per_s = u128::from(self.erase_mib_per_s) << 20;
        let mut state = self.lock();
        loop {
            let erased = begun.elapsed().as_millis() * bytes_per_s / 1000;
            if erased >= u128::from(device.size_bytes) {
                return Ok(());
            }
            if state.stopping {
                return Err(Error::refused(STOPPING));
            }
            let erased = u64::try_from(erased).unwrap_or(u64::MAX);
            state.erased.insert(device.name.clone(), erased);
            let waited = self.changed.wait_timeout(state, STORY_PERIOD);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            {
                let mut state = self.lock();
                if state.stopping {
                    return;
                }
                if state.incoming >= INCOMING_MAX {
                    continue;
                }
                state.incoming += 1;
            }
            let shared = self.clone();
            std::thread::spawn(move || {
                if let Ok(stream) = stream
                    && let Err(error) = shared.serve(stream)
                {
                    tracing::debug!(%error, "an incoming transfer ended early");
                }
                shared.lock().incoming -= 1;
            });
        }
    }
}

pub(super) fn now() -> TimeMs {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    TimeMs(u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX))
}

/// Reads the guests of an earlier process. What was on its way then has broken off since.
fn load(path: Option<&Path>, now: TimeMs) -> Result<BTreeMap<VmUid, Domain>, StartError> {
    let Some(path) = path else {
        return Ok(BTreeMap::new());
    };
    let state_error = |source| StartError::State {
        path: path.to_owned(),
        source,
    };
    let json = match std::fs::read(path) {
        Ok(json) => json,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(state_error(error)),
    };
    let domains: Vec<Domain> =
        serde_json::from_slice(&json).map_err(|error| state_error(error.into()))?;
    let mut host = Host::with_domains(
        Arc::new(HostTopology::default()),
        domains.into_iter().map(|d| (d.spec.uid, d)).collect(),
    );
    let all: Vec<_> = host.domains().keys().copied().collect();
    for vm in all {
        host.give_up_receive(vm);
        if host.domains()[&vm].phase == Phase::PullingIn {
            host.tear(now, vm);
        }
        if host.status(vm).state == DomainState::MigratingOut
            && host.domains()[&vm].phase == Phase::Sending
        {
            host.give_up_send(now, vm, "the hypervisor was restarted during the transfer");
        }
    }
    Ok(host.domains().clone())
}

/// Returns the file of what is on the persistent memory, beside that of the guests.
fn contents_file(state_file: &Path) -> PathBuf {
    state_file.with_extension("pmem")
}

fn load_contents(state_file: Option<&Path>) -> Result<Contents, StartError> {
    let Some(path) = state_file.map(contents_file) else {
        return Ok(Contents::default());
    };
    let read = match std::fs::read(&path) {
        Ok(json) => serde_json::from_slice(&json).map_err(io::Error::from),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Contents::default()),
        Err(error) => Err(error),
    };
    read.map_err(|source| StartError::State { path, source })
}

fn save(path: &Path, value: &impl serde::Serialize) -> Result<(), Error> {
    let json = serde_json::to_vec(value).expect("plain data");
    let mut aside = path.as_os_str().to_owned();
    aside.push(".new");
    // No sync: these guests outlive the process, not the machine.
    std::fs::write(&aside, json)
        .and_then(|()| std::fs::rename(&aside, path))
        .map_err(|error| Error::Unreachable {
            message: format!("{} cannot be written: {error}", path.display()),
        })
}
