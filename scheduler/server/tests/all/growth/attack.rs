//! Attacks: for each method the commands that the service makes of its requests, as large as they can be.
//!
//! Names are new in every repeat. Texts are as long as the conversions accept in every fiftieth repeat
//! only: what many long ones would take together follows from the bounds.

use berth_codec::encode_row;
use berth_domain::audit::{RequestSummary, SUMMARY_MAX};
use berth_domain::bound::{BOUNDS, Bytes, REPORTED_NAMES_MAX, Record};
use berth_domain::claim::{ERASURE_FAILURE_LENGTH_MAX, ErasureProgress, ErasureReport, Owner};
use berth_domain::fence::{self, OUTPUT_MAX};
use berth_domain::flavor::{EXTRA_SPEC_LENGTH_MAX, EXTRA_SPECS_MAX};
use berth_domain::host::{HostReport, Liveness};
use berth_domain::id::{ClaimId, ClusterId, Epoch, Incarnation, MigrationId, OperationId, TimeMs};
use berth_domain::image::{Image, ImageProperties, PROPERTIES_MAX, PROPERTY_LENGTH_MAX};
use berth_domain::name::{PmemName, RegionName, ServiceName, VmName, VolumeId};
use berth_domain::operation::{DrainSpec, GuestPower, Kind, Mark, Operation, Step};
use berth_domain::pmem::{Label, PmemNamespace};
use berth_domain::policy::MigrationPolicy;
use berth_domain::reality::{Comparison, NAME_MAX, UNKNOWN_MAX, Unknown};
use berth_domain::recovery::{Cause, GUESTS_MAX};
use berth_domain::refusal::{Code, HOSTS_MAX, HostRefusal, Refusal};
use berth_domain::resource::Trait;
use berth_domain::service::Service;
use berth_domain::topology::CellId;
use berth_domain::version::ServiceVersion;
use berth_domain::vm::{self, BootSource, FILE_NAME_LENGTH_MAX, VmSpec};
use berth_domain::volume::{
    DeviceMode, DisplayName, FAILURE_LENGTH_MAX, Kind as VolumeKind, Outcome, Region, Report,
    Volume, VolumeRequest,
};
use berth_proto::convert::field::{ADDRESS_MAX, LIST_MAX, MESSAGE_MAX};
use berth_state::command::{Command, Effect, Envelope};
use berth_state::recovery::Begin;
use berth_state::{Row, State};
use berth_testkit::state::draw::next_of_saga;
use berth_testkit::state::volume::chosen;
use berth_testkit::state::*;
use berth_tls::Role;

/// Every how many repeats texts are as long as they can be.
const LONG: usize = 50;

const STEP: u64 = 16 << 20;

/// The conductor and the agent whose certificates the attacker has are `c1` and that of this host.
const HOST: &str = "h1";
const OTHER: &str = "h2";

/// A host that is fenced and cordoned.
const FENCED: &str = "h3";

/// How many more hosts may refuse a VM.
const MORE_HOSTS: usize = 30;

/// A VM that the attack of a method keeps.
const KEPT: &str = "kept";

/// Returns an image with as many properties as there may be.
fn some_image(name: &str, is_long: bool) -> Image {
    let mut image = image(name);
    let count = if is_long { PROPERTIES_MAX } else { 1 };
    let long = |number: usize| format!("{number:0>PROPERTY_LENGTH_MAX$}");
    image.properties = ImageProperties((0..count).map(|n| (long(n), long(n))).collect());
    image
}

/// Someone with the certificates of one host, of one conductor and of a controller of volumes.
pub(crate) struct Attacker {
    role: Role,
    pub(crate) world: World,
    /// How many commands were accepted.
    pub(crate) accepted: usize,
    /// The claim of which a namespace is being erased.
    erasing: ClaimId,
    /// The state before the first attack.
    base: State,
    /// As long as the conversions accept.
    long: Refusal,
    /// One on the attacker's host; each that is created has another name.
    volume: Volume,
}

fn text(length: usize) -> String {
    "x".repeat(length)
}

impl Attacker {
    /// Returns one in a cluster of two hosts, with a VM whose persistent memory is being erased.
    pub(crate) fn new(role: Role) -> Self {
        let mut world = World::with_hosts(0);
        for host in [HOST, OTHER, FENCED] {
            world.register(host, report_of(0, host, false)).unwrap();
        }
        for number in 0..MORE_HOSTS {
            let report = report(topology(2, 3, 1));
            world.register(&format!("n{number}"), report).unwrap();
        }
        let guest = spec(flavor("pmem", 1, 256, &[("hw:pmem", "SMALL")]));
        world.boot("erased", &guest, HOST);
        let erasing = world.state.vm(&vm_name("erased")).unwrap().claim.unwrap();
        let request = VolumeRequest {
            required_bytes: STEP,
            limit_bytes: 0,
            replicas: 1,
            preferred: Vec::new(),
            requisite: [host_name(HOST)].into(),
        };
        let volume = chosen(&mut world, "v", VolumeKind::Ephemeral, &request).unwrap();
        let summary = RequestSummary {
            method: "Attack".to_owned(),
            request_id: None,
            vm: None,
            host: None,
            summary: text(SUMMARY_MAX),
            choice: None,
        };
        let world = world.without_checks().recorded(summary);
        let mut attacker = Self {
            role,
            world,
            accepted: 0,
            erasing,
            base: State::new(),
            long: long_refusal(),
            volume,
        };
        attacker.delete("erased");
        attacker.base = attacker.world.state.clone();
        attacker
    }

    /// Repeats a method once more.
    pub(crate) fn repeat(&mut self, method: &str, number: usize) {
        // The last one is, and so is measured.
        let is_long = (number + 1).is_multiple_of(LONG);
        let (_, short) = method.rsplit_once('/').expect("a service and a method");
        match short {
            "RegisterHost" => self.register(number, is_long),
            "ReportHost" => self.run(Command::SetLiveness {
                host: host_name(HOST),
                liveness: match number % 2 {
                    0 => Liveness::Down,
                    _ => Liveness::Up,
                },
            }),
            "CompareDomains" => self.compare(),
            "ReportGuests" if number > 0 => {}
            "ReportGuests" => self.report_guests(),
            "ReportErasures" => self.report_erasure(),
            "CreateVolume" => drop(self.create_volume(number)),
            "DeleteVolume" => self.delete_volume(number),
            "ReportVolumes" => self.report_volume(number),
            "RegisterService" => self.run(Command::RegisterService(Service {
                name: conductor("c1"),
                address: format!("http://{number}:{}", text(ADDRESS_MAX - 20)),
                version: ServiceVersion::CURRENT,
                registered_at: TimeMs(0),
            })),
            "FenceHost" => self.fence(number),
            "CordonHost" => self.run(Command::SetCordon {
                host: host_name(FENCED),
                cordoned: number.is_multiple_of(2),
            }),
            _ => self.operate(short, number, is_long),
        }
    }

    fn run(&mut self, command: Command) {
        self.accepted += usize::from(self.world.run(command).is_ok());
    }

    fn register(&mut self, number: usize, is_long: bool) {
        let report = report_of(number, HOST, is_long);
        self.accepted += usize::from(self.world.register(HOST, report).is_ok());
        if !is_long {
            return;
        }
        // One more name than there may be.
        let mut more = report_of(number, HOST, false);
        let names = (0..REPORTED_NAMES_MAX).map(|name| custom(number, name, 64));
        more.traits.extend(names);
        self.world.register(HOST, more).unwrap_err();
    }

    fn incarnation(&self) -> Incarnation {
        self.world.view(HOST).host.report.incarnation
    }

    fn compare(&mut self) {
        let unknown = (0..UNKNOWN_MAX).map(|_| Unknown {
            uuid: uuid(8, self.world.fresh()),
            name: text(NAME_MAX),
            is_ours: true,
            claim: Some(ClaimId(uuid(3, 1))),
            held: Default::default(),
        });
        let mut unknown: Vec<Unknown> = unknown.collect();
        unknown.sort_by_key(|domain| domain.uuid);
        let comparison = Comparison {
            basis: self.world.state.revision(),
            unknown,
            findings: Vec::new(),
        };
        self.run(Command::NoteReality {
            host: host_name(HOST),
            incarnation: self.incarnation(),
            comparison,
        });
    }

    /// A cluster that does not recover takes none, so another one does.
    fn report_guests(&mut self) {
        let mut state = self.base.clone().recovered(&Begin {
            cluster: ClusterId(uuid(9, 1)),
            cause: Cause::Restored,
            at: TimeMs(1),
            index: self.base.revision(),
            level: ServiceVersion::CURRENT,
        });
        let mut guests = vec![by_hand::guest(1); GUESTS_MAX];
        for (number, guest) in (0..).zip(&mut guests) {
            guest.domain.uuid = uuid(8, number);
            guest.domain.name = text(NAME_MAX);
        }
        for guests in [guests.clone(), guests] {
            let revision = state.revision();
            let command = Command::ReportGuests {
                host: host_name(HOST),
                incarnation: state.hosts()[&host_name(HOST)].host.report.incarnation,
                basis: revision,
                guests,
            };
            let applied = state.apply(
                revision + 1,
                &Envelope {
                    at: TimeMs(1),
                    principal: String::new(),
                    request: None,
                    audit: None,
                    command,
                },
            );
            applied.outcome.expect("it recovers");
            self.accepted += 1;
        }
        let rows = state
            .rows()
            .filter(|row| matches!(row, Row::RecoveredHost(_)));
        let rows: Vec<_> = rows.map(|row| encode_row(&row).value.len()).collect();
        let bound = BOUNDS.iter().find(|b| b.record == Record::RecoveredHost);
        let Some(Bytes::Each(max)) = bound.map(|bound| bound.bytes) else {
            panic!("{bound:?}");
        };
        assert!(rows.len() == 1 && rows[0] <= max, "{rows:?} of {max}");
    }

    fn report_erasure(&mut self) {
        let failure = text(ERASURE_FAILURE_LENGTH_MAX);
        self.run(Command::NoteErasures {
            host: host_name(HOST),
            incarnation: self.incarnation(),
            reports: vec![ErasureReport {
                claim: self.erasing,
                namespace: PmemName::new("ns0").unwrap(),
                progress: ErasureProgress::Failed { failure },
            }],
        });
    }

    fn create_volume(&mut self, number: usize) -> Option<VolumeId> {
        let name = format!("{number}-{}-{}", self.world.fresh(), text(100));
        let name = DisplayName::new(&name).unwrap();
        let id = name.id(uuid(7, self.world.fresh()));
        let volume = Volume {
            id: id.clone(),
            display_name: name,
            ..self.volume.clone()
        };
        let command = Command::CreateVolume {
            volume: Box::new(volume),
            limit_bytes: 0,
        };
        let is_created = self.world.run(command).is_ok();
        self.accepted += usize::from(is_created);
        is_created.then_some(id)
    }

    /// Reports on a volume, which only the agent of its host may do.
    fn note_volume(&mut self, volume: &VolumeId, outcome: Outcome) {
        if self.role != Role::Agent {
            return;
        }
        self.run(Command::NoteVolumes {
            host: host_name(HOST),
            incarnation: self.incarnation(),
            reports: vec![Report {
                volume: volume.clone(),
                outcome,
            }],
        });
    }

    fn delete_volume(&mut self, number: usize) {
        self.forget_volumes(number);
        let Some(volume) = self.create_volume(number) else {
            return;
        };
        self.run(Command::DeleteVolume {
            volume: volume.clone(),
            generation: None,
            forget: false,
        });
        // Every tenth stays as one that is being removed, for reasons that its host reports.
        let outcome = match number.is_multiple_of(10) {
            false => Outcome::Deleted,
            true => Outcome::Delayed {
                why: text(FAILURE_LENGTH_MAX),
            },
        };
        self.note_volume(&volume, outcome);
    }

    /// Has a method begin without the volumes of the one before: each makes all commands on volumes
    /// slower, and thousands of them were measured.
    fn forget_volumes(&mut self, number: usize) {
        if number == 0 {
            self.world.state = self.base.clone();
        }
    }

    fn report_volume(&mut self, number: usize) {
        self.forget_volumes(number);
        if let Some(volume) = self.create_volume(number) {
            let why = text(FAILURE_LENGTH_MAX);
            self.note_volume(&volume, Outcome::Failed { why });
        }
    }

    fn fence(&mut self, number: usize) {
        let incarnation = self.world.view(FENCED).host.report.incarnation;
        self.run(Command::FenceHost {
            host: host_name(FENCED),
            method: fence::Method::FenceCommand,
            by: format!("conductor:c1-{number}"),
            output: text(OUTPUT_MAX),
            incarnation,
        });
    }

    /// Attacks a method of operations.
    fn operate(&mut self, method: &str, number: usize, is_long: bool) {
        let fresh = format!("{}-{number}", method.to_lowercase());
        match method {
            // VMs that failed to boot, were shelved or are not there any more.
            "ScheduleVm" | "Advance" | "ScheduleNext" => self.fail_boot(&fresh, is_long),
            "BeginShelve" => {
                self.boot(&fresh, is_long);
                self.shelve(&fresh);
            }
            "ScheduleUnshelve" => self.unshelve(is_long),
            "BeginDelete" => {
                self.boot(&fresh, is_long);
                self.delete(&fresh);
            }
            "ScheduleMigration" => self.migrate(is_long),
            "ScheduleMove" => self.move_cold(false, is_long),
            "ConfirmResize" => {
                self.move_cold(true, is_long);
                let vm = vm_name(KEPT);
                self.run(Command::ConfirmResize { vm, deleter: None });
            }
            "BeginRevertResize" => {
                self.move_cold(true, is_long);
                self.revert(is_long);
            }
            "BeginPower" => self.power(number, is_long),
            "OpenConsole" => {
                self.keep();
                self.run(Command::OpenConsole {
                    vm: vm_name(KEPT),
                    conductor: ServiceName::new(&fresh).expect("a name"),
                    take_over: is_long,
                });
            }
            "CreateImage" => self.run(Command::CreateImage(some_image(&fresh, is_long))),
            "CompleteImage" | "SetImageCopy" | "DeleteImage" => self.copy_image(&fresh, is_long),
            "BeginDrain" | "MoveDrained" | "RecordDrained" => self.drain(method, is_long),
            "TakeLease" | "RenewLeases" | "CancelOperation" | "ForceCompleteOperation" => {
                self.lease(method, &fresh, is_long);
            }
            _ => panic!("{method} has no attack: add one here"),
        }
    }

    fn begin_boot(&mut self, vm: &str, is_long: bool) -> Option<OperationId> {
        let (spec, metadata) = (spec_of(is_long), metadata_of(is_long));
        let operation = self.world.begin_boot_with(vm, &spec, HOST, metadata).ok()?;
        self.accepted += 1;
        Some(operation)
    }

    /// Boots a VM that runs.
    fn boot(&mut self, vm: &str, is_long: bool) {
        if let Some(operation) = self.begin_boot(vm, is_long) {
            self.play(operation, |_| false, is_long);
        }
    }

    /// Boots a VM that no host takes, though it is claimed again and again.
    fn fail_boot(&mut self, vm: &str, is_long: bool) {
        let rounds = if is_long { 200 } else { 2 };
        if let Some(operation) = self.begin_boot(vm, is_long) {
            self.play(operation, |step| step % 6 == 1 || step > rounds, is_long);
        }
    }

    /// Has the kept VM run, whatever an attack before left of it.
    fn keep(&mut self) {
        let vm = self.world.state.vm(&vm_name(KEPT));
        match vm.map(|vm| vm.state) {
            Some(vm::State::Active) => return,
            Some(_) => self.delete(KEPT),
            None => {}
        }
        self.boot(KEPT, false);
    }

    fn delete(&mut self, vm: &str) {
        let operation = operation_id(self.world.fresh());
        let lease = self.world.lease();
        self.run(Command::BeginDelete {
            operation,
            vm: vm_name(vm),
            lease,
        });
        self.play(operation, |_| false, false);
    }

    fn shelve(&mut self, vm: &str) {
        let operation = operation_id(self.world.fresh());
        let lease = self.world.lease();
        self.run(Command::BeginShelve {
            operation,
            vm: vm_name(vm),
            lease,
        });
        self.play(operation, |_| false, false);
    }

    /// Unshelves a VM that no host takes.
    fn unshelve(&mut self, is_long: bool) {
        self.keep();
        self.shelve(KEPT);
        let operation = operation_id(self.world.fresh());
        let lease = self.world.lease();
        let spec = self.world.state.vm(&vm_name(KEPT)).unwrap().spec.clone();
        let claim = self.world.claim(KEPT, &spec, HOST, Owner::Vm);
        self.run(Command::BeginUnshelve {
            operation,
            vm: vm_name(KEPT),
            requested_host: None,
            claim,
            lease,
        });
        self.play(operation, |_| true, is_long);
    }

    /// Begins a live migration that no host takes.
    fn migrate(&mut self, is_long: bool) {
        self.keep();
        if let Ok(operation) = self.world.begin_migration(KEPT, OTHER) {
            self.accepted += 1;
            self.play(operation, |step| step == 4 || step >= 8, is_long);
        }
    }

    /// Moves a VM that is off; as a resize it waits to be verified.
    fn move_cold(&mut self, verify: bool, is_long: bool) {
        self.keep();
        let vm = self.world.state.vm(&vm_name(KEPT)).unwrap().clone();
        let to = match vm.host == Some(host_name(HOST)) {
            true => OTHER,
            false => HOST,
        };
        let migration = MigrationId(uuid(5, self.world.fresh()));
        let claim = (self.world).claim(KEPT, &vm.spec, to, Owner::Migration(migration));
        let operation = operation_id(self.world.fresh());
        let lease = self.world.lease();
        self.run(Command::BeginMove {
            operation,
            migration,
            vm: vm_name(KEPT),
            spec: verify.then(|| Box::new(vm.spec.clone())),
            requested_host: None,
            verify,
            evacuate: false,
            claim,
            lease,
        });
        self.play(operation, |step| !verify && step > 1, is_long);
    }

    /// Drains the host of a VM, which is moved or stays for a long reason, and opens the host again.
    /// Completes an image on all hosts that there are.
    fn copy_image(&mut self, name: &str, is_long: bool) {
        let image = some_image(name, is_long);
        let (name, uid) = (image.name.clone(), image.uid);
        self.run(Command::CreateImage(image));
        let hosts: Vec<_> = self.world.state.hosts().keys().cloned().collect();
        self.run(Command::CompleteImage {
            image: name.clone(),
            uid,
            content: image_content(),
            host: hosts[0].clone(),
        });
        for host in hosts {
            self.run(Command::SetImageCopy {
                image: name.clone(),
                uid,
                host,
                present: true,
            });
        }
    }

    fn drain(&mut self, method: &str, is_long: bool) {
        self.keep();
        let host = self.world.state.vm(&vm_name(KEPT)).unwrap().host.clone();
        let host = host.unwrap();
        let to = match host.as_str() {
            HOST => OTHER,
            _ => HOST,
        };
        let drain = operation_id(self.world.fresh());
        let lease = self.world.lease();
        self.run(Command::BeginDrain {
            operation: drain,
            host: host.clone(),
            spec: DrainSpec {
                evacuate: false,
                cold: false,
                parallel: 1,
                by_policy: false,
            },
            by: text(SUMMARY_MAX),
            plan: Vec::new(),
            lease,
        });
        if method == "MoveDrained" {
            self.move_drained(drain, to, is_long);
        }
        while let Some((epoch, vm)) = self.waiting_of(drain) {
            let refusal = Some(self.long.clone());
            self.run(Command::RecordDrained {
                drain,
                epoch,
                vm,
                refusal,
            });
        }
        let cordoned = false;
        self.run(Command::SetCordon { host, cordoned });
    }

    /// Returns the lease of a drain that is running, and the next VM that waits.
    fn waiting_of(&self, drain: OperationId) -> Option<(Epoch, VmName)> {
        let operation = self.world.state.operation(drain)?;
        let waiting = operation.drain()?.waiting().next()?;
        Some((operation.lease.as_ref()?.epoch, waiting.vm.clone()))
    }

    fn move_drained(&mut self, drain: OperationId, to: &str, is_long: bool) {
        let spec = self.world.state.vm(&vm_name(KEPT)).unwrap().spec.clone();
        let migration = MigrationId(uuid(5, self.world.fresh()));
        let claim = (self.world).claim(KEPT, &spec, to, Owner::Migration(migration));
        let mover = operation_id(self.world.fresh());
        let lease = self.world.lease();
        let begin = Command::BeginMigration {
            operation: mover,
            migration,
            vm: vm_name(KEPT),
            requested_host: None,
            claim,
            lease,
            policy: MigrationPolicy::default(),
        };
        let Some((epoch, _)) = self.waiting_of(drain) else {
            return;
        };
        self.run(Command::MoveDrained {
            drain,
            epoch,
            begin: Box::new(begin),
        });
        self.play(mover, |step| step == 4 || step >= 8, is_long);
        self.run(Command::RecordDrained {
            drain,
            epoch,
            vm: vm_name(KEPT),
            refusal: None,
        });
    }

    fn revert(&mut self, is_long: bool) {
        let operation = operation_id(self.world.fresh());
        let lease = self.world.lease();
        self.run(Command::BeginRevertResize {
            operation,
            vm: vm_name(KEPT),
            lease,
        });
        self.play(operation, |_| false, is_long);
    }

    fn power(&mut self, number: usize, is_long: bool) {
        let is_off = number.is_multiple_of(2);
        if is_off {
            self.keep();
        }
        let operation = operation_id(self.world.fresh());
        let lease = self.world.lease();
        let kind = match is_off {
            true => Kind::Stop { timeout_ms: 1_000 },
            false => Kind::Start,
        };
        self.run(Command::BeginPower {
            operation,
            vm: vm_name(KEPT),
            kind: kind.clone(),
            lease,
            by_policy: false,
        });
        let step = kind.plan().steps[0].step;
        let power = match is_off {
            true => GuestPower::Off,
            false => GuestPower::On,
        };
        let refusal = None;
        let marks = [
            (Mark::Started, Effect::None),
            (Mark::Failed(self.long.clone()), Effect::None),
            (Mark::Succeeded, Effect::EndPower { power, refusal }),
        ];
        let marks = marks.into_iter();
        for (mark, effect) in marks.filter(|(mark, _)| is_long || mark.refusal().is_none()) {
            let outcome = self.world.advance(operation, step, mark, effect);
            self.accepted += usize::from(outcome.is_ok());
        }
    }

    fn lease(&mut self, method: &str, vm: &str, is_long: bool) {
        let Some(operation) = self.begin_boot(vm, false) else {
            return;
        };
        let lease = self.world.lease();
        let command = match method {
            "TakeLease" => {
                self.world.now += 2 * lease.ttl_ms;
                Command::TakeLease { operation, lease }
            }
            "RenewLeases" => Command::RenewLeases {
                conductor: lease.conductor,
                leases: vec![(operation, self.world.epoch(operation))],
                ttl_ms: lease.ttl_ms,
            },
            "CancelOperation" => Command::CancelOperation { operation },
            _ => Command::ForceComplete { operation },
        };
        self.run(command);
        self.play(operation, |_| true, is_long);
    }

    /// Logs what the saga of an operation would, until it is done; `fails` says in which of its steps
    /// something fails.
    fn play(&mut self, operation: OperationId, fails: impl Fn(usize) -> bool, is_long: bool) {
        for step in 0..400 {
            let Some(known) = self.world.state.operation(operation).cloned() else {
                return;
            };
            if known.is_done() {
                return;
            }
            let mut next = next_of_saga(&mut self.world, &known, fails(step));
            if let Effect::HoldClaim(claim) = &next.2 {
                next = self.hold_elsewhere(&known, claim.owner.clone());
            }
            let (at, mark, effect) = next;
            let (mark, effect) = match is_long {
                true => lengthened(mark, effect, &self.long),
                false => (mark, effect),
            };
            let outcome = self.world.advance(operation, at, mark, effect);
            self.accepted += usize::from(outcome.is_ok());
            if let Err(refusal) = outcome {
                panic!("{at:?} of {:?}: {refusal}", known.kind);
            }
        }
        panic!("{:?} does not end", self.world.operation(operation));
    }
}

impl Attacker {
    /// Holds a claim on a host that has not refused yet, or gives up where there is none.
    fn hold_elsewhere(&mut self, operation: &Operation, owner: Owner) -> (Step, Mark, Effect) {
        let mut hosts = self.world.state.hosts().iter();
        let next = hosts.find(|(name, view)| {
            view.host.is_open() && name.as_str() != FENCED && !operation.excluded.contains(*name)
        });
        let Some((host, _)) = next else {
            return next_of_saga(&mut self.world, operation, true);
        };
        let host = host.clone();
        let vm = self
            .world
            .state
            .vm(operation.vm().unwrap())
            .unwrap()
            .clone();
        let claim = (self.world).claim(vm.name.as_str(), &vm.spec, host.as_str(), owner);
        (Step::Claim, Mark::Succeeded, Effect::HoldClaim(claim))
    }
}

/// Returns a custom trait that no other number has.
fn custom(number: usize, name: usize, length: usize) -> Trait {
    let text = format!("CUSTOM_{number}_{name}_");
    let rest = "X".repeat(length.saturating_sub(text.len()));
    Trait::new(&(text + &rest)).unwrap()
}

/// Returns a report with new names.
fn report_of(number: usize, host: &str, is_long: bool) -> HostReport {
    let count = if is_long { REPORTED_NAMES_MAX - 2 } else { 8 };
    let length = if is_long { 255 } else { 32 };
    let namespaces = [("ns0", "SMALL".to_owned()), ("ns1", format!("L{number}"))];
    let namespaces = namespaces.map(|(name, label)| PmemNamespace {
        name: PmemName::new(name).unwrap(),
        class: Label::parse(&label).unwrap().class(),
        size_bytes: 1 << 30,
        align_bytes: 2 << 20,
        path: format!("/dev/{name}"),
        cell: Some(CellId(0)),
        region: "region0".to_owned(),
        trouble: String::new(),
    });
    let region = |name: String, steps: u64| Region {
        name: RegionName::new(&name).unwrap(),
        cell: Some(CellId(0)),
        mode: DeviceMode::Lvm,
        capacity_bytes: steps * STEP,
        align_bytes: STEP,
        foreign: Vec::new(),
        trouble: String::new(),
    };
    let topology = topology(2, 3, 1).with_pmem(namespaces.to_vec()).unwrap();
    HostReport {
        agent_address: format!("http://{host}:{}", text(ADDRESS_MAX - 20)),
        traits: (0..count)
            .map(|name| custom(number, name, length))
            .collect(),
        regions: vec![
            region("r0".to_owned(), 10_000),
            region(format!("z{number}"), 0),
        ],
        ..report(topology)
    }
}

/// Returns what is written on a VM: as much as may be, or nothing. It is not protected, so that attacks
/// can delete it.
fn metadata_of(is_long: bool) -> vm::Metadata {
    let mut metadata = vm::Metadata::default();
    if is_long {
        let prefix = text(vm::LABEL_PREFIX_LENGTH_MAX);
        let key = |number: usize| format!("{prefix}/{number:x>63}");
        let value = text(vm::LABEL_VALUE_LENGTH_MAX);
        let labels = (0..vm::LABELS_MAX).map(|number| (key(number), value.clone()));
        metadata.labels = labels.collect();
        metadata.description = text(vm::DESCRIPTION_BYTES_MAX);
        assert_eq!(metadata.faults(), []);
    }
    metadata
}

fn spec_of(is_long: bool) -> VmSpec {
    let mut spec = pinned(1);
    if is_long {
        let key = |number: usize, length: usize| format!("x{number}:{}", text(length - 8));
        let pairs = |count: usize, length: usize| {
            let numbers = 0..count;
            numbers.map(move |number| (key(number, length), text(length)))
        };
        let extra = pairs(EXTRA_SPECS_MAX - 1, EXTRA_SPEC_LENGTH_MAX);
        spec.flavor.extra_specs.extend(extra);
        let properties = pairs(PROPERTIES_MAX, PROPERTY_LENGTH_MAX).collect();
        spec.image_properties = ImageProperties(properties);
        spec.boot = BootSource::Kernel {
            kernel: text(FILE_NAME_LENGTH_MAX),
            initrd: text(FILE_NAME_LENGTH_MAX),
            cmdline: text(2_000),
        };
    }
    spec
}

/// Returns what is logged with refusals as long as the conversions accept.
fn lengthened(mark: Mark, effect: Effect, long: &Refusal) -> (Mark, Effect) {
    let mark = match mark {
        Mark::Failed(_) => Mark::Failed(long.clone()),
        Mark::Started | Mark::Succeeded | Mark::UndoStarted | Mark::Undone => mark,
    };
    let mut effect = effect;
    if let Some(refusal) = effect.refusal_mut() {
        *refusal = long.clone();
    }
    (mark, effect)
}

fn long_refusal() -> Refusal {
    let host = |number: usize| HostRefusal {
        host: host_name(&format!("h{number}")),
        cause: text(MESSAGE_MAX),
        message: text(MESSAGE_MAX),
        guest_cell: None,
        host_cell: None,
        missing: None,
    };
    Refusal {
        metadata: (0..100).map(|n| (n.to_string(), text(1024))).collect(),
        causes: (0..LIST_MAX / 10).map(|n| (n.to_string(), 1)).collect(),
        hosts: (0..HOSTS_MAX).map(host).collect(),
        ..Refusal::new(Code::Internal, "HYPERVISOR_FAILED", text(MESSAGE_MAX))
            .with_hint(text(MESSAGE_MAX))
    }
}
