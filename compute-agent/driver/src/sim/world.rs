//! Many simulated hypervisors under a virtual clock.
//!
//! Goal: the simulator and the agent's tests run whole boots and migrations against it, with
//! every fault that real hypervisors show, repeatably. A request is begun at one moment and
//! completes at a later one; between them hosts may crash and the paths between them be cut.
//!
//! Invariant: the same calls at the same times give the same completions in the same order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use berth_domain::agent::DomainState;
use berth_domain::id::{TimeMs, VmUid};
use berth_domain::name::{HostName, VmName};
use berth_domain::pmem::PmemDevice;
use berth_domain::topology::HostTopology;

use super::console::Console;
use super::host::{Host, Phase};
use super::progress::Underway as Sent;
use super::script::Behaviour;
use super::travel::Disks;
use crate::domain::{DomainSpec, Force, Known, Sending};
use crate::error::Error;
use crate::request::{Answer, Kind, Request, Token};

/// How long things take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// From the begin of a request to its effect.
    pub latency_ms: u64,
    /// From the begin of a transfer to the switch.
    pub transfer_ms: u64,
    /// From the switch until the guest runs on the destination, and as long again until it is
    /// gone from the source.
    pub switch_ms: u64,
    /// Until a call that is scripted to time out does.
    pub timeout_ms: u64,
    /// Between two attempts to reach the other side during a switch.
    pub retry_ms: u64,
    /// To erase one namespace of persistent memory.
    pub erase_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            latency_ms: 5,
            transfer_ms: 1_000,
            switch_ms: 20,
            timeout_ms: 10_000,
            retry_ms: 200,
            erase_ms: 400,
        }
    }
}

/// The end of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The host of the request.
    pub host: HostName,
    /// The request's token.
    pub token: Token,
    /// Its result.
    pub result: Result<Answer, Error>,
}

/// One hypervisor, and which run of its agent is listening.
#[derive(Clone, Debug)]
struct Node {
    host: Host,
    /// Results for an earlier run of the agent are dropped.
    listener: u64,
    scripts: BTreeMap<Kind, VecDeque<Behaviour>>,
    /// When the erasing of namespaces ends that has begun: one after the other, also by several runs
    /// of the agent.
    erased_at: TimeMs,
}

/// The caller.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) host: HostName,
    listener: u64,
    token: Token,
}

/// A guest on its way.
#[derive(Clone, Debug)]
struct Transfer {
    id: u64,
    underway: Sent,
    destination: HostName,
    destination_uri: String,
    caller: Caller,
    /// Set from the switch on.
    console: Option<Console>,
    /// The guest was let go on the destination.
    arrived: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Execute {
        caller: Caller,
        request: Request,
        behaviour: Behaviour,
    },
    Answer {
        caller: Caller,
        result: Result<Answer, Error>,
    },
    /// Namespaces are erased.
    Erased {
        caller: Caller,
        devices: Vec<PmemDevice>,
    },
    /// Takes the next step of a transfer: of this guest, from this host, if it is still the one of
    /// this id. Which step that is, the transfer knows.
    Move(HostName, VmUid, u64),
    /// The disks of this guest have come to this host, if the fetch is still the one of this id.
    Fetched(HostName, VmUid, u64),
}

/// Many hypervisors.
#[derive(Clone, Debug)]
pub struct World {
    pub(super) settings: Settings,
    nodes: BTreeMap<HostName, Node>,
    /// By source and guest.
    transfers: BTreeMap<(HostName, VmUid), Transfer>,
    /// By due time and order of scheduling.
    steps: BTreeMap<(TimeMs, u64), Step>,
    pub(super) next: u64,
    /// Pairs of hosts between which no guest memory flows, the lesser name first.
    pub(super) cuts: BTreeSet<(HostName, HostName)>,
    pub(super) disks: Disks,
}

impl World {
    /// Returns a world without hosts.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            nodes: BTreeMap::new(),
            transfers: BTreeMap::new(),
            steps: BTreeMap::new(),
            next: 0,
            cuts: BTreeSet::new(),
            disks: Disks::default(),
        }
    }

    /// Adds a host without guests.
    pub fn add_host(&mut self, name: HostName, topology: Arc<HostTopology>) {
        let node = Node {
            host: Host::new(topology),
            listener: 0,
            scripts: BTreeMap::new(),
            erased_at: TimeMs(0),
        };
        self.nodes.insert(name, node);
    }

    /// Returns where other hosts of this world send guests to.
    #[must_use]
    pub fn migration_uri(host: &HostName) -> String {
        format!("sim://{host}")
    }

    /// Lets the next calls of this kind to this host go as scripted, in order.
    pub fn script(
        &mut self,
        host: &HostName,
        kind: Kind,
        behaviours: impl IntoIterator<Item = Behaviour>,
    ) {
        let node = self.nodes.get_mut(host).expect("a host of this world");
        node.scripts.entry(kind).or_default().extend(behaviours);
    }

    /// Begins a request of the host's agent.
    pub fn begin(&mut self, now: TimeMs, host: &HostName, token: Token, request: Request) {
        let node = self.nodes.get_mut(host).expect("a host of this world");
        let behaviour = node
            .scripts
            .get_mut(&request.kind())
            .and_then(VecDeque::pop_front)
            .unwrap_or(Behaviour::Normal);
        let caller = Caller {
            host: host.clone(),
            listener: node.listener,
            token,
        };
        let extra = match behaviour {
            Behaviour::Late { by_ms } => by_ms,
            Behaviour::Normal
            | Behaviour::Refuse(_)
            | Behaviour::Gone { .. }
            | Behaviour::TimeOut { .. }
            | Behaviour::Repeat
            | Behaviour::LateAnswer { .. } => 0,
        };
        let step = Step::Execute {
            caller,
            request,
            behaviour,
        };
        self.after(now, self.settings.latency_ms + extra, step);
    }

    /// Returns when something happens next.
    #[must_use]
    pub fn next_at(&self) -> Option<TimeMs> {
        self.steps.keys().next().map(|(at, _)| *at)
    }

    /// Lets everything happen that is due, and returns what was completed by it.
    pub fn advance(&mut self, now: TimeMs) -> Vec<Completion> {
        let mut completions = Vec::new();
        while let Some(entry) = self.steps.first_entry()
            && entry.key().0 <= now
        {
            let ((at, _), step) = entry.remove_entry();
            self.run(at, step, &mut completions);
        }
        completions
    }

    /// The host's agent is gone: the results of its requests are dropped, but they are carried out.
    pub fn forget_asker(&mut self, host: &HostName) {
        self.nodes
            .get_mut(host)
            .expect("a host of this world")
            .listener += 1;
        for (caller, error) in self.disks.agent_gone(host) {
            let result = Err(error);
            // At the moment at which whatever is under way goes on.
            let now = self.steps.keys().next().map_or(TimeMs(0), |(at, _)| *at);
            self.after(now, 0, Step::Answer { caller, result });
        }
    }

    /// The machine crashes: its guests are gone, and what was on its way breaks.
    pub fn crash_host(&mut self, now: TimeMs, host: &HostName) {
        self.forget_asker(host);
        let node = self.nodes.get_mut(host).expect("a host of this world");
        let contents = node.host.pmem().clone();
        node.host = Host::new(node.host.topology().clone());
        node.host.set_pmem(contents);
        node.scripts.clear();
        node.erased_at = TimeMs(0);
        let leaving: Vec<_> = self
            .transfers
            .keys()
            .filter(|(source, _)| source == host)
            .cloned()
            .collect();
        for key in leaving {
            let transfer = self.transfers.remove(&key).expect("listed above");
            if let Some(node) = self.nodes.get_mut(&transfer.destination) {
                node.host.give_up_receive(key.1);
            }
        }
        // Steps that act on this host alone are lost with it.
        self.steps.retain(|_, step| match step {
            Step::Execute { caller, .. }
            | Step::Answer { caller, .. }
            | Step::Erased { caller, .. } => caller.host != *host,
            Step::Move(..) | Step::Fetched(..) => true,
        });
        let coming: Vec<_> = self
            .transfers
            .iter()
            .filter(|(_, t)| t.destination == *host)
            .map(|(key, t)| (key.clone(), t.id))
            .collect();
        for ((source, vm), id) in coming {
            self.after(now, 1, Step::Move(source, vm, id));
        }
    }

    /// Cuts the path on which guests move between two hosts.
    pub fn cut(&mut self, a: &HostName, b: &HostName) {
        self.cuts.insert(pair(a, b));
    }

    /// Heals the path between two hosts.
    pub fn heal(&mut self, a: &HostName, b: &HostName) {
        self.cuts.remove(&pair(a, b));
    }

    /// Lets a running guest crash.
    pub fn crash_guest(&mut self, now: TimeMs, host: &HostName, vm: VmUid) {
        if let Some(node) = self.nodes.get_mut(host) {
            node.host.crash(now, vm);
        }
    }

    /// Returns the guests of a host, as its agent reads them when it starts.
    #[must_use]
    pub fn known(&self, host: &HostName) -> Vec<Known> {
        self.nodes
            .get(host)
            .map_or_else(Vec::new, |node| node.host.known())
    }

    /// Returns a host's hypervisor, for looking.
    #[must_use]
    pub fn host(&self, host: &HostName) -> Option<&Host> {
        self.nodes.get(host).map(|node| &node.host)
    }

    /// Returns the hosts on which a guest executes: never more than one.
    #[must_use]
    pub fn executing(&self, vm: VmUid) -> Vec<&HostName> {
        self.nodes
            .iter()
            .filter(|(_, node)| {
                matches!(
                    node.host.domains().get(&vm).map(|d| &d.phase),
                    Some(Phase::Running | Phase::Sending)
                )
            })
            .map(|(name, _)| name)
            .collect()
    }

    /// Checks what must never be: a guest that executes twice, or a dedicated CPU with two guests.
    ///
    /// # Errors
    ///
    /// The first violation, as text.
    pub fn check(&self) -> Result<(), String> {
        let mut runs: BTreeMap<VmUid, &HostName> = BTreeMap::new();
        for (name, node) in &self.nodes {
            if let Some(leak) = node.host.pmem().leaks().first() {
                return Err(format!("{name}: {leak}"));
            }
            let mut owners: BTreeMap<_, &VmName> = BTreeMap::new();
            let mut holders: BTreeMap<_, &VmName> = BTreeMap::new();
            for (uid, domain) in node.host.domains() {
                if matches!(domain.phase, Phase::Running | Phase::Sending)
                    && let Some(other) = runs.insert(*uid, name)
                {
                    return Err(format!(
                        "guest {} executes on {other} and on {name}",
                        domain.spec.vm
                    ));
                }
                if !domain.holds_memory() {
                    continue;
                }
                for cpu in domain.spec.assignment.dedicated().iter() {
                    if let Some(other) = owners.insert(cpu, &domain.spec.vm) {
                        return Err(format!(
                            "CPU {cpu} of {name} is given to {other} and to {}",
                            domain.spec.vm
                        ));
                    }
                }
                for address in domain.spec.assignment.pci.iter().flatten() {
                    if let Some(other) = holders.insert(*address, &domain.spec.vm) {
                        return Err(format!(
                            "PCI function {address} of {name} is given to {other} and to {}",
                            domain.spec.vm
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn after(&mut self, now: TimeMs, delay_ms: u64, step: Step) {
        self.next += 1;
        self.steps
            .insert((TimeMs(now.0 + delay_ms), self.next), step);
    }

    fn run(&mut self, now: TimeMs, step: Step, completions: &mut Vec<Completion>) {
        match step {
            Step::Execute {
                caller,
                request,
                behaviour,
            } => self.execute(now, caller, request, behaviour, completions),
            Step::Answer { caller, result } => self.answer(caller, result, completions),
            Step::Erased { caller, devices } => {
                let node = self.nodes.get_mut(&caller.host);
                let host = &mut node.expect("a host of this world").host;
                for device in &devices {
                    host.erase(&device.name);
                }
                self.answer(caller, Ok(Answer::Done), completions);
            }
            Step::Move(source, vm, id) => self.proceed(now, source, vm, id, completions),
            Step::Fetched(host, vm, id) => self.fetched(&host, vm, id, completions),
        }
    }

    pub(super) fn answer(
        &self,
        caller: Caller,
        result: Result<Answer, Error>,
        completions: &mut Vec<Completion>,
    ) {
        let listens = self
            .nodes
            .get(&caller.host)
            .is_some_and(|n| n.listener == caller.listener);
        if listens {
            completions.push(Completion {
                host: caller.host,
                token: caller.token,
                result,
            });
        }
    }

    fn execute(
        &mut self,
        now: TimeMs,
        caller: Caller,
        request: Request,
        behaviour: Behaviour,
        completions: &mut Vec<Completion>,
    ) {
        let timed_out = Err(Error::TimedOut {
            attempted: "answer",
        });
        let gone = Err(Error::Unreachable {
            message: "the connection broke".to_owned(),
        });
        match behaviour {
            Behaviour::Normal | Behaviour::Late { .. } => {
                if let Some(result) = self.perform(now, &caller, request) {
                    self.answer(caller, result, completions);
                }
            }
            Behaviour::Refuse(message) => {
                self.answer(caller, Err(Error::Refused { message }), completions);
            }
            Behaviour::Gone { effect } => {
                if effect {
                    let no_listener = self.no_listener(&caller);
                    self.perform(now, &no_listener, request);
                }
                self.answer(caller, gone, completions);
            }
            Behaviour::TimeOut { effect } => {
                if effect {
                    let no_listener = self.no_listener(&caller);
                    self.perform(now, &no_listener, request);
                }
                let step = Step::Answer {
                    caller,
                    result: timed_out,
                };
                self.after(now, self.settings.timeout_ms, step);
            }
            Behaviour::Repeat => {
                let first = self.perform(now, &caller, request.clone());
                // A transfer replies when it ends; its repetition is what gets a reply now.
                let no_listener = self.no_listener(&caller);
                let second = match first {
                    Some(_) => self.perform(now, &caller, request),
                    None => {
                        self.perform(now, &no_listener, request);
                        None
                    }
                };
                if let Some(result) = second {
                    self.answer(caller, result, completions);
                }
            }
            Behaviour::LateAnswer { by_ms } => {
                if let Some(result) = self.perform(now, &caller, request) {
                    self.after(now, by_ms, Step::Answer { caller, result });
                }
            }
        }
    }

    /// An asker that no longer listens.
    fn no_listener(&self, caller: &Caller) -> Caller {
        Caller {
            listener: u64::MAX,
            ..caller.clone()
        }
    }

    /// Does a request; nothing comes back yet from a transfer that began.
    fn perform(
        &mut self,
        now: TimeMs,
        caller: &Caller,
        request: Request,
    ) -> Option<Result<Answer, Error>> {
        let done = |()| Answer::Done;
        if let Some(refused) = self.look_at_disks(caller, &request) {
            return Some(Err(refused));
        }
        let host = &mut self
            .nodes
            .get_mut(&caller.host)
            .expect("a host of this world")
            .host;
        let result = match request {
            Request::Create(spec) => {
                let created = host.create(now, &spec).map(done);
                if created.is_ok() {
                    self.disks.made(&caller.host, &spec);
                }
                created
            }
            Request::Destroy(vm) => {
                let destroyed = host.destroy(vm).map(done);
                if destroyed.is_ok() {
                    self.disks.removed(&caller.host, vm);
                }
                destroyed
            }
            Request::Domain(vm) => {
                let mut status = host.status(vm);
                let key = (caller.host.clone(), vm);
                status.progress = self.transfers.get(&key).map(|t| t.underway.progress(now));
                Ok(Answer::Status(status))
            }
            Request::Domains => Ok(Answer::Domains(host.known())),
            Request::Prepare { domain, .. } => host.prepare(now, &domain).map(done),
            Request::Cancel(vm) | Request::Forget(vm) => host.cancel(vm).map(done),
            Request::Release(vm) => host.release(vm).map(done),
            Request::CheckTls(_) => Ok(Answer::Done),
            Request::CheckPeer(_, uri) => self.peer(&caller.host, &uri).map(|_| Answer::Done),
            Request::FreePages => Ok(Answer::FreePages(host.free_pages())),
            Request::Shutdown(vm) => host.shutdown(now, vm).map(done),
            Request::Stop(vm) => host.stop(vm).map(done),
            Request::Start(spec) => host.start(now, &spec).map(done),
            Request::Everything => {
                let others = host.others().to_vec();
                Ok(Answer::Everything(host.known(), others))
            }
            Request::Evict(vm, claim) => host.evict(vm, claim).map(done),
            Request::Erase(devices) => {
                self.begin_erasing(now, caller, devices);
                return None;
            }
            Request::Abort(vm) => self.abort(now, &caller.host, vm).map(done),
            Request::Force(vm, how) => self.force(now, &caller.host, vm, how).map(done),
            Request::MakeDisks(spec) => {
                self.disks.made(&caller.host, &spec);
                host.make_disks(spec.uid).map(done)
            }
            Request::FetchDisks(fetch) => match self.begin_fetch(now, caller, &fetch) {
                Ok(true) => return None,
                Ok(false) => Ok(Answer::Done),
                Err(error) => Err(error),
            },
            Request::StopFetch(vm) => {
                if let Some(fetcher) = self.disks.stop(&caller.host, vm) {
                    let result = Err(Error::Aborted { vm });
                    let caller = fetcher;
                    self.after(now, 0, Step::Answer { caller, result });
                }
                Ok(Answer::Done)
            }
            Request::DropDisks(vm, migration, side) => {
                self.disks.dropped(&caller.host, vm, migration, side);
                Ok(Answer::Done)
            }
            Request::CopyDisk {
                domain,
                disk,
                draft,
            } => host.copy_disk(&domain, disk, &draft).map(done),
            Request::PublishImage(draft) => host.publish_image(&draft).map(done),
            Request::DropImage(draft) => {
                let published = host.drop_image(&draft);
                Ok(Answer::Image { published })
            }
            Request::Migrate {
                vm,
                destination_uri,
                destination,
                sending,
            } => {
                match self.begin_transfer(
                    now,
                    caller,
                    vm,
                    destination_uri,
                    (&destination, &sending),
                ) {
                    Ok(()) => return None,
                    Err(error) => Err(error),
                }
            }
        };
        Some(result)
    }

    fn begin_erasing(&mut self, now: TimeMs, caller: &Caller, devices: Vec<PmemDevice>) {
        let takes_ms = self.settings.erase_ms * devices.len() as u64;
        let node = self.nodes.get_mut(&caller.host);
        let node = node.expect("a host of this world");
        node.erased_at = TimeMs(now.0.max(node.erased_at.0) + takes_ms);
        let delay_ms = node.erased_at.0 - now.0;
        let caller = caller.clone();
        self.after(now, delay_ms, Step::Erased { caller, devices });
    }

    fn begin_transfer(
        &mut self,
        now: TimeMs,
        caller: &Caller,
        vm: VmUid,
        destination_uri: String,
        (spec, sending): (&DomainSpec, &Sending),
    ) -> Result<(), Error> {
        let source = caller.host.clone();
        self.node(&source).begin_send(vm)?;
        let received = self
            .peer(&source, &destination_uri)
            .and_then(|name| self.node(&name).begin_receive(spec).map(|()| name));
        let destination = match received {
            Ok(destination) => destination,
            Err(error) => {
                let message = error.to_string();
                self.node(&source).give_up_send(now, vm, &message);
                return Err(Error::Refused { message });
            }
        };
        self.next += 1;
        let id = self.next;
        let least = Duration::from_millis(self.settings.transfer_ms);
        let underway = Sent::begin(now, least, spec, sending);
        let takes_ms = u64::try_from(underway.left(now).as_millis()).unwrap_or(u64::MAX);
        let transfer = Transfer {
            id,
            underway,
            destination,
            destination_uri,
            caller: caller.clone(),
            console: None,
            arrived: false,
        };
        self.transfers.insert((source.clone(), vm), transfer);
        let step = Step::Move(source, vm, id);
        self.after(now, takes_ms, step);
        Ok(())
    }

    /// Returns the host at a URI, if it can be reached from another one.
    fn peer(&self, from: &HostName, uri: &str) -> Result<HostName, Error> {
        let name = uri.strip_prefix("sim://");
        let name = name.and_then(|name| HostName::new(name).ok());
        let reachable = |to: &HostName| {
            to != from && self.nodes.contains_key(to) && !self.cuts.contains(&pair(from, to))
        };
        name.filter(reachable)
            .ok_or_else(|| Error::refused(format!("no route to {uri}")))
    }

    fn node(&mut self, host: &HostName) -> &mut Host {
        &mut self.nodes.get_mut(host).expect("a host of this world").host
    }

    pub(super) fn state(&self, host: &HostName, vm: VmUid) -> DomainState {
        self.nodes
            .get(host)
            .map_or(DomainState::Absent, |n| n.host.status(vm).state)
    }

    fn abort(&mut self, now: TimeMs, source: &HostName, vm: VmUid) -> Result<(), Error> {
        let Some(transfer) = self.transfers.get(&(source.clone(), vm)) else {
            return Ok(());
        };
        if transfer.underway.is_post_copy() {
            return Err(Error::WrongState {
                vm,
                state: DomainState::MigratingOut,
                attempted: "stop the post-copy of",
            });
        }
        if transfer.console.is_none() {
            self.fail(now, source, vm, Error::Aborted { vm });
        }
        Ok(())
    }

    /// Has a transfer that has not come to its switch do so at once.
    fn force(
        &mut self,
        now: TimeMs,
        source: &HostName,
        vm: VmUid,
        how: Force,
    ) -> Result<(), Error> {
        self.next += 1;
        let id = self.next;
        let Some(transfer) = self.transfers.get_mut(&(source.clone(), vm)) else {
            return Ok(());
        };
        if transfer.console.is_some() || transfer.underway.is_forced() {
            return Ok(());
        }
        transfer.underway.force(vm, how)?;
        // The step that was to come at the end of its time is no longer its own.
        transfer.id = id;
        let step = Step::Move(source.clone(), vm, id);
        self.after(now, self.settings.latency_ms, step);
        Ok(())
    }

    /// Ends a transfer with the guest running on the source.
    fn fail(&mut self, now: TimeMs, source: &HostName, vm: VmUid, error: Error) {
        let Some(transfer) = self.transfers.remove(&(source.clone(), vm)) else {
            return;
        };
        self.node(source).give_up_send(now, vm, &error.to_string());
        self.node(&transfer.destination).give_up_receive(vm);
        let step = Step::Answer {
            caller: transfer.caller,
            result: Err(error),
        };
        self.after(now, 0, step);
    }

    /// Takes the next step of a transfer. A destination that crashed on the way is met here again,
    /// and goes on where the transfer was.
    fn proceed(
        &mut self,
        now: TimeMs,
        source: HostName,
        vm: VmUid,
        id: u64,
        completions: &mut Vec<Completion>,
    ) {
        let key = (source, vm);
        let Some(transfer) = self.transfers.get(&key).filter(|t| t.id == id) else {
            return;
        };
        let destination = transfer.destination.clone();
        let is_cut = self.cuts.contains(&pair(&key.0, &destination));
        match (transfer.console.clone(), transfer.arrived) {
            (None, _) => self.switch(now, key, id, &destination, is_cut),
            (Some(_), _) if is_cut => {
                let step = Step::Move(key.0, vm, id);
                self.after(now, self.settings.retry_ms, step);
            }
            (Some(console), false) => self.arrive(now, key, id, &destination, console),
            (Some(_), true) => {
                self.node(&key.0).depart(vm);
                let transfer = self.transfers.remove(&key).expect("seen above");
                self.disks.copied(&key.0, &transfer.destination, vm);
                self.answer(transfer.caller, Ok(Answer::Done), completions);
            }
        }
    }

    fn switch(
        &mut self,
        now: TimeMs,
        key: (HostName, VmUid),
        id: u64,
        destination: &HostName,
        is_cut: bool,
    ) {
        let (source, vm) = &key;
        let receives = self.state(destination, *vm) == DomainState::MigratingIn;
        if !receives || is_cut {
            let error = Error::refused(format!("the connection to {destination} broke"));
            return self.fail(now, source, *vm, error);
        }
        let uri = self.transfers[&key].destination_uri.clone();
        let console = match self.node(source).switch(now, *vm, &uri) {
            Ok(console) => console,
            Err(error) => return self.fail(now, source, *vm, error),
        };
        self.transfers.get_mut(&key).expect("seen above").console = Some(console);
        let step = Step::Move(key.0, key.1, id);
        self.after(now, self.settings.switch_ms, step);
    }

    fn arrive(
        &mut self,
        now: TimeMs,
        key: (HostName, VmUid),
        id: u64,
        destination: &HostName,
        console: Console,
    ) {
        match self.node(destination).arrive(now, key.1, console) {
            Ok(()) => {
                self.transfers.get_mut(&key).expect("seen above").arrived = true;
                let step = Step::Move(key.0, key.1, id);
                self.after(now, self.settings.switch_ms, step);
            }
            // The destination lost what it had received before the guest was let go there.
            Err(error) => self.fail(now, &key.0, key.1, Error::refused(error.to_string())),
        }
    }
}

pub(super) fn pair(a: &HostName, b: &HostName) -> (HostName, HostName) {
    if a < b {
        (a.clone(), b.clone())
    } else {
        (b.clone(), a.clone())
    }
}
