//! Requests in an order that is the same in every run: VMs come and go, are moved, resized and shelved,
//! hosts are drained and die, and the policy is changed on the way.
//!
//! The ids of a step follow from its number, so that two leaders which take the same steps under
//! different policies break ties alike.

use std::collections::BTreeSet;

use berth_decide::{
    Action, DrainOptions, MoveDrained, ScheduleMigration, ScheduleMove, ScheduleUnshelve,
    ScheduleVm, plan_drain,
};
use berth_domain::fence::Method;
use berth_domain::host::{HostReport, Liveness};
use berth_domain::id::{ClaimId, MigrationId, OperationId, VmUid};
use berth_domain::image::ImageProperties;
use berth_domain::migration;
use berth_domain::name::{FlavorName, HostName, VmName};
use berth_domain::operation::{DrainSpec, Effect, Mark, PlannedPlace, Step as Stage};
use berth_domain::policy::{Scope, Setting};
use berth_domain::refusal::Refusal;
use berth_domain::transfer::TransferOverrides;
use berth_domain::vm::{BootSource, NicPlug, NicRequest, RestartPolicy, SchedulingHints};
use berth_state::command::{Command, PlannedVm};
use berth_testkit::state::{flavor, host_name, report, topology, uuid, vm_name};

use crate::common::Leader;

/// The generator of all that is random: splitmix64.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// What is requested.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Request {
    Boot(FlavorName, Option<HostName>),
    /// A boot whose first host refuses.
    BootTwice(FlavorName),
    Delete(VmName),
    Migrate(VmName),
    MoveCold(VmName, Option<FlavorName>),
    Shelve(VmName),
    Unshelve(VmName),
    Drain(HostName),
    Die(HostName),
    Set(Vec<Setting>),
}

/// A request with its number, from which its ids follow.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) number: u64,
    pub(crate) request: Request,
}

/// Flavors of the script.
const FLAVORS: [&str; 4] = ["tiny", "pinned", "wide", "large"];

fn setting(key: &str, value: &str) -> Setting {
    Setting::parse(key, value).expect("a good setting")
}

/// Returns the settings of `scheduling.hosts` and `scheduling.cells`.
pub(crate) fn pack() -> Vec<Setting> {
    ["scheduling.hosts", "scheduling.cells"]
        .map(|key| setting(key, "pack"))
        .to_vec()
}

fn flavor_name(name: &str) -> FlavorName {
    FlavorName::new(name).expect("a good name")
}

/// Returns the report of hosts on which three VMs or so have capacity.
pub(crate) fn small_host() -> HostReport {
    report(topology(2, 6, 2))
}

/// Returns a leader with hosts and the flavors of the script, of which a full backup was made.
pub(crate) fn leader(hosts: u32) -> Leader {
    let mut leader = Leader::new(hosts, &small_host());
    let pinned = ("hw:cpu_policy", "dedicated");
    leader.flavor(flavor("tiny", 1, 256, &[]));
    leader.flavor(flavor("pinned", 2, 512, &[pinned]));
    let nodes = ("hw:numa_nodes", "2");
    leader.flavor(flavor("wide", 4, 1024, &[pinned, nodes]));
    leader.flavor(flavor("large", 5, 1024, &[pinned]));
    leader.full_backup();
    leader
}

/// Returns so many steps. With `faults` hosts are drained and die as well.
pub(crate) fn steps(count: u64, seed: u64, hosts: u32, faults: bool) -> Vec<Step> {
    let mut dice = Dice(seed);
    let (mut alive, mut shelved) = (Vec::new(), Vec::new());
    let each = (1..=count).map(|number| {
        let request = draw(&mut dice, number, (&mut alive, &mut shelved), hosts, faults);
        Step { number, request }
    });
    each.collect()
}

fn draw(
    dice: &mut Dice,
    number: u64,
    (alive, shelved): (&mut Vec<VmName>, &mut Vec<VmName>),
    hosts: u32,
    faults: bool,
) -> Request {
    let flavor = flavor_name(FLAVORS[dice.below(4) as usize]);
    let kind = dice.below(100);
    let at = dice.below(alive.len().max(1) as u64) as usize;
    let host = host_name(&format!("h{}", dice.below(hosts.into()) + 1));
    let known = alive.get(at).cloned();
    match (kind, known) {
        (0..45, _) | (_, None) => {
            alive.push(vm_name(&format!("vm{number}")));
            match kind {
                0..4 => Request::Boot(flavor, Some(host)),
                4..8 => Request::BootTwice(flavor),
                _ => Request::Boot(flavor, None),
            }
        }
        (45..65, Some(_)) => Request::Delete(alive.swap_remove(at)),
        (65..80, Some(vm)) => Request::Migrate(vm),
        (80..84, Some(vm)) => Request::MoveCold(vm, None),
        (84..88, Some(vm)) => Request::MoveCold(vm, Some(flavor)),
        (88..91, Some(vm)) => {
            shelved.push(vm.clone());
            Request::Shelve(vm)
        }
        (91..95, Some(vm)) => Request::Unshelve(shelved.pop().unwrap_or(vm)),
        (95..97, Some(_)) if faults => Request::Drain(host),
        (97, Some(_)) if faults => Request::Die(host),
        (_, Some(_)) => Request::Set(match dice.below(3) {
            0 => pack(),
            1 => vec![setting("scheduling.hosts", "spread")],
            _ => vec![setting("scheduling.weight.fragmentation", "100")],
        }),
    }
}

impl Leader {
    /// Takes steps, of which some are refused; returns the numbers of these with the reason.
    pub(crate) fn take(&mut self, steps: &[Step]) -> Vec<(u64, String)> {
        let mut refused = Vec::new();
        for step in steps {
            if let Err(refusal) = self.step(step) {
                refused.push((step.number, refusal.reason));
            }
        }
        refused
    }

    fn step(&mut self, step: &Step) -> Result<(), Refusal> {
        let number = step.number;
        match &step.request {
            Request::Boot(flavor, host) => {
                let operation = self.schedule(number, flavor, host.clone())?;
                self.spawn(operation);
                Ok(())
            }
            Request::BootTwice(flavor) => self.boot_twice(number, flavor),
            Request::Delete(vm) => self.delete(number, vm),
            Request::Migrate(vm) => self.migrate(number, vm),
            Request::MoveCold(vm, flavor) => self.move_cold(number, vm, flavor.clone()),
            Request::Shelve(vm) => self.shelve(number, vm),
            Request::Unshelve(vm) => self.unshelve(number, vm),
            Request::Drain(host) => self.drain(number, host, false),
            Request::Die(host) => self.die(number, host),
            Request::Set(settings) => self.set(settings.clone()),
        }
    }

    /// Changes the policy.
    pub(crate) fn set(&mut self, settings: Vec<Setting>) -> Result<(), Refusal> {
        let (scope, generation) = (Scope::Cluster, None);
        self.submit(Action::SetPolicy {
            scope,
            settings,
            generation,
        })
        .map(drop)
    }

    /// Begins to boot `vm` with the step's number.
    pub(crate) fn schedule(
        &mut self,
        number: u64,
        flavor: &FlavorName,
        host: Option<HostName>,
    ) -> Result<OperationId, Refusal> {
        let operation = OperationId(uuid(1, number));
        self.submit(Action::ScheduleVm(ScheduleVm {
            operation,
            vm: vm_name(&format!("vm{number}")),
            uid: VmUid(uuid(4, number)),
            claim: ClaimId(uuid(3, number.wrapping_mul(0x9e37_79b9))),
            flavor: flavor.clone(),
            boot: BootSource::Kernel {
                kernel: "k".to_owned(),
                initrd: "i".to_owned(),
                cmdline: String::new(),
            },
            disks: Vec::new(),
            nics: vec![NicRequest {
                plug: NicPlug::Bridge("br0".to_owned()),
                mac: String::new(),
            }],
            image_properties: ImageProperties::default(),
            hints: SchedulingHints::default(),
            volumes: Vec::new(),
            host,
            lease: self.lease(),
            project: None,
            restart: RestartPolicy::default(),
            first_boot: None,
            metadata: Default::default(),
        }))?;
        Ok(operation)
    }

    /// Carries a boot out.
    pub(crate) fn spawn(&mut self, operation: OperationId) {
        self.advance(operation, Stage::Spawn, Mark::Started, Effect::None);
        let done = Effect::CompleteBoot;
        self.advance(operation, Stage::Spawn, Mark::Succeeded, done);
    }

    /// The first host refuses when the guest is to be started there; another one is chosen.
    fn boot_twice(&mut self, number: u64, flavor: &FlavorName) -> Result<(), Refusal> {
        let operation = self.schedule(number, flavor, None)?;
        let claim = self.state().operation(operation).and_then(|o| o.claim);
        let claim = claim.expect("it was chosen");
        let why = Refusal::new(berth_domain::refusal::Code::Internal, "NO_KVM", "no KVM");
        let release = Effect::ReleaseClaim {
            claim,
            exclude: true,
        };
        self.advance(operation, Stage::Claim, Mark::Undone, release);
        if self.failing.contains(&number) {
            let failed = Effect::FailBoot(why);
            self.advance(operation, Stage::Claim, Mark::Undone, failed);
            return Ok(());
        }
        let known = self.state().operation(operation).expect("it is there");
        let epoch = known.lease.as_ref().expect("it runs").epoch;
        let next = self.submit(Action::ScheduleNext {
            operation,
            epoch,
            claim: ClaimId(uuid(6, number)),
        });
        match next {
            Ok(_) => self.spawn(operation),
            Err(refusal) => {
                self.failed.insert(number, refusal.reason);
                let failed = Effect::FailBoot(why);
                self.advance(operation, Stage::Claim, Mark::Undone, failed);
            }
        }
        Ok(())
    }

    /// Deletes a VM if it is there.
    pub(crate) fn delete(&mut self, number: u64, vm: &VmName) -> Result<(), Refusal> {
        let operation = OperationId(uuid(1, number));
        self.submit(Action::Plain(Command::BeginDelete {
            operation,
            vm: vm.clone(),
            lease: self.lease(),
        }))?;
        if self.state().vm(vm).is_some() {
            self.advance(operation, Stage::Destroy, Mark::Started, Effect::None);
            let done = Effect::CompleteDelete;
            self.advance(operation, Stage::Destroy, Mark::Succeeded, done);
        }
        Ok(())
    }

    fn migrate(&mut self, number: u64, vm: &VmName) -> Result<(), Refusal> {
        let operation = OperationId(uuid(1, number));
        self.submit(Action::ScheduleMigration(ScheduleMigration {
            operation,
            migration: MigrationId(uuid(5, number)),
            vm: vm.clone(),
            claim: ClaimId(uuid(3, number)),
            host: None,
            lease: self.lease(),
            transfer: TransferOverrides {
                auto_converge: Some(true),
                ..TransferOverrides::default()
            },
        }))?;
        self.transfer(operation);
        Ok(())
    }

    fn transfer(&mut self, operation: OperationId) {
        let claim = self.state().operation(operation).and_then(|o| o.claim);
        let claim = claim.expect("it was chosen");
        for stage in [Stage::CheckDestination, Stage::CheckSource] {
            self.advance(operation, stage, Mark::Succeeded, Effect::None);
        }
        let has_topology = self.state().claim(claim).is_some_and(|claim| {
            let vm = self.state().vm(&claim.vm);
            vm.is_some_and(|vm| vm.spec.topology.is_some())
        });
        if has_topology {
            let confirm = Effect::ConfirmClaim { claim };
            self.advance(operation, Stage::FitDestination, Mark::Succeeded, confirm);
        }
        let prepare = Stage::PreLiveMigration;
        self.advance(operation, prepare, Mark::Started, Effect::None);
        self.advance(operation, prepare, Mark::Succeeded, Effect::None);
        let begin = Effect::BeginTransfer;
        self.advance(operation, Stage::LiveMigration, Mark::Started, begin);
        let arrived = Effect::Settle {
            event: migration::Event::Arrived,
            refusal: None,
        };
        self.advance(operation, Stage::Settle, Mark::Succeeded, arrived);
    }

    fn move_cold(
        &mut self,
        number: u64,
        vm: &VmName,
        flavor: Option<FlavorName>,
    ) -> Result<(), Refusal> {
        let operation = OperationId(uuid(1, number));
        self.submit(Action::ScheduleMove(ScheduleMove {
            operation,
            migration: MigrationId(uuid(5, number)),
            vm: vm.clone(),
            claim: ClaimId(uuid(3, number)),
            flavor,
            host: None,
            preferred: None,
            verify: false,
            evacuate: false,
            lease: self.lease(),
        }))?;
        let stop = Stage::StopSource;
        self.advance(operation, stop, Mark::Started, Effect::None);
        self.advance(operation, stop, Mark::Succeeded, Effect::None);
        self.start_destination(operation);
        Ok(())
    }

    fn start_destination(&mut self, operation: OperationId) {
        let start = Stage::StartDestination;
        self.advance(operation, start, Mark::Started, Effect::None);
        self.advance(operation, start, Mark::Succeeded, Effect::CompleteMove);
    }

    fn shelve(&mut self, number: u64, vm: &VmName) -> Result<(), Refusal> {
        let operation = OperationId(uuid(1, number));
        self.submit(Action::Plain(Command::BeginShelve {
            operation,
            vm: vm.clone(),
            lease: self.lease(),
        }))?;
        let stop = Stage::StopSource;
        self.advance(operation, stop, Mark::Started, Effect::None);
        self.advance(operation, stop, Mark::Succeeded, Effect::CompleteShelve);
        Ok(())
    }

    fn unshelve(&mut self, number: u64, vm: &VmName) -> Result<(), Refusal> {
        let operation = OperationId(uuid(1, number));
        self.submit(Action::ScheduleUnshelve(ScheduleUnshelve {
            operation,
            vm: vm.clone(),
            claim: ClaimId(uuid(3, number)),
            host: None,
            lease: self.lease(),
        }))?;
        self.advance(
            operation,
            Stage::StartDestination,
            Mark::Started,
            Effect::None,
        );
        let done = Effect::CompleteUnshelve;
        self.advance(operation, Stage::StartDestination, Mark::Succeeded, done);
        Ok(())
    }

    /// Drains a host with the moves of its plan, and opens it again.
    fn drain(&mut self, number: u64, host: &HostName, evacuate: bool) -> Result<(), Refusal> {
        let drain = OperationId(uuid(1, number << 16));
        let options = DrainOptions {
            evacuate,
            cold: !evacuate,
            by_policy: false,
        };
        let state = self.state();
        let plan = plan_drain(state, berth_codec::admit, state.time(), host, options)?;
        let planned = plan.moves.iter().map(|step| PlannedVm {
            vm: step.vm.clone(),
            place: evacuate.then(|| PlannedPlace {
                host: step.destination.clone(),
                assignment: step.assignment.clone(),
            }),
        });
        self.submit(Action::Plain(Command::BeginDrain {
            operation: drain,
            host: host.clone(),
            spec: DrainSpec {
                evacuate,
                cold: !evacuate,
                parallel: 1,
                by_policy: false,
            },
            by: "operator".to_owned(),
            plan: planned.collect(),
            lease: self.lease(),
        }))?;
        self.move_drained(number, drain);
        let (host, cordoned) = (host.clone(), false);
        let open = Command::SetCordon { host, cordoned };
        self.submit(Action::Plain(open)).map(drop)
    }

    fn move_drained(&mut self, number: u64, drain: OperationId) {
        let operation = self.state().operation(drain).expect("it began");
        let record = operation.drain().expect("it is a drain");
        let vms: BTreeSet<VmName> = record
            .vms
            .iter()
            .map(|drained| drained.vm.clone())
            .collect();
        for (at, vm) in (1..).zip(vms) {
            let Some(lease) = self.state().operation(drain).and_then(|o| o.lease.clone()) else {
                return;
            };
            let operation = OperationId(uuid(1, (number << 16) + at));
            let moved = self.submit(Action::MoveDrained(MoveDrained {
                drain,
                epoch: lease.epoch,
                vm: vm.clone(),
                operation,
                migration: MigrationId(uuid(5, (number << 16) + at)),
                claim: ClaimId(uuid(3, (number << 16) + at)),
                lease: self.lease(),
            }));
            let refusal = match moved {
                Ok(_) => {
                    self.finish_move(operation);
                    None
                }
                Err(refusal) => Some(refusal),
            };
            let recorded = self.submit(Action::Plain(Command::RecordDrained {
                drain,
                epoch: lease.epoch,
                vm,
                refusal,
            }));
            recorded.expect("the drain goes on");
        }
    }

    fn finish_move(&mut self, operation: OperationId) {
        let known = self.state().operation(operation).expect("it began");
        let evacuates = matches!(known.kind, berth_domain::operation::Kind::Evacuate { .. });
        let is_cold = matches!(
            known.kind,
            berth_domain::operation::Kind::ColdMigrate { .. }
        );
        match (evacuates, is_cold) {
            (true, _) => self.start_destination(operation),
            (false, true) => {
                let stop = Stage::StopSource;
                self.advance(operation, stop, Mark::Started, Effect::None);
                self.advance(operation, stop, Mark::Succeeded, Effect::None);
                self.start_destination(operation);
            }
            (false, false) => self.transfer(operation),
        }
    }

    /// A host dies and is fenced.
    pub(crate) fn fence(&mut self, host: &HostName) {
        let view = self.state().host(host).expect("it is there");
        let incarnation = view.host.report.incarnation;
        self.plain(Command::SetLiveness {
            host: host.clone(),
            liveness: Liveness::Down,
        });
        self.plain(Command::FenceHost {
            host: host.clone(),
            method: Method::Operator,
            by: "operator".to_owned(),
            output: String::new(),
            incarnation,
        });
    }

    /// A host dies, is fenced and evacuated, and comes back with another run of its agent.
    fn die(&mut self, number: u64, host: &HostName) -> Result<(), Refusal> {
        let view = self.state().host(host).expect("it is there");
        let (provider, mut report) = (view.host.provider, view.host.report.clone());
        self.fence(host);
        let evacuated = self.drain(number, host, true);
        report.incarnation = berth_domain::id::Incarnation(uuid(9, number));
        self.plain(Command::RegisterHost {
            host: host.clone(),
            provider,
            report: report.clone(),
        });
        let comparison = berth_domain::reality::Comparison {
            basis: self.state().revision(),
            ..Default::default()
        };
        self.plain(Command::NoteReality {
            host: host.clone(),
            incarnation: report.incarnation,
            comparison,
        });
        let (host, cordoned) = (host.clone(), false);
        let open = Command::SetCordon { host, cordoned };
        self.submit(Action::Plain(open)).map(drop)?;
        evacuated
    }
}
