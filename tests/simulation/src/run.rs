//! One seed from beginning to end: a time of faults, a time of healing, and the verdict.

mod damage;
mod end;
mod membership;
mod power;
mod restore;
mod upgrade;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use berth_decide::{Action, DecisionRequest};
use berth_domain::id::{ClusterId, TimeMs};
use berth_domain::name::HostName;
use berth_domain::version::ServiceVersion;
use berth_driver::sim::{Settings, World};
use berth_replication::Machine as _;
use berth_scheduler::machine::{Level, Machine};
use berth_state::command::Command;
use berth_store::{Header, Member as MemberEntry, Membership, MemoryCopy, StateHash};

pub use self::damage::Seen;
use self::damage::{Damage, NOTICE_MS};
use crate::administrator::{Administration, Done};
use crate::agent::Agent;
use crate::asker::{Asker, Numbers, Out, Timer};
use crate::bug::Bug;
use crate::chance::Chance;
use crate::conductor::{Conductor, Context};
use crate::faults::{self, Fault};
use crate::member::{Member, Want, address_of};
use crate::network::Network;
use crate::packet::{Hello, Node, Packet, Question};
use crate::scene::{alias, flavors, topology};
use crate::user::User;
use crate::verdict::Verdict;
use crate::volumes::VolumeUser;
use crate::writer::Writers;

const MEMBERS: u64 = 3;
/// On how many machines members come and go.
const SITES: u64 = 5;
const CONDUCTORS: usize = 2;
const RAFT_TICK_MS: u64 = 100;
const AGENT_TICK_MS: u64 = 2_000;
/// When the virtual clock starts: some time in 2026.
const EPOCH_MS: u64 = 1_790_000_000_000;
/// How long a healed cluster may take to come to rest.
const REST_MS_MAX: u64 = 900_000;
/// How late a command of an administrator is lost.
const BROKEN_MS: u64 = 1_000;
/// How often something is wished of volumes.
const VOLUME_WISHES: u64 = 60;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Everything follows from it.
    pub seed: u64,
    /// How long faults happen.
    pub faults_ms: u64,
    /// What is planted.
    pub bug: Option<Bug>,
    /// Whether every event is printed.
    pub trace: bool,
    /// What all programs are in the beginning; if it is not the newest, they are exchanged for it
    /// one by one.
    pub from: ServiceVersion,
    /// Whether anything else goes wrong.
    pub has_faults: bool,
    /// Whether hosts have regions for volumes, and somebody wants some.
    pub has_volumes: bool,
    /// Whether clients write to resource providers through any member.
    pub has_writers: bool,
    /// Whether members are added, removed and replaced.
    pub has_membership: bool,
    /// Whether disks lose what they had synchronised.
    pub has_damage: bool,
    /// Whether the directory of a member is put back as it was, as a whole.
    pub has_rollback: bool,
    /// Whether all members are lost, and a new group begins with a state of before.
    pub has_restore: bool,
}

impl Options {
    /// Returns the usual options for a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            faults_ms: 60_000,
            bug: None,
            trace: false,
            from: ServiceVersion::CURRENT,
            has_faults: true,
            has_volumes: false,
            has_writers: false,
            has_membership: false,
            has_damage: false,
            has_rollback: false,
            has_restore: false,
        }
    }
}

impl Options {
    /// Returns on how many machines there may be members.
    fn sites(&self) -> u64 {
        match self.has_membership || self.has_damage {
            true => SITES,
            false => MEMBERS,
        }
    }

    /// Returns whether members are added and removed.
    fn has_administration(&self) -> bool {
        self.has_membership || self.has_damage || self.has_rollback
    }
}

/// What a run that held came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Events that happened.
    pub events: u64,
    /// Commands that were acknowledged.
    pub acknowledged: usize,
    /// Wishes that were granted.
    pub granted: usize,
    /// Migrations that brought their guest to another host.
    pub migrated: usize,
    /// Migrations that were refused or undone.
    pub stayed: usize,
    /// Why wishes were refused and operations failed, and how often.
    pub failed: BTreeMap<String, usize>,
    /// Wishes that were granted and uttered after the cluster version was raised.
    pub granted_afterwards: usize,
    /// The hash of the final state.
    pub hash: String,
    /// How many volumes were created, published or taken back, and deleted.
    pub volumes: [usize; 3],
    /// How many writes through any member were answered as done, as not done, and not at all.
    pub writes: [usize; 3],
    /// What administrators did.
    pub members: Done,
    /// What was seen of damaged disks.
    pub seen: Seen,
    /// How often a new group began with a state of before.
    pub recoveries: usize,
}

/// What a run found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// When, in milliseconds from the beginning.
    pub at_ms: u64,
    /// What did not hold.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {} failed at {} ms: {}",
            self.seed, self.at_ms, self.what
        )
    }
}

/// What happens.
#[derive(Debug)]
enum Event {
    Deliver(Node, Node, Packet),
    /// To a node in this life of it.
    Timer(Node, u64, Timer),
    RaftTick(u64, u64),
    Synced(u64, u64, u64),
    SnapshotSent(u64, u64, u64, bool),
    /// A checkpoint on its way: from, life of the sender, to, by machine.
    Snapshot(u64, u64, u64, Hello, Box<raft::eraftpb::Message>, Vec<u8>),
    AgentTick(usize, u64),
    World,
    Fault(Fault),
    Restart(Node),
    /// A node for the next program that is planned for it.
    Exchange(Node),
    /// The cluster version is raised, if nobody is behind.
    Finalize,
    Rejoin(Node),
    Mend(Node, Node),
    MendHosts(usize, usize),
    /// The user of volumes wishes for something.
    VolumeWish,
    /// An administrator goes on.
    Administer(usize),
    /// The directory of a machine is lost.
    LoseDirectory(u64),
    /// The disks are copied.
    CopyDisks,
    /// The disk of a machine loses power and what it had synchronised.
    Damage(u64, Damage),
    /// The disk of a machine is copied,
    KeepCopy(u64),
    /// and put back.
    PutBack(u64),
    /// The state is kept,
    KeepState,
    /// and a new group begins with it.
    LoseGroup,
    Heal,
}

struct Run {
    options: Options,
    now: u64,
    sequence: u64,
    queue: BTreeMap<(u64, u64), Event>,
    chance: Chance,
    numbers: Numbers,
    network: Network,
    members: Vec<Member>,
    conductors: Vec<Conductor>,
    agents: Vec<Agent>,
    hosts: Vec<HostName>,
    user: User,
    /// Wants volumes, where there are any.
    volume_user: VolumeUser,
    /// Writes through any member, where somebody does.
    writers: Writers,
    /// Makes flavors, as an operator would before anybody boots.
    operator: Asker<()>,
    world: World,
    verdict: Verdict,
    stalled: BTreeMap<Node, u64>,
    /// Until when the disks of members do not answer.
    held: BTreeMap<u64, u64>,
    /// Cuts under way, so that one mending does not mend another's.
    isolations: BTreeMap<Node, u32>,
    healed: bool,
    /// As what nodes will still be started anew.
    exchanges: BTreeMap<Node, VecDeque<ServiceVersion>>,
    /// When the cluster version was seen raised.
    finalized_at: Option<TimeMs>,
    events: u64,
    administration: Administration,
    /// The membership of the furthest member that ever was, and its index.
    latest_membership: (u64, Arc<Membership>),
    /// Copies of disks, by machine, the oldest first.
    copies: BTreeMap<u64, Vec<MemoryCopy>>,
    kept_copy: Option<MemoryCopy>,
    /// Damage has a source of its own, so that nothing else changes with it.
    damage_chance: Chance,
    /// Machines whose disks are damaged and were not started since.
    damaged: BTreeSet<u64>,
    /// The machine whose directory is put back.
    rolled_back: u64,
    /// Members that stopped because of another's word.
    stopped: BTreeSet<u64>,
    seen: Seen,
    kept_state: Option<restore::Kept>,
    /// Restores have a source of their own, so that nothing else changes with them.
    restore_chance: Chance,
    recoveries: usize,
    /// How far each machine's member applied what all others did.
    applied_at: BTreeMap<u64, u64>,
    healed_at: u64,
    /// Whether a member noticed that there are two histories, which no program can choose between.
    is_over: bool,
}

/// Runs one seed.
///
/// # Errors
///
/// The first thing that did not hold.
pub fn run(options: Options) -> Result<Summary, Failure> {
    let mut run = Run::new(options);
    let result = run.all();
    result.map_err(|what| Failure {
        seed: options.seed,
        at_ms: run.now - EPOCH_MS,
        what,
    })
}

impl Run {
    fn new(options: Options) -> Self {
        let mut chance = Chance::new(options.seed);
        let sites = options.sites();
        let network = Network::new(&mut chance);
        let agents_number = chance.index(3) + 2;
        let hosts: Vec<HostName> = (0..agents_number)
            .map(|i| HostName::new(&format!("host{i}")).expect("a good name"))
            .collect();
        let settings = Settings {
            transfer_ms: chance.between(200, 4_000),
            ..Settings::default()
        };
        let mut world = World::new(settings);
        let mut agents = Vec::new();
        for host in &hosts {
            let topology = Arc::new(topology(&mut chance));
            world.add_host(host.clone(), topology.clone());
            // An agent that old reports no guests.
            let version = if chance.percent(10) && !options.has_restore {
                ServiceVersion::OLDEST
            } else {
                ServiceVersion::CURRENT
            };
            agents.push(Agent::new(
                host.clone(),
                topology,
                version,
                sites,
                &mut chance,
            ));
        }
        let cluster = chance.uuid().to_string();
        let mut members: Vec<Member> = (1..=MEMBERS)
            .map(|id| Member::new(id, &cluster, chance.uuid().to_string()))
            .collect();
        members.extend((MEMBERS + 1..=sites).map(|site| Member::nothing(site, &cluster)));
        for member in &mut members {
            member.is_among_changes = options.has_administration();
            member.keeps_log = options.has_rollback;
        }
        let names: Vec<_> = flavors().iter().map(|f| f.name.clone()).collect();
        let wishes = chance.index(20) + 8;
        let (user, outs) = User::new(
            wishes,
            options.faults_ms,
            CONDUCTORS,
            &hosts,
            &names,
            &mut chance,
        );
        let mut run = Self {
            options,
            now: EPOCH_MS,
            sequence: 0,
            queue: BTreeMap::new(),
            chance,
            numbers: Numbers::default(),
            network,
            members,
            conductors: (0..CONDUCTORS)
                .map(|i| Conductor::new(i, hosts.clone(), sites))
                .collect(),
            agents,
            hosts,
            user,
            volume_user: VolumeUser::new(sites, options.seed),
            writers: Writers::new(sites, options.seed),
            operator: Asker::new(sites),
            world,
            verdict: Verdict::default(),
            stalled: BTreeMap::new(),
            held: BTreeMap::new(),
            isolations: BTreeMap::new(),
            healed: false,
            exchanges: BTreeMap::new(),
            finalized_at: None,
            events: 0,
            administration: Administration::new(options.seed),
            latest_membership: (0, Arc::default()),
            copies: BTreeMap::new(),
            kept_copy: None,
            damage_chance: Chance::new(options.seed),
            damaged: BTreeSet::new(),
            rolled_back: 0,
            stopped: BTreeSet::new(),
            seen: Seen::default(),
            kept_state: None,
            restore_chance: Chance::new(options.seed),
            recoveries: 0,
            applied_at: BTreeMap::new(),
            healed_at: 0,
            is_over: false,
        };
        run.verdict.allows_two_histories = options.has_rollback;
        if options.has_volumes {
            run.agents.iter_mut().for_each(Agent::give_volumes);
        }
        run.prepare_disks(&cluster);
        run.out(Node::User, outs);
        run
    }

    /// Gives all members the checkpoint that a new cluster begins with.
    fn prepare_disks(&mut self, cluster: &str) {
        use berth_store::{CheckpointStore as _, Disk as _};

        let knows_disks = self.has_administration();
        let entries = self.members.iter().filter_map(|member| {
            let id = member.id()?;
            let disk = member.disk_id().filter(|_| knows_disks);
            Some(MemberEntry {
                id,
                address: address_of(id),
                disk: disk.unwrap_or_default().to_owned(),
                promote: false,
            })
        });
        let membership = Membership {
            voters: (1..=MEMBERS).collect(),
            members: entries.collect(),
            next_id: MEMBERS + 1,
            ..Membership::default()
        };
        self.latest_membership = (0, Arc::new(membership.clone()));
        for disk in self.members.iter().filter_map(Member::disk) {
            let parts = disk.split();
            assert!(
                parts.checkpoints.list().is_ok_and(|l| l.is_empty()),
                "a new disk is empty"
            );
            let machine = Machine::from_rows(Level::default(), std::iter::empty(), 1)
                .expect("an empty state");
            let rows: Vec<_> = machine.rows().collect();
            let header = Header {
                cluster_id: cluster.to_owned(),
                index: 1,
                term: 1,
                membership: membership.clone(),
                state_hash: StateHash::of_rows(rows.iter().cloned()).to_bytes().into(),
                rows: rows.len() as u64,
            };
            berth_store::checkpoints::save(&parts.checkpoints, header, rows.into_iter())
                .expect("memory takes all");
        }
    }

    fn all(&mut self) -> Result<Summary, String> {
        self.plan_upgrade();
        for id in 1..=MEMBERS {
            self.restart(Node::Member(id))?;
        }
        self.operate();
        for index in 0..CONDUCTORS {
            self.restart(Node::Conductor(index))?;
        }
        for index in 0..self.agents.len() {
            self.restart(Node::Agent(index))?;
        }
        let (faults_ms, agents) = (self.options.faults_ms, self.agents.len());
        let sites = self.sites();
        let faults = faults::plan(faults_ms, sites, CONDUCTORS, agents, &mut self.chance);
        if self.options.has_faults {
            for (at, fault) in faults {
                if self.happens(&fault) {
                    self.schedule(at, Event::Fault(fault));
                }
            }
        }
        self.plan_damage();
        self.plan_restores();
        if self.has_administration() {
            self.begin_administration();
        }
        self.schedule(faults_ms, Event::Heal);
        if self.options.has_volumes {
            let each = faults_ms / VOLUME_WISHES;
            (1..VOLUME_WISHES).for_each(|at| self.schedule(at * each, Event::VolumeWish));
        }
        if self.options.has_writers {
            for (writer, out) in self.writers.start() {
                self.out(Node::Writer(writer), vec![out]);
            }
        }
        self.work()?;
        self.finish()
    }

    /// Returns how many machines there are for members.
    fn sites(&self) -> u64 {
        self.options.sites()
    }

    fn has_administration(&self) -> bool {
        self.options.has_administration()
    }

    /// Returns whether a stream of a member may end otherwise than by its end of power.
    fn ends_streams(&self) -> bool {
        self.has_administration() || self.options.has_restore
    }

    /// Returns whether a planned fault happens. Where a directory is put back, the other members
    /// keep what they know: one that lost power may not know any more what it had committed.
    fn happens(&self, fault: &Fault) -> bool {
        let is_loss_of_power = matches!(
            fault,
            Fault::CrashMembers(_) | Fault::Crash(Node::Member(_), _)
        );
        !(self.options.has_rollback && is_loss_of_power)
    }

    /// Makes the flavors.
    fn operate(&mut self) {
        let cluster = ClusterId(self.chance.uuid());
        let raise = Command::FinalizeUpgrade {
            version: ServiceVersion::CURRENT,
            gone: BTreeSet::new(),
        };
        // As the first member of a new cluster does.
        let mut commands = vec![Command::Bootstrap { cluster }];
        if !self.is_upgrade() {
            commands.insert(0, raise);
        }
        commands.push(Command::CreatePciAlias(alias()));
        commands.extend(flavors().into_iter().map(Command::CreateFlavor));
        for command in commands {
            let ask = DecisionRequest::new("operator", Action::Plain(command));
            let outs = self
                .operator
                .ask(Question::Decide(ask), (), &mut self.numbers);
            self.out(Node::User, outs);
        }
    }

    fn schedule(&mut self, after_ms: u64, event: Event) {
        self.sequence += 1;
        self.queue
            .insert((self.now + after_ms, self.sequence), event);
    }

    /// Lets things happen until the cluster is at rest.
    fn work(&mut self) -> Result<(), String> {
        let end = self.now + self.options.faults_ms + REST_MS_MAX;
        while let Some(((at, _), event)) = self.queue.pop_first() {
            if at > end {
                return Err(format!(
                    "the cluster does not come to rest: {}",
                    self.unrest()
                ));
            }
            self.now = self.now.max(at);
            self.events += 1;
            if self.options.trace {
                println!("{:>9} {event:?}", self.now - EPOCH_MS);
            }
            self.happen(event)?;
            if self.is_over {
                return Ok(());
            }
            if self.verdict.split.is_some() {
                // What a quorum forgot, guests and hosts have not.
                self.seen.split = 1;
                if self.healed && self.now > self.healed_at + NOTICE_MS {
                    self.is_over = true;
                    return self.unnoticed();
                }
                continue;
            }
            self.verdict.guests(&self.world, &self.hosts)?;
            self.quorum_is_whole()?;
            if let Some(what) = self.agents.iter_mut().find_map(|a| a.violation.take()) {
                return Err(what);
            }
            if self.healed && self.events.is_multiple_of(256) && self.is_at_rest() {
                return Ok(());
            }
        }
        Err("nothing happens any more".to_owned())
    }

    fn now_ms(&self) -> TimeMs {
        TimeMs(self.now)
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        if let Some(until) = self
            .node_of(&event)
            .and_then(|n| self.stalled.get(&n))
            .copied()
            && until > self.now
        {
            self.schedule(until - self.now, event);
            return Ok(());
        }
        match event {
            Event::Deliver(from, to, packet) => self.deliver(from, to, packet),
            Event::Timer(node, life, timer) => self.timer(node, life, timer),
            Event::RaftTick(id, life) => self.raft_tick(id, life),
            Event::Synced(id, life, number) => {
                let (now, bug) = (self.now_ms(), self.options.bug);
                let member = &mut self.members[index(id)];
                if member.life != life {
                    return Ok(());
                }
                let wants = member.synced(now, number, &mut self.chance, bug)?;
                self.want(id, wants)
            }
            Event::Snapshot(from, life, to, hello, message, bytes) => {
                let receiver = message.to;
                let receives = self.members[index(to)].receives(receiver);
                let arrives = receives || !self.has_administration();
                let packet = Packet::Snapshot(hello, message, bytes);
                self.deliver(Node::Member(from), Node::Member(to), packet)?;
                self.schedule(1, Event::SnapshotSent(from, life, receiver, arrives));
                Ok(())
            }
            Event::SnapshotSent(id, life, to, arrived) => {
                let (now, bug) = (self.now_ms(), self.options.bug);
                let member = &mut self.members[index(id)];
                if member.life != life {
                    return Ok(());
                }
                let wants = member.snapshot_sent(now, to, arrived, &mut self.chance, bug)?;
                self.want(id, wants)
            }
            Event::AgentTick(index, life) => {
                if self.agents[index].life == life && self.agents[index].is_up() {
                    let now = self.now_ms();
                    let outs = self.agents[index].tick(now, &mut self.world, &mut self.numbers);
                    self.out(Node::Agent(index), outs);
                    self.schedule(AGENT_TICK_MS, Event::AgentTick(index, life));
                }
                self.follow_world();
                Ok(())
            }
            Event::World => {
                self.advance_world();
                Ok(())
            }
            Event::Fault(fault) => self.fault(fault),
            Event::Restart(node) => self.restart(node),
            Event::Exchange(node) => self.exchange(node),
            Event::Finalize => {
                self.finalize();
                Ok(())
            }
            Event::Rejoin(node) => {
                let left = self.isolations.entry(node).or_insert(1);
                *left = left.saturating_sub(1);
                if *left == 0 {
                    self.network.rejoin(node);
                }
                Ok(())
            }
            Event::Mend(a, b) => {
                self.network.mend(a, b);
                Ok(())
            }
            Event::MendHosts(a, b) => {
                self.world.heal(&self.hosts[a], &self.hosts[b]);
                self.follow_world();
                Ok(())
            }
            Event::VolumeWish => {
                let devices = self.agents.iter_mut().map(|agent| &mut agent.devices);
                let mut devices: Vec<_> = devices.collect();
                let outs = self.volume_user.wish(&mut devices, &mut self.numbers);
                self.out(Node::User, outs);
                Ok(())
            }
            Event::Administer(number) => self.administer(number),
            Event::LoseDirectory(site) => {
                self.lose_directory(site);
                Ok(())
            }
            Event::CopyDisks => {
                self.copy_disks();
                Ok(())
            }
            Event::Damage(site, damage) => {
                self.damage(site, damage);
                Ok(())
            }
            Event::KeepCopy(site) => {
                self.keep_copy(site);
                Ok(())
            }
            Event::PutBack(site) => {
                self.put_back(site);
                Ok(())
            }
            Event::KeepState => {
                self.keep_state();
                Ok(())
            }
            Event::LoseGroup => {
                self.lose_group();
                Ok(())
            }
            Event::Heal => self.heal(),
        }
    }

    /// Returns the node that an event happens to, where it can be stalled.
    fn node_of(&self, event: &Event) -> Option<Node> {
        match event {
            Event::Deliver(_, node, _) | Event::Timer(node, ..) => Some(*node),
            Event::RaftTick(..)
            | Event::Synced(..)
            | Event::SnapshotSent(..)
            | Event::Snapshot(..)
            | Event::AgentTick(..)
            | Event::World
            | Event::Fault(_)
            | Event::Restart(_)
            | Event::Exchange(_)
            | Event::Finalize
            | Event::Rejoin(_)
            | Event::Mend(..)
            | Event::MendHosts(..)
            | Event::VolumeWish
            | Event::Administer(_)
            | Event::LoseDirectory(_)
            | Event::CopyDisks
            | Event::Damage(..)
            | Event::KeepCopy(_)
            | Event::PutBack(_)
            | Event::KeepState
            | Event::LoseGroup
            | Event::Heal => None,
        }
    }

    fn deliver(&mut self, from: Node, to: Node, packet: Packet) -> Result<(), String> {
        let (now, bug) = (self.now_ms(), self.options.bug);
        if self.ends_streams() && self.is_of_ended_stream(from, &packet) {
            return Ok(());
        }
        match to {
            Node::Member(id) if self.members[index(id)].is_joining() => {
                if let Packet::Told(call, told) = packet {
                    let joining = self.members[index(id)].take_as_joiner(now, call, *told);
                    self.joining(id, joining)?;
                }
            }
            Node::Member(id) => {
                let wants =
                    self.members[index(id)].take(now, from, packet, &mut self.chance, bug)?;
                self.want(id, wants)?;
            }
            Node::Administrator(number) => {
                if let Packet::Told(call, told) = packet {
                    self.administrator_learns(number, call, Some(*told));
                }
            }
            Node::Conductor(at) if self.conductors[at].up => {
                let mut context = context(now, &mut self.chance, &mut self.numbers, bug);
                let outs = self.conductors[at].take(from, packet, &mut context);
                self.out(to, outs);
            }
            Node::Agent(at) if self.agents[at].is_up() => {
                let agent = &mut self.agents[at];
                let chance = &mut self.chance;
                let numbers = &mut self.numbers;
                let outs = agent.take(now, from, packet, &mut self.world, chance, numbers, bug);
                self.out(to, outs);
                self.follow_world();
            }
            Node::User => {
                let outs = if let Packet::Told(call, told) = packet {
                    match self.volume_user.asks(call) {
                        true => self.volume_user.told(call, *told),
                        false => {
                            let answer = self.operator.told(call, *told, &mut self.chance);
                            answer.err().unwrap_or_default()
                        }
                    }
                } else {
                    self.user.take(packet, &mut self.chance)
                };
                self.out(to, outs);
            }
            Node::Writer(at) => {
                if let Packet::Told(call, told) = packet {
                    let outs = self.writers.told(at, call, &told);
                    self.out(to, outs);
                }
            }
            // It is down: nobody hears.
            Node::Conductor(_) | Node::Agent(_) => {}
        }
        Ok(())
    }

    fn timer(&mut self, node: Node, life: u64, timer: Timer) -> Result<(), String> {
        let (now, bug) = (self.now_ms(), self.options.bug);
        let outs = match node {
            Node::Conductor(at) if self.conductors[at].up && self.conductors[at].life == life => {
                let mut context = context(now, &mut self.chance, &mut self.numbers, bug);
                self.conductors[at].timer(timer, &mut context)
            }
            Node::Agent(at) if self.agents[at].is_up() && self.agents[at].life == life => {
                self.agents[at].timer(timer, &mut self.numbers)
            }
            Node::User => match timer {
                Timer::Unanswered(call) | Timer::Again(call) if self.volume_user.asks(call) => {
                    self.volume_user.timer(timer, &mut self.numbers)
                }
                Timer::Unanswered(call) => self.operator.unanswered(call, &mut self.numbers),
                Timer::Again(call) => self.operator.again(call, &mut self.numbers),
                Timer::AgentSilent(_)
                | Timer::Elapsed(..)
                | Timer::TransferEnded(..)
                | Timer::Renew
                | Timer::Look
                | Timer::Write
                | Timer::Join
                | Timer::Wish(_) => {
                    let (chance, numbers) = (&mut self.chance, &mut self.numbers);
                    self.user.timer(now, timer, chance, numbers)
                }
            },
            Node::Writer(at) => match timer {
                Timer::Write => {
                    let state = self.verdict.latest();
                    self.writers.write(at, state, &mut self.numbers)
                }
                Timer::Unanswered(call) => self.writers.unanswered(at, call),
                Timer::Again(_)
                | Timer::AgentSilent(_)
                | Timer::Elapsed(..)
                | Timer::TransferEnded(..)
                | Timer::Renew
                | Timer::Look
                | Timer::Join
                | Timer::Wish(_) => Vec::new(),
            },
            Node::Member(id) if self.members[index(id)].life == life => {
                let member = &mut self.members[index(id)];
                let joining = member.wake_joiner(now, timer, &mut self.numbers);
                self.joining(id, joining)?;
                Vec::new()
            }
            Node::Administrator(number) => {
                if let Timer::Unanswered(call) = timer {
                    self.administrator_learns(number, call, None);
                }
                Vec::new()
            }
            Node::Conductor(_) | Node::Agent(_) | Node::Member(_) => Vec::new(),
        };
        self.out(node, outs);
        Ok(())
    }

    fn raft_tick(&mut self, id: u64, life: u64) -> Result<(), String> {
        let (now, bug) = (self.now_ms(), self.options.bug);
        let member = &mut self.members[index(id)];
        if member.life != life || !member.is_running() {
            return Ok(());
        }
        let wants = member.tick(now, &mut self.chance, bug)?;
        self.want(id, wants)?;
        self.schedule(RAFT_TICK_MS, Event::RaftTick(id, life));
        Ok(())
    }

    /// Carries out what a node that asks and answers wants.
    fn out(&mut self, from: Node, outs: Vec<Out>) {
        let life = self.life_of(from);
        for out in outs {
            match out {
                Out::Send(to, packet) => self.send(from, to, packet),
                Out::Timer(ms, timer) => self.schedule(ms, Event::Timer(from, life, timer)),
            }
        }
    }

    fn life_of(&self, node: Node) -> u64 {
        match node {
            Node::Member(id) => self.members[index(id)].life,
            Node::Conductor(at) => self.conductors[at].life,
            Node::Agent(at) => self.agents[at].life,
            Node::User | Node::Writer(_) | Node::Administrator(_) => 0,
        }
    }

    fn send(&mut self, from: Node, to: Node, packet: Packet) {
        // A connection repeats nothing, and a write without a request id must not be repeated.
        let is_members = matches!(&packet, Packet::Question(_, question)
            if matches!(**question, Question::Members(_)));
        let is_once = is_members || matches!(packet, Packet::Write(..));
        let delays = self.network.delays(from, to, &mut self.chance);
        let copies = if is_once { 1 } else { delays.len() };
        // A connection on which a command of an administrator waits for so long is broken.
        let is_broken = |delay: &u64| is_members && *delay > BROKEN_MS;
        for delay in delays.into_iter().take(copies).filter(|d| !is_broken(d)) {
            self.schedule(delay, Event::Deliver(from, to, packet.clone()));
        }
    }

    /// Carries out what a member wants.
    fn want(&mut self, id: u64, wants: Vec<Want>) -> Result<(), String> {
        let from = Node::Member(id);
        let life = self.life_of(from);
        self.follow_membership(id);
        self.after_contradiction(id)?;
        for want in wants {
            match want {
                Want::Send(to, packet) => self.send(from, to, packet),
                Want::SendSnapshot(to, hello, message, bytes) => {
                    let delays = self
                        .network
                        .delays(from, Node::Member(to), &mut self.chance);
                    match delays.first() {
                        Some(delay) => {
                            let event = Event::Snapshot(id, life, to, hello, message, bytes);
                            self.schedule(*delay, event);
                        }
                        None => {
                            let receiver = message.to;
                            self.schedule(1_000, Event::SnapshotSent(id, life, receiver, false));
                        }
                    }
                }
                Want::Sync(number) => {
                    let held_until = self.held.get(&id).copied().unwrap_or_default();
                    let delay = self.chance.between(0, 30) + held_until.saturating_sub(self.now);
                    self.schedule(delay, Event::Synced(id, life, number));
                }
                Want::Applied(commands, position) => {
                    let state = self.members[index(id)].state();
                    self.verdict.applied(commands, position, state)?;
                    if self.verdict.split.is_none() {
                        self.applied_at.insert(id, position.index);
                    }
                }
                Want::Written(number, generation) => self.verdict.written(number, generation)?,
                Want::Acknowledged(at, outcome) => self.verdict.acknowledged(at, outcome),
            }
        }
        Ok(())
    }

    /// Makes sure that the hypervisors' next event happens.
    fn follow_world(&mut self) {
        if let Some(at) = self.world.next_at() {
            self.schedule(at.0.saturating_sub(self.now), Event::World);
        }
    }

    fn advance_world(&mut self) {
        let now = self.now_ms();
        let due = self.world.next_at().is_some_and(|at| at <= now);
        if !due {
            return;
        }
        for completion in self.world.advance(now) {
            let at = self
                .hosts
                .iter()
                .position(|h| *h == completion.host)
                .expect("a known host");
            let agent = &mut self.agents[at];
            let outs = agent.driver_done(
                now,
                completion.token,
                completion.result,
                &mut self.world,
                &mut self.numbers,
            );
            self.out(Node::Agent(at), outs);
        }
        self.follow_world();
    }
}

fn context<'a>(
    now: TimeMs,
    chance: &'a mut Chance,
    numbers: &'a mut Numbers,
    bug: Option<Bug>,
) -> Context<'a> {
    Context {
        now,
        chance,
        numbers,
        bug,
    }
}

/// Returns where a member stands among the members.
fn index(id: u64) -> usize {
    usize::try_from(id - 1).expect("a small number")
}
