//! A small cluster for tests of the state: every command that goes in is checked from all sides.
//!
//! After each command: the invariants hold; speculating gave the same answer and the same state;
//! the changes lead from the rows before to the rows after; what was refused changed nothing but
//! the header and the remembered request.
pub mod by_hand;
pub mod draw;
pub mod placement;
pub mod scale;
pub mod volume;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::audit::RequestSummary;
use berth_domain::claim::{self, Claim, Owner};
use berth_domain::constraint::{self, Demand};
use berth_domain::cpu_set::CpuSet;
use berth_domain::first_boot::FirstBoot;
use berth_domain::flavor::Flavor;
use berth_domain::host::HostReport;
use berth_domain::id::{
    ClaimId, ClusterId, Epoch, ImageUid, Incarnation, MigrationId, OperationId, ProviderId,
    RequestId, TimeMs, VmUid,
};
use berth_domain::image::{Image, ImageContent, ImageProperties, Sha256};
use berth_domain::migration;
use berth_domain::name::{
    FlavorName, HostName, ImageName, NetworkName, PciAliasName, PhysicalNetworkName, ServiceName,
    VmName,
};
use berth_domain::network::{BridgeMapping, BridgeType, HostNetwork, Network, NetworkLink};
use berth_domain::numa::{Assignment, Guest, Strategy};
use berth_domain::operation::{Mark, Operation, Step};
use berth_domain::ownership::{Ownership, ProjectName};
use berth_domain::pci::{PciAlias, PciAliases, PciId, PciMatch, PciNumaPolicy};
use berth_domain::recovery::{Cause, ReportedGuest};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::revocation::{Fingerprint, RevokedCertificate};
use berth_domain::topology::{CellId, HostCell, HostTopology, PagePool, SocketId};
use berth_domain::version::ServiceVersion;
use berth_domain::vm::{BootSource, DiskFormat, Metadata, RestartPolicy, VmSpec};
use berth_state::command::{Command, Effect, Envelope, LeaseRequest, RequestKey};
use berth_state::recovery::Begin;
use berth_state::{HostView, Key, Reply, Row, State};
use uuid::Uuid;

/// Returns a host's name.
pub fn host_name(text: &str) -> HostName {
    HostName::new(text).unwrap()
}

/// Returns a VM's name.
pub fn vm_name(text: &str) -> VmName {
    VmName::new(text).unwrap()
}

/// Returns a conductor's name.
pub fn conductor(text: &str) -> ServiceName {
    ServiceName::new(text).unwrap()
}

/// Returns an id that is the same in every run; `kind` keeps ids of different types apart.
pub fn uuid(kind: u8, number: u64) -> Uuid {
    Uuid::from_u128((u128::from(kind) << 120) | u128::from(number))
}

/// Returns the id of an operation.
pub fn operation_id(number: u64) -> OperationId {
    OperationId(uuid(1, number))
}

/// Cells of `dedicated` + `shared` CPUs and 4 GiB, each of which has 512 pages of 2 MiB.
pub fn topology(cells: u32, dedicated: u32, shared: u32) -> HostTopology {
    let width = dedicated + shared;
    let cells: Vec<HostCell> = (0..cells)
        .map(|id| {
            let first = id * width;
            let list = |low: u32, count: u32| -> CpuSet {
                (low..low + count)
                    .map(berth_domain::cpu_set::CpuId)
                    .collect()
            };
            HostCell {
                id: CellId(id),
                socket: Some(SocketId(id / 2)),
                dedicated: list(first, dedicated),
                shared: list(first + dedicated, shared),
                cores: (first..first + width).map(|cpu| list(cpu, 1)).collect(),
                memory_mib: 4096,
                pages: vec![
                    PagePool {
                        size_kib: 4,
                        total: 786_432,
                        reserved: 0,
                    },
                    PagePool {
                        size_kib: 2048,
                        total: 512,
                        reserved: 0,
                    },
                ],
            }
        })
        .collect();
    let count = cells.len();
    let distances = (0..count)
        .map(|a| (0..count).map(|b| if a == b { 10 } else { 20 }).collect())
        .collect();
    HostTopology::new(cells, distances).unwrap()
}

/// Returns the report of a host with this topology.
pub fn report(topology: HostTopology) -> HostReport {
    HostReport {
        networks: Vec::new(),
        agent_address: "http://127.0.0.1:7300".to_owned(),
        incarnation: Incarnation(uuid(9, 1)),
        service_version: ServiceVersion::CURRENT,
        driver: "sim".to_owned(),
        migration_uri: "sim://h".to_owned(),
        topology: Arc::new(topology),
        memory_reserved_mib: 512,
        disk_gib: 100,
        storage_id: "shared".to_owned(),
        traits: Default::default(),
        platform: Default::default(),
        self_fence_ms: 0,
        regions: Vec::new(),
        cpu: None,
    }
}

/// Returns a flavor.
pub fn flavor(name: &str, vcpus: u32, memory_mib: u64, extra: &[(&str, &str)]) -> Flavor {
    Flavor {
        name: FlavorName::new(name).unwrap(),
        vcpus,
        memory_mib,
        disk_gib: 0,
        extra_specs: extra
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        ownership: Ownership::default(),
    }
}

/// Returns an alias for the functions of one vendor.
pub fn pci_alias(name: &str) -> PciAlias {
    PciAlias {
        name: PciAliasName::new(name).unwrap(),
        any_of: vec![PciMatch {
            vendor: Some(PciId(0x8086)),
            ..PciMatch::default()
        }],
        policy: Some(PciNumaPolicy::Socket),
    }
}

/// Returns a network without a VLAN, on the physical network that hosts reach.
pub fn network(name: &str) -> Network {
    Network {
        name: NetworkName::new(name).unwrap(),
        link: NetworkLink {
            physical_network: host_network().mapping.physical_network,
            vlan: None,
            mtu: None,
        },
        description: String::new(),
        ownership: Ownership::default(),
        created_at: TimeMs::default(),
    }
}

/// Returns the physical network that hosts reach.
pub fn host_network() -> HostNetwork {
    HostNetwork {
        mapping: BridgeMapping {
            physical_network: PhysicalNetworkName::new("physnet1").unwrap(),
            bridge: "br0".to_owned(),
            bridge_type: BridgeType::Linux,
        },
        can_tag: true,
        mtu: 1500,
    }
}

/// Returns an image that is to be added; its UUID follows from its name.
pub fn image(name: &str) -> Image {
    let number = name.bytes().map(u64::from).sum();
    Image {
        name: ImageName::new(name).unwrap(),
        uid: ImageUid(uuid(31, number)),
        format: DiskFormat::Qcow2,
        properties: ImageProperties::default(),
        content: None,
        copies: [].into(),
        ownership: Ownership::default(),
        created_at: TimeMs::default(),
    }
}

/// Returns what is in an image: a disk of 2 GiB.
pub fn image_content() -> ImageContent {
    ImageContent {
        length_bytes: 1 << 20,
        virtual_bytes: 2 << 30,
        sha256: Sha256([7; 32]),
    }
}

/// Returns a revoked certificate; the first has expired long ago.
pub fn revoked_certificate(number: u8) -> RevokedCertificate {
    RevokedCertificate {
        fingerprint: Fingerprint([number; 32]),
        principal: format!("agent:h{number}"),
        reason: "the disk was stolen".to_owned(),
        expires_at: (number == 1).then_some(TimeMs(1)),
        revoked_at: TimeMs::default(),
    }
}

/// Returns the name of a project.
pub fn project_name(name: &str) -> ProjectName {
    ProjectName::new(name).expect("a label")
}

/// Returns a VM of this flavor that boots a kernel.
pub fn spec(flavor: Flavor) -> VmSpec {
    let wishes = flavor.requirements(&ImageProperties::default(), &PciAliases::new());
    let topology = wishes.unwrap().topology;
    VmSpec {
        flavor,
        boot: BootSource::Kernel {
            kernel: "vmlinuz".to_owned(),
            initrd: "initrd".to_owned(),
            cmdline: "console=ttyS0".to_owned(),
        },
        disks: Vec::new(),
        nics: Vec::new(),
        topology,
        image_properties: ImageProperties::default(),
        pci_aliases: PciAliases::new(),
        cpu_shape: None,
        pci: Vec::new(),
        hints: berth_domain::vm::SchedulingHints::default(),
        volumes: Vec::new(),
    }
}

/// `vcpus` dedicated CPUs in one cell.
pub fn pinned(vcpus: u32) -> VmSpec {
    spec(flavor(
        "pinned",
        vcpus,
        512,
        &[("hw:cpu_policy", "dedicated")],
    ))
}

/// Dedicated CPUs over two cells, on large pages, with a CPU for the emulator.
pub fn wide() -> VmSpec {
    let extra = [
        ("hw:cpu_policy", "dedicated"),
        ("hw:numa_nodes", "2"),
        ("hw:mem_page_size", "large"),
        ("hw:emulator_threads_policy", "isolate"),
    ];
    spec(flavor("wide", 2, 256, &extra))
}

/// Without a topology.
pub fn floating(vcpus: u32) -> VmSpec {
    spec(flavor("floating", vcpus, 256, &[]))
}

/// A cluster whose state is looked at from all sides after each command.
#[derive(Clone)]
pub struct World {
    /// The state under test.
    pub state: State,
    /// The time of the next command, in milliseconds.
    pub now: u64,
    /// The log index of the last command.
    pub index: u64,
    /// The last number that [`World::fresh`] returned.
    pub ids: u64,
    /// The executed commands, with their times; none of a world with [`World::without_checks`].
    pub executed: Vec<(u64, Command)>,
    is_checked: bool,
    summary: Option<Box<RequestSummary>>,
    rows: BTreeMap<Key, Row>,
}

impl Default for World {
    fn default() -> Self {
        let state = State::new();
        Self {
            rows: rows(&state),
            state,
            now: 1_000_000,
            index: 0,
            ids: 0,
            executed: Vec::new(),
            is_checked: true,
            summary: None,
        }
    }
}

/// Returns all rows of a state.
pub fn rows(state: &State) -> BTreeMap<Key, Row> {
    state.rows().map(|row| (row.key(), row)).collect()
}

impl World {
    /// Hosts `h1`, `h2`, … of two cells with 3 dedicated and 1 shared CPU each, in a cluster at the
    /// newest version.
    pub fn with_hosts(count: u32) -> Self {
        Self::at_version(ServiceVersion::CURRENT, count)
    }

    /// The same in a cluster at this version.
    pub fn at_version(version: ServiceVersion, count: u32) -> Self {
        let mut world = Self::default();
        world
            .run(Command::FinalizeUpgrade {
                version,
                gone: BTreeSet::new(),
            })
            .unwrap();
        world.and_hosts(count)
    }

    /// The same in a cluster at the oldest version.
    pub fn before_upgrades(count: u32) -> Self {
        Self::default().and_hosts(count)
    }

    fn and_hosts(self, count: u32) -> Self {
        let mut world = self;
        let mut report = report(topology(2, 3, 1));
        if world.state.header().cluster_version >= ServiceVersion::NETWORKS {
            report.networks.push(host_network());
        }
        for number in 1..=count {
            world
                .register(&format!("h{number}"), report.clone())
                .unwrap();
        }
        world
    }

    /// Goes on with a state.
    pub fn of(state: State) -> Self {
        Self {
            rows: rows(&state),
            index: state.revision(),
            // A command draws fewer ids than that.
            ids: state.revision() * 8,
            state,
            ..Self::default()
        }
    }

    /// Goes on as a group that recovers with the state of this one.
    #[must_use]
    pub fn recovered(self) -> Self {
        let begin = Begin {
            cluster: ClusterId(uuid(9, self.ids)),
            cause: Cause::Restored,
            at: TimeMs(self.now),
            index: self.index,
            level: ServiceVersion::CURRENT,
        };
        let state = self.state.recovered(&begin);
        Self {
            rows: rows(&state),
            index: state.revision(),
            state,
            executed: Vec::new(),
            ..self
        }
    }

    /// Has a host report its guests.
    pub fn report_guests(
        &mut self,
        host: &str,
        guests: &[ReportedGuest],
    ) -> Result<Reply, Refusal> {
        self.run(Command::ReportGuests {
            host: host_name(host),
            incarnation: self.view(host).host.report.incarnation,
            basis: self.state.revision(),
            guests: guests.to_vec(),
        })
    }

    /// Executes commands without a check after each, for tests of very many: they call
    /// [`State::check`] at the end.
    #[must_use]
    pub fn without_checks(self) -> Self {
        Self {
            is_checked: false,
            ..self
        }
    }

    /// Executes each command as a request with an id, recorded with this summary.
    #[must_use]
    pub fn recorded(self, summary: RequestSummary) -> Self {
        Self {
            summary: Some(Box::new(summary)),
            ..self
        }
    }

    /// Returns a number that was not returned before.
    pub fn fresh(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    /// Registers a host.
    pub fn register(&mut self, host: &str, report: HostReport) -> Result<Reply, Refusal> {
        let provider = ProviderId(uuid(2, self.fresh()));
        self.run(Command::RegisterHost {
            host: host_name(host),
            provider,
            report,
        })
    }

    /// Executes a command without a request id.
    pub fn run(&mut self, command: Command) -> Result<Reply, Refusal> {
        self.run_as(None, command)
    }

    /// Executes a command and checks the state as the module's header says.
    pub fn run_as(
        &mut self,
        request: Option<RequestKey>,
        command: Command,
    ) -> Result<Reply, Refusal> {
        if self.is_checked {
            self.executed.push((self.now, command.clone()));
        }
        let audit = self.summary.clone();
        let request = request.or_else(|| {
            let number = audit.is_some().then(|| self.fresh())?;
            Some(self::request(number, 0))
        });
        self.run_envelope(Envelope {
            at: TimeMs(self.now),
            principal: "unverified:test".to_owned(),
            request,
            audit,
            command,
        })
    }

    /// Executes a command as it is in the log, and checks the state as the module's header says.
    pub fn run_envelope(&mut self, envelope: Envelope) -> Result<Reply, Refusal> {
        self.index += 1;
        if !self.is_checked {
            return self.state.speculate(self.index, &envelope);
        }
        let mut speculative = self.state.clone();
        let foretold = speculative.speculate(self.index, &envelope);
        let examined = self.state.examine(&envelope);
        let applied = self.state.apply(self.index, &envelope);
        assert_eq!(applied.outcome, foretold, "{envelope:?}");
        if envelope.request.is_none() {
            let outcome = applied.outcome.clone();
            assert_eq!(examined, outcome.map(drop), "{envelope:?}");
        }
        assert!(
            self.state == speculative,
            "speculating differs: {envelope:?}"
        );
        let refused = applied.outcome.is_err();
        for change in applied.changes {
            assert_eq!(
                self.rows.get(&change.key),
                change.old.as_ref(),
                "{envelope:?}"
            );
            let kept = matches!(change.key, Key::Header | Key::Request(_));
            assert!(
                !refused || kept,
                "refused, but changed {:?}: {envelope:?}",
                change.key
            );
            match change.new {
                Some(row) => {
                    assert_eq!(row.key(), change.key);
                    self.rows.insert(change.key, row);
                }
                None => drop(self.rows.remove(&change.key)),
            }
        }
        assert_eq!(
            self.rows,
            rows(&self.state),
            "changes do not tell all: {envelope:?}"
        );
        if let Err(violation) = self.state.check() {
            panic!("{violation}\nafter {envelope:?}");
        }
        applied.outcome
    }

    /// Returns a host as the choice sees it.
    pub fn view(&self, host: &str) -> &Arc<HostView> {
        self.state.host(&host_name(host)).unwrap()
    }

    /// Returns the lease that the conductor `c1` requests.
    pub fn lease(&self) -> LeaseRequest {
        LeaseRequest {
            conductor: conductor("c1"),
            ttl_ms: 10_000,
        }
    }

    /// Returns a held claim on the host as it is now; without room, one that overlaps.
    pub fn claim(&mut self, vm: &str, spec: &VmSpec, host: &str, owner: Owner) -> Claim {
        let demand = Demand::boot(spec).unwrap();
        let id = ClaimId(uuid(3, self.fresh()));
        let view = self.view(host);
        let guest = Guest::new(constraint::exact::exact_demand(&demand));
        let empty = view.emptied();
        let place = |view| constraint::exact::place(view, &guest, Strategy::Spread);
        let assignment = place(view).or_else(|_| place(&empty)).unwrap_or_default();
        Claim {
            id,
            vm: vm_name(vm),
            owner,
            host: host_name(host),
            state: claim::State::Held,
            resources: demand.resources,
            assignment,
            erasures: BTreeMap::new(),
            cpu: constraint::cpu::given(&view.host.report, &demand.cpu),
        }
    }

    /// Begins to boot a VM on a host.
    pub fn begin_boot(
        &mut self,
        vm: &str,
        spec: &VmSpec,
        host: &str,
    ) -> Result<OperationId, Refusal> {
        self.begin_boot_with(vm, spec, host, Metadata::default())
    }

    /// Begins to boot a VM on a host, with what its operator writes on it.
    pub fn begin_boot_with(
        &mut self,
        vm: &str,
        spec: &VmSpec,
        host: &str,
        metadata: Metadata,
    ) -> Result<OperationId, Refusal> {
        let claim = self.claim(vm, spec, host, Owner::Vm);
        let operation = operation_id(self.fresh());
        let uid = VmUid(uuid(4, self.fresh()));
        let lease = self.lease();
        self.run(Command::BeginBoot {
            operation,
            vm: vm_name(vm),
            uid,
            spec: Box::new(spec.clone()),
            requested_host: None,
            claim,
            lease,
            project: None,
            restart: RestartPolicy::default(),
            first_boot: spec.has_seed().then(|| Arc::new(first_boot())),
            metadata,
        })?;
        Ok(operation)
    }

    /// Boots a VM on a host, to the end.
    pub fn boot(&mut self, vm: &str, spec: &VmSpec, host: &str) {
        let operation = self.begin_boot(vm, spec, host).unwrap();
        self.log(operation, Step::Spawn, Mark::Started).unwrap();
        self.advance(
            operation,
            Step::Spawn,
            Mark::Succeeded,
            Effect::CompleteBoot,
        )
        .unwrap();
    }

    /// Deletes a VM whose guest runs: its claim is released.
    pub fn delete(&mut self, vm: &str) {
        let operation = operation_id(self.fresh());
        let begin = Command::BeginDelete {
            operation,
            vm: vm_name(vm),
            lease: self.lease(),
        };
        self.run(begin).expect("the VM can be deleted");
        self.log(operation, Step::Destroy, Mark::Started)
            .expect("the deletion goes on");
        let done = Effect::CompleteDelete;
        self.advance(operation, Step::Destroy, Mark::Succeeded, done)
            .expect("the guest is gone");
    }

    /// Shelves a VM.
    pub fn shelve(&mut self, vm: &str) {
        let operation = operation_id(self.fresh());
        let lease = self.lease();
        self.run(Command::BeginShelve {
            operation,
            vm: vm_name(vm),
            lease,
        })
        .unwrap();
        self.log(operation, Step::StopSource, Mark::Started)
            .unwrap();
        let effect = Effect::CompleteShelve;
        self.advance(operation, Step::StopSource, Mark::Succeeded, effect)
            .unwrap();
    }

    /// Begins to migrate a VM to a host.
    pub fn begin_migration(&mut self, vm: &str, host: &str) -> Result<OperationId, Refusal> {
        let migration = MigrationId(uuid(5, self.fresh()));
        let spec = self.state.vm(&vm_name(vm)).unwrap().spec.clone();
        let claim = self.claim(vm, &spec, host, Owner::Migration(migration));
        let operation = operation_id(self.fresh());
        let lease = self.lease();
        self.run(Command::BeginMigration {
            operation,
            migration,
            vm: vm_name(vm),
            requested_host: None,
            claim,
            lease,
            policy: berth_domain::policy::MigrationPolicy::default(),
        })?;
        Ok(operation)
    }

    /// Takes a migration to just before the point of no return.
    pub fn prepare(&mut self, operation: OperationId) {
        let claim = self.operation(operation).claim.unwrap();
        self.log(operation, Step::CheckDestination, Mark::Succeeded)
            .unwrap();
        self.log(operation, Step::CheckSource, Mark::Succeeded)
            .unwrap();
        let confirm = Effect::ConfirmClaim { claim };
        self.advance(operation, Step::FitDestination, Mark::Succeeded, confirm)
            .unwrap();
        self.log(operation, Step::PreLiveMigration, Mark::Started)
            .unwrap();
        self.log(operation, Step::PreLiveMigration, Mark::Succeeded)
            .unwrap();
    }

    /// Takes a migration to where its transfer has begun.
    pub fn transfer(&mut self, operation: OperationId) {
        self.prepare(operation);
        let effect = Effect::BeginTransfer;
        self.advance(operation, Step::LiveMigration, Mark::Started, effect)
            .unwrap();
    }

    /// Ends a transfer with this event.
    pub fn settle(
        &mut self,
        operation: OperationId,
        event: migration::Event,
    ) -> Result<Reply, Refusal> {
        let effect = Effect::Settle {
            event,
            refusal: None,
        };
        self.advance(operation, Step::Settle, Mark::Succeeded, effect)
    }

    /// Returns an operation.
    pub fn operation(&self, id: OperationId) -> &Arc<Operation> {
        self.state.operation(id).unwrap()
    }

    /// Returns the epoch of an operation's lease.
    pub fn epoch(&self, id: OperationId) -> Epoch {
        self.operation(id)
            .lease
            .as_ref()
            .map_or(Epoch(0), |l| l.epoch)
    }

    /// Records a mark of a step that has no effect.
    pub fn log(&mut self, id: OperationId, step: Step, mark: Mark) -> Result<Reply, Refusal> {
        self.advance(id, step, mark, Effect::None)
    }

    /// Records a mark of a step with its effect, under the current lease.
    pub fn advance(
        &mut self,
        operation: OperationId,
        step: Step,
        mark: Mark,
        effect: Effect,
    ) -> Result<Reply, Refusal> {
        let epoch = self.epoch(operation);
        self.run(Command::Advance {
            operation,
            epoch,
            step,
            mark,
            effect,
        })
    }

    /// Returns the host CPUs that a VM is pinned to.
    pub fn pins(&self, vm: &str) -> Vec<u32> {
        let claim = self.state.vm(&vm_name(vm)).unwrap().claim.unwrap();
        let assignment = &self.state.claim(claim).unwrap().assignment;
        assignment.pins().values().map(|cpu| cpu.0).collect()
    }

    /// Returns how much of a resource class is used on a host.
    pub fn used(&self, host: &str, class: &str) -> u64 {
        let view = self.view(host);
        let used = view.used.iter().find(|(c, _)| c.as_str() == class);
        used.map_or(0, |(_, amount)| *amount)
    }
}

/// Returns a refusal with this reason.
pub fn refusal(reason: &str) -> Refusal {
    Refusal::new(Code::Unavailable, reason, "said the test")
}

/// Returns the reason of a refusal, or `ok`.
pub fn reason(outcome: &Result<Reply, Refusal>) -> &str {
    match outcome {
        Ok(_) => "ok",
        Err(refusal) => &refusal.reason,
    }
}

/// Returns the key of a request that may be repeated.
pub fn request(number: u64, payload_hash: u128) -> RequestKey {
    RequestKey {
        method: "Test".to_owned(),
        id: RequestId(uuid(6, number)),
        payload_hash,
    }
}

/// An assignment that nobody would choose.
pub fn nowhere() -> Assignment {
    Assignment::default()
}

/// Returns what a guest is given for its first boot, with a word that no other test data has.
#[must_use]
pub fn first_boot() -> FirstBoot {
    FirstBoot {
        user_data: format!("#cloud-config\npassword: {FIRST_BOOT_SECRET}\n").into_bytes(),
        network_config: format!("# {FIRST_BOOT_SECRET}\nversion: 2\n"),
        ssh_keys: vec![format!(
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 {FIRST_BOOT_SECRET}"
        )],
    }
}

/// What is in every part of [`first_boot`].
pub const FIRST_BOOT_SECRET: &str = "quetzalcoatlus";
