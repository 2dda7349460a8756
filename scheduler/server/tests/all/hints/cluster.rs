//! Drawn clusters, and requests of them.

use std::collections::BTreeSet;

use berth_decide::{
    Action, Decision, DecisionRequest, Proposal, ScheduleMigration, ScheduleMove, ScheduleVm,
    decide,
};
use berth_domain::aggregate::{Aggregate, ZONE_KEY};
use berth_domain::flavor::Flavor;
use berth_domain::host::Liveness;
use berth_domain::id::{
    AggregateId, ClaimId, Generation, MigrationId, OperationId, ProviderId, TimeMs, VmUid,
};
use berth_domain::image::ImageProperties;
use berth_domain::name::{
    AggregateName, FlavorName, HostName, NetworkName, PciAliasName, ServerGroupName, ServiceName,
    VmName, ZoneName,
};
use berth_domain::operation::LeaseRequest;
use berth_domain::ownership::Ownership;
use berth_domain::pci::{PciAlias, PciId, PciMatch};
use berth_domain::policy::{Scope, Setting};
use berth_domain::refusal::Refusal;
use berth_domain::server_group::{GroupPolicy, ServerGroup};
use berth_domain::version::ServiceVersion;
use berth_domain::vm::{self, BootSource, NicPlug, NicRequest, SchedulingHints};
use berth_state::command::{Command, Envelope};
use berth_state::{Reply, State};
use berth_testkit::state::network;
use uuid::Uuid;

use super::dice::Dice;
use super::report;

/// The networks of each cluster: one that every bridge carries, and one in a VLAN with an MTU.
const NETWORKS: [&str; 2] = ["plain", "tagged"];

/// Name, vCPUs, MiB, extra specs.
type Row = (
    &'static str,
    u32,
    u64,
    &'static [(&'static str, &'static str)],
);

const PINNED: (&str, &str) = ("hw:cpu_policy", "dedicated");
const HUGE: (&str, &str) = ("hw:mem_page_size", "2MB");
const CARD: (&str, &str) = ("pci_passthrough:alias", "card:1");

const FLAVORS: &[Row] = &[
    ("s1", 1, 512, &[]),
    ("s1n", 1, 1024, &[("hw:numa_nodes", "1")]),
    ("p1", 1, 512, &[PINNED]),
    ("p2", 2, 512, &[PINNED]),
    ("p4n2", 4, 1024, &[PINNED, ("hw:numa_nodes", "2")]),
    ("p6n2", 6, 1024, &[PINNED, ("hw:numa_nodes", "2")]),
    ("p8", 8, 512, &[PINNED]),
    ("h1", 1, 512, &[PINNED, HUGE]),
    ("h1g", 1, 1024, &[PINNED, HUGE]),
    ("h2n2", 2, 1024, &[PINNED, HUGE, ("hw:numa_nodes", "2")]),
    (
        "iso",
        2,
        512,
        &[PINNED, ("hw:cpu_thread_policy", "isolate")],
    ),
    (
        "req",
        2,
        512,
        &[PINNED, ("hw:cpu_thread_policy", "require")],
    ),
    (
        "emu",
        2,
        512,
        &[PINNED, ("hw:emulator_threads_policy", "isolate")],
    ),
    (
        "card",
        1,
        512,
        &[PINNED, CARD, ("hw:pci_numa_affinity_policy", "required")],
    ),
    (
        "sock",
        2,
        512,
        &[PINNED, CARD, ("hw:pci_numa_affinity_policy", "socket")],
    ),
    ("leg", 1, 512, &[PINNED, CARD]),
    ("pmem", 1, 512, &[PINNED, ("hw:pmem", "small")]),
    (
        "pmemr",
        1,
        512,
        &[
            PINNED,
            ("hw:pmem", "small"),
            ("hw:pmem_numa_policy", "required"),
        ],
    ),
    ("fast", 1, 512, &[PINNED, ("trait:CUSTOM_FAST", "required")]),
    (
        "ssd",
        1,
        512,
        &[("aggregate_instance_extra_specs:ssd", "true")],
    ),
    ("big", 1, 3500, &[]),
    ("bigp", 1, 3000, &[PINNED]),
];

/// A state under commands.
#[derive(Clone)]
pub(super) struct World {
    pub(super) state: State,
    index: u64,
    ids: u128,
}

impl World {
    /// Returns a cluster without hosts.
    pub(super) fn empty() -> Self {
        let mut world = Self {
            state: State::new(),
            index: 0,
            ids: 0,
        };
        world.run(Command::FinalizeUpgrade {
            version: ServiceVersion::CURRENT,
            gone: BTreeSet::new(),
        });
        world.run(Command::CreatePciAlias(PciAlias {
            name: PciAliasName::new("card").unwrap(),
            any_of: vec![PciMatch {
                vendor: Some(PciId(0x8086)),
                ..PciMatch::default()
            }],
            policy: None,
        }));
        for name in NETWORKS {
            let mut network = network(name);
            if name == "tagged" {
                network.link.vlan = Some(7);
                network.link.mtu = Some(1500);
            }
            world.run(Command::CreateNetwork(network));
        }
        for (name, vcpus, memory_mib, specs) in FLAVORS {
            let each = specs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            world.run(Command::CreateFlavor(Flavor {
                name: FlavorName::new(name).unwrap(),
                vcpus: *vcpus,
                memory_mib: *memory_mib,
                disk_gib: 0,
                extra_specs: each.collect(),
                ownership: Ownership::default(),
            }));
        }
        for (name, policy) in [
            ("near", GroupPolicy::Affinity),
            ("far", GroupPolicy::AntiAffinity),
        ] {
            let name = ServerGroupName::new(name).unwrap();
            let group = ServerGroup::new(name, policy, None).unwrap();
            world.run(Command::CreateServerGroup(group));
        }
        world
    }

    /// Draws a cluster and fills it.
    pub(super) fn draw(dice: &mut Dice) -> Self {
        let mut world = Self::empty();
        world.draw_hosts(dice);
        if dice.chance(40) {
            let ratio = dice.pick(&[1_500, 3_000]);
            world.submit(Action::SetPolicy {
                scope: Scope::Cluster,
                settings: vec![Setting::MemoryRatio(Some(ratio))],
                generation: None,
            });
        }
        for _ in 0..dice.below(18) {
            let request = world.boot(dice);
            if let Ok(proposal) = world.decide(&request) {
                world.carry_out(&proposal);
            }
            world.age(dice);
        }
        for name in world.hosts() {
            if dice.chance(15) {
                world.run(Command::SetCordon {
                    host: name.clone(),
                    cordoned: true,
                });
            }
            if dice.chance(10) {
                world.run(Command::SetLiveness {
                    host: name,
                    liveness: Liveness::Down,
                });
            }
        }
        world
    }

    fn draw_hosts(&mut self, dice: &mut Dice) {
        let count = 2 + dice.below(4);
        let mut zones = [BTreeSet::new(), BTreeSet::new(), BTreeSet::new()];
        for number in 1..=count {
            let host = HostName::new(&format!("h{number}")).unwrap();
            self.register(&host, report::draw(dice));
            zones[usize::try_from(dice.below(3)).unwrap()].insert(host.clone());
            if dice.chance(40) {
                zones[2].insert(host);
            }
        }
        let [east, west, ssd] = zones;
        for (name, key, value, hosts) in [
            ("east", ZONE_KEY, "east", east),
            ("west", ZONE_KEY, "west", west),
            ("ssd", "ssd", "true", ssd),
        ] {
            let id = AggregateId(self.fresh());
            self.run(Command::CreateAggregate(Aggregate {
                name: AggregateName::new(name).unwrap(),
                id,
                hosts,
                metadata: [(key.to_owned(), value.to_owned())].into(),
                generation: Generation(1),
                created_at: TimeMs(0),
            }));
        }
    }

    /// Registers a host, or takes a new report of it.
    pub(super) fn register(&mut self, host: &HostName, report: berth_domain::host::HostReport) {
        let provider = ProviderId(self.fresh());
        self.run(Command::RegisterHost {
            host: host.clone(),
            provider,
            report,
        });
    }

    pub(super) fn hosts(&self) -> Vec<HostName> {
        self.state.hosts().keys().cloned().collect()
    }

    pub(super) fn fresh(&mut self) -> Uuid {
        self.ids += 1;
        Uuid::from_u128(self.ids << 64 | 7)
    }

    pub(super) fn lease() -> LeaseRequest {
        LeaseRequest {
            conductor: ServiceName::new("c1").unwrap(),
            ttl_ms: 10_000,
        }
    }

    /// Draws a request: most times a boot, else a move or a resize.
    pub(super) fn request(&mut self, dice: &mut Dice) -> Action {
        let vms = self.vms(vm::State::Active);
        if vms.is_empty() || dice.chance(75) {
            return self.boot(dice);
        }
        let vm = dice.pick(&vms);
        let host = dice.chance(25).then(|| dice.pick(&self.hosts()));
        if dice.chance(50) {
            return Action::ScheduleMigration(ScheduleMigration {
                operation: OperationId(self.fresh()),
                migration: MigrationId(self.fresh()),
                claim: ClaimId(self.fresh()),
                vm,
                host,
                lease: Self::lease(),
                transfer: Default::default(),
            });
        }
        let flavor = dice.chance(60).then(|| flavor_name(dice));
        self.cold_move(vm, flavor, host)
    }

    pub(super) fn cold_move(
        &mut self,
        vm: VmName,
        flavor: Option<FlavorName>,
        host: Option<HostName>,
    ) -> Action {
        Action::ScheduleMove(ScheduleMove {
            operation: OperationId(self.fresh()),
            migration: MigrationId(self.fresh()),
            claim: ClaimId(self.fresh()),
            vm,
            verify: flavor.is_some(),
            flavor,
            host,
            preferred: None,
            evacuate: false,
            lease: Self::lease(),
        })
    }

    fn boot(&mut self, dice: &mut Dice) -> Action {
        let name = VmName::new(&format!("v{}", self.ids)).unwrap();
        let zone = dice.pick(&["east", "west"]);
        let group = dice.pick(&["near", "far"]);
        let flavor = dice.pick(FLAVORS).0;
        let hints = SchedulingHints {
            server_group: dice
                .chance(20)
                .then(|| ServerGroupName::new(group).unwrap()),
            availability_zone: dice.chance(20).then(|| ZoneName::new(zone).unwrap()),
        };
        let host = dice.chance(10).then(|| dice.pick(&self.hosts()));
        let mut aside = dice.aside();
        let network = aside.chance(5).then(|| aside.pick(&NETWORKS));
        let mut action = self.new_vm(name, flavor, hints, host);
        if let Action::ScheduleVm(params) = &mut action {
            params.nics.extend(network.map(|network| NicRequest {
                plug: NicPlug::Network(NetworkName::new(network).unwrap()),
                mac: String::new(),
            }));
        }
        action
    }

    pub(super) fn new_vm(
        &mut self,
        vm: VmName,
        flavor: &str,
        hints: SchedulingHints,
        host: Option<HostName>,
    ) -> Action {
        let number = self.fresh();
        Action::ScheduleVm(ScheduleVm {
            operation: OperationId(number),
            vm,
            uid: VmUid(number),
            claim: ClaimId(number),
            flavor: FlavorName::new(flavor).unwrap(),
            project: None,
            restart: Default::default(),
            first_boot: None,
            metadata: Default::default(),
            boot: BootSource::Kernel {
                kernel: "vmlinuz".to_owned(),
                initrd: "initrd".to_owned(),
                cmdline: String::new(),
            },
            disks: Vec::new(),
            nics: Vec::new(),
            image_properties: ImageProperties::default(),
            hints,
            volumes: Vec::new(),
            host,
            lease: Self::lease(),
        })
    }

    pub(super) fn vms(&self, state: vm::State) -> Vec<VmName> {
        let all = self.state.vms().values();
        let such = all.filter(|vm| vm.state == state && vm.operation.is_none());
        such.map(|vm| vm.name.clone()).collect()
    }

    /// Now and then, one VM is stopped, shelved or deleted, or another one resized and not
    /// confirmed.
    pub(super) fn age(&mut self, dice: &mut Dice) {
        let mut vms = self.vms(vm::State::Active);
        let is_up = |vm: &VmName| {
            let host = self.state.vm(vm).and_then(|vm| vm.host.as_ref());
            let view = host.and_then(|host| self.state.host(host));
            let current = ServiceVersion::CURRENT;
            view.map(|view| &view.host).is_some_and(|host| {
                host.liveness == Liveness::Up && host.report.service_version == current
            })
        };
        vms.retain(is_up);
        if vms.is_empty() || !dice.chance(25) {
            return;
        }
        let vm = dice.pick(&vms);
        match dice.below(4) {
            0 => self.stop(&vm),
            1 => self.shelve(&vm),
            2 => self.delete(&vm),
            _ => {
                let flavor = Some(flavor_name(dice));
                let action = self.cold_move(vm, flavor, None);
                if let Ok(proposal) = self.decide(&action) {
                    self.carry_out(&proposal);
                }
            }
        }
    }

    /// Decides as the leader does.
    pub(super) fn decide(&self, action: &Action) -> Result<Proposal, Refusal> {
        let request = DecisionRequest::new("test", action.clone());
        match decide(&self.state, berth_codec::admit, TimeMs(1000), &request) {
            Decision::Command(proposal) => Ok(*proposal),
            Decision::Refuse(refusal) => Err(*refusal),
            Decision::Answer(_) | Decision::Explain(_) => panic!("{action:?}"),
        }
    }

    /// Executes a decision, and its operation to the end.
    pub(super) fn carry_out(&mut self, proposal: &Proposal) {
        let reply = self.apply(&proposal.envelope);
        if let Reply::Operation(operation) = reply {
            self.complete(&operation);
        }
    }

    pub(super) fn submit(&mut self, action: Action) {
        let proposal = self.decide(&action).unwrap();
        self.carry_out(&proposal);
    }

    pub(super) fn run(&mut self, command: Command) -> Reply {
        self.apply(&Envelope {
            at: TimeMs(1000),
            principal: "test".to_owned(),
            request: None,
            audit: None,
            command,
        })
    }

    pub(super) fn apply(&mut self, envelope: &Envelope) -> Reply {
        self.index += 1;
        let reply = self.state.speculate(self.index, envelope);
        reply.unwrap_or_else(|refusal| panic!("{refusal}: {envelope:?}"))
    }
}

fn flavor_name(dice: &mut Dice) -> FlavorName {
    FlavorName::new(dice.pick(FLAVORS).0).unwrap()
}
