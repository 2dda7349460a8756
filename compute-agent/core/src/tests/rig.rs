//! Agents on a simulated world, with a clock that jumps from event to event.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::agent::{
    Call, DestinationCheck, DomainState, DomainStatus, Fence, FitVerdict, Reply,
};
use berth_domain::claim::{Claim, Owner, State};
use berth_domain::id::{ClaimId, Epoch, Incarnation, MigrationId, OperationId, TimeMs, VmUid};
use berth_domain::migration::MigrateData;
use berth_domain::migration_tls::TlsPolicy;
use berth_domain::name::{HostName, PhysicalNetworkName, VmName};
use berth_domain::network::{BridgeMapping, BridgeType};
use berth_domain::numa::Assignment;
use berth_domain::refusal::Refusal;
use berth_domain::topology::HostTopology;
use berth_domain::version::ServiceVersion;
use berth_domain::vm::VmSpec;
use berth_driver::conformance::sample;
use berth_driver::sim::{Settings, World};
use uuid::Uuid;

use crate::{Agent, CallId, Effect, Event, Facts, Feeding};

pub(super) type Answer = Result<Reply, Refusal>;

/// Hosts, and who conducts.
pub(super) struct Rig {
    pub(super) world: World,
    pub(super) agents: BTreeMap<HostName, Agent>,
    pub(super) now: TimeMs,
    topology: Arc<HostTopology>,
    answers: BTreeMap<CallId, Answer>,
    /// What the watchdogs of all hosts got, in order.
    pub(super) fed: Vec<Feeding>,
    calls: u64,
    incarnations: u128,
}

pub(super) fn host(name: &str) -> HostName {
    HostName::new(name).unwrap()
}

pub(super) fn migration(number: u128) -> MigrationId {
    MigrationId(Uuid::from_u128(number))
}

/// One guest, and the lease under which things are done to it.
#[derive(Clone)]
pub(super) struct Guest {
    pub(super) vm: VmName,
    pub(super) uid: VmUid,
    pub(super) spec: VmSpec,
    pub(super) operation: OperationId,
    pub(super) epoch: Epoch,
    pub(super) attempt: u32,
}

impl Guest {
    pub(super) fn new(name: &str, number: u128, spec: VmSpec) -> Self {
        Self {
            vm: VmName::new(name).unwrap(),
            uid: VmUid(Uuid::from_u128(number)),
            spec,
            operation: OperationId(Uuid::from_u128(number + 5000)),
            epoch: Epoch(1),
            attempt: 0,
        }
    }

    /// The same guest under another operation with a later lease.
    pub(super) fn under(&self, operation: u128, epoch: u64) -> Self {
        Self {
            operation: OperationId(Uuid::from_u128(operation)),
            epoch: Epoch(epoch),
            ..self.clone()
        }
    }

    /// The same guest under a later attempt of its operation.
    pub(super) fn tried(&self, attempt: u32) -> Self {
        Self {
            attempt,
            ..self.clone()
        }
    }

    pub(super) fn claim(&self, host: &HostName, assignment: Assignment) -> Claim {
        Claim {
            id: self.claim_id(),
            vm: self.vm.clone(),
            owner: Owner::Vm,
            host: host.clone(),
            state: State::Held,
            resources: BTreeMap::new(),
            assignment,
            erasures: BTreeMap::new(),
            cpu: None,
        }
    }

    pub(super) fn stop_call(&self, timeout_ms: u64, last: bool) -> Call {
        Call::StopVm {
            claim: self.claim_id(),
            timeout_ms,
            last,
        }
    }

    pub(super) fn start_call(&self, host: &HostName, assignment: Assignment) -> Call {
        Call::StartVm {
            vm: self.vm.clone(),
            spec: self.spec.clone(),
            claim: self.claim(host, assignment),
        }
    }

    fn claim_id(&self) -> ClaimId {
        ClaimId(Uuid::from_u128(self.uid.0.as_u128() + 900))
    }

    pub(super) fn spawn_call(&self, host: &HostName, assignment: Assignment) -> Call {
        Call::SpawnVm {
            vm: self.vm.clone(),
            spec: self.spec.clone(),
            claim: self.claim(host, assignment),
            first_boot: self.spec.has_seed().then(Arc::default),
        }
    }
}

/// Returns with which bridge a host reaches `physnet1`: on each host it has another name.
pub(super) fn bridge_of(host: &HostName) -> BridgeMapping {
    BridgeMapping {
        physical_network: PhysicalNetworkName::new("physnet1").unwrap(),
        bridge: format!("br-{host}"),
        bridge_type: BridgeType::Linux,
    }
}

impl Rig {
    /// Hosts `h1`, `h2`, … of two cells each, with agents of these versions.
    pub(super) fn new(versions: &[u32]) -> Self {
        let topology = sample::host(2);
        let mut rig = Self {
            world: World::new(Settings::default()),
            agents: BTreeMap::new(),
            now: TimeMs(1_000),
            topology: topology.clone(),
            answers: BTreeMap::new(),
            fed: Vec::new(),
            calls: 0,
            incarnations: 0,
        };
        for (index, version) in versions.iter().enumerate() {
            let name = host(&format!("h{}", index + 1));
            rig.world.add_host(name.clone(), topology.clone());
            rig.start_agent(&name, ServiceVersion(*version));
        }
        rig
    }

    fn start_agent(&mut self, name: &HostName, version: ServiceVersion) {
        self.incarnations += 1;
        let facts = Facts {
            host: name.clone(),
            incarnation: Incarnation(Uuid::from_u128(self.incarnations)),
            version,
            driver: "sim".to_owned(),
            migration_uri: World::migration_uri(name),
            storage_id: "shared".to_owned(),
            tls: TlsPolicy::Off,
            topology: self.topology.clone(),
            bridges: vec![bridge_of(name)],
            transfer_ms_max: 60_000,
            compare_ms: 0,
        };
        let agent = Agent::new(facts, self.world.known(name));
        self.agents.insert(name.clone(), agent);
    }

    /// Its agent is configured otherwise, and restarted.
    pub(super) fn set_tls(&mut self, name: &HostName, tls: TlsPolicy) {
        let facts = self.agents[name].facts().clone();
        let agent = Agent::new(Facts { tls, ..facts }, self.world.known(name));
        self.agents.insert(name.clone(), agent);
    }

    /// Gives a host a watchdog.
    pub(super) fn guard(&mut self, name: &HostName) {
        let agent = self.agents.remove(name).unwrap();
        self.agents.insert(name.clone(), agent.guarded());
    }

    /// Another agent begins that is not told what runs.
    pub(super) fn forget_guests(&mut self, name: &HostName) {
        let facts = self.agents[name].facts().clone();
        self.agents
            .insert(name.clone(), Agent::new(facts, Vec::new()));
    }

    /// The agent's process ends and another begins.
    pub(super) fn restart_agent(&mut self, name: &HostName) {
        let version = self.agents[name].facts().version;
        self.world.forget_asker(name);
        self.start_agent(name, version);
    }

    pub(super) fn fence(&self, name: &HostName, guest: &Guest) -> Fence {
        Fence {
            vm: guest.uid,
            operation: guest.operation,
            epoch: guest.epoch,
            incarnation: self.agents[name].facts().incarnation,
            attempt: guest.attempt,
        }
    }

    /// Brings a call in; its answer may come later.
    pub(super) fn begin(&mut self, name: &HostName, guest: &Guest, call: Call) -> CallId {
        let fence = self.fence(name, guest);
        self.begin_with(name, fence, call)
    }

    pub(super) fn begin_with(&mut self, name: &HostName, fence: Fence, call: Call) -> CallId {
        self.calls += 1;
        let id = CallId(self.calls);
        self.step(name, Event::Call { id, fence, call });
        id
    }

    pub(super) fn step(&mut self, name: &HostName, event: Event) {
        let effects = self.agents.get_mut(name).unwrap().step(event);
        for effect in effects {
            match effect {
                Effect::Reply { id, result } => {
                    let twice = self.answers.insert(id, result);
                    assert!(twice.is_none(), "{id:?} is answered twice");
                }
                Effect::Expect
                | Effect::Report(_)
                | Effect::ReportGuests(..)
                | Effect::ReportErasures(_) => {
                    unreachable!("comparing is off")
                }
                Effect::Watchdog(feeding) => self.fed.push(feeding),
                Effect::Driver { token, request } => {
                    self.world.begin(self.now, name, token, request);
                }
            }
        }
    }

    /// Lets one more moment come; says whether there was one.
    pub(super) fn advance(&mut self) -> bool {
        let Some(at) = self.world.next_at() else {
            return false;
        };
        self.now = self.now.max(at);
        for name in self.agents.keys().cloned().collect::<Vec<_>>() {
            let now = self.now;
            self.step(&name, Event::Tick { now });
        }
        for completion in self.world.advance(self.now) {
            let event = Event::DriverDone {
                token: completion.token,
                result: completion.result,
            };
            self.step(&completion.host, event);
        }
        self.world.check().unwrap();
        true
    }

    /// Lets so much time pass, with a tick every second, in which things happen when they are due.
    pub(super) fn live_on(&mut self, ms: u64) {
        let end = TimeMs(self.now.0 + ms);
        while self.now < end {
            let next = TimeMs(self.now.0 + 1_000).min(end);
            while self.world.next_at().is_some_and(|at| at <= next) {
                self.advance();
            }
            self.now = next;
            for name in self.agents.keys().cloned().collect::<Vec<_>>() {
                self.step(&name, Event::Tick { now: next });
            }
        }
    }

    pub(super) fn answered(&self, id: CallId) -> Option<&Answer> {
        self.answers.get(&id)
    }

    /// Another call has this number from now on.
    pub(super) fn forget_answer(&mut self, id: CallId) {
        self.answers.remove(&id);
    }

    /// Waits for the answer to a call.
    pub(super) fn answer(&mut self, id: CallId) -> Answer {
        while !self.answers.contains_key(&id) {
            assert!(self.advance(), "{id:?} is never answered");
        }
        self.answers[&id].clone()
    }

    pub(super) fn call(&mut self, name: &HostName, guest: &Guest, call: Call) -> Answer {
        let id = self.begin(name, guest, call);
        self.answer(id)
    }

    /// Lets time pass in which nothing is due.
    pub(super) fn pass(&mut self, ms: u64) {
        self.now = TimeMs(self.now.0 + ms);
        for name in self.agents.keys().cloned().collect::<Vec<_>>() {
            let now = self.now;
            self.step(&name, Event::Tick { now });
        }
        self.settle();
    }

    pub(super) fn settle(&mut self) {
        while self.advance() {}
    }

    pub(super) fn spawn(&mut self, name: &HostName, guest: &Guest, on: Assignment) -> Answer {
        self.call(name, guest, guest.spawn_call(name, on))
    }

    pub(super) fn status(&mut self, name: &HostName, guest: &Guest) -> DomainStatus {
        let reply = self.call(name, guest, Call::GetDomain).unwrap();
        let Reply::Domain(status) = reply else {
            panic!("{reply:?}")
        };
        status
    }

    pub(super) fn state(&mut self, name: &HostName, guest: &Guest) -> DomainState {
        self.status(name, guest).state
    }

    // The steps of a live migration, as the conductor takes them.

    pub(super) fn check(
        &mut self,
        from: &HostName,
        to: &HostName,
        guest: &Guest,
    ) -> Result<MigrateData, Refusal> {
        let destination = self.check_destination(to, guest)?;
        let call = Call::CheckCanLiveMigrateSource {
            migration: migration(1),
            destination,
        };
        let reply = self.call(from, guest, call)?;
        let Reply::MigrateData(data) = reply else {
            panic!("{reply:?}")
        };
        Ok(data)
    }

    pub(super) fn check_destination(
        &mut self,
        to: &HostName,
        guest: &Guest,
    ) -> Result<DestinationCheck, Refusal> {
        let call = Call::CheckCanLiveMigrateDestination {
            migration: migration(1),
            vm: guest.vm.clone(),
            spec: guest.spec.clone(),
        };
        let reply = self.call(to, guest, call)?;
        let Reply::Destination(check) = reply else {
            panic!("{reply:?}")
        };
        Ok(check)
    }

    pub(super) fn fit(
        &mut self,
        to: &HostName,
        guest: &Guest,
        migrate_data: MigrateData,
    ) -> Result<(FitVerdict, MigrateData), Refusal> {
        let call = Call::FitLiveMigration {
            migration: migration(1),
            migrate_data,
        };
        let reply = self.call(to, guest, call)?;
        let Reply::Fit {
            verdict,
            migrate_data,
        } = reply
        else {
            panic!("{reply:?}")
        };
        Ok((verdict, migrate_data))
    }

    pub(super) fn prepare(
        &mut self,
        to: &HostName,
        guest: &Guest,
        number: u128,
        data: &MigrateData,
    ) -> Answer {
        let call = Call::PreLiveMigration {
            migration: migration(number),
            migrate_data: data.clone(),
        };
        self.call(to, guest, call)
    }

    pub(super) fn send(
        &mut self,
        from: &HostName,
        guest: &Guest,
        number: u128,
        data: &MigrateData,
    ) -> Answer {
        let call = Call::LiveMigration {
            migration: migration(number),
            migrate_data: data.clone(),
        };
        self.call(from, guest, call)
    }

    pub(super) fn roll_back(&mut self, to: &HostName, guest: &Guest, number: u128) -> Answer {
        let call = Call::RollbackLiveMigrationAtDestination {
            keep_disks: false,
            migration: migration(number),
        };
        self.call(to, guest, call)
    }

    /// Everything up to and with the preparation.
    pub(super) fn ready(
        &mut self,
        from: &HostName,
        to: &HostName,
        guest: &Guest,
        held: Assignment,
    ) -> MigrateData {
        let mut data = self.check(from, to, guest).unwrap();
        data.claim = Some(Claim {
            id: ClaimId(Uuid::from_u128(4242)),
            owner: Owner::Migration(migration(1)),
            ..guest.claim(to, held)
        });
        let (_, data) = self.fit(to, guest, data).unwrap();
        self.prepare(to, guest, 1, &data).unwrap();
        data
    }
}
