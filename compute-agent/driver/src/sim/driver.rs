//! One simulated hypervisor in a real process: guests in memory, and in a file where one is
//! named, real time, and transfers over TCP to another process or another driver of this one.
//!
//! Invariant: a guest is marked as switching, in the file too, before the other side is told to
//! let it go; after that only the other side's word ends it here, however often it must be asked.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use berth_domain::agent::{DomainState, DomainStatus};
use berth_domain::id::{ClaimId, TimeMs, VmUid};
use berth_domain::topology::HostTopology;
use berth_domain::transfer::DiskCopy;

use super::host::{Domain, Host, Phase};
use super::progress::Underway;
use super::story::Story;
use super::wire::{self, Message};
use crate::domain::{DomainSpec, Draft, Force, Known, Other, Sending};
use crate::driver::{Chunk, Driver, FreePages, Info};
use crate::error::Error;

/// How long one side waits for a word of the other.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a source says that it is still sending.
const PROGRESS_PERIOD: Duration = Duration::from_millis(200);

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
    /// A file that tells what happens to it beside; see `story`.
    pub story_file: Option<PathBuf>,
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
            story_file: None,
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

struct Shared {
    state: Mutex<State>,
    /// Woken when something is to be aborted or everything to stop.
    changed: Condvar,
    state_file: Option<PathBuf>,
    transfer: Duration,
}

struct State {
    host: Host,
    aborts: BTreeSet<VmUid>,
    /// How far the transfers are that go out from here.
    underway: BTreeMap<VmUid, Underway>,
    incoming: usize,
    stopping: bool,
    story: Option<Story>,
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
                | Phase::Stopped => None,
            })
            .collect();
        let listen_error = |source| StartError::Listen {
            address: config.listen,
            source,
        };
        let listener = TcpListener::bind(config.listen).map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                host: Host::with_domains(config.topology, domains),
                aborts: BTreeSet::new(),
                underway: BTreeMap::new(),
                incoming: 0,
                stopping: false,
                story: config.story_file.map(Story::new),
            }),
            changed: Condvar::new(),
            state_file: config.state_file,
            transfer: config.transfer,
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
            migration_uri: self.migration_uri.clone(),
        })
    }

    fn create(&self, domain: &DomainSpec) -> Result<(), Error> {
        self.shared.change(|host| host.create(now(), domain))
    }

    fn destroy(&self, vm: VmUid) -> Result<(), Error> {
        self.shared.change(|host| host.destroy(vm))
    }

    fn domain(&self, vm: VmUid) -> Result<DomainStatus, Error> {
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

    fn prepare_incoming(&self, domain: &DomainSpec, _copies: &[DiskCopy]) -> Result<(), Error> {
        self.shared.change(|host| host.prepare(now(), domain))
    }

    fn cancel_incoming(&self, vm: VmUid) -> Result<(), Error> {
        self.shared.change(|host| host.cancel(vm))
    }

    fn forget_incoming(&self, vm: VmUid) -> Result<(), Error> {
        self.cancel_incoming(vm)
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
        self.shared.change(|host| host.start(now(), domain))
    }

    fn make_disks(&self, domain: &DomainSpec) -> Result<(), Error> {
        self.shared.change(|host| host.make_disks(domain.uid))
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
        Ok(self.shared.lock().host.free_pages())
    }

    fn console_read(&self, vm: VmUid, offset: u64) -> Result<Chunk, Error> {
        let mut state = self.shared.lock();
        Ok(state.host.console(vm)?.read(now(), offset))
    }

    fn console_write(&self, vm: VmUid, bytes: &[u8]) -> Result<(), Error> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.shared
            .change(|host| host.console(vm).map(|c| c.input(now(), &text)))
    }

    fn others(&self) -> Result<Vec<Other>, Error> {
        self.shared.go_on()?;
        Ok(self.shared.lock().host.others().to_vec())
    }

    fn evict(&self, vm: VmUid, claim: ClaimId) -> Result<(), Error> {
        self.shared.change(|host| host.evict(vm, claim))
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
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is a single assignment or a pure transition: a panic of
        // another holder leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets happen what the story tells.
    fn go_on(&self) -> Result<(), Error> {
        let mut state = self.lock();
        let Some(mut story) = state.story.take() else {
            return Ok(());
        };
        let result = story.go_on(now(), &mut state.host);
        state.story = Some(story);
        save(self.state_file.as_deref(), state.host.domains())?;
        result
    }

    /// Changes the host and keeps the change.
    fn change<T>(&self, change: impl FnOnce(&mut Host) -> Result<T, Error>) -> Result<T, Error> {
        let mut state = self.lock();
        let result = change(&mut state.host);
        save(self.state_file.as_deref(), state.host.domains())?;
        result
    }

    fn migrate(
        &self,
        vm: VmUid,
        uri: &str,
        destination: &DomainSpec,
        sending: &Sending,
    ) -> Result<(), Error> {
        self.change(|host| host.begin_send(vm))?;
        {
            let mut state = self.lock();
            state.aborts.remove(&vm);
            let underway = Underway::begin(now(), self.transfer, destination, sending);
            state.underway.insert(vm, underway);
        }
        let sent = self.send(vm, uri, destination);
        let switching = {
            let state = self.lock();
            let phase = state.host.domains().get(&vm).map(|d| d.phase.clone());
            matches!(phase, Some(Phase::Switching { .. }))
        };
        match sent {
            Ok(()) => self.change(|host| {
                host.depart(vm);
                Ok(())
            }),
            Err(_) if switching => self.resolve(vm, uri),
            Err(error) => {
                let message = error.to_string();
                self.change(|host| {
                    host.give_up_send(now(), vm, &message);
                    Ok(())
                })?;
                Err(error)
            }
        }
    }

    /// Carries a transfer up to the other side's word that the guest runs there.
    fn send(&self, vm: VmUid, uri: &str, destination: &DomainSpec) -> Result<(), Error> {
        let broke = |error: io::Error| Error::refused(format!("the transfer broke: {error}"));
        let mut stream = dial(uri)?;
        let offer = Message::Offer {
            domain: Box::new(destination.clone()),
        };
        wire::send(&mut stream, &offer).map_err(broke)?;
        let answer = wire::receive(&mut stream).map_err(broke)?;
        if let Message::Refused { message } = answer {
            return Err(Error::Refused { message });
        }
        if answer != Message::Accepted {
            return Err(broke(unexpected(&answer)));
        }
        self.stream_memory(vm, &mut stream)?;
        let console = self.change(|host| host.switch(now(), vm, uri))?;
        let go = Message::Go {
            console: Box::new(console),
        };
        wire::send(&mut stream, &go).map_err(broke)?;
        let answer = wire::receive(&mut stream).map_err(broke)?;
        if answer != Message::Arrived {
            return Err(broke(unexpected(&answer)));
        }
        Ok(())
    }

    /// Says that it goes on until the transfer has taken its time, or is to be broken off.
    fn stream_memory(&self, vm: VmUid, stream: &mut TcpStream) -> Result<(), Error> {
        loop {
            let state = self.lock();
            let left = state
                .underway
                .get(&vm)
                .map_or(Duration::ZERO, |u| u.left(now()));
            let (mut state, _) = self
                .changed
                .wait_timeout_while(state, left.min(PROGRESS_PERIOD), |s| {
                    let forced = s.underway.get(&vm).is_none_or(Underway::is_forced);
                    !s.stopping && !s.aborts.contains(&vm) && !forced
                })
                .unwrap_or_else(PoisonError::into_inner);
            if state.aborts.remove(&vm) {
                return Err(Error::Aborted { vm });
            }
            if state.stopping {
                return Err(Error::refused("this hypervisor is being stopped"));
            }
            let left = state
                .underway
                .get(&vm)
                .map_or(Duration::ZERO, |u| u.left(now()));
            drop(state);
            wire::send(stream, &Message::Progress)
                .map_err(|error| Error::refused(format!("the transfer broke: {error}")))?;
            if left.is_zero() {
                return Ok(());
            }
        }
    }

    /// Asks the other side until it says what became of a guest that was being switched.
    fn resolve(&self, vm: VmUid, uri: &str) -> Result<(), Error> {
        loop {
            match query(vm, uri) {
                Ok(DomainState::Running | DomainState::MigratingOut | DomainState::Stopped) => {
                    return self.change(|host| {
                        host.depart(vm);
                        Ok(())
                    });
                }
                Ok(DomainState::Absent | DomainState::Prepared) => {
                    let why = "the destination did not get the guest";
                    self.change(|host| {
                        host.give_up_send(now(), vm, why);
                        Ok(())
                    })?;
                    return Err(Error::refused(why));
                }
                // It has not noticed yet that the connection broke, or cannot be asked.
                Ok(
                    DomainState::MigratingIn
                    | DomainState::Starting
                    | DomainState::Paused
                    | DomainState::PostCopyBroken,
                )
                | Err(_) => {}
            }
            let state = self.lock();
            let (state, _) = self
                .changed
                .wait_timeout_while(state, PROGRESS_PERIOD, |s| !s.stopping)
                .unwrap_or_else(PoisonError::into_inner);
            let released = !state.host.domains().contains_key(&vm);
            if state.stopping || released {
                return Err(Error::Unreachable {
                    message: format!("{uri} did not say whether guest {vm} arrived"),
                });
            }
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

    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        prepare(&stream)?;
        let first = wire::receive(&mut stream)?;
        if let Message::Query { vm } = first {
            let state = self.lock().host.status(vm).state;
            return wire::send(&mut stream, &Message::Has { state });
        }
        let Message::Offer { domain } = first else {
            return Err(unexpected(&first));
        };
        if let Err(error) = self.change(|host| host.begin_receive(&domain)) {
            let message = error.to_string();
            return wire::send(&mut stream, &Message::Refused { message });
        }
        let vm = domain.uid;
        let received = self.receive(vm, &mut stream);
        if received.is_err() {
            let _ = self.change(|host| {
                host.give_up_receive(vm);
                Ok(())
            });
        }
        received
    }

    fn receive(&self, vm: VmUid, stream: &mut TcpStream) -> io::Result<()> {
        wire::send(stream, &Message::Accepted)?;
        let mut message = Message::Progress;
        while message == Message::Progress {
            message = wire::receive(stream)?;
        }
        let Message::Go { console } = message else {
            return Err(unexpected(&message));
        };
        self.change(|host| host.arrive(now(), vm, *console))
            .map_err(io::Error::other)?;
        // The guest runs here: whether the other side hears it does not matter.
        let _ = wire::send(stream, &Message::Arrived);
        Ok(())
    }
}

fn unexpected(message: &Message) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{message:?} was not expected"),
    )
}

fn now() -> TimeMs {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    TimeMs(u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX))
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SOCKET_TIMEOUT))?;
    stream.set_write_timeout(Some(SOCKET_TIMEOUT))
}

fn dial(uri: &str) -> Result<TcpStream, Error> {
    let no_route = |why: String| Error::refused(format!("{uri} cannot be reached: {why}"));
    let address = uri
        .strip_prefix("sim+tcp://")
        .ok_or_else(|| no_route("it does not begin with sim+tcp://".to_owned()))?;
    let address = address
        .to_socket_addrs()
        .map_err(|error| no_route(error.to_string()))?
        .next()
        .ok_or_else(|| no_route("it has no address".to_owned()))?;
    let stream = TcpStream::connect_timeout(&address, SOCKET_TIMEOUT)
        .map_err(|error| no_route(error.to_string()))?;
    prepare(&stream).map_err(|error| no_route(error.to_string()))?;
    Ok(stream)
}

fn query(vm: VmUid, uri: &str) -> Result<DomainState, Error> {
    let broke = |error: io::Error| Error::refused(error.to_string());
    let mut stream = dial(uri)?;
    wire::send(&mut stream, &Message::Query { vm }).map_err(broke)?;
    let answer = wire::receive(&mut stream).map_err(broke)?;
    let Message::Has { state } = answer else {
        return Err(broke(unexpected(&answer)));
    };
    Ok(state)
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
        if host.status(vm).state == DomainState::MigratingOut
            && host.domains()[&vm].phase == Phase::Sending
        {
            host.give_up_send(now, vm, "the hypervisor was restarted during the transfer");
        }
    }
    Ok(host.domains().clone())
}

fn save(path: Option<&Path>, domains: &BTreeMap<VmUid, Domain>) -> Result<(), Error> {
    let Some(path) = path else { return Ok(()) };
    let domains: Vec<_> = domains.values().collect();
    let json = serde_json::to_vec(&domains).expect("plain data");
    let aside = path.with_extension("new");
    // No sync: these guests outlive the process, not the machine.
    std::fs::write(&aside, json)
        .and_then(|()| std::fs::rename(&aside, path))
        .map_err(|error| Error::Unreachable {
            message: format!("{} cannot be written: {error}", path.display()),
        })
}
